//! All choices about a `ReplicaSet`. No I/O.

use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::json;

use super::super::action::Action;
use super::super::kind::{Fields, Kind};
use super::{World, counts, is_ready, owned};

pub(super) fn decide(world: &World, set: &DynamicObject) -> Vec<Action> {
    let mut pods = owned(&world.pods, set);
    pods.retain(|pod| counts(pod));
    let wanted = usize::try_from(set.integer("/spec/replicas").unwrap_or(1)).unwrap_or(0);
    let mut actions: Vec<Action> = (pods.len()..wanted).map(|_| new_pod(set)).collect();
    let ready = pods.iter().filter(|pod| is_ready(pod)).count();
    let status = json!({
        "replicas": pods.len(),
        "fullyLabeledReplicas": pods.len(),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": set.metadata.generation,
    });
    if let Some(surplus) = pods.len().checked_sub(wanted) {
        pods.sort_by_cached_key(|pod| departure(pod));
        let leaving = pods.iter().take(surplus);
        actions.extend(leaving.filter_map(|pod| Action::delete(Kind::Pod, pod)));
    }
    actions.extend(Action::status(Kind::ReplicaSet, set, &status));
    actions
}

/// Who goes first when there are too many: what does not run yet, then what is not ready, then the
/// youngest.
fn departure(pod: &DynamicObject) -> (bool, bool, bool, i64, String) {
    let bound = pod.text("/spec/nodeName").is_some();
    let runs = pod.text("/status/phase") == Some("Running");
    let created = pod.creation_timestamp().map_or(0, |time| time.0.as_second());
    (bound, runs, is_ready(pod), -created, pod.name_any())
}

fn new_pod(set: &DynamicObject) -> Action {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": format!("{}-", set.name_any()),
            "namespace": set.namespace(),
            "labels": set.texts("/spec/template/metadata/labels"),
            "annotations": set.texts("/spec/template/metadata/annotations"),
            "ownerReferences": [set.as_owner(Kind::ReplicaSet, true)],
        },
        "spec": set.value("/spec/template/spec"),
    });
    Action::Create { kind: Kind::Pod, object }
}
