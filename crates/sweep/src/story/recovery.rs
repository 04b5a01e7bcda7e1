//! Stories of trouble that lasts, and of what comes after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use applecart_sim::scaleway::{Answer, Rule, Verdict};
use applecart_sim::world::{Install, POOL_PREFIX, World};

use super::steps::{first, fleet, reach, scale};

/// How long the token is revoked.
const REVOKED: Duration = Duration::from_hours(1);
/// The agent of the version that an upgrade brings.
const NEWER_AGENT: &str = "simulated tart-kubelet, newer";
/// Where the agent is on a Mac.
const AGENT: &str = "/usr/local/bin/tart-kubelet";

/// The Mac that is claimed first lets nobody in for so many times: each bootstrap fails at once.
pub fn fail(world: &World, times: usize) -> Result<(), String> {
    let hosts = world.scaleway().hosts();
    let pool = hosts.iter().filter(|host| host.name.starts_with(POOL_PREFIX));
    let left = Arc::new(AtomicUsize::new(times));
    let bad: Arc<std::sync::OnceLock<String>> = Arc::default();
    for host in pool {
        let mac = world.mac(&host.id).ok_or("no Mac behind a host")?;
        let (left, bad, keys) = (left.clone(), bad.clone(), world.scaleway().clone());
        let id = host.id.to_string();
        mac.authorize_by(Arc::new(move || {
            // Whoever is asked first is the bad one.
            let is_bad = *bad.get_or_init(|| id.clone()) == id;
            let one_less = |left: usize| left.checked_sub(1);
            let fails =
                is_bad && left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok();
            if fails { vec![] } else { keys.public_keys() }
        }));
    }
    Ok(())
}

/// Scaleway refuses everything for an hour, in which a Machine more is wanted.
pub async fn revoke_token(world: &World) -> Result<(), String> {
    let denied = Answer::error("permissions_denied").ok_or("no such answer")?;
    world.scaleway().add_rule(Rule::any(Verdict::FailBefore(denied)).for_ever());
    scale(world, 2).await?;
    tokio::time::sleep(REVOKED).await;
    world.scaleway().clear_rules();
    fleet(world, 2).await
}

/// Another version of the provider takes over, and brings another agent.
pub async fn upgrade(world: &World) -> Result<(), String> {
    world.install(Install { agent: NEWER_AGENT, ..Install::default() });
    fleet(world, 1).await?;
    let (_, host) = first(world)?;
    let mac = world.mac(&host.id).ok_or("no Mac behind a host")?;
    // Its signature follows.
    let newer =
        || mac.file(AGENT).is_some_and(|(content, ..)| content.starts_with(NEWER_AGENT.as_bytes()));
    reach("the newer agent", newer).await
}

/// All status is lost; what it said of the host must be found again.
pub async fn forget(world: &World) -> Result<(), String> {
    let (machine, before) = first(world)?;
    world.forget_status(&machine).await.map_err(|error| error.to_string())?;
    fleet(world, 1).await?;
    let (again, host) = first(world)?;
    let stamp = |machine: &applecart_api::machine::ScalewayAppleSiliconMachine| {
        let status = machine.status.clone().unwrap_or_default();
        (status.server_id, status.initialization, status.addresses)
    };
    if stamp(&again) != stamp(&machine) {
        return Err(format!("forgotten: {:?}, was {:?}", stamp(&again), stamp(&machine)));
    }
    let effects = (host.generation, host.power_cycles);
    if effects != (before.generation, before.power_cycles) {
        return Err("forgotten: the host was wiped or rebooted".to_owned());
    }
    Ok(())
}
