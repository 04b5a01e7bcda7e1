//! Stories of Pods and runners.

use std::time::Duration;

use applecart_api::runner_pool::RunnerPool;
use applecart_sim::faults::Process;
use applecart_sim::mac::SimMac;
use applecart_sim::world::{Install, NAMESPACE, POOL, World};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::steps::{
    all, claim_runner, empty_fleet, fleet, no_runners, number, reach, running, scale, want_runners,
};

/// How long the job of a runner takes.
const JOB: Duration = Duration::from_mins(1);
/// The image that a pool gets.
const NEWER_IMAGE: &str = "ghcr.example/macos-runner@sha256:7b16";
/// The version of Tart that an upgrade brings.
const NEWER_TART: &str = "2.33.0";
/// Where Tart is on a Mac.
const TART: &str = "/usr/local/lib/tart.app/Contents/MacOS/tart";

/// Waits for so many Machines, and for so many idle runners on them.
pub async fn keep_idle(world: &World, machines: usize, runners: u32) -> Result<(), String> {
    fleet(world, machines).await?;
    want_runners(world, runners).await?;
    let wanted = usize::try_from(runners).unwrap_or(usize::MAX);
    reach("idle runners", || running(world).len() == wanted).await
}

/// The same for one of each, with one process of a kind; from then on two keep the runners.
pub async fn one_keeper(world: &World) -> Result<(), String> {
    world.stop(&Process::SecondProvider);
    world.stop(&Process::SecondRunnerPools);
    keep_idle(world, 1, 1).await?;
    world.start_again(&Process::SecondRunnerPools);
    Ok(())
}

/// A pool gets another image: its two runners are replaced.
pub async fn roll_image(world: &World) -> Result<(), String> {
    let pools: Api<RunnerPool> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"spec": {"image": NEWER_IMAGE}});
    let patched = pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map_err(|error| error.to_string())?;
    let is_newer = |pod: &Value| pod["spec"]["containers"][0]["image"] == NEWER_IMAGE;
    let rolled = || number(world, "pods") == 2 && running(world).iter().all(|pod| is_newer(pod));
    reach("two runners of the newer image", || rolled() && running(world).len() == 2).await
}

/// A runner gets a job, and its pool is deleted at the same moment: the job ends first.
pub async fn delete_pool(world: &World) -> Result<(), String> {
    let runner = claim_runner(world).await?;
    let pools: Api<RunnerPool> = Api::namespaced(world.client(), NAMESPACE);
    let deleted = pools.delete(POOL, &DeleteParams::default()).await;
    deleted.map_err(|error| error.to_string())?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&runner);
    reach("an empty pool", || no_runners(world)).await?;
    reach("the pool gone", || number(world, "runnerpools.tuist.dev") == 0).await
}

/// Another version of the provider takes over and brings another Tart, while a runner has a job and
/// both Macs are full: one after the other is emptied for it, and takes runners again.
pub async fn update(world: &World) -> Result<(), String> {
    let runner = claim_runner(world).await?;
    world.install(Install { tart: NEWER_TART, ..Install::default() });
    let cordoned = || !all(world, "nodes", |node| node["spec"]["unschedulable"] != true);
    reach("a cordoned Node", cordoned).await?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&runner);
    let used = world.scaleway().hosts().into_iter().filter(|host| world.is_bootstrapped(&host.id));
    let macs: Vec<SimMac> = used.filter_map(|host| world.mac(&host.id)).collect();
    let has_newer = |mac: &SimMac| {
        mac.file(TART).is_some_and(|(content, ..)| content.ends_with(NEWER_TART.as_bytes()))
    };
    reach("the newer Tart", || macs.iter().all(has_newer)).await?;
    let taken = |pod: &Value| pod["metadata"]["uid"].as_str() == runner.metadata.uid.as_deref();
    let fresh = || {
        let runners = running(world);
        !cordoned() && runners.len() == 4 && !runners.iter().any(|pod| taken(pod))
    };
    reach("Nodes that take Pods, and fresh runners", fresh).await
}

/// A Pod runs to its success on a Mac and is deleted.
pub async fn one_pod(world: &World) -> Result<(), String> {
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

/// A pool of runners warms up to two, and cools down to none.
pub async fn warm_up(world: &World) -> Result<(), String> {
    want_runners(world, 2).await?;
    reach("two idle runners", || running(world).len() == 2).await?;
    want_runners(world, 0).await?;
    reach("an empty pool", || no_runners(world)).await
}

/// A warm runner does one job and makes room for a fresh one.
pub async fn one_job(world: &World) -> Result<(), String> {
    let runner = claim_runner(world).await?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&runner);
    reach("a fresh runner", || has_fresh(world, &runner)).await
}

/// A job, a pool that grows, another image, and a pool that shrinks.
pub async fn two_keepers(world: &World) -> Result<(), String> {
    one_job(world).await?;
    want_runners(world, 2).await?;
    reach("two idle runners", || running(world).len() == 2).await?;
    roll_image(world).await?;
    want_runners(world, 1).await?;
    reach("one runner", || number(world, "pods") == 1).await
}

/// Whether one runner runs, and not this one.
fn has_fresh(world: &World, runner: &Pod) -> bool {
    let (idle, uid) = (running(world), runner.metadata.uid.as_deref());
    idle.len() == 1 && idle[0]["metadata"]["uid"].as_str() != uid
}

/// A Machine is deleted under a running job: the job ends first.
pub async fn drain(world: &World) -> Result<(), String> {
    let runner = claim_runner(world).await?;
    scale(world, 0).await?;
    tokio::time::sleep(JOB).await;
    world.finish_job(&runner);
    want_runners(world, 0).await?;
    empty_fleet(world).await?;
    reach("an empty pool", || no_runners(world)).await
}
