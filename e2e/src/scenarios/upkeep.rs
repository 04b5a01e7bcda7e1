//! Parts of a fleet's story: what Macs that are in get beside their Node, and what brings them in
//! again.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use applecart_api::keys::AGENT_JOB;
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{available, infra, is_true, machines};
use crate::installation::{Installation, OptionalSteps};
use crate::{Ground, objects};

/// What the stand-in for Tailscale tells every Mac.
const TAILNET_ADDRESS: &str = "100.100.1.2";

/// Whether all steps ended well, for the spec as it is now.
fn is_up_to_date(mac: &Value) -> bool {
    let conditions = mac["status"]["conditions"].as_array();
    let generation = &mac["metadata"]["generation"];
    let told = |c: &Value| c["type"] == "UpToDate" && c["observedGeneration"] == *generation;
    is_true(mac, "UpToDate") && conditions.is_some_and(|all| all.iter().any(told))
}

/// Every Mac has joined, and its Node has the tailnet's address.
pub async fn every_mac_is_in_the_tailnet(fleet: &mut Installation) -> Result<()> {
    let like = infra(fleet, "");
    fleet
        .until("every Mac to be up to date and in the tailnet", async |client| {
            let macs = objects::list(client, &like).await?;
            ensure!(!macs.is_empty(), "no Macs");
            for mac in macs {
                let name = objects::name(&mac)?;
                ensure!(is_up_to_date(&mac), "{name}: {}", mac["status"]["conditions"]);
                let node = objects::named("v1", "Node", "", name);
                let node = objects::get(client, &node).await?.context("no Node")?;
                let addresses = &node["status"]["addresses"];
                let of_tailnet = |a: &Value| a["address"] == TAILNET_ADDRESS;
                let addresses = addresses.as_array().context("no addresses")?;
                ensure!(addresses.iter().any(of_tailnet), "{name}: {addresses:?}");
            }
            Ok(Some(()))
        })
        .await
}

/// One Mac's object asks for a runner of GitHub's, and the Mac gets it while it runs.
pub async fn a_mac_becomes_a_builder(fleet: &mut Installation) -> Result<()> {
    let like = infra(fleet, "");
    let change = json!({"spec": {"ghActionsRunner": OptionalSteps::runner()}});
    let asked = fleet
        .until("a Mac to be asked to build", async |client| {
            let mac = objects::list(client, &like).await?.pop().context("no Macs")?;
            objects::merge(client, &mac, &change).await.map(Some)
        })
        .await?;
    fleet
        .until("the builder to be up to date", async |client| {
            let mac = objects::get(client, &asked).await?.context("gone")?;
            // A run that began before the change ends well too: it leaves the old fingerprint.
            let stamp = |mac: &Value| mac["status"]["tartKubeletBinarySHA"].clone();
            Ok((is_up_to_date(&mac) && stamp(&mac) != stamp(&asked)).then_some(()))
        })
        .await?;
    let name = objects::name(&asked)?;
    let host = asked["status"]["serverID"].as_str().context("no host")?;
    let calls = fleet.calls(host).await?.to_string();
    ensure!(calls.contains(&format!("actions.runner.tuist.{name}")), "no runner: {calls}");
    fleet.optional()?.register(name);
    Ok(())
}

/// The runner of a host that was wiped is in GitHub's list no more.
pub fn no_builder_is_left(fleet: &Installation) -> Result<()> {
    let left = fleet.optional()?.runners();
    ensure!(left.is_empty(), "still registered with GitHub: {left:?}");
    Ok(())
}

/// `kubectl delete node` brings its Mac in again: seed 001's test plan. Its agent is gone as well,
/// so that nobody but the provider's steps can bring the Node back.
pub async fn a_deleted_node_brings_its_mac_in_again(
    ground: &mut Ground,
    fleet: &mut Installation,
) -> Result<()> {
    let client = ground.client().await?;
    let machine = machines(&client, fleet).await?.pop().context("no Machine")?;
    let name = objects::name(&machine)?;
    let log = fleet.provider_log()?;
    // A new process looks at every Mac once: that look must not be taken for the one below.
    let looked = fleet
        .until("the provider to have looked at the Mac", async |_| {
            Ok(Some(looks(&log, name)?).filter(|looks| *looks > 0))
        })
        .await?;
    let node = objects::named("v1", "Node", "", name);
    let old = objects::get(&client, &node).await?.context("no Node")?;
    let mac = objects::get(&client, &infra(fleet, name)).await?.context("no Mac")?;
    let address = mac["status"]["addresses"][0]["address"].as_str().context("no address")?;
    fleet.ssh(address, &format!("sudo -n launchctl bootout system/{AGENT_JOB}"))?;
    ground.kubectl(&["delete", "node", name]).await?;
    fleet
        .until("the deleted Node to be back and Ready", async |client| {
            let node = objects::get(client, &node).await?.context("no Node")?;
            ensure!(node["metadata"]["uid"] != old["metadata"]["uid"], "it is the old one");
            Ok(is_true(&node, "Ready").then_some(()))
        })
        .await?;
    // It is back before all steps are through: some come after the agent.
    let again = async |_: &Client| Ok((looks(&log, name)? > looked).then_some(()));
    fleet.until("the steps to be through again", again).await?;
    fleet
        .until("its Machine to be Available", async |client: &Client| {
            let machine = objects::get(client, &machine).await?.context("the Machine is gone")?;
            let node = machine["status"]["nodeRef"]["name"] == name;
            Ok((node && is_true(&machine, "Available")).then_some(()))
        })
        .await?;
    available(fleet, 3).await
}

/// How often the provider that runs now went through the steps of a Mac.
fn looks(log: &Path, machine: &str) -> Result<usize> {
    let text = std::fs::read_to_string(log).context("could not read the provider's log")?;
    let now = text.rsplit("hosts come from here").next().unwrap_or_default();
    let of_machine = |l: &&str| l.contains("went through the steps") && l.contains(machine);
    Ok(now.lines().filter(of_machine).count())
}
