//! Hosts whose objects vanished, and objects whose hosts did: the sweep, active, at short
//! intervals.

use anyhow::{Context, Result, ensure};
use kube::Client;

use super::fleet;
use crate::installation::{ClusterForm, Installation, POOL_PREFIX};
use crate::{Ground, objects, wait};

/// A person takes a Mac's object away, finalizer and all, while the host lives. The sweep sees the
/// host twice, returns it wiped, once, and removes what the object left; when a host is gone from
/// Scaleway, its Lease goes.
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
    returned(&mut fleet, &server).await?;
    ensure!(refusals(&fleet, "first_sighting").await? > before, "it was not seen twice");
    let gone = async |client: &Client| {
        let left = left_of(client, &namespace, &name).await?;
        ensure!(left.is_empty(), "left behind: {left:?}");
        Ok(Some(()))
    };
    fleet.until("what it left to go", gone).await?;
    ensure!(fleet.wipes().await?[&server] == 1, "it was wiped more than once");
    // Cluster API puts another in its place.
    objects::delete(&client, &machine).await?;
    fleet::scale(&mut fleet, 2).await?;
    fleet::scale(&mut fleet, 0).await?;
    fleet::nothing_is_left(&mut fleet, &owners).await?;
    let name = format!("host-{server}");
    let lease = objects::named("coordination.k8s.io/v1", "Lease", &fleet.plan.namespace, &name);
    ensure!(objects::get(&client, &lease).await?.is_some(), "it has no Lease any more");
    fleet.scaleway("DELETE", &format!("/sim/hosts/{server}"), None).await?;
    lease_goes(&mut fleet, &server).await?;
    fleet::nobody_was_refused(ground, &fleet).await
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

/// Waits until a host is ready in the pool, wiped.
async fn returned(fleet: &mut Installation, server: &str) -> Result<()> {
    wait::until("the host to be returned", async || {
        let hosts = fleet.hosts().await?;
        let host = hosts.iter().find(|host| host["id"] == server).context("it is gone")?;
        let free = host["name"].as_str().is_some_and(|name| name.starts_with(POOL_PREFIX));
        Ok((free && host["status"] == "ready").then_some(()))
    })
    .await
    .with_context(|| fleet.tails())?;
    ensure!(fleet.wipes().await?[server] == 1, "it was not wiped once");
    Ok(())
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
