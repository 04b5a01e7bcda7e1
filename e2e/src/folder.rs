//! A folder for the data of a run, gone with the run.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};

const PREFIX: &str = "applecart-e2e-";

/// A folder that only this user can read. Dropped, it is removed with all that is in it; a run that
/// was killed leaves it behind, and the next run removes it.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// A new, empty one. Removes those of dead owners on the way.
    pub fn create() -> Result<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = std::env::temp_dir();
        remove_of_the_dead(&base);
        let owner = Owner::this().context("could not read /proc: is this Linux?")?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("{PREFIX}{}-{}-{count}", owner.process, owner.started));
        DirBuilder::new()
            .mode(0o700)
            .create(&path)
            .with_context(|| format!("could not create {}", path.display()))?;
        Ok(Self { path })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // The next run tries again.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A process, told apart from a later one with the same id by when it started.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    process: u32,
    /// Clock ticks since boot.
    started: u64,
}

impl Owner {
    fn this() -> Option<Self> {
        let process = std::process::id();
        Some(Self { process, started: started(process)? })
    }

    /// From a folder's name: `applecart-e2e-<process>-<started>-<count>`.
    fn read(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let process = parts.next()?.parse().ok()?;
        Some(Self { process, started: parts.next()?.parse().ok()? })
    }

    fn lives(&self) -> bool {
        started(self.process) == Some(self.started)
    }
}

/// When a process started; `None` if there is no such process, or nothing but its exit code.
pub(crate) fn started(process: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is the program's name in brackets, and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X") { None } else { fields.nth(18)?.parse().ok() }
}

fn remove_of_the_dead(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(Owner::read);
        if owner.is_some_and(|owner| !owner.lives()) {
            // Another run may be removing it too, or it is another user's.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_process_has_a_start_until_it_ends_even_if_nobody_asked_how() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(started(child.id()) >= started(std::process::id()));
        assert!(started(child.id()).is_some());
        drop(child.stdin.take());
        while started(child.id()).is_some() {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
    }

    #[test]
    fn a_folder_goes_with_its_handle_and_those_of_the_living_stay() {
        let first = Folder::create().unwrap();
        fs::write(first.path().join("x"), "x").unwrap();
        let second = Folder::create().unwrap();
        assert!(first.path().join("x").exists());
        let path = first.path().to_owned();
        drop(first);
        assert!(!path.exists());
        assert!(second.path().exists());
    }

    #[test]
    fn folders_of_the_dead_and_of_an_older_process_with_our_id_are_removed_and_no_others() {
        let base = Folder::create().unwrap();
        let this = Owner::this().unwrap();
        let ours = format!("{PREFIX}{}-{}-0", this.process, this.started);
        let reused = format!("{PREFIX}{}-{}-0", this.process, this.started + 1);
        for name in [&ours, &reused, "applecart-e2e-4194999-1-0", "applecart-e2e-x", "other"] {
            fs::create_dir(base.path().join(name)).unwrap();
        }
        remove_of_the_dead(base.path());
        let mut left: Vec<String> = fs::read_dir(base.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, [ours.as_str(), "applecart-e2e-x", "other"]);
    }
}
