//! What stands outside of a Mac on its way back: Pods on it, its Node, its identity, its Secrets.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::ids::ProviderId;
use jiff::Timestamp;

use super::action::{Action, Exactly, Identity};
use super::decide::{Decision, act, since, wait};
use super::limits::Limits;
use super::observed::{Bound, Builder, Guest, HostRead, LeaseHolder, Node, Observed, Release};
use super::reason::Reason;

/// Where a job of a Mac that builds for GitHub runs, for people.
const OWN_RUNNER: &str = "its own GitHub runner";

/// What to do where nobody can tell whether it runs.
const NOT_TOLD: &str = "from GitHub whether its own runner has a job (check GitHub and the app's \
                        Secret; without spec.ghActionsRunner nobody waits for it)";

/// How long GitHub is asked where a job may take for ever: its silence may last, too, and is none.
const SILENT_GITHUB: Duration = Duration::from_hours(1);

/// LH24: nobody else drains these Macs. Idle Pods go; a running job is waited for.
pub(super) fn empty(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    let node = ours(seen).filter(|node| node.ready || !is_dead(now, node, limits))?;
    if !node.cordoned {
        return Some(act(Action::Cordon { uid: node.uid.clone() }, Reason::Emptying));
    }
    if let Some(decision) = builder(now, seen, limits) {
        return Some(decision);
    }
    let idle = seen.guests.iter().find(|guest| !guest.busy && !guest.deleting);
    if let Some(guest) = idle {
        return Some(act(delete(guest, false), Reason::Emptying));
    }
    let leaving = seen.guests.iter().any(|guest| !guest.busy);
    let emptying = || wait(Reason::Emptying, limits.look);
    job(now, seen, limits).or_else(|| (leaving && waited(now, seen) < limits.empty).then(emptying))
}

/// S24: a job that runs on a Mac is waited for, as long as a drain may last; not on one of which
/// nobody hears any more.
pub(super) fn busy(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    ours(seen).filter(|node| node.ready || !is_dead(now, node, limits))?;
    job(now, seen, limits)
}

/// The same of the Mac's own runner, whose jobs are no Pods. It goes before it gets another one.
/// Where GitHub does not tell, it may have the job that it had, or one that nobody was told of; one
/// that last had none is not waited for long.
fn builder(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    let soon = waited(now, seen) < limits.empty;
    match seen.builder {
        Builder::None => None,
        Builder::Busy => is_patient(now, seen)
            .then(|| wait(Reason::WaitingForJob(OWN_RUNNER.to_owned()), limits.look)),
        Builder::Idle => soon.then(|| act(Action::RemoveRunner, Reason::Emptying)),
        Builder::Unknown { was_idle: true } => soon.then(|| wait(Reason::Emptying, limits.look)),
        Builder::Unknown { was_idle: false } => {
            let patience = seen.object.drain_timeout.unwrap_or(SILENT_GITHUB);
            let asks = waited(now, seen) < patience;
            asks.then(|| wait(Reason::CannotRead(NOT_TOLD.to_owned()), limits.look))
        }
    }
}

/// Whether a job may still go on.
fn is_patient(now: Timestamp, seen: &Observed) -> bool {
    seen.object.drain_timeout.is_none_or(|timeout| waited(now, seen) < timeout)
}

fn job(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    let patient = is_patient(now, seen);
    let guest = seen.guests.iter().find(|guest| guest.busy && patient)?;
    let pod = format!("Pod {}/{}", guest.namespace, guest.name);
    Some(wait(Reason::WaitingForJob(pod), limits.look))
}

/// How long it is being emptied: a host that is exchanged or rebooted, from the time of the attempt
/// that will not come.
fn waited(now: Timestamp, seen: &Observed) -> Duration {
    let began = seen.object.deleting_since.or(seen.object.status.next_attempt_at);
    since(now, began.unwrap_or(now))
}

/// An agent that is being restarted is silent for a moment, and its VMs work on: a Mac counts as
/// dead only when nobody has heard of it for a while.
fn is_dead(now: Timestamp, node: &Node, limits: &Limits) -> bool {
    node.silent_since.is_none_or(|then| since(now, then) >= limits.silent)
}

/// C5: what still stands outside of a Mac that is not ours any more, one thing at a time. The
/// agent's access first: one that is still up would register its Node anew. Its account last: it
/// says whose the name is, and whoever bears that next shall find nothing of ours (LH14).
pub(super) fn all(seen: &Observed) -> Option<Decision> {
    access(seen).or_else(|| of_host(seen)).or_else(|| account(seen))
}

/// The Pods and the Node of a host that we had.
pub(super) fn of_host(seen: &Observed) -> Option<Decision> {
    Some(act(remove_node(ours(seen)?, &seen.guests), Reason::CleaningUp))
}

/// The agent's identity and the host's Secret: ours, whatever became of the host.
pub(super) fn of_object(seen: &Observed) -> Option<Decision> {
    access(seen).or_else(|| account(seen))
}

fn access(seen: &Observed) -> Option<Decision> {
    let action = remove_access(&seen.identity, seen.credentials.stored.as_ref())?;
    Some(act(action, Reason::CleaningUp))
}

fn account(seen: &Observed) -> Option<Decision> {
    Some(act(remove_account(&seen.identity)?, Reason::CleaningUp))
}

/// The next thing to go of what opens the cluster to an agent, or its host to us: its token, its
/// binding, the Secret with the host's password and key.
pub(crate) fn remove_access(
    identity: &BTreeMap<Identity, Exactly>,
    stored: Option<&Exactly>,
) -> Option<Action> {
    let access = [Identity::Token, Identity::Binding];
    let part = access.into_iter().find_map(|part| remove(identity, part));
    part.or_else(|| stored.cloned().map(Action::DeleteCredentials))
}

/// The account, once nothing else is left that bears its name.
pub(crate) fn remove_account(identity: &BTreeMap<Identity, Exactly>) -> Option<Action> {
    remove(identity, Identity::ServiceAccount)
}

fn remove(identity: &BTreeMap<Identity, Exactly>, part: Identity) -> Option<Action> {
    let exactly = identity.get(&part)?.clone();
    Some(Action::DeleteIdentity { part, exactly })
}

/// The next Pod on a Node to go, else the Node.
pub(crate) fn remove_node(node: &Node, guests: &[Guest]) -> Action {
    if let Some(guest) = guests.iter().find(|guest| !guest.forced) {
        return delete(guest, true);
    }
    if let Some(guest) = guests.iter().find(|guest| guest.agent_finalizer) {
        return Action::FreeGuest {
            namespace: guest.namespace.clone(),
            name: guest.name.clone(),
            uid: guest.uid.clone(),
        };
    }
    Action::DeleteNode { uid: node.uid.clone() }
}

/// The Node of our name, unless it belongs to another host. One that says nothing of its host is
/// ours only if we got as far as a provider ID: else it is a namesake's (LH14). Where the provider
/// ID was lost, the Lease and its name say which host is ours: no job there is wiped away for that
/// (LH24).
pub(super) fn ours(seen: &Observed) -> Option<&Node> {
    let node = seen.node.as_ref()?;
    let held = match &seen.bound {
        Bound::To { server, lease, host: HostRead::Seen(host) }
            if lease.holder == LeaseHolder::Us
                && matches!(seen.release_of(host), Release::NotBegun | Release::Marked) =>
        {
            Some(ProviderId { zone: seen.object.zone.clone(), server: server.clone() })
        }
        Bound::To { .. } | Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => None,
    };
    let is_ours = match (&node.provider_id, &seen.object.provider_id) {
        (Some(id), Some(ours)) => *id == ours.to_string(),
        (Some(id), None) => held.is_some_and(|held| *id == held.to_string()),
        (None, ours) => ours.is_some(),
    };
    is_ours.then_some(node)
}

pub(super) fn delete(guest: &Guest, force: bool) -> Action {
    Action::DeleteGuest {
        namespace: guest.namespace.clone(),
        name: guest.name.clone(),
        uid: guest.uid.clone(),
        version: guest.version.clone(),
        force,
    }
}
