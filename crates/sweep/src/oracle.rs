//! What must hold at every moment, and what must hold at the end.

use std::collections::BTreeMap;

use applecart_api::keys::lease;
use applecart_api::name_class::NameClass;
use applecart_sim::world::{NAMESPACE, POOL_PREFIX, World};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::Value;

use crate::scenario::Scenario;

/// The objects that own hosts.
const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";

/// Looks for what must never be, at any moment.
pub fn always(world: &World) -> Result<(), String> {
    let machines = machine_names(world);
    let mut hosts_of: BTreeMap<String, u32> = BTreeMap::new();
    for host in world.scaleway().hosts() {
        match NameClass::read(&host.name, POOL_PREFIX) {
            // S5: a host in the pool is wiped, or its wipe was accepted.
            NameClass::Pool => {
                let used = world.is_bootstrapped(&host.id);
                if used && host.status.as_str() != "reinstalling" {
                    return Err(format!("{} is in the pool with its last owner's disk", host.id));
                }
            }
            NameClass::Claiming(marker) => {
                let uid = marker.uid.to_string();
                let machine = machines.get(&uid).cloned().unwrap_or(uid);
                *hosts_of.entry(machine).or_default() += 1;
            }
            NameClass::Other(name) => *hosts_of.entry(name).or_default() += 1,
            NameClass::Releasing(_) | NameClass::OldMarker | NameClass::Quarantined => {}
        }
    }
    // P1: one Machine, one host.
    match hosts_of.iter().find(|(_, hosts)| **hosts > 1) {
        Some((owner, hosts)) => Err(format!("{owner} has {hosts} hosts")),
        None => Ok(()),
    }
}

/// The name of each Machine's object, by its UID.
fn machine_names(world: &World) -> BTreeMap<String, String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let objects = world.api().objects(MACHINES);
    let metadata = objects.iter().map(|object| &object["metadata"]);
    metadata.map(|metadata| (text(&metadata["uid"]), text(&metadata["name"]))).collect()
}

/// Looks at what a scenario left behind.
pub async fn at_end(world: &World, scenario: Scenario) -> Result<(), String> {
    match scenario {
        Scenario::Claim => Ok(()),
        Scenario::Release | Scenario::EarlyDelete => nothing_left(world).await,
    }
}

/// C5: of a Machine that is gone, nothing stands outside.
async fn nothing_left(world: &World) -> Result<(), String> {
    for host in world.scaleway().hosts() {
        if NameClass::read(&host.name, POOL_PREFIX) != NameClass::Pool {
            return Err(format!("host {} is left under the name {}", host.id, host.name));
        }
    }
    let all = ListParams::default();
    let client = world.client();
    let held = ListParams::default().labels(lease::HOLDER);
    let leases: Api<Lease> = Api::namespaced(client.clone(), NAMESPACE);
    let nodes: Api<Node> = Api::all(client.clone());
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    let mut left: Vec<String> = vec![];
    left.extend(names(leases.list(&held).await)?);
    left.extend(names(nodes.list(&all).await)?);
    let of_machine =
        |name: &String| name.starts_with("tart-kubelet-") || name.ends_with("-bootstrap");
    left.extend(names(secrets.list(&all).await)?.into_iter().filter(of_machine));
    left.extend(names(accounts.list(&all).await)?.into_iter().filter(of_machine));
    left.extend(names(bindings.list(&all).await)?.into_iter().filter(of_machine));
    left.retain(|name| !name.ends_with("noop-bootstrap"));
    if left.is_empty() { Ok(()) } else { Err(format!("left behind: {}", left.join(", "))) }
}

fn names<K: kube::Resource + Clone>(
    list: kube::Result<kube::core::ObjectList<K>>,
) -> Result<Vec<String>, String> {
    let list = list.map_err(|error| format!("could not look: {error}"))?;
    Ok(list.items.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use applecart_sim::world::WorldSettings;

    use super::*;
    use crate::run::{settings, virtual_clock};

    /// A world in which one Machine is Ready.
    async fn ready() -> World {
        let world = World::new(WorldSettings { hosts: 2, ..settings(1, virtual_clock()) }).unwrap();
        world.apply().await.unwrap();
        tokio::select! {
            played = Scenario::Claim.play(&world) => played.unwrap(),
            () = world.run() => panic!("the world stopped"),
        }
        world
    }

    #[tokio::test(start_paused = true)]
    async fn an_unwiped_host_in_the_pool_is_found() {
        let world = ready().await;
        assert_eq!(always(&world), Ok(()));
        let hosts = world.scaleway().hosts();
        let used = hosts.iter().find(|host| world.is_bootstrapped(&host.id)).unwrap();
        world.scaleway().rename_host(&used.id, &format!("{POOL_PREFIX}by-hand"));
        assert!(always(&world).unwrap_err().contains("last owner's disk"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_second_host_of_one_machine_is_found() {
        let world = ready().await;
        let hosts = world.scaleway().hosts();
        let (used, free): (Vec<_>, Vec<_>) =
            hosts.iter().partition(|host| world.is_bootstrapped(&host.id));
        world.scaleway().rename_host(&free[0].id, &used[0].name);
        assert!(always(&world).unwrap_err().contains("has 2 hosts"));
        let (uid, _) = machine_names(&world).into_iter().next().unwrap();
        let digits = uid.replace('-', "");
        let marker = format!("tuist-claim-pending-0badcafe-{digits}");
        world.scaleway().rename_host(&free[0].id, &marker);
        assert!(always(&world).unwrap_err().contains("has 2 hosts"), "one claimed, one claiming");
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_machine_leaves_behind_is_found() {
        let world = ready().await;
        let left = at_end(&world, Scenario::Release).await.unwrap_err();
        assert!(left.contains("is left under the name"), "{left}");
        for host in world.scaleway().hosts() {
            world.scaleway().rename_host(&host.id, &format!("{POOL_PREFIX}{}", host.id));
        }
        let left = at_end(&world, Scenario::Release).await.unwrap_err();
        for kind in ["host-", "-bootstrap", "-token"] {
            assert!(left.contains(kind), "{kind} is not in {left}");
        }
    }
}
