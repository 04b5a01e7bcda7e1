//! All choices about a Deployment. No I/O.

use jiff::Timestamp;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::super::action::Action;
use super::super::kind::{Fields, Kind};
use super::{TEMPLATE_HASH, World, owned, with};

const REVISION: &str = "deployment.kubernetes.io/revision";

/// What there is of one Deployment.
struct Seen<'w> {
    wanted: i64,
    /// The set of the present template, if it was made.
    current: Option<&'w DynamicObject>,
    /// Those of earlier templates, oldest first.
    old: Vec<&'w DynamicObject>,
}

impl Seen<'_> {
    fn all(&self) -> impl Iterator<Item = &DynamicObject> {
        self.old.iter().copied().chain(self.current)
    }

    fn total(&self) -> i64 {
        self.all().map(size).sum()
    }
}

pub(super) fn decide(world: &World, deployment: &DynamicObject) -> Vec<Action> {
    let hash = template_hash(deployment);
    let mut sets = owned(&world.sets, deployment);
    sets.sort_by_key(|set| (revision(set), set.name_any()));
    let is_current = |set: &&DynamicObject| set.labels().get(TEMPLATE_HASH) == Some(&hash);
    let seen = Seen {
        wanted: deployment.integer("/spec/replicas").unwrap_or(1),
        current: sets.iter().copied().find(is_current),
        old: sets.iter().copied().filter(|set| !is_current(set)).collect(),
    };
    let mut actions = Vec::new();
    if !deployment.flag("/spec/paused") {
        let next = sets.iter().map(|set| revision(set)).max().unwrap_or(0) + 1;
        match seen.current {
            None => actions.push(new_set(deployment, &hash, next)),
            Some(current) => {
                actions.extend(mark(Kind::ReplicaSet, current, &seen, next));
                actions.extend(roll(deployment, current, &seen));
                actions.extend(annotate(Kind::Workload, deployment, revision(current)));
            }
        }
    }
    let status = status(world.now, deployment, &seen);
    actions.extend(Action::status(Kind::Workload, deployment, &status));
    actions
}

/// A template that comes back gets the newest revision, as `kubectl rollout undo` expects.
fn mark(kind: Kind, current: &DynamicObject, seen: &Seen<'_>, next: i64) -> Option<Action> {
    let newest = seen.old.iter().all(|old| revision(old) < revision(current));
    if newest { None } else { annotate(kind, current, next) }
}

fn annotate(kind: Kind, object: &DynamicObject, revision: i64) -> Option<Action> {
    let annotations = json!({"metadata": {"annotations": {REVISION: revision.to_string()}}});
    Action::patch(kind, object, annotations)
}

/// Moves Pods from old templates to the present one, a few at a time.
fn roll(deployment: &DynamicObject, current: &DynamicObject, seen: &Seen<'_>) -> Vec<Action> {
    let Seen { wanted, old, .. } = seen;
    let left: i64 = old.iter().map(|set| size(set)).sum();
    if deployment.text("/spec/strategy/type") == Some("Recreate") {
        let gone = old.iter().all(|set| set.integer("/status/replicas").unwrap_or(0) == 0);
        let down = old.iter().filter_map(|set| resize(set, 0));
        let up = (left == 0 && gone).then(|| resize(current, *wanted)).flatten();
        return down.chain(up).collect();
    }
    let (surge, unavailable) = margins(deployment, *wanted);
    let room = wanted + surge - seen.total();
    let grown = size(current) + room.clamp(0, (wanted - size(current)).max(0));
    let mut actions: Vec<Action> = resize(current, grown.min(*wanted)).into_iter().collect();
    let missing = size(current) - available(current);
    let mut spare = seen.total() - (wanted - unavailable) - missing.max(0);
    for set in old {
        let leaving = spare.clamp(0, size(set));
        spare -= leaving;
        actions.extend(resize(set, size(set) - leaving));
    }
    actions
}

/// How many Pods there may be too many, and how many too few, during an update.
fn margins(deployment: &DynamicObject, wanted: i64) -> (i64, i64) {
    let share = |field: &str, up: bool| {
        let value = deployment.value(&format!("/spec/strategy/rollingUpdate/{field}"));
        let percent = match value {
            Value::Number(number) => return number.as_i64().unwrap_or(0),
            Value::String(text) => text.trim_end_matches('%').parse().unwrap_or(25),
            _ => 25,
        };
        (wanted * percent + if up { 99 } else { 0 }) / 100
    };
    let (surge, unavailable) = (share("maxSurge", true), share("maxUnavailable", false));
    // With neither, nothing could ever move.
    if surge == 0 && unavailable == 0 { (0, 1) } else { (surge, unavailable) }
}

fn size(set: &DynamicObject) -> i64 {
    set.integer("/spec/replicas").unwrap_or(1)
}

fn available(set: &DynamicObject) -> i64 {
    set.integer("/status/availableReplicas").unwrap_or(0)
}

fn revision(object: &DynamicObject) -> i64 {
    object.annotations().get(REVISION).and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn resize(set: &DynamicObject, replicas: i64) -> Option<Action> {
    Action::patch(Kind::ReplicaSet, set, json!({"spec": {"replicas": replicas}}))
}

/// Ten letters that only the same template has.
fn template_hash(deployment: &DynamicObject) -> String {
    let digest = Sha256::digest(deployment.value("/spec/template").to_string());
    let alphabet = b"bcdfghjklmnpqrstvwxz2456789";
    let letter = |byte: &u8| char::from(alphabet[usize::from(*byte) % alphabet.len()]);
    digest.iter().take(10).map(letter).collect()
}

fn new_set(deployment: &DynamicObject, hash: &str, revision: i64) -> Action {
    let mut template = deployment.value("/spec/template").clone();
    template["metadata"]["labels"] =
        with(deployment, "/spec/template/metadata/labels", TEMPLATE_HASH, hash);
    let selector = with(deployment, "/spec/selector/matchLabels", TEMPLATE_HASH, hash);
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", deployment.name_any()),
            "namespace": deployment.namespace(),
            "labels": template["metadata"]["labels"],
            "annotations": {REVISION: revision.to_string()},
            "ownerReferences": [deployment.as_owner(Kind::Workload, true)],
        },
        // It grows with the next turn, as far as there is room.
        "spec": {"replicas": 0, "selector": {"matchLabels": selector}, "template": template},
    });
    Action::Create { kind: Kind::ReplicaSet, object }
}

fn status(now: Timestamp, deployment: &DynamicObject, seen: &Seen<'_>) -> Value {
    let sum = |field: &str| -> i64 { seen.all().filter_map(|set| set.integer(field)).sum() };
    let replicas = sum("/status/replicas");
    let available = sum("/status/availableReplicas");
    let updated = seen.current.and_then(|set| set.integer("/status/replicas")).unwrap_or(0);
    let (_, unavailable) = margins(deployment, seen.wanted);
    let enough = available >= seen.wanted - unavailable;
    let done = updated == seen.wanted && replicas == seen.wanted && available == seen.wanted;
    let (word, reason) = if enough {
        ("True", "MinimumReplicasAvailable")
    } else {
        ("False", "MinimumReplicasUnavailable")
    };
    let progress = if done { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
    json!({
        "replicas": replicas,
        "updatedReplicas": updated,
        "readyReplicas": sum("/status/readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": (seen.wanted - available).max(0),
        "observedGeneration": deployment.metadata.generation,
        "conditions": [
            condition(now, deployment, "Available", word, reason),
            condition(now, deployment, "Progressing", "True", progress),
        ],
    })
}

/// A condition; as it was, if nothing about it is new.
fn condition(
    now: Timestamp,
    deployment: &DynamicObject,
    type_: &str,
    status: &str,
    reason: &str,
) -> Value {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    let mut known = deployment.value("/status/conditions").as_array().into_iter().flatten();
    let before = known.find(|condition| condition["type"] == type_);
    let same = |field: &str, value: &str| before.is_some_and(|before| before[field] == value);
    match before {
        Some(before) if same("status", status) && same("reason", reason) => before.clone(),
        _ => {
            let kept = before.filter(|_| same("status", status));
            let since = kept.map_or(json!(now), |before| before["lastTransitionTime"].clone());
            json!({"type": type_, "status": status, "reason": reason,
                "message": reason, "lastUpdateTime": now, "lastTransitionTime": since})
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, name: &str, rest: &Value) -> DynamicObject {
        let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata":
            {"name": name, "namespace": "default", "uid": name, "generation": 1}});
        for (field, value) in rest.as_object().into_iter().flatten() {
            object[field] = value.clone();
        }
        serde_json::from_value(object).unwrap()
    }

    fn deployment(replicas: i64, strategy: &Value) -> DynamicObject {
        let spec = json!({"replicas": replicas, "strategy": strategy, "template": {"spec": {}},
            "selector": {"matchLabels": {"app": "x"}}});
        object("Deployment", "x", &json!({"spec": spec}))
    }

    /// A set of `size`, of which so many are available.
    fn set(name: &str, size: i64, available: i64) -> DynamicObject {
        let status = json!({"replicas": size, "availableReplicas": available});
        object("ReplicaSet", name, &json!({"spec": {"replicas": size}, "status": status}))
    }

    /// The sizes that a turn asks for: of the old set and of the new one.
    fn rolled(wanted: i64, strategy: &Value, old: (i64, i64), new: (i64, i64)) -> (i64, i64) {
        let deployment = deployment(wanted, strategy);
        let (before, current) = (set("old", old.0, old.1), set("new", new.0, new.1));
        let seen = Seen { wanted, current: Some(&current), old: vec![&before] };
        let mut sizes = (old.0, new.0);
        for action in roll(&deployment, &current, &seen) {
            let Action::Patch { target, patch } = action else { panic!("{action:?}") };
            let size = patch["spec"]["replicas"].as_i64().unwrap();
            if target.name == "old" { sizes.0 = size } else { sizes.1 = size }
        }
        sizes
    }

    #[test]
    fn a_rolling_update_keeps_enough_pods_and_never_has_too_many() {
        let rolling = json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}});
        assert_eq!(rolled(3, &rolling, (3, 3), (0, 0)), (3, 1));
        assert_eq!(rolled(3, &rolling, (3, 3), (1, 0)), (3, 1), "the new one is not ready");
        assert_eq!(rolled(3, &rolling, (3, 3), (1, 1)), (2, 1));
        assert_eq!(rolled(3, &rolling, (2, 2), (1, 1)), (2, 2));
        assert_eq!(rolled(3, &rolling, (0, 0), (3, 3)), (0, 3));
        let quarters = Value::Null;
        assert_eq!(rolled(4, &quarters, (4, 4), (0, 0)), (3, 1));
        assert_eq!(rolled(1, &json!({"rollingUpdate": {"maxSurge": 0}}), (1, 1), (0, 0)), (0, 0));
    }

    #[test]
    fn recreate_waits_until_the_last_old_pod_is_gone() {
        let recreate = json!({"type": "Recreate"});
        assert_eq!(rolled(2, &recreate, (2, 2), (0, 0)), (0, 0));
        assert_eq!(rolled(2, &recreate, (0, 0), (0, 0)), (0, 2));
    }

    #[test]
    fn scaling_down_takes_from_the_present_set() {
        assert_eq!(rolled(1, &Value::Null, (0, 0), (3, 3)), (0, 1));
    }
}
