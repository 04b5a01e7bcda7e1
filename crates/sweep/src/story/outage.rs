//! Stories of an API server that is gone for long, of a Mac that alone does not reach it, and of
//! clocks that jump in mid-claim.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use applecart_core::pod::VmName;
use applecart_sim::world::World;
use kube::ResourceExt;
use serde_json::Value;

use super::steps::{MACHINES, claim_runner, fleet, has_host, number, reach, running, scale};

/// How far a clock jumps, in seconds.
pub const HOUR: i64 = 3_600;
/// How long the API server is gone.
const GONE: Duration = Duration::from_hours(1);
/// How long a Mac is cut off: longer than Kubernetes leaves Pods on such a Node, and than idle
/// runners stay there.
const CUT_OFF: Duration = Duration::from_mins(10);
/// How often one looks at what must not change.
const LOOK: Duration = Duration::from_secs(10);
/// How long the job goes on when the Mac is back: its agent has seen what others asked for.
const AFTERWARDS: Duration = Duration::from_mins(1);

/// A runner's VM runs, and a second Machine has just got its host, when the API server goes. While
/// it is gone and when it is back, nobody touches the VM; then all comes about.
pub async fn lose_api_server(world: &World) -> Result<(), String> {
    let before = vms(world);
    if before.len() != 1 {
        return Err(format!("outage: {} VMs before it", before.len()));
    }
    scale(world, 2).await?;
    reach("a second host claimed", || number(world, MACHINES) == 2 && all_have_hosts(world))
        .await?;
    world.lose_api_server(GONE);
    let end = tokio::time::Instant::now() + GONE;
    while tokio::time::Instant::now() < end {
        untouched(world, &before)?;
        tokio::time::sleep(LOOK).await;
    }
    fleet(world, 2).await?;
    reach("the runner as before", || running(world).len() == 1).await?;
    untouched(world, &before)
}

/// A runner on a Mac that is cut off has a job: the oracles see that its Pod and its VM stay, and
/// that it ends well when the Mac is back. The idle one beside it may be replaced.
pub async fn cut_off(world: &World) -> Result<(), String> {
    let runner = claim_runner(world).await?;
    let node = runner.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default();
    world.cut_off(&node, CUT_OFF);
    tokio::time::sleep(CUT_OFF + AFTERWARDS).await;
    world.finish_job(&runner);
    let is_done = |pod: &Arc<Value>| pod["metadata"]["uid"].as_str() == runner.uid().as_deref();
    let fresh = || running(world).iter().filter(|pod| !is_done(pod)).count();
    reach("two runners without the one that is done", || fresh() == 2 && running(world).len() == 2)
        .await?;
    fleet(world, 1).await
}

/// What each Mac calls this boot.
fn boots(world: &World) -> BTreeSet<String> {
    let macs = world.sight().tarts().filter_map(|(id, _)| world.mac(&id));
    macs.map(|mac| mac.boot_session()).collect()
}

/// The clocks jump as soon as a host is claimed.
pub async fn jump(world: &World, seconds: i64) -> Result<(), String> {
    reach("a host claimed", || has_host(world)).await?;
    world.jump(seconds);
    fleet(world, 1).await
}

fn all_have_hosts(world: &World) -> bool {
    super::all(world, MACHINES, |machine: &Value| !machine["status"]["serverID"].is_null())
}

/// What there is of VMs on the Macs that run any: their names, how often any was started and
/// stopped there, by what the Mac calls this boot.
type Vms = BTreeMap<String, (Vec<VmName>, usize, usize)>;

fn vms(world: &World) -> Vms {
    let running = world.sight().tarts().filter_map(|(id, tart)| {
        let (names, calls) = (Vec::from_iter(tart.running()), tart.calls());
        let boot = world.mac(&id)?.boot_session();
        (!names.is_empty()).then_some((boot, (names, calls.starts, calls.stops)))
    });
    running.collect()
}

/// Whether the VMs are as before, but for those of a Mac that lost its power.
fn untouched(world: &World, before: &Vms) -> Result<(), String> {
    let now = vms(world);
    let boots = boots(world);
    match before.iter().find(|(boot, vms)| boots.contains(*boot) && now.get(*boot) != Some(vms)) {
        None => Ok(()),
        Some((_, were)) => Err(format!("outage: VMs are {now:?}, were {were:?}")),
    }
}
