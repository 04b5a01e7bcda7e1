//! `ScalewayAppleSiliconCluster`: tells Cluster API that the cluster's infrastructure is there.

#![allow(clippy::duplicated_attributes, reason = "each printcolumn is a column of its own")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::machine::Initialization;

/// Where the cluster's API server answers, if anybody needs to be told.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconCluster",
    plural = "scalewayapplesiliconclusters",
    shortname = "sasc",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    status = "ScalewayAppleSiliconClusterStatus",
    doc = "The infrastructure of a Cluster whose Macs join the cluster that manages them.",
    printcolumn(
        name = "Endpoint",
        type_ = "string",
        json_path = ".spec.controlPlaneEndpoint.host"
    ),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready")
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconClusterSpec {
    /// Endpoint of the API server that the Macs join.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_endpoint: Option<ControlPlaneEndpoint>,
}

/// Endpoint of an API server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ControlPlaneEndpoint {
    /// Host name or address.
    pub host: String,
    /// TCP port of the API server.
    pub port: i32,
}

/// What is known of the cluster's infrastructure.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconClusterStatus {
    /// The infrastructure is there; there is nothing to wait for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Contract of Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// What is true of it, since when, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
