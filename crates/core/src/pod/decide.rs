//! All choices of a Pod's life. Pure: same input, same answer; time comes in as an argument.

use core::net::IpAddr;
use std::fmt;
use std::time::Duration;

use applecart_api::keys::finalizer;
use jiff::{SignedDuration, Timestamp};

use super::action::{Action, Effect};
use super::observed::{
    Address, Exit, Failure, Observed, PodObject, PodSeen, Published, VmState, Vms,
};
use super::status::status;
use super::template::{Refusal, Template};
use super::vm_name::VmName;

/// The numbers that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// VMs that may run at once on a host. macOS allows two.
    pub slots: usize,
    /// How long a started VM may take to get an address.
    pub boot_deadline: Duration,
    /// How often a Pod is looked at when nothing happens.
    pub poll: Duration,
    /// The wait after a first failure; it doubles with each further one.
    pub retry_first: Duration,
    /// The longest wait between two tries.
    pub retry_longest: Duration,
}

/// One turn's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The one effect to perform now, if any.
    pub action: Option<Action>,
    /// Look again no later than this, event or not. `None`: nothing is left to be done.
    pub wake: Option<Duration>,
    /// Why, for people.
    pub reason: Reason,
    /// What becomes of the Pod's claim to one of the host's VM slots, before the effect.
    pub slot: Slot,
}

/// A Pod's claim to a VM slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// As it was: we do not know enough to change it.
    Keep,
    /// Its VM runs or is about to.
    Hold,
    /// It has no running VM and none in preparation.
    Free,
}

/// Why a Pod is as it is. Shown to people as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The API server did not tell what became of the Pod.
    PodUnknown(String),
    /// Tart did not tell which VMs there are.
    VmsUnknown(String),
    /// The finalizer goes on before anything else.
    Claiming,
    /// All slots are taken by these VMs.
    NoSlot(Vec<VmName>),
    /// The VM is being made.
    Creating,
    /// The VM could not be made; it will be tried again.
    CreateFailed(String),
    /// The VM is started, or will be in this turn.
    Booting,
    /// The VM could not be started; it will be tried again.
    StartFailed(String),
    /// The VM has an address.
    Running {
        /// The address, if it was learnt in this turn.
        address: Option<IpAddr>,
    },
    /// The VM got no address in time.
    BootDeadline(Duration),
    /// The VM ended.
    Exited {
        /// How.
        exit: Exit,
        /// When, if that was recorded.
        at: Option<Timestamp>,
    },
    /// The VM was started and is not there any more.
    Lost,
    /// The Pod cannot be a VM.
    Refused(Refusal),
    /// The VM is being stopped and deleted.
    Removing,
    /// The VM is gone, and the finalizer goes too.
    Releasing,
    /// The object's grace period is being ended.
    Deleting,
    /// Only finalizers of others keep the object.
    HeldByOthers,
    /// An effect failed and waits for its next try.
    BackingOff(String),
    /// The Pod is over and nothing of it is left on the host.
    Finished,
    /// There is no such Pod any more, and nothing of it is left on the host.
    Forgotten,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PodUnknown(why) => write!(f, "the API server did not answer: {why}"),
            Self::VmsUnknown(why) => write!(f, "tart did not list the VMs: {why}"),
            Self::Claiming => write!(f, "taking the Pod"),
            Self::NoSlot(others) => {
                let names: Vec<&str> = others.iter().map(VmName::as_str).collect();
                write!(f, "waiting for a VM slot; running: {}", names.join(", "))
            }
            Self::Creating => write!(f, "making the VM from its image"),
            Self::CreateFailed(why) => write!(f, "the VM could not be made: {why}"),
            Self::Booting => write!(f, "the VM boots"),
            Self::StartFailed(why) => write!(f, "the VM could not be started: {why}"),
            Self::Running { .. } => write!(f, "the VM has an address"),
            Self::BootDeadline(limit) => {
                write!(f, "the VM got no address within {} s of its start", limit.as_secs())
            }
            Self::Exited { exit: Exit::Code { code, message }, .. } if message.is_empty() => {
                write!(f, "tart run ended with exit code {code}")
            }
            Self::Exited { exit: Exit::Code { code, message }, .. } => {
                write!(f, "tart run ended with exit code {code}: {message}")
            }
            Self::Exited { exit: Exit::Crashed(why), .. } => write!(f, "the VM crashed: {why}"),
            Self::Exited { exit: Exit::Unknown, .. } => {
                write!(f, "the VM ended and left no exit code; how its work ended is unknown")
            }
            Self::Lost => write!(
                f,
                "the VM was started and is not on this host any more; how its work ended is unknown"
            ),
            Self::Refused(refusal) => write!(f, "this Pod cannot run on a Mac: {refusal}"),
            Self::Removing => write!(f, "stopping and deleting the VM"),
            Self::Releasing => write!(f, "the VM is gone; letting the Pod go"),
            Self::Deleting => write!(f, "the VM is gone; ending the Pod's grace period"),
            Self::HeldByOthers => write!(f, "the VM is gone; other finalizers keep the Pod"),
            Self::BackingOff(why) => write!(f, "waiting to try again: {why}"),
            Self::Finished => write!(f, "over, and nothing is left on the host"),
            Self::Forgotten => write!(f, "no such Pod, and nothing of it on the host"),
        }
    }
}

/// What a branch wants, before status and back-off have their say.
struct Plan {
    action: Option<Action>,
    reason: Reason,
    slot: Slot,
}

/// Decides one turn.
///
/// What people are told comes before what is done: a status that differs from the stored one is
/// published first. So a VM is started only by a Pod that says so, and removed only after its end
/// was stored.
#[must_use]
pub fn decide(now: Timestamp, limits: &Limits, seen: &Observed) -> Decision {
    let plan = match &seen.pod {
        PodObject::Unknown(why) => look_again(Reason::PodUnknown(why.clone())),
        PodObject::Gone => remove_then(seen, None, Reason::Forgotten),
        PodObject::Live(pod) if pod.deleting => deleting(seen, pod),
        PodObject::Live(pod) => match pod.published() {
            Published::Ended => ended(seen, pod),
            published => tell_first(now, seen, pod, live(now, limits, seen, pod, &published)),
        },
    };
    back_off(now, limits, seen, plan)
}

fn deleting(seen: &Observed, pod: &PodSeen) -> Plan {
    match (claimed(pod), pod.released) {
        (true, _) => remove_then(seen, Some(release(pod)), Reason::Releasing),
        (false, false) => {
            let delete = Action::DeletePod { uid: pod.id.uid.clone() };
            remove_then(seen, Some(delete), Reason::Deleting)
        }
        (false, true) => remove_then(seen, None, Reason::HeldByOthers),
    }
}

/// A Pod that is over gives up its finalizer too, so that it can go even when its host is dead.
fn ended(seen: &Observed, pod: &PodSeen) -> Plan {
    if claimed(pod) {
        remove_then(seen, Some(release(pod)), Reason::Releasing)
    } else {
        remove_then(seen, None, Reason::Finished)
    }
}

/// Removes what there is of the VM; only when there is certainly nothing, `then`.
fn remove_then(seen: &Observed, then: Option<Action>, reason: Reason) -> Plan {
    match seen.vm_state() {
        None => vms_unknown(seen),
        Some(Some(VmState::Running)) => {
            let remove = Some(Action::RemoveVm(seen.vm.clone()));
            Plan { action: remove, reason: Reason::Removing, slot: Slot::Hold }
        }
        Some(Some(VmState::Partial | VmState::Created | VmState::Ended { .. })) => {
            let remove = Some(Action::RemoveVm(seen.vm.clone()));
            Plan { action: remove, reason: Reason::Removing, slot: Slot::Free }
        }
        Some(None) => Plan { action: then, reason, slot: Slot::Free },
    }
}

fn live(
    now: Timestamp,
    limits: &Limits,
    seen: &Observed,
    pod: &PodSeen,
    published: &Published,
) -> Plan {
    let Some(state) = seen.vm_state() else { return vms_unknown(seen) };
    if let (None, Published::NotStarted, Err(refusal)) = (state, published, &pod.template) {
        return over(Reason::Refused(refusal.clone()));
    }
    if !claimed(pod) {
        let finalizers = [&pod.finalizers[..], &[finalizer::POD_VM.to_owned()]].concat();
        let claim = Action::SetFinalizers { version: pod.version.clone(), finalizers };
        return Plan { action: Some(claim), reason: Reason::Claiming, slot: Slot::Keep };
    }
    match (state, published, &pod.template) {
        (Some(VmState::Running), ..) => running(now, limits, seen, published),
        (Some(VmState::Ended { exit, at }), ..) => {
            over(Reason::Exited { exit: exit.clone(), at: *at })
        }
        // S28: a Pod whose VM was started never gets another.
        (None | Some(VmState::Partial | VmState::Created), Published::Running, _)
        | (None | Some(VmState::Partial), Published::Booting { .. }, _)
        | (_, Published::Ended, _) => over(Reason::Lost),
        (_, _, Err(refusal)) => over(Reason::Refused(refusal.clone())),
        (
            Some(VmState::Created),
            Published::NotStarted | Published::Booting { .. },
            Ok(template),
        ) => start(now, limits, seen, template),
        (None | Some(VmState::Partial), Published::NotStarted, Ok(template)) => {
            create(now, limits, seen, template)
        }
    }
}

fn create(now: Timestamp, limits: &Limits, seen: &Observed, template: &Template) -> Plan {
    let failed = seen.failures.get(&Effect::Create);
    let reason = failed.map_or(Reason::Creating, |f| Reason::CreateFailed(f.message.clone()));
    let action = Action::CreateVm(seen.vm.clone(), Box::new(template.clone()));
    match failed {
        // A Pod whose image cannot be had does not keep another from its slot.
        Some(failure) if now < due(limits, failure) => {
            Plan { action: None, reason, slot: Slot::Free }
        }
        _ => in_a_slot(limits, seen, Plan { action: Some(action), reason, slot: Slot::Hold }),
    }
}

fn start(now: Timestamp, limits: &Limits, seen: &Observed, template: &Template) -> Plan {
    let failed = seen.failures.get(&Effect::Start);
    match failed {
        Some(failure) if now < due(limits, failure) => {
            let reason = Reason::StartFailed(failure.message.clone());
            Plan { action: None, reason, slot: Slot::Free }
        }
        _ => {
            let action = Some(Action::StartVm(seen.vm.clone(), Box::new(template.clone())));
            in_a_slot(limits, seen, Plan { action, reason: Reason::Booting, slot: Slot::Hold })
        }
    }
}

/// The plan, if a slot is free for it (S25).
fn in_a_slot(limits: &Limits, seen: &Observed, plan: Plan) -> Plan {
    if seen.slots_taken.len() < limits.slots {
        return plan;
    }
    Plan { action: None, reason: Reason::NoSlot(seen.slots_taken.clone()), slot: Slot::Free }
}

fn running(now: Timestamp, limits: &Limits, seen: &Observed, published: &Published) -> Plan {
    let hold = |reason| Plan { action: None, reason, slot: Slot::Hold };
    match (published, &seen.address) {
        (_, Address::Known(address)) => hold(Reason::Running { address: Some(*address) }),
        (Published::Running, _) => hold(Reason::Running { address: None }),
        (Published::Booting { since }, _) if passed(now, *since, limits.boot_deadline) => {
            hold(Reason::BootDeadline(limits.boot_deadline))
        }
        (Published::NotStarted | Published::Booting { .. } | Published::Ended, _) => {
            hold(Reason::Booting)
        }
    }
}

fn tell_first(now: Timestamp, seen: &Observed, pod: &PodSeen, plan: Plan) -> Plan {
    match status(now, seen, pod, &plan.reason) {
        Some(wanted) if wanted != pod.status => {
            let (version, status) = (pod.version.clone(), Box::new(wanted));
            Plan { action: Some(Action::PublishStatus { version, status }), ..plan }
        }
        _ => plan,
    }
}

/// Holds an effect back while its last failure is too fresh, whatever woke us (LH21).
fn back_off(now: Timestamp, limits: &Limits, seen: &Observed, plan: Plan) -> Decision {
    let Plan { action, reason, slot } = plan;
    let fresh = |effect: &Effect| {
        let failure = seen.failures.get(effect)?;
        let due = due(limits, failure);
        (now < due).then(|| (failure, until(now, due)))
    };
    if let Some(action) = action {
        return match fresh(&action.effect()) {
            Some((failure, wake)) => {
                let reason = Reason::BackingOff(failure.message.clone());
                Decision { action: None, wake: Some(wake), reason, slot }
            }
            None => Decision { action: Some(action), wake: Some(Duration::ZERO), reason, slot },
        };
    }
    let retry = [Effect::Create, Effect::Start].iter().filter_map(|effect| Some(fresh(effect)?.1));
    let wake = retry.fold(limits.poll, Duration::min);
    let over = matches!(reason, Reason::Finished | Reason::Forgotten);
    Decision { action: None, wake: (!over).then_some(wake), reason, slot }
}

fn look_again(reason: Reason) -> Plan {
    Plan { action: None, reason, slot: Slot::Keep }
}

fn vms_unknown(seen: &Observed) -> Plan {
    match &seen.vms {
        Vms::Unknown(why) => look_again(Reason::VmsUnknown(why.clone())),
        Vms::Known(_) => unreachable!("a known list has an answer for every VM"),
    }
}

/// Nothing to do but tell: once that is stored, the Pod counts as ended.
fn over(reason: Reason) -> Plan {
    Plan { action: None, reason, slot: Slot::Keep }
}

fn claimed(pod: &PodSeen) -> bool {
    pod.finalizers.iter().any(|name| name == finalizer::POD_VM)
}

fn release(pod: &PodSeen) -> Action {
    let others = pod.finalizers.iter().filter(|name| *name != finalizer::POD_VM);
    Action::SetFinalizers { version: pod.version.clone(), finalizers: others.cloned().collect() }
}

fn due(limits: &Limits, failure: &Failure) -> Timestamp {
    let doubled =
        limits.retry_first.saturating_mul(1 << failure.attempts.saturating_sub(1).min(16));
    later(failure.at, doubled.min(limits.retry_longest))
}

fn later(from: Timestamp, by: Duration) -> Timestamp {
    let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
    from.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn passed(now: Timestamp, since: Timestamp, limit: Duration) -> bool {
    now >= later(since, limit)
}

fn until(now: Timestamp, then: Timestamp) -> Duration {
    then.duration_since(now).try_into().unwrap_or(Duration::ZERO)
}

#[cfg(test)]
mod tests;
