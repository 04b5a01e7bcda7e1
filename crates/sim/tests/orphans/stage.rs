//! A cluster, a Scaleway, and the real provider between them. Objects here belong to no Machine, so
//! the provider leaves them as they are: they only own hosts.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use applecart_api::keys::{finalizer, label, lease as key, owned};
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineSpec};
use applecart_core::machine::Limits;
use applecart_core::sweep::Policy;
use applecart_mac::{FleetWide, Payload};
use applecart_operator::metrics::Metrics;
use applecart_operator::provider::{Github, Provider, Settings};
use applecart_operator::sweep;
use applecart_sim::cluster_api;
use applecart_sim::faults::{Edge, Faults, PROVIDER, Process};
use applecart_sim::github::SimGithub;
use applecart_sim::kubernetes::{
    ApiServer, Call, EVENT_LIFE, Gate, Identity, Refusal, Registry, Setup, Verb, Verdict,
};
use applecart_sim::mac::{SimNetwork, tart_bundle};
use applecart_sim::scaleway::{self, HostSpec, Operation, Scaleway};
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio::time::Instant;

const NAMESPACE: &str = "default";
/// Names that objects here have.
const CLAIM_PREFIX: &str = "macs-";
/// Prefix of hosts that are free.
const POOL_PREFIX: &str = "tuist-pool-";

static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    let definitions = [applecart_api::crds(), cluster_api::crds()].concat();
    Registry::new(definitions).expect("our own definitions have valid schemas")
});

pub fn minutes(minutes: u64) -> Duration {
    Duration::from_mins(minutes)
}

/// A clock that follows tokio's.
pub fn clock() -> Clock {
    let start = Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    Clock::new(move || epoch + start.elapsed())
}

/// Lets the provider's calls through, fails some, or stops one until it is let go.
#[derive(Default)]
pub struct Script {
    failing: Mutex<BTreeMap<(Verb, String), Refusal>>,
    stop: Mutex<Option<(Verb, String)>>,
    stopped: Notify,
    go_on: Notify,
}

impl Gate for Script {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        async move {
            if Process::of_user(&call.who.user).is_none() {
                return Verdict::Pass;
            }
            let stops = |at: &mut (Verb, String)| at.0 == call.verb && at.1 == call.resource;
            let stop = self.stop.lock().expect("no panic").take_if(stops);
            if stop.is_some() {
                self.stopped.notify_one();
                self.go_on.notified().await;
            }
            let resource = call.resource.split('.').next().unwrap_or_default().to_owned();
            let failing = self.failing.lock().expect("no panic");
            let refusal = failing.get(&(call.verb, resource)).cloned();
            refusal.map_or(Verdict::Pass, Verdict::FailBefore)
        }
        .boxed()
    }
}

async fn create<K>(api: &Api<K>, object: Value)
where
    K: kube::Resource + Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    let object = serde_json::from_value(object).expect("an object");
    api.create(&PostParams::default(), &object).await.expect("created");
}

pub struct Stage {
    pub api: ApiServer,
    pub scaleway: Scaleway,
    pub claim_prefix: Option<&'static str>,
    pub observe_only: bool,
    pub metrics: Metrics,
    pub clock: Clock,
    pub gate: Arc<Script>,
    pub faults: Option<Arc<Faults>>,
}

impl Stage {
    /// A cluster without objects, and hosts of these names.
    pub fn new(names: &[&str]) -> Self {
        Self::with_faults(names, None)
    }

    /// The same, where things go wrong.
    pub fn with_faults(names: &[&str], faults: Option<Arc<Faults>>) -> Self {
        let clock = clock();
        let script = Arc::<Script>::default();
        let gate: Arc<dyn Gate> = match &faults {
            Some(faults) => faults.clone(),
            None => script.clone(),
        };
        let api = ApiServer::set_up(Setup {
            clock: clock.clone(),
            seed: 1,
            registry: REGISTRY.clone(),
            event_life: EVENT_LIFE,
            gate: Some(gate),
            authority: None,
        });
        let scaleway = Scaleway::new(scaleway::Settings::new(1), clock.clone());
        for name in names {
            let _ = scaleway.order_host(&HostSpec::named(*name));
        }
        let metrics = Metrics::new(clock.clone());
        let claim_prefix = Some(CLAIM_PREFIX);
        let (gate, observe_only) = (script, false);
        Self { api, scaleway, claim_prefix, observe_only, metrics, clock, gate, faults }
    }

    /// A person, who may do anything.
    pub fn admin(&self) -> Client {
        self.api.client(Identity::admin())
    }

    fn leases(&self) -> Api<Lease> {
        Api::namespaced(self.admin(), NAMESPACE)
    }

    /// The real provider, as it starts.
    pub fn provider(&self) -> Provider {
        let limit = scaleway::limit(applecart_scaleway::CONCURRENT_CALLS);
        let config = applecart_scaleway::Config {
            on_call: Some(self.metrics.on_call()),
            ..self.scaleway.config(limit)
        };
        let service = match &self.faults {
            Some(faults) => {
                faults.gated(Edge::Scaleway, &Process::Provider, self.scaleway.service())
            }
            None => self.scaleway.service(),
        };
        Provider {
            client: self.api.client(Identity::service_account(NAMESPACE, PROVIDER)),
            scaleway: applecart_scaleway::Client::new(service, config),
            github: Github::new(
                SimGithub::new(self.clock.clone()).service(),
                "https://api.github.com",
                self.clock.clone(),
            ),
            dial: Arc::new(SimNetwork::default()),
            clock: self.clock.clone(),
            metrics: self.metrics.clone(),
            settings: self.settings(),
        }
    }

    pub fn settings(&self) -> Settings {
        Settings {
            namespace: NAMESPACE.to_owned(),
            watch_namespace: None,
            default_pool_prefix: Some(POOL_PREFIX.to_owned()),
            api_server_url: "https://kubernetes.default.svc".to_owned(),
            agent_role: "tart-kubelet".to_owned(),
            remote_token: None,
            host_cpu: 8,
            host_memory_mb: 14336,
            max_pods: 2,
            ssh_port: 22,
            drain_timeout: Duration::from_hours(2),
            ssh_patience: Duration::from_mins(5),
            list_fresh: Duration::from_secs(2),
            concurrent_turns: 32,
            observe_only: self.observe_only,
            spread: None,
            egress: None,
            sweep: sweep::Settings {
                zones: vec!["fr-par-1".parse().expect("a zone")],
                policy: Policy {
                    interval: Duration::from_mins(15),
                    pool_prefix: Some(POOL_PREFIX.to_owned()),
                    claim_prefix: self.claim_prefix.map(str::to_owned),
                    max_per_cycle: 3,
                    max_share_percent: 50,
                    quarantine_after: 3,
                    patience: Limits::default().patience,
                },
                look: Duration::from_mins(1),
            },
            limits: Limits::default(),
            fleet: FleetWide {
                agent: Payload::new("simulated tart-kubelet"),
                tart: tart_bundle("2.32.1"),
                tailscale: None,
                node_exporter: None,
            },
            tailscale_key_secret: None,
        }
    }

    /// Runs the provider until the script is over, and starts it again whenever it crashes.
    pub async fn run(&self, script: impl Future<Output = ()>) {
        let mut script = pin!(script);
        loop {
            tokio::select! {
                biased;
                () = &mut script => return,
                () = self.crashed() => {}
                _ = self.provider().run() => tokio::time::sleep(Duration::from_secs(10)).await,
            }
        }
    }

    async fn crashed(&self) {
        match &self.faults {
            Some(faults) => faults.crashed(&Process::Provider).await,
            None => std::future::pending().await,
        }
    }

    pub async fn after(&self, wait: Duration) {
        tokio::time::sleep(wait).await;
    }

    /// An object, and the host that its status names; its UID.
    pub async fn object(&self, name: &str, server: Option<&ServerId>) -> String {
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(self.admin(), NAMESPACE);
        let spec = ScalewayAppleSiliconMachineSpec {
            adopt_pool_prefix: Some(POOL_PREFIX.to_owned()),
            ..ScalewayAppleSiliconMachineSpec::default()
        };
        let object = ScalewayAppleSiliconMachine::new(name, spec);
        let object = api.create(&PostParams::default(), &object).await.expect("created");
        if let Some(server) = server {
            let status = json!({"status": {"serverID": server}});
            let patch = Patch::Merge(&status);
            api.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
        }
        object.uid().expect("a UID")
    }

    /// Tells other conditions of an object.
    pub async fn conditions(&self, name: &str, conditions: Value) {
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(self.admin(), NAMESPACE);
        let status = json!({"status": {"conditions": conditions}});
        let patch = Patch::Merge(&status);
        api.patch_status(name, &PatchParams::default(), &patch).await.expect("patched");
    }

    pub async fn delete(&self, name: &str) {
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(self.admin(), NAMESPACE);
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
    }

    /// Everything that a machine has in Kubernetes, besides its object.
    pub async fn belongings(&self, machine: &str, server: &ServerId) {
        let labels =
            json!({label::MANAGED_BY: label::MANAGED_BY_PROVIDER, label::MACHINE: machine});
        let agent = owned::agent(machine);
        let meta = |name: &str| json!({"name": name, "labels": labels});
        let secrets: Api<Secret> = Api::namespaced(self.admin(), NAMESPACE);
        for name in [owned::credentials(machine), owned::agent_token(machine)] {
            create(&secrets, json!({"metadata": meta(&name)})).await;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin(), NAMESPACE);
        create(&accounts, json!({"metadata": meta(&agent)})).await;
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "tart-kubelet"});
        let subject = json!({"kind": "ServiceAccount", "name": agent, "namespace": NAMESPACE});
        let binding = json!({"metadata": meta(&agent), "roleRef": role, "subjects": [subject]});
        create(&Api::<ClusterRoleBinding>::all(self.admin()), binding).await;
        let node = json!({
            "metadata": {"name": machine, "labels": {label::RUNTIME: label::RUNTIME_TART}},
            "spec": {"providerID": format!("scw-applesilicon://fr-par-1/{server}")},
        });
        create(&Api::<Node>::all(self.admin()), node).await;
        let pod = json!({
            "metadata": {"name": format!("on-{machine}"), "finalizers": [finalizer::POD_VM]},
            "spec": {"nodeName": machine, "containers": [{"name": "vm", "image": "i"}]},
        });
        create(&Api::<Pod>::namespaced(self.admin(), NAMESPACE), pod).await;
    }

    /// What of that is there.
    pub fn left_of(&self, machine: &str) -> Vec<String> {
        let kinds = [
            "secrets",
            "serviceaccounts",
            "clusterrolebindings.rbac.authorization.k8s.io",
            "nodes",
            "pods",
        ];
        let of = |kind: &str| -> Vec<String> {
            let names = self.api.objects(kind).into_iter();
            let names = names.filter_map(|o| o["metadata"]["name"].as_str().map(str::to_owned));
            names.filter(|name| name.contains(machine)).collect()
        };
        kinds.into_iter().flat_map(of).collect()
    }

    /// The host's Lease is held by somebody.
    pub async fn hold(&self, server: &ServerId, holder: &str) {
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": key::name(server), "labels": {key::HOST: "true"},
                "annotations": {key::UNWIPED: "true"}},
            "spec": {"holderIdentity": holder},
        }))
        .expect("a Lease");
        self.leases().create(&PostParams::default(), &lease).await.expect("created");
    }

    pub async fn annotate(&self, server: &ServerId, name: &str, value: &str) {
        let change = json!({"metadata": {"annotations": {name: value}}});
        let (how, patch) = (PatchParams::default(), Patch::Merge(&change));
        self.leases().patch(&key::name(server), &how, &patch).await.expect("patched");
    }

    /// Calls of the provider fail with this, or not any more.
    pub fn fail(&self, verb: Verb, resource: &str, with: Option<Refusal>) {
        let mut failing = self.gate.failing.lock().expect("no panic");
        let at = (verb, resource.to_owned());
        match with {
            Some(refusal) => failing.insert(at, refusal),
            None => failing.remove(&at),
        };
    }

    /// Resolves when the provider makes such a call, which then waits until [`Stage::let_go`].
    pub async fn reached(&self, verb: Verb, resource: &str) {
        *self.gate.stop.lock().expect("no panic") = Some((verb, resource.to_owned()));
        self.gate.stopped.notified().await;
    }

    pub fn let_go(&self) {
        self.gate.go_on.notify_one();
    }

    /// The id of the host that was ordered under this name.
    pub fn host(&self, name: &str) -> ServerId {
        let hosts = self.scaleway.hosts();
        hosts.into_iter().find(|host| host.name == name).expect("a host of this name").id
    }

    /// The names of all hosts, in the order in which they were ordered.
    pub fn names(&self) -> Vec<String> {
        self.scaleway.hosts().into_iter().map(|host| host.name).collect()
    }

    /// How often each host was wiped.
    pub fn wipes(&self) -> Vec<u64> {
        self.scaleway.hosts().into_iter().map(|host| host.generation).collect()
    }

    /// Who holds the host's Lease, and what it says about the last wipe.
    pub fn lease(&self, server: &ServerId) -> (Option<String>, Option<String>) {
        let name = key::name(server);
        let leases = self.api.objects("leases.coordination.k8s.io");
        let Some(lease) = leases.iter().find(|lease| lease["metadata"]["name"] == *name) else {
            return (None, None);
        };
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let unwiped = &lease["metadata"]["annotations"][key::UNWIPED];
        (text(&lease["spec"]["holderIdentity"]), text(unwiped))
    }

    /// Whether the host has a Lease at all.
    pub fn has_lease(&self, server: &ServerId) -> bool {
        let leases = self.api.objects("leases.coordination.k8s.io");
        leases.iter().any(|lease| lease["metadata"]["name"] == key::name(server))
    }

    /// Changes that were asked of Scaleway, and of Leases.
    pub fn effects(&self) -> u64 {
        let calls = self.scaleway.calls();
        let changes = Operation::ALL.iter().filter(|operation| !operation.is_read());
        let changes: u64 = changes.filter_map(|operation| calls.get(operation.label())).sum();
        let lease = |((verb, resource), _): &(&(Verb, String), &u64)| {
            verb.mutates() && resource.starts_with("leases")
        };
        let requests = self.api.requests();
        changes + requests.iter().filter(lease).map(|(_, count)| count).sum::<u64>()
    }

    /// How often this was asked of Scaleway.
    pub fn calls(&self, operation: Operation) -> u64 {
        self.scaleway.calls().get(operation.label()).copied().unwrap_or_default()
    }

    /// What a metric says, in whole numbers; panics if there is no such series.
    pub fn count(&self, series: &str) -> u64 {
        let text = self.metrics.text();
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = value.unwrap_or_else(|| panic!("no series {series} in:\n{text}"));
        value.split('.').next().and_then(|whole| whole.parse().ok()).expect("a number")
    }

    /// This cluster's mark in names.
    pub fn cluster(&self) -> String {
        let namespaces = self.api.objects("namespaces");
        let system = namespaces.iter().find(|n| n["metadata"]["name"] == "kube-system");
        let uid = system.and_then(|n| n["metadata"]["uid"].as_str()).expect("a UID");
        uid[..8].to_owned()
    }
}
