//! One list of a zone serves all who wait: calls grow with the fleet, never with its square.

use std::collections::BTreeMap;
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
    lists: Mutex<BTreeMap<Zone, Arc<Mutex<Slot>>>>,
    absent: Mutex<BTreeMap<ServerId, Missing>>,
}

/// How the last list of a zone went.
#[derive(Debug, Default)]
enum Slot {
    /// There was none.
    #[default]
    Nothing,
    /// So.
    Listed(Snapshot),
    /// It failed, after so long: whoever waited for it does not try the same at once.
    Failed { begun_at: Instant, at: Instant, why: Unlisted },
}

/// Why a zone could not be listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unlisted {
    /// In words.
    pub why: String,
    /// Scaleway says that there is no such zone.
    pub no_zone: bool,
}

/// When the first list was taken that did not show a host.
#[derive(Clone, Copy, Debug)]
struct Missing {
    /// Of all lists.
    from_any: Instant,
    /// Of those that showed another host of ours.
    from_ours: Option<Instant>,
}

/// How far two lists that do not show a host must be apart to count as two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Apart {
    /// Lists that show another host of ours: one that has a Lease.
    pub usual: Duration,
    /// Lists that show none of ours, whatever else they show: a key for another project gets such,
    /// and so does the owner of one host that is gone. Only time tells these apart.
    pub strange: Duration,
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
    begun_at: Instant,
    taken_at: Instant,
    /// In order of id; shared, because every Machine that waits looks at all of them.
    hosts: Vec<Arc<Candidate>>,
    /// Those that somebody chose since, as they were listed.
    chosen: BTreeMap<ServerId, Arc<Candidate>>,
}

impl Snapshot {
    /// From one list of hosts and the Leases read after it.
    pub fn new(mut hosts: Vec<Host>, mut leases: BTreeMap<ServerId, Lease>) -> Self {
        hosts.sort_by(|a, b| a.id.cmp(&b.id));
        let candidate = |host: Host| {
            let lease = leases.remove(&host.id).unwrap_or_else(Lease::free);
            Arc::new(Candidate { host, lease })
        };
        let (hosts, now) = (hosts.into_iter().map(candidate).collect(), Instant::now());
        Self { begun_at: now, taken_at: now, hosts, chosen: BTreeMap::new() }
    }

    /// When it was whole.
    pub fn taken_at(&self) -> Instant {
        self.taken_at
    }

    /// Hosts in order of id; those that somebody chose since the list count as held.
    pub fn candidates(&self) -> Vec<Arc<Candidate>> {
        self.hosts.clone()
    }

    /// Whether it shows any host that has a Lease here: another project's list shows none.
    fn shows_ours(&self) -> bool {
        self.hosts.iter().any(|candidate| candidate.lease.version.is_some())
    }

    fn at(&mut self, server: &ServerId) -> Option<&mut Arc<Candidate>> {
        let at = self.hosts.binary_search_by(|candidate| candidate.host.id.cmp(server)).ok()?;
        self.hosts.get_mut(at)
    }

    fn choose(&mut self, server: &ServerId) {
        let Some(listed) = self.at(server) else { return };
        if listed.lease.holder == LeaseHolder::Nobody {
            let before = listed.clone();
            let holder = LeaseHolder::Other("another Machine".to_owned());
            Arc::make_mut(listed).lease.holder = holder;
            self.chosen.insert(server.clone(), before);
        }
    }

    fn give_back(&mut self, server: &ServerId) {
        if let (Some(before), Some(listed)) = (self.chosen.remove(server), self.at(server)) {
            *listed = before;
        }
    }
}

impl Zones {
    /// Lists are used for so long.
    pub fn new(fresh: Duration) -> Self {
        Self { fresh, lists: Mutex::default(), absent: Mutex::default() }
    }

    /// The zone's list: the present one while it is fresh, else what `list` brings. Whoever asks
    /// meanwhile waits for the same one, and hears of the same failure.
    pub async fn get(
        &self,
        zone: &Zone,
        age: Age,
        list: impl Future<Output = Result<Snapshot, Unlisted>>,
    ) -> Result<Snapshot, Unlisted> {
        let asked_at = Instant::now();
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        let mut slot = slot.lock().await;
        let serves = |begun_at: Instant, ended_at: Instant| match age {
            Age::Fresh => ended_at.elapsed() < self.fresh,
            Age::New => begun_at > asked_at,
        };
        match &*slot {
            Slot::Listed(snapshot) if serves(snapshot.begun_at, snapshot.taken_at) => {
                return Ok(snapshot.clone());
            }
            Slot::Failed { begun_at, at, why } if serves(*begun_at, *at) => {
                return Err(why.clone());
            }
            Slot::Nothing | Slot::Listed(_) | Slot::Failed { .. } => {}
        }
        let begun_at = Instant::now();
        let listed = list.await.map(|snapshot| Snapshot { begun_at, ..snapshot });
        *slot = match &listed {
            Ok(snapshot) => Slot::Listed(snapshot.clone()),
            Err(why) => Slot::Failed { begun_at, at: Instant::now(), why: why.clone() },
        };
        listed
    }

    /// Looks for a host in a list, and at what an earlier list said: so far `apart`, at least.
    pub async fn look_for(&self, server: &ServerId, snapshot: &Snapshot, apart: Apart) -> Absence {
        if snapshot.hosts.iter().any(|candidate| candidate.host.id == *server) {
            self.is_there(server).await;
            return Absence::Listed;
        }
        let (now, shows_ours) = (snapshot.taken_at, snapshot.shows_ours());
        let mut absent = self.absent.lock().await;
        let missing = Missing { from_any: now, from_ours: None };
        let missing = absent.entry(server.clone()).or_insert(missing);
        if shows_ours {
            missing.from_ours.get_or_insert(now);
        }
        let is_apart = |first: Instant, apart| now.duration_since(first) >= apart;
        let among_ours = missing.from_ours.filter(|_| shows_ours);
        if among_ours.is_some_and(|first| is_apart(first, apart.usual))
            || is_apart(missing.from_any, apart.strange)
        {
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
        if let Slot::Listed(snapshot) = &mut *slot.lock().await {
            snapshot.choose(server);
        }
    }

    /// Notes that it is not known to be taken: whoever tried may have it all the same, and must
    /// find it free to try the same one again (P1).
    pub async fn give_back(&self, zone: &Zone, server: &ServerId) {
        let slot = self.lists.lock().await.entry(zone.clone()).or_default().clone();
        if let Slot::Listed(snapshot) = &mut *slot.lock().await {
            snapshot.give_back(server);
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
            changed_at: None,
        }
    }

    fn unlisted() -> Unlisted {
        Unlisted { why: "no answer".to_owned(), no_zone: false }
    }

    const APART: Apart = Apart { usual: Duration::from_secs(10), strange: Duration::from_mins(30) };

    /// A list that shows a host, which has a Lease here.
    fn shows_ours() -> Snapshot {
        let lease = Lease { version: Some("7".into()), ..Lease::free() };
        Snapshot::new(vec![host()], BTreeMap::from([(host().id, lease)]))
    }

    /// One that shows a host that nobody here ever had.
    fn shows_a_strangers() -> Snapshot {
        Snapshot::new(vec![host()], BTreeMap::new())
    }

    fn zone() -> Zone {
        "fr-par-1".parse().expect("a zone")
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_is_absent_only_after_two_lists_taken_at_different_times() {
        // S10: a key without rights answers 403 as well.
        let server: ServerId = "00000000-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().expect("an id");
        let zones = Zones::new(Duration::from_secs(2));
        let look = async || zones.look_for(&server, &shows_ours(), APART).await;
        assert_eq!(look().await, Absence::Once);
        assert_eq!(look().await, Absence::Once, "the same moment is no other time");
        tokio::time::sleep(Duration::from_secs(10)).await;
        zones.is_there(&server).await;
        assert_eq!(look().await, Absence::Once, "it was seen in between");
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(look().await, Absence::Twice);
    }

    #[tokio::test(start_paused = true)]
    async fn lists_that_show_none_of_ours_prove_an_absence_only_after_a_long_time() {
        // S10: a key for another project lists nothing, or what is there, and answers 403.
        let server: ServerId = "00000000-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().expect("an id");
        for strange in [|| Snapshot::new(vec![], BTreeMap::new()), shows_a_strangers] {
            let zones = Zones::new(Duration::from_secs(2));
            let look = async |list: Snapshot| zones.look_for(&server, &list, APART).await;
            assert_eq!(look(strange()).await, Absence::Once);
            tokio::time::sleep(Duration::from_mins(29)).await;
            assert_eq!(look(strange()).await, Absence::Once);
            assert_eq!(look(shows_ours()).await, Absence::Once, "the first that shows any of ours");
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(look(strange()).await, Absence::Once, "that one shows none again");
            assert_eq!(look(shows_ours()).await, Absence::Twice);
            tokio::time::sleep(Duration::from_mins(1)).await;
            // The owner of one host, which is gone, is not kept waiting for ever (V1).
            assert_eq!(look(strange()).await, Absence::Twice);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_wait_for_a_list_hear_of_its_failure_at_once() {
        // S11: else each of them waits for a failure of its own, one after another.
        let zones = Zones::new(Duration::from_secs(2));
        let (zone, slow) = (zone(), Duration::from_mins(2));
        let ask = |age: Age| {
            let (zones, zone) = (&zones, &zone);
            async move {
                let list = async {
                    tokio::time::sleep(slow).await;
                    Err(unlisted())
                };
                zones.get(zone, age, list).await.map(drop)
            }
        };
        let began = Instant::now();
        let all = futures::future::join_all((0..32).map(|_| ask(Age::Fresh))).await;
        assert_eq!((all.len(), began.elapsed()), (32, slow));
        assert!(all.iter().all(|heard| *heard == Err(unlisted())));
        let began = Instant::now();
        let all = futures::future::join_all((0..8).map(|_| ask(Age::New))).await;
        assert_eq!((all.len(), began.elapsed()), (8, slow * 2), "one more, begun since they asked");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let began = Instant::now();
        assert!(ask(Age::Fresh).await.is_err());
        assert_eq!(began.elapsed(), slow, "it is tried again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_host_that_is_not_known_to_be_taken_is_free_for_whoever_tries_again() {
        // P1: a Lease that was taken late, after nobody heard of it, must be the one tried again.
        let (zones, zone) = (Zones::new(Duration::from_secs(2)), zone());
        let listed = async || {
            let list = async { Ok(Snapshot::new(vec![host()], BTreeMap::new())) };
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
