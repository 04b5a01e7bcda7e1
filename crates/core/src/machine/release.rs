//! From a deleted Machine to a wiped host in the pool, with nothing of it left outside.

use std::time::Duration;

use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::{Action, Identity};
use super::claim::rename;
use super::decide::{Decision, Limits, act, held_up, wait};
use super::observed::{
    Bootstrap, Bound, Candidates, Guest, Host, HostRead, HostState, Images, Lease, LeaseHolder,
    Node, Observed, Release,
};
use super::reason::Reason;
use super::upkeep::Upkeep;

/// What to do about an object that names no pool.
const NO_POOL: &str = "no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix";

/// Decides one turn of a deletion. It needs neither Machine nor Cluster, and runs while paused.
pub(super) fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let object = &seen.object;
    if !object.finalizer {
        return Decision { action: None, wake: None, reason: Reason::Released };
    }
    if object.deleted_for_move {
        return act(Action::RemoveFinalizer, Reason::Moved);
    }
    let nameless = object.status.server_id.is_none() && object.provider_id.is_none();
    if object.paused.is_some() && nameless {
        return act(Action::RemoveFinalizer, Reason::Detached);
    }
    if seen.bootstrap != Bootstrap::None || !matches!(seen.upkeep, Upkeep::Idle(_)) {
        return act(Action::StopBootstrap, Reason::Releasing);
    }
    if let Some(held) = held_up(now, seen) {
        return held;
    }
    match &seen.bound {
        Bound::NotRead => wait(Reason::CannotRead("its host".into()), limits.look),
        Bound::Unbound(Candidates::Failed(why)) => {
            wait(Reason::CannotRead(format!("the zone's hosts: {why}")), limits.look)
        }
        Bound::Unbound(Candidates::Listed(_)) => finish(seen, Reason::Released),
        Bound::To { lease, host, .. } => give_back(now, seen, lease, host, limits),
    }
}

fn give_back(
    now: Timestamp,
    seen: &Observed,
    lease: &Lease,
    read: &HostRead,
    limits: &Limits,
) -> Decision {
    let host = match read {
        HostRead::Failed(why) => {
            return wait(Reason::CannotRead(format!("its host: {why}")), limits.look);
        }
        HostRead::Gone => return finish(seen, Reason::HostGone),
        HostRead::Seen(host) => host,
    };
    match (&lease.holder, seen.release_of(host)) {
        (LeaseHolder::Other(holder), _) => {
            skip(seen, Reason::ReleaseSkipped(format!("it is held by {holder}")))
        }
        (LeaseHolder::Us, Release::NotBegun | Release::Marked)
            if seen.object.pool_prefix.is_none() =>
        {
            act(Action::ClearLease(host.id.clone()), Reason::ReleaseSkipped(NO_POOL.into()))
        }
        (LeaseHolder::Nobody, Release::NotBegun | Release::Marked)
            if seen.object.pool_prefix.is_none() =>
        {
            skip(seen, Reason::ReleaseSkipped(NO_POOL.into()))
        }
        (LeaseHolder::Nobody, Release::NotBegun | Release::Marked) => {
            let version = lease.version.clone();
            let action = Action::TakeLease { server: host.id.clone(), version, used: true };
            act(action, Reason::Releasing)
        }
        (LeaseHolder::Nobody, Release::InPool) => finish(seen, Reason::Released),
        (LeaseHolder::Nobody, Release::NotOurs) => {
            skip(seen, Reason::ReleaseSkipped(format!("it is called {:?}", host.name)))
        }
        (LeaseHolder::Us, Release::InPool) => {
            act(Action::ClearLease(host.id.clone()), Reason::Releasing)
        }
        (LeaseHolder::Us, Release::NotOurs) => {
            let why = format!("it is called {:?}", host.name);
            act(Action::ClearLease(host.id.clone()), Reason::ReleaseSkipped(why))
        }
        (LeaseHolder::Us, Release::NotBegun) => match empty(now, seen, limits) {
            Some(decision) => decision,
            None => rename(host, NameClass::releasing(&seen.marker()), Reason::Releasing),
        },
        (LeaseHolder::Us, Release::Marked) => wipe(seen, host, lease, limits),
    }
}

/// LH24: nobody else drains these Macs. Idle Pods go; a running job is waited for.
fn empty(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    let node = seen.node.as_ref().filter(|node| node.ready || !is_dead(now, node, limits))?;
    if !node.cordoned {
        return Some(act(Action::Cordon { uid: node.uid.clone() }, Reason::Emptying));
    }
    let idle = seen.guests.iter().find(|guest| !guest.busy && !guest.deleting);
    if let Some(guest) = idle {
        return Some(act(delete(guest, false), Reason::Emptying));
    }
    let since = seen.object.deleting_since.unwrap_or(now);
    let waited = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let patient = seen.object.drain_timeout.is_none_or(|timeout| waited < timeout);
    if let Some(guest) = seen.guests.iter().find(|guest| guest.busy && patient) {
        let pod = format!("{}/{}", guest.namespace, guest.name);
        return Some(wait(Reason::WaitingForJob(pod), limits.look));
    }
    let leaving = seen.guests.iter().any(|guest| !guest.busy);
    (leaving && waited < limits.empty).then(|| wait(Reason::Emptying, limits.look))
}

/// An agent that is being restarted is silent for a moment, and its VMs work on: a Mac counts as
/// dead only when nobody has heard of it for a while.
fn is_dead(now: Timestamp, node: &Node, limits: &Limits) -> bool {
    let silent = node.silent_since.and_then(|since| now.duration_since(since).try_into().ok());
    silent.is_none_or(|silent: Duration| silent >= limits.silent)
}

/// Under our releasing name: a pool name comes only after a wipe was seen to run (LH1, LH22).
fn wipe(seen: &Observed, host: &Host, lease: &Lease, limits: &Limits) -> Decision {
    if lease.wiped_at.is_some() && !lease.unwiped {
        let prefix = seen.object.pool_prefix.as_deref().unwrap_or_default();
        return leftover(seen)
            .unwrap_or_else(|| rename(host, NameClass::pool(prefix, &host.id), Reason::Releasing));
    }
    match &host.state {
        HostState::Reinstalling => act(Action::NoteWiped(host.id.clone()), Reason::Wiping),
        HostState::Ready => request(seen, host, limits),
        HostState::Changing(state) => wait(Reason::HostChanging(state.clone()), limits.look),
        HostState::Stuck(state) => wait(Reason::CannotWipe(state.clone()), limits.look),
    }
}

/// P32, S14: a released host must fit the fleet that released it, so it is wiped to an image that
/// its pin accepts; if there is none any more, to the type's default rather than not at all.
fn request(seen: &Observed, host: &Host, limits: &Limits) -> Decision {
    let images = match &seen.images {
        Images::Listed(images) => images,
        Images::NotRead => {
            return wait(Reason::CannotRead("the images to wipe to".into()), limits.look);
        }
        Images::Failed(why) => {
            return wait(Reason::CannotRead(format!("the images to wipe to: {why}")), limits.look);
        }
    };
    let fitting = images.iter().filter(|image| seen.object.os.accepts(&image.name, &image.family));
    let newest = fitting.max_by_key(|image| (!image.beta, release_order(&image.version)));
    let image = newest.map(|image| image.id.clone());
    act(Action::RequestWipe { server: host.id.clone(), image }, Reason::Wiping)
}

/// `26.10` comes after `26.9`.
fn release_order(version: &str) -> Vec<u64> {
    version.split('.').map(|part| part.parse().unwrap_or(0)).collect()
}

/// The host is returned, gone or not ours: remove what else there is, then the finalizer.
fn finish(seen: &Observed, reason: Reason) -> Decision {
    leftover(seen).unwrap_or_else(|| act(Action::RemoveFinalizer, reason))
}

/// The host is not ours to return, nor is what runs on it: only what is ours goes.
fn skip(seen: &Observed, reason: Reason) -> Decision {
    own_leftover(seen).unwrap_or_else(|| act(Action::RemoveFinalizer, reason))
}

/// C5: what still stands outside of a Mac that is not ours any more, one thing at a time.
fn leftover(seen: &Observed) -> Option<Decision> {
    let clean = |action| Some(act(action, Reason::CleaningUp));
    if let Some(node) = ours(seen) {
        if let Some(guest) = seen.guests.iter().find(|guest| !guest.forced) {
            return clean(delete(guest, true));
        }
        if let Some(guest) = seen.guests.iter().find(|guest| guest.agent_finalizer) {
            return clean(Action::FreeGuest {
                namespace: guest.namespace.clone(),
                name: guest.name.clone(),
                uid: guest.uid.clone(),
            });
        }
        return clean(Action::DeleteNode { uid: node.uid.clone() });
    }
    own_leftover(seen)
}

/// The agent's identity and the host's password: ours, whatever became of the host.
fn own_leftover(seen: &Observed) -> Option<Decision> {
    let clean = |action| Some(act(action, Reason::CleaningUp));
    if let Some(part) = Identity::ALL.iter().rev().find(|part| seen.identity.contains(part)) {
        return clean(Action::DeleteIdentity(*part));
    }
    if seen.credentials.password {
        return clean(Action::DeleteCredentials);
    }
    None
}

/// The Node of our name, unless it belongs to another host.
fn ours(seen: &Observed) -> Option<&Node> {
    let node = seen.node.as_ref()?;
    match (&node.provider_id, &seen.object.provider_id) {
        (Some(node_id), Some(our_id)) if *node_id != our_id.to_string() => None,
        _ => Some(node),
    }
}

fn delete(guest: &Guest, force: bool) -> Action {
    Action::DeleteGuest {
        namespace: guest.namespace.clone(),
        name: guest.name.clone(),
        uid: guest.uid.clone(),
        version: guest.version.clone(),
        force,
    }
}
