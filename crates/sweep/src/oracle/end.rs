//! What must hold once a story is over.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::keys::lease;
use applecart_api::name_class::NameClass;
use applecart_sim::faults::{Class, Edge, Step};
use applecart_sim::world::{POOL_PREFIX, World};
use serde_json::Value;

use crate::story::Story;

/// Every destructive call is sent within this time of a read of its host.
const FENCE: Duration = Duration::from_secs(10);

/// Looks at all that was done on the way.
pub fn on_the_way(world: &World, steps: &[Step]) -> Result<(), String> {
    fenced(steps)?;
    secrets(world, steps)
}

/// Looks at what a story left behind.
pub fn at_end(world: &World, story: Story) -> Result<(), String> {
    match story {
        Story::Release
        | Story::EarlyDelete
        | Story::DeleteAnywhere
        | Story::Drain
        | Story::TwoLeaders => nothing_left(world),
        Story::Claim | Story::Scale | Story::Pod | Story::WarmUp | Story::Job => {
            no_spare_vms(world, story)
        }
    }
}

/// Section 3 of the design: a host is changed only right after it was read.
fn fenced(steps: &[Step]) -> Result<(), String> {
    let mut read: BTreeMap<String, Duration> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.edge == Edge::Scaleway) {
        let Some(server) = step.call.split("servers/").nth(1) else { continue };
        let server: String =
            server.chars().take_while(|c| *c == '-' || c.is_alphanumeric()).collect();
        match step.class {
            Class::Read => drop(read.insert(server, step.at)),
            Class::Effect | Class::Heartbeat => {
                let fresh =
                    read.get(&server).is_some_and(|at| step.at.saturating_sub(*at) <= FENCE);
                if !fresh {
                    return Err(format!(
                        "unfenced: {} was not read before step {}",
                        server, step.number
                    ));
                }
            }
            Class::Event => {}
        }
    }
    Ok(())
}

/// S16: no password anywhere but in Secrets.
fn secrets(world: &World, steps: &[Step]) -> Result<(), String> {
    let passwords = world.passwords();
    for resource in world.api().resources() {
        if resource == "secrets" {
            continue;
        }
        for object in world.api().objects(&resource) {
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
fn no_spare_vms(world: &World, story: Story) -> Result<(), String> {
    let wanted = usize::from(story == Story::Job);
    let vms: usize = world.sight().tarts().map(|(_, tart)| tart.vms().len()).sum();
    if vms == wanted { Ok(()) } else { Err(format!("vms-left: {vms} VMs, not {wanted}")) }
}

/// C5: of a Machine that is gone, nothing stands outside.
fn nothing_left(world: &World) -> Result<(), String> {
    for host in world.scaleway().hosts() {
        let pool = NameClass::read(&host.name, POOL_PREFIX) == NameClass::Pool;
        if !pool && host.name != world.foreign_name() {
            return Err(format!("left-behind: host {} is called {}", host.id, host.name));
        }
    }
    let held = |lease: &Value| !lease["metadata"]["labels"][lease::HOLDER].is_null();
    let mut left = names(world, "leases.coordination.k8s.io", held);
    left.extend(names(world, "nodes", |_| true));
    let of_machine = |object: &Value| {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let password = name.ends_with("-bootstrap") && !name.ends_with("noop-bootstrap");
        name.starts_with("tart-kubelet-") || password
    };
    for resource in ["secrets", "serviceaccounts", "clusterrolebindings.rbac.authorization.k8s.io"]
    {
        left.extend(names(world, resource, of_machine));
    }
    if left.is_empty() { Ok(()) } else { Err(format!("left-behind: {}", left.join(", "))) }
}

fn names(world: &World, resource: &str, which: impl Fn(&Value) -> bool) -> Vec<String> {
    let objects = world.api().objects(resource);
    let chosen = objects.iter().filter(|object| which(object));
    chosen.map(|object| object["metadata"]["name"].as_str().unwrap_or_default().into()).collect()
}
