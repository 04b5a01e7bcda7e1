//! What a run does to the world. Each story is a few lines.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_api::runner_pool::RunnerPool;
use applecart_sim::world::{FLEET, NAMESPACE, POOL, World};
use clap::ValueEnum;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde::Deserialize;
use serde_json::{Value, json};

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
    /// A Machine comes and goes while two providers believe to lead (G7). Played only by name: for
    /// as long as both act, each ends the other's SSH session, and no bootstrap comes to its end.
    TwoLeaders,
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
    /// Every story that must come to its end.
    pub fn all() -> impl Iterator<Item = Self> {
        Self::value_variants().iter().copied().filter(|story| *story != Self::TwoLeaders)
    }

    /// How big its world is.
    pub fn size(self) -> Size {
        let hosts = if self == Self::Scale { 3 } else { 2 };
        Size { hosts, machines: 1 }
    }

    /// What must be before the faults begin: other stories sweep the way there.
    pub async fn begin(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim | Self::EarlyDelete | Self::DeleteAnywhere | Self::TwoLeaders => Ok(()),
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
            Self::TwoLeaders => {
                fleet(world, 1).await?;
                empty_fleet(world).await
            }
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
                    let uid = runner.metadata.uid.as_deref();
                    idle.len() == 1 && idle[0]["metadata"]["uid"].as_str() != uid
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
    reach("an empty fleet", || number(world, MACHINES) == 0).await
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
    let is = |phase: &str| {
        number(world, "pods") == 1 && all(world, "pods", |pod| pod["status"]["phase"] == phase)
    };
    reach("the Pod Running", || is("Running")).await?;
    let pod = pods.get("build").await.map_err(|error| error.to_string())?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&pod);
    reach("the Pod Succeeded", || is("Succeeded")).await?;
    let deleted = pods.delete("build", &DeleteParams::default()).await;
    deleted.map_err(|error| error.to_string())?;
    reach("the Pod gone", || number(world, "pods") == 0).await
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

/// The objects that own hosts.
pub const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";

/// All objects that own hosts.
pub fn machines(world: &World) -> Vec<ScalewayAppleSiliconMachine> {
    let objects = world.api().objects(MACHINES);
    let read = |object: &Arc<Value>| ScalewayAppleSiliconMachine::deserialize(&**object).ok();
    objects.iter().filter_map(read).collect()
}

/// Whether all objects of a kind are so. Stories look once a second, so at what is stored: reading
/// it into types would take longer than most of what they wait for.
fn all(world: &World, resource: &str, are: impl Fn(&Value) -> bool) -> bool {
    world.api().objects(resource).iter().all(|object| are(object))
}

fn number(world: &World, resource: &str) -> usize {
    world.api().objects(resource).len()
}

fn of_pool(object: &Value) -> bool {
    object["metadata"]["labels"][label::RUNNER_POOL] == POOL
}

fn are_ready(world: &World, size: usize) -> bool {
    number(world, MACHINES) == size && all(world, MACHINES, |m| m["status"]["ready"] == true)
}

fn has_host(world: &World) -> bool {
    !all(world, MACHINES, |machine| machine["status"]["serverID"].is_null())
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

/// Runners that run and shall stay.
fn running(world: &World) -> Vec<Arc<Value>> {
    let runs = |pod: &Value| {
        of_pool(pod)
            && pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let mut pods = world.api().objects("pods");
    pods.retain(|pod| runs(pod));
    pods
}

fn no_runners(world: &World) -> bool {
    let nobodys = |object: &Value| !of_pool(object);
    all(world, "pods", nobodys) && all(world, "serviceaccounts", nobodys)
}

/// The CI server gives the one runner a job.
async fn claim_runner(world: &World) -> Result<Pod, String> {
    let runner = running(world).into_iter().next().ok_or("no runner")?;
    let name = runner["metadata"]["name"].as_str().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"metadata": {"labels": {label::RUNNER_POOL_OWNER: "job-1"}}});
    let claimed = pods.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    claimed.map_err(|error| error.to_string())
}
