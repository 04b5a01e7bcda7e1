//! What this process last told in the status of each object. No I/O.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

/// The last status that was told of each object, by uid, and when: its digest, for a fleet has a
/// thousand of them.
#[derive(Debug, Default)]
pub struct Tellings(Mutex<BTreeMap<String, (Timestamp, u64)>>);

impl Tellings {
    fn last(&self) -> MutexGuard<'_, BTreeMap<String, (Timestamp, u64)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object's status was stored.
    pub fn told(&self, uid: &str, status: &impl Serialize, now: Timestamp) {
        self.last().insert(uid.to_owned(), (now, digest(status)));
    }

    /// Until when the status is not told again, if what is stored is not what we told: only another
    /// leader writes it beside us. A clock that jumped back says nothing.
    pub fn contested_until(
        &self,
        uid: &str,
        stored: &impl Serialize,
        pause: Duration,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let (at, told) = self.last().get(uid).copied()?;
        (told != digest(stored) && at <= now).then(|| at + pause)
    }

    /// The object is gone.
    pub fn forget(&self, uid: &str) {
        self.last().remove(uid);
    }
}

/// A number that another status hardly has.
fn digest(status: &impl Serialize) -> u64 {
    let mut hasher = DefaultHasher::new();
    // One that cannot be written is like no other, and was never stored.
    serde_json::to_vec(status).unwrap_or_default().hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_contested_for_a_while_after_another_replaced_it() {
        let (uid, pause) = ("0d6b7c60", Duration::from_secs(10));
        let now = Timestamp::from_second(1000).expect("a time");
        let tellings = Tellings::default();
        assert_eq!(tellings.contested_until(uid, &"a", pause, now), None, "we told nothing yet");
        tellings.told(uid, &"a", now);
        assert_eq!(tellings.contested_until(uid, &"a", pause, now), None, "it is as we told it");
        assert_eq!(tellings.contested_until(uid, &"b", pause, now), Some(now + pause));
        let before = now - Duration::from_secs(1);
        assert_eq!(tellings.contested_until(uid, &"b", pause, before), None, "a clock jumped back");
        tellings.forget(uid);
        assert_eq!(tellings.contested_until(uid, &"b", pause, now), None);
    }
}
