//! Where objects are kept: collections with one version counter, a bounded history of changes for
//! watches, and the indices that garbage collection needs. No I/O.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

/// How many changes of one collection a watch can replay. The real server keeps about as many for a
/// small cluster.
const HISTORY_CHANGES: usize = 1_024;
/// How long a change can be replayed once another has come: the real server compacts as often.
pub const HISTORY_AGE: Duration = Duration::from_mins(5);

/// Where one object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectKey {
    /// The store key of its kind.
    pub resource: Arc<str>,
    /// Its namespace; empty for cluster-wide kinds.
    pub namespace: String,
    pub name: String,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChangeKind {
    Added,
    Modified,
    Deleted,
}

/// One line of a collection's history.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub version: u64,
    pub kind: ChangeKind,
    /// The object after the change; for a deletion its last state, at the deletion's version.
    pub object: Arc<Value>,
    pub previous: Option<Arc<Value>>,
    /// When it happened, for reads that are to miss it.
    pub at: Instant,
}

/// What a rewound collection was, so that it can be again.
pub(crate) struct Present {
    version: u64,
    objects: BTreeMap<(String, String), Arc<Value>>,
}

/// All objects of one kind.
#[derive(Debug)]
pub(crate) struct Collection {
    pub objects: BTreeMap<(String, String), Arc<Value>>,
    pub history: VecDeque<Change>,
    /// The newest version that is no longer in the history.
    pub forgotten: u64,
    news: watch::Sender<u64>,
}

impl Default for Collection {
    fn default() -> Self {
        let news = watch::Sender::new(0);
        Self { objects: BTreeMap::new(), history: VecDeque::new(), forgotten: 0, news }
    }
}

/// All objects of a server.
#[derive(Debug)]
pub(crate) struct Store {
    version: u64,
    collections: BTreeMap<Arc<str>, Collection>,
    uids: BTreeMap<String, ObjectKey>,
    dependents: BTreeMap<String, BTreeSet<ObjectKey>>,
    /// Bindings of roles, by whom they name.
    bindings: BTreeMap<Subject, BTreeSet<ObjectKey>>,
    random: SmallRng,
    history_age: Duration,
}

/// Who a binding names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Subject {
    /// A user, a service account included, by the name that it is known by to the server.
    User(String),
    Group(String),
}

impl Store {
    pub fn new(seed: u64) -> Self {
        Self {
            version: 0,
            collections: BTreeMap::new(),
            uids: BTreeMap::new(),
            dependents: BTreeMap::new(),
            bindings: BTreeMap::new(),
            random: SmallRng::seed_from_u64(seed),
            history_age: HISTORY_AGE,
        }
    }

    /// Lets changes be replayed for so long.
    pub fn keep_history(&mut self, age: Duration) {
        self.history_age = age;
    }

    /// The version of the last change.
    pub fn version(&self) -> u64 {
        self.version
    }

    pub fn get(&self, key: &ObjectKey) -> Option<&Arc<Value>> {
        let name = (key.namespace.clone(), key.name.clone());
        self.collections.get(&key.resource)?.objects.get(&name)
    }

    pub fn collection(&self, resource: &str) -> Option<&Collection> {
        self.collections.get(resource)
    }

    /// The kinds of which there are, or were, objects.
    pub fn resources(&self) -> impl Iterator<Item = &str> {
        self.collections.keys().map(|resource| &**resource)
    }

    /// Objects of one kind, of one namespace or of all, in order of namespace and name.
    pub fn objects(
        &self,
        resource: &str,
        namespace: Option<&str>,
    ) -> impl Iterator<Item = (&(String, String), &Arc<Value>)> {
        let from = (namespace.unwrap_or_default().to_owned(), String::new());
        let namespace = namespace.map(str::to_owned);
        self.collections
            .get(resource)
            .into_iter()
            .flat_map(move |collection| collection.objects.range(from.clone()..))
            .take_while(move |((at, _), _)| namespace.as_ref().is_none_or(|wanted| at == wanted))
    }

    /// Everything in one namespace, of every kind.
    pub fn in_namespace(&self, namespace: &str) -> Vec<ObjectKey> {
        let resources = self.collections.keys();
        let keys = resources.flat_map(|resource| {
            self.objects(resource, Some(namespace)).map(|((namespace, name), _)| ObjectKey {
                resource: resource.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            })
        });
        keys.collect()
    }

    /// Where the object with this uid is.
    pub fn by_uid(&self, uid: &str) -> Option<&ObjectKey> {
        self.uids.get(uid)
    }

    /// Objects that name the object with this uid as an owner.
    pub fn dependents(&self, uid: &str) -> Vec<ObjectKey> {
        self.dependents.get(uid).into_iter().flatten().cloned().collect()
    }

    /// Bindings of roles that name `subject`.
    pub fn bindings(&self, subject: &Subject) -> impl Iterator<Item = &ObjectKey> {
        self.bindings.get(subject).into_iter().flatten()
    }

    /// Rings at every change of a collection.
    pub fn subscribe(&mut self, resource: &Arc<str>) -> watch::Receiver<u64> {
        self.collections.entry(resource.clone()).or_default().news.subscribe()
    }

    /// Writes an object under the next version, whether it was there or not.
    pub fn put(&mut self, key: &ObjectKey, mut object: Value) -> Arc<Value> {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        let collection = self.collections.entry(key.resource.clone()).or_default();
        let name = (key.namespace.clone(), key.name.clone());
        let previous = collection.objects.insert(name, object.clone());
        let kind = if previous.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        collection.tell(
            self.history_age,
            Change {
                version: self.version,
                kind,
                object: object.clone(),
                previous: previous.clone(),
                at: Instant::now(),
            },
        );
        self.reindex(key, previous.as_deref(), Some(&object));
        object
    }

    /// Says that a kind came to be at `version`: nobody can watch it from an earlier one.
    pub fn begin(&mut self, resource: &str, version: u64) {
        let collection = self.collections.entry(resource.into()).or_default();
        collection.forgotten = collection.forgotten.max(version);
    }

    /// Puts an object there that has its version already, before anybody can watch.
    pub fn install(&mut self, key: &ObjectKey, object: Arc<Value>) {
        let version = object["metadata"]["resourceVersion"].as_str();
        let version = version.and_then(|version| version.parse().ok()).unwrap_or_default();
        self.version = self.version.max(version);
        self.uids.insert(uid_of(&object).to_owned(), key.clone());
        let collection = self.collections.entry(key.resource.clone()).or_default();
        collection.forgotten = self.version;
        collection.objects.insert((key.namespace.clone(), key.name.clone()), object);
    }

    /// Takes an object away under the next version; its last state, if it was there.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Value>> {
        let collection = self.collections.get_mut(&key.resource)?;
        let previous = collection.objects.remove(&(key.namespace.clone(), key.name.clone()))?;
        self.version += 1;
        let mut object = Value::clone(&previous);
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        let object = Arc::new(object);
        collection.tell(
            self.history_age,
            Change {
                version: self.version,
                kind: ChangeKind::Deleted,
                object: object.clone(),
                previous: Some(previous.clone()),
                at: Instant::now(),
            },
        );
        self.reindex(key, Some(&previous), None);
        Some(object)
    }

    /// Shows a collection as it was `age` ago, as far as its history reaches, until it is
    /// [restored](Self::restore).
    pub fn rewind(&mut self, resource: &str, age: Duration) -> Option<Present> {
        let now = Instant::now();
        self.rewind_while(resource, |change| now.duration_since(change.at) < age)
    }

    /// Shows a collection as it was at `version`, in the same way.
    pub fn rewind_to(&mut self, resource: &str, version: u64) -> Option<Present> {
        self.rewind_while(resource, |change| change.version > version)
    }

    fn rewind_while(&mut self, resource: &str, undo: impl Fn(&Change) -> bool) -> Option<Present> {
        let collection = self.collections.get_mut(resource)?;
        let present = Present { version: self.version, objects: collection.objects.clone() };
        for change in collection.history.iter().rev().take_while(|change| undo(change)) {
            let metadata = &change.object["metadata"];
            let text = |field: &str| metadata[field].as_str().unwrap_or_default().to_owned();
            let place = (text("namespace"), text("name"));
            match &change.previous {
                Some(before) => drop(collection.objects.insert(place, before.clone())),
                None => drop(collection.objects.remove(&place)),
            }
            self.version = change.version - 1;
        }
        Some(present)
    }

    /// Ends what [`rewind`](Self::rewind) began.
    pub fn restore(&mut self, resource: &str, present: Present) {
        if let Some(collection) = self.collections.get_mut(resource) {
            collection.objects = present.objects;
            self.version = present.version;
        }
    }

    fn reindex(&mut self, key: &ObjectKey, before: Option<&Value>, after: Option<&Value>) {
        for owner in before.into_iter().flat_map(owner_uids) {
            if let Some(keys) = self.dependents.get_mut(owner) {
                keys.remove(key);
                if keys.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
        for owner in after.into_iter().flat_map(owner_uids) {
            self.dependents.entry(owner.to_owned()).or_default().insert(key.clone());
        }
        for subject in before.into_iter().flat_map(subjects) {
            if let Some(keys) = self.bindings.get_mut(&subject) {
                keys.remove(key);
                if keys.is_empty() {
                    self.bindings.remove(&subject);
                }
            }
        }
        for subject in after.into_iter().flat_map(subjects) {
            self.bindings.entry(subject).or_default().insert(key.clone());
        }
        match (before.map(uid_of), after.map(uid_of)) {
            (Some(uid), None) => drop(self.uids.remove(uid)),
            (None, Some(uid)) => drop(self.uids.insert(uid.to_owned(), key.clone())),
            _ => {}
        }
    }

    /// A version-4 UUID from the seed.
    pub fn new_uid(&mut self) -> String {
        format_uid(self.random.random())
    }

    /// Five letters for the end of a generated name, from the alphabet that the real server uses.
    pub fn new_suffix(&mut self) -> String {
        const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        (0..5).map(|_| char::from(ALPHABET[self.random.random_range(0..ALPHABET.len())])).collect()
    }

    /// 128 bits for a token.
    pub fn new_token(&mut self) -> String {
        format!("{:032x}", self.random.random::<u128>())
    }
}

impl Collection {
    fn tell(&mut self, age: Duration, change: Change) {
        let version = change.version;
        self.history.push_back(change);
        while self.history.len() > HISTORY_CHANGES
            || self.history.front().is_some_and(|oldest| oldest.at.elapsed() > age)
        {
            self.forgotten = self.history.pop_front().map_or(version, |oldest| oldest.version);
        }
        self.news.send_replace(version);
    }

    /// The changes after `version`, oldest first.
    pub fn changes_after(&self, version: u64) -> impl Iterator<Item = &Change> {
        let from = self.history.partition_point(|change| change.version <= version);
        self.history.range(from..)
    }
}

/// Any bits as a version-4 UUID.
pub(crate) fn format_uid(bits: u128) -> String {
    let bits = bits & !(0xf << 76) | (4 << 76);
    let bits = bits & !(0b11 << 62) | (0b10 << 62);
    let digits = format!("{bits:032x}");
    let (a, b, c) = (&digits[..8], &digits[8..12], &digits[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &digits[16..20], &digits[20..])
}

/// The object's uid; every stored object has one.
pub(crate) fn uid_of(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The version of its last write.
pub(crate) fn version_of(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

/// The uids of its owners.
pub(crate) fn owner_uids(object: &Value) -> impl Iterator<Item = &str> {
    let owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.filter_map(|owner| owner["uid"].as_str())
}

/// Whom an object names, if it binds a role to anybody.
fn subjects(object: &Value) -> Vec<Subject> {
    if object["roleRef"].is_null() {
        return Vec::new();
    }
    let text =
        |subject: &Value, field: &str| subject[field].as_str().unwrap_or_default().to_owned();
    let named = |subject: &Value| match subject["kind"].as_str() {
        Some("ServiceAccount") => Subject::User(format!(
            "system:serviceaccount:{}:{}",
            text(subject, "namespace"),
            text(subject, "name")
        )),
        Some("Group") => Subject::Group(text(subject, "name")),
        _ => Subject::User(text(subject, "name")),
    };
    object["subjects"].as_array().into_iter().flatten().map(named).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey { resource: "things".into(), namespace: "default".into(), name: name.into() }
    }

    #[test]
    fn the_history_is_bounded_and_says_what_it_forgot() {
        let mut store = Store::new(1);
        for _ in 0..HISTORY_CHANGES + 10 {
            store.put(&key("a"), json!({"metadata": {"uid": "u"}}));
        }
        let collection = store.collection("things").unwrap();
        assert_eq!(collection.history.len(), HISTORY_CHANGES);
        assert_eq!(collection.forgotten, 10);
        assert_eq!(collection.changes_after(1_030).count(), HISTORY_CHANGES + 10 - 1_030);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fast_world_forgets_sooner() {
        let mut store = Store::new(1);
        store.keep_history(Duration::from_mins(1));
        store.put(&key("a"), json!({"metadata": {"uid": "u"}}));
        tokio::time::advance(Duration::from_mins(2)).await;
        store.put(&key("a"), json!({"metadata": {"uid": "u"}}));
        let collection = store.collection("things").unwrap();
        assert_eq!((collection.history.len(), collection.forgotten), (1, 1));
    }

    #[test]
    fn whom_no_binding_names_any_more_is_forgotten() {
        let mut store = Store::new(1);
        let subject = json!({"kind": "User", "name": "somebody"});
        let binding = json!({"metadata": {"uid": "u"}, "roleRef": {}, "subjects": [subject]});
        store.put(&key("a"), binding);
        assert_eq!(store.bindings.len(), 1);
        store.remove(&key("a"));
        assert!(store.bindings.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_old_is_forgotten_when_something_new_comes() {
        let mut store = Store::new(1);
        let history = |store: &Store| store.collection("things").unwrap().history.len();
        for _ in 0..3 {
            store.put(&key("a"), json!({"metadata": {"uid": "u"}}));
        }
        tokio::time::advance(HISTORY_AGE * 2).await;
        assert_eq!(history(&store), 3);
        store.put(&key("a"), json!({"metadata": {"uid": "u"}}));
        assert_eq!((history(&store), store.collection("things").unwrap().forgotten), (1, 3));
    }

    #[test]
    fn the_same_seed_gives_the_same_uids_and_they_are_uuids() {
        let (mut one, mut two) = (Store::new(7), Store::new(7));
        let uid = one.new_uid();
        assert_eq!(uid, two.new_uid());
        assert!(uid.parse::<applecart_api::ids::CrUid>().is_ok(), "{uid}");
        assert_eq!(&uid[14..15], "4");
    }

    #[test]
    fn dependents_follow_owner_references() {
        let mut store = Store::new(1);
        let owned = json!({"metadata": {"uid": "b", "ownerReferences": [{"uid": "a"}]}});
        store.put(&key("b"), owned);
        assert_eq!(store.dependents("a"), [key("b")]);
        store.put(&key("b"), json!({"metadata": {"uid": "b"}}));
        assert!(store.dependents("a").is_empty());
    }
}
