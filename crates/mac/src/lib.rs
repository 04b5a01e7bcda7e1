//! A Mac over SSH: read, write, run; the steps that turn a factory Mac into a node.
//!
//! # Flow
//! [`Dial`] (address, key, pinned host key) → a [`Mac`] → [`bootstrap()`] with a [`HostConfig`]:
//! each [`Step`] checks, applies what differs, and reads back what it applied.
//!
//! # Guarantees
//! - First bootstrap and update are the same steps with the same desired configuration.
//! - A converged host costs reads only. A run that was cut off is finished by the next one.
//! - Success is declared after reading back effects, never after writing.
//! - No secret is in an argument vector, script text, error, or `Debug` output: secrets travel on
//!   stdin and in file contents alone.
//! - A running VM survives every step; a step that would end one is postponed and says so.
//!
//! # Assumptions
//! - One bootstrap per host at a time; the caller holds the host's Lease.

mod bootstrap;
mod command;
mod config;
mod edge;
mod github_runner;
mod hidden;
pub mod kcpassword;
mod payload;
pub mod pf;
pub mod plist;
mod ssh;
mod steps;

pub use bootstrap::{Done, Progress, Report, StepReport, bootstrap, inspect, prepare};
pub use command::{Command, Input, Output, Privilege, Program, Script};
pub use config::{
    ConfigError, Fingerprint, FleetWide, HostConfig, Password, PerHost, Tailscale, TartBundle,
    UserName,
};
pub use edge::{Answer, Dial, File, HostKey, Mac, MacError, Owner, Session, Target};
pub use github_runner::GithubRunner;
pub use hidden::Hidden;
pub use payload::{Payload, Pieces};
pub use ssh::{KeyPair, Ssh, public_key, reading, sent_line, wait_for_ssh, writing};
pub use steps::{Cause, Next, Step, StepError, paths, scripts};
