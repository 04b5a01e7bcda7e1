//! The part of the controller-manager that keeps Deployments: each has a `ReplicaSet` for every
//! template that it had, and each of those its Pods.

mod deployment;
mod replica_set;

use std::time::Duration;

use applecart_api::clock::Clock;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt};
use serde_json::Value;

use super::action::Action;
use super::kind::{Fields, Kind};
use super::pace::Pace;

/// The label that tells Pods of one template from those of another.
const TEMPLATE_HASH: &str = "pod-template-hash";

/// Keeps Deployments and `ReplicaSet`s: scaling, rolling updates, `Recreate`. Pods are made and
/// deleted; whether they run is the Nodes' affair.
pub async fn workloads(client: Client, clock: Clock, period: Duration) -> ! {
    let kinds = [Kind::Workload, Kind::ReplicaSet, Kind::Pod];
    let mut pace = Pace::new(period, kinds.map(|kind| kind.everywhere(&client)));
    loop {
        let wake = turn(&client, clock.now()).await.err().map(|error| {
            tracing::debug!(%error, "could not look at Deployments; looking again");
            period
        });
        pace.next(wake).await;
    }
}

/// What one turn depends on.
struct World {
    now: Timestamp,
    deployments: Vec<DynamicObject>,
    sets: Vec<DynamicObject>,
    pods: Vec<DynamicObject>,
}

async fn turn(client: &Client, now: Timestamp) -> kube::Result<()> {
    let list = async |kind: Kind| {
        let listed = kind.everywhere(client).list(&ListParams::default()).await;
        listed.map(|list| list.items)
    };
    let (deployments, sets) = (list(Kind::Workload).await?, list(Kind::ReplicaSet).await?);
    if deployments.is_empty() && sets.is_empty() {
        return Ok(());
    }
    let world = World { now, deployments, sets, pods: list(Kind::Pod).await? };
    for action in decide(&world) {
        // Somebody was faster, or the server was busy: the next turn sees what is left to do.
        if let Err(error) = action.clone().perform(client).await {
            tracing::debug!(%error, ?action, "could not be done; looking again");
        }
    }
    Ok(())
}

fn decide(world: &World) -> Vec<Action> {
    let deployments = world.deployments.iter().filter(|object| !object.is_deleting());
    let mut actions: Vec<Action> =
        deployments.flat_map(|object| deployment::decide(world, object)).collect();
    let sets = world.sets.iter().filter(|object| !object.is_deleting());
    actions.extend(sets.flat_map(|object| replica_set::decide(world, object)));
    actions
}

/// Those of `objects` that `owner` decides about.
fn owned<'w>(objects: &'w [DynamicObject], owner: &DynamicObject) -> Vec<&'w DynamicObject> {
    let uid = owner.uid();
    let is_owned = |object: &&DynamicObject| {
        object.controller().map(|controller| &controller.uid) == uid.as_ref()
    };
    objects.iter().filter(is_owned).collect()
}

/// A Pod that counts: one that has ended or is leaving does not.
fn counts(pod: &DynamicObject) -> bool {
    let ended = matches!(pod.text("/status/phase"), Some("Succeeded" | "Failed"));
    !ended && !pod.is_deleting()
}

fn is_ready(pod: &DynamicObject) -> bool {
    let mut conditions = pod.value("/status/conditions").as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// The object at `pointer`, with `key: value` added.
fn with(object: &DynamicObject, pointer: &str, key: &str, value: &str) -> Value {
    let mut texts = object.texts(pointer);
    texts.insert(key.to_owned(), value.to_owned());
    serde_json::to_value(texts).unwrap_or_default()
}
