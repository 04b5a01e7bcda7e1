//! The sweep: accounts for every host of every zone, finishes what was left half done, and returns
//! hosts that nobody owns. No I/O here.
//!
//! # Flow
//! [`Inventory`] → [`survey()`] (a [`Report`], and the [`Task`]s that are due) → for each task: the
//! host is read afresh ([`Seen`]) → [`decide()`] (one [`Action`] or none, and a [`Reason`]) → the
//! shell performs it and looks again.
//!
//! # Guarantees
//! - Every host is in exactly one [`Class`] (C1).
//! - Nothing is changed that was not seen twice, a full interval apart, and read once more right
//!   before (S7, LH15); nothing at all of a host that a live object owns by name, by id or by
//!   marker (S4); nothing of a host that is retiring, quarantined, foreign or moved.
//! - Orphans are returned only under the prefix that an operator named, so many in a cycle, and not
//!   while objects are missing in numbers that no accident of one host explains.
//! - A host is wiped only when its Node takes no new Pods and no job runs there (S24, LH24), is not
//!   asked twice in a row, and is set aside when it was asked in vain for long.
//! - A host gets a pool name only after its wipe was seen to run (LH1, LH22).
//! - What an object left in Kubernetes goes only when no host lives by it (C5).
//! - What is under way is told by names and Leases alone: a crash costs time, and nothing else.

mod action;
mod class;
mod decide;
mod leftovers;
mod memory;
mod observed;
mod reason;
mod report;
mod survey;
#[cfg(test)]
mod tests;
mod wipe;

pub use action::{Action, Decision};
pub use class::{Class, Names, classify};
pub use decide::decide;
pub use leftovers::{Belongings, CleanUp, Leftovers, clean_up};
pub use memory::Memory;
pub use observed::{
    Asked, HostLease, Inventory, Job, Listed, Mac, Owner, Owners, Policy, Seen, ZoneRead,
};
pub use reason::Reason;
pub use report::{ClassReport, Duplicate, Report, StuckHost, Unowned, ZoneReport};
pub use survey::{Survey, Task, survey};
