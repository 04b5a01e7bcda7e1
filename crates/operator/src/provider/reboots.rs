//! Reboots that Scaleway granted this process. In memory: losing one costs a second reboot at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use applecart_api::ids::{CrUid, ServerId};

/// Of each object: which host was rebooted last, and after how many failures.
#[derive(Debug, Default)]
pub struct Reboots(Mutex<BTreeMap<CrUid, (ServerId, u32)>>);

impl Reboots {
    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<CrUid, (ServerId, u32)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was granted.
    pub fn note(&self, uid: &CrUid, server: &ServerId, failures: u32) {
        self.table().insert(uid.clone(), (server.clone(), failures));
    }

    /// Whether it was granted after just so many failures: later ones are another streak.
    pub fn is_granted(&self, uid: &CrUid, server: &ServerId, failures: u32) -> bool {
        self.table().get(uid).is_some_and(|(of, after)| of == server && *after == failures)
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
    fn a_reboot_counts_for_its_host_and_its_streak_alone() {
        let uid: CrUid = "0d6b7c60-9a9e-4f0e-8f0b-3a6f6f0c1a11".parse().expect("a uid");
        let server = |n: u8| -> ServerId {
            format!("0000000{n}-0000-4000-8000-000000000000").parse().expect("a server id")
        };
        let reboots = Reboots::default();
        assert!(!reboots.is_granted(&uid, &server(1), 3), "nobody asked");
        reboots.note(&uid, &server(1), 3);
        assert!(reboots.is_granted(&uid, &server(1), 3));
        assert!(!reboots.is_granted(&uid, &server(2), 3), "another host");
        assert!(!reboots.is_granted(&uid, &server(1), 4), "another streak");
        reboots.forget(&uid);
        assert!(!reboots.is_granted(&uid, &server(1), 3));
    }
}
