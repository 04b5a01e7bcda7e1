//! Macs that cannot be brought in: they recover in tiers, or are exchanged.

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet;
use super::ownership::host;
use crate::installation::ClusterForm;
use crate::recording::Recording;
use crate::{Ground, objects, wait};

/// A Mac that takes connections and says nothing: rebooted once, then wiped and exchanged, once,
/// under the same Machine; the other Machines are Ready meanwhile.
pub async fn a_wedged_mac_recovers_through_the_tiers_and_delays_nobody(
    ground: &mut Ground,
) -> Result<()> {
    // P2, S11
    let mut fleet = fleet::install_as(ground, "wedged", ClusterForm::Original, |plan| {
        plan.hosts = 3;
        let tiers = ["--bootstrap-reboot-after=1", "--bootstrap-max-attempts=2"];
        plan.arguments.extend(tiers.map(str::to_owned));
        plan.arguments.push("--ssh-patience=10s".to_owned());
    })
    .await?;
    let owners = fleet::owners(ground, &fleet).await?;
    let hosts = fleet.hosts().await?;
    let wedged = hosts.first().and_then(|host| host["id"].as_str()).context("no host")?.to_owned();
    wait::until("its Mac to be there", async || {
        fleet.change_mac(&wedged, &json!({"hangs": true})).await.map(Some)
    })
    .await?;
    fleet::ask_for(&mut fleet, 3).await?;
    let like = fleet::infra(&fleet, "");
    let claimed = async |client: &Client| {
        let macs = objects::list(client, &like).await?;
        Ok(macs.iter().any(|mac| mac["status"]["serverID"] == wedged.as_str()).then_some(()))
    };
    fleet.until("the wedged Mac to be claimed", claimed).await?;
    // There is something to exchange it for.
    let spare = json!({"name": "tuist-pool-spare", "os": "macos-tahoe-26.0"});
    fleet.scaleway("POST", "/sim/hosts", Some(&spare)).await?;
    fleet.plan.hosts += 1;
    fleet::available(&mut fleet, 3).await?;
    fleet::in_pool(&mut fleet, 1).await?;
    let state = fleet.state().await?;
    let seen = host(&state, &wedged).context("the wedged host is gone")?;
    // Scaleway counts a wipe as a power cycle, too.
    ensure!(seen["wipes"] == 1 && seen["power_cycles"] == 2, "{seen}");
    let calls = &state["calls"];
    ensure!(calls["reboot_server"] == 1 && calls["reinstall_server"] == 1, "{calls}");
    let unlucky = exchanged_under_one_machine(&owners, &wedged)?;
    others_were_ready_first(&owners, &unlucky)?;
    fleet.change_mac(&wedged, &json!({"hangs": false})).await?;
    fleet::scale(&mut fleet, 0).await?;
    fleet::nothing_is_left(&mut fleet, &owners).await?;
    fleet::nobody_was_refused(ground, &fleet).await
}

/// Every other Machine was Ready before the unlucky one.
fn others_were_ready_first(owners: &Recording, unlucky: &str) -> Result<()> {
    let mut in_order: Vec<String> = Vec::new();
    for version in owners.versions().iter().filter(|version| version["status"]["ready"] == true) {
        let uid = uid(version);
        if !in_order.contains(&uid) {
            in_order.push(uid);
        }
    }
    let last = in_order.last().is_some_and(|last| last == unlucky);
    ensure!(in_order.len() == 3 && last, "{unlucky} delayed one of {in_order:?}");
    Ok(())
}

fn uid(version: &Value) -> String {
    version["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

/// Whoever had the wedged host has another one now; who that is.
fn exchanged_under_one_machine(owners: &Recording, wedged: &str) -> Result<String> {
    let versions = owners.versions();
    let had = |version: &&Value| version["status"]["serverID"] == wedged;
    let owner: BTreeSet<String> = versions.iter().filter(had).map(uid).collect();
    let mut owner = owner.into_iter();
    let (Some(unlucky), None) = (owner.next(), owner.next()) else {
        bail!("not one Machine had the wedged host");
    };
    let theirs = versions.iter().filter(|version| uid(version) == unlucky);
    let hosts: BTreeSet<&str> = theirs
        .filter_map(|v| v["status"]["serverID"].as_str())
        .filter(|id| !id.is_empty())
        .collect();
    ensure!(hosts.len() == 2, "its Machine had hosts {hosts:?}");
    Ok(unlucky)
}
