//! The runner-pool controller, unchanged, against the simulated API server in virtual time.

use std::collections::BTreeSet;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::crds;
use applecart_api::keys::{finalizer, label};
use applecart_api::runner_pool::RunnerPool;
use applecart_core::runner_pool::Limits;
use applecart_operator::runner_pools::RunnerPools;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Node, Pod};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How often a test looks, and how often at most, in virtual time.
const LOOK: Duration = Duration::from_secs(1);
const LOOKS: u32 = 600;

/// An API server with our definitions, and a client that may do everything.
fn server() -> (Client, Clock) {
    let start = Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::new(move || epoch + start.elapsed());
    let server = ApiServer::new(clock.clone(), 1, Registry::new(crds()).unwrap());
    (server.client(Identity::admin()), clock)
}

fn pools(client: &Client) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<RunnerPool>(&());
    Api::namespaced_with(client.clone(), "default", &kind)
}

async fn create(client: &Client, name: &str, rest: Value) {
    let mut pool = json!({
        "apiVersion": "tuist.dev/v1alpha1", "kind": "RunnerPool",
        "metadata": {"name": name, "finalizers": [finalizer::RUNNER_POOL]},
    });
    for (key, value) in rest.as_object().unwrap() {
        pool[key] = value.clone();
    }
    let pool = serde_json::from_value(pool).unwrap();
    pools(client).create(&PostParams::default(), &pool).await.unwrap();
}

async fn until(what: &str, mut look: impl AsyncFnMut() -> bool) {
    for _ in 0..LOOKS {
        if look().await {
            return;
        }
        sleep(LOOK).await;
    }
    panic!("waited for {what}");
}

#[tokio::test(start_paused = true)]
async fn a_pool_without_a_spec_says_so_blinds_nobody_to_the_others_and_can_be_deleted() {
    // S15: written before the schema asked for anything.
    let (client, clock) = server();
    create(&client, "old", json!({})).await;
    let spec = json!({
        "image": "img", "fleetSelector": "f", "dispatchLabel": "d", "runnerLabels": ["x"],
        "replicas": 1,
    });
    create(&client, "fine", json!({"spec": spec})).await;
    let controller = RunnerPools {
        client: client.clone(),
        namespace: Some("default".to_owned()),
        clock,
        dispatch_url: "https://ci.example/dispatch".to_owned(),
        limits: Limits::default(),
    };
    let mut running = JoinSet::new();
    running.spawn(controller.run());
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    until("the other pool's runner", async || {
        !pods.list(&ListParams::default()).await.unwrap().items.is_empty()
    })
    .await;
    until("the pool to say what is wrong", async || {
        let old = pools(&client).get("old").await.unwrap();
        let said = old.data["status"]["lastReason"].as_str().unwrap_or_default().to_owned();
        said.contains("spec cannot be read: missing field `spec`")
    })
    .await;
    let events: Api<Event> = Api::namespaced(client.clone(), "default");
    let told = events.list(&ListParams::default()).await.unwrap();
    assert!(told.iter().any(|event| event.reason.as_deref() == Some("SpecUnreadable")));
    let before = pools(&client).get("old").await.unwrap().metadata.resource_version;
    sleep(Duration::from_mins(10)).await;
    let after = pools(&client).get("old").await.unwrap().metadata.resource_version;
    assert_eq!(before, after, "a pool that cannot be read is written to once");
    pools(&client).delete("old", &DeleteParams::default()).await.unwrap();
    until("it to go", async || pools(&client).get_opt("old").await.unwrap().is_none()).await;
}

/// A Node of the fleet, or what it says of itself from now on.
async fn say(client: &Client, node: &str, ready: &str) {
    let nodes: Api<Node> = Api::all(client.clone());
    let metadata = json!({"name": node, "labels": {label::FLEET: "f"}});
    let fresh = serde_json::from_value(json!({"metadata": metadata})).unwrap();
    let _there_already = nodes.create(&PostParams::default(), &fresh).await;
    let condition = json!({
        "type": "Ready", "status": ready, "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let change = Patch::Merge(json!({"status": {"conditions": [condition]}}));
    nodes.patch_status(node, &PatchParams::default(), &change).await.unwrap();
}

/// Lets a runner run on a Node.
async fn place(client: &Client, runner: &str, node: &str) {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": runner},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    });
    let bound: kube::Result<Value> =
        pods.create_subresource("binding", runner, &PostParams::default(), &binding).await;
    bound.unwrap();
    let runs = Patch::Merge(json!({"status": {"phase": "Running"}}));
    pods.patch_status(runner, &PatchParams::default(), &runs).await.unwrap();
}

/// The runners that stay, by name.
async fn staying(client: &Client) -> BTreeSet<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let all = pods.list(&ListParams::default()).await.unwrap();
    let stay = all.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
    stay.map(ResourceExt::name_any).collect()
}

#[tokio::test(start_paused = true)]
async fn a_runner_on_a_mac_that_nobody_hears_of_is_replaced_unless_it_has_a_job() {
    // S37, S38, G15
    let (client, clock) = server();
    let spec = json!({
        "image": "img", "fleetSelector": "f", "dispatchLabel": "d", "runnerLabels": ["x"],
        "replicas": 3,
    });
    create(&client, "macos", json!({"spec": spec})).await;
    say(&client, "silent", "True").await;
    say(&client, "well", "True").await;
    let controller = RunnerPools {
        client: client.clone(),
        namespace: Some("default".to_owned()),
        clock,
        dispatch_url: "https://ci.example/dispatch".to_owned(),
        limits: Limits::default(),
    };
    let mut running = JoinSet::new();
    running.spawn(controller.run());
    until("three runners", async || staying(&client).await.len() == 3).await;
    let runners: Vec<String> = staying(&client).await.into_iter().collect();
    let [idle, busy, other] = &runners[..] else { panic!("{runners:?}") };
    for (runner, node) in [(idle, "silent"), (busy, "silent"), (other, "well")] {
        place(&client, runner, node).await;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let claim = Patch::Merge(json!({"metadata": {"labels": {label::RUNNER_POOL_OWNER: "job"}}}));
    pods.patch(busy, &PatchParams::default(), &claim).await.unwrap();
    let reason = async || {
        let pool = pools(&client).get("macos").await.unwrap();
        pool.data["status"]["lastReason"].as_str().unwrap_or_default().to_owned()
    };
    until("the pool to be warm", async || reason().await == "as asked for").await;
    // Whatever its Node says of the time: the controller may have been away itself.
    say(&client, "silent", "Unknown").await;
    until("it to be told", async || reason().await.starts_with("nobody hears of the Macs")).await;
    sleep(Duration::from_mins(4)).await;
    assert_eq!(Vec::from_iter(staying(&client).await), runners);
    until("the idle one to go", async || !staying(&client).await.contains(idle)).await;
    until("another one", async || staying(&client).await.len() == 3).await;
    sleep(Duration::from_hours(24)).await;
    let now = staying(&client).await;
    assert!(now.len() == 3 && now.contains(busy) && now.contains(other), "{now:?}");
}
