//! What a Machine says is true of it. No I/O.

use applecart_api::condition::Condition;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::DynamicObject;

use crate::cluster_api::kind::Fields;

pub(super) const WAITING_FOR_MIN_READY: &str = "WaitingForMinReadySeconds";
pub(super) const DRAINING: &str = "DrainingNode";

/// How far a Machine's deletion is.
pub(super) enum Deleting {
    /// Nobody asked for it.
    No,
    /// A person or program holds it, with this reason.
    WaitingForHook(&'static str),
    /// Pods are still on its Node.
    Draining { since: Timestamp, pods: Vec<String> },
    /// Its infrastructure is still there.
    WaitingForInfrastructure,
    /// Its Node is still there.
    Node,
}

/// What the conditions of a Machine are derived from.
pub(super) struct Seen<'w> {
    pub machine: &'w DynamicObject,
    pub infrastructure: Option<&'w DynamicObject>,
    pub node_name: Option<&'w str>,
    pub node: Option<&'w DynamicObject>,
    pub provisioned: bool,
    pub is_current: bool,
    pub deleting: &'w Deleting,
}

impl Seen<'_> {
    /// All conditions, with their times.
    pub fn conditions(&self, now: Timestamp) -> Vec<Condition> {
        let deleting = self.deleting();
        let parts = [
            self.bootstrap_ready(),
            mirror_ready(self.infrastructure, self.provisioned),
            self.node_healthy(),
        ];
        let ready = ready(&parts, &deleting);
        // When it became Ready counts for Available, so it is dated first.
        let dated_ready = dated(self.machine, vec![ready], now).remove(0);
        let available = self.available(&dated_ready, now);
        let rest = [dated_ready, available, deleting, self.up_to_date(), self.node_ready()];
        let not_paused = says("Paused", "False", "NotPaused", "");
        dated(self.machine, parts.into_iter().chain(rest).chain([not_paused]).collect(), now)
    }

    fn bootstrap_ready(&self) -> Condition {
        let type_ = "BootstrapConfigReady";
        match self.machine.text("/spec/bootstrap/dataSecretName") {
            Some(_) => says(type_, "True", "DataSecretProvided", ""),
            None => says(type_, "False", "NotReady", "spec.bootstrap.dataSecretName is not set"),
        }
    }

    /// All four conditions count, and one that is missing is Unknown.
    fn node_healthy(&self) -> Condition {
        let type_ = "NodeHealthy";
        let Some(node) = self.node else { return self.no_node(type_) };
        let conditions = node.conditions();
        let mut status = "True";
        let mut messages = Vec::new();
        for (name, good) in [
            ("Ready", "True"),
            ("MemoryPressure", "False"),
            ("DiskPressure", "False"),
            ("PIDPressure", "False"),
        ] {
            let found = conditions.iter().find(|condition| condition.type_ == name);
            let is = found.map_or("Unknown", |condition| condition.status.as_str());
            if is != good {
                messages.push(format!("* Node.{name}: condition is {is}"));
                status = if is == "Unknown" && status != "False" { "Unknown" } else { "False" };
            }
        }
        let reason = match status {
            "True" => "NodeHealthy",
            "False" => "NodeNotHealthy",
            _ => "NodeHealthUnknown",
        };
        says(type_, status, reason, &messages.join("\n"))
    }

    fn node_ready(&self) -> Condition {
        let type_ = "NodeReady";
        let Some(node) = self.node else { return self.no_node(type_) };
        let conditions = node.conditions();
        let ready = conditions.iter().find(|condition| condition.type_ == "Ready");
        match ready.map_or("Unknown", |condition| condition.status.as_str()) {
            "True" => says(type_, "True", "NodeReady", ""),
            "False" => says(type_, "False", "NodeNotReady", "* Node.Ready: condition is False"),
            _ => says(type_, "Unknown", "NodeReadyUnknown", "* Node.Ready: condition is Unknown"),
        }
    }

    fn no_node(&self, type_: &str) -> Condition {
        let id = self.machine.text("/spec/providerID");
        match (self.node_name, id) {
            (Some(name), _) => {
                says(type_, "False", "NodeDeleted", &format!("Node {name} has been deleted"))
            }
            (None, Some(id)) => {
                let message = format!("Waiting for a Node with spec.providerID {id} to exist");
                says(type_, "Unknown", "InspectionFailed", &message)
            }
            (None, None) => {
                let message = "Waiting for the infrastructure to report spec.providerID";
                says(type_, "Unknown", "InspectionFailed", message)
            }
        }
    }

    fn up_to_date(&self) -> Condition {
        let type_ = "UpToDate";
        let wanted = self.machine.text("/spec/version");
        let is = self.node.and_then(|node| node.text("/status/nodeInfo/kubeletVersion"));
        match (wanted, is) {
            (Some(wanted), Some(is)) if wanted != is => {
                let message =
                    format!("* Node.status.nodeInfo.kubeletVersion {is}, {wanted} required");
                says(type_, "False", "NotUpToDate", &message)
            }
            _ if !self.is_current => says(
                type_,
                "False",
                "NotUpToDate",
                "* the template of its MachineDeployment changed",
            ),
            _ => says(type_, "True", "UpToDate", ""),
        }
    }

    fn available(&self, ready: &Condition, now: Timestamp) -> Condition {
        let type_ = "Available";
        let since = ready.last_transition_time.unwrap_or(now);
        if ready.status != "True" {
            says(type_, "False", "NotReady", "")
        } else if available_at(self.machine, since) > now {
            says(type_, "False", WAITING_FOR_MIN_READY, "")
        } else {
            says(type_, "True", "Available", "")
        }
    }

    fn deleting(&self) -> Condition {
        let type_ = "Deleting";
        match self.deleting {
            Deleting::No => says(type_, "False", "NotDeleting", ""),
            Deleting::WaitingForHook(reason) => says(type_, "True", reason, ""),
            Deleting::Draining { since, pods } => {
                let message =
                    format!("Drain not completed yet (started at {since}): {}", pods.join(", "));
                says(type_, "True", DRAINING, &message)
            }
            Deleting::WaitingForInfrastructure => {
                let kind = self.infrastructure.and_then(|object| object.types.as_ref());
                let kind = kind.map_or("the infrastructure", |types| types.kind.as_str());
                let message = format!("Waiting for {kind} to be deleted");
                says(type_, "True", "WaitingForInfrastructureDeletion", &message)
            }
            Deleting::Node => says(type_, "True", "DeletingNode", ""),
        }
    }
}

/// When a Machine that is Ready since `ready` counts as available.
pub(super) fn available_at(machine: &DynamicObject, ready: Timestamp) -> Timestamp {
    let seconds = machine.integer("/spec/minReadySeconds").unwrap_or(0);
    ready.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}

/// The infrastructure's own `Ready`, told as `InfrastructureReady` with everything it says and the
/// time it says; without one, whether it is provisioned.
pub(crate) fn mirror_ready(
    infrastructure: Option<&DynamicObject>,
    was_provisioned: bool,
) -> Condition {
    let type_ = "InfrastructureReady";
    let Some(object) = infrastructure else {
        let reason = if was_provisioned { "ObjectDeleted" } else { "DoesNotExist" };
        return says(type_, "False", reason, "the infrastructure object does not exist");
    };
    let own = object.conditions().into_iter().find(|condition| condition.type_ == "Ready");
    match own {
        Some(own) => Condition {
            type_: type_.into(),
            reason: own.reason.or_else(|| Some("ReadyCondition".into())),
            severity: None,
            ..own
        },
        None if object.flag("/status/initialization/provisioned") => {
            says(type_, "True", "Ready", "")
        }
        None => {
            let message = format!("{} is not provisioned", object.name_any());
            says(type_, "False", "NotReady", &message)
        }
    }
}

fn ready(parts: &[Condition], deleting: &Condition) -> Condition {
    let type_ = "Ready";
    let problem = |condition: &Condition| {
        let message = condition.message.as_deref().or(condition.reason.as_deref());
        format!("* {}: {}", condition.type_, message.unwrap_or(&condition.status))
    };
    let gone = (deleting.status == "True").then_some(deleting);
    let not_true = parts.iter().filter(|part| part.status != "True");
    let problems: Vec<&Condition> = gone.into_iter().chain(not_true).collect();
    let message = problems.iter().map(|each| problem(each)).collect::<Vec<_>>().join("\n");
    let is_false = gone.is_some() || problems.iter().any(|each| each.status == "False");
    match problems.as_slice() {
        [] => says(type_, "True", "Ready", ""),
        _ if is_false => says(type_, "False", "NotReady", &message),
        _ => says(type_, "Unknown", "ReadyUnknown", &message),
    }
}

/// A condition that has no time yet.
pub(crate) fn says(type_: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        severity: None,
        reason: Some(reason.into()),
        message: (!message.is_empty()).then(|| message.into()),
        last_transition_time: None,
        observed_generation: None,
    }
}

/// The conditions of `object` with their times, sorted by type: the time moves with the status, and
/// a mirrored condition keeps the time that it came with.
pub(crate) fn dated(
    object: &DynamicObject,
    conditions: Vec<Condition>,
    now: Timestamp,
) -> Vec<Condition> {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let before = object.conditions();
    let since = |new: &Condition| {
        let same = |old: &&Condition| old.type_ == new.type_ && old.status == new.status;
        before.iter().find(same).and_then(|old| old.last_transition_time).unwrap_or(now)
    };
    let mut dated: Vec<Condition> = conditions
        .into_iter()
        .map(|condition| Condition {
            last_transition_time: condition
                .last_transition_time
                .or_else(|| Some(since(&condition))),
            observed_generation: object.metadata.generation,
            ..condition
        })
        .collect();
    dated.sort_by(|a, b| a.type_.cmp(&b.type_));
    dated
}
