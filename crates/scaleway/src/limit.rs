//! One limit for all calls of a process: how many at once, and not before when.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Calls at once. Enough for a fleet's turn, few enough not to be what exhausts a rate limit.
const CONCURRENT: usize = 8;

/// Shared by its clones. A process with several clients (several projects, say) gives each the
/// same one.
#[derive(Clone, Debug)]
pub struct Limit(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    turns: Semaphore,
    /// Scaleway asked everybody to stay away until then.
    resume: Mutex<Option<Timestamp>>,
}

impl Limit {
    /// At most `concurrent` calls at once.
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

impl Default for Limit {
    fn default() -> Self {
        Self::new(CONCURRENT)
    }
}
