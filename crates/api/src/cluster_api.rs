//! What we read of Cluster API's own kinds. Never written back whole: only patched.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// The group of Cluster API's own kinds.
pub const GROUP: &str = "cluster.x-k8s.io";

/// What we read of a Machine's spec.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "Machine", namespaced)]
#[kube(status = "MachineStatus", derive = "PartialEq", doc = "A Machine of Cluster API.")]
#[serde(rename_all = "camelCase")]
pub struct MachineSpec {
    /// The Cluster that the Machine belongs to.
    #[serde(default)]
    pub cluster_name: String,
    /// Where the Machine's start-up data comes from.
    #[serde(default)]
    pub bootstrap: Bootstrap,
    /// What Cluster API copied from us once we were provisioned. It binds the Machine to its Node
    /// for good, and survives a move.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// Version that the Node is asked to report.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// How the Machine is taken down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion: Option<Deletion>,
}

/// Where a Machine's start-up data comes from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Bootstrap {
    /// The Secret with the data; a Mac needs it to exist, not to be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_secret_name: Option<String>,
}

/// How a Machine is taken down.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Deletion {
    /// How long to wait for running work; 0 is for ever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_drain_timeout_seconds: Option<i64>,
}

/// What we read of a Machine's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineStatus {
    /// The Machine's phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

/// What we read of a Cluster's spec.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(group = "cluster.x-k8s.io", version = "v1beta2", kind = "Cluster", namespaced)]
#[kube(status = "ClusterStatus", derive = "PartialEq", doc = "A Cluster of Cluster API.")]
#[serde(rename_all = "camelCase")]
pub struct ClusterSpec {
    /// Nothing outside is touched while this is true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// The object that speaks for the Cluster's infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure_ref: Option<Reference>,
    /// The object that speaks for the Cluster's control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_ref: Option<Reference>,
}

/// A reference to an object in the same namespace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// API group.
    #[serde(default)]
    pub api_group: String,
    /// Kind.
    #[serde(default)]
    pub kind: String,
    /// Name.
    #[serde(default)]
    pub name: String,
}

/// What we read of a Cluster's status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterStatus {
    /// What is there.
    #[serde(default)]
    pub initialization: ClusterInitialization,
    /// What is true of it.
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

/// What of a Cluster is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterInitialization {
    /// Its infrastructure is.
    #[serde(default)]
    pub infrastructure_provisioned: bool,
}
