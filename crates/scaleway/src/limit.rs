//! One limit for all calls of a process: how many at once, and not before when.

use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls at once: one for each Machine that takes a turn, so that a thousand claims at 50 ms a call
/// take seconds. Scaleway publishes no rate; when it asks for less, everybody stays away for so
/// long.
pub const CONCURRENT_CALLS: usize = 32;

/// Shared by its clones. Every client needs one ([`crate::Config::new`]), and a process has one,
/// however many clients it makes: [`Limit::of_process`].
#[derive(Clone, Debug)]
pub struct Limit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    turns: Semaphore,
    /// Scaleway asked everybody to stay away until then.
    resume: Mutex<Option<Timestamp>>,
}

impl Limit {
    /// The one limit of this process: [`CONCURRENT_CALLS`] at once, in all its clients together.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one")]
    pub fn of_process() -> Self {
        static LIMIT: LazyLock<Limit> = LazyLock::new(|| Limit::new(CONCURRENT_CALLS));
        LIMIT.clone()
    }

    /// A limit apart from this process's: for a simulated process, of which one real process runs
    /// many, and none may feel another.
    ///
    /// # Panics
    /// If that is none at all.
    #[must_use]
    pub fn new(concurrent: usize) -> Self {
        assert!(concurrent > 0, "a limit of no calls lets none through");
        Self(Arc::new(Inner { turns: Semaphore::new(concurrent), resume: Mutex::new(None) }))
    }

    /// A turn, if one comes up in time.
    pub(crate) async fn turn(&self, patience: Duration) -> Option<SemaphorePermit<'_>> {
        let turn = tokio::time::timeout(patience, self.0.turns.acquire()).await.ok()?;
        Some(turn.expect("nobody closes it"))
    }

    /// Nobody calls before `reset`.
    pub(crate) fn pause(&self, reset: Timestamp) {
        let mut resume = self.0.resume.lock().unwrap_or_else(PoisonError::into_inner);
        *resume = (*resume).max(Some(reset));
    }

    /// When calls are welcome again, if not now.
    pub(crate) fn paused(&self, now: Timestamp) -> Option<Timestamp> {
        let resume = self.0.resume.lock().unwrap_or_else(PoisonError::into_inner);
        resume.filter(|resume| now < *resume)
    }
}
