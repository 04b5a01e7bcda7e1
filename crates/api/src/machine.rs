//! `ScalewayAppleSiliconMachine` and its template: a Mac that a Machine of Cluster API asks for.
//!
//! Every field is optional in Rust, whatever its default: what the API server stored is what comes
//! back, and an object of the system before us is written back as it was read. Defaults that the
//! schema declares are repeated by the accessors, for objects older than the default.

#![allow(clippy::duplicated_attributes, reason = "each printcolumn is a column of its own")]

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::ids::{IdError, Zone};
use crate::os_pin::OsPin;

const DEFAULT_TYPE: &str = "M2-L";
const DEFAULT_ZONE: &str = "fr-par-1";
const DEFAULT_OS: &str = "macos-tahoe-26.3";

/// What the Mac shall be.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconMachine",
    plural = "scalewayapplesiliconmachines",
    shortname = "samm",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    status = "ScalewayAppleSiliconMachineStatus",
    doc = "A Mac mini at Scaleway, claimed from the pool for one Machine of Cluster API.",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "ProviderID", type_ = "string", json_path = ".spec.providerID"),
    printcolumn(name = "Ready", type_ = "boolean", json_path = ".status.ready"),
    printcolumn(name = "Step", type_ = "string", json_path = ".status.bootstrap.display"),
    printcolumn(name = "Node", type_ = "string", json_path = ".status.nodeName"),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.lastReason"),
    printcolumn(name = "Since", type_ = "date", json_path = ".status.since"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    printcolumn(name = "Host", type_ = "string", json_path = ".status.serverID", priority = 1)
)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineSpec {
    /// Name prefix of the pool: hosts are adopted from it and go back to it. Without one, the
    /// provider's --default-adopt-pool-prefix stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub adopt_pool_prefix: Option<String>,
    /// Scaleway server type, matched exactly.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_TYPE))]
    pub type_: Option<String>,
    /// Scaleway zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_ZONE))]
    pub zone: Option<String>,
    /// macOS to ask for: one release (macos-tahoe-26.3), or any of a family (macos-tahoe).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_OS))]
    pub os: Option<String>,
    /// Fleet that the Mac joins: it shares the fleet's SSH key, and its Node carries the label
    /// tuist.dev/fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet_name: Option<String>,
    /// Set by the provider: `scw-applesilicon://<zone>/<server id>`.
    #[serde(rename = "providerID", default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<String>,
    /// CPU cores that the Node advertises; the provider's flag stands in for 0 or nothing.
    #[serde(rename = "hostCPU", default, skip_serializing_if = "Option::is_none")]
    pub host_cpu: Option<i64>,
    /// Memory in MiB that the Node advertises; the provider's flag stands in for 0 or nothing.
    #[serde(rename = "hostMemoryMB", default, skip_serializing_if = "Option::is_none")]
    pub host_memory_mb: Option<i64>,
    /// Version that the Node reports; the Machine's own version stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet_version: Option<String>,
    /// Orders a host of its own instead of adopting one from the pool, and deletes it with the
    /// object. Off unless true: nothing else ever buys a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto_order: Option<bool>,
    /// Puts a GitHub Actions runner on the host itself, for hosts that build images.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_actions_runner: Option<GhActionsRunner>,
}

impl ScalewayAppleSiliconMachineSpec {
    /// The server type, or its default; empty is the same as absent, as old objects have it.
    #[must_use]
    pub fn server_type(&self) -> &str {
        said(self.type_.as_ref()).unwrap_or(DEFAULT_TYPE)
    }

    /// The zone, or its default.
    pub fn zone(&self) -> Result<Zone, IdError> {
        said(self.zone.as_ref()).unwrap_or(DEFAULT_ZONE).parse()
    }

    /// The zone of an object that names none.
    #[must_use]
    pub fn default_zone() -> Zone {
        DEFAULT_ZONE.parse().expect("the default is a zone")
    }

    /// The OS pin, or its default.
    #[must_use]
    pub fn os_pin(&self) -> OsPin {
        OsPin::parse(said(self.os.as_ref()).unwrap_or(DEFAULT_OS))
    }
}

fn said(field: Option<&String>) -> Option<&str> {
    field.map(String::as_str).filter(|text| !text.is_empty())
}

/// A GitHub Actions runner on the host itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GhActionsRunner {
    /// GitHub organisation that the runner belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_ORG))]
    pub gh_org: Option<String>,
    /// Labels of the runner, separated by commas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = Self::DEFAULT_LABELS))]
    pub gh_runner_labels: Option<String>,
    /// Release of the runner program that a new host begins with, such as 2.334.0. There is no
    /// default: GitHub refuses releases that have become old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_runner_version: Option<String>,
    /// Secret in this object's namespace with app-id, installation-id and private-key (PEM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gh_app_secret_name: Option<String>,
}

impl GhActionsRunner {
    /// The organisation of an object that names none.
    pub const DEFAULT_ORG: &str = "tuist";
    /// The labels of an object that names none.
    pub const DEFAULT_LABELS: &str = "self-hosted,macos,bare-metal,vm-image-builder";
}

/// What is known of the Mac. Derived: it can be wiped and is rebuilt.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalewayAppleSiliconMachineStatus {
    /// The Mac is claimed, bootstrapped, and its Node is there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<bool>,
    /// Contract of Cluster API v1beta2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub initialization: Option<Initialization>,
    /// Scaleway's id of the host; empty means that there is nothing to return.
    #[serde(rename = "serverID", default, skip_serializing_if = "Option::is_none")]
    pub server_id: Option<String>,
    /// Where the host answers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<MachineAddress>,
    /// Pending, Adopting, Bootstrapping, Ready, Deleting or Failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Why the last line of this object is what it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
    /// Since when that has been so: it moves with the reason's word, not with its details.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// Where the bootstrap is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapProgress>,
    /// When the next bootstrap may begin; nothing brings it forward.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub next_attempt_at: Option<Timestamp>,
    /// Fingerprint of what a Mac that was taken over should have been at that time: it is left as
    /// it was until that changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub taken_over_stamp: Option<String>,
    /// The Node that the Mac registered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// A failure that lasts, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_reason: Option<String>,
    /// A failure that lasts, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_message: Option<String>,
    /// What is true of the Mac, since when, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Fingerprint of what was last pushed to the host.
    #[serde(rename = "tartKubeletBinarySHA", default, skip_serializing_if = "Option::is_none")]
    pub tart_kubelet_binary_sha: Option<String>,
    /// Failed updates in a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tart_kubelet_update_attempts: Option<i32>,
    /// Failed bootstraps in a row on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_attempts: Option<i32>,
    /// This host was already rebooted to recover it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_reboot_issued: Option<bool>,
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What Cluster API v1beta2 asks an infrastructure object for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Initialization {
    /// The infrastructure is there for good; once true, it stays true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisioned: Option<bool>,
}

/// One address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MachineAddress {
    /// Hostname, `ExternalIP`, `InternalIP`, `ExternalDNS` or `InternalDNS`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The address itself.
    pub address: String,
}

/// How far a bootstrap is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BootstrapProgress {
    /// The step's name.
    pub step: String,
    /// The step's number, from 1.
    pub index: i32,
    /// How many steps there are.
    pub total: i32,
    /// When the step began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub since: Option<Timestamp>,
    /// All of it in one line, `3/9 no sleep`, for a column.
    pub display: String,
}

/// A Machine to be cloned.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "infrastructure.cluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ScalewayAppleSiliconMachineTemplate",
    plural = "scalewayapplesiliconmachinetemplates",
    shortname = "sammt",
    category = "cluster-api",
    namespaced,
    derive = "PartialEq",
    doc = "What a MachineDeployment clones into ScalewayAppleSiliconMachines."
)]
pub struct ScalewayAppleSiliconMachineTemplateSpec {
    /// What each clone starts from.
    pub template: MachineTemplateResource,
}

/// What each clone starts from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct MachineTemplateResource {
    /// Labels and annotations that each clone gets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<TemplateMetadata>,
    /// The clone's spec.
    pub spec: ScalewayAppleSiliconMachineSpec,
}

/// Labels and annotations for clones.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TemplateMetadata {
    /// Labels for each clone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for each clone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}
