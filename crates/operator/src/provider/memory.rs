//! What Kubernetes last said, for a moment: the turns of one object follow each other closely, and
//! most of what they look at has not changed in between. In memory: losing it costs reads.
//!
//! # Guarantees
//! - What a watch has told anything new of is not recalled.
//! - What was written is known from the answer; after an effect that ended otherwise it is read.
//! - A turn that changes a host, or gives up anything, recalls nothing that was read before it
//!   began (`turn.rs`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::cluster_api::{Cluster, Machine};
use applecart_api::ids::ServerId;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::machine::{Exactly, Identity, Node};
use k8s_openapi::api::coordination::v1::Lease;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::calls::ReadError;

/// Longest that a read is on its way; what watches told meanwhile is remembered for as long.
const UNDER_WAY: Duration = Duration::from_secs(30);
/// Versions of an object that are known to be older than the last one.
const VERSIONS: usize = 32;
/// After so many that are new, somebody looks for what is too old.
const FEW: usize = 64;

/// What Kubernetes last said of everything that turns look at again and again.
pub struct Memory {
    /// Our objects, by uid.
    pub objects: Objects,
    /// By namespace and name.
    pub machines: Recent<Machine>,
    /// By namespace and name.
    pub clusters: Recent<Cluster>,
    /// By name.
    pub nodes: Recent<Node>,
    /// Leases of hosts, by host.
    pub leases: Recent<Lease>,
    /// Which host's Lease an object took, by uid. Only where to look first.
    pub held: Recent<ServerId>,
    /// What a Mac's agent and its bootstrap need, by the object's name.
    pub kits: Recent<Kit>,
    /// The accounts of Macs' agents, and so who signed them, by the object's name.
    pub accounts: Recent<ObjectMeta>,
}

/// What there is of what a Mac's agent and its bootstrap need.
#[derive(Clone, Debug, Default)]
pub struct Kit {
    /// Parts of the agent's identity.
    pub identity: BTreeMap<Identity, Exactly>,
    /// Whether its token is filled in.
    pub token: bool,
    /// The Secret for the host's password and key, if there is one.
    pub stored: Option<Exactly>,
    /// The host's password, if it is in there and can be used.
    pub password: Option<SecretString>,
}

impl Memory {
    /// Everything is remembered for so long.
    pub fn new(fresh: Duration) -> Self {
        Self {
            objects: Objects { fresh, noted: AtomicUsize::new(1), last: Mutex::default() },
            machines: Recent::new(fresh),
            clusters: Recent::new(fresh),
            nodes: Recent::new(fresh),
            leases: Recent::new(fresh),
            held: Recent::new(fresh),
            kits: Recent::new(fresh),
            accounts: Recent::new(fresh),
        }
    }
}

/// The key of what has a namespace.
pub fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// What began before what: every turn and every read of a process has the next number.
static BEGINNINGS: AtomicU64 = AtomicU64::new(1);

/// How one turn reads, and whether it recalled anything that was read before it began.
#[derive(Debug)]
pub struct Reading {
    turn: u64,
    may_recall: bool,
    recalled: AtomicBool,
}

impl Reading {
    /// Of a new turn, which recalls what it can.
    pub fn recalling() -> Self {
        Self { turn: next(), may_recall: true, recalled: AtomicBool::new(false) }
    }

    /// Of the same turn, which reads everything that nobody has read since it began.
    pub fn anew(&self) -> Self {
        Self { turn: self.turn, may_recall: false, recalled: AtomicBool::new(false) }
    }

    /// Whether it may recall what was read before it began.
    pub fn may_recall(&self) -> bool {
        self.may_recall
    }

    /// Whether anything was recalled so far.
    pub fn has_recalled(&self) -> bool {
        self.recalled.load(Ordering::Relaxed)
    }

    /// Whether a read that began then is as new as one of this turn: another turn's may be, and all
    /// Machines of a Cluster read that.
    fn is_as_new(&self, began: u64) -> bool {
        began > self.turn
    }

    /// `known`, read by a read that began then, if it may be recalled.
    fn recall<T>(&self, began: u64, known: T) -> Option<T> {
        if self.is_as_new(began) {
            return Some(known);
        }
        self.may_recall.then(|| {
            self.recalled.store(true, Ordering::Relaxed);
            known
        })
    }
}

/// The number of what begins now.
pub fn next() -> u64 {
    BEGINNINGS.fetch_add(1, Ordering::Relaxed)
}

/// The last read of each thing of a kind, its absence included.
pub struct Recent<T> {
    fresh: Duration,
    slots: Mutex<Slots<T>>,
}

struct Slots<T> {
    by_key: BTreeMap<String, Slot<T>>,
    /// How many were inserted since anybody looked for what is too old.
    inserted: usize,
}

struct Slot<T> {
    /// When anything was last known, or known to have changed.
    touched: Instant,
    /// How often it was known to change: a read that began before it does not count.
    changes: u64,
    /// The number of the read; 0 if it is known from a write.
    began: u64,
    said: Said<T>,
}

/// What is known of something.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said<T> {
    Nothing,
    IsAbsent,
    Is(T),
}

impl<T: Clone> Recent<T> {
    fn new(fresh: Duration) -> Self {
        Self { fresh, slots: Mutex::new(Slots { by_key: BTreeMap::new(), inserted: 0 }) }
    }

    fn slots(&self) -> MutexGuard<'_, Slots<T>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was last read of `key`, if `reading` may recall it; else what `read` brings.
    pub async fn get(
        &self,
        key: &str,
        reading: &Reading,
        read: impl Future<Output = Result<Option<T>, ReadError>>,
    ) -> Result<Option<T>, ReadError> {
        let (began, said) = self.said(key);
        let known = match said {
            Said::Nothing => None,
            Said::IsAbsent => reading.recall(began, None),
            Said::Is(known) => reading.recall(began, Some(known)),
        };
        if let Some(known) = known {
            return Ok(known);
        }
        let (touched, began) = (Instant::now(), next());
        let changes = self.slots().by_key.get(key).map_or(0, |slot| slot.changes);
        let value = read.await?;
        let mut slots = self.slots();
        let now = slots.by_key.get(key).map_or(0, |slot| slot.changes);
        if now == changes {
            let said = value.clone().map_or(Said::IsAbsent, Said::Is);
            slots.insert(key, Slot { touched, changes, began, said }, self.fresh);
        }
        Ok(value)
    }

    /// What is known, and by which read.
    fn said(&self, key: &str) -> (u64, Said<T>) {
        let slots = self.slots();
        let slot = slots.by_key.get(key).filter(|slot| slot.touched.elapsed() < self.fresh);
        slot.map_or((0, Said::Nothing), |slot| (slot.began, slot.said.clone()))
    }

    /// What was last read or written under `key`, while it counts.
    pub fn known(&self, key: &str) -> Option<T> {
        match self.said(key).1 {
            Said::Is(known) => Some(known),
            Said::Nothing | Said::IsAbsent => None,
        }
    }

    /// A write's answer, or its end: `None` if nobody knows what is there now.
    pub fn wrote(&self, key: &str, answer: Option<T>) {
        self.change(key, answer.map_or(Said::Nothing, Said::Is));
    }

    /// It changed, or may have.
    pub fn forget(&self, key: &str) {
        self.change(key, Said::Nothing);
    }

    /// Changes what is remembered of `key`, if anything is; it counts for no longer than before.
    pub fn amend(&self, key: &str, change: impl FnOnce(&mut T)) {
        let mut slots = self.slots();
        if let Some(Slot { changes, began, said: Said::Is(known), .. }) = slots.by_key.get_mut(key)
        {
            change(known);
            *changes += 1;
            *began = 0;
        }
    }

    fn change(&self, key: &str, said: Said<T>) {
        let mut slots = self.slots();
        let changes = slots.by_key.get(key).map_or(0, |slot| slot.changes) + 1;
        let slot = Slot { touched: Instant::now(), changes, began: 0, said };
        slots.insert(key, slot, self.fresh);
    }
}

impl<T> Slots<T> {
    /// Inserts, and now and then drops what is too old to matter: what was said after its time, and
    /// that it changed when no read can be on its way any more.
    fn insert(&mut self, key: &str, slot: Slot<T>, fresh: Duration) {
        self.by_key.insert(key.to_owned(), slot);
        self.inserted += 1;
        if self.inserted < FEW {
            return;
        }
        self.inserted = 0;
        self.by_key.retain(|_, slot| slot.touched.elapsed() < UNDER_WAY);
        for slot in self.by_key.values_mut().filter(|slot| slot.touched.elapsed() >= fresh) {
            slot.said = Said::Nothing;
        }
    }
}

/// Without what nobody here looks at, and which is most of an object.
pub fn slim<K: kube::Resource>(mut object: K) -> K {
    object.meta_mut().managed_fields = None;
    object
}

/// Our objects as they were last read or written.
pub struct Objects {
    fresh: Duration,
    /// How many reads and writes there were.
    noted: AtomicUsize,
    last: Mutex<BTreeMap<String, Known>>,
}

struct Known {
    at: Instant,
    /// The number of the read; 0 if it is known from a write.
    began: u64,
    /// Its version, and earlier ones.
    versions: VecDeque<String>,
    /// Unless it is too old to be recalled.
    object: Option<ScalewayAppleSiliconMachine>,
}

impl Objects {
    fn last(&self) -> MutexGuard<'_, BTreeMap<String, Known>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The object, if the watch shows nothing that is newer than what we know.
    pub fn recall(
        &self,
        watched: &ScalewayAppleSiliconMachine,
        reading: &Reading,
    ) -> Option<ScalewayAppleSiliconMachine> {
        let (uid, version) = (watched.uid()?, watched.resource_version()?);
        let last = self.last();
        let known = last.get(&uid).filter(|known| known.at.elapsed() < self.fresh)?;
        // What was read since this turn began is at least as new as what woke it.
        let counts = reading.is_as_new(known.began) || known.versions.contains(&version);
        let object = known.object.as_ref().filter(|_| counts)?;
        reading.recall(known.began, object.clone())
    }

    /// Whether we read or wrote this version of the object, or a later one.
    pub fn knows(&self, object: &ScalewayAppleSiliconMachine) -> bool {
        let (Some(uid), Some(version)) = (object.uid(), object.resource_version()) else {
            return false;
        };
        self.last().get(&uid).is_some_and(|known| known.versions.contains(&version))
    }

    /// A read that began then told it: this is how it is.
    pub fn read(&self, object: &ScalewayAppleSiliconMachine, began: u64) {
        self.note(object, began);
    }

    /// It was written: this is how it is.
    pub fn wrote(&self, object: &ScalewayAppleSiliconMachine) {
        self.note(object, 0);
    }

    fn note(&self, object: &ScalewayAppleSiliconMachine, began: u64) {
        let (Some(uid), Some(version)) = (object.uid(), object.resource_version()) else { return };
        let mut last = self.last();
        let mut versions = last.remove(&uid).map(|known| known.versions).unwrap_or_default();
        if !versions.contains(&version) {
            versions.push_back(version);
        }
        while versions.len() > VERSIONS {
            versions.pop_front();
        }
        let object = Some(slim(object.clone()));
        last.insert(uid, Known { at: Instant::now(), began, versions, object });
        if self.noted.fetch_add(1, Ordering::Relaxed).is_multiple_of(FEW) {
            last.retain(|_, known| known.at.elapsed() < UNDER_WAY);
            for known in last.values_mut().filter(|known| known.at.elapsed() >= self.fresh) {
                known.object = None;
            }
        }
    }

    /// It is gone, or nobody knows how it is.
    pub fn forget(&self, uid: &str) {
        self.last().remove(uid);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: Duration = Duration::from_secs(2);

    async fn read(recent: &Recent<u32>, reading: &Reading, value: u32) -> Option<u32> {
        recent.get("a", reading, async { Ok(Some(value)) }).await.expect("a read")
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_recalled_for_its_time_by_those_who_may() {
        let recent = Recent::new(FRESH);
        let first = Reading::recalling();
        assert_eq!(read(&recent, &first, 1).await, Some(1));
        assert!(!first.has_recalled());
        let next = Reading::recalling();
        assert_eq!(read(&recent, &next, 2).await, Some(1));
        assert!(next.has_recalled());
        let anew = next.anew();
        assert_eq!(read(&recent, &anew, 3).await, Some(3));
        assert_eq!(read(&recent, &anew, 4).await, Some(3), "a turn reads a thing once");
        assert!(!anew.has_recalled());
        let other = Reading::recalling().anew();
        assert_eq!(read(&recent, &next.anew(), 5).await, Some(3), "read since it began");
        assert_eq!(read(&recent, &other, 5).await, Some(5), "read before it began");
        assert_eq!(read(&recent, &anew, 6).await, Some(5), "by another turn, meanwhile");
        tokio::time::sleep(FRESH).await;
        assert_eq!(read(&recent, &Reading::recalling(), 4).await, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn absence_is_recalled_too_until_something_is_written() {
        let recent: Recent<u32> = Recent::new(FRESH);
        let none = async || recent.get("a", &Reading::recalling(), async { Ok(None) }).await;
        assert_eq!(none().await.expect("a read"), None);
        assert_eq!(read(&recent, &Reading::recalling(), 1).await, None);
        recent.wrote("a", Some(2));
        assert_eq!(read(&recent, &Reading::recalling(), 3).await, Some(2));
        recent.amend("a", |value| *value += 10);
        assert_eq!(read(&recent, &Reading::recalling(), 3).await, Some(12));
        recent.wrote("a", None);
        assert_eq!(read(&recent, &Reading::recalling(), 4).await, Some(4));
    }

    #[tokio::test(start_paused = true)]
    async fn what_changes_while_it_is_read_is_read_again() {
        let recent = Recent::new(FRESH);
        let reading = Reading::recalling().anew();
        let slow = recent.get("a", &reading, async {
            recent.forget("a");
            Ok(Some(1))
        });
        assert_eq!(slow.await.expect("a read"), Some(1));
        assert_eq!(recent.known("a"), None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_is_recalled_unless_the_watch_shows_a_version_that_we_do_not_know() {
        let objects = Objects { fresh: FRESH, noted: AtomicUsize::new(1), last: Mutex::default() };
        let at = |version: &str| -> ScalewayAppleSiliconMachine {
            serde_json::from_value(serde_json::json!({
                "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
                "kind": "ScalewayAppleSiliconMachine",
                "metadata": {"name": "m", "uid": "u", "resourceVersion": version},
                "spec": {},
            }))
            .expect("an object")
        };
        let recalled = |watched: &str| {
            let found = objects.recall(&at(watched), &Reading::recalling());
            found.and_then(|object| object.resource_version())
        };
        objects.wrote(&at("1"));
        objects.wrote(&at("2"));
        assert_eq!(recalled("1").as_deref(), Some("2"), "the watch is behind our own write");
        assert_eq!(recalled("2").as_deref(), Some("2"));
        assert_eq!(recalled("3"), None, "somebody else's");
        let turn = Reading::recalling();
        assert!(objects.recall(&at("2"), &turn.anew()).is_none());
        objects.read(&at("4"), next());
        assert!(objects.recall(&at("2"), &turn.anew()).is_some(), "read since it began");
        objects.wrote(&at("2"));
        tokio::time::sleep(FRESH).await;
        assert_eq!(recalled("2"), None);
    }
}
