//! All choices about a Machine. No I/O.

pub(super) mod conditions;
mod deletion;

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::keys::label;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::action::Action;
use super::deployment;
use super::kind::{Fields, Kind};
use super::world::World;

pub(super) const FINALIZER: &str = "machine.cluster.x-k8s.io";

/// What is to be done about `machine` now.
pub(super) fn decide(world: &World, machine: &DynamicObject) -> Vec<Action> {
    if world.is_paused(machine) {
        return Vec::new();
    }
    if machine.is_deleting() {
        return deletion::decide(world, machine);
    }
    let own = Action::add_finalizer(Kind::Machine, machine, FINALIZER)
        .or_else(|| copy_provider_id(world, machine))
        .or_else(|| {
            let status = status(world, machine, &conditions::Deleting::No);
            Action::status(Kind::Machine, machine, &status)
        });
    let infrastructure = adopt(world, machine);
    let node = mark_node(world, machine);
    own.into_iter().chain(infrastructure).chain(node).collect()
}

/// Pods are not watched: a drain looks again after so many periods, as the real one every 20 s.
const DRAIN_PERIODS: u32 = 20;

/// When to look at `machine` again if nothing that is watched changes.
pub(super) fn wake(machine: &DynamicObject, now: Timestamp, period: Duration) -> Option<Duration> {
    let conditions = machine.conditions();
    if conditions.iter().any(|c| c.reason.as_deref() == Some(conditions::DRAINING)) {
        return Some(period * DRAIN_PERIODS);
    }
    let waits = conditions
        .iter()
        .any(|condition| condition.reason.as_deref() == Some(conditions::WAITING_FOR_MIN_READY));
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready" && waits)?;
    let due = conditions::available_at(machine, ready.last_transition_time?);
    Some(Duration::try_from(due.duration_since(now)).unwrap_or_default())
}

/// The Machine takes its infrastructure over from the set that made it, and becomes the one owner
/// that decides. Another one that decides is left alone.
fn adopt(world: &World, machine: &DynamicObject) -> Option<Action> {
    let object = world.infrastructure_of(machine)?;
    if object.is_deleting() || object.controller().is_some() {
        return None;
    }
    let others = object.owner_references().iter().filter(|owner| owner.kind != "MachineSet");
    let mut owners: Vec<Value> = others.map(|owner| json!(owner)).collect();
    owners.push(machine.as_owner(Kind::Machine, true));
    let cluster = machine.text("/spec/clusterName").unwrap_or_default();
    let metadata = json!({
        "ownerReferences": owners,
        "labels": { label::CLUSTER_NAME: cluster },
    });
    Action::patch(Kind::InfrastructureMachine, object, json!({ "metadata": metadata }))
}

fn copy_provider_id(world: &World, machine: &DynamicObject) -> Option<Action> {
    let infrastructure = world.infrastructure_of(machine)?;
    let id = infrastructure.text("/spec/providerID")?;
    if !infrastructure.flag("/status/initialization/provisioned") {
        return None;
    }
    Action::patch(Kind::Machine, machine, json!({ "spec": { "providerID": id } }))
}

/// What the Machine tells: derived, but for what is set once.
fn status(world: &World, machine: &DynamicObject, deleting: &conditions::Deleting) -> Value {
    let infrastructure = world.infrastructure_of(machine);
    let provider_id = machine.text("/spec/providerID");
    let provisioned = machine.flag("/status/initialization/infrastructureProvisioned")
        || provider_id.is_some()
            && infrastructure
                .is_some_and(|object| object.flag("/status/initialization/provisioned"));
    // Bound once, and never to another Node.
    let bound = machine.text("/status/nodeRef/name");
    let node_name = bound.or_else(|| world.node_with(provider_id.filter(|_| provisioned)?));
    let node = node_name.and_then(|name| world.nodes.get(name));
    let phase = match (provisioned, node_name) {
        _ if machine.is_deleting() => "Deleting",
        (true, Some(_)) => "Running",
        (true, None) => "Provisioned",
        (false, _) if machine.text("/spec/bootstrap/dataSecretName").is_some() => "Provisioning",
        (false, _) => "Pending",
    };
    let seen = conditions::Seen {
        machine,
        infrastructure,
        node_name,
        node,
        provisioned,
        is_current: deployment::is_current(world, machine),
        deleting,
    };
    let mut status = json!({
        "phase": phase,
        "conditions": seen.conditions(world.now),
        "observedGeneration": machine.metadata.generation,
    });
    if machine.text("/status/phase") != Some(phase) {
        status["lastUpdated"] = world.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    }
    if provisioned {
        status["initialization"] = json!({ "infrastructureProvisioned": true });
    }
    let addresses = infrastructure.map_or(&Value::Null, |object| object.value("/status/addresses"));
    if provisioned && addresses.is_array() {
        status["addresses"] = addresses.clone();
    }
    if let Some(name) = node_name {
        status["nodeRef"] = json!({ "name": name });
    }
    if let Some(info) = node.map(|node| node.value("/status/nodeInfo")).filter(|i| i.is_object()) {
        status["nodeInfo"] = info.clone();
    }
    if let conditions::Deleting::Draining { since, .. } = deleting {
        status["deletion"] = json!({ "nodeDrainStartTime": since });
    }
    status
}

/// A Node says which Machine it belongs to, and takes the labels that are meant for it.
fn mark_node(world: &World, machine: &DynamicObject) -> Option<Action> {
    let node = world.node_of(machine)?;
    let owner = machine.controller();
    let mut annotations = BTreeMap::from([
        ("cluster.x-k8s.io/cluster-name", machine.text("/spec/clusterName")?.to_owned()),
        ("cluster.x-k8s.io/cluster-namespace", machine.namespace()?),
        ("cluster.x-k8s.io/machine", machine.name_any()),
    ]);
    if let Some(owner) = owner {
        annotations.insert("cluster.x-k8s.io/owner-kind", owner.kind.clone());
        annotations.insert("cluster.x-k8s.io/owner-name", owner.name.clone());
    }
    let mut metadata = json!({ "annotations": annotations });
    let labels: BTreeMap<_, _> =
        machine.labels().iter().filter(|(key, _)| is_for_nodes(key)).collect();
    if !labels.is_empty() {
        metadata["labels"] = json!(labels);
    }
    Action::patch(Kind::Node, node, json!({ "metadata": metadata }))
}

fn is_for_nodes(label: &str) -> bool {
    let domain = label.split('/').next().unwrap_or_default();
    let within = |parent: &str| {
        domain == parent || domain.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'))
    };
    domain == "node-role.kubernetes.io"
        || within("node-restriction.kubernetes.io")
        || within("node.cluster.x-k8s.io")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_labels_of_three_domains_reach_a_node() {
        for (key, reaches) in [
            ("node-role.kubernetes.io/mac", true),
            ("node-restriction.kubernetes.io/a", true),
            ("sub.node.cluster.x-k8s.io/a", true),
            ("tuist.dev/fleet", false),
            ("notnode.cluster.x-k8s.io/a", false),
        ] {
            assert_eq!(is_for_nodes(key), reaches, "{key}");
        }
    }
}
