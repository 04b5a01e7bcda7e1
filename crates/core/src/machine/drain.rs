//! A Mac on which an update waits until no VM runs is emptied, so that it can come: warm runners
//! replace each other for ever (V7). One of a fleet at a time; of Pods, only idle runners go for it.

use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use jiff::Timestamp;

use super::action::Action;
use super::decide::since;
use super::leftovers::{delete, ours};
use super::limits::Limits;
use super::observed::{Guest, Observed};
use super::status::{DRAINING, FAILED, POSTPONED, UP_TO_DATE};

/// Since when something waits on a Mac until no VM runs, by what was told of it.
#[must_use]
pub fn postponed_since(status: &ScalewayAppleSiliconMachineStatus) -> Option<Timestamp> {
    let told = status.conditions.iter().find(|condition| condition.type_ == UP_TO_DATE)?;
    let waits = matches!(told.reason.as_deref(), Some(POSTPONED | DRAINING));
    told.last_transition_time.filter(|_| waits)
}

/// Whether an update failed, and was not given up for longer.
fn is_failing(status: &ScalewayAppleSiliconMachineStatus) -> bool {
    let told = status.conditions.iter().find(|condition| condition.type_ == UP_TO_DATE);
    told.is_some_and(|told| told.reason.as_deref() == Some(FAILED))
}

/// What to do about the Node of a Mac on which no step runs: it takes no new Pods once something
/// has waited too long, then its idle runners go, and it takes Pods again when nothing waits any
/// more. Whatever else runs there ends by itself.
pub(super) fn next(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Action> {
    let node = ours(seen)?;
    let uid = node.uid.clone();
    match postponed_since(&seen.object.status) {
        // It is empty, and tried again soon: new VMs would only be in the way once more.
        None if is_failing(&seen.object.status) => None,
        None => node.draining.then_some(Action::Uncordon { uid }),
        Some(_) if node.draining && node.cordoned => {
            let idle = |guest: &&Guest| guest.runner && !guest.busy && !guest.deleting;
            seen.guests.iter().find(idle).map(|guest| delete(guest, false))
        }
        // A person cordoned it, or let it go.
        Some(_) if node.draining || node.cordoned || !node.ready => None,
        Some(then) => {
            let due = !limits.drain.is_zero() && since(now, then) >= limits.drain;
            (due && seen.first_to_drain).then_some(Action::Drain { uid })
        }
    }
}
