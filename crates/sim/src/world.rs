//! A whole world in one process: a Scaleway with a pool of Macs, a Kubernetes, and in it the real
//! provider, the real runner pools, and on each Mac the real agent.
//!
//! Nothing here decides anything for them: they run unchanged, and talk to the simulators as they
//! would to the real thing. Everything is part of [`World::run`]; dropping it ends all of it.

mod agents;
mod crew;
mod dispatch;
mod hands;
mod power;
mod secrets;
mod settings;
mod sight;
mod time;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use applecart_api::ids::ServerId;
use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachineSpec;
use applecart_api::runner_pool::{RunnerPool, RunnerPoolSpec};
use applecart_core::pod::{PodId, VmName};
use applecart_operator::provider::{self, Github};
use applecart_operator::runner_pools::RunnerPools;
use applecart_scaleway::CONCURRENT_CALLS;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::{Api, ResourceExt};
use tokio::sync::{Notify, watch};

use crate::cluster_api::{self, Manifests};
use crate::faults::{Edge, PROVIDER, Process, RUNNER_POOLS, SECOND_PROVIDER, SECOND_RUNNER_POOLS};
use crate::github::SimGithub;
use crate::kubernetes::{ApiServer, Identity, Registry};
use crate::mac::{SimMac, SimNetwork};
use crate::scaleway::{HostSpec, Scaleway};
use crate::tart::SimTart;

pub use crew::Install;
pub use hands::{Hands, Pause};
pub use secrets::SecretsSeen;
pub use settings::WorldSettings;
pub use sight::Sight;
pub use view::{Chaos, HostRow, View};

/// Namespace of everything that a person sees.
pub const NAMESPACE: &str = "default";
/// Name of the `MachineDeployment` and of the fleet.
pub const FLEET: &str = "macs";
/// Name of the runner pool.
pub const POOL: &str = "runners";
/// The role that agents get.
pub const AGENT_ROLE: &str = "applecart-tart-kubelet";
/// The macOS that the pool was ordered with.
const OS: &str = "macos-tahoe-26.0";
/// Name of a host that is nobody's here.
const FOREIGN: &str = "someone-elses-mac";
/// Prefix of hosts that are free.
pub const POOL_PREFIX: &str = "tuist-pool-";

/// The kinds of every world. Definitions and their rules take longer to compile than most runs of
/// a sweep last, so all worlds share them.
static REGISTRY: LazyLock<Arc<Registry>> = LazyLock::new(|| {
    let definitions = [applecart_api::crds(), cluster_api::crds()].concat();
    Registry::new(definitions).expect("our own definitions have valid schemas")
});

/// Compiles what all worlds share, if nobody did. What runs before a seeded run must not happen
/// within it: it would draw from its randomness.
pub fn prepare() {
    LazyLock::force(&REGISTRY);
}

/// A simulated world.
pub struct World {
    settings: WorldSettings,
    sight: Sight,
    network: SimNetwork,
    github: SimGithub,
    tune: Tune,
    crew: watch::Sender<crew::Crew>,
    /// Rings when a Mac is put behind a host that was bought.
    delivered: Notify,
    /// Whether it is a second cluster beside another.
    is_second: bool,
    /// How far the clocks of the processes under test are ahead.
    skew: time::Skew,
}

/// What becomes of the provider's usual settings.
type Tune = Arc<dyn Fn(provider::Settings) -> provider::Settings + Send + Sync>;

/// The Mac behind a host.
#[derive(Clone)]
struct Host {
    mac: SimMac,
    tart: SimTart,
}

impl World {
    /// A world with a full pool, and nothing else yet.
    #[must_use]
    pub fn new(mut settings: WorldSettings) -> Self {
        let api = settings.api();
        let scaleway = Scaleway::new(settings.scaleway(), settings.clock.clone());
        let network = SimNetwork::default();
        let mut hosts = BTreeMap::new();
        for number in 1..=settings.hosts {
            let name = format!("{POOL_PREFIX}{number:02}");
            let id =
                scaleway.order_host(&HostSpec { os: Some(OS.into()), ..HostSpec::named(name) });
            let host = settings.mac(&scaleway, &network, &id);
            hosts.insert(id, host);
        }
        if settings.foreign {
            scaleway.order_host(&HostSpec::named(FOREIGN));
        }
        let sight = Sight::new(api, scaleway, hosts);
        if let Some(faults) = &settings.faults {
            let sight = sight.clone();
            faults.set_power_cut(move |mac| sight.cut_power(mac));
        }
        let github = SimGithub::new(settings.clock.clone());
        let (tune, crew) = (Arc::new(|usual| usual), crew::Crew::new());
        let delivered = Notify::new();
        let (is_second, skew) = (false, time::Skew::default());
        Self { settings, sight, network, github, tune, crew, delivered, is_second, skew }
    }

    /// This world and a second cluster beside it, which has its own Kubernetes and everything in
    /// it, and shares Scaleway, the pool and the Macs.
    #[must_use]
    pub fn with_neighbour(self, mut settings: WorldSettings) -> (Self, Self) {
        let (sight, others) = self.sight.shared(settings.api());
        let second = Self {
            settings,
            sight: others,
            network: self.network.clone(),
            github: self.github.clone(),
            tune: Arc::new(|usual| usual),
            crew: crew::Crew::new(),
            delivered: Notify::new(),
            is_second: true,
            skew: time::Skew::default(),
        };
        (Self { sight, ..self }, second)
    }

    /// The same world, whose providers are set up otherwise.
    #[must_use]
    pub fn with_provider(
        self,
        tune: impl Fn(provider::Settings) -> provider::Settings + Send + Sync + 'static,
    ) -> Self {
        Self { tune: Arc::new(tune), ..self }
    }

    /// Its GitHub, for hosts that build images.
    #[must_use]
    pub fn github(&self) -> &SimGithub {
        &self.github
    }

    /// What an onlooker sees of it.
    #[must_use]
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Its Kubernetes.
    #[must_use]
    pub fn api(&self) -> &ApiServer {
        &self.sight.api
    }

    /// Its Scaleway.
    #[must_use]
    pub fn scaleway(&self) -> &Scaleway {
        &self.sight.scaleway
    }

    /// A client with all rights.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        self.api().client(Identity::admin())
    }

    /// Creates what a person would apply: a Cluster with a `MachineDeployment`, and a runner pool.
    pub async fn apply(&self) -> kube::Result<()> {
        let client = self.client();
        self.apply_roles(&client).await?;
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

    /// Creates the roles, and from then on they count.
    async fn apply_roles(&self, client: &kube::Client) -> kube::Result<()> {
        for role in self.settings.roles {
            let object: DynamicObject =
                serde_json::from_value(role.clone()).map_err(kube::Error::SerdeError)?;
            let types = object.types.clone().unwrap_or_default();
            let kind = GroupVersionKind::try_from(types).map_err(|error| {
                kube::Error::SerdeError(serde::de::Error::custom(error.to_string()))
            })?;
            let resource = ApiResource::from_gvk(&kind);
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            api.create(&PostParams::default(), &object).await?;
        }
        if !self.settings.roles.is_empty() {
            self.api().enforce_roles();
        }
        Ok(())
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
        let core = self.api().client(Identity::stand_in("cluster-api"));
        let keeping = self.api().client(Identity::stand_in("system:kube-controller-manager"));
        let standing = self.api().client(Identity::stand_in("system:kube-controller-manager"));
        let schedule = self.api().client(Identity::stand_in("system:kube-scheduler"));
        let (period, pace) = (settings.period(), settings.node_pace());
        // Each is polled only when something happened to it: there are thousands of wake-ups in a
        // run, and most are for one of them.
        let mut parts: FuturesUnordered<BoxFuture<'_, ()>> = FuturesUnordered::new();
        if !self.is_second {
            parts.push(self.provider(Process::Provider, PROVIDER).boxed());
            parts.push(self.pools(Process::RunnerPools, RUNNER_POOLS).boxed());
            parts.push(power::run(self).boxed());
        }
        // Two clusters have one each: what ends one must not end the other.
        if self.is_second || settings.providers > 1 {
            parts.push(self.provider(Process::SecondProvider, SECOND_PROVIDER).boxed());
            parts.push(self.pools(Process::SecondRunnerPools, SECOND_RUNNER_POOLS).boxed());
        }
        parts.push(agents::run(self).boxed());
        if settings.jobs {
            parts.push(dispatch::run(self).boxed());
        }
        let seed = settings.seed;
        let time = clock.clone();
        parts.push(
            async move {
                cluster_api::core(core, time, period, seed).await;
            }
            .boxed(),
        );
        let time = clock.clone();
        parts.push(
            async move {
                cluster_api::scheduler(schedule, time, period).await;
            }
            .boxed(),
        );
        let time = clock.clone();
        let life = async move {
            cluster_api::node_lifecycle(standing, time, pace).await;
        };
        parts.push(life.boxed());
        if settings.deployments {
            parts.push(
                async move {
                    cluster_api::workloads(keeping, clock, period).await;
                }
                .boxed(),
            );
        }
        while parts.next().await.is_some() {}
    }

    /// Scaleway as a provider calls it.
    #[must_use]
    pub fn provider_scaleway(&self, process: &Process) -> applecart_scaleway::Client {
        let service = self.scaleway().service();
        let service = match &self.settings.faults {
            Some(faults) => faults.gated(Edge::Scaleway, process, service),
            None => service,
        };
        let limit = crate::scaleway::limit(CONCURRENT_CALLS);
        applecart_scaleway::Client::new(service, self.scaleway().config(limit))
    }

    /// GitHub as a provider calls it.
    fn provider_github(&self, process: &Process) -> Github {
        let service = self.github.service();
        let service = match &self.settings.faults {
            Some(faults) => faults.gated(Edge::Github, process, service),
            None => service,
        };
        Github::new(service, "https://api.github.com", self.process_clock())
    }

    /// The Mac behind a host.
    #[must_use]
    pub fn mac(&self, id: &ServerId) -> Option<SimMac> {
        Some(self.sight.hosts().get(id)?.mac.clone())
    }

    /// The name of the host that is nobody's here, if [`WorldSettings::foreign`] is set.
    #[must_use]
    pub fn foreign_name(&self) -> &'static str {
        FOREIGN
    }

    /// The job of a runner, or the work of any Pod, is done: its guest shuts down.
    pub fn finish_job(&self, pod: &Pod) {
        let namespace = pod.namespace().unwrap_or_default();
        let uid = pod.uid().unwrap_or_default();
        let vm = VmName::of(&PodId { namespace, name: pod.name_any(), uid });
        for (_, tart) in self.sight.tarts() {
            // A guest that is gone already has nothing to end.
            let _ended = tart.finish(&vm, 0);
        }
    }

    /// The runner-pool controller's process, started again whenever it crashes.
    async fn pools(&self, process: Process, account: &str) {
        loop {
            let pools = RunnerPools {
                client: self.api().client(Identity::service_account(NAMESPACE, account)),
                namespace: Some(NAMESPACE.to_owned()),
                clock: self.process_clock(),
                dispatch_url: "https://ci.example/api/internal/runners/dispatch".to_owned(),
                limits: self.settings.pools(),
            };
            tokio::select! {
                biased;
                () = self.crashed(&process) => {}
                () = pools.run() => {
                    tracing::error!("the runner pools ended; they are started again");
                    tokio::time::sleep(self.settings.period()).await;
                }
            }
        }
    }

    /// Resolves when a plan wants `process` to die.
    async fn crashed(&self, process: &Process) {
        match &self.settings.faults {
            Some(faults) => faults.crashed(process).await,
            None => std::future::pending().await,
        }
    }

    /// Whether the Mac behind a host carries an agent's identity, and so an owner's work.
    #[must_use]
    pub fn is_bootstrapped(&self, id: &ServerId) -> bool {
        self.sight.is_bootstrapped(id)
    }

    /// All runner Pods, by name.
    async fn runners(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client(), NAMESPACE);
        let of_pool = ListParams::default().labels(&format!("{}={POOL}", label::RUNNER_POOL));
        pods.list(&of_pool).await.map(|list| list.items).unwrap_or_default()
    }
}
