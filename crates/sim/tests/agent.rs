//! The whole agent, unchanged, on a simulated Mac and against a simulated API server, in virtual
//! time. After every look the world is held against what must always be true of it.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::keys::finalizer;
use applecart_core::pod::{Template, VmName};
use applecart_sim::kubernetes::{
    ApiServer, Call, EVENT_LIFE, Gate, Identity, Refusal, Registry, Setup, Verb, Verdict,
};
use applecart_sim::tart::{Calls, Durations, SimTart};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tart_kubelet::{Config, Share, Tailnet, TailnetError, Vm};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// How often a test looks, and how long it is ready to wait, in virtual time.
const LOOK: Duration = Duration::from_millis(250);
const PATIENCE: Duration = Duration::from_hours(1);
const SECRET: &str = "canary-8d1f";

/// What becomes of the agent's requests.
#[derive(Default)]
struct Weather(AtomicU8);

const FAIR: u8 = 0;
/// Nobody answers.
const SILENT: u8 = 1;
/// Watches bring nothing.
const NO_EVENTS: u8 = 2;
/// Status cannot be written.
const NO_STATUS: u8 = 3;
/// The next read of a Pod misses it, once.
const STALE: u8 = 4;

impl Gate for Weather {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        let agent = call.who.user == "system:node:mac-1";
        let status = call.verb.mutates() && call.subresource.as_deref() == Some("status");
        let verdict = match self.0.load(Ordering::SeqCst) {
            SILENT if agent => Verdict::HangBefore,
            NO_EVENTS if agent && call.verb == Verb::Watch => Verdict::HangBefore,
            NO_STATUS if agent && status && call.resource == "pods" => {
                Verdict::FailBefore(Refusal::new(500, "InternalError", "no status today"))
            }
            STALE if agent && call.verb == Verb::Get && call.resource == "pods" => {
                self.0.store(FAIR, Ordering::SeqCst);
                Verdict::FailBefore(Refusal::new(404, "NotFound", "not there yet"))
            }
            _ => Verdict::Pass,
        };
        Box::pin(async move { verdict })
    }
}

/// What the tailnet tells, if the Mac has joined it.
#[derive(Clone, Default)]
struct Joined(Arc<Mutex<Option<IpAddr>>>);

impl Joined {
    fn set(&self, address: Option<&str>) {
        *self.0.lock().unwrap() = address.map(|address| address.parse().unwrap());
    }
}

impl Tailnet for Joined {
    async fn address(&self) -> Result<IpAddr, TailnetError> {
        let told = *self.0.lock().unwrap();
        told.ok_or_else(|| TailnetError::NotJoined("NeedsLogin".to_owned()))
    }
}

struct World {
    clock: Clock,
    server: ApiServer,
    client: Client,
    weather: Arc<Weather>,
    tart: SimTart,
    agent: JoinSet<()>,
    most_running: Mutex<usize>,
    tailnet: Joined,
    node_ip: &'static str,
}

impl World {
    /// A Mac whose agent has just started.
    fn new() -> Self {
        Self::reached_by("--node-ip=10.0.0.7")
    }

    /// The same, whose Node's address is given or found so.
    fn reached_by(node_ip: &'static str) -> Self {
        let start = Instant::now();
        let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let clock = Clock::new(move || epoch + start.elapsed());
        let weather = Arc::new(Weather::default());
        let server = ApiServer::set_up(Setup {
            clock: clock.clone(),
            seed: 1,
            registry: Registry::new(Vec::new()).unwrap(),
            event_life: EVENT_LIFE,
            gate: Some(weather.clone()),
            authority: None,
        });
        let client = server.client(Identity::admin());
        let tart = SimTart::new(clock.clone());
        let mut world = Self {
            clock,
            server,
            client,
            weather,
            tart,
            agent: JoinSet::new(),
            most_running: Mutex::new(0),
            tailnet: Joined::default(),
            node_ip,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let config = Config::from_args([
            "tart-kubelet",
            "--node-name=mac-1",
            self.node_ip,
            "--max-pods=3",
            "--node-labels=tuist.dev/fleet=runners",
            "--provider-id=scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
        ])
        .unwrap();
        let client = self.server.client(Identity::user("system:node:mac-1"));
        let (tart, tailnet) = (self.tart.clone(), self.tailnet.clone());
        let agent = tart_kubelet::run(config, client, tart, tailnet, self.clock.clone());
        self.agent.spawn(async move { match agent.await {} });
    }

    /// Ends the agent in the middle of whatever it does, and starts another.
    async fn restart(&mut self) {
        self.agent.shutdown().await;
        self.start();
    }

    fn weather(&self, weather: u8) {
        self.weather.0.store(weather, Ordering::SeqCst);
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn create(&self, name: &str) -> VmName {
        self.create_with(name, json!({"containers": [{"name": "runner", "image": "img"}]})).await
    }

    /// Creates a Pod and places it as the scheduler does; the name that its VM will have.
    async fn create_with(&self, name: &str, spec: Value) -> VmName {
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        let pod = serde_json::from_value(pod).unwrap();
        let made = self.pods().create(&PostParams::default(), &pod).await.unwrap();
        let target = json!({"kind": "Node", "name": "mac-1"});
        let binding = json!({"metadata": {"name": name}, "target": target});
        let params = PostParams::default();
        let bound: Result<Value, _> =
            self.pods().create_subresource("binding", name, &params, &binding).await;
        bound.unwrap();
        VmName::new(format!("{name}-{}", made.uid().unwrap()))
    }

    async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default()).await.unwrap();
    }

    fn pod(&self, name: &str) -> Option<Value> {
        let all = self.server.objects("pods");
        all.iter().find(|pod| pod["metadata"]["name"] == name).map(|pod| Value::clone(pod))
    }

    fn phase(&self, name: &str) -> String {
        let pod = self.pod(name).unwrap_or_default();
        pod["status"]["phase"].as_str().unwrap_or("gone").to_owned()
    }

    /// The container's state and reason: `waiting VmBooting`.
    fn state(&self, name: &str) -> String {
        let pod = self.pod(name).unwrap_or_default();
        let state = pod["status"]["containerStatuses"][0]["state"].as_object().cloned();
        let (state, detail) = state.and_then(|s| s.into_iter().next()).unwrap_or_default();
        format!("{state} {}", detail["reason"].as_str().unwrap_or_default()).trim().to_owned()
    }

    fn node(&self) -> Option<Value> {
        self.server.objects("nodes").first().map(|node| Value::clone(node))
    }

    /// Lets time pass until something is true, and holds the world against its rules at every look.
    async fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let start = Instant::now();
        while !reached() {
            assert!(start.elapsed() < PATIENCE, "never came true: {what}\n{:#?}", self.pod("job"));
            self.rules();
            sleep(LOOK).await;
        }
        self.rules();
    }

    async fn pass(&self, time: Duration) {
        let end = Instant::now() + time;
        self.until("time passes", || Instant::now() >= end).await;
    }

    fn rules(&self) {
        let pods = self.server.objects("pods");
        let running = self.tart.running().len();
        assert!(running <= 2, "S25");
        let mut most = self.most_running.lock().unwrap();
        *most = running.max(*most);
        for name in self.tart.vms().keys() {
            let owner = pods.iter().find(|pod| {
                let uid = pod["metadata"]["uid"].as_str().unwrap();
                name.as_str().ends_with(uid) || name.as_str() == "default-adopted"
            });
            if name.as_str().starts_with("builder-") {
                continue;
            }
            let finalizers = owner.map(|pod| pod["metadata"]["finalizers"].to_string());
            let held = finalizers.is_some_and(|all| all.contains(finalizer::POD_VM));
            assert!(held, "S29: VM {name} outlived its Pod's finalizer");
        }
        for pod in &pods {
            assert!(!pod["status"].to_string().contains(SECRET), "a secret in {pod}");
            agrees(&pod["status"]);
        }
    }
}

/// K10: whatever was published agrees with itself.
fn agrees(status: &Value) {
    let Some(container) = status["containerStatuses"].get(0) else { return };
    let conditions = status["conditions"].as_array().unwrap();
    let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
    assert_eq!(ready, status["phase"] == "Running", "{status}");
    assert_eq!(container["ready"], ready, "{status}");
    assert!(conditions.iter().any(|c| c["type"] == "PodScheduled"), "{status}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_runs_as_one_vm_and_succeeds_when_its_guest_halts() {
    let world = World::new();
    world.tart.set_job(Some(Duration::from_mins(5)));
    let vm = world.create("job").await;
    world.until("creating", || world.state("job") == "waiting VmCreating").await;
    world.until("booting", || world.state("job") == "waiting VmBooting").await;
    world.until("running", || world.phase("job") == "Running").await;
    let status = world.pod("job").unwrap()["status"].clone();
    assert_eq!(status["hostIP"], "10.0.0.7");
    assert_eq!(status["podIP"], world.tart.vms()[&vm].address.unwrap().to_string());
    assert_eq!(status["containerStatuses"][0]["containerID"], format!("tart://{vm}"));
    world.until("succeeded", || world.phase("job") == "Succeeded").await;
    world.until("its VM is gone", || world.tart.vms().is_empty()).await;
    world.pass(Duration::from_mins(10)).await;
    let pod = world.pod("job").unwrap();
    assert_eq!(pod["metadata"]["finalizers"], Value::Null, "an ended Pod holds nobody up");
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&json!(0), &json!("Completed")));
    let expected = Calls { creates: 1, starts: 1, removes: 1, pulls: 1, stops: 0 };
    assert_eq!(world.tart.calls(), expected, "S28: one VM, once");
}

#[tokio::test(start_paused = true)]
async fn a_vm_that_exits_7_fails_its_pod_with_that_code() {
    let world = World::new();
    let vm = world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    assert!(world.tart.finish(&vm, 7));
    let ended = Instant::now();
    world.until("failed", || world.phase("job") == "Failed").await;
    assert!(ended.elapsed() <= Duration::from_secs(11), "V9: within one poll");
    let status = world.pod("job").unwrap()["status"].clone();
    assert_eq!(status["reason"], "TartRunExited");
    assert_eq!(status["containerStatuses"][0]["state"]["terminated"]["exitCode"], 7);
}

#[tokio::test(start_paused = true)]
async fn an_end_that_nobody_saw_is_a_failure_that_says_so() {
    let world = World::new();
    let vm = world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    assert!(world.tart.kill(&vm));
    world.until("failed", || world.phase("job") == "Failed").await;
    assert_eq!(world.pod("job").unwrap()["status"]["reason"], "ExitUnknown", "LH17");
}

#[tokio::test(start_paused = true)]
async fn a_pod_deleted_while_its_image_is_fetched_or_its_guest_boots_is_gone_in_seconds() {
    for (state, stops) in [("waiting VmCreating", 0), ("waiting VmBooting", 1)] {
        let world = World::new();
        world.create("job").await;
        world.until("reached", || world.state("job") == state).await;
        world.pass(Duration::from_secs(5)).await;
        world.delete("job").await;
        let deleted = Instant::now();
        world.until("gone", || world.pod("job").is_none()).await;
        assert!(deleted.elapsed() < Duration::from_secs(5), "V8, K11: {:?}", deleted.elapsed());
        assert!(world.tart.vms().is_empty());
        world.pass(Duration::from_mins(5)).await;
        assert!(world.tart.vms().is_empty(), "and nothing comes back");
        assert_eq!(world.tart.calls().stops, stops);
    }
}

#[tokio::test(start_paused = true)]
async fn a_running_pod_that_is_deleted_goes_after_its_vm() {
    let world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.delete("job").await;
    // The rules hold the finalizer against the VM at every look.
    world.until("gone", || world.pod("job").is_none()).await;
    let calls = world.tart.calls();
    assert_eq!((calls.stops, calls.removes), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_at_any_moment_of_a_vms_life_finds_it_again() {
    // V10, K1, K16, LH26: a life of some 25 s, and a restart at every half second of it.
    for moment in 0..50 {
        let mut world = World::new();
        let seconds = Duration::from_secs;
        world.tart.set_durations(Durations {
            pull: seconds(3),
            clone: seconds(1),
            boot: seconds(6),
            stop: seconds(1),
        });
        world.tart.set_job(Some(seconds(10)));
        world.create("job").await;
        world.pass(Duration::from_millis(500 * moment)).await;
        world.restart().await;
        world.until("succeeded", || world.phase("job") == "Succeeded").await;
        world.until("nothing is left", || world.tart.vms().is_empty()).await;
        let calls = world.tart.calls();
        assert_eq!((calls.starts, calls.stops), (1, 0), "restarted at half second {moment}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_restarts_while_a_vm_runs_touches_nothing() {
    let mut world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    let before = (world.tart.calls(), world.pod("job"));
    for _ in 0..30 {
        world.restart().await;
        world.pass(Duration::from_secs(2)).await;
    }
    assert_eq!((world.tart.calls(), world.pod("job")), before);
}

#[tokio::test(start_paused = true)]
async fn a_third_pod_waits_says_for_whom_and_runs_when_a_slot_is_free() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.create(name).await;
    }
    let in_state = |state: &str| {
        let found = ["a", "b", "c"].into_iter().filter(|pod| world.state(pod) == state);
        found.collect::<Vec<_>>()
    };
    world.until("two run", || in_state("running").len() == 2).await;
    world.until("one waits", || in_state("waiting NoVmSlot").len() == 1).await;
    world.pass(Duration::from_mins(5)).await;
    let waiting = in_state("waiting NoVmSlot")[0];
    let pod = world.pod(waiting).unwrap();
    let message = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["message"];
    for vm in world.tart.running() {
        assert!(message.as_str().unwrap().contains(vm.as_str()), "{message}");
    }
    let calls = world.tart.calls();
    assert_eq!((calls.creates, calls.starts), (2, 2), "a slot is taken before the VM is made");
    world.delete(in_state("running")[0]).await;
    world.until("the third runs", || world.phase(waiting) == "Running").await;
    assert_eq!(*world.most_running.lock().unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_vm_lost_with_its_host_is_not_made_again() {
    let world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.tart.wipe();
    world.until("failed", || world.phase("job") == "Failed").await;
    assert_eq!(world.pod("job").unwrap()["status"]["reason"], "VmLost");
    world.pass(Duration::from_mins(10)).await;
    assert_eq!(world.tart.calls().starts, 1);
}

#[tokio::test(start_paused = true)]
async fn how_a_vm_ended_is_stored_before_it_is_removed_however_long_that_takes() {
    // LH7.
    let world = World::new();
    let vm = world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.weather(NO_STATUS);
    assert!(world.tart.finish(&vm, 0));
    world.pass(Duration::from_mins(20)).await;
    assert_eq!((world.phase("job").as_str(), world.tart.vms().len()), ("Running", 1));
    world.weather(FAIR);
    world.until("stored", || world.phase("job") == "Succeeded").await;
    world.until("removed", || world.tart.vms().is_empty()).await;
    assert_eq!(world.tart.calls().starts, 1);
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_gone_for_an_hour_costs_no_vm() {
    // G15.
    let world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    let before = world.tart.calls();
    world.weather(SILENT);
    world.pass(Duration::from_mins(59)).await;
    world.weather(FAIR);
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.tart.calls(), before);
    world.delete("job").await;
    world.until("gone", || world.pod("job").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn one_read_that_misses_a_pod_costs_no_vm() {
    // G4.
    let world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    let before = world.tart.calls();
    world.weather(STALE);
    world.pass(Duration::from_mins(2)).await;
    assert_eq!(world.weather.0.load(Ordering::SeqCst), FAIR, "the Pod was read");
    assert_eq!(world.tart.calls(), before);
}

#[tokio::test(start_paused = true)]
async fn a_pod_lives_its_life_although_no_event_ever_comes() {
    // K12, V6.
    let mut world = World::new();
    world.weather(NO_EVENTS);
    world.restart().await;
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.delete("job").await;
    world.until("gone", || world.pod("job").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_guest_gets_its_environment_and_a_token_and_what_is_missing_is_named() {
    let world = World::new();
    let spec = json!({
        "serviceAccountName": "default", "automountServiceAccountToken": true,
        "containers": [{"name": "runner", "image": "img", "env": [
            {"name": "PLAIN", "value": "x"},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            {"name": "MAYBE", "valueFrom": {"configMapKeyRef":
                {"name": "none", "key": "k", "optional": true}}},
        ]}],
    });
    let vm = world.create_with("job", spec).await;
    world.until("it waits", || world.state("job") == "waiting VmStartFailed").await;
    let waiting = &world.pod("job").unwrap()["status"]["containerStatuses"][0]["state"]["waiting"];
    let message = waiting["message"].as_str().unwrap();
    assert!(message.contains("env KEY needs key k of Secret s"), "{message}");
    world.pass(Duration::from_mins(20)).await;
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": SECRET}});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let secrets = Api::<Secret>::namespaced(world.client.clone(), "default");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    world.until("running", || world.phase("job") == "Running").await;
    let share = world.tart.vms()[&vm].share.clone();
    let text = share.files["tuist.env"].expose_secret();
    assert_eq!(text, format!("KEY={SECRET}\nPLAIN=x\nPOD=job\n"));
    assert!(!share.files["sa_token"].expose_secret().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_cannot_be_a_vm_is_told_so_and_gets_none() {
    let world = World::new();
    let container = |name: &str| json!({"name": name, "image": "img"});
    world.create_with("job", json!({"containers": [container("a"), container("b")]})).await;
    world.until("failed", || world.phase("job") == "Failed").await;
    let status = world.pod("job").unwrap()["status"].clone();
    assert_eq!(status["reason"], "UnsupportedPod");
    assert!(status["message"].as_str().unwrap().contains("spec.containers"), "{status}");
    assert_eq!(world.tart.calls(), Calls::default());
    world.delete("job").await;
    world.until("gone", || world.pod("job").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_vm_of_the_original_is_adopted_and_ends_with_its_pod() {
    let mut world = World::new();
    world.agent.shutdown().await;
    world.create("adopted").await;
    let vm = VmName::new("default-adopted");
    let template = Template {
        container: "runner".into(),
        image: "img".into(),
        cpu: None,
        memory_mib: None,
        env: Vec::new(),
        token_of: None,
    };
    world.tart.create(&vm, &template).await.unwrap();
    world.tart.start(&vm, Share::default()).await.unwrap();
    let left = json!({
        "metadata": {"finalizers": [finalizer::POD_VM]},
        "status": {"phase": "Running", "startTime": "2026-01-01T00:00:00Z", "podIP": "192.168.64.2",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{"name": "runner", "image": "img", "imageID": "", "ready": true,
                "restartCount": 0, "started": true, "containerID": "tart://default-adopted"}]},
    });
    let params = PatchParams::default();
    world.pods().patch_status("adopted", &params, &Patch::Merge(left)).await.unwrap();
    world.start();
    sleep(Duration::from_mins(10)).await;
    let calls = world.tart.calls();
    assert_eq!((calls.creates, calls.starts, calls.stops), (1, 1, 0), "nothing of ours");
    assert_eq!(world.phase("adopted"), "Running");
    world.delete("adopted").await;
    while world.pod("adopted").is_some() {
        sleep(LOOK).await;
    }
    assert!(world.tart.vms().is_empty());
}

#[tokio::test(start_paused = true)]
async fn vms_that_are_nobodys_pods_are_left_alone() {
    // B11: somebody builds images on the same Mac.
    let mut world = World::new();
    let template = Template {
        container: "runner".into(),
        image: "img".into(),
        cpu: None,
        memory_mib: None,
        env: Vec::new(),
        token_of: None,
    };
    let theirs = ["builder-a", "builder-b"].map(VmName::new);
    for vm in &theirs {
        world.tart.create(vm, &template).await.unwrap();
    }
    world.tart.start(&theirs[0], Share::default()).await.unwrap();
    world.tart.set_job(Some(Duration::from_mins(5)));
    world.create("job").await;
    world.until("succeeded", || world.phase("job") == "Succeeded").await;
    world.restart().await;
    world.pass(Duration::from_hours(1)).await;
    assert_eq!(world.tart.vms().into_keys().collect::<Vec<_>>(), theirs);
    let calls = world.tart.calls();
    assert_eq!((calls.removes, calls.stops), (1, 0), "only the Pod's own");
}

fn conditions(node: &Value) -> Vec<String> {
    let all = node["status"]["conditions"].as_array().unwrap();
    all.iter()
        .map(|c| format!("{} {}", c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect()
}

const HEALTHY: [&str; 4] =
    ["Ready True", "MemoryPressure False", "DiskPressure False", "PIDPressure False"];

#[tokio::test(start_paused = true)]
async fn a_mac_registers_as_a_node_with_all_four_conditions_and_keeps_its_lease() {
    let world = World::new();
    world.until("registered", || world.node().is_some()).await;
    let node = world.node().unwrap();
    assert_eq!(conditions(&node), HEALTHY);
    assert_eq!(node["metadata"]["labels"]["tuist.dev/fleet"], "runners");
    assert_eq!(node["spec"]["taints"][0]["key"], "tuist.dev/macos");
    assert!(node["spec"]["providerID"].as_str().unwrap().starts_with("scw-applesilicon://"));
    let leases = Api::<Lease>::namespaced(world.client.clone(), "kube-node-lease");
    let lease = || world.server.objects("leases.coordination.k8s.io").first().cloned();
    world.until("a Lease", || lease().is_some()).await;
    let first = leases.get("mac-1").await.unwrap().spec.unwrap().renew_time.unwrap().0;
    world.pass(Duration::from_mins(5)).await;
    let renewed = leases.get("mac-1").await.unwrap().spec.unwrap().renew_time.unwrap().0;
    assert!(renewed.duration_since(first).as_secs() >= 280, "{first} {renewed}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_others_call_unknown_is_ready_again_within_a_heartbeat() {
    let world = World::new();
    world.until("registered", || world.node().is_some()).await;
    let unknown: Vec<Value> = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"]
        .map(|type_| json!({"type": type_, "status": "Unknown"}))
        .into();
    let status = json!({"status": {"conditions": unknown}});
    let params = PatchParams::default();
    world.nodes().patch_status("mac-1", &params, &Patch::Merge(status)).await.unwrap();
    world.pass(Duration::from_secs(11)).await;
    assert_eq!(conditions(&world.node().unwrap()), HEALTHY, "K17, V11");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_comes_back_after_the_grace_and_not_before() {
    let world = World::new();
    world.until("registered", || world.node().is_some()).await;
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.nodes().delete("mac-1", &DeleteParams::default()).await.unwrap();
    world.pass(Duration::from_secs(55)).await;
    assert!(world.node().is_none());
    world.until("back", || world.node().is_some()).await;
    assert_eq!(conditions(&world.node().unwrap()), HEALTHY);
    assert_eq!(world.tart.calls().stops, 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_about_a_pod_that_runs_on() {
    // G5: heartbeats excepted.
    let world = World::new();
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    world.pass(Duration::from_mins(1)).await;
    let writes = || {
        let all = world.server.requests().into_iter();
        let writes = all.filter(|((verb, what), _)| verb.mutates() && what.starts_with("pods"));
        writes.map(|(_, count)| count).sum::<u64>()
    };
    let (before, pod) = (writes(), world.pod("job"));
    sleep(Duration::from_hours(3)).await;
    assert_eq!((writes(), world.pod("job")), (before, pod));
}

#[tokio::test(start_paused = true)]
async fn a_node_of_a_tailnet_has_that_address_or_none_and_a_restart_takes_it_off_nobody() {
    // K6
    let mut world = World::reached_by("--node-ip-source=tailscale");
    let named = json!({"type": "Hostname", "address": "mac-1"});
    let addresses = |world: &World| world.node().unwrap_or_default()["status"]["addresses"].clone();
    world.until("registered", || world.node().is_some()).await;
    world.pass(Duration::from_mins(3)).await;
    assert_eq!(addresses(&world), json!([named]), "no other address takes its place");
    let node = world.node().unwrap();
    assert_eq!(conditions(&node), HEALTHY, "it runs Pods all the same");
    let said = node["status"]["conditions"][0]["message"].as_str().unwrap_or_default();
    assert!(said.contains("waiting for the Node's address") && said.contains("NeedsLogin"));
    world.tailnet.set(Some("100.100.1.2"));
    let joined = json!([{"type": "InternalIP", "address": "100.100.1.2"}, named]);
    world.until("an address", || addresses(&world) == joined).await;
    world.create("job").await;
    world.until("running", || world.phase("job") == "Running").await;
    assert_eq!(world.pod("job").unwrap()["status"]["hostIP"], "100.100.1.2");
    world.restart().await;
    for _ in 0..40 {
        sleep(LOOK).await;
        assert_eq!(addresses(&world), joined, "while a new agent starts");
    }
    world.tailnet.set(None);
    world.pass(Duration::from_mins(3)).await;
    assert_eq!(addresses(&world), joined, "a daemon that is silent for a while");
}
