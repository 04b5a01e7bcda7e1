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
    /// When the first list that did not show a host was taken.
    absent: Mutex<BTreeMap<ServerId, Instant>>,
}

/// How old a list may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Of a moment ago.
    Fresh,
    /// Begun now.
    New,
}

/// Whether complete lists show a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// The last one does.
    Listed,
    /// The last one does not.
    Once,
    /// Neither does an earlier one.
    Twice,
}

/// A zone's hosts at one time.
#[derive(Clone, Debug)]
pub struct Snapshot {
    taken_at: Instant,
    hosts: Arc<[Host]>,
    leases: Arc<BTreeMap<ServerId, Lease>>,
    chosen: BTreeSet<ServerId>,
}

impl Snapshot {
    /// From one list of hosts and the Leases read after it.
    pub fn new(hosts: Vec<Host>, leases: BTreeMap<ServerId, Lease>) -> Self {
        let (hosts, leases) = (hosts.into(), Arc::new(leases));
        Self { taken_at: Instant::now(), hosts, leases, chosen: BTreeSet::new() }
    }

    /// When it was whole.
    pub fn taken_at(&self) -> Instant {
        self.taken_at
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
        Self { fresh, lists: Mutex::default(), absent: Mutex::default() }
    }

    /// The zone's list: the present one while it is fresh, else what `list` brings. Whoever asks
    /// meanwhile waits for the same one.
    pub async fn get<E>(
        &self,
        zone: &Zone,
        age: Age,
        list: impl Future<Output = Result<Snapshot, E>>,
    ) -> Result<Snapshot, E> {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        let mut slot = slot.lock().await;
        match &*slot {
            Some(snapshot) if age == Age::Fresh && snapshot.taken_at.elapsed() < self.fresh => {
                Ok(snapshot.clone())
            }
            _ => {
                let snapshot = list.await?;
                *slot = Some(snapshot.clone());
                Ok(snapshot)
            }
        }
    }

    /// Looks for a host in a list, and at what an earlier list said: so long `apart`, at least.
    pub async fn look_for(
        &self,
        server: &ServerId,
        snapshot: &Snapshot,
        apart: Duration,
    ) -> Absence {
        if snapshot.hosts.iter().any(|host| host.id == *server) {
            self.is_there(server).await;
            return Absence::Listed;
        }
        let mut absent = self.absent.lock().await;
        let first = *absent.entry(server.clone()).or_insert(snapshot.taken_at);
        if snapshot.taken_at.duration_since(first) >= apart {
            Absence::Twice
        } else {
            Absence::Once
        }
    }

    /// The host was seen: what lists said before counts no more.
    pub async fn is_there(&self, server: &ServerId) {
        self.absent.lock().await.remove(server);
    }

    /// Notes that a host of the present list is being taken, so that nobody else tries.
    pub async fn choose(&self, zone: &Zone, server: &ServerId) {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        if let Some(snapshot) = &mut *slot.lock().await {
            snapshot.chosen.insert(server.clone());
        }
    }

    /// Notes that it is not known to be taken: whoever tried may have it all the same, and must find
    /// it free to try the same one again (P1).
    pub async fn give_back(&self, zone: &Zone, server: &ServerId) {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        if let Some(snapshot) = &mut *slot.lock().await {
            snapshot.chosen.remove(server);
        }
    }
}

#[cfg(test)]
mod tests {
    use applecart_core::machine::HostState;

    use super::*;

    fn host() -> Host {
        Host {
            id: "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().expect("an id"),
            name: "pool-1".into(),
            state: HostState::Ready,
            delivered: true,
            retiring: false,
            server_type: "M2-L".into(),
            os: None,
            address: None,
            has_password: true,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_absent_only_after_two_lists_taken_at_different_times() {
        // S10: a key without rights answers 403 as well.
        let server: ServerId = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().expect("an id");
        let (zones, apart) = (Zones::new(Duration::from_secs(2)), Duration::from_secs(10));
        let look = async || {
            let empty = Snapshot::new(vec![], BTreeMap::new());
            zones.look_for(&server, &empty, apart).await
        };
        assert_eq!(look().await, Absence::Once);
        assert_eq!(look().await, Absence::Once, "the same moment is no other time");
        tokio::time::sleep(Duration::from_secs(10)).await;
        zones.is_there(&server).await;
        assert_eq!(look().await, Absence::Once, "it was seen in between");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(look().await, Absence::Twice);
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_not_known_to_be_taken_is_free_for_whoever_tries_again() {
        // P1: a Lease that was taken late, after nobody heard of it, must be the one tried again.
        let (zones, zone) = (Zones::new(Duration::from_secs(2)), "fr-par-1".parse().expect("one"));
        let listed = async || {
            let list = async { Ok::<_, ()>(Snapshot::new(vec![host()], BTreeMap::new())) };
            zones.get(&zone, Age::Fresh, list).await.expect("a list").candidates()
        };
        let holder = async || listed().await[0].lease.holder.clone();
        assert_eq!(holder().await, LeaseHolder::Nobody);
        zones.choose(&zone, &host().id).await;
        assert!(matches!(holder().await, LeaseHolder::Other(_)));
        zones.give_back(&zone, &host().id).await;
        assert_eq!(holder().await, LeaseHolder::Nobody);
    }
}
