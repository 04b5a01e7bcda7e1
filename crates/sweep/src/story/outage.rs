//! Stories of an API server that is gone for long, and of clocks that jump, in mid-claim.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_core::pod::VmName;
use applecart_sim::world::World;
use serde_json::Value;

use super::steps::{MACHINES, fleet, has_host, number, reach, running, scale};

/// How far a clock jumps, in seconds.
pub const HOUR: i64 = 3_600;
/// How long the API server is gone.
const GONE: Duration = Duration::from_hours(1);

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
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
    fleet(world, 2).await?;
    reach("the runner as before", || running(world).len() == 1).await?;
    untouched(world, &before)
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
    let macs = world.sight().tarts().filter_map(|(id, _)| world.mac(&id));
    let boots: BTreeSet<String> = macs.map(|mac| mac.boot_session()).collect();
    match before.iter().find(|(boot, vms)| boots.contains(*boot) && now.get(*boot) != Some(vms)) {
        None => Ok(()),
        Some((_, were)) => Err(format!("outage: VMs are {now:?}, were {were:?}")),
    }
}
