//! The part of the controller-manager that notices Nodes whose agent is silent, and what becomes of
//! Pods on Nodes that are not well or that are no more.
//!
//! # Flow
//! A silent Node's conditions turn Unknown and its Pods are not Ready any more, if it was Ready;
//! those of a Node that says itself that it is not Ready are as its agent tells. A Node that is not
//! Ready is tainted; a Pod that does not tolerate that, or not for longer, is deleted; so is, by
//! force, one whose Node is gone.
//!
//! # Caveats
//! - As where other Nodes are well: one whose Nodes are all silent evicts nobody, and a real
//!   controller taints one Node in ten seconds.
//! - Of the taints that tell a condition only those of `Ready` are kept.

mod removals;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use self::removals::{Due, Nodes, Removals};
use super::taints;

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The conditions that an agent speaks for.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// How fast the life of Nodes goes.
#[derive(Clone, Copy, Debug)]
pub struct NodePace {
    /// Looks are no closer than this.
    pub period: Duration,
    /// How long a Node may show no sign of life.
    pub grace: Duration,
    /// How long a second of a Pod's toleration takes.
    pub second: Duration,
}

/// Turns the conditions of a Node Unknown once it showed no sign of life, neither its Lease nor a
/// heartbeat, for longer than the grace, taints Nodes that are not Ready, and removes the Pods that
/// cannot stay. Looks when the next time is over, at most once a period.
pub async fn node_lifecycle(client: Client, clock: Clock, pace: NodePace) -> ! {
    let mut life = Life { client, clock, pace, memory: Memory::default() };
    loop {
        let wake = life.turn().await.unwrap_or_else(|error| {
            tracing::debug!(%error, "could not look at the Nodes; looking again");
            pace.period
        });
        tokio::time::sleep(wake.max(pace.period)).await;
    }
}

/// What the agent of a Node told of its time: in its Lease, and in the newest heartbeat.
type Sign = (Option<Timestamp>, Option<Timestamp>);
/// The last sign of life of each Node, and when it came.
type Signs = BTreeMap<String, (Sign, Timestamp)>;

#[derive(Default)]
struct Memory {
    signs: Signs,
    /// Nodes that were found silent, and whose Pods still say that they are Ready.
    unmarked: BTreeSet<String>,
    removals: Removals,
}

struct Life {
    client: Client,
    clock: Clock,
    pace: NodePace,
    memory: Memory,
}

impl Life {
    async fn turn(&mut self) -> kube::Result<Duration> {
        let all = ListParams::default();
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), LEASE_NAMESPACE);
        let renewed: BTreeMap<String, Timestamp> = leases
            .list(&all)
            .await?
            .into_iter()
            .filter_map(|lease| {
                Some((lease.name_any(), lease.spec.as_ref()?.renew_time.as_ref()?.0))
            })
            .collect();
        let now = self.clock.now();
        let mut wake = self.pace.grace;
        let mut nodes = Nodes::new();
        for node in Api::<Node>::all(self.client.clone()).list(&all).await? {
            let name = node.name_any();
            let silence = self.silence(&node, renewed.get(&name).copied(), now);
            let left = self.pace.grace.checked_sub(silence);
            if let Some(left) = left {
                wake = wake.min(left + Duration::from_millis(1));
            }
            let judged = self.judge(node, left.is_none(), now).await;
            // One that comes back is welcome at once.
            if ready(&judged) != Some("True") {
                wake = self.pace.period;
            }
            nodes.insert(name, judged);
        }
        // Who is gone is forgotten: a demo has no end.
        self.memory.signs.retain(|name, _| nodes.contains_key(name));
        self.memory.unmarked.retain(|name| nodes.contains_key(name));
        let pods = Api::<Pod>::all(self.client.clone()).list(&all).await?.items;
        self.mark_pods(&pods, now).await;
        let due = self.memory.removals.due(now, self.pace.second, &nodes, &pods);
        let wake = due.wake.map_or(wake, |soon| wake.min(soon));
        self.remove(&due, now).await;
        Ok(wake)
    }

    /// For how long a Node has shown no sign of life.
    fn silence(&mut self, node: &Node, renewed: Option<Timestamp>, now: Timestamp) -> Duration {
        let (sign, grace) = ((renewed, heartbeat(node)), self.pace.grace);
        let known = self.memory.signs.entry(node.name_any());
        let known = known.or_insert_with(|| (sign, came(sign, now, grace)));
        if known.0 != sign {
            *known = (sign, came(sign, now, grace));
        }
        Duration::try_from(now.duration_since(known.1)).unwrap_or_default()
    }

    /// Says of a Node what is to be said of it; the Node as it is then.
    async fn judge(&mut self, node: Node, is_silent: bool, now: Timestamp) -> Node {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let (name, how) = (node.name_any(), PatchParams::default());
        let unknown = if is_silent { silent(&node, now) } else { vec![] };
        let was_ready = ready(&node) == Some("True");
        let mut judged = node;
        if !unknown.is_empty() {
            let patch = Patch::Strategic(json!({ "status": { "conditions": unknown } }));
            match nodes.patch_status(&name, &how, &patch).await {
                Ok(told) => judged = told,
                Err(error) => {
                    tracing::debug!(%error, %name, "could not mark a silent Node; looking again");
                    return judged;
                }
            }
            if was_ready {
                self.memory.unmarked.insert(name.clone());
            }
        }
        let Some(wanted) = ready(&judged).and_then(|it| taints::missing(&judged, it, whole(now)))
        else {
            return judged;
        };
        let patch = Patch::Merge(json!({
            "metadata": { "resourceVersion": judged.resource_version() },
            "spec": { "taints": wanted },
        }));
        nodes.patch(&name, &how, &patch).await.unwrap_or_else(|error| {
            tracing::debug!(%error, %name, "could not taint a Node; looking again");
            judged
        })
    }

    /// Of a Node that fell silent, nobody knows whether its Pods are Ready.
    async fn mark_pods(&mut self, pods: &[Pod], now: Timestamp) {
        let nodes = std::mem::take(&mut self.memory.unmarked);
        for pod in pods {
            let spec = pod.spec.as_ref();
            let Some(node) = spec.and_then(|spec| spec.node_name.as_ref()) else { continue };
            let mut conditions = pod.status.iter().flat_map(|it| it.conditions.iter().flatten());
            let is_ready = conditions.any(|it| it.type_ == "Ready" && it.status == "True");
            if !is_ready || !nodes.contains(node) {
                continue;
            }
            let change = json!({
                "type": "Ready", "status": "False", "lastTransitionTime": whole(now),
            });
            if let Err(error) = self.say(pod, json!({ "conditions": [change] })).await {
                tracing::debug!(%error, "could not mark a silent Pod; looking again");
                self.memory.unmarked.insert(node.clone());
            }
        }
    }

    async fn remove(&self, due: &Due<'_>, now: Timestamp) {
        let why = |reason: &str, message: &str| {
            json!([{
                "type": "DisruptionTarget", "status": "True", "reason": reason,
                "message": message, "lastTransitionTime": whole(now),
            }])
        };
        for pod in &due.evicted {
            let message = "Taint manager: deleting due to NoExecute taint";
            let status = json!({ "conditions": why("DeletionByTaintManager", message) });
            self.delete(pod, Some(status), &DeleteParams::default()).await;
        }
        for pod in &due.orphaned {
            let ended = matches!(phase(pod), Some("Succeeded" | "Failed"));
            let condition = why("DeletionByPodGC", "PodGC: node no longer exists");
            let status = json!({ "phase": "Failed", "conditions": condition });
            let by_force = DeleteParams::default().grace_period(0);
            self.delete(pod, (!ended).then_some(status), &by_force).await;
        }
    }

    /// Says why, and deletes. What could not be done is done at the next look.
    async fn delete(&self, pod: &Pod, status: Option<Value>, how: &DeleteParams) {
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let deleted = async {
            if let Some(status) = status {
                self.say(pod, status).await?;
            }
            pods.delete(&pod.name_any(), how).await.map(drop)
        };
        if let Err(error) = deleted.await {
            tracing::debug!(%error, "could not delete a Pod; looking again");
        }
    }

    async fn say(&self, pod: &Pod, status: Value) -> kube::Result<()> {
        let pods: Api<Pod> =
            Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let patch = json!({ "metadata": { "uid": pod.metadata.uid }, "status": status });
        let (name, how) = (pod.name_any(), PatchParams::default());
        pods.patch_status(&name, &how, &Patch::Strategic(patch)).await.map(drop)
    }
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// What a Node's `Ready` says.
fn ready(node: &Node) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    Some(&ready.status)
}

/// Kubernetes keeps whole seconds.
fn whole(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

/// When a new sign of life came: at the time that it tells, if that can be; an agent's clock may be
/// wrong, and then it came just now.
fn came((renewed, heartbeat): Sign, now: Timestamp, grace: Duration) -> Timestamp {
    let ago = |time: &Timestamp| Duration::try_from(now.duration_since(*time)).ok();
    let told = renewed.max(heartbeat);
    told.filter(|time| ago(time).is_some_and(|ago| ago <= grace)).unwrap_or(now)
}

/// The newest heartbeat of a Node.
fn heartbeat(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.filter_map(|condition| Some(condition.last_heartbeat_time.as_ref()?.0)).max()
}

/// What to write on a Node that is silent; nothing, if it was written.
fn silent(node: &Node, now: Timestamp) -> Vec<Value> {
    let present: BTreeMap<&str, &str> = node
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten())
        .map(|condition| (condition.type_.as_str(), condition.status.as_str()))
        .collect();
    let now = whole(now);
    CONDITIONS
        .iter()
        .filter(|type_| present.get(**type_) != Some(&"Unknown"))
        .map(|type_| {
            json!({
                "type": type_,
                "status": "Unknown",
                "reason": "NodeStatusUnknown",
                "message": "Kubelet stopped posting node status.",
                "lastTransitionTime": now,
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use kube::api::PostParams;

    use super::*;
    use crate::kubernetes::{ApiServer, Identity, Registry};

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_gone_is_forgotten() {
        let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
        let server = ApiServer::new(clock.clone(), 1, Registry::new(vec![]).unwrap());
        let client = server.client(Identity::admin());
        let nodes: Api<Node> = Api::all(client.clone());
        for name in ["a", "b"] {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        let minute = Duration::from_mins(1);
        let second = Duration::from_secs(1);
        let pace = NodePace { period: second, grace: minute, second };
        let mut life = Life { client, clock, pace, memory: Memory::default() };
        life.turn().await.unwrap();
        nodes.delete("a", &DeleteParams::default()).await.unwrap();
        life.turn().await.unwrap();
        assert!(life.memory.signs.keys().eq(["b"]));
    }
}
