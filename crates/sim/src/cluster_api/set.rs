//! All choices about a `MachineSet`. No I/O.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use applecart_api::cluster_api::GROUP;
use applecart_api::keys::label;
use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::action::Action;
use super::core::Names;
use super::kind::{Fields, Kind};
use super::machine;
use super::world::World;

pub(super) const FINALIZER: &str = "cluster.x-k8s.io/machineset";
pub(super) const DEPLOYMENT_LABEL: &str = "cluster.x-k8s.io/deployment-name";
const SET_LABEL: &str = "cluster.x-k8s.io/set-name";
const CLONED_FROM_NAME: &str = "cluster.x-k8s.io/cloned-from-name";
const CLONED_FROM_GROUP_KIND: &str = "cluster.x-k8s.io/cloned-from-groupkind";
const DELETE_MACHINE: &str = "cluster.x-k8s.io/delete-machine";
const DISABLE_CREATE: &str = "cluster.x-k8s.io/disable-machine-create";

/// What is to be done about `set` now.
pub(super) fn decide(world: &World, set: &DynamicObject, names: &mut Names) -> Vec<Action> {
    if world.is_paused(set) {
        return Vec::new();
    }
    let machines = world.machines_of(set);
    if set.is_deleting() {
        if machines.is_empty() {
            return Action::drop_finalizer(Kind::Set, set, FINALIZER).into_iter().collect();
        }
        return machines.into_iter().filter_map(|m| Action::delete(Kind::Machine, m)).collect();
    }
    if let Some(action) = Action::add_finalizer(Kind::Set, set, FINALIZER) {
        return vec![action];
    }
    let mut actions = strays(world, set);
    for machine in machines.iter().filter(|machine| !machine.is_deleting()) {
        actions.extend(keep_metadata(world, set, machine));
    }
    actions.extend(scale(world, set, &machines, names));
    actions.extend(Action::status(Kind::Set, set, &status(set, &machines)));
    actions
}

/// How many Machines there are, by what is true of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// All, the deleted ones too.
    pub replicas: i64,
    ready: i64,
    /// Ready for long enough.
    pub available: i64,
    up_to_date: i64,
}

impl Counts {
    /// Counts `machines`.
    pub fn of<'m>(machines: impl Iterator<Item = &'m DynamicObject>) -> Self {
        machines.fold(Self::default(), |counts, machine| Self {
            replicas: counts.replicas + 1,
            ready: counts.ready + i64::from(machine.holds("Ready")),
            available: counts.available + i64::from(machine.holds("Available")),
            up_to_date: counts.up_to_date + i64::from(machine.holds("UpToDate")),
        })
    }

    /// As every status tells it.
    pub fn to_json(self) -> Value {
        json!({
            "replicas": self.replicas,
            "readyReplicas": self.ready,
            "availableReplicas": self.available,
            "upToDateReplicas": self.up_to_date,
        })
    }
}

/// `spec.selector` as the scale subresource tells it.
pub(super) fn selector(owner: &DynamicObject) -> String {
    let labels = owner.texts("/spec/selector/matchLabels");
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(",")
}

fn status(set: &DynamicObject, machines: &[&DynamicObject]) -> Value {
    let mut status = Counts::of(machines.iter().copied()).to_json();
    status["selector"] = selector(set).into();
    status["observedGeneration"] = json!(set.metadata.generation);
    status
}

/// Infrastructure whose Machine was never made: a turn ended between the two.
fn strays(world: &World, set: &DynamicObject) -> Vec<Action> {
    let uid = set.uid();
    let is_stray = |object: &&DynamicObject| {
        object.owner("MachineSet").map(|owner| &owner.uid) == uid.as_ref()
            && !world.machines.contains_key(&object.key())
    };
    let strays = world.infrastructure.values().filter(is_stray);
    strays.filter_map(|object| Action::delete(Kind::InfrastructureMachine, object)).collect()
}

/// Labels and annotations of the template reach Machines and infrastructure at any time.
fn keep_metadata(world: &World, set: &DynamicObject, machine: &DynamicObject) -> Vec<Action> {
    let metadata = json!({ "metadata": {
        "labels": labels(set),
        "annotations": set.texts("/spec/template/metadata/annotations"),
    }});
    // An empty map would never be found in an object.
    let metadata = without_empty(metadata);
    let infrastructure = world.infrastructure_of(machine).filter(|object| !object.is_deleting());
    let own = Action::patch(Kind::Machine, machine, metadata.clone());
    let theirs = infrastructure
        .and_then(|object| Action::patch(Kind::InfrastructureMachine, object, metadata));
    own.into_iter().chain(theirs).collect()
}

fn without_empty(mut metadata: Value) -> Value {
    if let Some(fields) = metadata["metadata"].as_object_mut() {
        fields.retain(|_, map| map.as_object().is_some_and(|map| !map.is_empty()));
    }
    metadata
}

/// A deleted Machine counts until it is gone: its successor comes after it.
fn scale(
    world: &World,
    set: &DynamicObject,
    machines: &[&DynamicObject],
    names: &mut Names,
) -> Vec<Action> {
    let wanted = set.wanted().and_then(|wanted| usize::try_from(wanted).ok());
    let Some(wanted) = wanted else { return Vec::new() };
    if let Some(surplus) = machines.len().checked_sub(wanted).filter(|surplus| *surplus > 0) {
        let mut leaving = machines.to_vec();
        let order = set.text("/spec/deletion/order").unwrap_or("Random");
        leaving.sort_by_cached_key(|machine| departure(machine, order));
        let leaving = leaving.into_iter().take(surplus);
        return leaving.filter_map(|m| Action::delete(Kind::Machine, m)).collect();
    }
    let Some(template) = world.template_of(set) else { return Vec::new() };
    if set.annotations().contains_key(DISABLE_CREATE) {
        return Vec::new();
    }
    (machines.len()..wanted)
        .map(|_| {
            let name = names.invent(&set.name_any());
            Action::CreateMachine {
                infrastructure: infrastructure(set, template, &name),
                machine: new_machine(set, &name),
            }
        })
        .collect()
}

/// Who goes first when there are too many: the most expendable, then by the set's order. "Random"
/// is by name, as in the real one.
fn departure(machine: &DynamicObject, order: &str) -> (Reverse<u8>, i64, String) {
    let conditions = machine.conditions();
    let is_false = |type_: &str| conditions.iter().any(|c| c.type_ == type_ && c.status == "False");
    let expendable = if machine.is_deleting() {
        100
    } else if machine.annotations().contains_key(DELETE_MACHINE) {
        80
    } else if machine.text("/status/nodeRef/name").is_none()
        || is_false("NodeHealthy")
        || is_false("HealthCheckSucceeded")
    {
        50
    } else {
        0
    };
    let created: Option<Timestamp> = machine.creation_timestamp().map(|time| time.0);
    let created = created.map_or(0, Timestamp::as_second);
    let age = match order {
        "Oldest" => created,
        "Newest" => -created,
        _ => 0,
    };
    (Reverse(expendable), age, machine.name_any())
}

fn labels(set: &DynamicObject) -> BTreeMap<String, String> {
    let mut labels = set.texts("/spec/template/metadata/labels");
    let cluster = set.text("/spec/clusterName").unwrap_or_default();
    labels.insert(label::CLUSTER_NAME.into(), cluster.into());
    labels.insert(SET_LABEL.into(), set.name_any());
    labels
}

fn infrastructure(set: &DynamicObject, template: &DynamicObject, name: &str) -> Value {
    let resource = Kind::InfrastructureMachine.resource();
    let cloned = Kind::InfrastructureTemplate.resource();
    let mut all_labels = template.texts("/spec/template/metadata/labels");
    all_labels.extend(labels(set));
    let mut annotations = template.texts("/spec/template/metadata/annotations");
    annotations.extend(set.texts("/spec/template/metadata/annotations"));
    annotations.insert(CLONED_FROM_NAME.into(), template.name_any());
    annotations.insert(CLONED_FROM_GROUP_KIND.into(), format!("{}.{}", cloned.kind, cloned.group));
    json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name,
            "namespace": set.namespace(),
            "labels": all_labels,
            "annotations": annotations,
            "ownerReferences": [set.as_owner(Kind::Set, false)],
        },
        "spec": template.value("/spec/template/spec"),
    })
}

fn new_machine(set: &DynamicObject, name: &str) -> Value {
    let infrastructure = Kind::InfrastructureMachine.resource();
    let mut spec = set.value("/spec/template/spec").clone();
    spec["clusterName"] = set.value("/spec/clusterName").clone();
    spec["infrastructureRef"] = json!({
        "apiGroup": infrastructure.group,
        "kind": infrastructure.kind,
        "name": name,
    });
    json!({
        "apiVersion": format!("{GROUP}/{}", super::kind::VERSION),
        "kind": "Machine",
        "metadata": {
            "name": name,
            "namespace": set.namespace(),
            "labels": labels(set),
            "annotations": set.texts("/spec/template/metadata/annotations"),
            "ownerReferences": [set.as_owner(Kind::Set, true)],
            "finalizers": [machine::FINALIZER],
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, created: &str, change: &Value) -> DynamicObject {
        let mut machine = json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2",
            "kind": "Machine",
            "metadata": { "name": name, "creationTimestamp": created },
            "status": { "nodeRef": { "name": name } },
        });
        for (field, value) in change.as_object().into_iter().flatten() {
            if field == "status" {
                machine["status"] = value.clone();
            } else {
                machine["metadata"][field] = value.clone();
            }
        }
        serde_json::from_value(machine).unwrap()
    }

    fn departures(order: &str) -> Vec<String> {
        let unbound = json!({ "status": {} });
        let unhealthy = json!({ "status": {
            "nodeRef": { "name": "x" },
            "conditions": [{ "type": "NodeHealthy", "status": "False" }],
        }});
        let marked = json!({ "annotations": { DELETE_MACHINE: "" } });
        let leaving = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" });
        let mut machines = [
            machine("a", "2026-01-03T00:00:00Z", &Value::Null),
            machine("b", "2026-01-01T00:00:00Z", &Value::Null),
            machine("c", "2026-01-02T00:00:00Z", &Value::Null),
            machine("unbound", "2026-01-02T00:00:00Z", &unbound),
            machine("unhealthy", "2026-01-02T00:00:00Z", &unhealthy),
            machine("marked", "2026-01-02T00:00:00Z", &marked),
            machine("leaving", "2026-01-02T00:00:00Z", &leaving),
        ];
        machines.sort_by_cached_key(|machine| departure(machine, order));
        machines.iter().map(ResourceExt::name_any).collect()
    }

    #[test]
    fn the_most_expendable_go_first_and_the_rest_in_the_order_asked_for() {
        for (order, rest) in
            [("Random", ["a", "b", "c"]), ("Oldest", ["b", "c", "a"]), ("Newest", ["a", "c", "b"])]
        {
            let departures = departures(order);
            assert_eq!(departures[..4], ["leaving", "marked", "unbound", "unhealthy"], "{order}");
            assert_eq!(departures[4..], rest, "{order}");
        }
    }
}
