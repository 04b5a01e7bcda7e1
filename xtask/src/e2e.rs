//! Builds what the end-to-end scenarios run, then runs them.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::{self, Cargo};
use crate::counts::Counts;

/// Built in one go, so that all share their dependencies; programs lie beside the runner.
const PACKAGES: &[&str] = &[RUNNER, "applecart", "tart-kubelet"];
const RUNNER: &str = "applecart-e2e";

/// How it is called when it is talked about.
const LINE: &str = "cargo xtask e2e";

/// Runs it with what was typed after `e2e`; its output is ours.
pub fn run(arguments: Vec<OsString>) -> Result<ExitStatus> {
    let mut command = Command::new(runner(&[])?);
    command.args(arguments).status().with_context(|| format!("could not start `{LINE}`"))
}

/// Measures claims, built for release, with what was typed after `bench claims`.
pub fn bench_claims(arguments: &[OsString]) -> Result<ExitStatus> {
    let mut command = Command::new(runner(&["--release"])?);
    command.arg("bench").args(arguments).env_remove("KUBECONFIG");
    command.status().context("could not start `cargo xtask bench claims`")
}

/// Runs every scenario and counts them. Never on a cluster that somebody happens to be logged in
/// to: that is for whoever asks for it.
pub fn count() -> Result<(ExitStatus, Counts)> {
    let mut command = Command::new(runner(&[])?);
    command.env_remove("KUBECONFIG");
    cargo::count_tests(command, LINE)
}

fn runner(how: &[&str]) -> Result<PathBuf> {
    let packages = PACKAGES.iter().flat_map(|package| ["--package", *package]);
    let build = ["build", "--message-format=json-render-diagnostics"].into_iter();
    let build = build.chain(how.iter().copied()).chain(packages);
    let messages = Cargo::new(build).shown()?;
    executable(&messages, RUNNER).with_context(|| format!("cargo made no program {RUNNER}"))
}

/// Where cargo put a program, by its messages.
pub fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages.lines().filter_map(|line| serde_json::from_str(line).ok()).find_map(
        |message: Value| {
            let path = message["executable"].as_str()?;
            (message["target"]["name"] == name).then(|| PathBuf::from(path))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_among_cargos_messages() {
        let messages = r#"{"reason":"compiler-artifact","target":{"name":"x"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"applecart-e2e"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"applecart-e2e"},"executable":"/t/applecart-e2e"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages, RUNNER), Some(PathBuf::from("/t/applecart-e2e")));
        assert_eq!(executable(messages, "x"), None);
    }
}
