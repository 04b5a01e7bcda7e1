//! Hosts whose objects vanished, and objects whose hosts did: the sweep, active, at short
//! intervals.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet;
use crate::installation::{ClusterForm, Installation};
use crate::{Ground, objects, wait};

/// A person takes a Mac's object away, finalizer and all, while the host lives. The sweep sees the
/// host twice, returns it wiped, once, and removes what the object left; when a host is gone from
/// Scaleway, its Lease goes. Once the host is back, processes are killed while the rest is removed
/// and another Mac comes.
pub async fn a_force_deleted_machines_host_is_returned_by_the_sweep_and_nothing_is_left(
    ground: &mut Ground,
) -> Result<()> {
    let mut fleet = fleet::install_as(ground, "forced", ClusterForm::Original, |plan| {
        plan.reclaims = true;
        plan.arguments.push("--orphan-reclaim-interval=4s".to_owned());
    })
    .await?;
    let owners = fleet::owners(ground, &fleet).await?;
    fleet::scale(&mut fleet, 2).await?;
    let client = ground.client().await?;
    let machine = fleet::machines(&client, &fleet).await?.pop().context("no Machine")?;
    let name = objects::name(&machine)?.to_owned();
    let mac = fleet::infra(&fleet, &name);
    let found = objects::get(&client, &mac).await?.context("no Mac")?;
    let server = found["status"]["serverID"].as_str().context("no host")?.to_owned();
    let namespace = fleet.plan.namespace.clone();
    let had = left_of(&client, &namespace, &name).await?;
    ensure!(had.len() >= 5, "it never had more than {had:?}");
    let before = refusals(&fleet, "first_sighting").await?;
    // Nobody is asked: the provider sees nothing of it.
    fleet.freeze_provider(true)?;
    objects::orphan(&client, &mac).await?;
    fleet.freeze_provider(false)?;
    wait::until("a first sighting", async || {
        Ok((refusals(&fleet, "first_sighting").await? > before).then_some(()))
    })
    .await?;
    // A first sighting is not enough. Whoever is killed from here on, it comes back.
    fleet.second_provider(ground.control_plane().await?)?;
    fleet.disturb(true);
    let free = fleet.plan.hosts - 1;
    fleet::in_pool(&mut fleet, free).await?;
    let gone = async |client: &Client| {
        let left = left_of(client, &namespace, &name).await?;
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(Some(()))
    };
    fleet.until("what it left to go", gone).await?;
    // A wipe whose beginning nobody lived to note is asked for once more.
    let wipes = fleet.wipes().await?[&server];
    let most = 1 + fleet.provider_kills() as u64;
    ensure!((1..=most).contains(&wipes), "it was wiped {wipes} times");
    // Cluster API puts another in its place.
    objects::delete(&client, &machine).await?;
    fleet::scale(&mut fleet, 2).await?;
    fleet.disturb(false);
    fleet.was_disturbed()?;
    fleet::scale(&mut fleet, 0).await?;
    fleet::nothing_is_left(&mut fleet, &owners).await?;
    let name = format!("host-{server}");
    let lease = objects::named("coordination.k8s.io/v1", "Lease", &fleet.plan.namespace, &name);
    ensure!(objects::get(&client, &lease).await?.is_some(), "it has no Lease any more");
    fleet.scaleway("DELETE", &format!("/sim/hosts/{server}"), None).await?;
    lease_goes(&mut fleet, &server).await?;
    fleet::nobody_was_refused(ground, &fleet).await
}

/// Beside a provider that runs a fleet, another only observes, and may return strays, which the
/// first may not: it tells what it would do about one and why, leads nobody, and does nothing.
pub async fn a_provider_that_only_observes_tells_what_it_would_do_and_does_nothing(
    ground: &mut Ground,
) -> Result<()> {
    let mut fleet = fleet::install(ground, "observe", ClusterForm::Original).await?;
    let owners = fleet::owners(ground, &fleet).await?;
    // Strays that are more than half of all would be left alone.
    fleet::scale(&mut fleet, 2).await?;
    let prefix = format!("{}-", fleet.plan.namespace);
    let stray = format!("{prefix}stray");
    let order = json!({"name": stray, "os": "macos-tahoe-26.0", "ordered_seconds_ago": 172_800});
    fleet.scaleway("POST", "/sim/hosts", Some(&order)).await?;
    let before = hosts(&fleet).await?;
    let flags = [
        "--orphan-reclaim-interval=2s".to_owned(),
        format!("--orphan-reclaim-claim-name-prefix={prefix}"),
    ];
    fleet.observer(ground.control_plane().await?, &flags)?;
    wait::until("what it would do to be told", async || {
        let log = fleet.logged("observer")?;
        let mut told = log.lines().filter(|line| line.contains("would, but only observes"));
        Ok(told
            .any(|line| line.contains("take_lease") && line.contains(r#""reason":"#))
            .then_some(()))
    })
    .await
    .with_context(|| fleet.tails())?;
    let page = fleet.pages("/metrics").await?.pop().context("no page")?;
    ensure!(page.contains("\napplecart_leader 0\n"), "it leads");
    let done = page.lines().filter(|line| line.starts_with("applecart_effects_total{"));
    let done: Vec<&str> = done.filter(|line| !line.ends_with(" 0")).collect();
    ensure!(done.is_empty(), "it did {done:?}");
    ensure!(hosts(&fleet).await? == before, "a host was changed");
    let found = fleet.hosts().await?;
    let id = found.iter().find(|host| host["name"] == stray.as_str()).map(|host| &host["id"]);
    let id = id.and_then(|id| id.as_str()).context("the stray is gone")?.to_owned();
    let namespace = fleet.plan.namespace.clone();
    let name = format!("host-{id}");
    let lease = objects::named("coordination.k8s.io/v1", "Lease", &namespace, &name);
    ensure!(objects::get(&fleet.client(), &lease).await?.is_none(), "it took the Lease");
    fleet.scaleway("DELETE", &format!("/sim/hosts/{id}"), None).await?;
    fleet::scale(&mut fleet, 0).await?;
    fleet::nothing_is_left(&mut fleet, &owners).await?;
    fleet::nobody_was_refused(ground, &fleet).await
}

/// The name of each host, and what it went through.
async fn hosts(fleet: &Installation) -> Result<Vec<[Value; 4]>> {
    let state = fleet.state().await?;
    let hosts = state["hosts"].as_array().context("the state has no hosts")?;
    let of = |host: &Value| ["id", "name", "wipes", "power_cycles"].map(|key| host[key].clone());
    Ok(hosts.iter().map(of).collect())
}

/// What there is under a Mac's name, besides its object.
async fn left_of(client: &Client, namespace: &str, name: &str) -> Result<Vec<String>> {
    let agent = format!("tart-kubelet-{name}");
    let (token, password) = (format!("{agent}-token"), format!("{name}-bootstrap"));
    let mut left = Vec::new();
    for (version, kind, place, called) in [
        ("v1", "Node", "", name),
        ("v1", "ServiceAccount", namespace, &agent),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", &agent),
        ("v1", "Secret", namespace, &token),
        ("v1", "Secret", namespace, &password),
    ] {
        let object = objects::named(version, kind, place, called);
        if objects::get(client, &object).await?.is_some() {
            left.push(format!("{kind} {called}"));
        }
    }
    let pods = objects::list(client, &objects::named("v1", "Pod", "", "")).await?;
    let here = pods.iter().filter(|pod| pod["spec"]["nodeName"] == name);
    left.extend(here.map(|pod| format!("Pod {}", pod["metadata"]["name"])));
    Ok(left)
}

/// How often the sweep gave this reason for leaving something alone.
async fn refusals(fleet: &Installation, reason: &str) -> Result<u64> {
    let series = format!("applecart_sweep_refusals_total{{reason=\"{reason}\"}} ");
    let pages = fleet.pages("/metrics").await?;
    let mut lines = pages.iter().flat_map(|page| page.lines());
    let count = lines.find_map(|line| line.strip_prefix(&series)).context("no such series")?;
    count.parse().context("not a count")
}

/// Waits until the Lease of a host that is gone is gone, too.
pub async fn lease_goes(fleet: &mut Installation, server: &str) -> Result<()> {
    let namespace = fleet.plan.namespace.clone();
    let name = format!("host-{server}");
    let lease = objects::named("coordination.k8s.io/v1", "Lease", &namespace, &name);
    let look =
        async |client: &Client| Ok(objects::get(client, &lease).await?.is_none().then_some(()));
    fleet.until("the Lease of a host that is gone to go", look).await
}
