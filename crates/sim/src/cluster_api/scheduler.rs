//! The scheduler: binds Pods that wait to Nodes that have room.

mod fit;

use std::time::Duration;

use applecart_api::clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use self::fit::{Placement, Verdict, place};
use super::kind::Kind;
use super::pace::Pace;

/// Binds waiting Pods by node selector, taints, readiness, requests and the number of Pods; the
/// Node with the fewest Pods first, then by name. A Pod that fits nowhere says why.
pub async fn scheduler(client: Client, clock: Clock, period: Duration) -> ! {
    let watched = [Kind::Pod, Kind::Node].map(|kind| kind.everywhere(&client));
    let mut pace = Pace::new(period, watched);
    loop {
        let wake = turn(&client, clock.now()).await.err().map(|error| {
            tracing::debug!(%error, "could not look at Pods and Nodes; looking again");
            period
        });
        pace.next(wake).await;
    }
}

async fn turn(client: &Client, now: Timestamp) -> kube::Result<()> {
    let all = ListParams::default();
    let pods = Api::<Pod>::all(client.clone()).list(&all).await?.items;
    let nodes = Api::<Node>::all(client.clone()).list(&all).await?.items;
    for placement in place(&pods, &nodes) {
        if let Err(error) = perform(client, &placement, now).await {
            tracing::debug!(%error, "could not place a Pod; looking again");
        }
    }
    Ok(())
}

async fn perform(client: &Client, placement: &Placement<'_>, now: Timestamp) -> kube::Result<()> {
    let pod = placement.pod;
    let (namespace, name) = (pod.namespace().unwrap_or_default(), pod.name_any());
    let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
    match &placement.verdict {
        Verdict::Bind(node) => {
            let binding = json!({
                "apiVersion": "v1",
                "kind": "Binding",
                "metadata": { "name": name, "namespace": namespace, "uid": pod.metadata.uid },
                "target": { "apiVersion": "v1", "kind": "Node", "name": node },
            });
            let params = PostParams::default();
            let _: serde_json::Value =
                pods.create_subresource("binding", &name, &params, &binding).await?;
        }
        Verdict::Nowhere(why) => {
            let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
            let condition = json!({
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": why,
                "lastTransitionTime": now,
            });
            let patch = json!({
                "metadata": { "uid": pod.metadata.uid },
                "status": { "conditions": [condition] },
            });
            let params = PatchParams::default();
            pods.patch_status(&name, &params, &Patch::Strategic(patch)).await?;
        }
    }
    Ok(())
}
