//! A Pod on a Mac: one Pod, one VM, once. No I/O in this folder.
//!
//! # Flow
//! [`Observed`] (the Pod object, the VMs on the host, the guest's address) → [`decide()`] (one
//! [`Action`], when to look again, why) → the shell performs it → look again.
//!
//! # Guarantees
//! - A Pod never gets a second VM: one that was published as booting, or whose VM ran, ends.
//! - How a VM ended is stored in the Pod before the VM is removed.
//! - The finalizer goes only when the VM is known to be gone; not knowing is never taken for gone.
//! - Deletion is looked at first, in every state.
//! - Any turn may be the first: nothing is needed that the Pod and the host do not show.
//!
//! # Assumptions
//! - The host records that a VM was started before it starts, and starts a VM at most once.
//! - One process decides about a host's Pods, so that a slot given to one is seen by the next.

mod action;
mod decide;
mod observed;
mod status;
mod template;
mod vm_name;

pub use action::{Action, Effect, Outcome};
pub use decide::{Decision, Limits, Reason, Slot, decide};
pub use observed::{
    Address, Exit, Failure, Observed, PodId, PodObject, PodSeen, Published, VmState, Vms,
};
pub use template::{EnvEntry, EnvSource, Refusal, Template};
pub use vm_name::VmName;
