//! All choices about a Mac's Node. Pure.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;

use super::action::Action;
use super::observed::{LeaseObject, NodeObject, Observed};
use super::status;

/// The numbers that a decision depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often the Lease is renewed and the Node looked at.
    pub lease: Duration,
    /// How often the status is written although nothing changed.
    pub heartbeat: Duration,
    /// How long a Node that was deleted stays away.
    pub reregister: Duration,
    /// How long Tart may be silent before the Node says that it is not ready.
    pub tart_patience: Duration,
}

/// One turn's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The one effect to perform now, if any.
    pub action: Option<Action>,
    /// Look again no later than this.
    pub wake: Duration,
    /// Why, for people.
    pub reason: Reason,
}

/// Why the Node is as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The API server did not tell.
    NodeUnknown(String),
    /// The Node is registered for the first time in this process's life.
    Registering,
    /// The Node was deleted; it stays away for a while.
    Deleted,
    /// The Node was deleted, and comes back.
    Reregistering,
    /// A label is missing or has another value.
    LabelsDiffer,
    /// The Node has no provider ID yet.
    NoProviderId,
    /// The status differs from what is true here.
    StatusDiffers,
    /// The status is due to be said again.
    Heartbeat,
    /// The Lease is due, or missing.
    LeaseDue,
    /// The Lease cannot be read; the status alone keeps the Node alive.
    LeaseUnknown(String),
    /// Nothing to do.
    Current,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodeUnknown(why) => write!(f, "the API server did not answer: {why}"),
            Self::Registering => write!(f, "registering the Node"),
            Self::Deleted => {
                write!(f, "the Node was deleted; waiting before it is registered again")
            }
            Self::Reregistering => write!(f, "the Node was deleted; registering it again"),
            Self::LabelsDiffer => write!(f, "a label differs"),
            Self::NoProviderId => write!(f, "the Node has no provider ID yet"),
            Self::StatusDiffers => write!(f, "the Node's status differs from what is true here"),
            Self::Heartbeat => write!(f, "the status is due"),
            Self::LeaseDue => write!(f, "the Lease is due"),
            Self::LeaseUnknown(why) => write!(f, "the Lease cannot be read: {why}"),
            Self::Current => write!(f, "current"),
        }
    }
}

/// Decides one turn.
#[must_use]
pub fn decide(now: Timestamp, limits: &Limits, seen: &Observed) -> Decision {
    match &seen.node {
        NodeObject::Unknown(why) => wait(limits.lease, Reason::NodeUnknown(why.clone())),
        NodeObject::Missing => register(now, limits, seen),
        NodeObject::Live(node) => keep(now, limits, seen, node),
    }
}

fn register(now: Timestamp, limits: &Limits, seen: &Observed) -> Decision {
    let node = || Action::Register(Box::new(status::node(now, limits, seen)));
    match seen.missing_since {
        None => act(node(), Reason::Registering),
        Some(since) if passed(now, since, limits.reregister) => act(node(), Reason::Reregistering),
        Some(_) => wait(limits.lease.min(limits.reregister), Reason::Deleted),
    }
}

fn keep(now: Timestamp, limits: &Limits, seen: &Observed, node: &Node) -> Decision {
    let labels = missing_labels(seen, node);
    if !labels.is_empty() {
        return act(Action::SetLabels(labels), Reason::LabelsDiffer);
    }
    let version = node.metadata.resource_version.clone().unwrap_or_default();
    let stored_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    if let (Some(provider_id), None | Some("")) = (&seen.registration.provider_id, stored_id) {
        let provider_id = provider_id.clone();
        return act(Action::SetProviderId { version, provider_id }, Reason::NoProviderId);
    }
    let stored = node.status.clone().unwrap_or_default();
    let wanted = status::status(now, limits, seen, &stored);
    let due = seen.heartbeat.is_none_or(|last| passed(now, last, limits.heartbeat));
    // Somebody who changes what we say is contradicted, but not in a loop without a breath.
    let pause = limits.lease / 10;
    let breathed = seen.heartbeat.is_none_or(|last| passed(now, last, pause));
    let differs = !status::says_the_same(&wanted, &stored);
    if differs && !due && !breathed {
        return wait(pause, Reason::StatusDiffers);
    }
    if due || differs {
        let reason = if due { Reason::Heartbeat } else { Reason::StatusDiffers };
        return act(Action::PublishStatus { version, status: Box::new(wanted) }, reason);
    }
    lease(now, limits, seen, node)
}

fn lease(now: Timestamp, limits: &Limits, seen: &Observed, node: &Node) -> Decision {
    // Four missed renewals, as a kubelet does.
    let seconds = i32::try_from(limits.lease.as_secs() * 4).unwrap_or(i32::MAX).max(1);
    match &seen.lease {
        LeaseObject::Unknown(why) => wait(limits.lease, Reason::LeaseUnknown(why.clone())),
        LeaseObject::Missing => {
            let owner = node.metadata.uid.clone().unwrap_or_default();
            act(Action::CreateLease { owner, renewed: now, seconds }, Reason::LeaseDue)
        }
        LeaseObject::Live { version, renewed } => match renewed {
            Some(last) if !passed(now, *last, limits.lease) => wait(limits.lease, Reason::Current),
            _ => {
                let version = version.clone();
                act(Action::RenewLease { version, renewed: now, seconds }, Reason::LeaseDue)
            }
        },
    }
}

fn missing_labels(seen: &Observed, node: &Node) -> BTreeMap<String, String> {
    let stored = node.metadata.labels.clone().unwrap_or_default();
    let wanted = status::labels(&seen.registration).into_iter();
    wanted.filter(|(key, value)| stored.get(key) != Some(value)).collect()
}

fn passed(now: Timestamp, since: Timestamp, limit: Duration) -> bool {
    let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
    now.duration_since(since) >= limit
}

fn act(action: Action, reason: Reason) -> Decision {
    Decision { action: Some(action), wake: Duration::ZERO, reason }
}

fn wait(wake: Duration, reason: Reason) -> Decision {
    Decision { action: None, wake, reason }
}

#[cfg(test)]
mod tests;
