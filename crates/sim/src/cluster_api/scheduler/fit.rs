//! Which Node a Pod fits on, and why on no other. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, Taint};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;

use crate::cluster_api::taints::tolerates;
use crate::kubernetes::quantity::thousandths;

const SCHEDULER_NAME: &str = "default-scheduler";
/// How many Pods a Node takes that does not say, as the kubelet's default.
const DEFAULT_PODS: i128 = 110;

/// What to do about one Pod.
pub(super) struct Placement<'p> {
    pub pod: &'p Pod,
    pub verdict: Verdict,
}

/// Where a Pod goes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// To this Node.
    Bind(String),
    /// Nowhere, and why.
    Nowhere(String),
}

/// Resources by name, in thousandths.
type Amounts = BTreeMap<String, i128>;

/// A Node with what is left of it.
struct Room<'n> {
    node: &'n Node,
    free: Amounts,
    pods: usize,
}

/// Places every Pod that waits, the oldest first; each one counts for the next.
///
/// A Pod that already says why it fits nowhere is not told again.
pub(super) fn place<'p>(pods: &'p [Pod], nodes: &[Node]) -> Vec<Placement<'p>> {
    let mut rooms: BTreeMap<String, Room> =
        nodes.iter().map(|node| (node.name_any(), Room::new(node))).collect();
    for pod in pods {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        if let Some(room) = node.filter(|_| !is_over(pod)).and_then(|node| rooms.get_mut(node)) {
            room.take(pod);
        }
    }
    let mut waiting: Vec<&Pod> = pods.iter().filter(|pod| is_waiting(pod)).collect();
    waiting.sort_by_key(|pod| {
        (pod.creation_timestamp().map(|time| time.0), pod.namespace(), pod.name_any())
    });
    let mut placements = Vec::new();
    for pod in waiting {
        let verdict = choose(pod, &rooms);
        match &verdict {
            Verdict::Bind(node) => {
                if let Some(room) = rooms.get_mut(node) {
                    room.take(pod);
                }
            }
            Verdict::Nowhere(why) if said(pod) == Some(why) => continue,
            Verdict::Nowhere(_) => {}
        }
        placements.push(Placement { pod, verdict });
    }
    placements
}

fn choose(pod: &Pod, rooms: &BTreeMap<String, Room>) -> Verdict {
    let mut obstacles: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<(usize, &String)> = None;
    for (name, room) in rooms {
        match room.obstacle(pod) {
            Some(obstacle) => *obstacles.entry(obstacle).or_default() += 1,
            None if best.is_none_or(|(pods, _)| room.pods < pods) => best = Some((room.pods, name)),
            None => {}
        }
    }
    if let Some((_, name)) = best {
        return Verdict::Bind(name.clone());
    }
    let reasons: Vec<String> =
        obstacles.iter().map(|(obstacle, nodes)| format!("{nodes} {obstacle}")).collect();
    let reasons =
        if reasons.is_empty() { String::new() } else { format!(": {}", reasons.join(", ")) };
    Verdict::Nowhere(format!("0/{} nodes are available{reasons}.", rooms.len()))
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

fn is_waiting(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let is_ours = spec.scheduler_name.as_deref().is_none_or(|name| name == SCHEDULER_NAME);
    let is_held = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let is_leaving = pod.metadata.deletion_timestamp.is_some();
    is_ours && !is_held && !is_leaving && !is_over(pod) && spec.node_name.is_none()
}

/// What the Pod says about why it fits nowhere.
fn said(pod: &Pod) -> Option<&String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|c| c.type_ == "PodScheduled" && c.status == "False");
    scheduled?.message.as_ref()
}

fn amounts<'q>(quantities: impl IntoIterator<Item = (&'q String, &'q Quantity)>) -> Amounts {
    let read =
        |(name, quantity): (&String, &Quantity)| Some((name.clone(), thousandths(&quantity.0)?));
    quantities.into_iter().filter_map(read).collect()
}

fn requests(pod: &Pod) -> Amounts {
    let mut sum = Amounts::new();
    for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
        let requests = container.resources.as_ref().and_then(|needs| needs.requests.as_ref());
        for (name, amount) in amounts(requests.into_iter().flatten()) {
            *sum.entry(name).or_default() += amount;
        }
    }
    sum
}

impl<'n> Room<'n> {
    fn new(node: &'n Node) -> Self {
        let status = node.status.as_ref();
        let offered = status.and_then(|s| s.allocatable.as_ref().or(s.capacity.as_ref()));
        let mut free = amounts(offered.into_iter().flatten());
        free.entry("pods".into()).or_insert(DEFAULT_PODS * 1000);
        Self { node, free, pods: 0 }
    }

    fn take(&mut self, pod: &Pod) {
        self.pods += 1;
        for (name, amount) in requests(pod) {
            *self.free.entry(name).or_default() -= amount;
        }
        *self.free.entry("pods".into()).or_default() -= 1000;
    }

    /// Why `pod` cannot run here; the first of the reasons, in the real scheduler's words.
    fn obstacle(&self, pod: &Pod) -> Option<String> {
        let spec = pod.spec.as_ref()?;
        let of_node = self.node.spec.clone().unwrap_or_default();
        if of_node.unschedulable == Some(true) {
            return Some("node(s) were unschedulable".into());
        }
        if !self.is_ready() {
            return Some("node(s) were not ready".into());
        }
        let tolerations = spec.tolerations.as_deref().unwrap_or_default();
        let repels = |taint: &&Taint| {
            taint.effect != "PreferNoSchedule" && !tolerations.iter().any(|t| tolerates(t, taint))
        };
        if let Some(taint) = of_node.taints.iter().flatten().find(repels) {
            let value = taint.value.as_deref().unwrap_or_default();
            return Some(format!("node(s) had untolerated taint {{{}: {value}}}", taint.key));
        }
        let wanted = spec.node_selector.iter().flatten();
        let labels = self.node.labels();
        if wanted.into_iter().any(|(key, value)| labels.get(key) != Some(value)) {
            return Some("node(s) didn't match Pod's node affinity/selector".into());
        }
        if self.free.get("pods").is_none_or(|free| *free < 1000) {
            return Some("Too many pods".into());
        }
        let lacks = |(name, amount): &(String, i128)| {
            *amount > 0 && self.free.get(name).is_none_or(|free| free < amount)
        };
        requests(pod).into_iter().find(lacks).map(|(name, _)| format!("Insufficient {name}"))
    }

    fn is_ready(&self) -> bool {
        let conditions = self.node.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(name: &str, change: Value) -> Node {
        let mut node = json!({
            "metadata": { "name": name, "labels": { "kind": "mac" } },
            "spec": {},
            "status": {
                "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "2" },
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        });
        merge(&mut node, change);
        serde_json::from_value(node).unwrap()
    }

    fn pod(name: &str, change: Value) -> Pod {
        let mut pod = json!({
            "metadata": { "name": name, "namespace": "default" },
            "spec": { "containers": [{
                "name": "vm", "resources": { "requests": { "cpu": "4", "memory": "8Gi" } },
            }] },
        });
        merge(&mut pod, change);
        serde_json::from_value(pod).unwrap()
    }

    fn merge(target: &mut Value, change: Value) {
        match change {
            Value::Object(fields) => {
                for (key, value) in fields {
                    merge(&mut target[key], value);
                }
            }
            other => *target = other,
        }
    }

    fn verdicts(pods: &[Pod], nodes: &[Node]) -> Vec<Verdict> {
        place(pods, nodes).into_iter().map(|placement| placement.verdict).collect()
    }

    fn bind(node: &str) -> Verdict {
        Verdict::Bind(node.into())
    }

    #[test]
    fn pods_spread_over_nodes_and_each_one_counts_for_the_next() {
        let nodes = [node("a", json!({})), node("b", json!({}))];
        let pods: Vec<Pod> = (0..5).map(|i| pod(&format!("p{i}"), json!({}))).collect();
        let nowhere = Verdict::Nowhere("0/2 nodes are available: 2 Too many pods.".into());
        let expected = [bind("a"), bind("b"), bind("a"), bind("b"), nowhere];
        assert_eq!(verdicts(&pods, &nodes), expected);
    }

    #[test]
    fn a_pod_that_is_over_leaves_its_room_to_others() {
        let on_a = |phase: &str| json!({"spec": {"nodeName": "a"}, "status": {"phase": phase}});
        let nodes = [node("a", json!({"status": {"allocatable": {"pods": "1"}}}))];
        let running = [pod("old", on_a("Running")), pod("new", json!({}))];
        assert!(matches!(verdicts(&running, &nodes)[..], [Verdict::Nowhere(_)]));
        let over = [pod("old", on_a("Succeeded")), pod("new", json!({}))];
        assert_eq!(verdicts(&over, &nodes), [bind("a")]);
    }

    #[test]
    fn every_obstacle_is_told_in_words() {
        let taint = json!([{"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}]);
        for (change, why) in [
            (json!({"spec": {"unschedulable": true}}), "1 node(s) were unschedulable"),
            (json!({"status": {"conditions": []}}), "1 node(s) were not ready"),
            (
                json!({"spec": {"taints": taint}}),
                "1 node(s) had untolerated taint {tuist.dev/macos: true}",
            ),
            (
                json!({"metadata": {"labels": {"kind": "other"}}}),
                "1 node(s) didn't match Pod's node affinity/selector",
            ),
            (json!({"status": {"allocatable": {"cpu": "3900m"}}}), "1 Insufficient cpu"),
            (json!({"status": {"allocatable": {"memory": "7Gi"}}}), "1 Insufficient memory"),
            (json!({"status": {"allocatable": {"pods": "0"}}}), "1 Too many pods"),
        ] {
            let pods = [pod("p", json!({"spec": {"nodeSelector": {"kind": "mac"}}}))];
            let expected = Verdict::Nowhere(format!("0/1 nodes are available: {why}."));
            assert_eq!(verdicts(&pods, &[node("a", change)]), [expected]);
        }
    }

    #[test]
    fn a_toleration_opens_a_tainted_node() {
        let taints = json!([{"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}]);
        let nodes = [node("a", json!({"spec": {"taints": taints}}))];
        for (toleration, opens) in [
            (json!({"key": "tuist.dev/macos", "operator": "Exists"}), true),
            (json!({"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}), true),
            (json!({"operator": "Exists"}), true),
            (json!({"key": "tuist.dev/macos", "value": "false"}), false),
            (json!({"key": "other", "operator": "Exists"}), false),
            (json!({"key": "tuist.dev/macos", "operator": "Exists", "effect": "NoExecute"}), false),
        ] {
            let pods = [pod("p", json!({"spec": {"tolerations": [toleration]}}))];
            assert_eq!(verdicts(&pods, &nodes) == [bind("a")], opens, "{pods:?}");
        }
    }

    #[test]
    fn a_pod_that_was_told_is_not_told_again_and_one_that_waits_for_others_is_left_alone() {
        let message = "0/0 nodes are available.";
        let told = json!({"status": {"conditions": [
            {"type": "PodScheduled", "status": "False", "message": message}
        ]}});
        assert_eq!(verdicts(&[pod("p", told)], &[]), []);
        assert_eq!(verdicts(&[pod("p", json!({}))], &[]), [Verdict::Nowhere(message.into())]);
        for change in [
            json!({"spec": {"schedulerName": "another"}}),
            json!({"spec": {"schedulingGates": [{"name": "wait"}]}}),
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}),
        ] {
            assert_eq!(verdicts(&[pod("p", change)], &[]), []);
        }
    }
}
