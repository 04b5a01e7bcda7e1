//! The world as an onlooker sees it, for a table.

use std::collections::BTreeMap;

use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_api::name_class::NameClass;
use applecart_api::runner_pool::RunnerPool;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::{POOL_PREFIX, World};
use crate::oracle::Safety;
use crate::scaleway::HostView;

/// Everything that a table shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// One row for each host, in order of address.
    pub hosts: Vec<HostRow>,
    /// Machines that have no host, and why.
    pub waiting: Vec<(String, String)>,
    /// The runner pool: asked for, idle, busy.
    pub runners: (i64, i64, i64),
    /// Pods that wait for a Mac.
    pub pending: usize,
    /// Pods whose VM is on its way up.
    pub booting: usize,
    /// What goes wrong, where something is meant to.
    pub chaos: Option<Chaos>,
}

/// What went wrong so far, and whether it broke anything.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chaos {
    /// Faults that were injected.
    pub faults: usize,
    /// How often an invariant was looked at.
    pub checks: u64,
    /// The first invariant that did not hold.
    pub violation: Option<String>,
}

/// One host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostRow {
    /// Its address.
    pub address: String,
    /// Which class its name is in.
    pub class: &'static str,
    /// What Scaleway says that it does.
    pub state: String,
    /// The Machine that holds it.
    pub machine: String,
    /// Where the Machine is: its step, or its reason.
    pub step: String,
    /// The Pods on it, each with what it does.
    pub pods: Vec<String>,
}

impl World {
    /// Looks at everything. What cannot be read is not there.
    pub async fn view(&self) -> View {
        let all = ListParams::default();
        let client = self.client();
        let machines: Api<ScalewayAppleSiliconMachine> = Api::all(client.clone());
        let machines = machines.list(&all).await.map(|list| list.items).unwrap_or_default();
        let pods: Api<Pod> = Api::all(client.clone());
        let pods = pods.list(&all).await.map(|list| list.items).unwrap_or_default();
        let pools: Api<RunnerPool> = Api::all(client);
        let pools = pools.list(&all).await.map(|list| list.items).unwrap_or_default();
        let mut hosts = self.scaleway().hosts();
        hosts.sort_by_key(|host| host.ip);
        let server = |machine: &ScalewayAppleSiliconMachine| {
            machine.status.as_ref().and_then(|status| status.server_id.clone())
        };
        let held: BTreeMap<String, &ScalewayAppleSiliconMachine> =
            machines.iter().filter_map(|machine| Some((server(machine)?, machine))).collect();
        let waiting = machines.iter().filter(|machine| server(machine).is_none());
        let count = |f: fn(&RunnerPool) -> Option<i64>| pools.iter().filter_map(f).sum();
        View {
            hosts: hosts.iter().map(|host| row(host, &held, &pods)).collect(),
            waiting: waiting.map(|machine| (machine.name_any(), reason(machine))).collect(),
            runners: (
                count(|pool| pool.spec.replicas),
                count(|pool| pool.status.as_ref()?.idle_replicas),
                count(|pool| pool.status.as_ref()?.busy_replicas),
            ),
            chaos: self.settings.faults.as_ref().map(|faults| {
                let (faults_so_far, checks) = faults.counts();
                let checks = checks * Safety::INVARIANTS;
                let violation = faults.violation().map(|(_, violated)| violated);
                Chaos { faults: faults_so_far, checks, violation }
            }),
            pending: pods.iter().filter(|pod| node(pod).is_none()).count(),
            booting: pods.iter().filter(|pod| node(pod).is_some() && boots(pod)).count(),
        }
    }
}

fn node(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref()
}

fn boots(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    pod.metadata.deletion_timestamp.is_none() && phase.is_none_or(|phase| phase == "Pending")
}

fn reason(machine: &ScalewayAppleSiliconMachine) -> String {
    machine.status.as_ref().and_then(|status| status.last_reason.clone()).unwrap_or_default()
}

fn row(
    host: &HostView,
    held: &BTreeMap<String, &ScalewayAppleSiliconMachine>,
    pods: &[Pod],
) -> HostRow {
    let machine = held.get(host.id.as_str());
    let step = machine.map(|machine| {
        let bootstrap = machine.status.as_ref().and_then(|status| status.bootstrap.clone());
        bootstrap.map_or_else(
            || reason(machine),
            |step| format!("step {} of {}: {}", step.index, step.total, step.step),
        )
    });
    let name = machine.map(|machine| machine.name_any()).unwrap_or_default();
    let here = pods.iter().filter(|pod| !name.is_empty() && node(pod) == Some(&name));
    HostRow {
        address: host.ip.to_string(),
        class: class(&host.name, &name),
        state: host.status.to_string(),
        step: step.unwrap_or_default(),
        pods: here.map(pod_text).collect(),
        machine: name,
    }
}

fn class(name: &str, machine: &str) -> &'static str {
    match NameClass::read(name, POOL_PREFIX) {
        NameClass::Pool => "pool",
        NameClass::Claiming(_) => "claiming",
        NameClass::Releasing(_) => "releasing",
        NameClass::OldMarker => "old marker",
        NameClass::Quarantined => "quarantined",
        NameClass::Other(name) if name == machine => "claimed",
        NameClass::Other(_) => "other",
    }
}

fn pod_text(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("New");
    let short = pod.name_any().rsplit('-').next().unwrap_or_default().to_owned();
    let job = pod.labels().get(label::RUNNER_POOL_OWNER);
    let does = match (phase, job) {
        _ if pod.metadata.deletion_timestamp.is_some() => "leaving".to_owned(),
        ("Running", Some(job)) => job.clone(),
        ("Running", None) => "idle".to_owned(),
        ("Pending", _) => "booting".to_owned(),
        (phase, _) => phase.to_lowercase(),
    };
    format!("{short} {does}")
}
