//! `clusterctl move`: a fleet goes to another cluster, and its hosts do not notice.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet;
use crate::ground::our_definitions;
use crate::installation::{ClusterForm, Installation, Plan};
use crate::{ClusterApi, ControlPlane, Ground, objects};

/// The real `clusterctl move`, from one control plane to another, with a provider on each: no host
/// is renamed, wiped, rebooted or deleted; every Machine is provisioned on its old host there, and
/// has its Node; deleted there, they go back wiped. Two providers run here, and all processes are
/// killed throughout.
pub async fn contract_22_a_fleet_moves_to_another_cluster_and_no_host_notices(
    ground: &mut Ground,
) -> Result<()> {
    let mut here = fleet::install_as(ground, "move", ClusterForm::Original, |plan| {
        plan.runners = 0;
        plan.reclaims = true;
        plan.arguments.push("--orphan-reclaim-interval=4s".to_owned());
    })
    .await?;
    here.second_provider(ground.control_plane().await?)?;
    fleet::scale(&mut here, 2).await?;
    let mut plane = ground.new_control_plane().await?;
    let _manager = ClusterApi::start(&mut plane).await?;
    let mut there = target(&here, &mut plane).await?;
    let (from, to) = (here.client(), there.client());
    let (objects_before, hosts_before) = (hosts_of(&from, &here).await?, marks(&here).await?);
    here.disturb(true);
    move_all(ground, &mut here, &plane).await?;
    ensure!(hosts_of(&from, &here).await?.is_empty(), "an object is still here");
    there.disturb(true);
    fleet::available(&mut there, 2).await?;
    ensure!(hosts_of(&to, &there).await? == objects_before, "a Machine has another host");
    for machine in fleet::machines(&to, &there).await? {
        ensure!(machine["status"]["nodeRef"]["name"].is_string(), "{}", machine["status"]);
    }
    // Time for the sweep here to see nobody's hosts twice, and to leave them alone.
    some_sweeps(&mut here).await?;
    here.disturb(false);
    let hosts_after = marks(&here).await?;
    ensure!(hosts_after == hosts_before, "{hosts_before:#?} became {hosts_after:#?}");
    fleet::scale(&mut there, 0).await?;
    there.disturb(false);
    here.was_disturbed()?;
    there.was_disturbed()?;
    for (server, wipes) in there.wipes().await? {
        let moved = objects_before.iter().any(|(_, host)| *host == server);
        // A wipe whose beginning nobody lived to note is asked for once more.
        let most = if moved { 1 + there.provider_kills() as u64 } else { 0 };
        let wiped = u64::from(moved)..=most;
        ensure!(wiped.contains(&wipes), "host {server} was wiped {wipes} times");
    }
    fleet::no_object_is_left(&mut there).await?;
    // What they left here goes with the hosts.
    fleet::no_object_is_left(&mut here).await?;
    fleet::nobody_was_refused(ground, &here).await
}

/// An installation on another control plane, which gets the fleet's key by hand.
async fn target(here: &Installation, plane: &mut ControlPlane) -> Result<Installation> {
    let (from, to) = (here.client(), plane.client());
    let namespace = &here.plan.namespace;
    objects::define(&to, &our_definitions()?).await?;
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
    objects::create(&to, &home, false).await?;
    let mut key = objects::named("v1", "Secret", namespace, &format!("{namespace}-ssh"));
    let found = objects::get(&from, &key).await?.context("the fleet has no key")?;
    key["data"] = found["data"].clone();
    objects::create(&to, &key, false).await?;
    let mut plan = Plan::new(namespace.clone(), ClusterForm::Moved, here.plan.seed);
    plan.runners = 0;
    here.beside(plane, plan).await
}

/// Which host each object has, by its provider ID.
async fn hosts_of(client: &Client, fleet: &Installation) -> Result<Vec<(String, String)>> {
    let mut hosts = Vec::new();
    for mac in objects::list(client, &fleet::infra(fleet, "")).await? {
        let id = mac["spec"]["providerID"].as_str().unwrap_or_default();
        let server = id.rsplit('/').next().unwrap_or_default().to_owned();
        hosts.push((objects::name(&mac)?.to_owned(), server));
    }
    hosts.sort();
    Ok(hosts)
}

/// All that an effect on a host changes, host by host.
async fn marks(fleet: &Installation) -> Result<Vec<Value>> {
    let state = fleet.state().await?;
    let hosts = state["hosts"].as_array().context("the state has no hosts")?;
    let mark = |host: &Value| {
        json!([
            host["id"],
            host["name"],
            host["status"],
            host["wipes"],
            host["power_cycles"],
            host["deletion_scheduled"],
        ])
    };
    Ok(hosts.iter().map(mark).collect())
}

/// Moves everything of a fleet from the shared control plane to this one.
async fn move_all(ground: &mut Ground, fleet: &mut Installation, to: &ControlPlane) -> Result<()> {
    let from = ground.kubeconfig().await?;
    let program = ground.binaries()?.path("clusterctl")?;
    let mut command = clusterctl(&program, to.folder());
    command.args(["move", "--namespace", &fleet.plan.namespace, "--kubeconfig"]).arg(from);
    command.arg("--to-kubeconfig").arg(to.kubeconfig());
    let moving = tokio::task::spawn_blocking(move || command.output());
    let moved = async |_: &Client| Ok(moving.is_finished().then_some(()));
    fleet.until("clusterctl to end", moved).await?;
    let output = moving.await?.context("could not start clusterctl")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "clusterctl move: {said}");
    println!("{}", said.trim());
    Ok(())
}

/// It reads no configuration of a person's, and asks nobody for a newer version.
fn clusterctl(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("HOME", home)
        .env("XDG_CONFIG_HOME", home.join("clusterctl"))
        .env("CLUSTERCTL_DISABLE_VERSIONCHECK", "true");
    command
}

/// Time for four sweeps.
async fn some_sweeps(fleet: &mut Installation) -> Result<()> {
    let end = tokio::time::Instant::now() + std::time::Duration::from_secs(16);
    let look = async |_: &Client| Ok((tokio::time::Instant::now() > end).then_some(()));
    fleet.until("some sweeps", look).await
}
