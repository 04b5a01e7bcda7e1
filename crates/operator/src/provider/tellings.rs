//! What this process last told in the status of each object. No I/O.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::ids::CrUid;
use applecart_api::machine::ScalewayAppleSiliconMachineStatus as Status;
use jiff::Timestamp;

/// The last status that was told of each object, and when.
#[derive(Debug, Default)]
pub struct Tellings(Mutex<BTreeMap<CrUid, (Timestamp, Status)>>);

impl Tellings {
    fn last(&self) -> MutexGuard<'_, BTreeMap<CrUid, (Timestamp, Status)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object's status was stored.
    pub fn told(&self, uid: &CrUid, status: &Status, now: Timestamp) {
        self.last().insert(uid.clone(), (now, status.clone()));
    }

    /// Until when the status is not told again, if what is stored is not what we told: only another
    /// leader writes it beside us.
    pub fn contested_until(
        &self,
        uid: &CrUid,
        stored: &Status,
        pause: Duration,
    ) -> Option<Timestamp> {
        let last = self.last();
        let (at, _) = last.get(uid).filter(|(_, told)| told != stored)?;
        Some(*at + pause)
    }

    /// The object is gone.
    pub fn forget(&self, uid: &CrUid) {
        self.last().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_contested_for_a_while_after_another_replaced_it() {
        let uid: CrUid = "0d6b7c60-9a9e-4f0e-8f0b-3a6f6f0c1a11".parse().expect("a uid");
        let now = Timestamp::from_second(1000).expect("a time");
        let of = |word: &str| Status { last_reason: Some(word.to_owned()), ..Status::default() };
        let pause = Duration::from_secs(10);
        let tellings = Tellings::default();
        assert_eq!(tellings.contested_until(&uid, &of("a"), pause), None, "we told nothing yet");
        tellings.told(&uid, &of("a"), now);
        assert_eq!(tellings.contested_until(&uid, &of("a"), pause), None, "it is as we told it");
        assert_eq!(tellings.contested_until(&uid, &of("b"), pause), Some(now + pause));
        tellings.forget(&uid);
        assert_eq!(tellings.contested_until(&uid, &of("b"), pause), None);
    }
}
