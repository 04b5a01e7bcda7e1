//! Reads what the rules look at. All I/O of `tidy` is here.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::File;
use super::layers::Package;
use crate::cargo::Cargo;

/// Everything that the rules look at.
pub struct Tree {
    /// The text files that git knows or would add.
    pub files: Vec<File>,
    /// The packages of the workspace.
    pub packages: Vec<Package>,
    /// `cargo tree` of `applecart-core`, a package a line.
    pub core_packages: String,
}

impl Tree {
    /// Reads the tree at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let metadata = Cargo::new(["metadata", "--no-deps", "--format-version", "1"]).output()?;
        let core = ["tree", "-p", "applecart-core", "-e", "normal", "--prefix", "none"];
        Ok(Self {
            files: files(root)?,
            packages: Package::read_all(&metadata, root)
                .context("could not understand `cargo metadata`")?,
            core_packages: Cargo::new(core).output()?,
        })
    }
}

fn files(root: &Path) -> Result<Vec<File>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("could not start `git`, which knows the files of the tree")?;
    if !output.status.success() {
        bail!("`git ls-files` failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let listed = String::from_utf8(output.stdout).context("`git ls-files` wrote no UTF-8")?;
    let mut paths: Vec<&str> = listed.split_terminator('\0').collect();
    paths.sort_unstable();
    paths.dedup();
    let mut files = Vec::new();
    for path in paths {
        // A file that was deleted and not yet committed is still listed.
        let Ok(bytes) = std::fs::read(root.join(path)) else { continue };
        // What is not UTF-8 is a picture or the like.
        let Ok(text) = String::from_utf8(bytes) else { continue };
        files.push(File { path: path.into(), text });
    }
    Ok(files)
}
