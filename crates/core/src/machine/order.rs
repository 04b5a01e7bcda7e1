//! A host of its own, for a Machine that asks for one: ordered once, and never twice (G17).
//!
//! An order whose answer was lost may still arrive. So it is noted on the object first, sent only
//! by the process that noted it and right after that, under the claiming name, by which every list
//! finds it; and noted again only when it can be on its way no more and no list shows it.

use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::Action;
use super::decide::{Decision, act, since, wait};
use super::image;
use super::limits::Limits;
use super::observed::{Images, Observed, Ordered};
use super::reason::Reason;

/// No list shows a host of ours: order one, or wait for the one that was ordered.
pub(super) fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    match seen.object.ordered {
        Some(Ordered { unsent: true, .. }) => send(seen, limits),
        Some(Ordered { at, unsent: false }) if since(now, at) < limits.order => {
            wait(Reason::Ordering, limits.look)
        }
        Some(Ordered { unsent: false, .. }) | None => act(Action::NoteOrder, Reason::Ordering),
    }
}

fn send(seen: &Observed, limits: &Limits) -> Decision {
    match &seen.images {
        Images::Listed(images) => act(
            Action::Create {
                name: NameClass::claiming(&seen.marker()),
                server_type: seen.object.server_type.clone(),
                image: image::newest(images, &seen.object.os),
            },
            Reason::Ordering,
        ),
        // What is not sent at once is sent after a while: the note grows old.
        Images::NotRead | Images::Failed(_) => wait(Reason::Ordering, limits.look),
    }
}

/// Whether an order for a Machine that is being deleted may still arrive.
pub(super) fn may_arrive(now: Timestamp, seen: &Observed, limits: &Limits) -> bool {
    seen.object.ordered.is_some_and(|order| since(now, order.at) < limits.order)
}
