//! The runner-pool controller, unchanged, against the simulated API server in virtual time.

use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::crds;
use applecart_api::keys::finalizer;
use applecart_api::runner_pool::RunnerPool;
use applecart_core::runner_pool::Limits;
use applecart_operator::runner_pools::RunnerPools;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::{Api, Client};
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
