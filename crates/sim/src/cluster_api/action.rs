//! Every effect that the stand-in for Cluster API's manager has, as data; and doing one.

use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    DeleteParams, DynamicObject, EvictParams, Patch, PatchParams, PostParams, Preconditions,
};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::kind::{Fields, Kind};

/// The object that an effect is on, as it was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Target {
    pub kind: Kind,
    pub namespace: Option<String>,
    pub name: String,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl Target {
    /// `object`, as it was seen.
    pub fn new(kind: Kind, object: &DynamicObject) -> Self {
        Self {
            kind,
            namespace: object.namespace(),
            name: object.name_any(),
            uid: object.uid(),
            resource_version: object.resource_version(),
        }
    }
}

/// One effect. Each carries its precondition: the UID, or the version that was seen.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Create an object.
    Create { kind: Kind, object: Value },
    /// Create an infrastructure object, and only after that the Machine that names it.
    CreateMachine { infrastructure: Value, machine: Value },
    /// Merge into an object, but not into its status.
    Patch { target: Target, patch: Value },
    /// Merge into an object's status.
    PatchStatus { target: Target, patch: Value },
    /// Ask for an object to go.
    Delete(Target),
    /// Ask a Pod to go, as a drain does.
    Evict(Target),
}

impl Action {
    /// Merges `patch` into `object`, if that changes anything.
    pub fn patch(kind: Kind, object: &DynamicObject, patch: Value) -> Option<Self> {
        let current = serde_json::to_value(object).expect("an object is JSON");
        changes(&current, &patch).then(|| Self::Patch { target: Target::new(kind, object), patch })
    }

    /// Merges `status` into the status of `object`, if that changes anything.
    pub fn status(kind: Kind, object: &DynamicObject, status: &Value) -> Option<Self> {
        let changed = changes(object.value("/status"), status);
        let patch = json!({ "status": status });
        changed.then(|| Self::PatchStatus { target: Target::new(kind, object), patch })
    }

    /// Asks for `object` to go, unless somebody did.
    pub fn delete(kind: Kind, object: &DynamicObject) -> Option<Self> {
        (!object.is_deleting()).then(|| Self::Delete(Target::new(kind, object)))
    }

    /// Puts a finalizer on `object`, if it has not got it.
    pub fn add_finalizer(kind: Kind, object: &DynamicObject, finalizer: &str) -> Option<Self> {
        let mut finalizers = object.finalizers().to_vec();
        if finalizers.iter().any(|present| present == finalizer) {
            return None;
        }
        finalizers.push(finalizer.to_owned());
        Self::patch(kind, object, json!({ "metadata": { "finalizers": finalizers } }))
    }

    /// Takes a finalizer from `object`, if it has it.
    pub fn drop_finalizer(kind: Kind, object: &DynamicObject, finalizer: &str) -> Option<Self> {
        let mut finalizers = object.finalizers().to_vec();
        finalizers.retain(|present| present != finalizer);
        Self::patch(kind, object, json!({ "metadata": { "finalizers": finalizers } }))
    }

    /// Does it.
    pub async fn perform(self, client: &Client) -> kube::Result<()> {
        match self {
            Self::Create { kind, object } => create(client, kind, object).await,
            Self::CreateMachine { infrastructure, machine } => {
                create(client, Kind::InfrastructureMachine, infrastructure).await?;
                create(client, Kind::Machine, machine).await
            }
            Self::Patch { target, mut patch } => {
                patch["metadata"]["resourceVersion"] = json!(target.resource_version);
                let api = target.kind.beside(client, target.namespace.as_deref());
                let params = PatchParams::default();
                api.patch(&target.name, &params, &Patch::Merge(patch)).await.map(drop)
            }
            Self::PatchStatus { target, mut patch } => {
                patch["metadata"] = json!({ "resourceVersion": target.resource_version });
                let api = target.kind.beside(client, target.namespace.as_deref());
                let params = PatchParams::default();
                api.patch_status(&target.name, &params, &Patch::Merge(patch)).await.map(drop)
            }
            Self::Delete(target) => {
                let api = target.kind.beside(client, target.namespace.as_deref());
                let uid = Preconditions { uid: target.uid, resource_version: None };
                let params = DeleteParams { preconditions: Some(uid), ..DeleteParams::default() };
                api.delete(&target.name, &params).await.map(drop)
            }
            Self::Evict(target) => {
                let namespace = target.namespace.unwrap_or_default();
                let pods: Api<Pod> = Api::namespaced(client.clone(), &namespace);
                pods.evict(&target.name, &EvictParams::default()).await.map(drop)
            }
        }
    }
}

async fn create(client: &Client, kind: Kind, object: Value) -> kube::Result<()> {
    let object: DynamicObject = serde_json::from_value(object).map_err(kube::Error::SerdeError)?;
    let api = kind.beside(client, object.namespace().as_deref());
    api.create(&PostParams::default(), &object).await.map(drop)
}

/// Whether merging `patch` (RFC 7386) would change `current`.
fn changes(current: &Value, patch: &Value) -> bool {
    match patch {
        Value::Object(fields) => fields.iter().any(|(key, value)| match current.get(key) {
            None => !value.is_null(),
            Some(present) => changes(present, value),
        }),
        _ => current != patch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_that_says_what_is_already_there_is_no_change() {
        let current = json!({"a": {"b": 1, "c": [1, 2]}, "d": "x"});
        for (patch, change) in [
            (json!({"a": {"b": 1}}), false),
            (json!({"a": {"c": [1, 2]}, "d": "x"}), false),
            (json!({"gone": null}), false),
            (json!({"a": {"b": 2}}), true),
            (json!({"a": {"c": [1]}}), true),
            (json!({"d": null}), true),
            (json!({"new": {}}), true),
        ] {
            assert_eq!(changes(&current, &patch), change, "{patch}");
        }
    }
}
