//! Orders that this process noted and has not sent. In memory: losing one costs time alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use applecart_api::ids::CrUid;
use jiff::Timestamp;

/// An order that was not sent so soon after its note is not sent at all: it is noted anew.
const FRESH: Duration = Duration::from_secs(10);

/// Orders that were noted and not sent, by object.
#[derive(Debug, Default)]
pub struct Orders(Mutex<BTreeMap<CrUid, Timestamp>>);

impl Orders {
    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<CrUid, Timestamp>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The note was stored.
    pub fn note(&self, uid: &CrUid, at: Timestamp) {
        self.table().insert(uid.clone(), at);
    }

    /// Whether the order that was noted at `at` is this process's to send.
    pub fn is_unsent(&self, uid: &CrUid, at: Timestamp, now: Timestamp) -> bool {
        let age = Duration::try_from(now.duration_since(at));
        self.table().get(uid) == Some(&at) && age.is_ok_and(|age| age < FRESH)
    }

    /// The order is being sent: whatever comes of it, this process sends it no second time.
    pub fn send(&self, uid: &CrUid) -> bool {
        self.table().remove(uid).is_some()
    }

    /// The object is gone.
    pub fn forget(&self, uid: &CrUid) {
        self.table().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_sent_once_and_only_while_its_note_is_fresh() {
        // G17
        let uid: CrUid = "0d6b7c60-9a9e-4f0e-8f0b-3a6f6f0c1a11".parse().expect("a uid");
        let at = Timestamp::from_second(1000).expect("a time");
        let orders = Orders::default();
        assert!(!orders.is_unsent(&uid, at, at), "nobody noted it here");
        orders.note(&uid, at);
        assert!(orders.is_unsent(&uid, at, at));
        assert!(!orders.is_unsent(&uid, at, at + FRESH));
        assert!(!orders.is_unsent(&uid, at + FRESH, at), "another note");
        assert!(orders.send(&uid));
        assert!(!orders.send(&uid));
        assert!(!orders.is_unsent(&uid, at, at));
    }
}
