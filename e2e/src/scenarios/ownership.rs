//! Whose a host is, with the real Cluster API and two providers: rolls, detached objects, hosts
//! that are given up. In the end every other host is wiped in the pool, or where a person left it.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{self, CLUSTER_API, INFRASTRUCTURE};
use super::orphans;
use crate::installation::{ClusterForm, Installation};
use crate::{Ground, objects};

const PAUSED: &str = "cluster.x-k8s.io/paused";
const RELEASE_POLICY: &str = "tuist.dev/release-policy";

/// A `MachineDeployment` rolls to a new template, one Mac after the other, while two providers run
/// and are killed; every Mac of the old template goes back wiped.
pub async fn a_fleet_rolls_to_a_new_template_under_two_providers(
    ground: &mut Ground,
) -> Result<()> {
    let mut fleet = fleet::install(ground, "roll", ClusterForm::Original).await?;
    let owners = fleet::owners(ground, &fleet).await?;
    fleet.second_provider(ground.control_plane().await?)?;
    fleet::scale(&mut fleet, 2).await?;
    one_leads(&mut fleet).await?;
    let client = ground.client().await?;
    let old: Vec<Value> = fleet::machines(&client, &fleet).await?;
    fleet.disturb(true);
    roll(&mut fleet).await?;
    for machine in &old {
        ensure!(objects::get(&client, machine).await?.is_none(), "an old Machine is left");
    }
    fleet::scale(&mut fleet, 0).await?;
    fleet.disturb(false);
    fleet.was_disturbed()?;
    fleet::nothing_is_left(&mut fleet, &owners).await?;
    fleet::nobody_was_refused(ground, &fleet).await
}

/// Of two providers exactly one leads, and the other says so.
async fn one_leads(fleet: &mut Installation) -> Result<()> {
    let pages = fleet.pages("/readyz").await?;
    let with = |words: &str| pages.iter().filter(|page| page.contains(words)).count();
    // The runner-pool controller leads its own.
    let (leading, waiting) = (with("leader: leading"), with("leader: standing by: "));
    ensure!((leading, waiting) == (2, 1), "{pages:?}");
    Ok(())
}

/// Names a new template, and waits until no Machine is of the old one.
async fn roll(fleet: &mut Installation) -> Result<()> {
    let namespace = fleet.plan.namespace.clone();
    let kind = "ScalewayAppleSiliconMachineTemplate";
    let old = objects::named(INFRASTRUCTURE, kind, &namespace, &namespace);
    let name = format!("{namespace}-second");
    let second = objects::named(INFRASTRUCTURE, kind, &namespace, &name);
    let deployment = fleet::deployment(fleet);
    let change = json!({"spec": {
        "rollout": {"strategy": {"type": "RollingUpdate"}},
        "template": {"spec": {"infrastructureRef": {"name": name}}},
    }});
    let look = async |client: &Client| {
        if objects::get(client, &second).await?.is_none() {
            let old = objects::get(client, &old).await?.context("no template")?;
            let mut template = second.clone();
            template["spec"] = old["spec"].clone();
            objects::create(client, &template, false).await?;
        }
        objects::merge(client, &deployment, &change).await.map(Some)
    };
    fleet.until("a new template to be named", look).await?;
    let machines = objects::named(CLUSTER_API, "Machine", &namespace, "");
    let look = async |client: &Client| {
        for machine in objects::list(client, &machines).await? {
            let mac = objects::named(
                INFRASTRUCTURE,
                "ScalewayAppleSiliconMachine",
                &namespace,
                objects::name(&machine)?,
            );
            let mac = objects::get(client, &mac).await?.context("a Machine without a Mac")?;
            let from = &mac["metadata"]["annotations"]["cluster.x-k8s.io/cloned-from-name"];
            ensure!(*from == name.as_str(), "a Machine is still of {from}");
        }
        Ok(Some(()))
    };
    fleet.until("the old template's Machines to go", look).await?;
    fleet::available(fleet, 2).await?;
    fleet::in_pool(fleet, fleet.plan.hosts - 2).await
}

/// Paused, stripped of its host by hand and deleted: the object goes, nobody outside is called, the
/// host stays as it was, and no other host is claimed for the object meanwhile. Then once more,
/// while two providers run and are killed: who starts anew looks around, and changes no host.
pub async fn a_detached_machine_goes_without_its_host(ground: &mut Ground) -> Result<()> {
    let mut fleet = fleet::install(ground, "detach", ClusterForm::Original).await?;
    fleet::scale(&mut fleet, 1).await?;
    let (first, before) = detach(&mut fleet).await?;
    let calls = fleet.state().await?["calls"].clone();
    ensure!(calls == before, "{before} became {calls}");
    fleet.second_provider(ground.control_plane().await?)?;
    fleet::ask_for(&mut fleet, 1).await?;
    fleet::available(&mut fleet, 1).await?;
    fleet.disturb(true);
    let (second, _) = detach(&mut fleet).await?;
    fleet.disturb(false);
    fleet.was_disturbed()?;
    let state = fleet.state().await?;
    for (name, server) in [first, second] {
        let host = host(&state, &server).context("it is gone")?;
        ensure!(host["name"] == name.as_str() && host["wipes"] == 0, "it was touched: {host}");
    }
    let others = fleet.plan.hosts - 2;
    fleet::in_pool(&mut fleet, others).await
}

/// Detaches the one Machine; its name and its host, and how often Scaleway was called before it
/// went.
async fn detach(fleet: &mut Installation) -> Result<((String, String), Value)> {
    let client = fleet.client();
    let machine = fleet::machines(&client, fleet).await?.pop().context("no Machine")?;
    let name = objects::name(&machine)?.to_owned();
    let mac = fleet::infra(fleet, &name);
    let found = objects::get(&client, &mac).await?.context("no Mac")?;
    let server = found["status"]["serverID"].as_str().context("no host")?.to_owned();
    objects::merge(&client, &mac, &json!({"metadata": {"annotations": {PAUSED: ""}}})).await?;
    let paused = async |client: &Client| {
        let mac = objects::get(client, &mac).await?.context("gone")?;
        let conditions = mac["status"]["conditions"].as_array().into_iter().flatten();
        let mut paused = conditions.filter(|c| c["type"] == "Paused" && c["status"] == "True");
        Ok(paused.next().map(|_| ()))
    };
    fleet.until("Paused=True", paused).await?;
    // The recipe that operators know, in its order.
    objects::merge_status(&client, &mac, &json!({"status": {"serverID": null}})).await?;
    objects::merge(&client, &mac, &json!({"spec": {"providerID": null}})).await?;
    let before = fleet.state().await?["calls"].clone();
    fleet::ask_for(fleet, 0).await?;
    let gone =
        async |client: &Client| Ok(objects::get(client, &machine).await?.is_none().then_some(()));
    fleet.until("the Machine to go", gone).await?;
    Ok(((name, server), before))
}

/// With the policy `terminate`, a host inside the licensing floor is wiped and scheduled for
/// deletion, and its Machine waits no day for that; past the floor a host is deleted at once.
/// Neither comes to the pool, and the other hosts are left alone; two providers run, and are killed
/// meanwhile.
pub async fn a_terminated_machines_host_goes_now_or_when_its_licence_allows(
    ground: &mut Ground,
) -> Result<()> {
    let mut fleet = fleet::install_as(ground, "terminate", ClusterForm::Original, |plan| {
        plan.hosts = 1;
        plan.arguments.push("--orphan-reclaim-interval=4s".to_owned());
    })
    .await?;
    fleet.second_provider(ground.control_plane().await?)?;
    // Hosts are two days old, unless somebody says otherwise.
    let old = fleet.hosts().await?.pop().context("no host")?;
    let outside = old["id"].as_str().context("a host without an id")?.to_owned();
    let inside = order(&mut fleet, "tuist-pool-young", 3600).await?;
    fleet::scale(&mut fleet, 2).await?;
    order(&mut fleet, "tuist-pool-bystander", 3600).await?;
    // Whoever is killed between two steps, the other provider goes on.
    fleet.disturb(true);
    terminate(&mut fleet, &inside, 1).await?;
    let state = fleet.state().await?;
    let scheduled = host(&state, &inside).context("it is gone inside its floor")?;
    // A wipe whose beginning nobody lived to note is asked for once more.
    let wiped = scheduled["wipes"].as_u64().is_some_and(|wipes| wipes >= 1);
    ensure!(scheduled["deletion_scheduled"] == true && wiped, "{scheduled}");
    terminate(&mut fleet, &outside, 0).await?;
    fleet.disturb(false);
    fleet.was_disturbed()?;
    let state = fleet.state().await?;
    ensure!(host(&state, &outside).is_none(), "past its floor, and still there");
    println!("Scaleway was called: {}", state["calls"]);
    fleet.scaleway("POST", "/sim/clock", Some(&json!({"advance_seconds": 25 * 3600}))).await?;
    let state = fleet.state().await?;
    ensure!(host(&state, &inside).is_none(), "its floor is over, and it is still there");
    for bystander in state["hosts"].as_array().into_iter().flatten() {
        let untouched = bystander["name"] == "tuist-pool-bystander" && bystander["wipes"] == 0;
        ensure!(untouched, "another host was touched: {bystander}");
    }
    fleet::no_object_is_left(&mut fleet).await?;
    for server in [&inside, &outside] {
        orphans::lease_goes(&mut fleet, server).await?;
    }
    fleet::nobody_was_refused(ground, &fleet).await
}

/// One more host in the pool, ordered so long ago.
async fn order(fleet: &mut Installation, name: &str, seconds_ago: u64) -> Result<String> {
    let order = json!({
        "name": name, "os": "macos-tahoe-26.0", "ordered_seconds_ago": seconds_ago,
    });
    fleet.scaleway("POST", "/sim/hosts", Some(&order)).await?;
    fleet.plan.hosts += 1;
    let hosts = fleet.hosts().await?;
    let host = hosts.iter().find(|host| host["name"] == name).context("not delivered")?;
    Ok(host["id"].as_str().context("a host without an id")?.to_owned())
}

/// The Machine of a host goes, and the host with it, as its policy says; so many are left.
async fn terminate(fleet: &mut Installation, server: &str, left: usize) -> Result<()> {
    let client = fleet.client();
    let macs = objects::list(&client, &fleet::infra(fleet, "")).await?;
    let mac = macs.iter().find(|mac| mac["status"]["serverID"] == server).context("no Mac")?;
    let machine =
        objects::named(CLUSTER_API, "Machine", &fleet.plan.namespace, objects::name(mac)?);
    let policy = json!({"metadata": {"annotations": {RELEASE_POLICY: "terminate"}}});
    objects::merge(&client, mac, &policy).await?;
    let first = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
    objects::merge(&client, &machine, &first).await?;
    fleet::ask_for(fleet, left).await?;
    let gone =
        async |client: &Client| Ok(objects::get(client, &machine).await?.is_none().then_some(()));
    fleet.until("the Machine to go", gone).await?;
    fleet::available(fleet, left).await
}

/// A host as Scaleway knows it, if it does.
pub fn host<'a>(state: &'a Value, server: &str) -> Option<&'a Value> {
    state["hosts"].as_array()?.iter().find(|host| host["id"] == server)
}
