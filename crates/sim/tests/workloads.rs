//! Deployments, kept by their stand-in, against the simulated API server under a paused clock. The
//! agents that run Pods are played by the tests.

use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::cluster_api;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const PERIOD: Duration = Duration::from_secs(1);
/// Virtual time within which everything here must settle.
const PATIENCE: Duration = Duration::from_mins(5);

/// A cluster that keeps Deployments and makes every Pod ready after a second.
fn cluster() -> (Client, JoinSet<()>) {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::new(move || epoch + start.elapsed());
    let server = ApiServer::new(clock.clone(), 1, Registry::new(vec![]).unwrap());
    let client = server.client(Identity::admin());
    let mut tasks = JoinSet::new();
    let keeping = client.clone();
    tasks.spawn(async move { cluster_api::workloads(keeping, clock, PERIOD).await });
    let running = client.clone();
    tasks.spawn(async move {
        loop {
            tokio::time::sleep(PERIOD).await;
            run_pods(&running).await;
        }
    });
    (client, tasks)
}

async fn run_pods(client: &Client) {
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for pod in pods.list(&ListParams::default()).await.unwrap() {
        let name = pod.name_any();
        if pod.metadata.deletion_timestamp.is_some() {
            let _gone = pods.delete(&name, &DeleteParams::default().grace_period(0)).await;
            continue;
        }
        let ready = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}]}});
        let _gone = pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(ready)).await;
    }
}

fn deployment(replicas: i32) -> Deployment {
    serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "strategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "c", "image": "one"}]}}}}))
    .unwrap()
}

async fn change(client: &Client, patch: &Value) {
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
}

/// Waits until so many Pods of this image are all that there are, and the status says so. There are
/// never fewer than `least` ready ones on the way, nor more than `most` in all.
async fn settles(client: &Client, image: &str, count: i32, least: usize, most: usize) {
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let start = tokio::time::Instant::now();
    while start.elapsed() < PATIENCE {
        let status = deployments.get("web").await.unwrap().status.unwrap_or_default();
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let staying: Vec<&Pod> =
            all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect();
        let ready = staying.iter().filter(|pod| {
            pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        });
        assert!(ready.count() >= least, "too few Pods");
        assert!(staying.len() <= most, "too many Pods");
        let image_of = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.clone();
        let current = all.iter().all(|pod| image_of(pod).as_deref() == Some(image));
        let told = (status.updated_replicas, status.available_replicas);
        let count_of = usize::try_from(count).unwrap();
        if current && all.len() == count_of && told == (Some(count), Some(count)) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    panic!("{count} Pods of {image} never settled");
}

#[tokio::test(start_paused = true)]
async fn a_deployment_scales_rolls_without_a_gap_and_goes_with_its_pods() {
    let (client, _tasks) = cluster();
    let api: Api<Deployment> = Api::default_namespaced(client.clone());
    api.create(&PostParams::default(), &deployment(3)).await.unwrap();
    settles(&client, "one", 3, 0, 3).await;
    let containers = |image: &str| {
        let containers = json!([{"name": "c", "image": image}]);
        json!({"spec": {"template": {"spec": {"containers": containers}}}})
    };
    change(&client, &containers("two")).await;
    settles(&client, "two", 3, 3, 4).await;
    change(&client, &json!({"spec": {"replicas": 1}})).await;
    settles(&client, "two", 1, 1, 3).await;
    // Back to the first template: its set is there already, and gets the newest revision.
    change(&client, &containers("one")).await;
    settles(&client, "one", 1, 1, 2).await;
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    assert_eq!(sets.list(&ListParams::default()).await.unwrap().items.len(), 2);
    tokio::time::sleep(PERIOD * 5).await;
    let kept = api.get("web").await.unwrap();
    assert_eq!(kept.annotations()["deployment.kubernetes.io/revision"], "3");

    api.delete("web", &DeleteParams::default()).await.unwrap();
    tokio::time::sleep(PERIOD * 5).await;
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    assert!(pods.list(&ListParams::default()).await.unwrap().items.is_empty());
    assert!(sets.list(&ListParams::default()).await.unwrap().items.is_empty());
}
