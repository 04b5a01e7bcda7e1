//! A Mac that was bootstrapped stays as it shall be: the same steps again, beside the loop, at
//! intervals and whenever something changed. A Mac that is well is only read. One that was taken
//! over from the system before us is not even that, until something that it shall be changes.

use std::time::Duration;

use applecart_api::condition::is_true;
use jiff::Timestamp;

use super::action::Action;
use super::decide::{Decision, act};
use super::drain;
use super::limits::{Limits, Tiers};
use super::observed::{Host, HostState, Lease, Observed};
use super::reason::back_off;
use super::status::{OUTDATED, TAKEN_OVER, UP_TO_DATE, UpToDate, upkeep_status};

/// The steps, run again on a Mac that was bootstrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// None runs; how the last one in this process ended, if there was one.
    Idle(Option<Looked>),
    /// One runs.
    Running,
    /// One ended, and nobody told yet.
    Ended(Upkept),
}

/// The last look at a Mac.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Looked {
    /// When it ended.
    pub at: Timestamp,
    /// The generation of the spec that it was for.
    pub generation: Option<i64>,
}

/// How the steps ended on a Mac that was bootstrapped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upkept {
    /// All is as it shall be.
    Current {
        /// Fingerprint of what is on the host.
        stamp: String,
        /// What counts from the next boot on, if anything.
        awaits_boot: Option<String>,
        /// What there was to do, for people.
        did: String,
    },
    /// The Mac was taken over, and nobody went there: fingerprint of what it shall be, if that can
    /// be told.
    TakenOver(Option<String>),
    /// Something waits until no VM runs; what.
    Postponed(String),
    /// All that makes the host a Node is as it shall be; something beside it failed, and said this.
    Incomplete(String),
    /// It failed, and said this.
    Failed(String),
    /// macOS refused the password, and said this.
    PasswordRefused(String),
}

/// How many times rarer the steps run on a Mac on which they failed too often.
const SLOWER: u32 = 4;

/// Whether the steps are due again. Asked by the shell too: what they need is read only then.
#[must_use]
pub fn is_due(now: Timestamp, seen: &Observed, limits: &Limits) -> bool {
    due_in(now, seen, limits).is_some_and(|wait| wait.is_zero())
}

/// How long it is until the steps are due again; `None` while they run.
fn due_in(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Duration> {
    let Upkeep::Idle(last) = &seen.upkeep else { return None };
    let until = |due: Timestamp| Duration::try_from(due.duration_since(now)).unwrap_or_default();
    // A failure is not repeated before its time, whatever woke us (LH21); that of another spec says
    // nothing about this one (P25).
    let due = seen.object.status.next_attempt_at.filter(|_| is_of_this_spec(seen));
    let held = due.map(until).unwrap_or_default();
    let is_well = seen.node.as_ref().is_some_and(|node| node.ready);
    let after = match last {
        // A new process knows nothing: it looks once. What failed is tried again at its time.
        None => return Some(held),
        Some(_) if due.is_some() => return Some(held),
        Some(_) if is_outdated(seen) => return Some(held),
        Some(last) if last.generation != seen.object.generation => return Some(held),
        // VMs come and go: a moment without any is not to be missed (V7).
        Some(last) if drain::is_postponed(&seen.object.status) => last.at + limits.retry,
        Some(last) if !is_well => last.at + limits.node_missing,
        Some(last) => last.at + limits.upkeep,
    };
    Some(held.max(until(after)))
}

/// Whether the steps, run now, most likely only look: when this process looked last, all was as it
/// shall be or in the way of VMs, the Node is well, and the spec is the same.
pub(super) fn is_routine(seen: &Observed) -> bool {
    let generation = seen.object.generation;
    let looked = matches!(&seen.upkeep, Upkeep::Idle(Some(last)) if last.generation == generation);
    let is_well = seen.node.as_ref().is_some_and(|node| node.ready);
    let status = &seen.object.status;
    let is_current = is_true(&status.conditions, UP_TO_DATE) || drain::is_postponed(status);
    looked && is_well && is_current
}

/// Whether what was last told of the steps is about the spec as it is now.
fn is_of_this_spec(seen: &Observed) -> bool {
    let told = seen.object.status.conditions.iter().find(|c| c.type_ == UP_TO_DATE);
    let generation = told.and_then(|condition| condition.observed_generation);
    generation.is_none_or(|generation| Some(generation) == seen.object.generation)
}

/// Whether the Mac was made a Node by the system before us, and is left as it is: nothing that it
/// shall be has changed since, and nobody asked. A host that we claimed was marked first.
fn is_taken_over(seen: &Observed, lease: &Lease) -> bool {
    let told = seen.object.status.conditions.iter().find(|c| c.type_ == UP_TO_DATE);
    let untouched = told.is_none_or(|told| told.reason.as_deref() == Some(TAKEN_OVER));
    untouched && lease.marked_at.is_none() && !seen.object.update
}

/// Whether a Mac that was taken over shall be something else by now.
fn is_outdated(seen: &Observed) -> bool {
    let told = seen.object.status.conditions.iter().find(|c| c.type_ == UP_TO_DATE);
    let taken_over = told.is_some_and(|told| told.reason.as_deref() == Some(TAKEN_OVER));
    told.is_some_and(|told| told.reason.as_deref() == Some(OUTDATED))
        || (taken_over && seen.object.update)
}

/// Wraps what is said of a Mac that was bootstrapped: `state` stands, and the steps run beside it.
pub(super) fn keep(
    now: Timestamp,
    seen: &Observed,
    (host, lease): (&Host, &Lease),
    limits: &Limits,
    state: Decision,
    prepare: impl FnOnce() -> Decision,
) -> Decision {
    let upkept = match &seen.upkeep {
        Upkeep::Running => return state,
        Upkeep::Ended(upkept) => upkept,
        Upkeep::Idle(_) => {
            if let Some(action) = drain::next(now, seen, limits) {
                return act(action, state.reason);
            }
            let Some(wait) = due_in(now, seen, limits) else { return state };
            if !wait.is_zero() {
                let wake = state.wake.map_or(wait, |wake| wake.min(wait));
                return Decision { wake: Some(wake), ..state };
            }
            if is_taken_over(seen, lease) {
                return act(Action::Compare(host.id.clone()), state.reason);
            }
            if host.state != HostState::Ready || host.address.is_none() {
                return state;
            }
            return begin(now, seen, host, state, prepare());
        }
    };
    let told = match upkept {
        Upkept::Current { stamp, awaits_boot, .. } => {
            UpToDate::Yes { stamp, awaits_boot: awaits_boot.as_deref() }
        }
        Upkept::TakenOver(stamp) => compared(seen, stamp.as_deref()),
        Upkept::Postponed(what) => UpToDate::Postponed(what),
        Upkept::Incomplete(message)
        | Upkept::Failed(message)
        | Upkept::PasswordRefused(message) => failed(now, seen, limits, message),
    };
    let status = upkeep_status(now, seen, &told, &state.reason);
    if status == seen.object.status {
        act(Action::StopBootstrap, state.reason)
    } else {
        act(Action::RecordBootstrap(Box::new(status)), state.reason)
    }
}

/// What a Mac that was taken over shall be, and what it should have been at that time.
fn compared<'a>(seen: &'a Observed, stamp: Option<&'a str>) -> UpToDate<'a> {
    match (seen.object.status.taken_over_stamp.as_deref(), stamp) {
        (Some(then), Some(now)) if then != now => UpToDate::Outdated,
        (then, now) => UpToDate::TakenOver(then.or(now)),
    }
}

/// The steps failed, or one of them did: when they run again.
pub(super) fn failed<'a>(
    now: Timestamp,
    seen: &Observed,
    limits: &Limits,
    message: &'a str,
) -> UpToDate<'a> {
    let before = seen.object.status.tart_kubelet_update_attempts.unwrap_or(0);
    let attempts = before.saturating_add(1);
    let failures = u32::try_from(attempts).unwrap_or(u32::MAX);
    let exceeded = Tiers::reached(limits.tiers.max_updates, failures);
    let wait = if exceeded {
        limits.upkeep * SLOWER
    } else {
        back_off(attempts, limits.retry, limits.retry_cap)
    };
    UpToDate::Failed { message, attempts, due: now + wait, exceeded }
}

/// Begins, once all that the steps need is there; what cannot be had is told, and changes nothing.
fn begin(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    state: Decision,
    prepared: Decision,
) -> Decision {
    match prepared.action {
        Some(Action::StartBootstrap(_)) => act(Action::StartUpkeep(host.id.clone()), state.reason),
        Some(action) => act(action, state.reason),
        // On its way.
        None if !prepared.reason.is_warning() => Decision { wake: prepared.wake, ..state },
        None => {
            let missing = UpToDate::Missing(&prepared.reason);
            let status = upkeep_status(now, seen, &missing, &state.reason);
            if status == seen.object.status {
                return state;
            }
            act(Action::RecordBootstrap(Box::new(status)), state.reason)
        }
    }
}
