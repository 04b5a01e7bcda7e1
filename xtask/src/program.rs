//! Our own programs, built before they are run.
//!
//! Always the whole workspace at once: cargo gives a dependency the features that those ask for who
//! are built together, so one program alone would compile most dependencies once more.

use std::path::PathBuf;
use std::process::{Command, ExitStatus};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cargo::Cargo;

/// How a program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// As for the tests: nothing is compiled that they have.
    Dev,
    /// To be fast.
    Release,
    /// As it is shipped: small, and without the simulated world.
    Dist,
}

/// One of our programs.
#[derive(Clone, Copy, Debug)]
pub struct Program(&'static str);

/// What operators and users run.
pub const APPLECART: Program = Program("applecart");
/// Sweeps, benches and soaks.
pub const SWEEP: Program = Program("applecart-sweep");
/// Runs scenarios on a real control plane.
pub const E2E: Program = Program("applecart-e2e");

impl Program {
    /// A command that runs it, built anew if need be.
    pub fn build(self, profile: Profile) -> Result<Command> {
        self.path(profile).map(Command::new)
    }

    /// Where it is, built anew if need be.
    pub fn path(self, profile: Profile) -> Result<PathBuf> {
        let messages = build(profile).shown()?;
        executable(&messages, self.0).with_context(|| format!("cargo made no program {}", self.0))
    }

    /// Runs it to its end; its output is ours.
    pub fn status(self, mut command: Command) -> Result<ExitStatus> {
        command.status().with_context(|| format!("could not start {}", self.0))
    }
}

fn build(profile: Profile) -> Cargo {
    let mut words = vec!["build"];
    words.extend(match profile {
        Profile::Dev => &["--workspace", "--bins"][..],
        Profile::Release => &["--workspace", "--bins", "--release"],
        Profile::Dist => &["--package", "applecart", "--no-default-features", "--profile", "dist"],
    });
    words.push("--message-format=json-render-diagnostics");
    Cargo::new(words)
}

/// Where cargo put a program, by its messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
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
        assert_eq!(executable(messages, E2E.0), Some(PathBuf::from("/t/applecart-e2e")));
        assert_eq!(executable(messages, "x"), None);
    }

    #[test]
    fn all_are_built_together_so_that_they_share_their_dependencies() {
        let line = build(Profile::Release).to_line();
        assert!(line.starts_with("cargo build --workspace --bins --release"), "{line}");
        assert!(!build(Profile::Dev).to_line().contains("--release"));
        assert!(build(Profile::Dist).to_line().contains("--no-default-features --profile dist"));
    }
}
