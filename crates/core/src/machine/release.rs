//! From a Machine that does not want its host any more to a wiped host in the pool, or to none.

use applecart_api::ids::ServerId;
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::Action;
use super::claim::rename;
use super::decide::{Decision, act, held_up, names, since, wait};
use super::limits::{Limits, Tiers};
use super::observed::{
    Bootstrap, Bound, Candidates, Host, HostRead, HostState, Images, Lease, LeaseHolder, Observed,
    Release,
};
use super::reason::Reason;
use super::status::reason_since;
use super::upkeep::Upkeep;
use super::{image, leftovers, order};
use crate::Trouble;

/// What to do about an object that names no pool.
const NO_POOL: &str = "no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix";

/// Why a host is set aside by its Lease alone.
const UNNAMEABLE: &str = "it could not be renamed";

/// Decides one turn of a deletion. It needs neither Machine nor Cluster, and runs while paused.
pub(super) fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let object = &seen.object;
    if !object.finalizer {
        return Decision { action: None, wake: None, reason: Reason::Released };
    }
    if object.deleted_for_move {
        return leave(seen, Action::LeaveLease, Reason::Moved);
    }
    let nameless = object.status.server_id.is_none() && object.provider_id.is_none();
    if object.paused.is_some() && nameless && !is_awaited(seen) {
        return leave(seen, Action::ClearLease, Reason::Detached);
    }
    if seen.bootstrap != Bootstrap::None || !matches!(seen.upkeep, Upkeep::Idle(_)) {
        return act(Action::StopBootstrap, Reason::Releasing);
    }
    // A deletion that came too early is not repeated: another way is taken at once.
    let too_early = seen.trouble.as_ref().is_some_and(|trouble| trouble.too_early);
    // What failed before the deletion says nothing about it; while our clock is behind the API
    // server's, nobody can tell, and nothing is repeated before its time (LH21).
    let ours = |trouble: &Trouble| {
        object.deleting_since.is_some_and(|since| trouble.at >= since || now < since)
    };
    let own = seen.trouble.as_ref().is_some_and(ours);
    if let (true, false, Some(held)) = (own, too_early, held_up(now, seen)) {
        return held;
    }
    match &seen.bound {
        Bound::NotRead(_) => wait(Reason::CannotRead("its host".into()), limits.look),
        // Neither Lease nor id, and no place where a host of ours could be.
        Bound::Unbound(Candidates::NoZone(why)) if object.ordered.is_none() => {
            skip(seen, Reason::ReleaseSkipped(format!("its zone is unknown: {why}")))
        }
        Bound::Unbound(Candidates::Failed(why) | Candidates::NoZone(why)) => {
            wait(Reason::CannotRead(format!("the zone's hosts: {why}")), limits.look)
        }
        // G17: never a rental without an owner.
        Bound::Unbound(Candidates::Listed(_)) if order::may_arrive(now, seen, limits) => {
            wait(Reason::Ordering, limits.look)
        }
        Bound::Unbound(Candidates::Listed(_)) => finish(seen, Reason::Released),
        Bound::Several(hosts) => {
            let why = format!("hosts {} all carry its name", names(hosts));
            skip(seen, Reason::ReleaseSkipped(why))
        }
        Bound::To { server, lease, host } => give_back(now, seen, server, lease, host, limits),
    }
}

/// The host lives on without us: only the Lease is to be given up, and nothing outside is changed.
fn leave(seen: &Observed, give_up: fn(ServerId) -> Action, reason: Reason) -> Decision {
    match &seen.bound {
        Bound::NotRead(Some((server, _))) => act(give_up(server.clone()), reason),
        Bound::To { server, lease, .. } if lease.holder == LeaseHolder::Us => {
            act(give_up(server.clone()), reason)
        }
        _ => act(Action::RemoveFinalizer, reason),
    }
}

/// G17: an order that nobody saw arrive is no host that a person took away. One that arrived has
/// our claiming name until it is seen, and ours from then on.
fn is_awaited(seen: &Observed) -> bool {
    let unseen = match &seen.bound {
        Bound::To { host: HostRead::Seen(host), .. } => host.name != seen.object.name,
        Bound::To { .. } | Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(None) => true,
        Bound::NotRead(Some(_)) => false,
    };
    unseen && seen.object.ordered.is_some()
}

fn give_back(
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
        // C5: nobody holds what is not there.
        HostRead::Gone if lease.holder == LeaseHolder::Us => {
            let clear = || act(Action::ClearLease(server.clone()), Reason::HostGone);
            return leftovers::all(seen).unwrap_or_else(clear);
        }
        HostRead::Gone => return finish(seen, Reason::HostGone),
        HostRead::Seen(host) => host,
    };
    match &lease.holder {
        LeaseHolder::Other(holder) => {
            let reason = Reason::ReleaseSkipped(format!("it is held by {holder}"));
            // LH14: what carries our name belongs to a namesake that has the host.
            if holder.split('/').nth(1) == Some(&seen.object.name) {
                return act(Action::RemoveFinalizer, reason);
            }
            skip(seen, reason)
        }
        LeaseHolder::Nobody => unheld(seen, host, lease),
        LeaseHolder::Us => held(now, seen, host, lease, limits),
    }
}

/// Nobody holds the host: it is taken once more, or everything is done that we do.
fn unheld(seen: &Observed, host: &Host, lease: &Lease) -> Decision {
    if let Some(whose) = seen.stranger(host, lease) {
        return skip(seen, Reason::ReleaseSkipped(whose));
    }
    match seen.release_of(host) {
        Release::InPool
            if seen.is_half_released(host, lease) && host.state != HostState::Reinstalling =>
        {
            take(host, lease)
        }
        Release::InPool => finish(seen, Reason::Released),
        Release::Quarantined => finish(seen, Reason::Quarantined("see its Lease".into())),
        Release::NotOurs => skip(seen, not_ours(host)),
        Release::NotBegun | Release::Marked if lease.quarantined && host.retiring => {
            finish(seen, Reason::DeletionScheduled)
        }
        Release::NotBegun | Release::Marked if lease.quarantined => {
            finish(seen, Reason::Quarantined(UNNAMEABLE.into()))
        }
        Release::Marked if lease.is_wiped() && host.retiring => {
            finish(seen, Reason::DeletionScheduled)
        }
        Release::Marked if lease.is_wiped() => finish(seen, Reason::LeftToSweep),
        Release::NotBegun | Release::Marked if has_no_way(seen) => {
            skip(seen, Reason::ReleaseSkipped(NO_POOL.into()))
        }
        Release::NotBegun | Release::Marked => take(host, lease),
    }
}

/// What was somebody's counts as unwiped from the first note on.
fn take(host: &Host, lease: &Lease) -> Decision {
    let (server, version) = (host.id.clone(), lease.version.clone());
    act(Action::TakeLease { server, version, used: true }, Reason::Releasing)
}

fn held(now: Timestamp, seen: &Observed, host: &Host, lease: &Lease, limits: &Limits) -> Decision {
    let clear = |reason| act(Action::ClearLease(host.id.clone()), reason);
    let returns = matches!(seen.release_of(host), Release::NotBegun | Release::Marked);
    if returns && lease.moved {
        // It goes nowhere but back: else the sweep would leave alone what we may not finish.
        let action = Action::NoteMoving { server: host.id.clone(), moving: false };
        return act(action, Reason::Releasing);
    }
    match seen.release_of(host) {
        Release::InPool => clear(Reason::Releasing),
        Release::NotOurs => clear(not_ours(host)),
        Release::Quarantined => leftovers::all(seen).unwrap_or_else(|| clear(Reason::Releasing)),
        Release::NotBegun | Release::Marked if lease.quarantined => {
            leftovers::all(seen).unwrap_or_else(|| clear(Reason::Releasing))
        }
        Release::NotBegun | Release::Marked if has_no_way(seen) => {
            clear(Reason::ReleaseSkipped(NO_POOL.into()))
        }
        Release::NotBegun => match leftovers::empty(now, seen, limits) {
            Some(decision) => decision,
            None if terminates(seen) => terminate(now, seen, host, lease, limits),
            None => begin(now, seen, host, limits),
        },
        Release::Marked if terminates(seen) => terminate(now, seen, host, lease, limits),
        Release::Marked => {
            if lease.releasing_at.is_none() {
                return note_releasing(host, lease.owners_failed, Reason::Releasing);
            }
            wipe(now, seen, host, lease, limits, leftovers::all)
        }
    }
}

/// Under its own name: our releasing name comes first. A locked host takes no other name, and its
/// Machine does not wait for it for ever.
fn begin(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Decision {
    if let (HostState::Stuck(state), Some(began)) = (&host.state, seen.object.deleting_since)
        && is_refused(seen)
        && since(now, began) >= limits.patience
    {
        return quarantine(now, seen, host, began, format!("it is {state}"), limits);
    }
    rename(host, NameClass::releasing(&seen.marker()), Reason::Releasing)
}

fn not_ours(host: &Host) -> Reason {
    Reason::ReleaseSkipped(format!("it is called {:?}", host.name))
}

/// Whether the host is deleted and not returned: a person says so, or it was ordered for us.
fn terminates(seen: &Observed) -> bool {
    seen.object.terminate || seen.object.ordered.is_some()
}

fn has_no_way(seen: &Observed) -> bool {
    seen.object.pool_prefix.is_none() && !terminates(seen)
}

/// P15: inside the licensing floor a deletion is scheduled, and nobody waits for it.
fn terminate(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    let Some(asked_at) = lease.delete_requested_at else {
        return act(Action::NoteDelete(host.id.clone()), Reason::Terminating);
    };
    if host.retiring {
        return doomed(now, seen, host, lease, limits);
    }
    if let Some(trouble) = &seen.trouble {
        if trouble.too_early {
            return act(Action::ScheduleDeletion(host.id.clone()), Reason::Terminating);
        }
        // What was long refused is being set aside, and that is refused now.
        let aside = is_refused(seen) && since(now, asked_at) >= limits.patience;
        if aside || trouble.lasts(&Action::DELETE, limits.patience, now) {
            let why = format!("could not {}", trouble.message);
            return quarantine(now, seen, host, asked_at, why, limits);
        }
    }
    act(Action::DeleteServer(host.id.clone()), Reason::Terminating)
}

/// Its end is sure, and may be a day away: it is wiped like any other, so that nothing of us works
/// on, but needs no other name.
fn doomed(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    let reason = Reason::DeletionScheduled;
    if seen.release_of(host) == Release::NotBegun {
        // One that takes no name is not waited for until it goes: that may be a month.
        let asked = lease.delete_requested_at.unwrap_or(now);
        if is_refused(seen) && since(now, asked) >= limits.patience {
            return act(Action::NoteQuarantined(host.id.clone()), reason);
        }
        return rename(host, NameClass::releasing(&seen.marker()), reason);
    }
    if lease.releasing_at.is_none() {
        return note_releasing(host, lease.owners_failed, reason);
    }
    if lease.is_wiped() {
        let clear = || act(Action::ClearLease(host.id.clone()), reason);
        return leftovers::all(seen).unwrap_or_else(clear);
    }
    wipe(now, seen, host, lease, limits, leftovers::all)
}

/// Moves the host of a living Machine on, to another one's.
pub(super) fn swap(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    if lease.releasing_at.is_none() {
        // One that never was its own failed nobody.
        return if seen.object.provider_id.is_some() {
            let owners_failed = lease.owners_failed.saturating_add(1);
            note_releasing(host, owners_failed, Reason::Swapping(seen.failures()))
        } else {
            note_releasing(host, lease.owners_failed, Reason::Releasing)
        };
    }
    if lease.quarantined {
        return unbind(seen, &host.id, given_up(lease), Action::ClearLease);
    }
    if seen.object.pool_prefix.is_none() {
        return wait(Reason::NoPool, limits.keep);
    }
    wipe(now, seen, host, lease, limits, leftovers::of_host)
}

/// Why a living Machine gave its host up: one that failed nobody was good, and its name was not.
pub(super) fn given_up(lease: &Lease) -> &'static str {
    if lease.owners_failed > 0 {
        "its bootstrap failed too often"
    } else {
        "another Machine has its name"
    }
}

fn note_releasing(host: &Host, owners_failed: u32, reason: Reason) -> Decision {
    act(Action::NoteReleasing { server: host.id.clone(), owners_failed }, reason)
}

/// S2: everything that says which host a living Machine has, goes together. The status goes first,
/// since this reason's has no host in it; the Lease, by which the host is found again, goes last.
pub(super) fn unbind(
    seen: &Observed,
    server: &ServerId,
    why: &'static str,
    give_up: fn(ServerId) -> Action,
) -> Decision {
    let reason = Reason::HostReleased(why);
    if let Some(Decision { action: Some(action), .. }) = leftovers::of_host(seen) {
        return act(action, reason);
    }
    // S17: a pin outlives no host, not even beside a password that nobody can use.
    if let Some(stored) = &seen.credentials.stored {
        return act(Action::DeleteCredentials(stored.clone()), reason);
    }
    if seen.object.provider_id.is_some() {
        return act(Action::SetProviderId(None), reason);
    }
    act(give_up(server.clone()), reason)
}

/// Under our releasing name: a pool name comes only after a wipe was seen to run (LH1, LH22).
fn wipe(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
    leftover: fn(&Observed) -> Option<Decision>,
) -> Decision {
    if let (true, Some(wiped_at)) = (lease.is_wiped(), lease.wiped_at) {
        return leftover(seen)
            .unwrap_or_else(|| hand_over(now, seen, host, lease, wiped_at, limits));
    }
    let began = lease.releasing_at.unwrap_or(now);
    let overdue = since(now, began) >= limits.patience;
    match &host.state {
        HostState::Reinstalling => act(Action::NoteWiped(host.id.clone()), Reason::Wiping),
        HostState::Ready => match &seen.trouble {
            // A wipe that was long refused, or, after that, the name of a host that is set aside.
            Some(trouble)
                if trouble.lasts(&[Action::WIPE], limits.patience, now)
                    || (overdue && is_refused(seen)) =>
            {
                let why = format!("could not {}", trouble.message);
                quarantine(now, seen, host, began, why, limits)
            }
            None if overdue => insist(now, seen, host, began, limits),
            Some(_) | None => request(now, seen, host, began, Reason::Wiping, limits),
        },
        HostState::Rebooting if overdue => {
            quarantine(now, seen, host, began, "it is rebooting".into(), limits)
        }
        HostState::Stuck(state) | HostState::Changing(state) if overdue => {
            quarantine(now, seen, host, began, format!("it is {state}"), limits)
        }
        HostState::Rebooting => wait(Reason::HostChanging("rebooting".into()), limits.look),
        HostState::Changing(state) => wait(Reason::HostChanging(state.clone()), limits.look),
        HostState::Stuck(state) => wait(Reason::CannotWipe(state.clone()), limits.look),
    }
}

/// A wipe that is granted each time, and never seen to run. Maybe nobody was there to ask for it
/// or to see it: so it is asked for a while longer, which begins when that is told.
fn insist(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    began: Timestamp,
    limits: &Limits,
) -> Decision {
    let state = "ready, and no wipe of it was seen to run";
    let (asking, aside) = (Reason::CannotWipe(state.into()), Reason::Quarantined(String::new()));
    let told = |reason| reason_since(&seen.object.status, reason);
    let in_vain = told(&asking).is_some_and(|at| since(now, at) >= limits.insist);
    if in_vain || told(&aside).is_some() {
        return quarantine(now, seen, host, began, format!("it is {state}"), limits);
    }
    request(now, seen, host, began, asking, limits)
}

/// Wiped: into the pool, or aside if it failed too many owners. Some states of a host allow no
/// rename; then the Lease says what is known, and the sweep finishes.
fn hand_over(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    wiped_at: Timestamp,
    limits: &Limits,
) -> Decision {
    let living = seen.object.deleting_since.is_none();
    if is_refused(seen) && since(now, wiped_at) >= limits.insist && !living {
        return act(Action::ClearLease(host.id.clone()), Reason::LeftToSweep);
    }
    // V5: nobody waits for ever for one bad host, while good ones idle.
    let lasts = |trouble: &Trouble| trouble.lasts(&[Action::RENAME], limits.patience, now);
    if living && seen.trouble.as_ref().is_some_and(lasts) {
        let aside = Reason::Quarantined(UNNAMEABLE.into());
        return act(Action::NoteQuarantined(host.id.clone()), aside);
    }
    let marked = lease.releasing_at.map_or(limits.release_settle, |at| since(now, at));
    if marked < limits.release_settle {
        return wait(Reason::Wiping, limits.release_settle.saturating_sub(marked));
    }
    if Tiers::reached(limits.tiers.quarantine_after, lease.owners_failed) {
        let why = format!("{} owners in a row could not bootstrap it", lease.owners_failed);
        return rename(host, NameClass::quarantined(&host.id), Reason::Quarantined(why));
    }
    let prefix = seen.object.pool_prefix.as_deref().unwrap_or_default();
    rename(host, NameClass::pool(prefix, &host.id), Reason::Releasing)
}

/// Whether a rename failed since anything succeeded: the status that tells of it may have, too.
fn is_refused(seen: &Observed) -> bool {
    let renames = |tried: &str| tried == Action::RENAME;
    seen.trouble.as_ref().is_some_and(|trouble| {
        renames(trouble.tried) || trouble.streaks.iter().any(|streak| renames(streak.tried))
    })
}

/// A host that nobody can wipe is set aside for a person; if it cannot even be renamed, its Lease
/// says so.
fn quarantine(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    began: Timestamp,
    why: String,
    limits: &Limits,
) -> Decision {
    let reason = Reason::Quarantined(why);
    if is_refused(seen) && since(now, began) >= limits.patience + limits.insist {
        return act(Action::NoteQuarantined(host.id.clone()), reason);
    }
    rename(host, NameClass::quarantined(&host.id), reason)
}

/// Asks for the wipe. Images that nobody can list hold it up for half of our patience: the type's
/// default may not fit the fleet, but the disk is empty then.
fn request(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    began: Timestamp,
    reason: Reason,
    limits: &Limits,
) -> Decision {
    let late = since(now, began) >= limits.patience / 2;
    let image = match &seen.images {
        Images::Listed(images) => image::newest(images, &seen.object.os),
        Images::NotRead | Images::Failed(_) if late => None,
        Images::NotRead => {
            return wait(Reason::CannotRead("the images to wipe to".into()), limits.look);
        }
        Images::Failed(why) => {
            return wait(Reason::CannotRead(format!("the images to wipe to: {why}")), limits.look);
        }
    };
    act(Action::RequestWipe { server: host.id.clone(), image }, reason)
}

/// The host is returned, gone or not ours: remove what else there is, then the finalizer.
fn finish(seen: &Observed, reason: Reason) -> Decision {
    leftovers::all(seen).unwrap_or_else(|| act(Action::RemoveFinalizer, reason))
}

/// The host is not ours to return, nor is what runs on it: only what is ours goes.
fn skip(seen: &Observed, reason: Reason) -> Decision {
    leftovers::of_object(seen).unwrap_or_else(|| act(Action::RemoveFinalizer, reason))
}
