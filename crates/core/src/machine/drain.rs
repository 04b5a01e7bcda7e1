//! A Mac on which an update waits until no VM runs is emptied, so that it can come: warm runners
//! replace each other for ever (V7). One of a fleet at a time, for a while; of Pods, only idle
//! runners go for it.

use applecart_api::condition::is_true;
use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use jiff::Timestamp;

use super::action::Action;
use super::decide::since;
use super::leftovers::{delete, ours};
use super::limits::Limits;
use super::observed::{Guest, Observed};
use super::status::{BOOTSTRAPPED, DRAINING, FAILED, POSTPONED, UP_TO_DATE};

/// A Mac that could not be emptied, or that a person let go, is left alone for so many times as
/// long as that is tried.
const REST: u32 = 24;

/// Whether something waits on a Mac until no VM runs, by what was told of it.
#[must_use]
pub fn is_postponed(status: &ScalewayAppleSiliconMachineStatus) -> bool {
    matches!(told(status), Some(POSTPONED | DRAINING))
}

fn told(status: &ScalewayAppleSiliconMachineStatus) -> Option<&str> {
    let told = status.conditions.iter().find(|condition| condition.type_ == UP_TO_DATE);
    told?.reason.as_deref()
}

/// Whether its Mac is to be emptied, as soon as no other of its fleet is: out of date for too long,
/// and kept from its update by runners alone. Asked by the shell too: whose turn it is, is read
/// only then.
#[must_use]
pub fn wants_drain(now: Timestamp, seen: &Observed, limits: &Limits) -> bool {
    let status = &seen.object.status;
    let told = status.conditions.iter().find(|condition| condition.type_ == UP_TO_DATE);
    let since_told = told.and_then(|told| told.last_transition_time);
    let late = since_told.is_some_and(|then| since(now, then) >= limits.drain);
    let free = ours(seen).is_some_and(|node| {
        let rested = node.drained.is_none_or(|then| since(now, then) >= limits.drain * REST);
        node.ready && !node.cordoned && node.draining.is_none() && rested
    });
    // Somebody else's VM ends when it likes, and nobody is in the way where none runs.
    let mut vms = seen.guests.iter().filter(|guest| guest.agent_finalizer).peekable();
    let runners = vms.peek().is_some() && vms.all(|guest| guest.runner);
    !limits.drain.is_zero() && is_postponed(status) && late && free && runners
}

/// Whether the last thing that failed was about this: a Mac that works is none the worse for it.
pub(super) fn is_refused(seen: &Observed) -> bool {
    let tried = seen.trouble.as_ref().map(|trouble| trouble.tried);
    let works = is_true(&seen.object.status.conditions, BOOTSTRAPPED);
    works && tried.is_some_and(|tried| Action::DRAIN.contains(&tried))
}

/// What to do about the Node of a Mac on which no step runs: it takes no new Pods, then its idle
/// runners go, and it takes Pods again once the update came, was given up, or takes too long.
/// Whatever else runs there ends by itself.
pub(super) fn next(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Action> {
    let node = ours(seen)?;
    let waits_to_retry = seen.trouble.as_ref().is_some_and(|t| t.due_in(now).is_some());
    if is_refused(seen) && waits_to_retry {
        return None;
    }
    let (uid, status) = (node.uid.clone(), &seen.object.status);
    let Some(began) = node.draining else {
        let due = seen.may_drain && wants_drain(now, seen, limits);
        return due.then_some(Action::Drain { uid });
    };
    // A failed one is tried again soon: new VMs would only be in the way once more.
    let tried = is_postponed(status) || told(status) == Some(FAILED);
    // Whoever let it go has the last word.
    if !tried || !node.cordoned || since(now, began) >= limits.drain {
        let came = is_true(&status.conditions, UP_TO_DATE);
        return Some(Action::Uncordon { uid, came });
    }
    let idle = |guest: &&Guest| guest.runner && !guest.busy && !guest.deleting;
    let idle = seen.guests.iter().find(idle).filter(|_| is_postponed(status));
    idle.map(|guest| delete(guest, false))
}
