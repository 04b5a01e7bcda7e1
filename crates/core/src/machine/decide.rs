//! All choices of a Machine. Pure: same input, same answer; time comes in as an argument.

use std::time::Duration;

use jiff::Timestamp;

use super::action::Action;
use super::observed::{Bootstrap, Bound, Observed, Pause};
use super::reason::Reason;
use super::status::status;
use super::upkeep::Upkeep;
use super::{claim, release};

/// Times that an operator may tune. Each is a wait, none is a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longer than any rename can be on its way; 0 where a pool belongs to one cluster alone.
    pub claim_settle: Duration,
    /// First wait after a failed bootstrap; it doubles.
    pub retry: Duration,
    /// Longest wait after a failed bootstrap.
    pub retry_cap: Duration,
    /// How often something that is on its way is looked at.
    pub look: Duration,
    /// How often a Mac that is well is looked at.
    pub keep: Duration,
    /// How often the steps run again on a Mac that is well.
    pub upkeep: Duration,
    /// How long a Node may be missing or unwell before the steps run again.
    pub node_missing: Duration,
    /// How long idle Pods may take to go before the Mac is wiped all the same.
    pub empty: Duration,
    /// How long an agent may be silent before its Mac is not waited for any more.
    pub silent: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            claim_settle: Duration::from_secs(15),
            retry: Duration::from_mins(1),
            retry_cap: Duration::from_mins(10),
            look: Duration::from_secs(10),
            keep: Duration::from_mins(5),
            upkeep: Duration::from_mins(15),
            node_missing: Duration::from_mins(2),
            empty: Duration::from_mins(5),
            silent: Duration::from_mins(5),
        }
    }
}

impl Limits {
    /// All of them, `speed` times shorter.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        Self {
            claim_settle: self.claim_settle.div_f64(speed),
            retry: self.retry.div_f64(speed),
            retry_cap: self.retry_cap.div_f64(speed),
            look: self.look.div_f64(speed),
            keep: self.keep.div_f64(speed),
            upkeep: self.upkeep.div_f64(speed),
            node_missing: self.node_missing.div_f64(speed),
            empty: self.empty.div_f64(speed),
            silent: self.silent.div_f64(speed),
        }
    }
}

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

/// Decides one turn.
///
/// Deletion is looked at first, in every state. What we are about to do is told before it is done:
/// a status that would change is written first, and the effect follows in the next turn.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let decision = if seen.object.deleting_since.is_some() {
        release::decide(now, seen, limits)
    } else {
        decide_living(now, seen, limits)
    };
    tell_first(now, seen, decision)
}

fn decide_living(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let object = &seen.object;
    if !object.owned_by_machine {
        return wait(Reason::NotOwned, limits.keep);
    }
    if let Some(pause) = object.paused {
        let reason = Reason::Paused(match pause {
            Pause::Cluster => "its Cluster",
            Pause::Annotation => "annotation",
        });
        // Paused is no call outside, and a bootstrap is one.
        return match (&seen.bootstrap, &seen.upkeep) {
            (Bootstrap::None, Upkeep::Idle(_)) => wait(reason, limits.keep),
            (Bootstrap::Running { .. } | Bootstrap::Succeeded { .. } | Bootstrap::Failed(_), _)
            | (_, Upkeep::Running | Upkeep::Ended(_)) => act(Action::StopBootstrap, reason),
        };
    }
    if !object.finalizer {
        return act(Action::AddFinalizer, Reason::Adopting);
    }
    if let Some(what) = &object.waiting_for {
        return wait(Reason::WaitingForOwner(what.clone()), limits.look);
    }
    if let Some(held) = held_up(now, seen) {
        return held;
    }
    match &seen.bound {
        Bound::NotRead => wait(Reason::CannotRead("its host".into()), limits.look),
        Bound::Unbound(candidates) => claim::choose(seen, candidates, limits),
        Bound::To { server, lease, host } => claim::advance(now, seen, server, lease, host, limits),
    }
}

/// A failed effect is not repeated before it is due, whatever woke us (LH21).
pub(super) fn held_up(now: Timestamp, seen: &Observed) -> Option<Decision> {
    let trouble = seen.trouble.as_ref()?;
    Some(wait(Reason::Trouble(trouble.message.clone()), trouble.due_in(now)?))
}

/// Puts a status write before the effect, if the status would say something new.
fn tell_first(now: Timestamp, seen: &Observed, decision: Decision) -> Decision {
    let silent = !seen.object.owned_by_machine && seen.object.deleting_since.is_none();
    let last = matches!(
        decision.action,
        Some(Action::AddFinalizer | Action::RemoveFinalizer | Action::RecordBootstrap(_))
    );
    let gone = seen.object.deleting_since.is_some() && !seen.object.finalizer;
    if silent || last || gone {
        return decision;
    }
    let wanted = status(now, seen, &decision);
    if wanted == seen.object.status {
        return decision;
    }
    Decision { action: Some(Action::WriteStatus(Box::new(wanted))), ..decision }
}

pub(super) fn act(action: Action, reason: Reason) -> Decision {
    Decision { action: Some(action), wake: None, reason }
}

pub(super) fn wait(reason: Reason, wake: Duration) -> Decision {
    Decision { action: None, wake: Some(wake), reason }
}
