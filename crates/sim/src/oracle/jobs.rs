//! Jobs run to their end, and it is told.

use std::collections::BTreeMap;

use applecart_api::ids::ServerId;
use applecart_core::pod::{Exit, VmName, VmState};

use super::{Memory, Seen, text, vm_of};
use crate::tart::SimTart;
use crate::world::Sight;

/// Jobs that are not over, by the UID of the runner.
pub(super) type Jobs = BTreeMap<String, Job>;

/// Where a job runs.
pub(super) struct Job {
    runner: String,
    vm: VmName,
    host: ServerId,
    /// How often the power of its Mac had failed when it began.
    power_cuts: u64,
}

impl Memory {
    /// S24, S37: the VM of a job runs until its guest ends, or its Mac loses power by accident.
    pub(super) fn jobs_run_to_their_end(
        &mut self,
        seen: &Seen,
        sight: &Sight,
    ) -> Result<(), String> {
        if self.busy.is_empty() && self.jobs.is_empty() {
            return Ok(());
        }
        let tarts: BTreeMap<ServerId, SimTart> = sight.tarts().collect();
        for pod in &seen.pods {
            let (uid, vm) = (text(&pod["metadata"]["uid"]), vm_of(pod));
            if !self.busy.contains_key(uid) || self.jobs.contains_key(uid) {
                continue;
            }
            let at = tarts.iter().find(|(_, tart)| tart.running().contains(&vm));
            let Some(host) = at.map(|(host, _)| host.clone()) else { continue };
            let runner = text(&pod["metadata"]["name"]).to_owned();
            let power_cuts = sight.power_cuts(&host);
            self.jobs.insert(uid.to_owned(), Job { runner, vm, host, power_cuts });
        }
        let mut killed = None;
        self.jobs.retain(|_, job| {
            let Some(tart) = tarts.get(&job.host) else { return false };
            let goes_on = tart.running().contains(&job.vm);
            let excused = tart.has_halted(&job.vm)
                || sight.power_cuts(&job.host) > job.power_cuts
                || sight.hands().deleted(&job.host);
            if !goes_on && !excused {
                killed = Some(job.runner.clone());
            }
            goes_on
        });
        match killed {
            Some(runner) => Err(format!("busy-killed: the VM of {runner} was ended under its job")),
            None => Ok(()),
        }
    }
}

/// S30: a Pod whose guest ended well did not fail.
pub(super) fn end_is_told(seen: &Seen, sight: &Sight) -> Result<(), String> {
    let ended_well = |vm: &VmName| {
        let well = Exit::Code { code: 0, message: String::new() };
        sight.tarts().any(|(_, tart)| {
            let state = tart.vms().remove(vm).map(|vm| vm.state);
            matches!(state, Some(VmState::Ended { exit, .. }) if exit == well)
        })
    };
    let failed = seen.pods.iter().filter(|pod| pod["status"]["phase"] == "Failed");
    for pod in failed {
        if ended_well(&vm_of(pod)) {
            let name = text(&pod["metadata"]["name"]);
            return Err(format!("job-failed: {name} is Failed, and its guest ended well"));
        }
    }
    Ok(())
}
