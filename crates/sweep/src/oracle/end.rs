//! What must hold once a story is over.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::keys::lease;
use applecart_api::name_class::NameClass;
use applecart_sim::faults::{Class, Edge, Process, Step};
use applecart_sim::scaleway::HostView;
use applecart_sim::world::{POOL_PREFIX, World};
use serde_json::Value;

use crate::story::{Leaves, MACHINES, Story, all, is_claim_name, number};

/// Every destructive call is sent within this time of a read of its host.
const FENCE: Duration = Duration::from_secs(10);

/// Looks at all that was done on the way.
pub fn on_the_way(world: &World, steps: &[Step]) -> Result<(), String> {
    fenced(steps)?;
    secrets(world, steps)
}

/// Looks at what a story left behind.
pub fn at_end(world: &World, story: Story) -> Result<(), String> {
    let other = |host: &HostView| match story.leaves() {
        Leaves::Fleet(_) => has_owner(world, host),
        Leaves::Nothing => false,
        Leaves::Quarantined => is_set_aside(world, host),
        Leaves::Retiring => host.deletion_scheduled,
        Leaves::ByHand => world.sight().hands().name(&host.id).as_ref() == Some(&host.name),
        Leaves::Stranded | Leaves::Working => is_claim_name(&host.name) && host.generation == 0,
    };
    let others = hosts_are_in_place(world, &other)?;
    leases_are_needed(world)?;
    match story.leaves() {
        Leaves::Fleet(vms) => {
            // C2
            all_are(world, others, number(world, MACHINES))?;
            no_spare_vms(world, vms)
        }
        Leaves::Nothing => {
            all_are(world, others, 0)?;
            no_node(world)?;
            nothing_left(world)
        }
        Leaves::Quarantined | Leaves::Retiring => {
            all_are(world, others, 1)?;
            no_node(world)?;
            nothing_left(world)
        }
        // What is on such a host is not ours any more, its Node included.
        Leaves::ByHand | Leaves::Stranded => {
            all_are(world, others, 1)?;
            nothing_left(world)
        }
        Leaves::Working => {
            all_are(world, others, 1)?;
            works_on(world)
        }
    }
}

/// Every host is in the pool, nobody's here, or as the story says; how many the last are.
fn hosts_are_in_place(world: &World, other: &dyn Fn(&HostView) -> bool) -> Result<usize, String> {
    let mut others = 0;
    for host in world.scaleway().hosts() {
        if other(&host) {
            others += 1;
        } else if !is_class(&host, &NameClass::Pool) && host.name != world.foreign_name() {
            return Err(format!("left-behind: host {} is called {}", host.id, host.name));
        }
    }
    Ok(others)
}

/// P1: whoever holds the Lease of a host is a Machine that lives, and has that host.
fn leases_are_needed(world: &World) -> Result<(), String> {
    for held in world.sight().objects("leases.coordination.k8s.io") {
        let holder = held["metadata"]["labels"][lease::HOLDER].as_str();
        let host = held["metadata"]["name"].as_str().and_then(|name| name.strip_prefix("host-"));
        let (Some(uid), Some(host)) = (holder, host) else { continue };
        let has = |machine: &Value| {
            machine["metadata"]["uid"] == uid && machine["status"]["serverID"] == host
        };
        if all(world, MACHINES, |machine| !has(machine)) {
            let holder = &held["spec"]["holderIdentity"];
            return Err(format!("spare-lease: {holder} holds {host}, and does not have it"));
        }
    }
    Ok(())
}

fn all_are(world: &World, hosts: usize, wanted: usize) -> Result<(), String> {
    if hosts == wanted {
        return Ok(());
    }
    let names: Vec<String> = world.scaleway().hosts().into_iter().map(|host| host.name).collect();
    Err(format!("left-behind: of {} not {wanted} are as they should be", names.join(", ")))
}

fn is_class(host: &HostView, class: &NameClass) -> bool {
    NameClass::read(&host.name, POOL_PREFIX) == *class
}

/// Set aside by its name, or by its Lease where Scaleway lets nobody rename it.
fn is_set_aside(world: &World, host: &HostView) -> bool {
    let says = |lease: &Value| {
        lease["metadata"]["name"] == lease::name(&host.id)
            && lease["metadata"]["annotations"][lease::QUARANTINED] == "true"
    };
    is_class(host, &NameClass::Quarantined)
        || !all(world, "leases.coordination.k8s.io", |lease| !says(lease))
}

fn has_owner(world: &World, host: &HostView) -> bool {
    let owns = |machine: &Value| {
        machine["metadata"]["name"] == *host.name
            && machine["status"]["serverID"] == host.id.as_str()
    };
    !all(world, MACHINES, |machine| !owns(machine))
}

/// Section 3 of the design: a host is changed only right after it was read, and so was its Lease:
/// what the process itself last did to it is no read.
fn fenced(steps: &[Step]) -> Result<(), String> {
    let mut read: BTreeMap<(&Process, String), Duration> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.edge == Edge::Scaleway) {
        let Some(server) = step.call.split("servers/").nth(1) else { continue };
        let server: String =
            server.chars().take_while(|c| *c == '-' || c.is_alphanumeric()).collect();
        match step.class {
            Class::Read => drop(read.insert((&step.process, server), step.at)),
            Class::Effect | Class::Heartbeat => {
                let last = read.get(&(&step.process, server.clone()));
                if last.is_none_or(|at| step.at.saturating_sub(*at) > FENCE) {
                    return Err(format!(
                        "unfenced: {} was not read before step {}",
                        server, step.number
                    ));
                }
            }
            Class::Event => {}
        }
    }
    unleased(steps)
}

/// A provider asks Kubernetes for the host's Lease after its own last effect on host or Lease.
fn unleased(steps: &[Step]) -> Result<(), String> {
    let id = |text: &str| -> String {
        text.chars().take_while(|c| *c == '-' || c.is_alphanumeric()).collect()
    };
    let mut asked: BTreeSet<(&Process, String)> = BTreeSet::new();
    for step in steps.iter().filter(|step| step.process.is_provider()) {
        let lease = step.call.split("/host-").nth(1).filter(|_| step.edge == Edge::Kubernetes);
        let host = step.call.split("servers/").nth(1).filter(|_| step.edge == Edge::Scaleway);
        let Some(server) = lease.or(host).map(id) else { continue };
        let key = (&step.process, server);
        match step.class {
            Class::Read if lease.is_some() => drop(asked.insert(key)),
            Class::Effect if host.is_some() && !asked.contains(&key) => {
                let (number, server) = (step.number, key.1);
                return Err(format!(
                    "unleased: the Lease of {server} was not read before {number}"
                ));
            }
            Class::Effect => drop(asked.remove(&key)),
            Class::Read | Class::Heartbeat | Class::Event => {}
        }
    }
    Ok(())
}

/// S16: no password anywhere but in Secrets.
fn secrets(world: &World, steps: &[Step]) -> Result<(), String> {
    let passwords = world.passwords();
    for resource in world.sight().resources() {
        if resource == "secrets" {
            continue;
        }
        for object in world.sight().objects(&resource) {
            let text = object.to_string();
            if passwords.iter().any(|password| text.contains(password.as_str())) {
                let name = object["metadata"]["name"].as_str().unwrap_or_default();
                return Err(format!("secrets: a password is in {resource} {name}"));
            }
        }
    }
    let told =
        |step: &&Step| passwords.iter().any(|password| step.call.contains(password.as_str()));
    match steps.iter().find(told) {
        Some(step) => Err(format!("secrets: a password is in step {}", step.number)),
        None => Ok(()),
    }
}

/// C3: as many VMs as Pods.
fn no_spare_vms(world: &World, wanted: usize) -> Result<(), String> {
    let vms: usize = world.sight().tarts().map(|(_, tart)| tart.vms().len()).sum();
    if vms == wanted { Ok(()) } else { Err(format!("vms-left: {vms} VMs, not {wanted}")) }
}

/// C5: a Machine's Node goes with it.
fn no_node(world: &World) -> Result<(), String> {
    let left = names(world, "nodes", |_| true);
    if left.is_empty() { Ok(()) } else { Err(format!("left-behind: {}", left.join(", "))) }
}

/// C5: of a Machine that is gone, nothing stands outside.
fn nothing_left(world: &World) -> Result<(), String> {
    let held = |lease: &Value| !lease["metadata"]["labels"][lease::HOLDER].is_null();
    let mut left = names(world, "leases.coordination.k8s.io", held);
    left.extend(of_machines(world));
    if left.is_empty() { Ok(()) } else { Err(format!("left-behind: {}", left.join(", "))) }
}

/// A Mac that is nobody's Machine any more has all that it needs, and its Node is Ready.
fn works_on(world: &World) -> Result<(), String> {
    let ready = |node: &Value| {
        let is = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is))
    };
    let agents = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        name.starts_with("tart-kubelet-")
    };
    let whole = IDENTITY.iter().all(|resource| !names(world, resource, agents).is_empty());
    if whole && names(world, "nodes", ready).len() == 1 {
        return Ok(());
    }
    Err("cut-off: the Mac of a Machine that was taken elsewhere does not work on".to_owned())
}

/// What an agent is known by: its token, its account, and what that may do.
const IDENTITY: [&str; 3] =
    ["secrets", "serviceaccounts", "clusterrolebindings.rbac.authorization.k8s.io"];

/// What there is for Machines: their agents' identities and their hosts' passwords.
fn of_machines(world: &World) -> Vec<String> {
    let of_machine = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let password = name.ends_with("-bootstrap") && !name.ends_with("noop-bootstrap");
        name.starts_with("tart-kubelet-") || password
    };
    IDENTITY.iter().flat_map(|resource| names(world, resource, of_machine)).collect()
}

fn names(world: &World, resource: &str, which: impl Fn(&Value) -> bool) -> Vec<String> {
    let objects = world.sight().objects(resource);
    let chosen = objects.iter().filter(|object| which(object));
    chosen.map(|object| object["metadata"]["name"].as_str().unwrap_or_default().into()).collect()
}
