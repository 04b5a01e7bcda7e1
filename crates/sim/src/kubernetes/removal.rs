//! Deleting objects: preconditions, finalizers, grace, and what becomes of dependents. No I/O.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::kind::{Kind, Nature};
use super::refusal::{self, Refusal};
use super::request::{DeleteOptions, Propagation};
use super::state::{Ask, State, present, stamp};
use super::store::{ObjectKey, uid_of};
use super::workload::SERVICES;
use super::write::{finalizers, is_finished};

/// The finalizer that holds an owner until its dependents are gone.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The finalizer that holds an owner until its dependents have lost it.
pub(crate) const ORPHAN: &str = "orphan";

/// How a deletion went.
#[derive(Clone, Debug)]
pub(crate) enum Deleted {
    /// The object is gone; its last state.
    Gone(Arc<Value>),
    /// The object is marked and waits for somebody.
    Marked(Arc<Value>),
}

impl State {
    /// Deletes the object that the path names; the answer's body.
    pub fn delete(&mut self, ask: &Ask) -> Result<Value, Refusal> {
        let kind = ask.kind().clone();
        let key = ask.target.key().ok_or_else(Refusal::method_not_allowed)?;
        let old = self.find(&kind, &key)?;
        check_preconditions(&kind, &key, &old, &ask.options.delete)?;
        let deleted = if ask.options.dry_run {
            let marked = mark(&kind, &old, &ask.options.delete, ask.now);
            let gone = is_finished(&kind, &marked);
            let marked = Arc::new(marked);
            match gone {
                true if kind.nature == Nature::Pod => Deleted::Gone(marked),
                true => Deleted::Gone(old),
                false => Deleted::Marked(marked),
            }
        } else {
            self.begin_delete(&kind, &key, &ask.options.delete, ask.now)
        };
        self.settle(ask.now);
        Ok(match deleted {
            // The real server shows these as they were, and of all others only that they went.
            Deleted::Gone(last) if tells_the_last(&kind) => Value::clone(&last),
            Deleted::Gone(last) => {
                let mut details = refusal::details(&kind, &key.name);
                details["uid"] = json!(uid_of(&last));
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
                    "details": details})
            }
            Deleted::Marked(object) => Value::clone(&present(&kind, ask.target.version, &object)),
        })
    }

    /// Marks or removes an object. Built-in controllers have yet to look at it: `settle` after.
    pub fn begin_delete(
        &mut self,
        kind: &Kind,
        key: &ObjectKey,
        options: &DeleteOptions,
        now: Timestamp,
    ) -> Deleted {
        let Some(old) = self.store.get(key).cloned() else {
            return Deleted::Gone(Arc::new(Value::Null));
        };
        let marked = mark(kind, &old, options, now);
        if is_finished(kind, &marked) {
            // A Pod's deletion is written before it goes; others go as they are.
            if kind.nature == Nature::Pod && marked != *old {
                self.put(key, marked);
            }
            return Deleted::Gone(self.remove(key).unwrap_or(old));
        }
        if marked == *old {
            return Deleted::Marked(old);
        }
        Deleted::Marked(self.put(key, marked))
    }

    /// Takes the owner out of the references of all its dependents.
    pub fn orphan(&mut self, uid: &str) {
        for key in self.store.dependents(uid) {
            self.drop_owner(&key, uid);
        }
    }

    /// Takes one owner out of an object's references.
    pub fn drop_owner(&mut self, key: &ObjectKey, uid: &str) {
        let Some(object) = self.store.get(key) else { return };
        let mut object = Value::clone(object);
        if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| owner["uid"] != uid);
        }
        self.put(key, object);
    }
}

/// Refuses a deletion that is meant for another object, or for this one as it was.
pub(crate) fn check_preconditions(
    kind: &Kind,
    key: &ObjectKey,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), Refusal> {
    let metadata = &old["metadata"];
    for (what, wanted, field) in [
        ("UID", &options.uid, "uid"),
        ("ResourceVersion", &options.resource_version, "resourceVersion"),
    ] {
        if let Some(wanted) = wanted
            && metadata[field] != wanted.as_str()
        {
            let found = metadata[field].as_str().unwrap_or_default();
            let why = format!(
                "Precondition failed: {what} in precondition: {wanted}, \
                 {what} in object meta: {found}"
            );
            let mut refusal = Refusal::conflict(kind, &key.name, &why);
            refusal.details["kind"] = json!(kind.name);
            return Err(refusal);
        }
    }
    Ok(())
}

/// The object with its deletion written into it.
fn mark(kind: &Kind, old: &Value, options: &DeleteOptions, now: Timestamp) -> Value {
    let mut object = old.clone();
    let grace = grace_seconds(kind, old, options);
    let metadata = &mut object["metadata"];
    let first = metadata["deletionTimestamp"].is_null();
    let shorter = metadata["deletionGracePeriodSeconds"].as_i64().is_some_and(|was| grace < was);
    if first || shorter {
        let at = now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(now);
        metadata["deletionTimestamp"] = json!(stamp(at));
        metadata["deletionGracePeriodSeconds"] = json!(grace);
    }
    if first {
        if let Some(generation) = metadata["generation"].as_i64() {
            metadata["generation"] = json!(generation + 1);
        }
        let holder = match options.propagation {
            Some(Propagation::Foreground) => Some(FOREGROUND),
            Some(Propagation::Orphan) => Some(ORPHAN),
            Some(Propagation::Background) | None => None,
        };
        let known = |holder: &str| finalizers(old).any(|finalizer| finalizer == holder);
        if let Some(holder) = holder.filter(|holder| !known(holder)) {
            match metadata["finalizers"].as_array_mut() {
                Some(finalizers) => finalizers.push(json!(holder)),
                None => metadata["finalizers"] = json!([holder]),
            }
        }
    }
    if kind.nature == Nature::Namespace {
        object["status"]["phase"] = json!("Terminating");
    }
    object
}

/// How long the object may take. Pods alone are graceful, while a kubelet still has them.
fn grace_seconds(kind: &Kind, old: &Value, options: &DeleteOptions) -> i64 {
    if kind.nature != Nature::Pod {
        return 0;
    }
    let bound = old["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let ended = matches!(old["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !bound || ended {
        return 0;
    }
    let own = old["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_seconds.unwrap_or(own).max(0)
}

/// Whether who deletes such an object is told what it was, and not only that it is gone.
fn tells_the_last(kind: &Kind) -> bool {
    matches!(kind.nature, Nature::Pod | Nature::ServiceAccount) || &*kind.key == SERVICES
}
