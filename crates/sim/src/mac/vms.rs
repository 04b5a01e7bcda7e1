//! The VMs on a Mac: processes like others to whoever looks for them, and gone with the session
//! that they live in.

use super::{SimMac, State};
use crate::tart::SimTart;

impl State {
    /// VMs come and go beside it. With the first one, macOS translates addresses for them.
    pub(super) fn look_for_vms(&mut self) {
        let Some(tart) = &self.tart else { return };
        let running = u32::try_from(tart.running().len()).unwrap_or(u32::MAX);
        let (before, pf) = (std::mem::replace(&mut self.model.vms, running), &mut self.model.pf);
        pf.translates_for_vms = running > 0 && (pf.translates_for_vms || running > before);
    }

    /// They lived in the session that ended, or had the power that went.
    pub(super) fn end_vms(&self) {
        let Some(tart) = &self.tart else { return };
        for vm in tart.running() {
            let _ended = tart.kill(&vm);
        }
    }
}

impl SimMac {
    /// Its VMs are those of this Tart from now on.
    pub fn run_vms_by(&self, tart: SimTart) {
        self.lock().tart = Some(tart);
    }

    /// Sets how many VMs run. With one, macOS translates their addresses.
    pub fn set_vms(&self, vms: u32) {
        let mut state = self.lock();
        state.model.vms = vms;
        state.model.pf.translates_for_vms = vms > 0;
    }

    /// How many VMs run, and whether they reach anything outside.
    #[must_use]
    pub fn vms(&self) -> (u32, bool) {
        let state = self.lock();
        (state.model.vms, state.model.pf.translates_for_vms)
    }
}
