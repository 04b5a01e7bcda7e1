//! The order in which a Machine goes. No I/O.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use super::conditions::Deleting;
use super::{FINALIZER, status};
use crate::cluster_api::action::{Action, Target};
use crate::cluster_api::kind::{Fields, Kind};
use crate::cluster_api::world::World;

const PRE_DRAIN_HOOK: &str = "pre-drain.delete.hook.machine.cluster.x-k8s.io";
const PRE_TERMINATE_HOOK: &str = "pre-terminate.delete.hook.machine.cluster.x-k8s.io";
const EXCLUDE_DRAIN: &str = "machine.cluster.x-k8s.io/exclude-node-draining";
const DRAIN_LABEL: &str = "cluster.x-k8s.io/drain";

/// What is to be done about a Machine that goes: hooks and drain, if its Node is Cluster API's to
/// drain; the infrastructure, waited for without limit; the Node; the finalizer.
pub(super) fn decide(world: &World, machine: &DynamicObject) -> Vec<Action> {
    let keeps_nodes = world.keeps_nodes(machine);
    let infrastructure = world.infrastructure_of(machine);
    let node = world.node_of(machine).filter(|_| keeps_nodes);
    let untouched = infrastructure.is_some_and(|object| !object.is_deleting());
    if keeps_nodes && untouched {
        if has_hook(machine, PRE_DRAIN_HOOK) {
            return tell(world, machine, &Deleting::WaitingForHook("WaitingForPreDrainHook"), []);
        }
        if let Some((draining, actions)) = node.and_then(|node| drain(world, machine, node)) {
            return tell(world, machine, &draining, actions);
        }
    }
    if has_hook(machine, PRE_TERMINATE_HOOK) {
        return tell(world, machine, &Deleting::WaitingForHook("WaitingForPreTerminateHook"), []);
    }
    if let Some(object) = infrastructure {
        let delete = Action::delete(Kind::InfrastructureMachine, object);
        return tell(world, machine, &Deleting::WaitingForInfrastructure, delete);
    }
    if let Some(node) = node {
        return tell(world, machine, &Deleting::Node, Action::delete(Kind::Node, node));
    }
    Action::drop_finalizer(Kind::Machine, machine, FINALIZER).into_iter().collect()
}

fn tell(
    world: &World,
    machine: &DynamicObject,
    deleting: &Deleting,
    actions: impl IntoIterator<Item = Action>,
) -> Vec<Action> {
    let told = Action::status(Kind::Machine, machine, &status(world, machine, deleting));
    actions.into_iter().chain(told).collect()
}

fn has_hook(machine: &DynamicObject, prefix: &str) -> bool {
    machine.annotations().keys().any(|key| key.starts_with(prefix))
}

/// Nothing once the Node is empty, or its time is up.
fn drain(
    world: &World,
    machine: &DynamicObject,
    node: &DynamicObject,
) -> Option<(Deleting, Vec<Action>)> {
    let started: Option<Timestamp> =
        machine.text("/status/deletion/nodeDrainStartTime").and_then(|time| time.parse().ok());
    let limit = machine.integer("/spec/deletion/nodeDrainTimeoutSeconds").filter(|s| *s > 0);
    let is_over = started
        .zip(limit)
        .is_some_and(|(started, limit)| world.now.duration_since(started).as_secs() >= limit);
    if is_over || machine.annotations().contains_key(EXCLUDE_DRAIN) {
        return None;
    }
    let name = node.metadata.name.as_deref();
    let pods: Vec<&DynamicObject> = world
        .pods
        .iter()
        .filter(|pod| pod.text("/spec/nodeName") == name && is_drained(pod))
        .collect();
    let cordon = Action::patch(Kind::Node, node, json!({ "spec": { "unschedulable": true } }));
    if pods.is_empty() && cordon.is_none() {
        return None;
    }
    let is_evicted = |pod: &&&DynamicObject| {
        !pod.is_deleting()
            && pod.labels().get(DRAIN_LABEL).is_none_or(|how| how != "wait-completed")
    };
    let evictions =
        pods.iter().filter(is_evicted).map(|pod| Action::Evict(Target::new(Kind::Pod, pod)));
    let actions = match cordon {
        Some(cordon) => vec![cordon],
        None => evictions.collect(),
    };
    let pods = pods.iter().map(|pod| pod.name_any()).collect();
    Some((Deleting::Draining { since: started.unwrap_or(world.now), pods }, actions))
}

fn is_drained(pod: &DynamicObject) -> bool {
    let of_node = pod.owner_references().iter().any(|o| o.kind == "DaemonSet" || o.kind == "Node");
    !of_node && pod.labels().get(DRAIN_LABEL).is_none_or(|how| how != "skip")
}
