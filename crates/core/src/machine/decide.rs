//! All choices of a Machine. Pure: same input, same answer; time comes in as an argument.

use std::time::Duration;

use applecart_api::condition::is_true;
use applecart_api::ids::ServerId;
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::Action;
use super::limits::Limits;
use super::observed::{
    Bootstrap, Bound, Candidates, HostRead, Lease, LeaseHolder, Observed, Pause,
};
use super::reason::Reason;
use super::status::{BOOTSTRAPPED, status};
use super::upkeep::Upkeep;
use super::{claim, drain, release, upkeep};

/// One turn's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The one effect to perform now, if any.
    pub action: Option<Action>,
    /// Look again no later than this, event or not.
    pub wake: Option<Duration>,
    /// Why, for people.
    pub reason: Reason,
}

impl Decision {
    /// Whether it may be followed, although the host was not read in this turn but so long ago. If
    /// not, the host is read, and decided anew.
    #[must_use]
    pub fn may_follow_a_read_of(&self, age: Duration, limits: &Limits) -> bool {
        match &self.action {
            Some(action) => action.may_follow_a_remembered_read(),
            // A turn that comes when its wait is over reads what it waited for.
            None => age < limits.look || !self.reason.waits_for_its_host(),
        }
    }
}

/// Decides one turn.
///
/// Deletion is looked at first, in every state. What we are about to do is told before it is done:
/// a status that would change is written first, and the effect follows in the next turn.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let decision = stay(seen, next(now, seen, limits));
    not_before_due(now, seen, tell_first(now, seen, block_move(seen, decision)))
}

/// What failed is not tried again before its time, if it goes before everything else (LH21).
fn not_before_due(now: Timestamp, seen: &Observed, decision: Decision) -> Decision {
    let held = |action: &Action| seen.trouble.as_ref()?.holds(action.describe(), now);
    match decision.action.as_ref().and_then(held) {
        Some(wait) => Decision { action: None, wake: Some(wait), ..decision },
        None => decision,
    }
}

/// What is to be done about the host, before anything is told.
pub(super) fn next(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    if seen.object.deleting_since.is_some() {
        release::decide(now, seen, limits)
    } else {
        decide_living(now, seen, limits)
    }
}

fn decide_living(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let object = &seen.object;
    if !object.owned_by_machine {
        return wait(Reason::NotOwned, limits.keep);
    }
    if let Some(pause) = object.paused {
        return paused(seen, pause, limits);
    }
    if !object.finalizer {
        let block_move = object.waiting_for.is_none() && !object.move_is_blocked;
        return act(Action::AddFinalizer { block_move }, Reason::Adopting);
    }
    if let Some(what) = &object.waiting_for {
        return wait(Reason::WaitingForOwner(what.clone()), limits.look);
    }
    if let Some(held) = held_up(now, seen).filter(|_| !drain::is_refused(seen)) {
        return held;
    }
    match &seen.bound {
        Bound::NotRead(_) => wait(Reason::CannotRead("its host".into()), limits.look),
        Bound::Several(hosts) => wait(Reason::SeveralHosts(names(hosts)), limits.keep),
        Bound::Unbound(candidates) => claim::choose(now, seen, candidates, limits),
        Bound::To { server, lease, host } => {
            let decision = claim::advance(now, seen, server, lease, host, limits);
            note_owner(seen, server, lease, host, decision)
        }
    }
}

/// Where nothing else is to be done, our Lease gets to say who we are, if it does not: one that is
/// older than such notes, or than what the spec says now.
fn note_owner(
    seen: &Observed,
    server: &ServerId,
    lease: &Lease,
    host: &HostRead,
    decision: Decision,
) -> Decision {
    let object = &seen.object;
    let named = matches!(host, HostRead::Seen(host) if host.name == object.name);
    let ours = lease.holder == LeaseHolder::Us && named;
    if decision.action.is_none() && ours && lease.note != object.note {
        return act(Action::NoteOwner(server.clone()), decision.reason);
    }
    decision
}

/// Paused is no call outside, and a bootstrap is one. `clusterctl move` pauses the Cluster first,
/// and may take the object away before anybody can look: so the Lease says early that the host may
/// live on elsewhere.
fn paused(seen: &Observed, pause: Pause, limits: &Limits) -> Decision {
    let reason = Reason::Paused(match pause {
        Pause::Cluster => "its Cluster",
        Pause::Annotation => "annotation",
    });
    if seen.bootstrap != Bootstrap::None || !matches!(seen.upkeep, Upkeep::Idle(_)) {
        return act(Action::StopBootstrap, reason);
    }
    match (&seen.bound, pause) {
        (Bound::NotRead(Some((server, lease))), Pause::Cluster) if !lease.moved => {
            act(Action::NoteMoving { server: server.clone(), moving: true }, reason)
        }
        _ => wait(reason, limits.keep),
    }
}

/// An object that is not paused any more stays where it is.
fn stay(seen: &Observed, decision: Decision) -> Decision {
    let living = seen.object.deleting_since.is_none();
    match &seen.bound {
        Bound::To { server, lease, .. }
            if living && lease.holder == LeaseHolder::Us && lease.moved =>
        {
            let action = Action::NoteMoving { server: server.clone(), moving: false };
            Decision { action: Some(action), ..decision }
        }
        _ => decision,
    }
}

/// The ids of hosts, for people.
pub(super) fn names(hosts: &[applecart_api::ids::ServerId]) -> String {
    hosts.iter().map(ToString::to_string).collect::<Vec<_>>().join(" and ")
}

/// A failed effect is not repeated before it is due, whatever woke us (LH21).
pub(super) fn held_up(now: Timestamp, seen: &Observed) -> Option<Decision> {
    let trouble = seen.trouble.as_ref()?;
    Some(wait(Reason::Trouble(trouble.message.clone()), trouble.due_in(now)?))
}

/// `clusterctl move` drops status, UID and Leases, so it waits while a host is on its way: from
/// before the first effect of a claim until its bootstrap is done, and during a release.
fn block_move(seen: &Observed, decision: Decision) -> Decision {
    let object = &seen.object;
    let going = matches!(decision.action, Some(Action::RemoveFinalizer));
    let left = matches!(decision.reason, Reason::Moved | Reason::Detached);
    let silent = !object.owned_by_machine && object.deleting_since.is_none();
    if going || left || silent || !object.finalizer {
        return decision;
    }
    match is_under_way(seen, &decision) {
        Some(wanted) if wanted != object.move_is_blocked => {
            Decision { action: Some(Action::BlockMove(wanted)), ..decision }
        }
        Some(_) | None => decision,
    }
}

/// Whether a host is on its way to or from the object; `None` if nobody can tell.
fn is_under_way(seen: &Observed, decision: &Decision) -> Option<bool> {
    let object = &seen.object;
    let bootstrapped = is_true(&object.status.conditions, BOOTSTRAPPED);
    if object.deleting_since.is_some() {
        return Some(true);
    }
    match &seen.bound {
        // What runs on a Mac is ended first.
        Bound::NotRead(_)
            if seen.bootstrap != Bootstrap::None || seen.upkeep == Upkeep::Running =>
        {
            None
        }
        Bound::NotRead(held) => {
            object.paused.map(|_| held.is_some() && object.provider_id.is_none())
        }
        Bound::Several(_) | Bound::To { host: HostRead::Gone, .. } => Some(false),
        Bound::Unbound(Candidates::Failed(_) | Candidates::NoZone(_))
        | Bound::To { host: HostRead::Failed(_), .. } => None,
        Bound::Unbound(Candidates::Listed(_)) => {
            let begins = matches!(
                decision.action,
                Some(
                    Action::TakeName { .. }
                        | Action::TakeLease { .. }
                        | Action::NoteOrder
                        | Action::Create { .. }
                )
            );
            Some(begins || decision.reason == Reason::Ordering)
        }
        Bound::To { lease, host: HostRead::Seen(host), .. } => {
            let claimed = host.name == object.name && bootstrapped;
            let ours = lease.holder == LeaseHolder::Us
                || matches!(decision.action, Some(Action::TakeLease { .. }));
            let works = seen.bootstrap != Bootstrap::None || is_kept_up(seen, decision);
            Some(ours && (!claimed || works))
        }
    }
}

/// Whether steps run on a Mac that was bootstrapped, or are about to, that may change something. A
/// look at one that is well is no reason to write twice; what it may find is mended all the same.
fn is_kept_up(seen: &Observed, decision: &Decision) -> bool {
    let begins = matches!(decision.action, Some(Action::StartUpkeep(_)));
    let runs = seen.upkeep == Upkeep::Running && seen.object.move_is_blocked;
    runs || (begins && !upkeep::is_routine(seen))
}

/// Puts a status write before the effect, if the status would say something new.
fn tell_first(now: Timestamp, seen: &Observed, decision: Decision) -> Decision {
    let silent = !seen.object.owned_by_machine && seen.object.deleting_since.is_none();
    let last = matches!(
        decision.action,
        Some(Action::AddFinalizer { .. } | Action::RemoveFinalizer | Action::RecordBootstrap(_))
    );
    let gone = seen.object.deleting_since.is_some() && !seen.object.finalizer;
    if silent || last || gone || is_told_with_the_next(seen, &decision) {
        return decision;
    }
    let wanted = status(now, seen, &decision);
    if wanted == seen.object.status {
        return decision;
    }
    // Two leaders that each tell at once what the other just replaced would do nothing else, as
    // fast as the API server lets them (LH25).
    if let Some(until) = seen.contested_until.filter(|until| now < *until) {
        let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        return Decision { action: None, wake: Some(wait), ..decision };
    }
    Decision { action: Some(Action::WriteStatus(Box::new(wanted))), ..decision }
}

/// Of a claim its stages are told, not each of its writes: where nothing is waited for, the status
/// of the next turn says all that this one's would. What fails is waited for, and so told.
fn is_told_with_the_next(seen: &Observed, decision: &Decision) -> bool {
    match &decision.action {
        Some(
            Action::TakeName { .. } | Action::TakeLease { .. } | Action::SetProviderId(Some(_)),
        ) => seen.object.deleting_since.is_none(),
        Some(Action::Rename { to, .. }) => *to == NameClass::claiming(&seen.marker()),
        Some(_) | None => false,
    }
}

pub(super) fn act(action: Action, reason: Reason) -> Decision {
    Decision { action: Some(action), wake: None, reason }
}

pub(super) fn wait(reason: Reason, wake: Duration) -> Decision {
    Decision { action: None, wake: Some(wake), reason }
}

/// How long ago `then` is; nothing if it has not been yet.
pub(super) fn since(now: Timestamp, then: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}
