//! From nothing to a host under our name: choosing one, and claiming it.

use applecart_api::ids::{CrUid, ServerId};
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::Action;
use super::decide::{Decision, act, since, wait};
use super::limits::Limits;
use super::observed::{
    Candidate, Candidates, Host, HostRead, HostState, Lease, LeaseHolder, Name, Observed,
};
use super::reason::{PoolCounts, Reason};
use super::{bootstrap, order, release};

/// What cannot be decided before it was read whose the object's name is.
const WHOSE_NAME: &str = "whose its name is";

/// Whether what comes next depends on who has the object's name. Asked by the shell: that is read
/// only then.
#[must_use]
pub fn needs_name(now: Timestamp, seen: &Observed, limits: &Limits) -> bool {
    let next = || super::decide::next(now, seen, limits);
    seen.name == Name::NotRead && next().reason == Reason::CannotRead(WHOSE_NAME.into())
}

/// Chooses a host from the list and takes its Lease, or orders one for a Machine that asks for it:
/// if nobody else has the object's name (LH14).
pub(super) fn choose(
    now: Timestamp,
    seen: &Observed,
    candidates: &Candidates,
    limits: &Limits,
) -> Decision {
    let chosen = choose_host(now, seen, candidates, limits);
    if chosen.action.is_none() {
        return chosen;
    }
    match &seen.name {
        Name::Ours => chosen,
        Name::Other(whose) => wait(Reason::NameTaken(whose.clone()), limits.look),
        Name::Free(_) | Name::NotRead => take_name(seen, chosen.reason, limits),
    }
}

/// The name comes first: whoever has it, has it until it goes.
fn take_name(seen: &Observed, reason: Reason, limits: &Limits) -> Decision {
    match &seen.name {
        Name::Free(version) => act(Action::TakeName { version: version.clone() }, reason),
        Name::NotRead | Name::Ours | Name::Other(_) => {
            wait(Reason::CannotRead(WHOSE_NAME.into()), limits.look)
        }
    }
}

fn choose_host(
    now: Timestamp,
    seen: &Observed,
    candidates: &Candidates,
    limits: &Limits,
) -> Decision {
    let listed = match candidates {
        Candidates::Failed(why) => {
            return wait(Reason::CannotRead(format!("the zone's hosts: {why}")), limits.look);
        }
        Candidates::NoZone(why) => {
            let what = format!("a spec.zone that Scaleway knows: {why}");
            return wait(Reason::WaitingForOwner(what), limits.keep);
        }
        Candidates::Listed(listed) => listed,
    };
    // Once ordered, always ordered: what such an object holds is deleted with it.
    if seen.object.auto_order || seen.object.ordered.is_some() {
        return order::decide(now, seen, limits);
    }
    let Some(_) = &seen.object.pool_prefix else { return wait(Reason::NoPool, limits.keep) };
    let mut counts = PoolCounts::default();
    let listed = listed.iter().map(|candidate| &**candidate);
    let mut fitting: Vec<&Candidate> =
        listed.filter(|candidate| fits(seen, candidate, &mut counts)).collect();
    // A host that failed its owners is the last choice.
    let fewest = fitting.iter().map(|candidate| candidate.lease.owners_failed).min();
    fitting.retain(|candidate| Some(candidate.lease.owners_failed) == fewest);
    // Whatever else the list shows, a Machine chooses the same host again while that fits: what it
    // may have taken already, without having heard so, is what it tries to take (P1).
    let rank = |candidate: &&Candidate| rank(&seen.object.uid, &candidate.host.id);
    match fitting.into_iter().max_by_key(rank) {
        Some(chosen) => take(&chosen.host.id, &chosen.lease, false),
        None => wait(Reason::NoAvailableHost(counts), limits.look),
    }
}

/// How much an object prefers a host: each object has an order of its own, so that those who choose
/// from one list rarely collide (rendezvous hashing; FNV-1a, and a last stir).
fn rank(uid: &CrUid, server: &ServerId) -> u64 {
    let bytes = uid.digits().into_bytes().into_iter().chain(server.digits().into_bytes());
    let hash = bytes.fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    let stirred = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    stirred ^ (stirred >> 33)
}

fn take(server: &ServerId, lease: &Lease, used: bool) -> Decision {
    let (server, version) = (server.clone(), lease.version.clone());
    let action = Action::TakeLease { server, version, used };
    act(action, Reason::Adopting)
}

/// S5: the one predicate for adoption; the first thing that rules a host out is counted.
fn fits(seen: &Observed, candidate: &Candidate, counts: &mut PoolCounts) -> bool {
    let Candidate { host, lease } = candidate;
    if host.class(seen.object.pool_prefix.as_deref()) != NameClass::Pool {
        return false;
    }
    counts.pool += 1;
    let going = host.retiring || lease.awaits_deletion();
    let ruled_out_by = if host.server_type != seen.object.server_type {
        &mut counts.wrong_type
    } else if !host.os.as_ref().is_some_and(|(name, family)| seen.object.os.accepts(name, family)) {
        &mut counts.wrong_os
    } else if !host.delivered || going || host.state != HostState::Ready {
        &mut counts.not_ready
    } else if lease.holder != LeaseHolder::Nobody {
        &mut counts.held
    } else if lease.unwiped {
        &mut counts.not_wiped
    } else {
        return true;
    };
    *ruled_out_by += 1;
    false
}

/// Moves a host that we know of on by one step.
pub(super) fn advance(
    now: Timestamp,
    seen: &Observed,
    server: &ServerId,
    lease: &Lease,
    read: &HostRead,
    limits: &Limits,
) -> Decision {
    let host = match read {
        HostRead::Failed(why) => {
            return wait(Reason::CannotRead(format!("its host: {why}")), limits.look);
        }
        HostRead::Gone => return lost(seen, server, lease, limits),
        HostRead::Seen(host) => host,
    };
    let class = host.class(seen.object.pool_prefix.as_deref());
    let named = class == NameClass::Other(seen.object.name.clone());
    let marked = class == NameClass::Claiming(seen.marker());
    let swapped = class == NameClass::Releasing(seen.marker());
    let returned =
        lease.releasing_at.is_some() && matches!(class, NameClass::Pool | NameClass::Quarantined);
    match &lease.holder {
        LeaseHolder::Other(holder) => wait(Reason::HeldByOther(holder.clone()), limits.keep),
        // It was given up under this name, and is a person's to look after.
        LeaseHolder::Nobody if swapped && lease.quarantined => {
            wait(Reason::NotOurs(host.name.clone()), limits.keep)
        }
        LeaseHolder::Nobody if named || marked || swapped => match seen.stranger(host, lease) {
            Some(whose) => wait(Reason::NameTaken(whose), limits.keep),
            None => take(server, lease, true),
        },
        // LH1: its Lease comes first, so that nobody adopts it with this Machine's work on it.
        LeaseHolder::Nobody if seen.is_half_released(host, lease) => {
            take(server, lease, host.state != HostState::Reinstalling)
        }
        LeaseHolder::Us if named => bootstrap::prepare(now, seen, host, lease, limits),
        LeaseHolder::Us if marked => settle(now, seen, host, lease, limits),
        LeaseHolder::Us if swapped => release::swap(now, seen, host, lease, limits),
        LeaseHolder::Us if returned => {
            release::unbind(seen, server, release::given_up(lease), Action::ClearLease)
        }
        LeaseHolder::Us if class == NameClass::Pool && is_half_swapped(seen, lease) => {
            release::unbind(seen, server, HALF_SWAPPED, Action::ClearLease)
        }
        LeaseHolder::Us if class == NameClass::Pool => mark(seen, host, lease),
        LeaseHolder::Us if is_outrun(seen) => {
            release::unbind(seen, server, OUTRUN, give_up(seen, lease))
        }
        LeaseHolder::Nobody | LeaseHolder::Us => {
            wait(Reason::NotOurs(host.name.clone()), limits.keep)
        }
    }
}

/// Why a host that we marked is given up.
pub(super) const OUTRUN: &str = "somebody else renamed its host before it was claimed";

/// Why a host is given up that was given up before.
const HALF_SWAPPED: &str = "its host was given back to the pool by somebody else";

/// The host bears a pool name, although the object names it as its own, and nobody marked it: the
/// system before us ended in the middle of an exchange. As with any exchange, only before Cluster
/// API was told of the host.
fn is_half_swapped(seen: &Observed, lease: &Lease) -> bool {
    let object = &seen.object;
    let known = object.status.server_id.is_some() || object.provider_id.is_some();
    let told = seen.is_provisioned() || object.ordered.is_some();
    known && lease.marked_at.is_none() && !told
}

/// A host that we marked has another name, as when another cluster's rename came last. It never had
/// ours, Cluster API was not told of it, and others are free.
fn is_outrun(seen: &Observed) -> bool {
    let object = &seen.object;
    object.provider_id.is_none() && object.ordered.is_none() && !seen.is_provisioned()
}

/// How a host is given up that another one has, or that does not fit any more. Marking it noted
/// that it counts as used from then on. Without a provider ID nothing of us was ever on it, for
/// that comes before all else; whoever returns it to the pool finds it there as good as before.
fn give_up(seen: &Observed, lease: &Lease) -> fn(ServerId) -> Action {
    let unused = seen.object.provider_id.is_none() && lease.releasing_at.is_none();
    if unused && lease.marked_at.is_some() { Action::ReturnLease } else { Action::ClearLease }
}

/// LH16: a host that is gone is another one's turn only while nobody was told of it. A Machine that
/// is bound to its Node cannot be given another; one that bought its host buys no second.
fn lost(seen: &Observed, server: &ServerId, lease: &Lease, limits: &Limits) -> Decision {
    let ours = !matches!(lease.holder, LeaseHolder::Other(_));
    if ours && !seen.is_provisioned() && seen.object.ordered.is_none() {
        let why = "its host does not exist any more";
        return release::unbind(seen, server, why, Action::ClearLease);
    }
    wait(Reason::HostGone, limits.keep)
}

/// Leased, still under its pool name: mark it as ours, if it still fits.
fn mark(seen: &Observed, host: &Host, lease: &Lease) -> Decision {
    // That it counts as used was our own note, if we have marked it before: a rename that was sent
    // long ago may land after that.
    let unwiped = lease.unwiped && lease.marked_at.is_none();
    let lease_before = Lease { holder: LeaseHolder::Nobody, unwiped, ..lease.clone() };
    let fresh = Candidate { host: host.clone(), lease: lease_before };
    if fits(seen, &fresh, &mut PoolCounts::default()) {
        rename(host, NameClass::claiming(&seen.marker()), Reason::Adopting)
    } else {
        act(give_up(seen, lease)(host.id.clone()), Reason::Adopting)
    }
}

/// Marked: wait until nobody else's rename can still land, then give it our name.
fn settle(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    let Some(marked_at) = lease.marked_at else {
        return act(Action::NoteMarked(host.id.clone()), Reason::Settling);
    };
    if !host.delivered {
        return wait(Reason::Ordering, limits.look);
    }
    let waited = since(now, marked_at);
    if waited < limits.claim_settle {
        return wait(Reason::Settling, limits.claim_settle.saturating_sub(waited));
    }
    match &seen.name {
        Name::Ours => rename(host, seen.object.name.clone(), Reason::Settling),
        Name::Free(_) | Name::NotRead => take_name(seen, Reason::Settling, limits),
        // What was bought for it is exchanged for nothing.
        Name::Other(whose) if seen.object.ordered.is_some() => {
            wait(Reason::NameTaken(whose.clone()), limits.look)
        }
        Name::Other(whose) => {
            let releasing = NameClass::releasing(&seen.marker());
            rename(host, releasing, Reason::NameTaken(whose.clone()))
        }
    }
}

pub(super) fn rename(host: &Host, to: String, reason: Reason) -> Decision {
    act(Action::Rename { server: host.id.clone(), was: host.name.clone(), to }, reason)
}
