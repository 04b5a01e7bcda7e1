//! How often things were made, removed, wiped and rebooted, compared with the run without faults;
//! and how much later it was over. Nearly all bugs that others found with such plans showed here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_sim::faults::{Class, Edge, Fault, Process, Step};
use serde::{Deserialize, Serialize};

use super::{host_of, renamed};
use crate::run::SWEPT;
use crate::story::Story;

/// How much later all is well than the last fault, or than it is without faults.
const DELAY: Duration = Duration::from_mins(10);
/// How long a command on a Mac may take: unpacking Tart.
const LONGEST_COMMAND: Duration = Duration::from_mins(10);

/// How long an order may be on its way.
const ORDER: Duration = Duration::from_mins(10);

/// A host is ordered.
const BUY: &str = "buy";
/// A host is wiped.
const WIPE: &str = "wipe";
/// What an agent makes when it registers.
const NODE_LEASE: &str = "create a Node's Lease";
/// What is made for a runner, and removed with it.
const OF_A_RUNNER: [&str; 7] = [
    "create a VM",
    "start a VM",
    "remove a VM",
    "create pods",
    "delete pods",
    "create serviceaccounts",
    "delete serviceaccounts",
];
/// What is made for a Node, and removed with it.
const NODES: [&str; 3] = [NODE_LEASE, "create nodes", "delete nodes"];

/// How often each thing was done, by what it was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts(BTreeMap<String, usize>);

impl Counts {
    /// Counts what succeeded.
    pub fn of(steps: &[Step]) -> Self {
        let mut counts = BTreeMap::new();
        for what in steps.iter().filter(|step| step.succeeded()).filter_map(counted) {
            *counts.entry(what).or_default() += 1;
        }
        Self(counts)
    }

    fn get(&self, what: &str) -> usize {
        self.0.get(what).copied().unwrap_or_default()
    }
}

/// What a step made, removed, wiped or rebooted.
fn counted(step: &Step) -> Option<String> {
    if step.class != Class::Effect {
        return None;
    }
    let words: Vec<&str> = step.call.split_whitespace().collect();
    match (step.edge, words.as_slice()) {
        // A token, a binding, an approval is no object: asking twice leaves nothing behind.
        (Edge::Kubernetes, ["create" | "delete", resource, ..]) if resource.contains('/') => None,
        (Edge::Kubernetes, ["create", _, name, ..]) if name.starts_with("kube-node-lease/") => {
            Some(NODE_LEASE.into())
        }
        // Events tell what happened: more of them if something went wrong. They are steps in rests
        // alone, where nobody may tell anything.
        (Edge::Kubernetes, ["create", "events", ..]) => None,
        // An agent only ends what others asked to go, and that is counted.
        (Edge::Kubernetes, ["delete", "pods", ..]) if matches!(step.process, Process::Agent(_)) => {
            None
        }
        (Edge::Kubernetes, [verb @ ("create" | "delete"), resource, ..]) => {
            Some(format!("{verb} {resource}"))
        }
        // An apply makes what is not there.
        (Edge::Kubernetes, ["patch", resource, ..]) if step.answer == "201" => {
            Some(format!("create {resource}"))
        }
        (Edge::Scaleway, ["POST", path, ..]) if path.ends_with("/reinstall") => Some(WIPE.into()),
        (Edge::Scaleway, ["POST", path, ..]) if path.ends_with("/reboot") => Some("reboot".into()),
        (Edge::Scaleway, ["POST", "servers", ..]) => Some(BUY.into()),
        (Edge::Scaleway, ["POST", path, ..]) if path.ends_with("/ssh-keys") => {
            Some("register a key".into())
        }
        (Edge::Github, ["DELETE", ..]) => Some("end a runner's registration".into()),
        (Edge::Scaleway, ["DELETE", ..]) => Some("give up a host".into()),
        (Edge::Tart, [verb @ ("create" | "start" | "remove"), ..]) => Some(format!("{verb} a VM")),
        _ => None,
    }
}

/// How a run went, as far as it is compared with the one without faults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Course {
    /// When the story was over, since it began.
    told: Duration,
    /// When what it leaves was right, since it began.
    rested: Duration,
    /// What was created, deleted, wiped and rebooted.
    counts: Counts,
    /// How often each thing may be done once more, because of what went wrong.
    excuses: Counts,
    /// How often each thing may be done in any case, because of what went wrong.
    in_any_case: Counts,
    /// The Nodes that were kept free of Pods, one after the other.
    cordoned: Vec<String>,
    /// When the last thing went wrong, since the story began.
    last_fault: Option<Duration>,
    /// How much longer it may take, because of what went wrong.
    delay: Duration,
    /// How much longer what it leaves may take to be right.
    late: Duration,
}

impl Course {
    /// Of a run whose story began at `began`, was over and came to rest.
    pub fn of(began: Duration, told: Duration, rested: Duration, steps: &[Step]) -> Self {
        let faults: Vec<&Step> = steps.iter().filter(|step| step.fault.is_some()).collect();
        let counts = Counts::of(steps);
        let whats = counts.0.keys();
        let excuses = whats.map(|what| (what.clone(), excused(what, &faults, steps)));
        let excuses = Counts(excuses.collect());
        let in_any_case = Counts(nodes_of_the_held_up(&faults, steps));
        let last_fault = faults.last().map(|step| step.at.saturating_sub(began));
        let (delay, late) = (excused_delay(&faults, steps), excused_lateness(&faults));
        let cordoned = cordoned(steps);
        Self { told, rested, counts, excuses, in_any_case, cordoned, last_fault, delay, late }
    }

    fn check_counts(&self, calm: &Self) -> Result<(), String> {
        for (what, times) in &self.counts.0 {
            let before = calm.counts.get(what);
            // Whose look at its Mac ends first is emptied first; a runner that came to the other
            // one meanwhile goes with those.
            let another_order =
                OF_A_RUNNER.contains(&what.as_str()) && self.cordoned != calm.cordoned;
            let most = before + self.excuses.get(what) + usize::from(another_order);
            let most = most.max(self.in_any_case.get(what));
            if *times > most {
                return Err(format!("counts: {what} {times} times, {before} without faults"));
            }
        }
        Ok(())
    }

    /// Compares this run, in which a story began at any moment and nothing went wrong, with a
    /// claim.
    pub fn check_beginning(&self, story: Story, claim: &Self) -> Result<(), String> {
        for (what, times) in &self.counts.0 {
            let most = most_of_a_beginning(story, what, &self.counts, &claim.counts);
            if *times > most {
                let claimed = claim.counts.get(what);
                return Err(format!("counts: {what} {times} times, {claimed} in a claim"));
            }
        }
        let (rested, latest) = (self.rested.as_secs(), (claim.rested + DELAY).as_secs());
        if rested > latest {
            return Err(format!("liveness: at rest after {rested} s, must be within {latest} s"));
        }
        Ok(())
    }

    /// Compares this run with `calm`, the one without faults: all is well ten minutes after the
    /// last fault, or when it is without any.
    pub fn check(&self, calm: &Self) -> Result<(), String> {
        let latest = |calm: Duration| match self.last_fault {
            Some(last) => calm.max(last) + DELAY + self.delay,
            None => calm,
        };
        let late = |what, took: Duration, latest: Duration| {
            let (took, latest) = (took.as_secs(), latest.as_secs());
            Err(format!("liveness: {what} after {took} s, must be within {latest} s"))
        };
        if self.told > latest(calm.told) {
            return late("over", self.told, latest(calm.told));
        }
        if self.rested > latest(calm.rested) + self.late {
            return late("at rest", self.rested, latest(calm.rested) + self.late);
        }
        self.check_counts(calm)
    }
}

/// How often a thing may be done in a story that begins at any moment of a claim and in which
/// nothing goes wrong. Each line says why.
fn most_of_a_beginning(story: Story, what: &str, own: &Counts, claim: &Counts) -> usize {
    let deletes = story == Story::DeleteAnywhere;
    match what {
        // The host goes back to the pool.
        WIPE if deletes => 1,
        // What was made for the Machine goes with it.
        _ if deletes && what.starts_with("delete ") => own.get(&what.replace("delete", "create")),
        _ => claim.get(what),
    }
}

/// How often a thing may be done once more, because of what went wrong. Each line says why.
fn excused(what: &str, faults: &[&Step], steps: &[Step]) -> usize {
    let two_lead = || steps.iter().any(|step| step.process == Process::SecondProvider);
    let excuse = |step: &&&Step| match what {
        // A wipe whose acceptance nobody saw, or could note, is asked for again: harmless.
        WIPE => leaves_a_wipe_unnoted(step, steps) || lands_late(step),
        // A runner whose account was made by a process that died gets a new account: its Pod
        // comes right after it.
        "create serviceaccounts" | "delete serviceaccounts" => {
            let made = ["create serviceaccounts ", "create pods "];
            is_unheard(step)
                && step.process.is_runner_pools()
                && made.iter().any(|call| step.call.starts_with(call))
        }
        // Two leaders end each other's bootstraps, and each counts its own: where one that would
        // have succeeded is ended or held up, the third that fails is a tier.
        // Whoever died between counting a try of a password and its login may have tried it: after
        // two of them it is not tried again in this boot (S18).
        "reboot" => two_lead() || (is_crash(step) && is_tried_out(steps)),
        // And the eighth that one of them counts is an exchange, though the other's just succeeded.
        NODE_LEASE | "create nodes" | "delete nodes" => two_lead(),
        _ => false,
    };
    let once_more = faults.iter().filter(excuse).count();
    // A power cut ends the VMs of its Mac: each that was a runner's is replaced, in all its parts.
    let ended: usize = if OF_A_RUNNER.contains(&what) {
        let cuts = faults.iter().filter(|step| step.fault == Some(Fault::Reboot));
        cuts.map(|cut| running_vms(cut, &steps[..cut.number.min(steps.len())])).sum()
    } else {
        0
    };
    once_more + ended
}

/// The Nodes that a provider let no Pods come to, in the order in which it began.
fn cordoned(steps: &[Step]) -> Vec<String> {
    let mut nodes: Vec<String> = vec![];
    for step in steps.iter().filter(|step| step.process.is_provider() && step.succeeded()) {
        let name = step.call.strip_prefix("patch nodes ").unwrap_or_default();
        if !name.is_empty() && !nodes.iter().any(|node| node == name) {
            nodes.push(name.to_owned());
        }
    }
    nodes
}

fn is_crash(step: &Step) -> bool {
    matches!(step.fault, Some(Fault::CrashBefore | Fault::CrashDuring | Fault::CrashAfter))
}

/// Whether a try of a password was counted twice on a Mac, and nobody lived to forget the first.
pub fn is_tried_out(steps: &[Step]) -> bool {
    let mut tries: BTreeMap<&str, usize> = BTreeMap::new();
    steps.iter().filter(|step| step.edge == Edge::Ssh && step.succeeded()).any(|step| {
        let mac = step.call.split_whitespace().next().unwrap_or_default();
        if !step.call.contains("password-tries") {
            return false;
        }
        let counted = tries.entry(mac).or_default();
        *counted = if step.call.contains("kern.bootsessionuuid") { *counted + 1 } else { 0 };
        *counted > 1
    })
}

/// How many VMs were started and not removed on the Mac whose power `cut` took.
fn running_vms(cut: &Step, steps: &[Step]) -> usize {
    let mac = cut.call.split_whitespace().next().unwrap_or_default();
    let names = steps.iter().rev().filter(|step| step.succeeded()).filter_map(renamed);
    let Some((_, node)) = names.into_iter().find(|(host, _)| host.starts_with(mac)) else {
        return 0;
    };
    let is_there = |step: &&Step| {
        let agent = matches!(&step.process, Process::Agent(name) if name == node);
        agent && step.edge == Edge::Tart && step.succeeded()
    };
    let mut running: BTreeSet<&str> = BTreeSet::new();
    for step in steps.iter().filter(is_there) {
        let mut words = step.call.split_whitespace();
        match (words.next(), words.next()) {
            (Some("start"), Some(vm)) => drop(running.insert(vm)),
            (Some("remove"), Some(vm)) => drop(running.remove(vm)),
            _ => {}
        }
    }
    running.len()
}

fn is_unheard(step: &Step) -> bool {
    matches!(
        step.fault,
        Some(
            Fault::CrashBefore
                | Fault::CrashDuring
                | Fault::CrashAfter
                | Fault::LostAnswer
                | Fault::Late
        )
    )
}

/// Whether a fault met a wipe, or the first thing that was to be done to the host or its Lease
/// after one.
fn leaves_a_wipe_unnoted(fault: &Step, steps: &[Step]) -> bool {
    let Some(host) = host_of(fault) else { return false };
    let is_wipe = |step: &Step| counted(step).as_deref() == Some(WIPE);
    let mut before = steps.iter().filter(|step| {
        step.number < fault.number
            && step.process == fault.process
            && step.class == Class::Effect
            && step.succeeded()
            && host_of(step) == Some(host)
    });
    is_wipe(fault) && is_unheard(fault) || before.next_back().is_some_and(is_wipe)
}

/// Whether a rename lands when its owner may be gone: who finds the host returns it, wiped.
fn lands_late(fault: &Step) -> bool {
    fault.fault == Some(Fault::Late)
        && fault.edge == Edge::Scaleway
        && fault.call.starts_with("PATCH ")
}

/// A provider that is held up notices a deletion later; a Mac whose bootstrap goes on beside it may
/// become a Node meanwhile, which then has to go: each Node once.
fn nodes_of_the_held_up(faults: &[&Step], steps: &[Step]) -> BTreeMap<String, usize> {
    if !faults.iter().any(|step| step.process.is_provider()) {
        return BTreeMap::new();
    }
    let mut named: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.succeeded()) {
        let what = counted(step).filter(|what| NODES.contains(&what.as_str()));
        if let (Some(what), Some(name)) = (what, step.call.split_whitespace().nth(2)) {
            named.entry(what).or_default().insert(name);
        }
    }
    named.into_iter().map(|(what, names)| (what, names.len())).collect()
}

/// How much longer a story may take, because of what went wrong. Each line says why.
fn excused_delay(faults: &[&Step], steps: &[Step]) -> Duration {
    // G17: an order that was noted and may be on its way is not repeated before it can be no more.
    let orders = steps.iter().any(|step| counted(step).as_deref() == Some(BUY));
    let order = if orders { ORDER } else { Duration::ZERO };
    let excuse = |step: &&Step| match (step.edge, step.fault) {
        // A command that hangs is given up after its own limit, the longest of which is this.
        (Edge::Ssh, Some(Fault::TimeOut | Fault::LostAnswer)) if !step.call.ends_with(" dial") => {
            order + LONGEST_COMMAND
        }
        _ if step.process.is_provider() => order,
        _ => Duration::ZERO,
    };
    faults.iter().map(excuse).max().unwrap_or_default()
}

/// How much longer what a story leaves may take to be right. What lands late and belongs to nobody
/// any more is the sweep's to find, twice, and to finish (V2).
fn excused_lateness(faults: &[&Step]) -> Duration {
    let swept = |step: &&Step| step.fault == Some(Fault::Late) && step.edge != Edge::Ssh;
    if faults.iter().any(swept) { SWEPT } else { Duration::ZERO }
}

#[cfg(test)]
mod tests {
    use applecart_sim::faults::Terms;

    use super::*;

    const BEGAN: Duration = Duration::from_mins(1);
    const REFERENCE: Duration = Duration::from_mins(5);

    /// Effects of a provider at these seconds, with what went wrong.
    fn trace(calls: &[(u64, Edge, &str, Option<Fault>)]) -> Vec<Step> {
        let step = |(number, call): (usize, &(u64, Edge, &str, Option<Fault>))| Step {
            number,
            at: Duration::from_secs(call.0),
            process: Process::Provider,
            edge: call.1,
            class: Class::Effect,
            terms: Terms::Plain,
            call: call.2.to_owned(),
            answer: "200".to_owned(),
            fault: call.3,
        };
        calls.iter().enumerate().map(step).collect()
    }

    fn course(took: Duration, calls: &[(u64, Edge, &str, Option<Fault>)]) -> Course {
        Course::of(BEGAN, took, took, &trace(calls))
    }

    #[test]
    fn a_wipe_more_is_excused_only_where_the_first_may_have_been_lost() {
        use Edge::{Kubernetes, Scaleway};
        let rename = (61, Scaleway, "PATCH servers/5fb0-ab to tuist-release-pending-1-2", None);
        let wipe = (62, Scaleway, "POST servers/5fb0-ab/reinstall", None);
        let note = (63, Kubernetes, "patch leases.coordination.k8s.io default/host-5fb0-ab", None);
        let other = (63, Kubernetes, "patch leases.coordination.k8s.io default/host-77aa-00", None);
        let calm = course(REFERENCE, &[rename, wipe, note]);
        let with = |call: (u64, Edge, &'static str, Option<Fault>), fault| {
            (call.0, call.1, call.2, Some(fault))
        };
        for (excused, calls) in [
            (true, vec![rename, with(wipe, Fault::CrashAfter), wipe, note]),
            (true, vec![rename, wipe, with(note, Fault::CrashBefore), wipe, note]),
            (true, vec![with(rename, Fault::Late), wipe, note, wipe, note]),
            (false, vec![with(rename, Fault::CrashBefore), wipe, note, wipe, note]),
            (false, vec![with(rename, Fault::LostAnswer), wipe, note, wipe, note]),
            (false, vec![rename, wipe, with(other, Fault::CrashBefore), wipe, note]),
            (false, vec![rename, with(wipe, Fault::Slow), wipe, note]),
            (false, vec![rename, wipe, wipe, note]),
        ] {
            let checked = course(REFERENCE, &calls).check(&calm);
            assert_eq!(checked.is_ok(), excused, "{calls:?}: {checked:?}");
        }
    }

    #[test]
    fn a_node_more_is_excused_once_for_its_name_where_a_provider_was_held_up() {
        let node = |name, fault| (70, Edge::Kubernetes, name, fault);
        let calm = course(REFERENCE, &[]);
        let check = |calls: &[_]| course(REFERENCE, calls).check(&calm);
        let held_up = node("patch nodes a", Some(Fault::Slow));
        assert!(check(&[held_up, node("create nodes a", None)]).is_ok());
        assert!(check(&[node("create nodes a", None)]).is_err());
        let twice = [held_up, node("create nodes a", None), node("create nodes a", None)];
        assert!(check(&twice).is_err());
    }

    #[test]
    fn a_runner_more_is_excused_where_two_macs_were_emptied_in_another_order() {
        let node = |name| (70, Edge::Kubernetes, name, None);
        let (first, second) = (node("patch nodes a"), node("patch nodes b"));
        let pod = node("delete pods default/r");
        let calm = course(REFERENCE, &[first, second, first, pod]);
        let check = |calls: &[_]| course(REFERENCE, calls).check(&calm);
        assert!(check(&[second, first, pod, pod]).is_ok());
        assert!(check(&[second, first, pod, pod, pod]).is_err(), "once");
        assert!(check(&[first, second, pod, pod]).is_err(), "the same order");
    }

    #[test]
    fn a_vm_more_is_excused_for_each_that_a_power_cut_ended_on_its_mac() {
        use Edge::{Scaleway, Ssh, Tart};
        let name = (60, Scaleway, "PATCH servers/5fb0ab06-77 to a", None);
        let other = (60, Scaleway, "PATCH servers/77aa0012-00 to b", None);
        let (first, second) = ((61, Tart, "start one", None), (90, Tart, "start two", None));
        let cut = (80, Ssh, "5fb0ab06 stat", Some(Fault::Reboot));
        // All VMs are those of one Mac.
        let course = |calls: &[_]| {
            let mut steps = trace(calls);
            for step in steps.iter_mut().filter(|step| step.edge == Tart) {
                step.process = Process::Agent("a".to_owned());
            }
            Course::of(BEGAN, REFERENCE, REFERENCE, &steps)
        };
        let calm = course(&[first]);
        let check = |calls: &[_]| course(calls).check(&calm);
        assert!(check(&[name, other, first, cut, second]).is_ok());
        assert!(check(&[name, first, second]).is_err(), "nothing went wrong");
        let failed = (80, Ssh, "5fb0ab06 stat", Some(Fault::Error));
        assert!(check(&[name, first, failed, second]).is_err(), "no VM ended");
        let elsewhere = (80, Ssh, "77aa0012 stat", Some(Fault::Reboot));
        assert!(check(&[name, other, first, elsewhere, second]).is_err(), "another Mac's power");
        let removed = (70, Tart, "remove one", None);
        let more = course(&[name, first, removed, cut, second]);
        assert!(more.check(&course(&[first, removed])).is_err(), "none ran any more");
        let third = (91, Tart, "start three", None);
        assert!(check(&[name, first, cut, second, third]).is_err(), "once");
    }

    #[test]
    fn a_story_that_begins_at_any_moment_does_no_more_than_a_claim_and_what_it_is_for() {
        use Edge::{Kubernetes, Scaleway};
        let call = |edge, call| (61, edge, call, None);
        let node = call(Kubernetes, "create nodes a");
        let gone = call(Kubernetes, "delete nodes a");
        let wipe = call(Scaleway, "POST servers/5fb0-ab/reinstall");
        let reboot = call(Scaleway, "POST servers/5fb0-ab/reboot");
        let buy = call(Scaleway, "POST servers to a");
        let claim = course(REFERENCE, &[node]);
        let check = |story, took, calls: &[_]| course(took, calls).check_beginning(story, &claim);
        for (sound, story, calls) in [
            (true, Story::DeleteAnywhere, vec![node, wipe, gone]),
            (true, Story::DeleteAnywhere, vec![]),
            (false, Story::DeleteAnywhere, vec![node, wipe, wipe, gone]),
            (false, Story::DeleteAnywhere, vec![node, gone, gone]),
            (false, Story::DeleteAnywhere, vec![node, reboot]),
            (false, Story::DeleteAnywhere, vec![buy]),
            (true, Story::UpgradeAnywhere, vec![node]),
            (false, Story::UpgradeAnywhere, vec![node, node]),
            (false, Story::UpgradeAnywhere, vec![node, gone]),
            (false, Story::UpgradeAnywhere, vec![node, wipe]),
            (false, Story::UpgradeAnywhere, vec![node, reboot]),
            (false, Story::UpgradeAnywhere, vec![node, buy]),
        ] {
            let checked = check(story, REFERENCE, &calls);
            assert_eq!(checked.is_ok(), sound, "{story}: {calls:?}: {checked:?}");
            assert!(check(story, REFERENCE + DELAY + BEGAN, &calls).is_err(), "too late");
        }
    }

    #[test]
    fn ten_minutes_count_once_and_from_the_last_fault() {
        let calm = course(REFERENCE, &[]);
        let (write, ssh) = ((Edge::Kubernetes, "patch pods a"), (Edge::Ssh, "5fb0ab06 run a"));
        let dial = (Edge::Ssh, "5fb0ab06 dial");
        let minutes = |minutes: u64| Duration::from_mins(minutes);
        let after = |took, faults: &[(u64, (Edge, &'static str), Fault)]| {
            let calls: Vec<_> =
                faults.iter().map(|(at, (edge, call), f)| (*at, *edge, *call, Some(*f))).collect();
            course(took, &calls).check(&calm).is_ok()
        };
        let error = |at| (at, write, Fault::Error);
        assert!(after(minutes(5), &[]) && !after(minutes(6), &[]));
        assert!(after(minutes(15), &[error(61)]) && !after(minutes(16), &[error(61)]));
        assert!(!after(minutes(16), &[error(61), error(62), error(63)]), "not for each fault");
        // The story began after one minute.
        assert!(after(minutes(30), &[error(21 * 60)]) && !after(minutes(31), &[error(21 * 60)]));
        assert!(after(minutes(25), &[(61, ssh, Fault::TimeOut)]));
        assert!(!after(minutes(25), &[(61, dial, Fault::TimeOut)]), "its limit is short");
        assert!(!after(minutes(26), &[(61, ssh, Fault::TimeOut), (62, ssh, Fault::TimeOut)]));
    }
}
