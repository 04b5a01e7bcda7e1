//! A Machine: one Mac, claimed from the pool, bootstrapped, and returned wiped. No I/O here.
//!
//! # Flow
//! [`Observed`] → [`decide()`] (one [`Action`], when to look again, and a [`Reason`]) → the shell
//! performs it → look again. [`status()`] turns the same input into what people read.
//!
//! # Guarantees
//! - A host is renamed only while we hold its Lease, and only from the name just read (S3).
//! - A host gets a pool name only after its wipe was accepted (LH1, LH22).
//! - Deletion is looked at first, in every state; it needs neither Machine nor Cluster (V1).
//! - A host is exchanged only while Cluster API was not told of it, and bought only for a Machine
//!   that asks for it, once (G17).
//! - Paused means no call outside; nothing is written before a Machine owns the object.
//! - Any turn may be the first: nothing is remembered that cannot be read again. What is in memory
//!   (a running bootstrap, the last failure) may be lost at any moment and costs time alone.
//!
//! # Assumptions
//! - Renames at Scaleway are unconditional, the last one wins; Leases are atomic.
//! - The shell reads the host this turn, uncached, before it performs; but for effects that
//!   [`Action::may_follow_a_remembered_read`] names, a read of the last minute is enough.

mod action;
mod bootstrap;
mod claim;
mod decide;
mod drain;
mod image;
mod leftovers;
mod limits;
mod observed;
mod order;
mod reason;
mod release;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;

pub use action::{Action, Exactly, Identity};
pub use claim::needs_name;
pub use decide::{Decision, decide};
pub use drain::{is_postponed, wants_drain};
pub(crate) use leftovers::{remove_access, remove_account, remove_node};
pub use limits::{Limits, Tiers};
pub use observed::{
    Bootstrap, Bound, Builder, Candidate, Candidates, Credentials, Guest, Host, HostRead,
    HostState, Image, Images, Lease, LeaseHolder, Name, Node, Object, Observed, Ordered, OwnerNote,
    Pause, Reboot, Release,
};
pub use reason::{PoolCounts, Reason};
pub use status::status;
pub use upkeep::{Looked, Upkeep, Upkept, is_due};
