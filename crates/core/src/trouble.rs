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
    /// When it failed last.
    pub at: Timestamp,
    /// When the next try is due.
    pub retry_at: Timestamp,
    /// It was asked for before its time: another way may be open at once.
    pub too_early: bool,
    /// Everything that failed since anything last succeeded, this one included.
    pub streaks: Vec<Streak>,
}

/// An effect that fails again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Streak {
    /// What was tried, in the words of the effect.
    pub tried: &'static str,
    /// When it failed first.
    pub since: Timestamp,
    /// How often it failed since.
    pub times: u32,
    /// When its own next try is due.
    pub retry_at: Timestamp,
}

/// Failures from which on an effect is refused, and not just unlucky.
const SEVERAL: u32 = 6;

impl Trouble {
    /// Whether any of these effects was tried several times in a row, over all of `patience`, and
    /// failed each time: one failure after a long silence says nothing about a host.
    #[must_use]
    pub fn lasts(&self, effects: &[&str], patience: Duration, now: Timestamp) -> bool {
        let over = |streak: &Streak| {
            let lasted = Duration::try_from(now.duration_since(streak.since)).unwrap_or_default();
            streak.times >= SEVERAL && lasted >= patience
        };
        self.streaks.iter().any(|streak| effects.contains(&streak.tried) && over(streak))
    }

    /// How long it is until the next try; `None` if it is due.
    #[must_use]
    pub fn due_in(&self, now: Timestamp) -> Option<Duration> {
        until(self.retry_at, now)
    }

    /// The same for this effect, whatever else failed after it: what is told or noted beside
    /// everything else must not be tried without a pause either.
    #[must_use]
    pub fn holds(&self, effect: &str, now: Timestamp) -> Option<Duration> {
        let streak = self.streaks.iter().find(|streak| streak.tried == effect)?;
        until(streak.retry_at, now)
    }
}

fn until(time: Timestamp, now: Timestamp) -> Option<Duration> {
    let wait = Duration::try_from(time.duration_since(now)).unwrap_or_default();
    (!wait.is_zero()).then_some(wait)
}
