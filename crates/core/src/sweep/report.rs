//! What people are told of every host.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};

use super::class::Class;
use super::observed::{Inventory, Listed, ZoneRead};
use crate::machine::Host;

/// What one cycle tells of every host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Each zone that could be listed.
    pub zones: BTreeMap<Zone, ZoneReport>,
    /// Objects and hosts that are not one to one, named and left alone.
    pub duplicates: Vec<Duplicate>,
}

/// What one cycle tells of a zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ZoneReport {
    /// Each class, those without a host included.
    pub classes: BTreeMap<Class, ClassReport>,
    /// Hosts outside the pool and under no claiming name that no live object owns.
    pub unowned: Vec<Unowned>,
    /// Hosts of the pool that nobody can adopt, and not for a passing reason.
    pub stuck: Vec<StuckHost>,
}

/// The hosts of a class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ClassReport {
    /// How many.
    pub count: usize,
    /// How long the oldest has been in it.
    pub oldest: Duration,
}

/// A host that no live object owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unowned {
    /// Which host.
    pub server: ServerId,
    /// Its name.
    pub name: String,
    /// Its class.
    pub class: Class,
}

/// A host of the pool that nobody can adopt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StuckHost {
    /// Which host.
    pub server: ServerId,
    /// Its name.
    pub name: String,
    /// What it is doing instead.
    pub state: String,
    /// For how long.
    pub since: Duration,
}

/// What is not one to one: left behind by a system that claimed without a lock (P1, P7).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Duplicate {
    /// Several objects name one host.
    Host {
        /// The host.
        server: ServerId,
        /// The objects, as `namespace/name`.
        objects: BTreeSet<String>,
    },
    /// One object has several hosts: under its name, in its status, in its spec.
    Object {
        /// The object's name.
        name: String,
        /// The hosts.
        servers: BTreeSet<ServerId>,
    },
}

impl Duplicate {
    /// Its name in metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Host { .. } => "host",
            Self::Object { .. } => "object",
        }
    }

    /// Each name in metrics.
    pub const WORDS: [&'static str; 2] = ["host", "object"];
}

impl std::fmt::Display for Duplicate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host { server, objects } => {
                let objects: Vec<&str> = objects.iter().map(String::as_str).collect();
                write!(f, "host {server} is named by {}", objects.join(" and "))
            }
            Self::Object { name, servers } => {
                let servers: Vec<&str> = servers.iter().map(ServerId::as_str).collect();
                write!(f, "object {name} has hosts {}", servers.join(" and "))
            }
        }
    }
}

impl ZoneReport {
    pub(super) fn new() -> Self {
        let classes = Class::ALL.into_iter().map(|class| (class, ClassReport::default()));
        Self { classes: classes.collect(), unowned: vec![], stuck: vec![] }
    }

    pub(super) fn count(&mut self, class: Class, age: Duration) {
        let report = self.classes.entry(class).or_default();
        report.count += 1;
        report.oldest = report.oldest.max(age);
    }

    pub(super) fn note_unowned(&mut self, host: &Host, class: Class) {
        let (server, name) = (host.id.clone(), host.name.clone());
        self.unowned.push(Unowned { server, name, class });
    }
}

/// Everything that is not one to one.
pub(super) fn duplicates(inventory: &Inventory) -> Vec<Duplicate> {
    let listed = inventory.zones.values().flat_map(|zone| match zone {
        ZoneRead::Listed(hosts) => hosts.as_slice(),
        ZoneRead::Failed(_) => &[],
    });
    let mut hosts_of: BTreeMap<String, BTreeSet<ServerId>> = BTreeMap::new();
    let mut objects_of: BTreeMap<ServerId, BTreeSet<String>> = BTreeMap::new();
    for Listed { host, .. } in listed {
        for owner in inventory.owners.by_name(&host.name) {
            hosts_of.entry(owner.name.clone()).or_default().insert(host.id.clone());
        }
    }
    for owner in inventory.owners.all() {
        for server in &owner.servers {
            objects_of.entry(server.clone()).or_default().insert(owner.display());
            hosts_of.entry(owner.name.clone()).or_default().insert(server.clone());
        }
    }
    let hosts = objects_of.into_iter().filter(|(_, objects)| objects.len() > 1);
    let hosts = hosts.map(|(server, objects)| Duplicate::Host { server, objects });
    // Objects of one name in two namespaces have a host each, and that is no duplicate.
    let one_name = |name: &String| inventory.owners.by_name(name).count() == 1;
    let objects =
        hosts_of.into_iter().filter(|(name, servers)| servers.len() > 1 && one_name(name));
    let objects = objects.map(|(name, servers)| Duplicate::Object { name, servers });
    hosts.chain(objects).collect()
}
