//! What GitHub told last of the runners of Macs that go. In memory: losing it costs a wait, as for
//! a job.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use applecart_api::ids::CrUid;
use applecart_core::machine::Builder;

/// Of each object: whether its Mac's own runner was without a job.
#[derive(Debug, Default)]
pub struct Builders(Mutex<BTreeMap<CrUid, bool>>);

impl Builders {
    fn table(&self) -> MutexGuard<'_, BTreeMap<CrUid, bool>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// GitHub told this.
    pub fn told(&self, uid: &CrUid, builder: &Builder) {
        let idle = matches!(builder, Builder::None | Builder::Idle);
        self.table().insert(uid.clone(), idle);
    }

    /// GitHub tells nothing: what is left is what it told last.
    pub fn untold(&self, uid: &CrUid) -> Builder {
        Builder::Unknown { was_idle: self.table().get(uid).copied().unwrap_or_default() }
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
    fn a_runner_is_idle_only_if_that_was_told_last() {
        let uid: CrUid = "0d6b7c60-9a9e-4f0e-8f0b-3a6f6f0c1a11".parse().expect("a uid");
        let builders = Builders::default();
        let was_idle = |was_idle| Builder::Unknown { was_idle };
        assert_eq!(builders.untold(&uid), was_idle(false), "nobody asked before");
        for (told, idle) in [(Builder::Idle, true), (Builder::Busy, false), (Builder::None, true)] {
            builders.told(&uid, &told);
            assert_eq!(builders.untold(&uid), was_idle(idle), "{told:?}");
        }
        builders.forget(&uid);
        assert_eq!(builders.untold(&uid), was_idle(false));
    }
}
