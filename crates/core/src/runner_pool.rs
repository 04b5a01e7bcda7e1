//! A runner pool: N warm CI runners, each a Pod that takes one job and ends. No I/O here.
//!
//! # Guarantees
//! - A busy runner is never deleted; every delete carries the UID and version that were read (S37).
//! - A runner is a Pod and a `ServiceAccount` of one name. An account without a Pod is used before
//!   another one is made (LH9), and goes when nothing needs it.
//! - At rest nothing is written: the status says only what can change (LH25).

mod action;
mod decide;
mod observed;
mod shape;
mod status;

pub use action::Action;
pub use decide::{Decision, Limits, Reason, decide};
pub use observed::{Observed, Pool, Runner, RunnerState, Trouble};
pub use shape::{account, pod, suffix};
pub use status::status;
