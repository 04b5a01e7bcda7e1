//! The provider: claims Macs for Machines, bootstraps them, and returns them wiped.
//!
//! # Flow
//! An event or a timer names an object → one turn reads the world afresh (`observe`), lets
//! `core::machine` decide, performs one effect (`perform`), and looks again. Bootstraps run beside
//! the loop (`bootstraps`); one hung host delays nobody.
//!
//! # Guarantees
//! - Nothing is decided from a cache: what a turn acts on, it read in the same turn. Three
//!   exceptions lead to no change of a host at Scaleway: the list of a zone, shared by all who
//!   wait, from which nothing is done before the host's Lease was taken and the host itself was
//!   read; the host of a running bootstrap, during which a turn only tells how far it is; and what
//!   was read of a host in the last minute (`reads`), from which only what
//!   [`Action::may_follow_a_remembered_read`] names is done.
//!
//! [`Action::may_follow_a_remembered_read`]:
//!     applecart_core::machine::Action::may_follow_a_remembered_read
//!
//! - Everything that runs is part of [`Provider::run`]: dropping it ends all of it.

mod bootstraps;
mod builders;
mod clusters;
mod config;
mod control_planes;
mod departures;
mod drains;
mod egress;
mod fleet_keys;
mod github;
pub(crate) mod leases;
pub(crate) mod leftovers;
mod memory;
mod objects;
mod observe;
mod orders;
mod perform;
mod reads;
mod reboots;
mod rehearse;
mod rests;
mod settings;
mod spread;
mod triggers;
mod turn;
mod unread;
mod work;
mod zones;

use std::sync::Arc;

use applecart_api::clock::Clock;
use applecart_api::ids::ClusterId;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_mac::Dial;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Namespace;
use kube::Api;
use kube::runtime::reflector::Store;
use kube::runtime::reflector::store::Writer;

use crate::calls::{self, ReadError};
use crate::effects::Effects;
use crate::events::Events;
use crate::metrics::Metrics;
use crate::sweep::Sweep;
use crate::tellings::Tellings;
use crate::troubles::Troubles;

pub use egress::Egress;
pub use github::{App, Github, GithubError};
pub(crate) use observe::{chain, guests, host, images_of, is_busy, node, silent_since};
pub(crate) use perform::{outcome_of, reinstall};
pub use settings::Settings;
pub use spread::Spread;

/// The provider's name in Events; alerts of running fleets know it.
const CONTROLLER: &str = "scalewayapplesiliconmachine-controller";

/// The provider and all that it talks to.
pub struct Provider {
    /// The cluster that it runs in.
    pub client: kube::Client,
    /// Where the hosts are.
    pub scaleway: applecart_scaleway::Client,
    /// Where hosts that build images get their runners registered.
    pub github: Github,
    /// How to get to a host.
    pub dial: Arc<dyn Dial>,
    /// What time it is.
    pub clock: Clock,
    /// What is told to Prometheus.
    pub metrics: Metrics,
    /// What an operator chose.
    pub settings: Settings,
}

/// What every turn shares.
struct Context {
    /// Our objects, as the watch tells them.
    store: Store<ScalewayAppleSiliconMachine>,
    client: kube::Client,
    scaleway: applecart_scaleway::Client,
    github: Github,
    dial: Arc<dyn Dial>,
    clock: Clock,
    settings: Settings,
    cluster: ClusterId,
    events: Events,
    effects: Arc<Effects>,
    metrics: Metrics,
    troubles: Troubles,
    tellings: Tellings,
    zones: zones::Zones,
    reads: reads::Reads,
    rests: rests::Rests,
    memory: memory::Memory,
    orders: orders::Orders,
    reboots: reboots::Reboots,
    builders: builders::Builders,
    unread: unread::Unread,
    drains: drains::Drains,
    bootstraps: bootstraps::Bootstraps,
    fleet_keys: fleet_keys::FleetKeys,
}

impl Context {
    /// Everything of a kind that this provider looks at.
    fn watched<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        match &self.settings.watch_namespace {
            Some(namespace) => Api::namespaced(self.client.clone(), namespace),
            None => Api::all(self.client.clone()),
        }
    }
}

impl Provider {
    /// Runs until dropped. Returns only if the cluster's own id cannot be read.
    ///
    /// Boxed, so that the whole of it is compiled here and not in every program that runs it.
    pub fn run(self) -> BoxFuture<'static, Result<(), ReadError>> {
        self.start().boxed()
    }

    async fn start(self) -> Result<(), ReadError> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let kube_system =
            calls::read("namespace kube-system", namespaces.get("kube-system")).await?;
        let uid = kube_system.metadata.uid.unwrap_or_default();
        let cluster = ClusterId::from_kube_system_uid(&uid).map_err(|error| {
            ReadError::Malformed { what: "namespace kube-system", why: error.to_string() }
        })?;
        let (bootstraps, runner) = bootstraps::Bootstraps::new(self.clock.clone());
        let effects = Arc::new(Effects::new(self.settings.observe_only, self.metrics.clone()));
        let sweep = Sweep {
            client: self.client.clone(),
            scaleway: self.scaleway.clone(),
            clock: self.clock.clone(),
            cluster: cluster.clone(),
            namespace: self.settings.namespace.clone(),
            settings: self.settings.sweep.clone(),
            effects: effects.clone(),
            metrics: self.metrics.clone(),
        };
        let watched = Writer::default();
        let context = Arc::new(Context {
            store: watched.as_reader(),
            events: Events::new(self.client.clone(), CONTROLLER, self.clock.clone()),
            troubles: Troubles::new(self.settings.limits.look),
            tellings: Tellings::default(),
            zones: zones::Zones::new(self.settings.list_fresh),
            reads: reads::Reads::new(self.settings.limits.remember),
            rests: rests::Rests::default(),
            memory: memory::Memory::new(self.settings.list_fresh),
            orders: orders::Orders::default(),
            reboots: reboots::Reboots::default(),
            builders: builders::Builders::default(),
            unread: unread::Unread::default(),
            drains: drains::Drains::default(),
            client: self.client,
            scaleway: self.scaleway,
            github: self.github,
            dial: self.dial,
            clock: self.clock,
            settings: self.settings,
            cluster,
            effects,
            metrics: self.metrics,
            bootstraps,
            fleet_keys: fleet_keys::FleetKeys::default(),
        });
        let woken = context.bootstraps.woken();
        tokio::join!(
            biased;
            runner.run(),
            triggers::machines(context.clone(), watched, woken),
            clusters::run(context.clone()),
            fleet_keys::run(context.clone()),
            control_planes::run(context.clone()),
            spread::run(context.clone()),
            egress::run(context),
            sweep.run(),
        );
        Ok(())
    }
}
