//! What failed last, as an input of a decision.

use std::time::Duration;

use jiff::Timestamp;

/// An effect that failed: nothing is tried again before `retry_at`, whatever wakes us (LH21).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What was tried, in the words of the effect.
    pub tried: &'static str,
    /// What was tried and what was said.
    pub message: String,
    /// When the next try is due.
    pub retry_at: Timestamp,
    /// It was asked for before its time: another way may be open at once.
    pub too_early: bool,
}

impl Trouble {
    /// How long it is until the next try; `None` if it is due.
    #[must_use]
    pub fn due_in(&self, now: Timestamp) -> Option<Duration> {
        let wait = Duration::try_from(self.retry_at.duration_since(now)).unwrap_or_default();
        (!wait.is_zero()).then_some(wait)
    }
}
