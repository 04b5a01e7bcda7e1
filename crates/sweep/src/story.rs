//! What a run does to the world. Each story is a few lines.

use std::fmt;
use std::time::Duration;

use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_api::runner_pool::RunnerPool;
use applecart_sim::world::{FLEET, NAMESPACE, POOL, World};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

/// How long a world may take to get anywhere at all, in its own time: three wipes' worth. How much
/// later than without faults it may be, is an oracle's affair.
const PATIENCE: Duration = Duration::from_hours(2);
/// How often a world is looked at, in its own time.
const LOOK: Duration = Duration::from_secs(1);
/// How long the job of a runner takes.
const JOB: Duration = Duration::from_mins(1);

/// A story that every fault must leave with the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Story {
    /// One Machine gets a Mac and becomes Ready.
    Claim,
    /// A Ready Machine goes: its Mac ends wiped in the pool, nothing is left.
    Release,
    /// A Machine is deleted as soon as it has a host: nothing is stranded (LH2).
    EarlyDelete,
    /// A Machine is deleted at any moment of its claim: each run deletes at another effect.
    DeleteAnywhere,
    /// The fleet grows to two Machines and shrinks to one.
    Scale,
    /// A Pod runs to its success on a Mac and is deleted.
    Pod,
    /// A pool of runners warms up to two, and cools down to none.
    WarmUp,
    /// A warm runner does one job and makes room for a fresh one.
    Job,
    /// A Machine is deleted under a running job: the job ends first (LH24).
    Drain,
}

/// How big a story's world is.
pub struct Size {
    /// Macs in the pool.
    pub hosts: usize,
    /// Machines at the beginning.
    pub machines: u32,
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no story is hidden");
        f.write_str(value.get_name())
    }
}

impl Story {
    /// Every story.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// How big its world is.
    pub fn size(self) -> Size {
        let hosts = if self == Self::Scale { 3 } else { 2 };
        Size { hosts, machines: 1 }
    }

    /// What must be before the faults begin: other stories sweep the way there.
    pub async fn begin(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim | Self::EarlyDelete | Self::DeleteAnywhere => Ok(()),
            Self::Release | Self::Scale | Self::Pod | Self::WarmUp => fleet(world, 1).await,
            Self::Job | Self::Drain => {
                fleet(world, 1).await?;
                want_runners(world, 1).await?;
                reach("an idle runner", || running(world).len() == 1).await
            }
        }
    }

    /// Plays the story; an error says what did not come about.
    pub async fn play(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim => fleet(world, 1).await,
            Self::Release | Self::DeleteAnywhere => empty_fleet(world).await,
            Self::EarlyDelete => {
                reach("a host claimed", || has_host(world)).await?;
                empty_fleet(world).await
            }
            Self::Scale => {
                scale(world, 2).await?;
                fleet(world, 2).await?;
                scale(world, 1).await?;
                fleet(world, 1).await
            }
            Self::Pod => one_pod(world).await,
            Self::WarmUp => {
                want_runners(world, 2).await?;
                reach("two idle runners", || running(world).len() == 2).await?;
                want_runners(world, 0).await?;
                reach("an empty pool", || no_runners(world)).await
            }
            Self::Job => {
                let runner = claim_runner(world).await?;
                tokio::time::sleep(JOB).await;
                world.finish_job(&runner);
                let fresh = || {
                    let idle = running(world);
                    idle.len() == 1 && idle[0].uid() != runner.uid()
                };
                reach("a fresh runner", fresh).await
            }
            Self::Drain => {
                let runner = claim_runner(world).await?;
                scale(world, 0).await?;
                tokio::time::sleep(JOB).await;
                world.finish_job(&runner);
                want_runners(world, 0).await?;
                empty_fleet(world).await?;
                reach("an empty pool", || no_runners(world)).await
            }
        }
    }
}

async fn fleet(world: &World, size: usize) -> Result<(), String> {
    reach(&format!("{size} Machines Ready"), || are_ready(world, size)).await
}

async fn empty_fleet(world: &World) -> Result<(), String> {
    scale(world, 0).await?;
    reach("an empty fleet", || machines(world).is_empty()).await
}

async fn one_pod(world: &World) -> Result<(), String> {
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "build"}, "spec": {
        "restartPolicy": "Never",
        "nodeSelector": {"tuist.dev/runtime": "tart"},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "build", "image": "ghcr.example/macos@sha256:6a05",
            "resources": {"requests": {"cpu": "4", "memory": "7168Mi"}}}]}}))
    .map_err(|error| error.to_string())?;
    pods.create(&PostParams::default(), &pod).await.map_err(|error| error.to_string())?;
    let phase = || {
        let pods: Vec<Pod> = read(world, "pods");
        pods.first().and_then(|pod| pod.status.as_ref()?.phase.clone()).unwrap_or_default()
    };
    reach("the Pod Running", || phase() == "Running").await?;
    let pod = pods.get("build").await.map_err(|error| error.to_string())?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&pod);
    reach("the Pod Succeeded", || phase() == "Succeeded").await?;
    let deleted = pods.delete("build", &DeleteParams::default()).await;
    deleted.map_err(|error| error.to_string())?;
    reach("the Pod gone", || phase().is_empty()).await
}

/// Waits for a level, in the world's time.
async fn reach(what: &str, level: impl Fn() -> bool) -> Result<(), String> {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !level() {
            tokio::time::sleep(LOOK).await;
        }
    });
    waited.await.map_err(|_| format!("liveness: {what} did not come about"))
}

/// All objects that own hosts.
pub fn machines(world: &World) -> Vec<ScalewayAppleSiliconMachine> {
    read(world, "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io")
}

/// Objects as they are stored: a look from outside costs no request.
fn read<K: DeserializeOwned>(world: &World, resource: &str) -> Vec<K> {
    let objects = world.api().objects(resource);
    objects.iter().filter_map(|object| K::deserialize(&**object).ok()).collect()
}

fn of_pool<K: ResourceExt>(object: &K) -> bool {
    object.labels().get(label::RUNNER_POOL).is_some_and(|pool| pool == POOL)
}

fn are_ready(world: &World, size: usize) -> bool {
    let machines = machines(world);
    let ready = |m: &ScalewayAppleSiliconMachine| {
        m.status.as_ref().and_then(|status| status.ready) == Some(true)
    };
    machines.len() == size && machines.iter().all(ready)
}

fn has_host(world: &World) -> bool {
    let bound = |m: &ScalewayAppleSiliconMachine| {
        m.status.as_ref().is_some_and(|status| status.server_id.is_some())
    };
    machines(world).iter().any(bound)
}

/// Sets how many Machines there shall be.
pub async fn scale(world: &World, replicas: u32) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), NAMESPACE, &resource);
    let change = json!({"spec": {"replicas": replicas}});
    let patched = api.patch(FLEET, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).map_err(|error| error.to_string())
}

async fn want_runners(world: &World, replicas: u32) -> Result<(), String> {
    let pools: Api<RunnerPool> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"spec": {"replicas": replicas}});
    let patched = pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).map_err(|error| error.to_string())
}

fn runners(world: &World) -> Vec<Pod> {
    let mut pods: Vec<Pod> = read(world, "pods");
    pods.retain(of_pool);
    pods
}

/// Runners that run and shall stay.
fn running(world: &World) -> Vec<Pod> {
    let runs = |pod: &Pod| {
        pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
            && pod.metadata.deletion_timestamp.is_none()
    };
    let mut runners = runners(world);
    runners.retain(runs);
    runners
}

fn no_runners(world: &World) -> bool {
    let accounts: Vec<ServiceAccount> = read(world, "serviceaccounts");
    runners(world).is_empty() && !accounts.iter().any(of_pool)
}

/// The CI server gives the one runner a job.
async fn claim_runner(world: &World) -> Result<Pod, String> {
    let runner = running(world).into_iter().next().ok_or("no runner")?;
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"metadata": {"labels": {label::RUNNER_POOL_OWNER: "job-1"}}});
    let name = runner.name_any();
    let claimed = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
    claimed.map_err(|error| error.to_string())
}
