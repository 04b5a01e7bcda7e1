//! What Prometheus scrapes. docs/operating.md says what each metric means.
//!
//! # Guarantees
//! - Counters exist from the start, with every label that they can have (O2).
//! - What describes an object or a zone is computed when it is scraped from what is there then: it
//!   vanishes with the object, and falls to 0 with the last of its kind.

mod tables;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::Zone;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::Outcome;
use applecart_core::sweep::{Action, Reason, Report};
use applecart_scaleway::{CallReport, ErrorKind, OnCall, Operation};
use kube::runtime::reflector::Store;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use tables::Tables;

/// The form in which metrics are written.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Latencies of one call, in seconds: a call is given up after ten.
const BUCKETS: [f64; 9] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// How a cycle of the sweep ends.
const CYCLES: [&str; 3] = ["complete", "partial", "refused"];

/// How an effect ends.
const OUTCOMES: [&str; 4] = ["done", "refused", "failed", "unknown"];

type Labels = Vec<(&'static str, String)>;

/// The metrics of one process; clones are the same ones.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    calls: Family<Labels, Counter>,
    latency: Family<Labels, Histogram>,
    effects: Family<Labels, Counter>,
    withheld: Family<Labels, Counter>,
    unread_turns: Family<Labels, Counter>,
    leads: Gauge,
    cycles: Family<Labels, Counter>,
    refusals: Family<Labels, Counter>,
    returned: Counter,
    tables: Arc<Tables>,
}

impl Metrics {
    /// The provider's: nothing happened yet; ages are told by `clock`.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        let mut inner = Inner::new(clock);
        inner.register();
        inner.begin();
        Self(Arc::new(inner))
    }

    /// Those of a process that leads or stands by, and counts nothing else.
    #[must_use]
    pub fn of_leader(clock: Clock) -> Self {
        let mut inner = Inner::new(clock);
        inner.register_leader();
        Self(Arc::new(inner))
    }

    /// Everything, as Prometheus reads it.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.0.registry).expect("a text takes everything");
        text
    }

    /// Told of every call to Scaleway.
    #[must_use]
    pub fn on_call(&self) -> OnCall {
        let metrics = self.clone();
        Arc::new(move |call: &CallReport| {
            let operation = ("operation", call.operation.label().to_owned());
            let outcome = ("outcome", call.outcome.to_owned());
            metrics.0.calls.get_or_create(&vec![operation.clone(), outcome]).inc();
            metrics.0.latency.get_or_create(&vec![operation]).observe(call.latency.as_secs_f64());
        })
    }

    /// Whether this process leads.
    pub fn set_leads(&self, leads: bool) {
        self.0.leads.set(i64::from(leads));
    }

    /// Machines are counted from this store.
    pub(crate) fn watch(&self, machines: Store<ScalewayAppleSiliconMachine>) {
        self.0.tables.watch(machines);
    }

    /// An effect ended.
    pub(crate) fn count_effect(&self, controller: &str, action: &str, outcome: &Outcome) {
        let labels = vec![
            ("controller", controller.to_owned()),
            ("action", action.to_owned()),
            ("outcome", outcome_word(outcome).to_owned()),
        ];
        self.0.effects.get_or_create(&labels).inc();
    }

    /// An effect was told of instead of performed.
    pub(crate) fn count_withheld(&self, controller: &str, action: &str) {
        let labels = vec![("controller", controller.to_owned()), ("action", action.to_owned())];
        self.0.withheld.get_or_create(&labels).inc();
    }

    /// A turn ended because something could not be read.
    pub(crate) fn count_unread(&self, controller: &str) {
        let labels = vec![("controller", controller.to_owned())];
        self.0.unread_turns.get_or_create(&labels).inc();
    }

    /// A cycle of the sweep ended: `complete`, `partial` (zones could not be listed) or `refused`.
    pub(crate) fn count_cycle(&self, result: &'static str) {
        assert!(CYCLES.contains(&result), "{result} is no end of a cycle");
        self.0.cycles.get_or_create(&vec![("result", result.to_owned())]).inc();
    }

    /// The sweep did not do something.
    pub(crate) fn count_refusal(&self, reason: &Reason) {
        self.0.refusals.get_or_create(&vec![("reason", reason.word().to_owned())]).inc();
    }

    /// The sweep returned a host.
    pub(crate) fn count_returned(&self) {
        self.0.returned.inc();
    }

    /// What a cycle of the sweep saw; zones that could not be listed stay as they were.
    pub(crate) fn set_hosts(&self, zones: &BTreeMap<Zone, bool>, report: &Report) {
        self.0.tables.set_hosts(zones, report);
    }
}

impl Inner {
    fn new(clock: Clock) -> Self {
        Self {
            registry: Registry::default(),
            calls: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(BUCKETS)),
            effects: Family::default(),
            withheld: Family::default(),
            unread_turns: Family::default(),
            leads: Gauge::default(),
            cycles: Family::default(),
            refusals: Family::default(),
            returned: Counter::default(),
            tables: Arc::new(Tables::new(clock)),
        }
    }

    fn register_leader(&mut self) {
        let help = "1 while this process leads";
        self.registry.register("applecart_leader", help, self.leads.clone());
    }

    fn register(&mut self) {
        self.register_leader();
        let Self { registry, .. } = self;
        registry.register(
            "applecart_scaleway_calls",
            "Requests to Scaleway, by operation and how they ended",
            self.calls.clone(),
        );
        registry.register(
            "applecart_scaleway_call_seconds",
            "How long requests to Scaleway took, waiting for their turn included",
            self.latency.clone(),
        );
        registry.register(
            "applecart_effects",
            "Effects performed, by controller, what they were and how they ended",
            self.effects.clone(),
        );
        registry.register(
            "applecart_effects_withheld",
            "Effects that a process which only observes told of, each once",
            self.withheld.clone(),
        );
        registry.register(
            "applecart_turns_unread",
            "Turns without a decision because something in Kubernetes could not be read",
            self.unread_turns.clone(),
        );
        registry.register(
            "applecart_sweep_cycles",
            "Cycles of the sweep, by how they ended",
            self.cycles.clone(),
        );
        registry.register(
            "applecart_sweep_refusals",
            "What the sweep did not do, by reason",
            self.refusals.clone(),
        );
        registry.register(
            "scaleway_orphan_servers_reclaimed",
            "Hosts that the sweep wiped and returned to the pool",
            self.returned.clone(),
        );
        registry.register_collector(Box::new(self.tables.clone()));
    }

    /// Counters that exist only once they count hide their first event from every rate.
    fn begin(&self) {
        for operation in Operation::ALL {
            let operation = ("operation", operation.label().to_owned());
            for outcome in ["ok"].iter().chain(ErrorKind::LABELS) {
                let outcome = ("outcome", (*outcome).to_owned());
                drop(self.calls.get_or_create(&vec![operation.clone(), outcome]));
            }
            drop(self.latency.get_or_create(&vec![operation]));
        }
        for controller in ["machine", "cluster", "control-plane"] {
            drop(self.unread_turns.get_or_create(&vec![("controller", controller.to_owned())]));
        }
        for action in Action::WORDS {
            let labels = vec![("controller", "sweep".to_owned()), ("action", action.to_owned())];
            drop(self.withheld.get_or_create(&labels));
            for outcome in OUTCOMES {
                let mut labels = labels.clone();
                labels.push(("outcome", outcome.to_owned()));
                drop(self.effects.get_or_create(&labels));
            }
        }
        for result in CYCLES {
            drop(self.cycles.get_or_create(&vec![("result", result.to_owned())]));
        }
        for reason in Reason::REFUSALS {
            drop(self.refusals.get_or_create(&vec![("reason", reason.to_owned())]));
        }
    }
}

fn outcome_word(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Done => "done",
        Outcome::Refused => "refused",
        Outcome::Failed(_) => "failed",
        Outcome::Unknown => "unknown",
    }
}

/// Seconds, as Prometheus counts them.
fn seconds(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
