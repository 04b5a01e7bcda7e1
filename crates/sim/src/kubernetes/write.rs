//! Creating and changing objects, by the rules that hold for all kinds. No I/O.

use std::sync::Arc;

use serde_json::{Value, json};

use super::admission;
use super::kind::{Kind, Nature, Shape, StatusRule};
use super::naming;
use super::refusal::{Fault, Refusal};
use super::state::{Ask, State, present, read, stamp};
use super::store::{ObjectKey, uid_of};

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// All but the status, where the status is a part of its own.
    Whole,
    /// The status.
    Status,
}

/// Metadata that is the server's, whatever a client sends.
const SERVER_METADATA: [&str; 8] = [
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "namespace",
    "name",
];

impl State {
    /// Creates the object in `body`.
    pub fn create(&mut self, ask: &Ask, body: Value) -> Result<Arc<Value>, Refusal> {
        let kind = ask.kind().clone();
        let mut object = read(ask, body)?;
        let key = self.name_new(ask, &mut object)?;
        self.check_namespace(&kind, &key)?;
        self.check_escalation(ask, None, &object)?;
        let uid = self.store.new_uid();
        let metadata = &mut object["metadata"];
        for field in
            ["deletionTimestamp", "deletionGracePeriodSeconds", "managedFields", "selfLink"]
        {
            remove(metadata, field);
        }
        metadata["uid"] = json!(uid);
        metadata["creationTimestamp"] = json!(stamp(ask.now));
        remove(metadata, "generation");
        if kind.generation {
            metadata["generation"] = json!(1);
        }
        // A kubelet registers its Node with a status; every other status starts empty.
        if kind.status == StatusRule::Isolated {
            remove(&mut object, "status");
        }
        admission::on_create(&kind, &ask.who, &mut object);
        let faults = check(&kind, ask.target.version, &object, None);
        if !faults.is_empty() {
            return Err(Refusal::invalid(&kind, &key.name, &faults));
        }
        if self.store.get(&key).is_some() {
            return Err(Refusal::already_exists(&kind, &key.name));
        }
        if kind.nature == Nature::Definition {
            self.check_definition(&kind, &object)?;
        }
        if ask.options.dry_run {
            return Ok(present(&kind, ask.target.version, &Arc::new(object)));
        }
        let object = self.put(&key, object);
        self.settle(ask.now);
        Ok(present(&kind, ask.target.version, &object))
    }

    /// Gives a new object its name and namespace.
    fn name_new(&mut self, ask: &Ask, object: &mut Value) -> Result<ObjectKey, Refusal> {
        let kind = ask.kind();
        let metadata = &mut object["metadata"];
        if metadata["resourceVersion"].as_str().is_some_and(|version| !version.is_empty()) {
            let message = "resourceVersion should not be set on objects to be created";
            return Err(Refusal::unreadable(message));
        }
        let given = metadata["name"].as_str().unwrap_or_default().to_owned();
        let prefix = metadata["generateName"].as_str().unwrap_or_default().to_owned();
        let name = match (given.as_str(), prefix.as_str()) {
            ("", "") => {
                let fault = Fault::required("metadata.name", "name or generateName is required");
                return Err(Refusal::invalid(kind, "", &[fault]));
            }
            ("", prefix) => format!("{prefix}{}", self.store.new_suffix()),
            (name, _) => name.to_owned(),
        };
        if let Some(fault) = naming::check_name(kind, &name) {
            return Err(Refusal::invalid(kind, &name, &[fault]));
        }
        metadata["name"] = json!(name);
        remove(metadata, "resourceVersion");
        if kind.namespaced {
            let asked = ask.target.namespace.as_deref().unwrap_or_default();
            let given = metadata["namespace"].as_str().unwrap_or_default();
            if asked.is_empty() || !(given.is_empty() || given == asked) {
                return Err(Refusal::bad_request(
                    "the namespace of the provided object does not match the namespace sent on \
                     the request",
                ));
            }
            metadata["namespace"] = json!(asked);
        } else {
            remove(metadata, "namespace");
        }
        Ok(ask.target.key_of(&name))
    }

    fn check_namespace(&self, kind: &Kind, key: &ObjectKey) -> Result<(), Refusal> {
        if !kind.namespaced {
            return Ok(());
        }
        let place = namespace_key(&key.namespace);
        let Some(namespace) = self.store.get(&place) else {
            let namespaces = self.registry.by_key("namespaces").expect("a built-in kind");
            return Err(Refusal::not_found(namespaces, &key.namespace));
        };
        if namespace["metadata"]["deletionTimestamp"].is_null() {
            return Ok(());
        }
        let why = format!(
            "unable to create new content in namespace {} because it is being terminated",
            key.namespace
        );
        let mut refusal = Refusal::forbidden(kind, &key.name, &why);
        refusal.details["causes"] = json!([{"reason": "NamespaceTerminating", "field":
            "metadata.namespace", "message":
            format!("namespace {} is being terminated", key.namespace)}]);
        Err(refusal)
    }

    /// Changes the object that the path names, as `change` says.
    pub fn update(
        &mut self,
        ask: &Ask,
        part: Part,
        change: impl FnOnce(&Value) -> Result<Value, Refusal>,
    ) -> Result<Arc<Value>, Refusal> {
        let kind = ask.kind().clone();
        let key = ask.target.key().ok_or_else(Refusal::method_not_allowed)?;
        let old = match self.store.get(&key).cloned() {
            Some(old) => old,
            // These kinds are made by a PUT, too.
            None if kind.is_put_to_create()
                && part == Part::Whole
                && ask.options.writing.is_put =>
            {
                return self.create(ask, change(&Value::Null)?);
            }
            None => return Err(Refusal::not_found(&kind, &key.name)),
        };
        let changed = change(&present(&kind, ask.target.version, &old))?;
        check_identity(ask, &key, &old, &changed)?;
        let wanted = read(ask, changed)?;
        let mut new = combine(&kind, part, &old, wanted);
        self.check_escalation(ask, Some(&old), &new)?;
        let mut faults = admission::on_update(&kind, part, &old, &mut new);
        faults.extend(check_finalizers(&old, &new));
        if kind.generation && part == Part::Whole && specification_differs(&kind, &old, &new) {
            let generation = old["metadata"]["generation"].as_i64().unwrap_or_default();
            new["metadata"]["generation"] = json!(generation + 1);
        }
        faults.extend(check(&kind, ask.target.version, &new, Some(&old)));
        if !faults.is_empty() {
            return Err(Refusal::invalid(&kind, &key.name, &faults));
        }
        if kind.nature == Nature::Definition && part == Part::Whole {
            self.check_definition(&kind, &new)?;
        }
        if new == *old || ask.options.dry_run {
            return Ok(present(&kind, ask.target.version, &Arc::new(new)));
        }
        // The write that lets a deleted object go is not stored: watches see it as it was.
        if is_finished(&kind, &new) {
            self.remove(&key);
            self.settle(ask.now);
            return Ok(present(&kind, ask.target.version, &Arc::new(new)));
        }
        self.own_changes(ask, part, &old, &new);
        let stored = self.put(&key, new);
        self.settle(ask.now);
        Ok(present(&kind, ask.target.version, &stored))
    }
}

/// Whether a deleted object has nothing left to wait for.
pub(crate) fn is_finished(kind: &Kind, object: &Value) -> bool {
    let metadata = &object["metadata"];
    let grace = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
    let waits = match kind.nature {
        Nature::Pod => grace > 0,
        Nature::Namespace => true,
        _ => false,
    };
    let deleted = !metadata["deletionTimestamp"].is_null();
    deleted && !waits && finalizers(object).next().is_none()
}

pub(crate) fn finalizers(object: &Value) -> impl Iterator<Item = &str> {
    let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
    finalizers.filter_map(Value::as_str)
}

/// Where a Namespace is.
pub(crate) fn namespace_key(name: &str) -> ObjectKey {
    ObjectKey { resource: "namespaces".into(), namespace: String::new(), name: name.to_owned() }
}

/// Removes a field, if `object` is one and has it.
pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Some(map) = object.as_object_mut() {
        map.remove(field);
    }
}

/// The write must mean this object, in this version.
fn check_identity(ask: &Ask, key: &ObjectKey, old: &Value, changed: &Value) -> Result<(), Refusal> {
    let kind = ask.kind();
    let metadata = &changed["metadata"];
    let said = |field: &str| metadata[field].as_str().filter(|text| !text.is_empty());
    if let Some(name) = said("name").filter(|&name| name != key.name) {
        return Err(Refusal::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            key.name
        )));
    }
    if said("namespace").is_some_and(|namespace| kind.namespaced && namespace != key.namespace) {
        return Err(Refusal::bad_request(
            "the namespace of the object does not match the namespace on the request",
        ));
    }
    let deletion = &metadata["deletionTimestamp"];
    if !deletion.is_null() && *deletion != old["metadata"]["deletionTimestamp"] {
        let why = "field is immutable";
        let fault = Fault::invalid("metadata.deletionTimestamp", deletion, why);
        return Err(Refusal::invalid(kind, &key.name, &[fault]));
    }
    if let Some(uid) = said("uid").filter(|&uid| uid != uid_of(old)) {
        if !ask.options.writing.is_put {
            let fault = Fault::invalid("metadata.uid", &json!(uid), "field is immutable");
            return Err(Refusal::invalid(kind, &key.name, &[fault]));
        }
        let why = format!(
            "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
            uid_of(old)
        );
        return Err(Refusal::conflict(kind, &key.name, &why));
    }
    match said("resourceVersion") {
        Some(version) if version.parse::<u64>().is_err() => {
            Err(Refusal::unreadable(format!("strconv.ParseUint: parsing {version:?}")))
        }
        Some(version) if old["metadata"]["resourceVersion"] != version => {
            Err(Refusal::modified(kind, &key.name))
        }
        None | Some("0") if !kind.unconditional_update => {
            let why = "must be specified for an update";
            let fault = Fault::invalid("metadata.resourceVersion", &json!("0x0"), why);
            Err(Refusal::invalid(kind, &key.name, &[fault]))
        }
        _ => Ok(()),
    }
}

/// The new object: the part that the client may change from `wanted`, the rest from `old`.
fn combine(kind: &Kind, part: Part, old: &Value, mut wanted: Value) -> Value {
    let mut new = match part {
        Part::Whole => {
            if kind.status != StatusRule::None {
                carry(old, &mut wanted, "status");
            }
            wanted
        }
        Part::Status => {
            let mut new = old.clone();
            carry(&wanted, &mut new, "status");
            if kind.status == StatusRule::WithMetadata {
                let mut metadata = wanted["metadata"].take();
                carry(&old["metadata"], &mut metadata, "ownerReferences");
                new["metadata"] = metadata;
            }
            new
        }
    };
    let metadata = &mut new["metadata"];
    for field in SERVER_METADATA {
        carry(&old["metadata"], metadata, field);
    }
    for field in ["managedFields", "selfLink"] {
        remove(metadata, field);
    }
    for field in ["finalizers", "ownerReferences", "labels", "annotations"] {
        let empty = match &metadata[field] {
            Value::Array(items) => items.is_empty(),
            Value::Object(map) => map.is_empty(),
            _ => false,
        };
        if empty {
            remove(metadata, field);
        }
    }
    new
}

/// Makes `field` of `to` what it is in `from`, absent included.
fn carry(from: &Value, to: &mut Value, field: &str) {
    match from.get(field) {
        Some(value) => to[field] = value.clone(),
        None => remove(to, field),
    }
}

fn check_finalizers(old: &Value, new: &Value) -> Option<Fault> {
    if old["metadata"]["deletionTimestamp"].is_null() {
        return None;
    }
    let added = finalizers(new).find(|added| finalizers(old).all(|known| known != *added))?;
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new \
                       finalizers []string{{{added:?}}}"
    );
    Some(Fault::forbidden("metadata.finalizers", &why))
}

fn specification_differs(kind: &Kind, old: &Value, new: &Value) -> bool {
    let aside =
        |field: &str| field == "metadata" || (field == "status" && kind.status != StatusRule::None);
    let fields = |object: &Value| {
        let map = object.as_object().cloned().unwrap_or_default();
        map.into_iter().filter(|(field, _)| !aside(field)).collect::<Vec<_>>()
    };
    fields(old) != fields(new)
}

/// What a schema, and the rules for all metadata, find wrong.
fn check(kind: &Kind, version: usize, object: &Value, old: Option<&Value>) -> Vec<Fault> {
    let mut faults = naming::check_metadata(&object["metadata"]);
    if let Shape::Structural(structural) = &kind.versions[version].shape {
        faults.extend(structural.schema.check(object));
        // Rules assume the types that the schema promises.
        if faults.is_empty() {
            faults.extend(structural.rules.check(object, old));
        }
    }
    faults.extend(admission::faults(kind, object));
    faults
}
