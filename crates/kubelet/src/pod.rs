//! One Pod's worker: look, decide, perform one effect, look again.

mod observe;
mod perform;
mod share;

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_core::pod::{
    Action, Decision, Effect, Failure, Observed, Outcome, PodId, PodObject, Reason, Slot, VmName,
    VmState, Vms, decide,
};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::vm::Vm;

/// What others tell a worker. It wakes, and reads for itself.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hint {
    /// Counts the times that there was something to look at.
    pub pokes: u64,
    /// The Pod is to be deleted: what is under way for its life is in vain.
    pub deleting: bool,
}

/// What a worker cannot read back. Losing it costs a retry, never a VM.
struct Memory {
    /// Which VM is the Pod's, as long as the Pod could be read.
    vm: VmName,
    failures: BTreeMap<Effect, Failure>,
    /// The last effect, if it went well: one that changed nothing is not repeated at once.
    last: Option<Action>,
    told: Option<Reason>,
    /// The Pod was not there in the last look, and its VM was.
    missed: bool,
}

impl Memory {
    /// A VM goes with its Pod, and one look may be behind the times: what it misses is believed
    /// when the next one misses it, too (G4).
    fn look_twice(&mut self, seen: &mut Observed) {
        let misses = matches!(seen.pod, PodObject::Gone) && seen.vm_state() != Some(None);
        if misses && !self.missed {
            seen.pod = PodObject::Unknown("not there: it is looked for once more".to_owned());
        }
        self.missed = misses;
    }
}

/// Lives a Pod's life, until there is no such Pod and nothing of it on the host.
pub(crate) async fn live<V: Vm>(
    agent: &Agent<V>,
    id: PodId,
    mut hint: watch::Receiver<Hint>,
) -> PodId {
    let vm = VmName::of(&id);
    let mut memory =
        Memory { vm, failures: BTreeMap::new(), last: None, told: None, missed: false };
    loop {
        hint.mark_unchanged();
        let mut seen = observe::observe(agent, &id, &mut memory.vm).await;
        memory.look_twice(&mut seen);
        seen.failures.clone_from(&memory.failures);
        let decision = decide_in_turn(agent, &mut seen);
        tell(&id, &mut memory, &decision);
        let wait = match decision.action {
            Some(action) if memory.last.as_ref() == Some(&action) => {
                memory.last = None;
                agent.config.timing.retry_first
            }
            Some(action) => {
                let wanted = matches!(&seen.pod, PodObject::Live(pod) if !pod.deleting);
                let outcome = tokio::select! {
                    biased;
                    outcome = perform::perform(agent, &id, &action) => outcome,
                    () = deletion(&mut hint), if wanted => {
                        Outcome::Unknown("cut short by the Pod's deletion".to_owned())
                    }
                };
                remember(agent, &id, &mut memory, action, outcome);
                Duration::ZERO
            }
            None if decision.reason == Reason::Forgotten => return id,
            // Only news can bring something to do.
            None => decision.wake.unwrap_or(Duration::MAX),
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(wait) => {}
            _ = hint.changed() => {}
        }
    }
}

/// Decides, and takes or gives up the Pod's slot, in one step that no other Pod's worker can be
/// in the middle of: so that no two are given the last slot (S25).
fn decide_in_turn<V>(agent: &Agent<V>, seen: &mut Observed) -> Decision {
    let mut slots = agent.slots.lock().expect("no panic while the slots are held");
    let mut taken = slots.clone();
    if let Vms::Known(all) = &seen.vms {
        let running = all.iter().filter(|(_, state)| **state == VmState::Running);
        taken.extend(running.map(|(name, _)| name.clone()));
    }
    taken.remove(&seen.vm);
    seen.slots_taken = taken.into_iter().collect();
    let decision = decide(agent.clock.now(), &agent.config.timing.of_pods(), seen);
    match decision.slot {
        Slot::Keep => {}
        Slot::Hold => {
            slots.insert(seen.vm.clone());
        }
        Slot::Free => {
            slots.remove(&seen.vm);
        }
    }
    decision
}

/// Returns once somebody says that the Pod is to be deleted.
async fn deletion(hint: &mut watch::Receiver<Hint>) {
    if hint.wait_for(|hint| hint.deleting).await.is_err() {
        // Nobody can say it any more.
        std::future::pending::<()>().await;
    }
}

/// An unknown outcome is looked at again at once; only trying the same again has to wait.
fn remember<V>(
    agent: &Agent<V>,
    id: &PodId,
    memory: &mut Memory,
    action: Action,
    outcome: Outcome,
) {
    let effect = action.effect();
    memory.last = None;
    match outcome {
        Outcome::Done => {
            memory.failures.remove(&effect);
            memory.last = Some(action);
        }
        Outcome::Refused => memory.last = Some(action),
        Outcome::Failed(message) | Outcome::Unknown(message) => {
            let (namespace, name) = (&id.namespace, &id.name);
            tracing::warn!(%namespace, %name, ?effect, error = message, "pod");
            let attempts = memory.failures.get(&effect).map_or(0, |failure| failure.attempts) + 1;
            let failure = Failure { message, attempts, at: agent.clock.now() };
            memory.failures.insert(effect, failure);
        }
    }
}

fn tell(id: &PodId, memory: &mut Memory, decision: &Decision) {
    if memory.told.as_ref() != Some(&decision.reason) {
        let (namespace, name) = (&id.namespace, &id.name);
        tracing::info!(%namespace, %name, vm = %memory.vm, reason = %decision.reason, "pod");
        memory.told = Some(decision.reason.clone());
    }
}
