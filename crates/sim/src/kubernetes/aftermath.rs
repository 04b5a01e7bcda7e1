//! What the cluster's own controllers do after a write: garbage collection, namespaces, tokens,
//! definitions. They act at once, within the request, so that a run is the same every time.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::admission::{self, TOKEN_ACCOUNT, TOKEN_SECRET};
use super::auth::{Grant, Identity};
use super::budget;
use super::kind::{Kind, Nature};
use super::refusal::{Fault, Refusal};
use super::registry::Registry;
use super::removal::{FOREGROUND, ORPHAN};
use super::request::{DeleteOptions, Propagation};
use super::state::{State, stamp};
use super::store::{ObjectKey, format_uid, owner_uids, uid_of, version_of};
use super::write::{finalizers, is_finished, namespace_key};

/// Holds a definition until the last object of its kind is gone.
const DEFINITION_CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A write that the built-in controllers have yet to look at.
#[derive(Clone, Debug)]
pub(crate) enum Aftermath {
    /// An object was created or changed.
    Written { key: ObjectKey, created: bool },
    /// An object is gone; its last state.
    Removed { key: ObjectKey, object: Arc<Value> },
}

impl State {
    /// Lets the built-in controllers act until they have nothing left to do.
    pub fn settle(&mut self, now: Timestamp) {
        self.end_events(now);
        while let Some(aftermath) = self.pending.pop_front() {
            match aftermath {
                Aftermath::Written { key, created } => self.after_write(&key, created, now),
                Aftermath::Removed { key, object } => self.after_removal(&key, &object, now),
            }
        }
    }

    fn after_write(&mut self, key: &ObjectKey, created: bool, now: Timestamp) {
        let Some(object) = self.store.get(key).cloned() else { return };
        let Some(kind) = self.registry.by_key(&key.resource).cloned() else { return };
        let deleting = !object["metadata"]["deletionTimestamp"].is_null();
        match kind.nature {
            Nature::Namespace if created => self.install_account(&key.name, now),
            Nature::Namespace if deleting => self.empty_namespace(key, now),
            Nature::Secret if created => self.issue_token(key, &object),
            Nature::Definition if deleting => self.empty_definition(key, now),
            Nature::Definition => self.establish(key, &object, now),
            Nature::SigningRequest => self.sign(key, &object, now),
            Nature::Event => {
                let ends = now.checked_add(self.event_life).unwrap_or(Timestamp::MAX);
                self.event_ends.push_back((ends, key.clone(), version_of(&object).into()));
            }
            _ => {}
        }
        if budget::is_counted(&kind) {
            self.count_budgets(&key.namespace, now);
        }
        let held_by = |holder: &str| deleting && finalizers(&object).any(|held| held == holder);
        if held_by(ORPHAN) {
            self.orphan(uid_of(&object));
            self.drop_finalizer(&kind, key, ORPHAN);
        } else if held_by(FOREGROUND) {
            self.delete_dependents_first(&kind, key, &object, now);
        } else if !deleting && self.owners_are_gone(&object) {
            self.begin_delete(&kind, key, &background(), now);
        }
    }

    fn after_removal(&mut self, key: &ObjectKey, object: &Value, now: Timestamp) {
        let uid = uid_of(object);
        for dependent in self.store.dependents(uid) {
            self.lose_owner(&dependent, uid, now);
        }
        // An owner that waits for its dependents looks again.
        for owner in owner_uids(object) {
            if let Some(owner) = self.store.by_uid(owner).cloned() {
                self.pending.push_back(Aftermath::Written { key: owner, created: false });
            }
        }
        let nature = self.registry.by_key(&key.resource).map(|kind| kind.nature);
        match nature {
            Some(Nature::Secret | Nature::Pod) => self.tokens.revoke(uid),
            _ if &*key.resource == "nodes" => self.tokens.revoke(uid),
            Some(Nature::ServiceAccount) => self.forget_account(key, uid, now),
            Some(Nature::Definition) => Arc::make_mut(&mut self.registry).forget(&key.name),
            Some(Nature::Custom) => self.finish_definition(&key.resource),
            _ => {}
        }
        if self.registry.by_key(&key.resource).is_some_and(|kind| budget::is_counted(kind)) {
            self.count_budgets(&key.namespace, now);
        }
        self.finish_namespace(&key.namespace);
    }

    /// Removes the Events whose time is over and that were not written since.
    fn end_events(&mut self, now: Timestamp) {
        while let Some((_, key, version)) = self.event_ends.pop_front_if(|(ends, ..)| *ends <= now)
        {
            if self.store.get(&key).is_some_and(|stored| version_of(stored) == version) {
                self.remove(&key);
            }
        }
    }

    /// The object has owners, and none of them exists.
    fn owners_are_gone(&self, object: &Value) -> bool {
        let mut owners = owner_uids(object).peekable();
        owners.peek().is_some() && owners.all(|uid| self.store.by_uid(uid).is_none())
    }

    fn lose_owner(&mut self, key: &ObjectKey, uid: &str, now: Timestamp) {
        let Some(object) = self.store.get(key).cloned() else { return };
        let Some(kind) = self.registry.by_key(&key.resource).cloned() else { return };
        if self.owners_are_gone(&object) {
            self.begin_delete(&kind, key, &background(), now);
        } else {
            self.drop_owner(key, uid);
        }
    }

    fn delete_dependents_first(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        object: &Value,
        now: Timestamp,
    ) {
        let uid = uid_of(object);
        let mut blocked = false;
        for dependent in self.store.dependents(uid) {
            let Some(below) = self.registry.by_key(&dependent.resource).cloned() else { continue };
            let foreground = DeleteOptions {
                propagation: Some(Propagation::Foreground),
                ..DeleteOptions::default()
            };
            self.begin_delete(&below, &dependent, &foreground, now);
            blocked |= self.store.get(&dependent).is_some_and(|object| blocks(object, uid));
        }
        if !blocked {
            self.drop_finalizer(kind, key, FOREGROUND);
        }
    }

    /// Takes a finalizer away, and the object with it if that was the last.
    fn drop_finalizer(&mut self, kind: &Kind, key: &ObjectKey, finalizer: &str) {
        let Some(object) = self.store.get(key) else { return };
        let mut object = Value::clone(object);
        if let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|known| known != finalizer);
        }
        if is_finished(kind, &object) {
            self.remove(key);
        } else {
            self.put(key, object);
        }
    }

    /// Creates a namespace as the installation does.
    pub fn install_namespace(&mut self, name: &str, now: Timestamp) {
        let key = namespace_key(name);
        let uid = self.store.new_uid();
        let mut object = json!({"apiVersion": "v1", "kind": "Namespace",
            "metadata": {"name": name, "uid": uid, "creationTimestamp": stamp(now)}});
        let kind = self.registry.by_key("namespaces").cloned().expect("a built-in kind");
        admission::on_create(&kind, &Identity::admin(), &mut object);
        self.store.put(&key, object);
        self.install_account(name, now);
    }

    fn install_account(&mut self, namespace: &str, now: Timestamp) {
        let key = account_key(namespace, "default");
        let uid = self.store.new_uid();
        self.store.put(
            &key,
            json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default",
                "namespace": namespace, "uid": uid, "creationTimestamp": stamp(now)}}),
        );
    }

    fn empty_namespace(&mut self, key: &ObjectKey, now: Timestamp) {
        for inner in self.store.in_namespace(&key.name) {
            if let Some(kind) = self.registry.by_key(&inner.resource).cloned() {
                self.begin_delete(&kind, &inner, &background(), now);
            }
        }
        self.finish_namespace(&key.name);
    }

    fn finish_namespace(&mut self, namespace: &str) {
        let key = namespace_key(namespace);
        let ending = self
            .store
            .get(&key)
            .is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null());
        if ending && self.store.in_namespace(namespace).is_empty() {
            self.remove(&key);
        }
    }

    /// Fills a service account's token into a Secret that was made for it. A Secret without its
    /// account goes.
    fn issue_token(&mut self, key: &ObjectKey, secret: &Value) {
        if secret["type"] != TOKEN_SECRET {
            return;
        }
        let account = secret["metadata"]["annotations"][TOKEN_ACCOUNT].as_str().unwrap_or_default();
        let Some(owner) = self.store.get(&account_key(&key.namespace, account)).cloned() else {
            self.remove(key);
            return;
        };
        let token = self.store.new_token();
        let identity = Identity::service_account(&key.namespace, account);
        let bound_to = vec![uid_of(secret).to_owned(), uid_of(&owner).to_owned()];
        self.tokens.give(token.clone(), Grant { bound_to, ..Grant::new(identity) });
        let mut filled = secret.clone();
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"] =
            json!(uid_of(&owner));
        for (field, value) in
            [("token", &token), ("ca.crt", &self.authority), ("namespace", &key.namespace)]
        {
            filled["data"][field] = json!(STANDARD.encode(value));
        }
        self.put(key, filled);
    }

    fn forget_account(&mut self, account: &ObjectKey, uid: &str, now: Timestamp) {
        self.tokens.revoke(uid);
        let is_its = |secret: &Value| {
            secret["metadata"]["annotations"]["kubernetes.io/service-account.uid"] == uid
        };
        let secrets: Vec<ObjectKey> = self
            .store
            .objects("secrets", Some(&account.namespace))
            .filter(|(_, secret)| is_its(secret))
            .map(|((namespace, name), _)| ObjectKey {
                resource: "secrets".into(),
                namespace: namespace.clone(),
                name: name.clone(),
            })
            .collect();
        let kind = self.registry.by_key("secrets").cloned().expect("a built-in kind");
        for secret in secrets {
            self.begin_delete(&kind, &secret, &background(), now);
        }
    }

    /// A definition that could not be established is refused instead.
    pub fn check_definition(&self, kind: &Kind, object: &Value) -> Result<(), Refusal> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        let invalid = |why: &str| {
            let fault = Fault::invalid("spec", &Value::Null, why);
            Refusal::invalid(kind, name, &[fault])
        };
        let definition: CustomResourceDefinition =
            serde_json::from_value(object.clone()).map_err(|error| invalid(&error.to_string()))?;
        let wanted = format!("{}.{}", definition.spec.names.plural, definition.spec.group);
        if name != wanted {
            return Err(invalid(&format!("metadata.name must be {wanted:?}")));
        }
        let mut trial = Registry::clone(&self.registry);
        trial.define(&definition).map_err(|error| invalid(&error.to_string()))
    }

    fn establish(&mut self, key: &ObjectKey, object: &Value, now: Timestamp) {
        let definition: CustomResourceDefinition = match serde_json::from_value(object.clone()) {
            Ok(definition) => definition,
            Err(_) => return,
        };
        let mut established = object.clone();
        establish_status(&mut established, now);
        // Its own write comes back here and changes nothing.
        if established["status"] == object["status"] {
            return;
        }
        if Arc::make_mut(&mut self.registry).define(&definition).is_ok() {
            self.store.begin(&key.name, self.store.version());
            self.put(key, established);
        }
    }

    fn empty_definition(&mut self, key: &ObjectKey, now: Timestamp) {
        let Some(kind) = self.registry.by_key(&key.name).cloned() else { return };
        let all: Vec<ObjectKey> = self
            .store
            .objects(&key.name, None)
            .map(|((namespace, name), _)| ObjectKey {
                resource: kind.store.clone(),
                namespace: namespace.clone(),
                name: name.clone(),
            })
            .collect();
        for inner in all {
            self.begin_delete(&kind, &inner, &background(), now);
        }
        self.finish_definition(&key.name);
    }

    fn finish_definition(&mut self, resource: &str) {
        let key = definition_key(resource);
        let ending = self
            .store
            .get(&key)
            .is_some_and(|object| !object["metadata"]["deletionTimestamp"].is_null());
        if ending && self.store.objects(resource, None).next().is_none() {
            let kind = self.registry.by_key(&key.resource).cloned().expect("a built-in kind");
            self.drop_finalizer(&kind, &key, DEFINITION_CLEANUP);
        }
    }
}

/// A definition as an object of a new cluster, at `version`.
pub(crate) fn installed(
    definition: &CustomResourceDefinition,
    version: u64,
    now: Timestamp,
) -> Value {
    let mut object = serde_json::to_value(definition).expect("a definition is JSON");
    let name = definition.metadata.name.as_deref().unwrap_or_default();
    let metadata = &mut object["metadata"];
    // The same in every cluster: it is shared between them.
    let digest = Sha256::digest(name);
    let bits = digest.iter().take(16).fold(0, |bits, byte| bits << 8 | u128::from(*byte));
    metadata["uid"] = json!(format_uid(bits));
    metadata["creationTimestamp"] = json!(stamp(now));
    metadata["generation"] = json!(1);
    metadata["resourceVersion"] = json!(version.to_string());
    establish_status(&mut object, now);
    object
}

fn background() -> DeleteOptions {
    DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() }
}

fn account_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey {
        resource: "serviceaccounts".into(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    }
}

pub(crate) fn definition_key(name: &str) -> ObjectKey {
    ObjectKey {
        resource: "customresourcedefinitions.apiextensions.k8s.io".into(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

/// Whether the dependent holds up the deletion of the owner with this uid.
fn blocks(dependent: &Value, owner: &str) -> bool {
    let owners = dependent["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.into_iter().any(|reference| {
        reference["uid"] == owner && reference["blockOwnerDeletion"] == json!(true)
    })
}

fn establish_status(definition: &mut Value, now: Timestamp) {
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": message,
            "lastTransitionTime": stamp(now)})
    };
    let names = definition["spec"]["names"].clone();
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let stored: Vec<Value> = versions
        .filter(|version| version["storage"] == json!(true))
        .map(|version| version["name"].clone())
        .collect();
    if definition["status"]["conditions"].is_null() {
        definition["status"]["conditions"] = json!([
            condition("NamesAccepted", "NoConflicts", "no conflicts found"),
            condition(
                "Established",
                "InitialNamesAccepted",
                "the initial names have been accepted"
            ),
        ]);
    }
    definition["status"]["acceptedNames"] = names;
    definition["status"]["storedVersions"] = json!(stored);
    definition["status"]["observedGeneration"] = definition["metadata"]["generation"].clone();
    if definition["metadata"]["finalizers"].is_null() {
        definition["metadata"]["finalizers"] = json!([DEFINITION_CLEANUP]);
    }
}
