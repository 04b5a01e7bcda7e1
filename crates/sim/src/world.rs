//! A whole world in one process: a Scaleway with a pool of Macs, a Kubernetes, and in it the real
//! provider, the real runner pools, and on each Mac the real agent.
//!
//! Nothing here decides anything for them: they run unchanged, and talk to the simulators as they
//! would to the real thing. Everything is part of [`World::run`]; dropping it ends all of it.

mod agents;
mod dispatch;
mod power;
mod settings;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use applecart_api::ids::ServerId;
use applecart_api::keys::{label, owned};
use applecart_api::machine::ScalewayAppleSiliconMachineSpec;
use applecart_api::runner_pool::{RunnerPool, RunnerPoolSpec};
use applecart_mac::KeyPair;
use applecart_operator::provider::Provider;
use applecart_operator::runner_pools::RunnerPools;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use secrecy::ExposeSecret;

use crate::cluster_api::{self, Manifests};
use crate::faults::PROVIDER;
use crate::kubernetes::{ApiServer, Gate, Identity, Registry, SchemaError, Setup};
use crate::mac::{SimMac, SimNetwork};
use crate::scaleway::{HostSpec, Scaleway};
use crate::tart::SimTart;

pub use settings::WorldSettings;
pub use view::{HostRow, View};

/// Namespace of everything that a person sees.
pub const NAMESPACE: &str = "default";
/// Name of the `MachineDeployment` and of the fleet.
pub const FLEET: &str = "macs";
/// Name of the runner pool.
pub const POOL: &str = "runners";
/// The macOS that the pool was ordered with.
const OS: &str = "macos-tahoe-26.0";
/// Prefix of hosts that are free.
pub const POOL_PREFIX: &str = "tuist-pool-";

/// A simulated world.
pub struct World {
    settings: WorldSettings,
    api: ApiServer,
    scaleway: Scaleway,
    network: SimNetwork,
    machines: BTreeMap<ServerId, Host>,
    fleet_key: KeyPair,
}

/// The Mac behind a host.
#[derive(Clone)]
struct Host {
    mac: SimMac,
    tart: SimTart,
}

impl World {
    /// A world with a full pool, and nothing else yet.
    pub fn new(mut settings: WorldSettings) -> Result<Self, SchemaError> {
        let definitions = [applecart_api::crds(), cluster_api::crds()].concat();
        let api = ApiServer::set_up(Setup {
            clock: settings.clock.clone(),
            seed: settings.seed,
            registry: Registry::new(definitions)?,
            gate: settings.faults.clone().map(|faults| faults as Arc<dyn Gate>),
            authority: settings.authority.take(),
        });
        let clock = settings.clock.clone();
        let scaleway = match &settings.faults {
            Some(faults) => Scaleway::with_gate(settings.scaleway(), clock, faults.clone()),
            None => Scaleway::new(settings.scaleway(), clock),
        };
        let network = SimNetwork::default();
        let fleet_key = settings.fleet_key();
        let mut machines = BTreeMap::new();
        for number in 1..=settings.hosts {
            let name = format!("{POOL_PREFIX}{number:02}");
            let id =
                scaleway.order_host(&HostSpec { os: Some(OS.into()), ..HostSpec::named(name) });
            let host = settings.mac(&scaleway, &id);
            host.mac.authorize(vec![fleet_key.public.clone()]);
            if let Some(view) = scaleway.host(&id) {
                network.insert(&view.ip.to_string(), host.mac.clone());
            }
            machines.insert(id, host);
        }
        Ok(Self { settings, api, scaleway, network, machines, fleet_key })
    }

    /// Its Kubernetes.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.api
    }

    /// Its Scaleway.
    #[must_use]
    pub fn scaleway(&self) -> &Scaleway {
        &self.scaleway
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.api.client(Identity::admin())
    }

    /// Creates what a person would apply: the fleet's SSH key, a Cluster with a
    /// `MachineDeployment`, and a runner pool.
    pub async fn apply(&self) -> kube::Result<()> {
        let client = self.client();
        let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
        let secret = Secret {
            metadata: ObjectMeta { name: Some(owned::fleet_key(FLEET)), ..ObjectMeta::default() },
            string_data: Some(BTreeMap::from([(
                owned::PRIVATE_KEY.to_owned(),
                self.fleet_key.private.expose_secret().to_owned(),
            )])),
            ..Secret::default()
        };
        secrets.create(&PostParams::default(), &secret).await?;
        let manifests = Manifests {
            namespace: NAMESPACE.to_owned(),
            cluster: "demo".to_owned(),
            fleet: FLEET.to_owned(),
            replicas: self.settings.machines,
            version: None,
            machine: ScalewayAppleSiliconMachineSpec {
                adopt_pool_prefix: Some(POOL_PREFIX.to_owned()),
                os: Some("macos-tahoe".to_owned()),
                ..ScalewayAppleSiliconMachineSpec::default()
            },
        };
        manifests.create(&client).await?;
        let pools: Api<RunnerPool> = Api::namespaced(client, NAMESPACE);
        let pool = RunnerPool::new(POOL, self.pool_spec());
        pools.create(&PostParams::default(), &pool).await.map(drop)
    }

    fn pool_spec(&self) -> RunnerPoolSpec {
        RunnerPoolSpec {
            image: "ghcr.example/macos-runner@sha256:6a05".to_owned(),
            fleet_selector: FLEET.to_owned(),
            dispatch_label: "macos-26".to_owned(),
            runner_labels: ["self-hosted", "macOS", "ARM64"].map(str::to_owned).to_vec(),
            replicas: Some(i64::from(self.settings.runners)),
            pod_cpu_milli: Some(4000),
            pod_memory_mb: Some(7168),
            ..RunnerPoolSpec::default()
        }
    }

    /// Runs the world until dropped. Boxed, so that it is compiled here.
    #[must_use]
    pub fn run(&self) -> BoxFuture<'_, ()> {
        self.start().boxed()
    }

    async fn start(&self) {
        let settings = &self.settings;
        let clock = settings.clock.clone();
        let pools = RunnerPools {
            client: self.api.client(Identity::service_account(NAMESPACE, "runner-pools")),
            clock: clock.clone(),
            dispatch_url: "https://ci.example/api/internal/runners/dispatch".to_owned(),
            limits: settings.pools(),
        };
        let core = self.api.client(Identity::user("cluster-api"));
        let standing = self.api.client(Identity::user("system:kube-controller-manager"));
        let schedule = self.api.client(Identity::user("system:kube-scheduler"));
        let (period, grace) = (settings.period(), settings.node_grace());
        tokio::join!(
            biased;
            self.provider(),
            pools.run(),
            agents::run(self),
            power::run(self),
            dispatch::run(self),
            async { cluster_api::core(core, clock.clone(), period, settings.seed).await; },
            async { cluster_api::scheduler(schedule, clock.clone(), period).await; },
            async { cluster_api::node_lifecycle(standing, clock.clone(), period, grace).await; },
        );
    }

    /// The provider's process, started again whenever it crashes.
    async fn provider(&self) {
        loop {
            let provider = Provider {
                client: self.api.client(Identity::service_account(NAMESPACE, PROVIDER)),
                scaleway: self.scaleway.client(),
                dial: Arc::new(self.network.clone()),
                clock: self.settings.clock.clone(),
                settings: self.settings.provider(),
            };
            let crashed = async {
                match &self.settings.faults {
                    Some(faults) => faults.crashed().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = crashed => {}
                ended = provider.run() => {
                    tracing::error!(?ended, "the provider ended; it is started again");
                    tokio::time::sleep(self.settings.period()).await;
                }
            }
        }
    }

    /// Whether the Mac behind a host carries an agent's identity, and so an owner's work.
    #[must_use]
    pub fn is_bootstrapped(&self, id: &ServerId) -> bool {
        let kubeconfig = |host: &Host| host.mac.file("/etc/tart-kubelet/kubeconfig").is_some();
        self.machines.get(id).is_some_and(kubeconfig)
    }

    /// The Mac that is the Node of this name.
    async fn host_of_node(&self, node: &str) -> Option<&Host> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client());
        let node = nodes.get_opt(node).await.ok()??;
        let id = node.spec?.provider_id?.parse::<applecart_api::ids::ProviderId>().ok()?;
        self.machines.get(&id.server)
    }

    /// All runner Pods, by name.
    async fn runners(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        let of_pool = ListParams::default().labels(&format!("{}={POOL}", label::RUNNER_POOL));
        pods.list(&of_pool).await.map(|list| list.items).unwrap_or_default()
    }
}
