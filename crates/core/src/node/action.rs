//! Every effect that the Node's turn can have, as data.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeStatus};

/// One effect, with the precondition under which it is safe inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Create the Node, if there is none.
    Register(Box<Node>),
    /// Set these labels, and no others.
    SetLabels(BTreeMap<String, String>),
    /// Set the provider ID, if the Node is still at this version.
    SetProviderId {
        /// The resourceVersion that was read.
        version: String,
        /// The provider ID.
        provider_id: String,
    },
    /// Write the status, if the Node is still at this version.
    PublishStatus {
        /// The resourceVersion that was read.
        version: String,
        /// What we assert, with the conditions of others as they were.
        status: Box<NodeStatus>,
    },
    /// Create the Lease, owned by the Node of this UID.
    CreateLease {
        /// The Node's UID.
        owner: String,
        /// The time of renewal.
        renewed: Timestamp,
        /// How long it stands without another.
        seconds: i32,
    },
    /// Renew the Lease, if it is still at this version.
    RenewLease {
        /// The resourceVersion that was read.
        version: String,
        /// The time of renewal.
        renewed: Timestamp,
        /// How long it stands without another.
        seconds: i32,
    },
}
