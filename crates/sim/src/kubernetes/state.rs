//! Everything that a server remembers, and how an object is read from a body and shown to a client.
//! No I/O; time comes in with each request.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Value, json};

use super::admission;
use super::aftermath::{Aftermath, definition_key};
use super::apply::Owners;
use super::auth::{Identity, Tokens};
use super::event;
use super::gate::Verb;
use super::kind::{Kind, Nature, Shape};
use super::refusal::Refusal;
use super::registry::Registry;
use super::request::{Options, Target};
use super::signing::Certificates;
use super::store::{ObjectKey, Store, uid_of};
use super::tls::Authority;

/// How long an Event lives after its last write, by a real server's default.
pub const EVENT_LIFE: Duration = Duration::from_hours(1);

/// One request, read.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub who: Identity,
    pub now: Timestamp,
    pub target: Target,
    pub options: Options,
    /// Whether roles are asked.
    pub enforced: bool,
}

impl Ask {
    pub fn kind(&self) -> &Arc<Kind> {
        &self.target.kind
    }
}

/// What a server remembers. It does not print: there are secrets in it.
pub(crate) struct State {
    pub store: Store,
    pub registry: Arc<Registry>,
    pub tokens: Tokens,
    /// Requests since the start, by verb and resource.
    pub counts: BTreeMap<(Verb, String), u64>,
    /// The number of the last request.
    calls: u64,
    /// Who owns the fields of objects that were applied, by uid.
    pub owners: BTreeMap<String, Owners>,
    /// What the built-in controllers have yet to look at.
    pub pending: VecDeque<Aftermath>,
    /// How long an Event lives after its last write.
    pub event_life: Duration,
    /// When Events end that have not been written since this version, oldest first.
    pub event_ends: VecDeque<(Timestamp, ObjectKey, String)>,
    /// The certificate that service accounts are told to trust.
    pub authority: String,
    /// Signs certificates of clients, if anybody does.
    pub signer: Option<Arc<Authority>>,
    pub certificates: Certificates,
}

impl State {
    /// A cluster as it is right after its installation.
    pub fn new(now: Timestamp, seed: u64, registry: Arc<Registry>, authority: String) -> Self {
        let mut state = Self {
            store: Store::new(seed),
            registry,
            tokens: Tokens::default(),
            counts: BTreeMap::new(),
            calls: 0,
            owners: BTreeMap::new(),
            pending: VecDeque::new(),
            event_life: EVENT_LIFE,
            event_ends: VecDeque::new(),
            authority,
            signer: None,
            certificates: Certificates::default(),
        };
        for definition in state.registry.installed(now).iter() {
            let name = definition["metadata"]["name"].as_str().unwrap_or_default();
            state.store.install(&definition_key(name), definition.clone());
            state.store.begin(name, state.store.version());
        }
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            state.install_namespace(name, now);
        }
        state
    }

    /// Counts a request; its number.
    pub fn count(&mut self, verb: Verb, resource: String) -> u64 {
        *self.counts.entry((verb, resource)).or_default() += 1;
        self.calls += 1;
        self.calls
    }

    /// Who this token stands for, if it opens this server at `now`.
    pub fn identify(&self, token: &str, now: Timestamp) -> Option<Identity> {
        let grant = self.tokens.find(token, now)?;
        let object = |uid: &String| self.store.get(self.store.by_uid(uid)?);
        let alive = |uid: &String| object(uid).is_some_and(|object| grant.survives(object, now));
        grant.bound_to.iter().all(alive).then(|| grant.identity.clone())
    }

    /// The object at `key`, or 404.
    pub fn find(&self, kind: &Kind, key: &ObjectKey) -> Result<Arc<Value>, Refusal> {
        self.store.get(key).cloned().ok_or_else(|| Refusal::not_found(kind, &key.name))
    }

    /// Writes an object and notes it for the built-in controllers.
    pub fn put(&mut self, key: &ObjectKey, object: Value) -> Arc<Value> {
        let created = self.store.get(key).is_none();
        let object = self.store.put(key, object);
        self.pending.push_back(Aftermath::Written { key: key.clone(), created });
        object
    }

    /// Takes an object away and notes it for the built-in controllers.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<Arc<Value>> {
        let object = self.store.remove(key)?;
        self.owners.remove(uid_of(&object));
        self.pending.push_back(Aftermath::Removed { key: key.clone(), object: object.clone() });
        Some(object)
    }
}

/// An object as a client of `version` sees it.
pub(crate) fn present(kind: &Kind, version: usize, object: &Arc<Value>) -> Arc<Value> {
    if kind.nature == Nature::NewerEvent {
        return Arc::new(event::from_core(Value::clone(object)));
    }
    if kind.versions.len() == 1 {
        return object.clone();
    }
    let wanted = kind.api_version(version);
    if object["apiVersion"] == wanted.as_str() {
        return object.clone();
    }
    let mut shown = Value::clone(object);
    shown["apiVersion"] = json!(wanted);
    Arc::new(shown)
}

/// Reads a body into the form in which it is stored: known fields alone, defaults filled in.
pub(crate) fn read(ask: &Ask, mut body: Value) -> Result<Value, Refusal> {
    let kind = ask.kind();
    let api_version = kind.api_version(ask.target.version);
    if !body.is_object() {
        return Err(Refusal::bad_request("the object provided is not an object"));
    }
    for (field, wanted) in [("apiVersion", &api_version), ("kind", &kind.name)] {
        match body[field].as_str() {
            None | Some("") if kind.nature == Nature::Custom => {
                return Err(Refusal::bad_request(format!("Object '{field}' is missing")));
            }
            None | Some("") => body[field] = json!(wanted),
            Some(given) if given == wanted => {}
            Some(given) => {
                return Err(Refusal::bad_request(format!(
                    "the {field} in the data ({given}) does not match the expected one ({wanted})"
                )));
            }
        }
    }
    let unreadable = |error: serde_json::Error| {
        let (name, version) = (&kind.name, &kind.versions[ask.target.version].name);
        Refusal::bad_request(format!(
            "{name} in version \"{version}\" cannot be handled as a {name}: {error}"
        ))
    };
    match &kind.versions[ask.target.version].shape {
        Shape::Typed { read, .. } => {
            if let Err(why) = admission::on_read(kind, &mut body) {
                let name = &kind.name;
                let message = format!("{name} cannot be handled as a {name}: {why}");
                return Err(Refusal::bad_request(message));
            }
            let said = if ask.options.strict { body.clone() } else { Value::Null };
            let object = read(body).map_err(unreadable)?;
            if let Some(field) = unknown(&said, &object, "") {
                let (name, version) = (&kind.name, &kind.versions[ask.target.version].name);
                return Err(Refusal::bad_request(format!(
                    "{name} in version \"{version}\" cannot be handled as a {name}: strict \
                     decoding error: unknown field \"{field}\""
                )));
            }
            Ok(if kind.nature == Nature::NewerEvent { event::to_core(object) } else { object })
        }
        Shape::Structural(structural) => {
            let schema = &structural.schema;
            let metadata = body["metadata"].take();
            let metadata = if metadata.is_null() { json!({}) } else { metadata };
            let metadata: ObjectMeta = serde_json::from_value(metadata).map_err(unreadable)?;
            body["metadata"] = serde_json::to_value(metadata).map_err(unreadable)?;
            let unknown = schema.prune(&mut body);
            if let (true, Some(field)) = (ask.options.strict, unknown.first()) {
                let (name, version) = (&kind.name, &kind.versions[ask.target.version].name);
                return Err(Refusal::bad_request(format!(
                    "{name} in version \"{version}\" cannot be handled as a {name}: strict \
                     decoding error: unknown field \"{field}\""
                )));
            }
            schema.fill_in(&mut body);
            body["apiVersion"] = json!(kind.api_version(0));
            Ok(body)
        }
    }
}

/// A field that was said and not understood, if there is one.
fn unknown(said: &Value, understood: &Value, path: &str) -> Option<String> {
    match (said, understood) {
        (Value::Object(said), Value::Object(understood)) => said.iter().find_map(|(key, value)| {
            let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            match understood.get(key) {
                Some(below) => unknown(value, below, &path),
                None => (!value.is_null()).then_some(path),
            }
        }),
        (Value::Array(said), Value::Array(understood)) => {
            let pairs = said.iter().zip(understood).enumerate();
            pairs.into_iter().find_map(|(at, (a, b))| unknown(a, b, &format!("{path}[{at}]")))
        }
        _ => None,
    }
}

/// A time as objects carry it.
pub(crate) fn stamp(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
