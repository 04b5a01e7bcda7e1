//! The part of the controller-manager that notices Nodes whose agent is silent.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

const LEASE_NAMESPACE: &str = "kube-node-lease";
/// The conditions that an agent speaks for.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// Turns the conditions of a Node Unknown once it showed no sign of life, neither its Lease nor a
/// heartbeat, for longer than `grace`. Looks when the next grace ends, at most once a `period`.
pub async fn node_lifecycle(client: Client, clock: Clock, period: Duration, grace: Duration) -> ! {
    let mut signs = Signs::default();
    loop {
        let wake = turn(&client, &clock, grace, &mut signs).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "could not look at the Nodes; looking again");
            period
        });
        tokio::time::sleep(wake.max(period)).await;
    }
}

/// What the agent of a Node told of its time: in its Lease, and in the newest heartbeat.
type Sign = (Option<Timestamp>, Option<Timestamp>);
/// The last sign of life of each Node, and when it came.
type Signs = BTreeMap<String, (Sign, Timestamp)>;

async fn turn(
    client: &Client,
    clock: &Clock,
    grace: Duration,
    signs: &mut Signs,
) -> kube::Result<Duration> {
    let nodes: Api<Node> = Api::all(client.clone());
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASE_NAMESPACE);
    let renewed: BTreeMap<String, Timestamp> = leases
        .list(&ListParams::default())
        .await?
        .into_iter()
        .filter_map(|lease| Some((lease.name_any(), lease.spec.as_ref()?.renew_time.as_ref()?.0)))
        .collect();
    let now = clock.now();
    let mut wake = grace;
    let listed = nodes.list(&ListParams::default()).await?;
    signs.retain(|name, _| listed.iter().any(|node| node.name_any() == *name));
    for node in listed {
        let name = node.name_any();
        let sign = (renewed.get(&name).copied(), heartbeat(&node));
        let known = signs.entry(name.clone()).or_insert_with(|| (sign, came(sign, now, grace)));
        if known.0 != sign {
            *known = (sign, came(sign, now, grace));
        }
        let silence = Duration::try_from(now.duration_since(known.1)).unwrap_or_default();
        if silence <= grace {
            wake = wake.min(grace.saturating_sub(silence) + Duration::from_millis(1));
            continue;
        }
        let unknown = silent(&node, now);
        if unknown.is_empty() {
            continue;
        }
        let patch = json!({ "status": { "conditions": unknown } });
        let params = PatchParams::default();
        if let Err(error) = nodes.patch_status(&name, &params, &Patch::Strategic(patch)).await {
            tracing::debug!(%error, %name, "could not mark a silent Node; looking again");
        }
    }
    Ok(wake)
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
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
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
    use kube::api::{DeleteParams, PostParams};

    use super::*;
    use crate::kubernetes::{ApiServer, Identity, Registry};

    #[tokio::test(start_paused = true)]
    async fn a_node_that_is_gone_is_forgotten() {
        let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
        let server = ApiServer::new(clock.clone(), 1, Registry::new(vec![]).unwrap());
        let client = server.client(Identity::admin());
        let nodes: Api<Node> = Api::all(client.clone());
        let mut signs = Signs::default();
        for name in ["a", "b"] {
            let node = serde_json::from_value(json!({"metadata": {"name": name}})).unwrap();
            nodes.create(&PostParams::default(), &node).await.unwrap();
        }
        turn(&client, &clock, Duration::from_mins(1), &mut signs).await.unwrap();
        nodes.delete("a", &DeleteParams::default()).await.unwrap();
        turn(&client, &clock, Duration::from_mins(1), &mut signs).await.unwrap();
        assert!(signs.keys().eq(["b"]));
    }
}
