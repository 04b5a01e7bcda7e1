//! How big a world is, and how fast.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use applecart_core::sweep::Policy;
use applecart_core::{machine, runner_pool};
use applecart_mac::{FleetWide, Payload};
use applecart_operator::{provider, sweep};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::crew::Install;
use super::{AGENT_ROLE, Host, NAMESPACE, POOL_PREFIX, REGISTRY};
use crate::cluster_api::NodePace;
use crate::faults::Faults;
use crate::kubernetes::{ApiServer, Authority, EVENT_LIFE, Gate, HISTORY_AGE, Setup};
use crate::mac::{SimMac, SimNetwork, tart_bundle};
use crate::scaleway::{self, Durations, Scaleway};
use crate::tart::{self, SimTart};

/// Calls that a Mac remembers in a run without an end, where nobody asks for more: each may be a
/// long script.
const REMEMBERED_CALLS: usize = 16;

/// How big a world is, and how fast. Durations below are a real fleet's; `speed` divides them all.
pub struct WorldSettings {
    /// Macs in the pool.
    pub hosts: usize,
    /// Machines of the `MachineDeployment`.
    pub machines: u32,
    /// Runners of the pool.
    pub runners: u32,
    /// How many times faster than a real fleet.
    pub speed: f64,
    /// Same seed, same ids, passwords, names and jobs.
    pub seed: u64,
    /// What time it is.
    pub clock: Clock,
    /// Signs the API server's certificate, if it shall listen.
    pub authority: Option<Authority>,
    /// Where Macs and people reach the API server.
    pub api_url: String,
    /// One answer of a Mac over SSH. A bootstrap is some dozens of them.
    pub ssh_latency: Duration,
    /// Whether there is a host at Scaleway that is nobody's here.
    pub foreign: bool,
    /// Roles and bindings; if there are any, nobody may do what they do not say.
    pub roles: &'static [Value],
    /// How many providers and runner-pool processes there are, one or two; each believes to lead.
    pub providers: usize,
    /// Whether Deployments get their Pods.
    pub deployments: bool,
    /// Whether jobs come in, claim idle runners and end.
    pub jobs: bool,
    /// What goes wrong, if anything.
    pub faults: Option<Arc<Faults>>,
}

fn sweep_settings(install: &Install) -> sweep::Settings {
    sweep::Settings {
        zones: vec!["fr-par-1".parse().expect("a zone")],
        policy: Policy {
            interval: install.sweep_interval,
            pool_prefix: install.default_pool.then(|| POOL_PREFIX.to_owned()),
            claim_prefix: install.claim_prefix.map(str::to_owned),
            max_per_cycle: 3,
            max_share_percent: 50,
            quarantine_after: machine::Limits::default().tiers.quarantine_after,
            patience: machine::Limits::default().patience,
        },
        look: Duration::from_mins(1),
    }
}

/// How long a CI job takes, at least; at most three times that.
pub const SHORTEST_JOB: Duration = Duration::from_mins(6);
/// How often a job comes in.
pub const JOB_EVERY: Duration = Duration::from_mins(2);

/// People read Events however fast a world is.
const SHORTEST_EVENT_LIFE: Duration = Duration::from_mins(5);

/// Whoever reads page by page, or missed a minute, finds where it left off however fast a world is.
const SHORTEST_HISTORY: Duration = Duration::from_mins(1);

impl WorldSettings {
    /// A real fleet's `duration` in this world.
    pub(super) fn scale(&self, duration: Duration) -> Duration {
        duration.div_f64(self.speed)
    }

    /// An API server for it, with nothing in it yet.
    pub(super) fn api(&mut self) -> ApiServer {
        let server = ApiServer::set_up(Setup {
            clock: self.clock.clone(),
            seed: self.seed,
            registry: REGISTRY.clone(),
            event_life: self.scale(EVENT_LIFE).max(SHORTEST_EVENT_LIFE),
            gate: self.faults.clone().map(|faults| faults as Arc<dyn Gate>),
            authority: self.authority.take(),
        });
        server.keep_history(self.scale(HISTORY_AGE).max(SHORTEST_HISTORY));
        server
    }

    /// How often a stand-in looks by itself.
    pub(super) fn period(&self) -> Duration {
        self.scale(Duration::from_secs(10))
    }

    /// How the life of Nodes goes. Heartbeats carry whole seconds, so none may be silent for less
    /// than a few.
    pub(super) fn node_pace(&self) -> NodePace {
        let grace = self.scale(Duration::from_secs(50)).max(Duration::from_secs(5));
        NodePace { period: self.period(), grace, second: self.scale(Duration::from_secs(1)) }
    }

    pub(super) fn scaleway(&self) -> scaleway::Settings {
        let real = Durations::default();
        let durations = Durations {
            starting: self.scale(real.starting),
            starting_other_os: self.scale(real.starting_other_os),
            rebooting: self.scale(real.rebooting),
            reinstalling: self.scale(real.reinstalling),
            vpc_updating: self.scale(real.vpc_updating),
            floor: self.scale(real.floor),
        };
        scaleway::Settings { durations, ..scaleway::Settings::new(self.seed) }
    }

    /// The Mac behind a host, at its address.
    pub(super) fn mac(&self, scaleway: &Scaleway, network: &SimNetwork, id: &ServerId) -> Host {
        let secrets = scaleway.mac_secrets(id);
        let password = secrets.map(|secrets| secrets.password.expose_secret().to_owned());
        let mac = SimMac::new(id.as_str(), &password.unwrap_or_default());
        mac.set_latency(self.mac_latency());
        if let Some(faults) = &self.faults {
            mac.set_gate(faults.clone());
            if faults.is_endless() {
                mac.remember(REMEMBERED_CALLS);
            }
        }
        let keys = scaleway.clone();
        mac.authorize_by(Arc::new(move || keys.public_keys()));
        if let Some(view) = scaleway.host(id) {
            network.insert(&view.ip.to_string(), mac.clone());
        }
        let tart = SimTart::new(self.clock.clone());
        tart.set_durations(tart::Durations::default().scaled(self.speed));
        mac.run_vms_by(tart.clone());
        Host { mac, tart }
    }

    pub(super) fn mac_latency(&self) -> Duration {
        self.scale(self.ssh_latency)
    }

    pub(super) fn provider(&self, install: &Install) -> provider::Settings {
        provider::Settings {
            namespace: NAMESPACE.to_owned(),
            watch_namespace: None,
            default_pool_prefix: install.default_pool.then(|| POOL_PREFIX.to_owned()),
            api_server_url: self.api_url.clone(),
            agent_role: AGENT_ROLE.to_owned(),
            remote_token: None,
            host_cpu: 8,
            host_memory_mb: 14336,
            max_pods: 2,
            ssh_port: 22,
            drain_timeout: Duration::from_hours(2),
            ssh_patience: Duration::from_mins(5),
            list_fresh: Duration::from_secs(2),
            concurrent_turns: 32,
            observe_only: false,
            sweep: sweep_settings(install),
            // Often enough for what a fault left behind to be seen soon after it.
            limits: machine::Limits {
                upkeep: Duration::from_mins(5),
                drain: Duration::from_mins(20),
                ..machine::Limits::default()
            },
            fleet: FleetWide {
                agent: Payload::new(install.agent),
                tart: tart_bundle(install.tart),
                tailscale: None,
                node_exporter: None,
            },
            spread: None,
            egress: None,
            tailscale_key_secret: None,
        }
        .scaled(self.speed)
    }

    pub(super) fn pools(&self) -> runner_pool::Limits {
        runner_pool::Limits::default().scaled(self.speed)
    }
}
