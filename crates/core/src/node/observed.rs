//! What the agent saw of its Node this turn, and what it knows of itself. Pure.

use core::net::IpAddr;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;

/// What a Mac says of itself: given once, at start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// The Node's name.
    pub name: String,
    /// Labels beside those that every Mac has.
    pub labels: BTreeMap<String, String>,
    /// `scw-applesilicon://<zone>/<server id>`; `None` if nobody told us.
    pub provider_id: Option<String>,
    /// Cores for Pods.
    pub cpu: u32,
    /// Memory for Pods, in MiB.
    pub memory_mib: u64,
    /// How many Pods may be placed here.
    pub pods: u32,
    /// What `nodeInfo.kubeletVersion` says.
    pub kubelet_version: String,
}

/// The Node's address.
///
/// K6: what a Mac shall be reached at is told to it, or asked of one source; when that fails, no
/// other address takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Nobody told us: the Node has none but its name.
    Untold,
    /// This one.
    Known(IpAddr),
    /// The source that we were told of has none yet; what it said.
    Awaited(String),
}

impl Address {
    /// The address, if it is known.
    #[must_use]
    pub fn known(&self) -> Option<IpAddr> {
        match self {
            Self::Known(address) => Some(*address),
            Self::Untold | Self::Awaited(_) => None,
        }
    }
}

/// Whether this Mac can run VMs, as far as the agent knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Health {
    /// Tart answers.
    Good,
    /// Tart has not answered since then.
    TartSilent {
        /// Since when.
        since: Timestamp,
        /// What it said last.
        message: String,
    },
}

/// The Node object.
#[derive(Clone, Debug)]
pub enum NodeObject {
    /// The API server did not answer.
    Unknown(String),
    /// There is none.
    Missing,
    /// There is one.
    Live(Box<Node>),
}

/// The Node's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseObject {
    /// Not to be read: no answer, or no permission.
    Unknown(String),
    /// There is none.
    Missing,
    /// There is one.
    Live {
        /// The resourceVersion that was read.
        version: String,
        /// When it was last renewed.
        renewed: Option<Timestamp>,
    },
}

/// Everything that one decision about the Node may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// What the Mac says of itself.
    pub registration: Registration,
    /// The Mac's address.
    pub address: Address,
    /// The Node, read this turn.
    pub node: NodeObject,
    /// Since when this process has missed a Node that it had seen before.
    pub missing_since: Option<Timestamp>,
    /// The Lease, read this turn.
    pub lease: LeaseObject,
    /// When this process last wrote the Node's status.
    pub heartbeat: Option<Timestamp>,
    /// Whether VMs can run here.
    pub health: Health,
}
