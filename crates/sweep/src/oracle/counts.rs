//! How often things were made, removed, wiped and rebooted, compared with the run without faults;
//! and how much later it was over. Nearly all bugs that others found with such plans showed here.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_sim::faults::{Class, Edge, Fault, Process, Step};
use serde::{Deserialize, Serialize};

use crate::run::End;

/// How much later than without it a story may be over, for each fault.
const DELAY: Duration = Duration::from_mins(10);
/// How long a command on a Mac may take: unpacking Tart.
const LONGEST_COMMAND: Duration = Duration::from_mins(10);

/// How long an order may be on its way.
const ORDER: Duration = Duration::from_mins(10);

/// A host is ordered.
const BUY: &str = "buy";
/// What an agent makes when it registers.
const NODE_LEASE: &str = "create a Node's Lease";

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
        (Edge::Kubernetes, [verb @ ("create" | "delete"), resource, ..]) => {
            Some(format!("{verb} {resource}"))
        }
        (Edge::Scaleway, ["POST", path, ..]) if path.ends_with("/reinstall") => Some("wipe".into()),
        (Edge::Scaleway, ["POST", path, ..]) if path.ends_with("/reboot") => Some("reboot".into()),
        (Edge::Scaleway, ["POST", "servers", ..]) => Some(BUY.into()),
        (Edge::Scaleway, ["DELETE", ..]) => Some("give up a host".into()),
        (Edge::Tart, [verb @ ("create" | "start"), ..]) => Some(format!("{verb} a VM")),
        _ => None,
    }
}

/// What a run is compared with.
#[derive(Clone, Debug)]
pub struct Limits {
    /// How long the story took without faults.
    pub took: Duration,
    /// What was done in it.
    pub counts: Counts,
}

impl Limits {
    /// What `reference`, a run without faults, says.
    pub fn of(reference: &End) -> Self {
        Self { took: reference.took, counts: reference.counts.clone() }
    }

    /// Compares a run with the one without faults.
    pub fn check(&self, took: Duration, counts: &Counts, steps: &[Step]) -> Result<(), String> {
        let faults: Vec<&Step> = steps.iter().filter(|step| step.fault.is_some()).collect();
        let number = u32::try_from(faults.len()).unwrap_or(u32::MAX);
        let latest = self.took + DELAY * number + excused_delay(&faults, steps);
        if took > latest {
            let (took, latest) = (took.as_secs(), latest.as_secs());
            return Err(format!("liveness: over after {took} s, must be within {latest} s"));
        }
        let two_lead = steps.iter().any(|step| step.process == Process::SecondProvider);
        for (what, times) in &counts.0 {
            let (before, excuse) = (self.counts.get(what), excused(what, &faults, two_lead));
            if *times > before + excuse {
                return Err(format!("counts: {what} {times} times, {before} without faults"));
            }
        }
        Ok(())
    }
}

/// How often a thing may be done once more, because of what went wrong. Each line says why.
fn excused(what: &str, faults: &[&Step], two_lead: bool) -> usize {
    let excuse = |step: &&&Step| {
        let unheard = matches!(
            step.fault,
            Some(Fault::CrashAfter | Fault::LostAnswer | Fault::Late | Fault::CrashBefore)
        );
        match what {
            // A wipe whose acceptance nobody saw is asked for again: harmless, and safe.
            "wipe" => unheard && step.edge == Edge::Scaleway,
            // A runner whose account was made by a process that died gets a new account.
            "create serviceaccounts" | "delete serviceaccounts" => {
                unheard && step.process == Process::RunnerPools
            }
            // A provider that is held up notices a deletion later; a Mac whose bootstrap goes on
            // beside it may become a Node meanwhile, which then has to go.
            NODE_LEASE | "create nodes" | "delete nodes" => step.process.is_provider(),
            // Two leaders end each other's bootstraps, and each counts the one that a power cut
            // ended: the third is a tier.
            "reboot" => two_lead && step.fault == Some(Fault::Reboot),
            _ => false,
        }
    };
    faults.iter().filter(excuse).count()
}

/// How much longer a story may take, because of what went wrong. Each line says why.
fn excused_delay(faults: &[&Step], steps: &[Step]) -> Duration {
    // G17: an order that was noted and may be on its way is not repeated before it can be no more.
    let orders = steps.iter().any(|step| counted(step).as_deref() == Some(BUY));
    let order = if orders { ORDER } else { Duration::ZERO };
    let excuse = |step: &&Step| match (step.edge, step.fault) {
        // A command that hangs is given up after its own limit, the longest of which is this.
        (Edge::Ssh, Some(Fault::TimeOut | Fault::LostAnswer)) => order + LONGEST_COMMAND,
        _ => order,
    };
    faults.iter().map(excuse).sum()
}
