//! Runs the end-to-end scenarios.

use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, ExitStatus};

use anyhow::Result;

use crate::cargo;
use crate::counts::Counts;
use crate::program::{APPLECART, E2E, Profile};
use crate::tools;

/// Runs it with what was typed after `e2e`; its output is ours.
pub fn run(arguments: Vec<OsString>) -> Result<ExitStatus> {
    tools::need_all()?;
    let mut command = E2E.build(Profile::Dev)?;
    command.args(arguments);
    E2E.status(command)
}

/// Measures claims of the provider as it is shipped, with what was typed after `bench claims`.
pub fn bench_claims(arguments: &[OsString]) -> Result<ExitStatus> {
    let mut command = E2E.build(Profile::Release)?;
    command.arg("bench").arg("--provider").arg(APPLECART.path(Profile::Dist)?);
    command.args(arguments).env_remove("KUBECONFIG");
    E2E.status(command)
}

/// Every scenario. Never on a cluster that somebody happens to be logged in to: that is for whoever
/// asks for it.
pub fn all() -> Result<Command> {
    let mut command = E2E.build(Profile::Dev)?;
    // A folder of somebody's programs has no controllers: scenarios would be left out.
    command.env_remove("KUBECONFIG").env_remove("KUBEBUILDER_ASSETS");
    Ok(command)
}

/// Runs [`all`] and counts them; what they say goes to `shown`.
pub fn count(command: Command, shown: &mut dyn Write) -> Result<(ExitStatus, Counts)> {
    cargo::count_tests(command, "cargo xtask e2e", shown)
}
