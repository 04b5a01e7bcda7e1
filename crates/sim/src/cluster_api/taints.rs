//! Taints: who tolerates which, for how long, and which of them the controller-manager keeps on a
//! Node that is not well. Pure.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Where the agent says that it is not well.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Where the agent says nothing.
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
/// Nobody new comes.
const NO_SCHEDULE: &str = "NoSchedule";
/// Whoever is there goes, too.
const NO_EXECUTE: &str = "NoExecute";

/// How long a Pod stays on a Node with certain taints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    Forever,
    For(Duration),
}

/// Whether one taint does not keep or drive away who has this toleration.
pub(super) fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let effect = toleration.effect.as_deref().unwrap_or_default();
    let key = toleration.key.as_deref().unwrap_or_default();
    let value = |value: &Option<String>| value.clone().unwrap_or_default();
    let exists = toleration.operator.as_deref() == Some("Exists");
    (effect.is_empty() || effect == taint.effect)
        && (key == taint.key || key.is_empty() && exists)
        && (exists || value(&toleration.value) == value(&taint.value))
}

/// The taints of a Node that drive Pods away.
pub(super) fn driving(node: &Node) -> Vec<&Taint> {
    let all = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    all.filter(|taint| taint.effect == NO_EXECUTE).collect()
}

/// How long `pod` stays where these taints are: as its least patient toleration of any says; not at
/// all, if it does not tolerate one of them.
pub(super) fn patience(pod: &Pod, taints: &[&Taint]) -> Patience {
    let tolerations = || pod.spec.iter().flat_map(|spec| spec.tolerations.iter().flatten());
    if taints.iter().any(|taint| !tolerations().any(|it| tolerates(it, taint))) {
        return Patience::For(Duration::ZERO);
    }
    let matching = tolerations().filter(|it| taints.iter().any(|taint| tolerates(it, taint)));
    match matching.filter_map(|it| it.toleration_seconds).min() {
        Some(seconds) => Patience::For(Duration::from_secs(seconds.try_into().unwrap_or(0))),
        None => Patience::Forever,
    }
}

/// The taints that a Node shall have whose `Ready` is `ready`; nothing, if it has them.
///
/// One of the two keys, never both, with both effects; taints of others stay as they are.
pub(super) fn missing(node: &Node, ready: &str, now: Timestamp) -> Option<Vec<Taint>> {
    let key = match ready {
        "False" => Some(NOT_READY),
        "Unknown" => Some(UNREACHABLE),
        _ => None,
    };
    let is_kept = |taint: &Taint| {
        let drives = [NO_SCHEDULE, NO_EXECUTE].contains(&taint.effect.as_str());
        drives && [NOT_READY, UNREACHABLE].contains(&taint.key.as_str())
    };
    let there = node.spec.as_ref().and_then(|spec| spec.taints.clone()).unwrap_or_default();
    let mut wanted = there.clone();
    wanted.retain(|taint| !is_kept(taint) || Some(taint.key.as_str()) == key);
    for effect in [NO_SCHEDULE, NO_EXECUTE] {
        let Some(key) = key else { break };
        if !wanted.iter().any(|taint| taint.key == key && taint.effect == effect) {
            wanted.push(Taint {
                key: key.to_owned(),
                effect: effect.to_owned(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    (wanted != there).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(taints: &Value) -> Node {
        serde_json::from_value(json!({"spec": {"taints": taints}})).unwrap()
    }

    fn pod(tolerations: &Value) -> Pod {
        serde_json::from_value(json!({"spec": {"containers": [], "tolerations": tolerations}}))
            .unwrap()
    }

    fn taint(key: &str, effect: &str) -> Value {
        json!({"key": key, "effect": effect, "timeAdded": "2026-01-01T00:00:00Z"})
    }

    #[test]
    fn a_node_has_one_of_the_two_keys_as_it_is_and_keeps_the_taints_of_others() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let other = json!({"key": "tuist.dev/macos", "value": "true", "effect": NO_SCHEDULE});
        let silent = [UNREACHABLE; 2];
        let unwell = [NOT_READY; 2];
        let with = |keys: &[&str]| -> Value {
            let both = keys.iter().zip([NO_SCHEDULE, NO_EXECUTE]);
            let ours = both.map(|(key, effect)| taint(key, effect));
            [other.clone()].into_iter().chain(ours).collect()
        };
        for (ready, before, after) in [
            ("Unknown", with(&[]), Some(with(&silent))),
            ("False", with(&[]), Some(with(&unwell))),
            ("Unknown", with(&unwell), Some(with(&silent))),
            ("True", with(&silent), Some(with(&[]))),
            ("True", with(&unwell), Some(with(&[]))),
            ("Unknown", with(&silent), None),
            ("False", with(&unwell), None),
            ("True", with(&[]), None),
        ] {
            let wanted = missing(&node(&before), ready, now);
            assert_eq!(wanted.map(|it| json!(it)), after, "{ready} with {before}");
        }
    }

    #[test]
    fn a_pod_stays_as_long_as_its_least_patient_toleration_says() {
        let node = node(&json!([taint(UNREACHABLE, NO_SCHEDULE), taint(UNREACHABLE, NO_EXECUTE)]));
        let taints = driving(&node);
        let seconds = |seconds| Patience::For(Duration::from_secs(seconds));
        let of = |key: &str, rest: Value| {
            let mut toleration = json!({"key": key, "operator": "Exists", "effect": NO_EXECUTE});
            toleration["tolerationSeconds"] = rest;
            toleration
        };
        let nothing = Value::Null;
        for (tolerations, stays) in [
            (json!([]), seconds(0)),
            (json!([of(NOT_READY, nothing.clone())]), seconds(0)),
            (json!([of(UNREACHABLE, json!(300))]), seconds(300)),
            (json!([of(UNREACHABLE, json!(-1))]), seconds(0)),
            (json!([of(UNREACHABLE, nothing.clone())]), Patience::Forever),
            (json!([of(UNREACHABLE, nothing), of(UNREACHABLE, json!(60))]), seconds(60)),
            (json!([{"operator": "Exists"}]), Patience::Forever),
            (json!([{"operator": "Exists", "effect": NO_SCHEDULE}]), seconds(0)),
        ] {
            assert_eq!(patience(&pod(&tolerations), &taints), stays, "{tolerations}");
        }
        assert_eq!(patience(&pod(&json!([])), &[]), Patience::Forever);
    }
}
