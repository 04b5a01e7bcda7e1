//! All choices about a Cluster. No I/O.

use applecart_api::keys::label;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};

use super::action::Action;
use super::kind::{Fields, Kind};
use super::machine::conditions;
use super::set::Counts;
use super::world::World;

const FINALIZER: &str = "cluster.cluster.x-k8s.io";

/// What is to be done about `cluster` now.
pub(super) fn decide(world: &World, cluster: &DynamicObject) -> Vec<Action> {
    if cluster.flag("/spec/paused") {
        return Vec::new();
    }
    if cluster.is_deleting() {
        return decide_deletion(world, cluster);
    }
    if let Some(action) = Action::add_finalizer(Kind::Cluster, cluster, FINALIZER) {
        return vec![action];
    }
    let infrastructure = infrastructure_of(world, cluster);
    let adopt = infrastructure.and_then(|object| own(cluster, Kind::InfrastructureCluster, object));
    let copied = infrastructure.and_then(|object| copy_endpoint(cluster, object));
    let own_part = copied.or_else(|| {
        Action::status(Kind::Cluster, cluster, &status(world, cluster, infrastructure))
    });
    adopt.into_iter().chain(own_part).collect()
}

/// Makes `cluster` an owner of `object`, but not the one that decides, and labels it.
pub(super) fn own(cluster: &DynamicObject, kind: Kind, object: &DynamicObject) -> Option<Action> {
    let name = cluster.name_any();
    let is_owned = object.owner("Cluster").is_some();
    if is_owned && object.labels().get(label::CLUSTER_NAME) == Some(&name) {
        return None;
    }
    let mut owners = json!(object.owner_references());
    if let (false, Some(list)) = (is_owned, owners.as_array_mut()) {
        list.push(cluster.as_owner(Kind::Cluster, false));
    }
    let metadata = json!({ "ownerReferences": owners, "labels": { label::CLUSTER_NAME: name } });
    Action::patch(kind, object, json!({ "metadata": metadata }))
}

fn infrastructure_of<'w>(world: &'w World, cluster: &DynamicObject) -> Option<&'w DynamicObject> {
    let name = cluster.text("/spec/infrastructureRef/name")?;
    world.infrastructure_clusters.get(&(cluster.namespace()?, name.to_owned()))
}

/// The endpoint is copied once, while there is none.
fn copy_endpoint(cluster: &DynamicObject, infrastructure: &DynamicObject) -> Option<Action> {
    let endpoint = infrastructure.value("/spec/controlPlaneEndpoint");
    if cluster.text("/spec/controlPlaneEndpoint/host").is_some() || !endpoint.is_object() {
        return None;
    }
    let patch = json!({ "spec": { "controlPlaneEndpoint": endpoint } });
    Action::patch(Kind::Cluster, cluster, patch)
}

fn status(world: &World, cluster: &DynamicObject, infrastructure: Option<&DynamicObject>) -> Value {
    let was_provisioned = cluster.flag("/status/initialization/infrastructureProvisioned");
    let provisioned = was_provisioned
        || infrastructure.is_some_and(|object| object.flag("/status/initialization/provisioned"));
    let phase = match (infrastructure, provisioned) {
        _ if cluster.is_deleting() => "Deleting",
        (_, true) => "Provisioned",
        (Some(_), false) => "Provisioning",
        (None, false) => "Pending",
    };
    let workers = Counts::of(machines_of(world, cluster));
    let desired: i64 = world
        .deployments
        .values()
        .filter(|each| is_in(each, cluster))
        .filter_map(Fields::wanted)
        .sum();
    let ready = conditions::mirror_ready(infrastructure, was_provisioned);
    // What others say about the Cluster, such as ControlPlaneInitialized, is left alone.
    let others = cluster.conditions().into_iter().filter(|other| other.type_ != ready.type_);
    let conditions = conditions::dated(cluster, others.chain([ready.clone()]).collect(), world.now);
    let mut status = json!({
        "phase": phase,
        "conditions": conditions,
        "workers": workers.to_json(),
        "observedGeneration": cluster.metadata.generation,
    });
    status["workers"]["desiredReplicas"] = desired.into();
    if provisioned {
        status["initialization"] = json!({ "infrastructureProvisioned": true });
    }
    status
}

/// Fleets go first, then Machines, then the infrastructure.
fn decide_deletion(world: &World, cluster: &DynamicObject) -> Vec<Action> {
    let mut waits_for: Vec<(Kind, &DynamicObject)> = Vec::new();
    for (kind, objects) in [
        (Kind::Deployment, &world.deployments),
        (Kind::Set, &world.sets),
        (Kind::Machine, &world.machines),
    ] {
        if waits_for.is_empty() {
            let of_cluster = objects.values().filter(|object| is_in(object, cluster));
            waits_for.extend(of_cluster.map(|object| (kind, object)));
        }
    }
    if waits_for.is_empty() {
        let infrastructure = infrastructure_of(world, cluster);
        waits_for.extend(infrastructure.map(|object| (Kind::InfrastructureCluster, object)));
    }
    if waits_for.is_empty() {
        return Action::drop_finalizer(Kind::Cluster, cluster, FINALIZER).into_iter().collect();
    }
    waits_for.into_iter().filter_map(|(kind, object)| Action::delete(kind, object)).collect()
}

fn machines_of<'w>(
    world: &'w World,
    cluster: &DynamicObject,
) -> impl Iterator<Item = &'w DynamicObject> {
    world.machines.values().filter(|machine| is_in(machine, cluster))
}

fn is_in(object: &DynamicObject, cluster: &DynamicObject) -> bool {
    object.namespace() == cluster.namespace()
        && object.text("/spec/clusterName") == cluster.metadata.name.as_deref()
}
