//! `RunnerPool`: keeps N warm, single-use CI runners.

#![allow(clippy::duplicated_attributes, reason = "each printcolumn is a column of its own")]

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Which runners to keep, and how many.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "tuist.dev",
    version = "v1alpha1",
    kind = "RunnerPool",
    plural = "runnerpools",
    shortname = "rpool",
    namespaced,
    derive = "PartialEq",
    status = "RunnerPoolStatus",
    doc = "A pool of warm CI runners, each a Pod that takes one job and ends.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.observedReplicas"
    ),
    printcolumn(name = "Replicas", type_ = "integer", json_path = ".spec.replicas"),
    printcolumn(name = "Observed", type_ = "integer", json_path = ".status.observedReplicas"),
    printcolumn(name = "Idle", type_ = "integer", json_path = ".status.idleReplicas"),
    printcolumn(name = "Busy", type_ = "integer", json_path = ".status.busyReplicas"),
    printcolumn(name = "DispatchLabel", type_ = "string", json_path = ".spec.dispatchLabel"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.lastReason"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct RunnerPoolSpec {
    /// Image of the runner's VM, best by digest.
    pub image: String,
    /// Value of the fleet label of the Nodes to run on.
    pub fleet_selector: String,
    /// The runs-on label that jobs ask for; read by the CI server.
    pub dispatch_label: String,
    /// Labels that the runner registers with; read by the CI server.
    pub runner_labels: Vec<String>,
    /// Runners to keep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub replicas: Option<i64>,
    /// Kept for objects that carry it; nothing reads it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<Vec<String>>,
    /// Operating system of the runners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "darwin", "enum" = ["darwin", "linux"]))]
    pub os: Option<String>,
    /// CPU of a runner in thousandths of a core, requested and limited.
    #[serde(rename = "podCPUMilli", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 8000))]
    pub pod_cpu_milli: Option<i64>,
    /// Memory of a runner in MiB, requested and limited.
    #[serde(rename = "podMemoryMB", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 14336))]
    pub pod_memory_mb: Option<i64>,
    /// Runtime class of the runner's Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<String>,
    /// How the pool is to follow its load. Kept for objects that carry it; nothing reads it yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,
}

/// How a pool follows its load. An explicit zero is a zero (R10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Whether the pool follows its load at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = false))]
    pub enabled: Option<bool>,
    /// Idle runners to keep warm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 1))]
    pub min_warm_pool_floor: Option<i64>,
    /// The most runners; 0 leaves the pool alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub max_replicas: Option<i64>,
    /// Seconds between two scale-downs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 300))]
    pub scale_down_cooldown_seconds: Option<i64>,
}

/// What the pool has. Derived: it can be wiped and is rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunnerPoolStatus {
    /// Runners that are alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_replicas: Option<i64>,
    /// Runners that can take a job now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_replicas: Option<i64>,
    /// Runners that a job claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_replicas: Option<i64>,
    /// Image that the runners were last told to have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_image: Option<String>,
    /// When the image last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub image_rolled_at: Option<Timestamp>,
    /// Kept for objects that carry it; nothing reads it, and writing it woke the writer (LH25).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_reconcile: Option<Timestamp>,
    /// When the pool last shrank.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_scale_down_at: Option<Timestamp>,
    /// Why the pool is as it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// What is true of it, since when, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}
