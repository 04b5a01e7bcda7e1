//! A Mac as a Node: registered once, asserted from local truth. No I/O in this folder.
//!
//! # Flow
//! [`Observed`] (the Node object, its Lease, what the agent knows of itself) → [`decide()`] (one
//! [`Action`], when to look again, why) → the shell performs it → look again.
//!
//! # Guarantees
//! - Every condition of ours is asserted from what the agent knows, whatever the API says (K17).
//! - A provider ID is set at most once and never changed (P36).
//! - Labels, taints and conditions of others are left alone (S34).
//! - A Node deleted under a live agent comes back, after a grace.
//!
//! # Assumptions
//! - Taints can be set only together with the Node; later ones are the provider's.

mod action;
mod decide;
mod observed;
mod status;

pub use action::Action;
pub use decide::{Decision, Limits, Reason, decide};
pub use observed::{Address, Health, LeaseObject, NodeObject, Observed, Registration};
