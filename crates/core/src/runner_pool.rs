//! A runner pool: N warm CI runners, each a Pod that takes one job and ends. No I/O here.
//!
//! # Guarantees
//! - A busy runner is never deleted; every delete carries the UID and version that were read (S37).
//! - A runner is a Pod and a `ServiceAccount` of one name, and no name is used twice. An account
//!   whose Pod could not be made is tried again before another one is made (LH9); one that a Pod
//!   left behind goes, and one that another leader may have made waits for it (G7).
//! - A runner keeps its job while nobody hears of its Mac, however long that is (S37, G15). One
//!   without a job is replaced then; it leaves when its agent is back, or with its Machine.
//! - Two leaders who see the same make the same runner, and one of them is refused (G7).
//! - At rest nothing is written: the status says only what can change (LH25).

mod action;
mod decide;
mod observed;
mod shape;
mod status;

pub use action::Action;
pub use decide::{Decision, Limits, Reason, decide};
pub use observed::{Account, AccountState, Observed, Pool, Runner, RunnerState};
pub use shape::{account, pod, suffix};
pub use status::status;
