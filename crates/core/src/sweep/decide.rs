//! What to do about one host that was just read. Pure: same input, same answer.

use std::time::Duration;

use applecart_api::name_class::{Marker, NameClass};
use jiff::Timestamp;

use super::action::{Action, Decision};
use super::class::Class;
use super::leftovers::is_returned_elsewhere;
use super::memory::age;
use super::observed::{Job, Policy, Seen};
use super::reason::Reason;
use super::survey::{Task, is_wiped_by_hand};
use super::wipe::wipe;
use crate::machine::{Host, HostRead, HostState, LeaseHolder, Tiers};

/// How long an agent may be silent before its jobs are not waited for any more.
const SILENT: Duration = Duration::from_mins(5);

/// Decides one turn for one host.
#[must_use]
pub fn decide(now: Timestamp, task: &Task, seen: &Seen, policy: &Policy) -> Decision {
    match task {
        Task::FreeLease(_) => return free(seen),
        Task::SpareLease { .. } => return free_spare(seen),
        Task::DropLease { .. } => return drop_lease(seen),
        Task::Host { .. } => {}
    }
    let host = match &seen.host {
        HostRead::Failed(why) => return refuse(Reason::HostUnreadable(why.clone())),
        HostRead::Gone => return give_up(seen, Reason::Gone),
        HostRead::Seen(host) => host,
    };
    if let Some(holder) = seen.lease.holder() {
        return refuse(Reason::HeldByOther(holder.to_owned()));
    }
    if let Some(owner) = seen.owner_of(host) {
        return give_up(seen, Reason::Owned(owner.display()));
    }
    let class = seen.class(host);
    if is_wiped_by_hand(host, class, &seen.lease) {
        return act(Action::NoteWiped, Reason::WipedByHand);
    }
    match class {
        Class::Releasing => release(now, seen, host, policy),
        Class::Claiming => take_back(now, seen, host, policy, Reason::Finishing),
        Class::Orphan if !seen.names.may_return(&host.name) => give_up(seen, Reason::ReportOnly),
        Class::Orphan if seen.lease.lease.note.builder => give_up(seen, Reason::Builder),
        Class::Orphan => take_back(now, seen, host, policy, Reason::Returning),
        Class::Pool => give_up(seen, Reason::Returned),
        Class::Claimed | Class::Retiring | Class::Quarantined | Class::Foreign => {
            give_up(seen, Reason::NotOurs(host.name.clone()))
        }
    }
}

/// Frees the Lease of a holder who is gone.
fn free(seen: &Seen) -> Decision {
    match seen.lease.holder() {
        _ if seen.lease.moved => refuse(Reason::Moved),
        Some(holder) if !seen.owners.holder_lives(holder) => {
            act(Action::FreeLease, Reason::HolderGone(holder.to_owned()))
        }
        Some(_) | None => refuse(Reason::HolderLives),
    }
}

/// Frees the Lease of a holder who lives with another host.
fn free_spare(seen: &Seen) -> Decision {
    let host = match &seen.host {
        HostRead::Failed(why) => return refuse(Reason::HostUnreadable(why.clone())),
        HostRead::Gone => None,
        HostRead::Seen(host) => Some(host),
    };
    match seen.lease.holder() {
        _ if seen.lease.moved => refuse(Reason::Moved),
        Some(holder) if seen.owners.is_spare(holder, &seen.server, host) => {
            act(Action::FreeLease, Reason::Spare(holder.to_owned()))
        }
        Some(_) | None => refuse(Reason::HolderLives),
    }
}

/// Removes the Lease of a host that is gone, or had its last owner in another cluster: what it says
/// is about nothing any more.
fn drop_lease(seen: &Seen) -> Decision {
    let why = match &seen.host {
        HostRead::Failed(why) => return refuse(Reason::HostUnreadable(why.clone())),
        HostRead::Seen(host) if is_returned_elsewhere(host, &seen.lease, &seen.names) => {
            Reason::ReturnedElsewhere
        }
        HostRead::Seen(_) => return refuse(Reason::StillThere),
        HostRead::Gone => Reason::Vanished,
    };
    if let Some(owner) = seen.owners.by_server(&seen.server).next() {
        return refuse(Reason::Owned(owner.display()));
    }
    match seen.lease.holder() {
        Some(holder) if seen.owners.holder_lives(holder) => refuse(Reason::HolderLives),
        Some(_) | None if seen.lease.lease.version.is_none() => refuse(Reason::Gone),
        Some(_) | None => act(Action::DeleteLease, why),
    }
}

/// Under a name that nobody owns: our Lease, then our releasing name.
fn take_back(
    now: Timestamp,
    seen: &Seen,
    host: &Host,
    policy: &Policy,
    reason: Reason,
) -> Decision {
    if seen.lease.moved {
        return refuse(Reason::Moved);
    }
    if seen.pool_prefix(policy).is_none() {
        return give_up(seen, Reason::NoPool);
    }
    if let Some(job) = seen.job.as_ref().filter(|job| is_alive(now, job)) {
        return give_up(seen, Reason::Busy(job.pod.clone()));
    }
    if !is_ours(seen) {
        return act(Action::TakeLease { used: true }, reason);
    }
    let server = host.id.as_str().parse().expect("a server id has the form of a UID");
    let marker = Marker { cluster: seen.names.cluster().clone(), uid: server };
    act(Action::Rename { to: NameClass::releasing(&marker) }, reason)
}

/// Under a releasing name of this cluster: a pool name comes only after a wipe was seen to run.
fn release(now: Timestamp, seen: &Seen, host: &Host, policy: &Policy) -> Decision {
    let Some(prefix) = seen.pool_prefix(policy) else { return give_up(seen, Reason::NoPool) };
    let lease = &seen.lease.lease;
    let wiped = lease.is_wiped();
    if !is_ours(seen) {
        return act(Action::TakeLease { used: !wiped }, Reason::Finishing);
    }
    if wiped {
        let to = if Tiers::reached(policy.quarantine_after, lease.owners_failed) {
            NameClass::quarantined(&host.id)
        } else {
            NameClass::pool(prefix, &host.id)
        };
        return act(Action::Rename { to }, Reason::Finishing);
    }
    match &host.state {
        HostState::Reinstalling => act(Action::NoteWiped, Reason::Finishing),
        HostState::Rebooting => refuse(Reason::Waiting("rebooting".to_owned())),
        HostState::Changing(state) => refuse(Reason::Waiting(state.clone())),
        HostState::Stuck(state) => refuse(Reason::CannotWipe(state.clone())),
        HostState::Ready => wipe(now, seen, host, policy),
    }
}

fn is_alive(now: Timestamp, job: &Job) -> bool {
    is_heard(now, job.silent_since)
}

/// An agent that is being restarted is silent for a moment, and its VMs work on.
pub(super) fn is_heard(now: Timestamp, silent_since: Option<Timestamp>) -> bool {
    silent_since.is_none_or(|since| age(now, since) < SILENT)
}

fn is_ours(seen: &Seen) -> bool {
    seen.lease.lease.holder == LeaseHolder::Us
}

pub(super) fn act(action: Action, reason: Reason) -> Decision {
    Decision { action: Some(action), reason }
}

pub(super) fn refuse(reason: Reason) -> Decision {
    Decision { action: None, reason }
}

/// Not ours to change: our Lease goes, if we have it.
fn give_up(seen: &Seen, reason: Reason) -> Decision {
    Decision { action: is_ours(seen).then_some(Action::FreeLease), reason }
}
