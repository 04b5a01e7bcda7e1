//! What objects that are gone left behind: their agents' identities, passwords, Nodes and Pods
//! (C5), and the Leases of hosts that Scaleway does not have any more. Pure.

use std::collections::BTreeMap;

use applecart_api::ids::{ProviderId, ServerId, Zone};

use super::class::{Class, Names, classify};
use super::memory::Sightings;
use super::observed::{HostLease, Inventory, Owners, ZoneRead};
use super::survey::Task;
use crate::machine::{
    Action, Exactly, Guest, Host, Identity, Node, remove_access, remove_account, remove_node,
};

/// What there is in Kubernetes under the name of one object, besides that.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Belongings {
    /// Parts of its agent's identity, or its host's password.
    pub objects: bool,
    /// The host that its Node says it is.
    pub node: Option<ProviderId>,
}

/// Something to clean up, to be decided on a fresh read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanUp {
    /// The name of the object that is gone.
    pub machine: String,
    /// The host that its Node is of: no other Node of its name is touched.
    pub node: Option<ProviderId>,
}

/// What is left under one name, read afresh for one decision.
#[derive(Clone, Debug, Default)]
pub struct Leftovers {
    /// Parts of the agent's identity.
    pub identity: BTreeMap<Identity, Exactly>,
    /// The Secret with the host's password.
    pub credentials: Option<Exactly>,
    /// The Node.
    pub node: Option<Node>,
    /// The Pods that are bound to it.
    pub guests: Vec<Guest>,
}

/// The next thing to remove, unless somebody bears the name again.
#[must_use]
pub fn clean_up(task: &CleanUp, left: &Leftovers, owners: &Owners) -> Option<Action> {
    if owners.by_name(&task.machine).next().is_some() {
        return None;
    }
    let node = || {
        let wanted = task.node.as_ref()?.to_string();
        let node = left.node.as_ref().filter(|node| node.provider_id.as_ref() == Some(&wanted))?;
        Some(remove_node(node, &left.guests))
    };
    remove_access(&left.identity, left.credentials.as_ref())
        .or_else(node)
        .or_else(|| remove_account(&left.identity))
}

/// One host alone may be gone; so many at once were more likely never looked for.
const DOUBTED_FROM: usize = 2;

/// The zones whose lists show none of the hosts that Leases name there, and how many those are: so
/// does a key of another project, to which Scaleway denies, too, that it may read a host (S10).
/// Hosts that were asked to be deleted may all be gone.
pub(super) fn doubted(all: &Inventory) -> BTreeMap<Zone, usize> {
    let mut doubted = BTreeMap::new();
    for (zone, read) in &all.zones {
        let ZoneRead::Listed(hosts) = read else { continue };
        let there = |lease: &&HostLease| {
            lease.zone.as_ref() == Some(zone) && lease.lease.delete_requested_at.is_none()
        };
        let named = all.leases.values().filter(there).count();
        let shows_one = hosts.iter().any(|listed| all.leases.contains_key(&listed.host.id));
        if named >= DOUBTED_FROM && !shows_one {
            doubted.insert(zone.clone(), named);
        }
    }
    doubted
}

/// What was left behind a full interval ago, too. All zones must have been listed.
pub(super) fn abandoned(
    all: &Inventory,
    names: &Names,
    doubted: &BTreeMap<Zone, usize>,
    sightings: &mut Sightings<'_>,
) -> Vec<CleanUp> {
    let mut due = vec![];
    for (machine, belongings) in &all.belongings {
        if all.owners.by_name(machine).next().is_some() {
            continue;
        }
        // A Node alone may be anybody's, unless we had its host.
        let known = |id: &&ProviderId| belongings.objects || all.leases.contains_key(&id.server);
        let node = belongings.node.as_ref().filter(known);
        if (!belongings.objects && node.is_none()) || is_needed(all, names, machine, node) {
            continue;
        }
        // Its host may be one of those that are not shown.
        if node.map_or(!doubted.is_empty(), |node| doubted.contains_key(&node.zone)) {
            continue;
        }
        if sightings.abandoned(machine) {
            due.push(CleanUp { machine: machine.clone(), node: node.cloned() });
        }
    }
    due
}

/// Whether a host still lives by what is left: it bears the name, as a moved, detached or orphaned
/// one does, or a person gave it another.
fn is_needed(all: &Inventory, names: &Names, machine: &str, node: Option<&ProviderId>) -> bool {
    let unlisted = |id: &ProviderId| !matches!(all.zones.get(&id.zone), Some(ZoneRead::Listed(_)));
    if node.is_some_and(unlisted) {
        return true;
    }
    let mut hosts = all.zones.values().flat_map(ZoneRead::hosts);
    hosts.any(|host| {
        let is_node = node.is_some_and(|id| id.server == host.id);
        host.name == machine || (is_node && !is_past(all, names, host))
    })
}

/// Whether a host has nothing of its last owner on it any more, or nobody shall use it.
fn is_past(all: &Inventory, names: &Names, host: &Host) -> bool {
    let lease = all.leases.get(&host.id);
    let owned = all.owners.of(host, lease).is_some();
    match classify(host, owned, lease, names) {
        Class::Pool | Class::Claiming | Class::Claimed | Class::Quarantined => true,
        Class::Releasing | Class::Orphan | Class::Retiring | Class::Foreign => false,
    }
}

/// Leases of hosts that were missing from their zones, or back from another cluster, a full
/// interval ago, too, and that nobody claims to have.
pub(super) fn vanished(
    all: &Inventory,
    names: &Names,
    doubted: &BTreeMap<Zone, usize>,
    sightings: &mut Sightings<'_>,
) -> Vec<Task> {
    let mut due = vec![];
    for (server, lease) in &all.leases {
        let Some(zone) = &lease.zone else { continue };
        let Some(ZoneRead::Listed(hosts)) = all.zones.get(zone) else {
            sightings.keep_vanished(server);
            continue;
        };
        // What protects a host is given up only if the host is certainly gone.
        if doubted.contains_key(zone) && (lease.lease.unwiped || lease.moved) {
            sightings.keep_vanished(server);
            continue;
        }
        let wanted = all.owners.by_server(server).next().is_some()
            || lease.holder().is_some_and(|holder| all.owners.holder_lives(holder));
        let host = hosts.iter().map(|listed| &listed.host).find(|host| host.id == *server);
        if wanted || host.is_some_and(|host| !is_returned_elsewhere(host, lease, names)) {
            continue;
        }
        // By its Lease a Node is known to be ours: that goes first.
        if sightings.vanished(server) && !has_node(all, server) {
            due.push(Task::DropLease { zone: Zone::clone(zone), server: server.clone() });
        }
    }
    due
}

/// Whether a moved object's host was wiped by the cluster that it went to: that gives a pool name
/// with the host's id, and nothing that is known of it here is true any more.
pub(super) fn is_returned_elsewhere(host: &Host, lease: &HostLease, names: &Names) -> bool {
    lease.moved && names.is_pool(&host.name) && host.name.ends_with(host.id.as_str())
}

fn has_node(all: &Inventory, server: &ServerId) -> bool {
    let mut nodes = all.belongings.values().filter_map(|belongings| belongings.node.as_ref());
    nodes.any(|id| id.server == *server)
}
