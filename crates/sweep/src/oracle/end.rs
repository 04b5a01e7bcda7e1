//! What must hold once a story is over.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::{label, lease, owned};
use applecart_api::name_class::NameClass;
use applecart_sim::faults::{Class, Edge, Fault, Process, Step};
use applecart_sim::scaleway::HostView;
use applecart_sim::world::{POOL_PREFIX, Pause, World};
use serde_json::Value;

use super::{host_of, renamed};
use crate::run::since_the_beginning;
use crate::story::{LEASES, Leaves, MACHINES, Story, all, is_claim_name, number};

/// Every destructive call is sent within this time of a read of its host.
const FENCE: Duration = Duration::from_secs(10);

/// A call that was decided on before a pause was known is over by then.
const IN_FLIGHT: Duration = Duration::from_secs(30);

/// How a provider reads what opens GitHub.
const GITHUB_APP: &str = "get secrets default/app";

/// Looks at all that was done on the way.
pub fn on_the_way(world: &World, steps: &[Step]) -> Result<(), String> {
    fenced(steps)?;
    conditional(steps)?;
    paused(world, steps)?;
    registrations(world, steps)
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
    pool_is_adoptable(world)?;
    accounts_are_needed(world)?;
    match story.leaves() {
        Leaves::Fleet(vms) => {
            // C2
            all_are(world, others, number(world, MACHINES))?;
            nobody_is_forgotten(world)?;
            all_are_ready(world)?;
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
    for held in world.sight().objects(LEASES) {
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

/// A free host that was not wiped since its last claim is one that nobody ever adopts.
fn pool_is_adoptable(world: &World) -> Result<(), String> {
    let leases = world.sight().objects(LEASES);
    for host in world.scaleway().hosts().iter().filter(|host| is_class(host, &NameClass::Pool)) {
        let name = lease::name(&host.id);
        let unwiped = |lease: &&Arc<Value>| {
            let metadata = &lease["metadata"];
            metadata["name"] == *name
                && metadata["labels"][lease::HOLDER].is_null()
                && metadata["annotations"][lease::UNWIPED] == "true"
        };
        if leases.iter().any(|lease| unwiped(&lease)) {
            return Err(format!("unadoptable: {} is free, and says unwiped", host.name));
        }
    }
    Ok(())
}

/// S43: whoever has the account of a runner is one.
fn accounts_are_needed(world: &World) -> Result<(), String> {
    let runners = |object: &Value| !object["metadata"]["labels"][label::RUNNER_POOL].is_null();
    let pods = names(world, "pods", runners);
    let mut accounts = names(world, "serviceaccounts", runners);
    accounts.retain(|account| !pods.contains(account));
    match accounts.first() {
        Some(account) => Err(format!("left-behind: account {account} of no runner")),
        None => Ok(()),
    }
}

/// Every Machine says that it is Ready, and its Node says so itself.
fn all_are_ready(world: &World) -> Result<(), String> {
    let is_not = |machine: &Value| machine["status"]["ready"] != true;
    let mut others = names(world, MACHINES, is_not);
    others.extend(names(world, "nodes", |node| !is_ready(node)));
    match others.first() {
        Some(name) => Err(format!("not-ready: {name} is not Ready any more")),
        None => Ok(()),
    }
}

fn is_ready(node: &Value) -> bool {
    let is = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is))
}

/// C5: there is a Node, an identity and a password for every Machine, and none for anybody else.
fn nobody_is_forgotten(world: &World) -> Result<(), String> {
    let machines = names(world, MACHINES, |_| true);
    let wanted = |name: fn(&str) -> String| sorted(machines.iter().map(|m| name(m)).collect());
    let agents = |object: &Value| name_of(object).starts_with("tart-kubelet-");
    let passwords = |object: &Value| is_password(name_of(object));
    for (resource, there, wanted) in [
        ("nodes", names(world, "nodes", |_| true), wanted(str::to_owned)),
        (ACCOUNTS, names(world, ACCOUNTS, agents), wanted(owned::agent)),
        (BINDINGS, names(world, BINDINGS, agents), wanted(owned::agent)),
        (SECRETS, names(world, SECRETS, agents), wanted(owned::agent_token)),
        (SECRETS, names(world, SECRETS, passwords), wanted(owned::credentials)),
    ] {
        let there = sorted(there);
        if there != wanted {
            let (there, wanted) = (there.join(", "), wanted.join(", "));
            return Err(format!("unmatched: {resource} are {there:?}, must be {wanted:?}"));
        }
    }
    Ok(())
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
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
    is_class(host, &NameClass::Quarantined) || !all(world, LEASES, |lease| !says(lease))
}

fn has_owner(world: &World, host: &HostView) -> bool {
    let owns = |machine: &Value| {
        machine["metadata"]["name"] == *host.name
            && machine["status"]["serverID"] == host.id.as_str()
    };
    !all(world, MACHINES, |machine| !owns(machine))
}

/// When a process last read something of a host, and heard it. What it read dies with it.
#[derive(Default)]
struct Heard<'a>(BTreeMap<(&'a Process, &'a str), Duration>);

impl<'a> Heard<'a> {
    fn note(&mut self, step: &'a Step, server: &'a str) {
        if step.succeeded() {
            self.0.insert((&step.process, server), step.at);
        }
    }

    fn is_fresh(&self, step: &Step, server: &str) -> bool {
        let at = self.0.get(&(&step.process, server));
        at.is_some_and(|at| step.at.saturating_sub(*at) <= FENCE)
    }

    fn forget(&mut self, step: &'a Step, server: &'a str) {
        self.0.remove(&(&step.process, server));
    }

    fn survive(&mut self, step: &Step) {
        if matches!(step.fault, Some(Fault::CrashBefore | Fault::CrashDuring | Fault::CrashAfter)) {
            self.0.retain(|(process, _), _| **process != step.process);
        }
    }
}

/// Section 3 of the design: a host is changed only right after it was read, and so was its Lease:
/// what the process itself last did to it is no read.
fn fenced(steps: &[Step]) -> Result<(), String> {
    let mut read = Heard::default();
    for step in steps {
        if let Some(server) = host_of(step).filter(|_| step.edge == Edge::Scaleway) {
            match step.class {
                Class::Read => read.note(step, server),
                Class::Effect | Class::Heartbeat if !read.is_fresh(step, server) => {
                    let number = step.number;
                    return Err(format!("unfenced: {server} was not read before step {number}"));
                }
                Class::Effect | Class::Heartbeat | Class::Event => {}
            }
        }
        read.survive(step);
    }
    unleased(steps)
}

/// A provider asks Kubernetes for the host's Lease after its own last effect on host or Lease.
fn unleased(steps: &[Step]) -> Result<(), String> {
    let mut asked = Heard::default();
    for step in steps.iter().filter(|step| step.process.is_provider()) {
        if let Some(server) = host_of(step) {
            let is_host = step.edge == Edge::Scaleway;
            match step.class {
                Class::Read if !is_host => asked.note(step, server),
                Class::Effect if is_host && !asked.is_fresh(step, server) => {
                    let number = step.number;
                    return Err(format!(
                        "unleased: the Lease of {server} was not read before {number}"
                    ));
                }
                Class::Effect => asked.forget(step, server),
                Class::Read | Class::Heartbeat | Class::Event => {}
            }
        }
        asked.survive(step);
    }
    Ok(())
}

/// G4: whoever removes something says which, by uid or version: by then, something else may have
/// its name.
fn conditional(steps: &[Step]) -> Result<(), String> {
    let removes = |step: &&Step| {
        step.edge == Edge::Kubernetes && step.class == Class::Effect && is_delete(&step.call)
    };
    match steps.iter().filter(removes).find(|step| !step.is_conditional()) {
        None => Ok(()),
        Some(Step { number, process, call, .. }) => {
            Err(format!("unconditional: {process} does not say which: {call}, step {number}"))
        }
    }
}

fn is_delete(call: &str) -> bool {
    matches!(call.split(' ').next(), Some("delete" | "deletecollection"))
}

/// S9: as long as a person knows an object to be paused, nobody calls Scaleway or its Mac for it.
fn paused(world: &World, steps: &[Step]) -> Result<(), String> {
    for Pause { host, from, until } in world.sight().hands().pauses() {
        let from = since_the_beginning(from) + IN_FLIGHT;
        let until = until.map_or(Duration::MAX, since_the_beginning);
        let mac = host.as_str().get(..8).unwrap_or_default();
        let outside = |step: &&Step| match step.edge {
            Edge::Scaleway => host_of(step) == Some(host.as_str()),
            Edge::Ssh => step.call.starts_with(mac),
            Edge::Kubernetes | Edge::Tart | Edge::Github => false,
        };
        let mut meanwhile = steps.iter().filter(|step| (from..until).contains(&step.at));
        if let Some(Step { number, call, .. }) = meanwhile.find(outside) {
            return Err(format!("paused: {call} while it was paused, step {number}"));
        }
    }
    Ok(())
}

/// C5: whoever is registered at GitHub has a Machine, unless nobody answered who was asked to end
/// that.
fn registrations(world: &World, steps: &[Step]) -> Result<(), String> {
    let machines = names(world, MACHINES, |_| true);
    let registered = world.github().runners();
    let left = |runner: &&String| !machines.contains(runner) && !is_unanswered(runner, steps);
    match registered.iter().find(left) {
        Some(runner) => Err(format!("left-behind: runner {runner} is still registered at GitHub")),
        None => Ok(()),
    }
}

/// Whether GitHub, or the Secret that opens it, did not answer since the host of this name was to
/// lose it: nobody waits for that. Who dies on the way looks again.
fn is_unanswered(runner: &str, steps: &[Step]) -> bool {
    let mut names = steps.iter().filter_map(|step| Some((step.number, renamed(step)?)));
    let host = names.find(|(_, (_, name))| *name == runner).map(|(_, (host, _))| host);
    let lost = names.find(|(_, (renamed, name))| Some(*renamed) == host && *name != runner);
    let Some((began, _)) = lost else { return false };
    let crashes = [Some(Fault::CrashBefore), Some(Fault::CrashAfter)];
    steps.iter().any(|step| {
        let asks = step.edge == Edge::Github || step.call == GITHUB_APP;
        asks && step.number > began && step.fault.is_some() && !crashes.contains(&step.fault)
    })
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
    let mut left = names(world, LEASES, held);
    left.extend(of_machines(world));
    if left.is_empty() { Ok(()) } else { Err(format!("left-behind: {}", left.join(", "))) }
}

/// A Mac that is nobody's Machine any more has all that it needs, and its Node is Ready.
fn works_on(world: &World) -> Result<(), String> {
    let agents = |object: &Value| name_of(object).starts_with("tart-kubelet-");
    let whole = IDENTITY.iter().all(|resource| !names(world, resource, agents).is_empty());
    if whole && names(world, "nodes", is_ready).len() == 1 {
        return Ok(());
    }
    Err("cut-off: the Mac of a Machine that was taken elsewhere does not work on".to_owned())
}

/// What an agent is known by: its token, its account, and what that may do.
const IDENTITY: [&str; 3] = [SECRETS, ACCOUNTS, BINDINGS];
const SECRETS: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
const BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";

/// What there is for Machines: their agents' identities and their hosts' passwords.
fn of_machines(world: &World) -> Vec<String> {
    let of_machine = |object: &Value| {
        let name = name_of(object);
        name.starts_with("tart-kubelet-") || is_password(name)
    };
    IDENTITY.iter().flat_map(|resource| names(world, resource, of_machine)).collect()
}

fn is_password(secret: &str) -> bool {
    secret.ends_with("-bootstrap") && !secret.ends_with("noop-bootstrap")
}

pub(super) fn name_of(object: &Value) -> &str {
    object["metadata"]["name"].as_str().unwrap_or_default()
}

fn names(world: &World, resource: &str, which: impl Fn(&Value) -> bool) -> Vec<String> {
    let objects = world.sight().objects(resource);
    let chosen = objects.iter().filter(|object| which(object));
    chosen.map(|object| name_of(object).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use applecart_sim::faults::Terms;

    use super::*;

    fn trace(calls: &[(Edge, &str, Option<Fault>)]) -> Vec<Step> {
        let step = |(number, (edge, call, fault)): (usize, &(Edge, &str, Option<Fault>))| Step {
            number,
            at: Duration::ZERO,
            process: Process::Provider,
            edge: *edge,
            class: Class::Effect,
            terms: Terms::Plain,
            call: (*call).to_owned(),
            answer: "200".to_owned(),
            fault: *fault,
        };
        calls.iter().enumerate().map(step).collect()
    }

    #[test]
    fn a_registration_may_stay_only_if_nobody_answered_who_was_asked_to_end_it() {
        use Edge::{Github, Kubernetes, Scaleway};
        let named = (Scaleway, "PATCH servers/5fb0-ab to a", None);
        let released = (Scaleway, "PATCH servers/5fb0-ab to tuist-release-pending-1-2", None);
        let other = (Scaleway, "PATCH servers/77aa-00 to tuist-release-pending-1-3", None);
        let asked = |fault| (Github, "POST /app/installations/34/access_tokens", Some(fault));
        let opened = |fault| (Kubernetes, GITHUB_APP, Some(fault));
        for (excused, calls) in [
            (true, vec![named, released, asked(Fault::Error)]),
            (true, vec![named, released, opened(Fault::TimeOut)]),
            (false, vec![named, asked(Fault::Error), released]),
            (false, vec![named, opened(Fault::TimeOut), released]),
            (false, vec![named, other, asked(Fault::Error), released]),
            (false, vec![named, released, asked(Fault::CrashAfter)]),
            (false, vec![named, released]),
            (false, vec![other, asked(Fault::Error)]),
        ] {
            assert_eq!(is_unanswered("a", &trace(&calls)), excused, "{calls:?}");
        }
    }
}
