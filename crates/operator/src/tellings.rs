//! What this process last told in the status of each object. No I/O.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

/// The last status that was told of each object, by uid, and when.
#[derive(Debug, Default)]
pub struct Tellings<S>(Mutex<BTreeMap<String, (Timestamp, S)>>);

impl<S: Clone + PartialEq> Tellings<S> {
    fn last(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, S)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object's status was stored.
    pub fn told(&self, uid: &str, status: &S, now: Timestamp) {
        self.last().insert(uid.to_owned(), (now, status.clone()));
    }

    /// Until when the status is not told again, if what is stored is not what we told: only another
    /// leader writes it beside us.
    pub fn contested_until(&self, uid: &str, stored: &S, pause: Duration) -> Option<Timestamp> {
        let last = self.last();
        let (at, _) = last.get(uid).filter(|(_, told)| told != stored)?;
        Some(*at + pause)
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.last().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_contested_for_a_while_after_another_replaced_it() {
        let (uid, pause) = ("0d6b7c60", Duration::from_secs(10));
        let now = Timestamp::from_second(1000).expect("a time");
        let tellings = Tellings::default();
        assert_eq!(tellings.contested_until(uid, &"a", pause), None, "we told nothing yet");
        tellings.told(uid, &"a", now);
        assert_eq!(tellings.contested_until(uid, &"a", pause), None, "it is as we told it");
        assert_eq!(tellings.contested_until(uid, &"b", pause), Some(now + pause));
        tellings.forget(uid);
        assert_eq!(tellings.contested_until(uid, &"b", pause), None);
    }
}
