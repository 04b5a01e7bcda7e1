//! What failed last, for each object, and when it is due again. In memory: losing it costs one try.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// Doublings after which waits stay the same: 2⁶ times the first.
const MOST_DOUBLINGS: u32 = 6;

/// The last failure of each object.
#[derive(Debug)]
pub struct Troubles {
    first_wait: Duration,
    last: Mutex<BTreeMap<String, Failure>>,
}

#[derive(Clone, Debug)]
struct Failure {
    in_a_row: u32,
    message: String,
    retry_at: Timestamp,
}

impl Troubles {
    /// No failures yet; the first one waits this long, each further one twice as long.
    pub fn new(first_wait: Duration) -> Self {
        Self { first_wait, last: Mutex::default() }
    }

    /// The last failure of `key`: what was said, and when the next try is due.
    pub fn of(&self, key: &str) -> Option<(String, Timestamp)> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.get(key).map(|failure| (failure.message.clone(), failure.retry_at))
    }

    /// Notes a failure.
    pub fn note(&self, key: &str, message: String, now: Timestamp) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.get(key).map_or(0, |failure| failure.in_a_row);
        let wait = self.first_wait.saturating_mul(1 << before.min(MOST_DOUBLINGS));
        let failure = Failure { in_a_row: before + 1, message, retry_at: now + wait };
        last.insert(key.to_owned(), failure);
    }

    /// An effect of `key` succeeded, or `key` is gone.
    pub fn clear(&self, key: &str) {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_until_they_do_not_and_a_success_starts_afresh() {
        let troubles = Troubles::new(Duration::from_secs(1));
        let now = Timestamp::from_second(1000).unwrap();
        let mut waits = vec![];
        for _ in 0..9 {
            troubles.note("a", "no".into(), now);
            waits.push(troubles.of("a").unwrap().1.as_second() - 1000);
        }
        assert_eq!(waits, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        assert_eq!(troubles.of("b"), None);
        troubles.clear("a");
        assert_eq!(troubles.of("a"), None);
    }
}
