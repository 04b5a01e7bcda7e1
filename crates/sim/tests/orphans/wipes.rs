//! What goes before a wipe, and a Scaleway that shows none.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::label;
use applecart_sim::kubernetes::Verb;
use applecart_sim::scaleway::{Answer, Operation, Rule, Verdict};
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{Stage, minutes};

/// A stray, and an object with its own host.
async fn stage() -> Stage {
    let stage = Stage::new(&["macs-stray", "macs-1"]);
    stage.object("macs-1", Some(&stage.host("macs-1"))).await;
    stage
}

/// Wipes of the stray are granted from now on, and none begins.
fn grant_in_vain(stage: &Stage) -> Rule {
    let stray = stage.host("macs-stray");
    let granted = json!({
        "id": stray, "name": "macs-stray", "type": "M2-L", "status": "reinstalling",
        "zone": "fr-par-1", "project_id": stray, "delivered": true,
    });
    Rule::next(Operation::ReinstallServer, Verdict::FailBefore(Answer::ok(&granted)))
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_is_granted_and_never_comes_is_asked_for_six_times_and_the_host_set_aside() {
    let stage = stage().await;
    let stray = stage.host("macs-stray");
    stage.scaleway.add_rule(grant_in_vain(&stage).for_ever());
    let asks = || stage.calls(Operation::ReinstallServer);
    let script = async {
        stage.after(minutes(19)).await;
        assert_eq!(asks(), 1);
        stage.after(minutes(3)).await;
        assert_eq!(asks(), 2);
        stage.after(minutes(60)).await;
    };
    stage.run(script).await;
    assert_eq!(asks(), 6);
    assert_eq!(stage.names()[0], format!("tuist-quarantine-{stray}"));
    let unwiped = (None, Some("true".to_owned()));
    assert_eq!(stage.lease(&stray), unwiped, "nobody's, and nobody adopts it");
}

#[tokio::test(start_paused = true)]
async fn a_wipe_that_shows_late_is_not_asked_for_again() {
    let stage = stage().await;
    let stray = stage.host("macs-stray");
    stage.scaleway.add_rule(grant_in_vain(&stage));
    let script = async {
        stage.after(minutes(15) + Duration::from_secs(30)).await;
        assert_eq!(stage.calls(Operation::ReinstallServer), 1);
        // What was granted begins.
        let zone = stage.scaleway.host(&stray).expect("a host").zone;
        stage.scaleway.client().reinstall(&zone, &stray, None).await.expect("begun");
        stage.after(minutes(5)).await;
    };
    stage.run(script).await;
    assert_eq!(stage.calls(Operation::ReinstallServer), 2, "one of them was the person's");
    assert_eq!(stage.names()[0], format!("tuist-pool-{stray}"));
    assert_eq!(stage.wipes(), [1, 0]);
}

/// The Node of the stray, and a runner on it that waits for a job.
async fn runner(stage: &Stage) -> Api<Pod> {
    let stray = stage.host("macs-stray");
    let how = PostParams::default();
    let node = json!({
        "metadata": {"name": "macs-stray", "labels": {label::RUNTIME: label::RUNTIME_TART}},
        "spec": {"providerID": format!("scw-applesilicon://fr-par-1/{stray}")},
    });
    let node: Node = serde_json::from_value(node).expect("a Node");
    Api::<Node>::all(stage.admin()).create(&how, &node).await.expect("created");
    let pod = json!({
        "metadata": {"name": "runner", "labels": {label::RUNNER_POOL: "p"}},
        "spec": {"nodeName": "macs-stray", "containers": [{"name": "vm", "image": "i"}]},
    });
    let pods: Api<Pod> = Api::namespaced(stage.admin(), "default");
    let pod: Pod = serde_json::from_value(pod).expect("a Pod");
    pods.create(&how, &pod).await.expect("created");
    pods
}

/// The agent has ended the Pod's VM.
async fn ended(pods: &Api<Pod>) {
    let now = DeleteParams::default().grace_period(0);
    pods.delete("runner", &now).await.expect("deleted");
}

fn node(stage: &Stage) -> Arc<Value> {
    let nodes = stage.api.objects("nodes");
    nodes.into_iter().find(|node| node["metadata"]["name"] == "macs-stray").expect("its Node")
}

#[tokio::test(start_paused = true)]
async fn a_stray_takes_no_new_pods_and_loses_its_idle_ones_before_it_is_wiped() {
    // LH24: nobody else drains it.
    let stage = stage().await;
    let pods = runner(&stage).await;
    let script = async {
        stage.after(minutes(14)).await;
        assert_eq!(node(&stage)["spec"]["unschedulable"], Value::Null);
        stage.after(Duration::from_secs(90)).await;
        assert_eq!(node(&stage)["spec"]["unschedulable"], true);
        let runner = pods.get("runner").await.expect("a Pod");
        assert!(runner.metadata.deletion_timestamp.is_some());
        assert_eq!(stage.wipes(), [0, 0], "its agent still ends it");
        ended(&pods).await;
        stage.after(minutes(1)).await;
    };
    stage.run(script).await;
    assert_eq!(stage.wipes(), [1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_gets_a_job_at_the_last_moment_keeps_its_mac() {
    // S24
    let stage = stage().await;
    let pods = runner(&stage).await;
    let change = async |change: Value, status: bool| {
        let (how, patch) = (PatchParams::default(), Patch::Merge(&change));
        if status {
            pods.patch_status("runner", &how, &patch).await.expect("patched");
        } else {
            pods.patch("runner", &how, &patch).await.expect("patched");
        }
    };
    let script = async {
        stage.reached(Verb::Delete, "pods").await;
        change(json!({"metadata": {"labels": {label::RUNNER_POOL_OWNER: "job"}}}), false).await;
        stage.let_go();
        stage.after(minutes(40)).await;
        let runner = pods.get("runner").await.expect("a Pod");
        assert_eq!(runner.metadata.deletion_timestamp, None, "not as it was read");
        assert_eq!(stage.wipes(), [0, 0]);
        assert!(stage.count(r#"applecart_sweep_refusals_total{reason="busy"}"#) >= 2);
        change(json!({"status": {"phase": "Succeeded"}}), true).await;
        stage.after(minutes(16)).await;
    };
    stage.run(script).await;
    assert_eq!(stage.wipes(), [1, 0]);
}
