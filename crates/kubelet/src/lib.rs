//! The shell on the Mac: registers the Node and runs each Pod as one Tart VM.
//!
//! [`run`] is the whole agent. All choices are made in `applecart_core::{pod, node}`; here is what
//! reads the world for them and performs what they chose.

mod agent;
mod api;
mod command;
mod config;
mod flags;
mod health;
mod node;
mod pod;
mod pods;
mod tailnet;
mod tart;
mod vm;

pub use agent::run;
pub use config::{Config, NodeIp, Timing};
pub use tailnet::{Tailnet, TailnetError, Tailscale};
pub use tart::Tart;
pub use vm::{Share, Vm, VmError};
