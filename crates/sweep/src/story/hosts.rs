//! Stories of hosts: how they come, how they go, and what people do to them meanwhile.

use std::time::Duration;

use applecart_api::keys::{annotation, label, lease};
use applecart_sim::scaleway::HostView;
use applecart_sim::world::{FLEET, POOL_PREFIX, World};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::is_claim_name;
use super::steps::{
    Kind, LEASES, MACHINES, all, annotate, empty_fleet, first, fleet, has_host, is_told, machines,
    number, reach, scale,
};

/// What a person calls a host that is none of ours any more.
const BY_HAND: &str = "kept-by-alice";
/// What is made for a Machine in Kubernetes, and labelled with its name.
const LEFT: [&str; 3] =
    ["secrets", "serviceaccounts", "clusterrolebindings.rbac.authorization.k8s.io"];
/// The Cluster of every world.
const CLUSTER: &str = "demo";
/// How long a pause lasts at least: longer than it takes until a Mac is looked after again.
const PAUSE: Duration = Duration::from_mins(6);

/// The host of the pool, if there is one.
fn in_pool(world: &World) -> Option<HostView> {
    world.scaleway().hosts().into_iter().find(|host| host.name.starts_with(POOL_PREFIX))
}

/// The fleet's template changes: another Machine comes, then the first one goes.
pub async fn roll(world: &World) -> Result<(), String> {
    let (old, _) = first(world)?;
    let copy = format!("{FLEET}-newer");
    Kind::Template.copy(world, FLEET, &copy).await?;
    let newer = json!({"infrastructureRef": {"name": copy}});
    let change = json!({"spec": {"template": {"spec": newer}}});
    Kind::MachineDeployment.patch(world, FLEET, change).await?;
    let rolled = || all(world, MACHINES, |machine| machine["metadata"]["name"] != old.name_any());
    reach("the first Machine gone", rolled).await?;
    fleet(world, 1).await
}

/// Takes a host out of the pool, by hand.
pub fn empty_pool(world: &World) -> Result<(), String> {
    let host = in_pool(world).ok_or("no host in the pool")?;
    world.rename_by_hand(&host.id, BY_HAND);
    Ok(())
}

/// A Machine waits for a host, and a person puts one into the pool.
pub async fn refill(world: &World) -> Result<(), String> {
    scale(world, 1).await?;
    reach("no host told", || is_told(world, "NoAvailableHost")).await?;
    fill_pool(world)?;
    fleet(world, 1).await
}

/// Puts the host that was taken out of the pool back.
pub fn fill_pool(world: &World) -> Result<(), String> {
    let hosts = world.scaleway().hosts();
    let host = hosts.iter().find(|host| host.name == BY_HAND).ok_or("no host by hand")?;
    world.rename_by_hand(&host.id, &format!("{POOL_PREFIX}refill"));
    Ok(())
}

/// Waits until the sweep has removed what belongs to no host and to no object any more.
async fn swept_up(world: &World) -> Result<(), String> {
    let hosts =
        |name: &str| world.scaleway().hosts().iter().any(|host| name == lease::name(&host.id));
    let lasts = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        object["metadata"]["labels"][lease::HOST].is_null() || hosts(name)
    };
    reach("no Lease of a host that is gone", || all(world, LEASES, lasts)).await?;
    let names = || -> Vec<Value> {
        let machines = world.sight().objects(MACHINES);
        machines.iter().map(|machine| machine["metadata"]["name"].clone()).collect()
    };
    let belongs = |object: &Value| {
        let of = &object["metadata"]["labels"][label::MACHINE];
        of.is_null() || names().contains(of)
    };
    let left = || LEFT.iter().all(|kind| all(world, kind, belongs));
    reach("nothing of an object that is gone", left).await
}

/// A Machine goes, and its host with it; `floor`: how long the host may not be deleted yet.
pub async fn terminate(world: &World, floor: Duration) -> Result<(), String> {
    let (machine, host) = first(world)?;
    world.scaleway().set_floor(&host.id, floor);
    annotate(world, &machine, json!({annotation::RELEASE_POLICY: annotation::TERMINATE})).await?;
    empty_fleet(world).await?;
    swept_up(world).await
}

/// Machines of the fleet ask for hosts of their own.
pub async fn ask_for_hosts(world: &World) -> Result<(), String> {
    let change = json!({"spec": {"template": {"spec": {"autoOrder": true}}}});
    Kind::Template.patch(world, FLEET, change).await
}

/// A host is bought for a Machine, and goes with it; it may be deleted at once.
pub async fn rent(world: &World) -> Result<(), String> {
    scale(world, 1).await?;
    fleet(world, 1).await?;
    let (_, host) = first(world)?;
    world.scaleway().set_floor(&host.id, Duration::ZERO);
    empty_fleet(world).await?;
    if world.scaleway().host(&host.id).is_some() {
        return Err("hosts-changed: a host outlived the Machine that bought it".to_owned());
    }
    swept_up(world).await
}

/// A Machine goes whose host reboots at the time.
pub async fn release_rebooting(world: &World) -> Result<(), String> {
    let (_, host) = first(world)?;
    let rebooted = world.scaleway().client().reboot(&host.zone, &host.id).await;
    rebooted.map_err(|error| error.to_string())?;
    empty_fleet(world).await
}

/// A host is deleted by hand; its Machine says so, and goes when it is told to.
pub async fn vanish(world: &World) -> Result<(), String> {
    let (_, host) = first(world)?;
    world.delete_by_hand(&host.id);
    reach("the loss told", || is_told(world, "HostGone")).await?;
    empty_fleet(world).await?;
    swept_up(world).await
}

/// A host is renamed by hand; its Machine says so, and goes without it.
pub async fn rename(world: &World) -> Result<(), String> {
    let (_, host) = first(world)?;
    world.rename_by_hand(&host.id, BY_HAND);
    reach("the other name told", || is_told(world, "NotOurs")).await?;
    empty_fleet(world).await
}

/// A host is locked for ever.
pub async fn lock(world: &World) -> Result<(), String> {
    let (_, host) = first(world)?;
    let locked = "locked".parse().map_err(|_| "no such status")?;
    world.scaleway().set_status(&host.id, locked);
    reach("the lock told", || is_told(world, "HostStuck")).await?;
    empty_fleet(world).await
}

/// Takes the name of the pool out of the one Machine, as one of an old version has none.
pub async fn name_no_pool(world: &World) -> Result<(), String> {
    let (machine, _) = first(world)?;
    let change = json!({"spec": {"adoptPoolPrefix": null}});
    Kind::Mac.patch(world, &machine.name_any(), change).await
}

/// A person detaches a Machine from its host, and deletes it.
pub async fn detach(world: &World) -> Result<(), String> {
    let (machine, host) = first(world)?;
    annotate(world, &machine, json!({annotation::PAUSED: "true"})).await?;
    reach("the pause told", || is_told(world, "Paused")).await?;
    pause(world, &host).await;
    let name = machine.name_any();
    Kind::Mac.patch_status(world, &name, json!({"status": {"serverID": null}})).await?;
    Kind::Mac.patch(world, &name, json!({"spec": {"providerID": null}})).await?;
    empty_fleet(world).await
}

/// Takes their time while nobody may call outside for a host, and then goes on.
async fn pause(world: &World, host: &HostView) {
    world.pause_told(&host.id);
    tokio::time::sleep(PAUSE).await;
    world.pause_ends(&host.id);
}

/// `clusterctl move`, as far as this cluster sees it.
pub async fn move_away(world: &World) -> Result<(), String> {
    let (machine, host) = first(world)?;
    Kind::Cluster.patch(world, CLUSTER, json!({"spec": {"paused": true}})).await?;
    let name = lease::name(&host.id);
    let moved = || {
        let leases = world.sight().objects("leases.coordination.k8s.io");
        let of_host = leases.iter().find(|lease| lease["metadata"]["name"] == *name);
        of_host.is_some_and(|l| l["metadata"]["annotations"][lease::MOVED] == "true")
    };
    reach("the move told", moved).await?;
    pause(world, &host).await;
    annotate(world, &machine, json!({annotation::DELETE_FOR_MOVE: ""})).await?;
    Kind::Mac.delete(world, &machine.name_any()).await?;
    reach("the object gone", || number(world, MACHINES) == 0).await
}

/// A person deletes an object and everything that it waits for; so many shall stay.
pub async fn force_delete(world: &World, stay: u32) -> Result<(), String> {
    let (machine, _) = first(world)?;
    let name = machine.name_any();
    let forced = json!({"metadata": {"finalizers": null}});
    Kind::Mac.delete(world, &name).await?;
    Kind::Mac.patch(world, &name, forced.clone()).await?;
    Kind::Machine.delete(world, &name).await?;
    Kind::Machine.patch(world, &name, forced).await?;
    scale(world, stay).await?;
    let left = || {
        let hosts = world.scaleway().hosts();
        hosts.iter().any(|host| host.name == name)
    };
    reach("its host taken back", || !left()).await?;
    reach("its host returned", || in_pool(world).is_some()).await?;
    swept_up(world).await?;
    fleet(world, usize::try_from(stay).unwrap_or(usize::MAX)).await
}

/// Machines come and go, some of them in mid-claim, while the sweep looks all the time.
pub async fn race(world: &World) -> Result<(), String> {
    scale(world, 3).await?;
    let claiming = || world.scaleway().hosts().iter().filter(|h| is_claim_name(&h.name)).count();
    reach("a claim", || has_host(world) && claiming() > 1).await?;
    scale(world, 1).await?;
    reach("one Machine", || machines(world).len() == 1).await?;
    scale(world, 2).await?;
    fleet(world, 2).await
}
