//! Metrics of what is there now: read when they are scraped.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::Zone;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::sweep::{Duplicate, Report, ZoneReport};
use jiff::Timestamp;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;

use super::seconds;

/// Every phase that a Machine can be in.
const PHASES: [&str; 6] = ["Pending", "Adopting", "Bootstrapping", "Ready", "Failed", "Deleting"];

/// What is there now.
pub(super) struct Tables {
    clock: Clock,
    now: Mutex<Now>,
}

#[derive(Default)]
struct Now {
    machines: Option<Store<ScalewayAppleSiliconMachine>>,
    zones: BTreeMap<Zone, ZoneRow>,
    duplicates: BTreeMap<&'static str, usize>,
}

/// What the last cycle that could list a zone saw there.
struct ZoneRow {
    seen_at: Timestamp,
    report: ZoneReport,
}

/// One Machine.
struct Machine {
    namespace: String,
    name: String,
    phase: String,
    reason: String,
    /// For how long it has been Ready, or not: whoever fails again and again is not young.
    age: Duration,
    /// For how long it has given its reason.
    told: Duration,
    /// For how long it has not been all that it shall be, if so.
    outdated: Option<Duration>,
}

type Row<'a> = (Vec<(&'static str, &'a str)>, f64);

impl fmt::Debug for Tables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tables")
    }
}

impl Tables {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, now: Mutex::default() }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn watch(&self, machines: Store<ScalewayAppleSiliconMachine>) {
        self.now().machines = Some(machines);
    }

    /// `zones`: all that are swept, and whether each could be listed.
    pub(super) fn set_hosts(&self, zones: &BTreeMap<Zone, bool>, report: &Report) {
        let seen_at = self.clock.now();
        let mut now = self.now();
        now.zones.retain(|zone, _| zones.contains_key(zone));
        for (zone, report) in &report.zones {
            let report = report.clone();
            now.zones.insert(zone.clone(), ZoneRow { seen_at, report });
        }
        now.duplicates = Duplicate::WORDS.into_iter().map(|word| (word, 0)).collect();
        for duplicate in &report.duplicates {
            *now.duplicates.entry(duplicate.word()).or_default() += 1;
        }
    }

    fn machines(&self) -> Vec<Machine> {
        let store = self.now().machines.clone();
        let now = self.clock.now();
        let objects = store.map(|store| store.state()).unwrap_or_default();
        let mut machines: Vec<Machine> = objects.iter().map(|o| machine(o, now)).collect();
        machines.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        machines
    }
}

fn machine(object: &ScalewayAppleSiliconMachine, now: Timestamp) -> Machine {
    let status = object.status.as_ref();
    let ready = status.and_then(|status| status.conditions.iter().find(|c| c.type_ == "Ready"));
    let phase = status.and_then(|status| status.phase.clone()).filter(|phase| !phase.is_empty());
    let deleted = object.metadata.deletion_timestamp.as_ref().map(|time| time.0);
    let created = object.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let turned = ready.and_then(|c| c.last_transition_time).or(created).unwrap_or(now);
    // Ready may have been False for days while one reason followed another.
    let told = status.and_then(|status| status.since).unwrap_or(turned);
    let phase = if deleted.is_some() { Some("Deleting".to_owned()) } else { phase };
    let age = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default();
    let current = status.and_then(|s| s.conditions.iter().find(|c| c.type_ == "UpToDate"));
    let outdated = current.filter(|c| c.status == "False" && deleted.is_none());
    Machine {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        phase: phase.unwrap_or_else(|| "Pending".to_owned()),
        reason: ready.and_then(|c| c.reason.clone()).unwrap_or_default(),
        age: age(deleted.unwrap_or(turned)),
        told: age(told),
        outdated: outdated.map(|c| c.last_transition_time.map(age).unwrap_or_default()),
    }
}

impl Collector for Tables {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        encode_machines(&mut encoder, &self.machines())?;
        let now = self.now();
        encode_hosts(&mut encoder, &now.zones)?;
        let duplicates = now.duplicates.iter().map(|(kind, n)| (vec![("kind", *kind)], count(*n)));
        gauge(
            &mut encoder,
            "applecart_duplicates",
            "Hosts with several objects, and objects with several hosts: named in the log",
            duplicates.collect(),
        )
    }
}

fn encode_machines(encoder: &mut DescriptorEncoder, machines: &[Machine]) -> fmt::Result {
    let each = machines.iter().map(|machine| {
        let labels = vec![
            ("namespace", machine.namespace.as_str()),
            ("machine", machine.name.as_str()),
            ("phase", machine.phase.as_str()),
        ];
        (labels, 1.0)
    });
    gauge(encoder, "applecart_machine_phase", "1 for the phase of each Machine", each.collect())?;
    let mut phases: BTreeMap<&str, (usize, Duration)> =
        PHASES.into_iter().map(|phase| (phase, (0, Duration::ZERO))).collect();
    let mut reasons: BTreeMap<&str, Duration> = BTreeMap::new();
    for Machine { phase, reason, age, told, .. } in machines {
        let (count, oldest) = phases.entry(phase).or_default();
        *count += 1;
        *oldest = (*oldest).max(*age);
        let oldest = reasons.entry(reason).or_default();
        *oldest = (*oldest).max(*told);
    }
    let counts = phases.iter().map(|(phase, (n, _))| (vec![("phase", *phase)], count(*n)));
    gauge(encoder, "applecart_machines", "Machines in each phase", counts.collect())?;
    let ages = phases.iter().map(|(phase, (_, age))| (vec![("phase", *phase)], seconds(*age)));
    gauge(
        encoder,
        "applecart_machines_oldest_seconds",
        "How long the Machine that has been as it is for longest has been so, in each phase",
        ages.collect(),
    )?;
    reasons.remove("");
    let ages = reasons.iter().map(|(reason, age)| (vec![("reason", *reason)], seconds(*age)));
    gauge(
        encoder,
        "applecart_machines_reason_oldest_seconds",
        "How long the Machine that has given a reason for longest has given it; others have none",
        ages.collect(),
    )?;
    let outdated: Vec<Duration> = machines.iter().filter_map(|machine| machine.outdated).collect();
    single(
        encoder,
        "applecart_machines_outdated",
        "Machines whose Mac is not all that it shall be (condition UpToDate), Ready or not",
        count(outdated.len()),
    )?;
    single(
        encoder,
        "applecart_machines_outdated_oldest_seconds",
        "How long the one that has been so for longest has been so",
        seconds(outdated.into_iter().max().unwrap_or_default()),
    )
}

fn encode_hosts(encoder: &mut DescriptorEncoder, zones: &BTreeMap<Zone, ZoneRow>) -> fmt::Result {
    let mut counts = vec![];
    let mut ages = vec![];
    for (zone, ZoneRow { report, .. }) in zones {
        for (class, of_class) in &report.classes {
            let labels = vec![("zone", zone.as_str()), ("class", class.word())];
            counts.push((labels.clone(), count(of_class.count)));
            ages.push((labels, seconds(of_class.oldest)));
        }
    }
    gauge(encoder, "applecart_hosts", "Hosts of each zone, each in one class", counts)?;
    gauge(
        encoder,
        "applecart_hosts_oldest_seconds",
        "How long the oldest host of each class has been in it, when the sweep last looked",
        ages,
    )?;
    let per_zone = |of: fn(&ZoneRow) -> f64| -> Vec<Row<'_>> {
        zones.iter().map(|(zone, row)| (vec![("zone", zone.as_str())], of(row))).collect()
    };
    gauge(
        encoder,
        "scaleway_orphan_servers",
        "Hosts outside the pool that no live object owns, whatever their name",
        per_zone(|row| count(row.report.unowned.len())),
    )?;
    gauge(
        encoder,
        "applecart_pool_hosts_stuck",
        "Hosts of the pool that nobody can adopt, for hours or for good: named in the log",
        per_zone(|row| count(row.report.stuck.len())),
    )?;
    gauge(
        encoder,
        "applecart_sweep_last_seen_timestamp_seconds",
        "When the sweep last listed the zone",
        per_zone(|row| row.seen_at.as_duration().as_secs_f64()),
    )
}

/// Counts are far below where a float stops being exact.
#[allow(clippy::cast_precision_loss, reason = "see above")]
fn count(count: usize) -> f64 {
    count as f64
}

fn gauge(
    encoder: &mut DescriptorEncoder,
    name: &str,
    help: &str,
    rows: Vec<(impl EncodeLabelSet, f64)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in rows {
        ConstGauge::new(value).encode(metric.encode_family(&labels)?)?;
    }
    Ok(())
}

fn single(encoder: &mut DescriptorEncoder, name: &str, help: &str, value: f64) -> fmt::Result {
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Created an hour ago, not Ready for half of it, and for ten minutes for this reason.
    fn waiting(deleted: Option<&str>) -> Machine {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ScalewayAppleSiliconMachine",
            "metadata": {
                "name": "macs-1",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": deleted,
            },
            "spec": {},
            "status": {
                "phase": "Pending",
                "since": "2026-01-01T00:50:00Z",
                "conditions": [{
                    "type": "Ready",
                    "status": "False",
                    "reason": "NoAvailableHost",
                    "lastTransitionTime": "2026-01-01T00:30:00Z",
                }],
            },
        });
        let object = serde_json::from_value(object).expect("an object");
        machine(&object, "2026-01-01T01:00:00Z".parse().expect("a time"))
    }

    #[test]
    fn a_reason_is_as_old_as_it_is_and_a_phase_as_long_as_ready_is_so() {
        // O3
        let living = waiting(None);
        assert_eq!((living.age, living.told), (Duration::from_mins(30), Duration::from_mins(10)));
        let going = waiting(Some("2026-01-01T00:20:00Z"));
        assert_eq!((going.age, going.told), (Duration::from_mins(40), Duration::from_mins(10)));
        assert_eq!(going.phase, "Deleting");
    }
}
