//! The kinds that the stand-in for Cluster API's manager reads and writes, and how to read a field
//! of one. No I/O.

use std::collections::BTreeMap;

use applecart_api::cluster::ScalewayAppleSiliconCluster;
use applecart_api::cluster_api::GROUP;
use applecart_api::condition::Condition;
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineTemplate};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

/// The version of Cluster API's own kinds.
pub(super) const VERSION: &str = "v1beta2";

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Cluster,
    Deployment,
    Set,
    Machine,
    InfrastructureCluster,
    InfrastructureTemplate,
    InfrastructureMachine,
    Node,
    Pod,
    /// A Deployment, of Pods.
    Workload,
    ReplicaSet,
}

impl Kind {
    /// Its place in the API.
    pub fn resource(self) -> ApiResource {
        let ours = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, VERSION, kind));
        match self {
            Self::Cluster => ours("Cluster"),
            Self::Deployment => ours("MachineDeployment"),
            Self::Set => ours("MachineSet"),
            Self::Machine => ours("Machine"),
            Self::InfrastructureCluster => ApiResource::erase::<ScalewayAppleSiliconCluster>(&()),
            Self::InfrastructureTemplate => {
                ApiResource::erase::<ScalewayAppleSiliconMachineTemplate>(&())
            }
            Self::InfrastructureMachine => ApiResource::erase::<ScalewayAppleSiliconMachine>(&()),
            Self::Node => ApiResource::erase::<Node>(&()),
            Self::Pod => ApiResource::erase::<Pod>(&()),
            Self::Workload => ApiResource::erase::<Deployment>(&()),
            Self::ReplicaSet => ApiResource::erase::<ReplicaSet>(&()),
        }
    }

    /// All objects of this kind.
    pub fn everywhere(self, client: &Client) -> Api<DynamicObject> {
        Api::all_with(client.clone(), &self.resource())
    }

    /// The objects of this kind beside `object`.
    pub fn beside(self, client: &Client, namespace: Option<&str>) -> Api<DynamicObject> {
        match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &self.resource()),
            None => self.everywhere(client),
        }
    }
}

/// Namespace and name.
pub(super) type Key = (String, String);

/// Fields of an object, read by their JSON pointer.
pub(super) trait Fields {
    /// The text there, or nothing.
    fn text(&self, pointer: &str) -> Option<&str>;
    /// The number there, or nothing.
    fn integer(&self, pointer: &str) -> Option<i64>;
    /// How many replicas are wanted: 1 if nothing is said, nothing if what is said is no number
    /// of things. Whoever cannot read what is wanted changes nothing.
    fn wanted(&self) -> Option<i64>;
    /// Whether `true` is there.
    fn flag(&self, pointer: &str) -> bool;
    /// The texts by name that are there.
    fn texts(&self, pointer: &str) -> BTreeMap<String, String>;
    /// The value there; null if there is none.
    fn value(&self, pointer: &str) -> &Value;
    /// `status.conditions`.
    fn conditions(&self) -> Vec<Condition>;
    /// Whether the condition of this type is True.
    fn holds(&self, condition: &str) -> bool;
    /// Namespace and name.
    fn key(&self) -> Key;
    /// Somebody asked for it to go.
    fn is_deleting(&self) -> bool;
    /// The owner that decides about it.
    fn controller(&self) -> Option<&OwnerReference>;
    /// An owner of this kind of Cluster API's.
    fn owner(&self, kind: &str) -> Option<&OwnerReference>;
    /// What another object says to be owned by this one.
    fn as_owner(&self, kind: Kind, controller: bool) -> Value;
}

impl Fields for DynamicObject {
    fn text(&self, pointer: &str) -> Option<&str> {
        self.value(pointer).as_str().filter(|text| !text.is_empty())
    }

    fn integer(&self, pointer: &str) -> Option<i64> {
        self.value(pointer).as_i64()
    }

    fn wanted(&self) -> Option<i64> {
        match self.value("/spec/replicas") {
            Value::Null => Some(1),
            said => said.as_i64().filter(|replicas| *replicas >= 0),
        }
    }

    fn flag(&self, pointer: &str) -> bool {
        self.value(pointer).as_bool() == Some(true)
    }

    fn texts(&self, pointer: &str) -> BTreeMap<String, String> {
        let fields = self.value(pointer).as_object().into_iter().flatten();
        fields.filter_map(|(key, value)| Some((key.clone(), value.as_str()?.into()))).collect()
    }

    fn value(&self, pointer: &str) -> &Value {
        self.data.pointer(pointer).unwrap_or(&Value::Null)
    }

    fn conditions(&self) -> Vec<Condition> {
        let list = self.value("/status/conditions").as_array().into_iter().flatten();
        list.filter_map(|condition| serde_json::from_value(condition.clone()).ok()).collect()
    }

    fn holds(&self, condition: &str) -> bool {
        applecart_api::condition::is_true(&self.conditions(), condition)
    }

    fn key(&self) -> Key {
        (self.namespace().unwrap_or_default(), self.name_any())
    }

    fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references().iter().find(|owner| owner.controller == Some(true))
    }

    fn owner(&self, kind: &str) -> Option<&OwnerReference> {
        let of_group = |owner: &&OwnerReference| {
            owner.kind == kind && owner.api_version.split('/').next() == Some(GROUP)
        };
        self.owner_references().iter().find(of_group)
    }

    fn as_owner(&self, kind: Kind, controller: bool) -> Value {
        let resource = kind.resource();
        let mut owner = json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": self.name_any(),
            "uid": self.metadata.uid,
        });
        if controller {
            owner["controller"] = true.into();
            owner["blockOwnerDeletion"] = true.into();
        }
        owner
    }
}
