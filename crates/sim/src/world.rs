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
use applecart_operator::provider::Provider;
use applecart_operator::runner_pools::RunnerPools;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use secrecy::ExposeSecret;

use crate::cluster_api::{self, Manifests};
use crate::kubernetes::{ApiServer, Identity, Registry, SchemaError, Setup};
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
/// Prefix of hosts that are free.
pub const POOL_PREFIX: &str = "tuist-pool-";

/// A simulated world.
pub struct World {
    settings: WorldSettings,
    api: ApiServer,
    scaleway: Scaleway,
    network: SimNetwork,
    machines: BTreeMap<ServerId, Host>,
}

/// The Mac behind a host.
#[derive(Clone)]
struct Host {
    mac: SimMac,
    tart: SimTart,
}

impl World {
    /// A world with a full pool, and nothing else yet.
    pub fn new(settings: WorldSettings) -> Result<Self, SchemaError> {
        let definitions = [applecart_api::crds(), cluster_api::crds()].concat();
        let api = ApiServer::set_up(Setup {
            clock: settings.clock.clone(),
            seed: settings.seed,
            registry: Registry::new(definitions)?,
            gate: None,
            authority: settings.authority.clone(),
        });
        let scaleway = Scaleway::new(settings.scaleway(), settings.clock.clone());
        let network = SimNetwork::default();
        let mut machines = BTreeMap::new();
        for number in 1..=settings.hosts {
            let id = scaleway.order_host(&HostSpec::named(format!("{POOL_PREFIX}{number:02}")));
            let host = settings.mac(&scaleway, &id);
            if let Some(view) = scaleway.host(&id) {
                network.insert(&view.ip.to_string(), host.mac.clone());
            }
            machines.insert(id, host);
        }
        Ok(Self { settings, api, scaleway, network, machines })
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
        let key = applecart_mac::Ssh::generate_key(self.settings.seed);
        let secret = Secret {
            metadata: ObjectMeta { name: Some(owned::fleet_key(FLEET)), ..ObjectMeta::default() },
            string_data: Some(BTreeMap::from([(
                owned::PRIVATE_KEY.to_owned(),
                key.expose_secret().to_owned(),
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

    /// Runs the world until dropped.
    pub async fn run(&self) {
        let settings = &self.settings;
        let clock = settings.clock.clone();
        let provider = Provider {
            client: self.api.client(Identity::service_account(NAMESPACE, "provider")),
            scaleway: self.scaleway.client(),
            dial: Arc::new(self.network.clone()),
            clock: clock.clone(),
            settings: settings.provider(),
        };
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
            async { if let Err(error) = provider.run().await { tracing::error!(%error, "provider") } },
            pools.run(),
            agents::run(self),
            power::run(self),
            dispatch::run(self),
            async { cluster_api::core(core, clock.clone(), period, settings.seed).await; },
            async { cluster_api::scheduler(schedule, clock.clone(), period).await; },
            async { cluster_api::node_lifecycle(standing, clock.clone(), period, grace).await; },
        );
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
