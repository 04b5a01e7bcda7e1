//! `ExistingControlPlane`: tells Cluster API of a control plane that is there already and is
//! nobody's to manage: that of the cluster which the Macs join.
//!
//! With one, a Cluster becomes AVAILABLE, and Cluster API drains and deletes Nodes by itself.

#![allow(clippy::duplicated_attributes, reason = "each printcolumn is a column of its own")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Nothing can be chosen: the control plane is what it is.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "controlplane.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ExistingControlPlane",
    plural = "existingcontrolplanes",
    shortname = "ecp",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    status = "ExistingControlPlaneStatus",
    doc = "A control plane that is there already: that of the cluster which the Macs join.",
    printcolumn(
        name = "Initialized",
        type_ = "boolean",
        json_path = ".status.initialization.controlPlaneInitialized"
    ),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ExistingControlPlaneSpec {}

/// What Cluster API is told of the control plane.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExistingControlPlaneStatus {
    /// Contract of Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<ControlPlaneInitialization>,
    /// Cluster API has no Machine to look for behind this control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_managed_control_plane: Option<bool>,
    /// Contract of Cluster API v1beta1: the API server has answered once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialized: Option<bool>,
    /// Contract of Cluster API v1beta1: the API server answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// What is true of it, since when, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// How far the control plane is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ControlPlaneInitialization {
    /// Its API server answers: it is the one that this object is stored in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_initialized: Option<bool>,
}
