//! Runs cargo, in the root of the workspace.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};

use crate::counts::Counts;

/// The root of the workspace that this program was started in.
pub fn workspace_root() -> PathBuf {
    // Cargo sets it for `cargo run` and `cargo test`. The folder at compile time is the fallback
    // for a binary that is started by hand.
    let package = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    package.parent().map_or(package.clone(), Path::to_path_buf)
}

/// A cargo command that was not started yet.
pub struct Cargo(Command);

impl Cargo {
    /// `cargo <arguments>`, with the cargo that runs us.
    pub fn new(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let program = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(program);
        command.args(arguments).current_dir(workspace_root());
        Self(command)
    }

    /// `cargo bench` of the Macs over real SSH, which need the command line's own binary.
    pub fn bench_macs(arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Self {
        let mut cargo = Self::new(["bench", "--workspace", "--bench", "macs", "--"]);
        cargo.0.args(arguments);
        cargo
    }

    /// With a variable in its environment.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.0.env(name, value);
        self
    }

    /// The command as a person would type it.
    pub fn to_line(&self) -> String {
        let words = self.0.get_args().map(OsStr::to_string_lossy);
        std::iter::once("cargo".into()).chain(words).collect::<Vec<_>>().join(" ")
    }

    /// Runs it; its output is ours.
    pub fn status(mut self) -> Result<ExitStatus> {
        self.0.status().with_context(|| format!("could not start `{}`", self.to_line()))
    }

    /// Runs it and returns what it wrote to standard output; its complaints are shown.
    pub fn shown(mut self) -> Result<String> {
        self.0.stderr(Stdio::inherit());
        self.output()
    }

    /// Runs it quietly and returns what it wrote to standard output.
    pub fn output(mut self) -> Result<String> {
        let line = self.to_line();
        let output = self.0.output().with_context(|| format!("could not start `{line}`"))?;
        if !output.status.success() {
            bail!("`{line}` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        String::from_utf8(output.stdout).with_context(|| format!("`{line}` wrote no UTF-8"))
    }

    /// Runs test runners: shows what they write and adds up what they say that they counted.
    pub fn count_tests(self) -> Result<(ExitStatus, Counts)> {
        let line = self.to_line();
        count_tests(self.0, &line, &mut std::io::stdout())
    }
}

/// [`Cargo::count_tests`] for any command, called `line` when it is talked about, whose output goes
/// to `shown`.
pub fn count_tests(
    mut command: Command,
    line: &str,
    shown: &mut dyn Write,
) -> Result<(ExitStatus, Counts)> {
    let mut child = command
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("could not start `{line}`"))?;
    let output = child.stdout.take().context("a piped child has no output")?;
    let mut counts = Counts::default();
    for text in BufReader::new(output).split(b'\n') {
        let mut text = text.with_context(|| format!("could not read what `{line}` wrote"))?;
        if let Some(more) = std::str::from_utf8(&text).ok().and_then(Counts::read) {
            counts += more;
        }
        text.push(b'\n');
        shown.write_all(&text)?;
    }
    Ok((child.wait().with_context(|| format!("lost sight of `{line}`"))?, counts))
}

/// Says how to get `cargo <subcommand>` if it is not there.
pub fn need_component(subcommand: &str, component: &str) -> Result<()> {
    if Cargo::new([subcommand, "--version"]).output().is_ok() {
        return Ok(());
    }
    bail!(
        "`cargo {subcommand}` is not installed; get it with `rustup component add {component}` \
         (without rustup: the package `{component}` of your system, for Rust {})",
        env!("CARGO_PKG_RUST_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_reads_as_it_would_be_typed() {
        assert_eq!(Cargo::new(["fmt", "--check"]).to_line(), "cargo fmt --check");
    }

    #[test]
    fn a_missing_component_is_reported_with_the_way_to_get_it() {
        let error = need_component("no-such-subcommand", "rustfmt").unwrap_err().to_string();
        assert!(error.contains("rustup component add rustfmt"), "{error}");
    }
}
