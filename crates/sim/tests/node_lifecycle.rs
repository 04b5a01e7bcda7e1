//! The stand-in for the life cycle of Nodes: taints, evictions, and Pods whose Node is gone, as a
//! real controller-manager has them, in virtual time.

use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::cluster_api::{self, NodePace};
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const PACE: NodePace = NodePace {
    period: Duration::from_secs(5),
    grace: Duration::from_secs(50),
    second: Duration::from_secs(1),
};
const NODE: &str = "mac-1";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// A cluster with one Node.
struct Cluster {
    client: Client,
    clock: Clock,
    _life: JoinSet<()>,
}

impl Cluster {
    async fn new() -> Self {
        let start = Instant::now();
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::new(move || epoch + start.elapsed());
        let server = ApiServer::new(clock.clone(), 1, Registry::new(vec![]).unwrap());
        let client = server.client(Identity::admin());
        let mut life = JoinSet::new();
        let (standing, time) = (client.clone(), clock.clone());
        life.spawn(async move { cluster_api::node_lifecycle(standing, time, PACE).await });
        let cluster = Self { client, clock, _life: life };
        let taints = json!([{"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}]);
        let node = json!({"metadata": {"name": NODE}, "spec": {"taints": taints}});
        let node = serde_json::from_value(node).unwrap();
        cluster.nodes().create(&PostParams::default(), &node).await.unwrap();
        cluster.beat("True").await;
        cluster
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    /// The Node says how it is.
    async fn beat(&self, ready: &str) {
        let now = Timestamp::from_second(self.clock.now().as_second()).unwrap();
        let condition = json!({"type": "Ready", "status": ready, "lastHeartbeatTime": now});
        let change = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.nodes().patch_status(NODE, &PatchParams::default(), &change).await.unwrap();
    }

    async fn beat_for(&self, ready: &str, seconds: u64) {
        for _ in 0..seconds / 10 {
            self.beat(ready).await;
            sleep(Duration::from_secs(10)).await;
        }
    }

    /// A Pod that runs on the Node, with these tolerations besides those that all get.
    async fn pod(&self, name: &str, tolerations: &Value, finalizers: &Value) {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"name": name, "finalizers": finalizers},
            "spec": {
                "nodeName": NODE,
                "tolerations": tolerations,
                "containers": [{"name": "vm", "image": "i"}],
            },
        }))
        .unwrap();
        self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let ready = json!({"type": "Ready", "status": "True"});
        let runs = json!({"status": {"phase": "Running", "conditions": [ready]}});
        let (how, runs) = (PatchParams::default(), Patch::Strategic(runs));
        self.pods().patch_status(name, &how, &runs).await.unwrap();
    }

    async fn taints(&self) -> Vec<(String, String, Option<Timestamp>)> {
        let taints = self.nodes().get(NODE).await.unwrap().spec.unwrap().taints.unwrap();
        taints.into_iter().map(|it| (it.key, it.effect, it.time_added.map(|time| time.0))).collect()
    }

    async fn keys(&self) -> Vec<String> {
        self.taints().await.into_iter().map(|(key, effect, _)| format!("{key}:{effect}")).collect()
    }

    async fn get(&self, name: &str) -> Option<Pod> {
        self.pods().get_opt(name).await.unwrap()
    }

    async fn is_leaving(&self, name: &str) -> bool {
        self.get(name).await.unwrap().metadata.deletion_timestamp.is_some()
    }

    async fn condition(&self, name: &str, type_: &str) -> Option<PodCondition> {
        let conditions = self.get(name).await?.status?.conditions?;
        conditions.into_iter().find(|condition| condition.type_ == type_)
    }

    /// One version counts all objects.
    async fn version(&self) -> String {
        let pods = self.pods().list(&ListParams::default()).await.unwrap();
        pods.metadata.resource_version.unwrap()
    }
}

fn for_ever() -> Value {
    let tolerate = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    json!([tolerate(UNREACHABLE), tolerate(NOT_READY)])
}

fn both(key: &str) -> [String; 3] {
    let of = |effect: &str| format!("{key}:{effect}");
    ["tuist.dev/macos:NoSchedule".to_owned(), of("NoSchedule"), of("NoExecute")]
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_is_tainted_until_it_is_and_the_taints_of_others_stay() {
    let cluster = Cluster::new().await;
    cluster.beat_for("True", 120).await;
    assert_eq!(cluster.keys().await, ["tuist.dev/macos:NoSchedule"]);
    let began = cluster.clock.now();
    sleep(Duration::from_secs(40)).await;
    assert_eq!(
        cluster.keys().await,
        ["tuist.dev/macos:NoSchedule"],
        "not before the grace is over"
    );
    sleep(Duration::from_secs(20)).await;
    assert_eq!(cluster.keys().await, both(UNREACHABLE));
    let added = cluster.taints().await[2].2.unwrap();
    assert!(added > began && added <= cluster.clock.now());
    cluster.beat_for("False", 60).await;
    assert_eq!(cluster.keys().await, both(NOT_READY));
    cluster.beat_for("True", 20).await;
    assert_eq!(cluster.keys().await, ["tuist.dev/macos:NoSchedule"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_leaves_a_silent_node_when_its_toleration_is_over_and_its_finalizer_holds_it() {
    let cluster = Cluster::new().await;
    cluster.pod("usual", &json!([]), &json!(["tart.example/vm"])).await;
    cluster.pod("patient", &for_ever(), &json!([])).await;
    sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.condition("usual", "Ready").await.unwrap().status, "False");
    sleep(Duration::from_mins(4)).await;
    assert!(!cluster.is_leaving("usual").await, "five minutes after the taint, not before");
    sleep(Duration::from_mins(1)).await;
    assert!(cluster.is_leaving("usual").await);
    let why = cluster.condition("usual", "DisruptionTarget").await.unwrap();
    assert_eq!(why.reason.as_deref(), Some("DeletionByTaintManager"));
    let before = cluster.version().await;
    sleep(Duration::from_hours(24)).await;
    assert!(cluster.is_leaving("usual").await, "until its agent is back");
    assert!(!cluster.is_leaving("patient").await);
    assert_eq!(cluster.version().await, before, "nothing is written while nothing changes");
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_says_itself_that_it_is_not_ready_are_as_ready_as_their_agent_says() {
    // The real controller speaks for Pods only where it speaks for their Node.
    let cluster = Cluster::new().await;
    cluster.pod("usual", &json!([]), &json!([])).await;
    cluster.beat_for("False", 120).await;
    assert_eq!(cluster.keys().await, both(NOT_READY));
    assert_eq!(cluster.condition("usual", "Ready").await.unwrap().status, "True");
    sleep(Duration::from_mins(1)).await;
    assert_eq!(cluster.keys().await, both(UNREACHABLE));
    let told = cluster.condition("usual", "Ready").await.unwrap().status;
    assert_eq!(told, "True", "it was not Ready before it fell silent");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_is_heard_of_in_time_stays_and_its_time_begins_anew() {
    let cluster = Cluster::new().await;
    cluster.pod("usual", &json!([]), &json!([])).await;
    for _ in 0..3 {
        sleep(Duration::from_mins(5)).await;
        assert_eq!(cluster.keys().await, both(UNREACHABLE));
        cluster.beat_for("True", 30).await;
        assert!(!cluster.is_leaving("usual").await);
    }
    // From one trouble into another is no new beginning.
    sleep(Duration::from_mins(4)).await;
    cluster.beat_for("False", 120).await;
    assert!(cluster.is_leaving("usual").await);
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_is_gone_are_removed_by_force_unless_it_is_soon_back() {
    let cluster = Cluster::new().await;
    cluster.pod("free", &for_ever(), &json!([])).await;
    cluster.pod("held", &for_ever(), &json!(["tart.example/vm"])).await;
    cluster.beat_for("True", 30).await;
    let node = cluster.nodes().get(NODE).await.unwrap();
    cluster.nodes().delete(NODE, &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(35)).await;
    let metadata = ObjectMeta { name: Some(NODE.to_owned()), ..ObjectMeta::default() };
    let fresh = Node { metadata, ..node };
    cluster.nodes().create(&PostParams::default(), &fresh).await.unwrap();
    cluster.beat_for("True", 120).await;
    assert!(cluster.get("free").await.is_some() && !cluster.is_leaving("held").await);
    cluster.nodes().delete(NODE, &DeleteParams::default()).await.unwrap();
    sleep(Duration::from_secs(35)).await;
    assert!(cluster.get("free").await.is_some(), "not before the quarantine is over");
    sleep(Duration::from_secs(35)).await;
    assert!(cluster.get("free").await.is_none());
    let held = cluster.get("held").await.unwrap();
    assert_eq!(held.status.unwrap().phase.as_deref(), Some("Failed"));
    assert_eq!(held.metadata.deletion_grace_period_seconds, Some(0));
    let before = cluster.version().await;
    sleep(Duration::from_hours(24)).await;
    assert_eq!(cluster.version().await, before, "nothing is written while nothing changes");
}
