//! Reboots that this process asked for. In memory: losing one costs a second reboot at most.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use applecart_api::ids::{CrUid, ServerId};
use applecart_core::machine::Reboot;

/// Of each object: which host was to be rebooted last, after how many failures, and what came of
/// it.
#[derive(Debug, Default)]
pub struct Reboots(Mutex<BTreeMap<CrUid, (ServerId, u32, Reboot)>>);

impl Reboots {
    fn table(&self) -> std::sync::MutexGuard<'_, BTreeMap<CrUid, (ServerId, u32, Reboot)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It was asked for.
    pub fn note(&self, uid: &CrUid, server: &ServerId, failures: u32, reboot: Reboot) {
        self.table().insert(uid.clone(), (server.clone(), failures, reboot));
    }

    /// What came of it after just so many failures: later ones are another streak.
    pub fn of(&self, uid: &CrUid, server: &ServerId, failures: u32) -> Reboot {
        let table = self.table();
        let noted = table.get(uid).filter(|(of, after, _)| of == server && *after == failures);
        noted.map(|(.., reboot)| *reboot).unwrap_or_default()
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
        let of = |number, failures| reboots.of(&uid, &server(number), failures);
        assert_eq!(of(1, 3), Reboot::NotGranted, "nobody asked");
        reboots.note(&uid, &server(1), 3, Reboot::Granted);
        assert_eq!(of(1, 3), Reboot::Granted);
        assert_eq!(of(2, 3), Reboot::NotGranted, "another host");
        assert_eq!(of(1, 4), Reboot::NotGranted, "another streak");
        reboots.forget(&uid);
        assert_eq!(of(1, 3), Reboot::NotGranted);
    }
}
