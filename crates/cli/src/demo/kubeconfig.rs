//! The kubeconfig file of a demo: there while it runs, gone with it.

use std::fmt;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::PathBuf;

use anyhow::{Context, Result};
use secrecy::{ExposeSecret, SecretString};

/// A kubeconfig on disk, readable by its owner alone; dropped, it is deleted.
pub struct Kubeconfig {
    folder: PathBuf,
}

impl Kubeconfig {
    /// Writes it where `port` makes it unique.
    pub fn write(port: u16, content: &SecretString) -> Result<Self> {
        let given = std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
        let base = given.map_or_else(std::env::temp_dir, PathBuf::from);
        let folder = base.join(format!("applecart-demo-{port}"));
        // What an earlier demo left when it was killed is of no use to anybody.
        if folder.exists() {
            fs::remove_dir_all(&folder)
                .with_context(|| format!("could not clear {}", folder.display()))?;
        }
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&folder)
            .with_context(|| format!("could not create {}", folder.display()))?;
        let written = Self { folder };
        let path = written.path();
        fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)
            .and_then(|mut file| file.write_all(content.expose_secret().as_bytes()))
            .with_context(|| format!("could not write {}", path.display()))?;
        Ok(written)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }
}

impl fmt::Display for Kubeconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.path().display().fmt(f)
    }
}

impl Drop for Kubeconfig {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.folder) {
            eprintln!("could not remove {}: {error}", self.folder.display());
        }
    }
}
