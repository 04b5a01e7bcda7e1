//! What must never be, whatever happened: looked at after every effect. Each finding begins with
//! the oracle's name.

mod jobs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use applecart_api::ids::ServerId;
use applecart_api::keys::{annotation, label};
use applecart_api::name_class::NameClass;
use applecart_core::pod::{PodId, VmName};
use serde_json::Value;

use self::jobs::Jobs;
use crate::faults::Step;
use crate::scaleway::HostView;
use crate::world::{Hands, POOL_PREFIX, Sight};

/// The objects that own hosts.
const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";
/// The objects that own runners.
const POOLS: &str = "runnerpools.tuist.dev";
/// How often a password may be tried that is wrong: macOS locks the account at the third time.
const MOST_TRIES: u32 = 2;

/// Looks at one world after every effect, and remembers what it must compare.
pub struct Safety {
    sight: Sight,
    follows_jobs: bool,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    /// The hosts that there were, and whether their deletion was scheduled.
    hosts: Option<BTreeMap<ServerId, HostView>>,
    /// The host that was bought for each Machine that asked for one, by the Machine's UID.
    bought: BTreeMap<String, ServerId>,
    /// How often each host was wiped.
    wipes: BTreeMap<ServerId, u64>,
    /// The names of hosts that are nobody's here.
    foreign: BTreeMap<ServerId, (String, u64)>,
    /// How far each Pod was that there is.
    phases: BTreeMap<String, String>,
    /// The runners that have a job, by UID.
    busy: BTreeMap<String, String>,
    /// Where these jobs run, until they are over, by the runner's UID.
    jobs: Jobs,
    /// How many runners of each pool lived, by the pool's UID.
    alive: BTreeMap<String, usize>,
    /// Machines that were reported provisioned.
    provisioned: BTreeSet<String>,
}

/// What is there, read once for all oracles.
struct Seen {
    hosts: Vec<HostView>,
    machines: Vec<Arc<Value>>,
    nodes: Vec<Arc<Value>>,
    pods: Vec<Arc<Value>>,
}

impl Safety {
    /// How many things one look looks for in a world whose jobs nobody follows.
    pub const INVARIANTS: u64 = 20;

    /// Oracles for the world that is seen.
    #[must_use]
    pub fn new(sight: Sight) -> Self {
        let safety = Self { sight, follows_jobs: true, memory: Mutex::default() };
        // What is there before the first effect is what it is compared with.
        let _ = safety.look();
        safety
    }

    /// The same without the VMs of jobs: in a demo with chaos that oracle speaks, and it is not
    /// known why (docs/sweep.md, Limits).
    #[must_use]
    pub fn without_jobs(self) -> Self {
        Self { follows_jobs: false, ..self }
    }

    /// Looks for what must never be.
    pub fn check(&self, step: &Step) -> Result<(), String> {
        self.rolls_one_by_one(step)?;
        self.look()
    }

    /// S39: whoever takes a runner of an old image away takes the only one that is on its way: none
    /// before it still leaves, and every new one runs.
    fn rolls_one_by_one(&self, step: &Step) -> Result<(), String> {
        let deletes = step.process.is_runner_pools() && step.succeeded();
        let Some(id) = step.call.strip_prefix("delete pods ").filter(|_| deletes) else {
            return Ok(());
        };
        let Some((namespace, name)) = id.split_once('/') else { return Ok(()) };
        let pods = self.sight.objects("pods");
        let is = |object: &Value, name: &str| {
            let metadata = &object["metadata"];
            metadata["name"] == name && metadata["namespace"] == namespace
        };
        // One that is gone already, or ended, left nobody waiting.
        let Some(taken) = pods.iter().find(|pod| is(pod, name)) else { return Ok(()) };
        let pool = text(&taken["metadata"]["labels"][label::RUNNER_POOL]);
        let pools = self.sight.objects(POOLS);
        let Some(pool) = pools.iter().find(|object| is(object, pool)) else { return Ok(()) };
        let roll = Roll { pool, pods: &pods, nodes: &self.sight.objects("nodes") };
        if !roll.is_stale(taken) || is_ended(taken) || is_deleted(pool) || roll.is_too_big() {
            return Ok(());
        }
        match roll.on_their_way() {
            0 | 1 => Ok(()),
            more => {
                let pool = text(&pool["metadata"]["name"]);
                Err(format!("rolled-at-once: {more} runners of {pool} are on their way"))
            }
        }
    }

    /// Looks without an effect.
    pub fn look(&self) -> Result<(), String> {
        let seen = Seen {
            hosts: self.sight.scaleway().hosts(),
            machines: self.sight.objects(MACHINES),
            nodes: self.sight.objects("nodes"),
            pods: self.sight.objects("pods"),
        };
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let hands = self.sight.hands();
        self.pool_is_wiped(&seen)?;
        memory.foreign_is_untouched(&seen, hands)?;
        memory.rented_for_who_asks(&seen, hands)?;
        one_host_each(&seen)?;
        one_owner_each(&seen, self.sight.is_shared())?;
        bound_to_one(&seen)?;
        memory.nobody_is_wiped(&seen)?;
        memory.pods_move_forward(&seen)?;
        memory.provisioned_stays(&seen, hands)?;
        ready_has_a_node(&seen)?;
        emptied_one_by_one(&seen)?;
        memory.busy_runners_stay(&seen)?;
        if self.follows_jobs {
            memory.jobs_run_to_their_end(&seen, &self.sight)?;
        }
        jobs::end_is_told(&seen, &self.sight)?;
        memory.runners_are_wanted(&seen, &self.sight.objects(POOLS))?;
        self.runners_have_accounts(&seen)?;
        self.nobody_guesses()?;
        self.vms_have_pods(&seen)
    }

    /// S5: a host in the pool is wiped, or its wipe was accepted.
    fn pool_is_wiped(&self, seen: &Seen) -> Result<(), String> {
        for host in &seen.hosts {
            let pool = NameClass::read(&host.name, POOL_PREFIX) == NameClass::Pool;
            let used = self.sight.is_used(&host.id);
            if pool && used && host.status.as_str() != "reinstalling" {
                let id = &host.id;
                return Err(format!(
                    "pool-unwiped: {id} is in the pool with its last owner's disk"
                ));
            }
        }
        Ok(())
    }

    /// S43: a runner has its account as long as there is one of it.
    fn runners_have_accounts(&self, seen: &Seen) -> Result<(), String> {
        let runs = |pod: &&Arc<Value>| !pod["metadata"]["labels"][label::RUNNER_POOL].is_null();
        let mut runners = seen.pods.iter().filter(runs).peekable();
        if runners.peek().is_none() {
            return Ok(());
        }
        let accounts = self.sight.objects("serviceaccounts");
        let name = |object: &Value| text(&object["metadata"]["name"]).to_owned();
        let named: BTreeSet<String> = accounts.iter().map(|account| name(account)).collect();
        match runners.find(|pod| !named.contains(text(&pod["metadata"]["name"]))) {
            Some(pod) => Err(format!("accounts: runner {} has no account", name(pod))),
            None => Ok(()),
        }
    }

    /// S18: nobody tries a password for a third time that was wrong twice.
    fn nobody_guesses(&self) -> Result<(), String> {
        match self.sight.wrong_in_a_row().find(|(_, wrong)| *wrong > MOST_TRIES) {
            Some((id, wrong)) => Err(format!("guessed: {wrong} wrong passwords in a row on {id}")),
            None => Ok(()),
        }
    }

    /// S29: each VM that runs is a Pod's that exists.
    fn vms_have_pods(&self, seen: &Seen) -> Result<(), String> {
        let known: BTreeSet<VmName> = seen.pods.iter().map(|pod| vm_of(pod)).collect();
        for (id, tart) in self.sight.tarts() {
            let running = tart.running();
            // A Mac that is being wiped or booted takes its VMs with it.
            let well = seen.hosts.iter().any(|h| h.id == id && h.status.as_str() == "ready");
            let nobody = running.iter().find(|vm| well && !known.contains(vm));
            if let Some(vm) = nobody {
                return Err(format!("vm-of-nobody: {vm} runs on {id}, and its Pod is gone"));
            }
        }
        Ok(())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// V7: of the Macs of a fleet, one at a time is emptied for an update.
fn emptied_one_by_one(seen: &Seen) -> Result<(), String> {
    let mut emptied = BTreeMap::new();
    for node in &seen.nodes {
        if node["metadata"]["annotations"][annotation::DRAINING].is_null() {
            continue;
        }
        let name = text(&node["metadata"]["name"]);
        let of = seen.machines.iter().find(|machine| machine["metadata"]["name"] == name);
        let fleet = of.map(|machine| text(&machine["spec"]["fleetName"]));
        if let Some(other) = fleet.and_then(|fleet| emptied.insert(fleet, name)) {
            return Err(format!("emptied-together: {other} and {name} are, for an update"));
        }
    }
    Ok(())
}

fn vm_of(pod: &Value) -> VmName {
    let metadata = &pod["metadata"];
    VmName::of(&PodId {
        namespace: text(&metadata["namespace"]).to_owned(),
        name: text(&metadata["name"]).to_owned(),
        uid: text(&metadata["uid"]).to_owned(),
    })
}

/// A pool and all Pods and Nodes that there are.
struct Roll<'a> {
    pool: &'a Value,
    pods: &'a [Arc<Value>],
    nodes: &'a [Arc<Value>],
}

impl Roll<'_> {
    fn runners(&self) -> impl Iterator<Item = &Value> {
        let uid = &self.pool["metadata"]["uid"];
        let of_pool = move |pod: &&Arc<Value>| pod["metadata"]["ownerReferences"][0]["uid"] == *uid;
        self.pods.iter().filter(of_pool).map(|pod| &**pod)
    }

    fn is_stale(&self, runner: &Value) -> bool {
        runner["spec"]["containers"][0]["image"] != self.pool["spec"]["image"]
    }

    /// Whether there are so many that one less is no loss; the one that was just taken counts.
    fn is_too_big(&self) -> bool {
        let stay = self.runners().filter(|runner| !is_deleted(runner) && !is_ended(runner)).count();
        let wanted = self.pool["spec"]["replicas"].as_u64().unwrap_or_default();
        stay >= usize::try_from(wanted).unwrap_or(usize::MAX)
    }

    /// Whether somebody hears of the Mac that it is on. On a dead one a runner leaves for ever, and
    /// one that has yet to start never does: nobody waits for either.
    fn is_heard_of(&self, runner: &Value) -> bool {
        let is = |node: &&Arc<Value>| node["metadata"]["name"] == runner["spec"]["nodeName"];
        let conditions = |node: &Arc<Value>| node["status"]["conditions"].as_array().cloned();
        let is_unwell = |it: &Value| it["type"] == "Ready" && it["status"] != "True";
        let all = self.nodes.iter().find(is).and_then(conditions).unwrap_or_default();
        !all.iter().any(is_unwell)
    }

    /// Old ones that leave, and new ones that do not run yet.
    fn on_their_way(&self) -> usize {
        let on_its_way = |runner: &&Value| match (self.is_stale(runner), is_deleted(runner)) {
            (true, true) => !is_ended(runner),
            (false, false) => text(&runner["status"]["phase"]) == "Pending",
            (true, false) | (false, true) => false,
        };
        self.runners().filter(|runner| on_its_way(runner) && self.is_heard_of(runner)).count()
    }
}

fn is_ended(pod: &Value) -> bool {
    matches!(text(&pod["status"]["phase"]), "Succeeded" | "Failed")
}

fn is_deleted(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// P1, LH14: one Machine, one host; and one for all Machines of a name, whatever their namespaces,
/// since Nodes, accounts and Secrets are called after them.
fn one_host_each(seen: &Seen) -> Result<(), String> {
    let names: BTreeMap<&str, &str> = seen
        .machines
        .iter()
        .map(|object| (text(&object["metadata"]["uid"]), text(&object["metadata"]["name"])))
        .collect();
    let mut hosts_of: BTreeMap<String, usize> = BTreeMap::new();
    for host in &seen.hosts {
        match NameClass::read(&host.name, POOL_PREFIX) {
            NameClass::Claiming(marker) => {
                let uid = marker.uid.to_string();
                let name = names.get(uid.as_str()).map_or(uid.clone(), |name| (*name).to_owned());
                *hosts_of.entry(name).or_default() += 1;
            }
            NameClass::Other(name) => *hosts_of.entry(name).or_default() += 1,
            NameClass::Pool
            | NameClass::Releasing(_)
            | NameClass::OldMarker
            | NameClass::Quarantined => {}
        }
    }
    match hosts_of.iter().find(|(_, hosts)| **hosts > 1) {
        Some((owner, hosts)) => Err(format!("two-hosts: {owner} has {hosts} hosts")),
        None => Ok(()),
    }
}

/// The Machine that asks for a host of its own, and under whose claiming name this one is.
fn who_ordered<'a>(seen: &'a Seen, host: &HostView) -> Option<&'a Value> {
    let NameClass::Claiming(marker) = NameClass::read(&host.name, POOL_PREFIX) else {
        return None;
    };
    let uid = marker.uid.to_string();
    let asks = |machine: &&Arc<Value>| {
        text(&machine["metadata"]["uid"]) == uid && machine["spec"]["autoOrder"] == true
    };
    seen.machines.iter().find(asks).map(|machine| &**machine)
}

/// The Machine that was provisioned on a host, and shall stay.
fn lives_on<'a>(seen: &'a Seen, host: &HostView) -> Option<&'a str> {
    let lives = |machine: &&Arc<Value>| {
        let status = &machine["status"];
        status["serverID"] == host.id.as_str()
            && status["initialization"]["provisioned"] == true
            && !is_deleted(machine)
    };
    seen.machines.iter().find(lives).map(|machine| text(&machine["metadata"]["name"]))
}

/// Whether a person wants this host to go with the Machine that has it.
fn terminates(seen: &Seen, host: &HostView) -> bool {
    let uid = match NameClass::read(&host.name, POOL_PREFIX) {
        NameClass::Claiming(marker) | NameClass::Releasing(marker) => marker.uid.to_string(),
        NameClass::Pool | NameClass::OldMarker | NameClass::Quarantined | NameClass::Other(_) => {
            String::new()
        }
    };
    seen.machines.iter().any(|machine| {
        let metadata = &machine["metadata"];
        let has = text(&metadata["name"]) == host.name || text(&metadata["uid"]) == uid;
        has && metadata["annotations"][annotation::RELEASE_POLICY] == annotation::TERMINATE
    })
}

/// S1: no two living Machines name the same host.
fn one_owner_each(seen: &Seen, shared: bool) -> Result<(), String> {
    let mut owners: BTreeMap<&str, &str> = BTreeMap::new();
    for machine in seen.machines.iter().filter(|machine| !is_deleted(machine)) {
        let name = text(&machine["metadata"]["name"]);
        let server = text(&machine["status"]["serverID"]);
        if shared && is_outrun(seen, machine, server) {
            continue;
        }
        if let (false, Some(other)) = (server.is_empty(), owners.insert(server, name)) {
            return Err(format!("two-owners: {name} and {other} both name host {server}"));
        }
    }
    Ok(())
}

/// Of two clusters that mark one host, one is outrun, and sees it when it looks again: until then
/// its Machine names a host that it never had.
fn is_outrun(seen: &Seen, machine: &Value, server: &str) -> bool {
    let never_had = text(&machine["spec"]["providerID"]).is_empty();
    let host = seen.hosts.iter().find(|host| host.id.as_str() == server);
    never_had
        && host.is_some_and(|host| match NameClass::read(&host.name, POOL_PREFIX) {
            NameClass::Claiming(marker) => {
                marker.uid.to_string() != text(&machine["metadata"]["uid"])
            }
            class => class != NameClass::Other(text(&machine["metadata"]["name"]).to_owned()),
        })
}

/// S2: a Machine's server id and provider ID name the same host.
fn bound_to_one(seen: &Seen) -> Result<(), String> {
    for machine in &seen.machines {
        let server = text(&machine["status"]["serverID"]);
        let provider = text(&machine["spec"]["providerID"]);
        if !server.is_empty() && !provider.is_empty() && !provider.ends_with(server) {
            let name = text(&machine["metadata"]["name"]);
            return Err(format!("binding: {name} is bound to {server} and to {provider}"));
        }
    }
    Ok(())
}

/// S13: whoever is Ready has a Node.
fn ready_has_a_node(seen: &Seen) -> Result<(), String> {
    let nodes: BTreeSet<&str> =
        seen.nodes.iter().map(|node| text(&node["metadata"]["name"])).collect();
    for machine in seen.machines.iter().filter(|machine| !is_deleted(machine)) {
        let name = text(&machine["metadata"]["name"]);
        if machine["status"]["ready"] == true && !nodes.contains(name) {
            return Err(format!("ready-early: {name} is Ready, and there is no such Node"));
        }
    }
    Ok(())
}

impl Memory {
    /// S37: a runner with a job is never deleted, and does not vanish.
    fn busy_runners_stay(&mut self, seen: &Seen) -> Result<(), String> {
        let mut busy = BTreeMap::new();
        for pod in &seen.pods {
            let owner = text(&pod["metadata"]["labels"][label::RUNNER_POOL_OWNER]);
            let uid = text(&pod["metadata"]["uid"]);
            self.busy.remove(uid);
            if owner.is_empty() || pod["status"]["phase"] != "Running" {
                continue;
            }
            let name = text(&pod["metadata"]["name"]);
            if is_deleted(pod) {
                return Err(format!("busy-deleted: {name} is deleted while it does {owner}"));
            }
            busy.insert(uid.to_owned(), name.to_owned());
        }
        match std::mem::replace(&mut self.busy, busy).into_values().next() {
            Some(name) => Err(format!("busy-deleted: {name} is gone, and its job was not over")),
            None => Ok(()),
        }
    }

    /// S4: a host is never wiped while it carries the name of a Machine that lives, or its claim;
    /// whatever it is called, not while a Machine lives that was provisioned on it.
    fn nobody_is_wiped(&mut self, seen: &Seen) -> Result<(), String> {
        for host in &seen.hosts {
            let before = self.wipes.insert(host.id.clone(), host.generation);
            let wiped = before.is_some_and(|before| before < host.generation);
            let claim = match NameClass::read(&host.name, POOL_PREFIX) {
                NameClass::Claiming(marker) => marker.uid.to_string(),
                NameClass::Pool
                | NameClass::Releasing(_)
                | NameClass::OldMarker
                | NameClass::Quarantined
                | NameClass::Other(_) => String::new(),
            };
            let owner = seen.machines.iter().find(|machine| {
                let metadata = &machine["metadata"];
                let has = text(&metadata["name"]) == host.name || text(&metadata["uid"]) == claim;
                !is_deleted(machine) && has
            });
            if let (true, Some(_)) = (wiped, owner) {
                return Err(format!("wiped-under-owner: {} was wiped as {}", host.id, host.name));
            }
            if let (true, Some(name)) = (wiped, lives_on(seen, host)) {
                return Err(format!("released-alive: {} was wiped, and {name} lives", host.id));
            }
        }
        Ok(())
    }

    /// S3: what is not ours keeps its name and its disk; so does what a person made theirs.
    fn foreign_is_untouched(&mut self, seen: &Seen, hands: &Hands) -> Result<(), String> {
        let first = self.hosts.is_none();
        for host in &seen.hosts {
            let now = (host.name.clone(), host.power_cycles);
            let given = hands.name(&host.id);
            let is_other =
                |name: &str| matches!(NameClass::read(name, POOL_PREFIX), NameClass::Other(_));
            match self.foreign.get(&host.id) {
                Some((before, _)) if given.as_ref().is_some_and(|given| given != before) => {
                    self.foreign.remove(&host.id);
                }
                Some(before) if *before != now => {
                    return Err(format!("foreign-touched: {} is now {}", before.0, host.name));
                }
                Some(_) => continue,
                None => {}
            }
            match given {
                Some(given) if is_other(&given) => {
                    self.foreign.insert(host.id.clone(), (given, host.power_cycles));
                }
                None if first && is_other(&host.name) => {
                    self.foreign.insert(host.id.clone(), now);
                }
                Some(_) | None => {}
            }
        }
        Ok(())
    }

    /// S6, G17: hosts are neither bought nor given up, unless a person asked for it; and one is
    /// bought for one Machine, under its claiming name.
    fn rented_for_who_asks(&mut self, seen: &Seen, hands: &Hands) -> Result<(), String> {
        let now: BTreeMap<ServerId, HostView> =
            seen.hosts.iter().map(|host| (host.id.clone(), host.clone())).collect();
        let Some(before) = self.hosts.replace(now.clone()) else { return Ok(()) };
        for host in now.values().filter(|host| !before.contains_key(&host.id)) {
            let Some(machine) = who_ordered(seen, host) else {
                return Err(format!("hosts-changed: {} was bought", host.name));
            };
            let uid = text(&machine["metadata"]["uid"]).to_owned();
            if let Some(first) = self.bought.insert(uid, host.id.clone()) {
                let name = text(&machine["metadata"]["name"]);
                return Err(format!("rented-twice: {name} has {first} and buys {}", host.id));
            }
        }
        for host in before.values() {
            let excused = host.deletion_scheduled
                || hands.deleted(&host.id)
                || self.goes_with_its_owner(seen, host)
                || terminates(seen, now.get(&host.id).unwrap_or(host));
            if !excused && now.get(&host.id).is_none_or(|now| now.deletion_scheduled) {
                return Err(format!("hosts-changed: {} was given up", host.name));
            }
        }
        Ok(())
    }

    /// Whether a host was bought for a Machine that is going, or gone.
    fn goes_with_its_owner(&self, seen: &Seen, host: &HostView) -> bool {
        let owner = self.bought.iter().find(|(_, bought)| **bought == host.id);
        let lives = |uid: &str| {
            let is = |machine: &&Arc<Value>| text(&machine["metadata"]["uid"]) == uid;
            seen.machines.iter().find(is).is_some_and(|machine| !is_deleted(machine))
        };
        owner.is_some_and(|(uid, _)| !lives(uid))
    }

    /// S28, S30: a Pod's phase only moves forward, and an end is an end.
    fn pods_move_forward(&mut self, seen: &Seen) -> Result<(), String> {
        let rank = |phase: &str| match phase {
            "Running" => 1,
            "Succeeded" | "Failed" => 2,
            _ => 0,
        };
        // Pods that are gone are forgotten: a demo has no end.
        let earlier = std::mem::take(&mut self.phases);
        for pod in &seen.pods {
            let phase = text(&pod["status"]["phase"]).to_owned();
            let uid = text(&pod["metadata"]["uid"]).to_owned();
            let before = earlier.get(&uid);
            self.phases.insert(uid, phase.clone());
            let Some(before) = before else { continue };
            let ended = rank(before) == 2 && *before != phase;
            if rank(&phase) < rank(before) || ended {
                let name = text(&pod["metadata"]["name"]);
                return Err(format!("phases: Pod {name} went from {before} to {phase}"));
            }
        }
        Ok(())
    }

    /// S38: no runner is made where there are enough of them. Where fewer are wanted than there
    /// were, those who have work stay.
    fn runners_are_wanted(&mut self, seen: &Seen, pools: &[Arc<Value>]) -> Result<(), String> {
        let lives = |pod: &Value| !is_deleted(pod) && !is_ended(pod);
        let before = std::mem::take(&mut self.alive);
        for pool in pools {
            let uid = text(&pool["metadata"]["uid"]);
            let of_pool = |pod: &&Arc<Value>| {
                pod["metadata"]["ownerReferences"][0]["uid"] == uid && lives(pod)
            };
            let alive = seen.pods.iter().filter(of_pool).count();
            let wanted = pool["spec"]["replicas"].as_u64().filter(|_| !is_deleted(pool));
            let wanted = usize::try_from(wanted.unwrap_or_default()).unwrap_or(usize::MAX);
            if alive > wanted.max(before.get(uid).copied().unwrap_or_default()) {
                let name = text(&pool["metadata"]["name"]);
                return Err(format!("surplus: {name} has {alive} runners, {wanted} are wanted"));
            }
            self.alive.insert(uid.to_owned(), alive);
        }
        Ok(())
    }

    /// The contract: provisioned is never taken back.
    fn provisioned_stays(&mut self, seen: &Seen, hands: &Hands) -> Result<(), String> {
        let lives: BTreeSet<&str> =
            seen.machines.iter().map(|machine| text(&machine["metadata"]["uid"])).collect();
        self.provisioned.retain(|uid| lives.contains(uid.as_str()));
        for machine in &seen.machines {
            let uid = text(&machine["metadata"]["uid"]);
            if machine["status"]["initialization"]["provisioned"] == true {
                self.provisioned.insert(uid.to_owned());
            } else if self.provisioned.contains(uid) && !hands.forgot(uid) {
                let name = text(&machine["metadata"]["name"]);
                return Err(format!("provisioned: {name} is not provisioned any more"));
            }
        }
        Ok(())
    }
}
