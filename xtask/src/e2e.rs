//! Runs the end-to-end scenarios.

use std::ffi::OsString;
use std::process::ExitStatus;

use anyhow::Result;

use crate::cargo;
use crate::counts::Counts;
use crate::program::{E2E, Profile};

/// Runs it with what was typed after `e2e`; its output is ours.
pub fn run(arguments: Vec<OsString>) -> Result<ExitStatus> {
    let mut command = E2E.build(Profile::Dev)?;
    command.args(arguments);
    E2E.status(command)
}

/// Runs every scenario and counts them. Never on a cluster that somebody happens to be logged in
/// to: that is for whoever asks for it.
pub fn count() -> Result<(ExitStatus, Counts)> {
    let mut command = E2E.build(Profile::Dev)?;
    command.env_remove("KUBECONFIG");
    cargo::count_tests(command, "cargo xtask e2e")
}
