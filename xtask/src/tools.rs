//! Programs that tests talk to and that are not Rust's: there, or installed, or named.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// A program that tests need.
struct Tool {
    /// The program's name.
    program: &'static str,
    /// Debian's package of it, if it has one that will do.
    package: Option<&'static str>,
    /// How to get it elsewhere.
    elsewhere: &'static str,
}

const TOOLS: [Tool; 3] = [
    Tool {
        program: "sshd",
        package: Some("openssh-server"),
        elsewhere: "install OpenSSH's server; it is only started by tests, on loopback",
    },
    Tool {
        program: "go",
        package: None,
        elsewhere: "install Go 1.26 or newer: Scaleway's own SDK is a client of our simulator",
    },
    Tool {
        program: "kubectl",
        package: None,
        elsewhere: "install kubectl 1.32 or newer: tests use the demo as a person would",
    },
];

/// Makes sure that every tool is there, and says which had to be installed.
pub fn need_all() -> Result<()> {
    let missing = TOOLS.iter().filter(|tool| find(tool.program).is_none()).collect::<Vec<_>>();
    for tool in missing {
        match tool.package {
            Some(package) if find("apt-get").is_some() => install(package)?,
            _ => bail!("{} is missing: {}", tool.program, tool.elsewhere),
        }
        if find(tool.program).is_none() {
            bail!("{} is still missing: {}", tool.program, tool.elsewhere);
        }
    }
    separate_privileges()
}

/// The empty folder that `sshd` asks for when root starts it; its package makes it at boot only.
const SSHD_FOLDER: &str = "/run/sshd";

fn separate_privileges() -> Result<()> {
    match std::fs::create_dir_all(SSHD_FOLDER) {
        // Who may not make it is not root, and is not asked for it.
        Err(error) if error.kind() == ErrorKind::PermissionDenied => Ok(()),
        made => made.with_context(|| format!("could not create {SSHD_FOLDER}")),
    }
}

/// Where a program is: on the path, or where Debian keeps what only root runs.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| Path::is_file(file))
}

fn install(package: &str) -> Result<()> {
    println!("installing {package}");
    for arguments in [&["update", "-qq"][..], &["install", "-qq", "-y", package][..]] {
        let status = Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .context("could not start apt-get")?;
        if !status.success() {
            bail!("`apt-get {}` ended with {status}: run it as root", arguments.join(" "));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_name_and_nothing_else_is() {
        assert!(find("sh").is_some());
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
