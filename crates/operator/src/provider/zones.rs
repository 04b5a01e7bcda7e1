//! One list of a zone serves all who wait: calls grow with the fleet, never with its square.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use applecart_core::machine::{Candidate, Host, Lease, LeaseHolder};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lists of zones, each with the Leases of its hosts.
#[derive(Debug)]
pub struct Zones {
    fresh: Duration,
    lists: Mutex<BTreeMap<Zone, Arc<Mutex<Option<Snapshot>>>>>,
}

/// A zone's hosts at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken_at: Instant,
    hosts: Vec<Host>,
    leases: BTreeMap<ServerId, Lease>,
    chosen: BTreeSet<ServerId>,
}

impl Snapshot {
    /// From one list of hosts and the Leases read after it.
    pub fn new(hosts: Vec<Host>, leases: BTreeMap<ServerId, Lease>) -> Self {
        Self { taken_at: Instant::now(), hosts, leases, chosen: BTreeSet::new() }
    }

    /// Hosts in order of id; those that somebody chose since the list count as held.
    pub fn candidates(&self) -> Vec<Candidate> {
        let candidate = |host: &Host| {
            let mut lease = self.leases.get(&host.id).cloned().unwrap_or_else(Lease::free);
            if self.chosen.contains(&host.id) && lease.holder == LeaseHolder::Nobody {
                lease.holder = LeaseHolder::Other("another Machine".to_owned());
            }
            Candidate { host: host.clone(), lease }
        };
        self.hosts.iter().map(candidate).collect()
    }
}

impl Zones {
    /// Lists are used for so long.
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, lists: Mutex::default() }
    }

    /// The zone's list: the present one while it is fresh, else what `list` brings. Whoever asks
    /// meanwhile waits for the same one.
    pub async fn get<E>(
        &self,
        zone: &Zone,
        list: impl Future<Output = Result<Snapshot, E>>,
    ) -> Result<Vec<Candidate>, E> {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        let mut slot = slot.lock().await;
        match &*slot {
            Some(snapshot) if snapshot.taken_at.elapsed() < self.fresh => Ok(snapshot.candidates()),
            _ => {
                let snapshot = list.await?;
                let candidates = snapshot.candidates();
                *slot = Some(snapshot);
                Ok(candidates)
            }
        }
    }

    /// Notes that a host of the present list is being taken, so that nobody else tries.
    pub async fn choose(&self, zone: &Zone, server: &ServerId) {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        if let Some(snapshot) = &mut *slot.lock().await {
            snapshot.chosen.insert(server.clone());
        }
    }
}
