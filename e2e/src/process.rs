//! A program that a run started: guarded, logged, ended with its handle.

use std::fs::{self, File, OpenOptions};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::{guard, wait};

/// Lines of a log that are worth printing when something failed.
const TAIL_LINES: usize = 25;
/// Characters of such a line: some are whole objects.
const LINE_CHARACTERS: usize = 300;

/// A running program. It dies with this process (see [`guard`]) and when this is dropped, together
/// with its process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; both its outputs are appended to `<folder>/<name>.log`.
    pub fn start(name: &str, command: &Command, folder: &Path) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let open = || OpenOptions::new().create(true).append(true).open(&log);
        let output = open().with_context(|| format!("could not write {}", log.display()))?;
        let errors = output.try_clone().context("could not share a log")?;
        let child = guard::spawn(command, |guarded| {
            // Its own group: Ctrl-C reaches the run alone, which then ends it in order.
            guarded.stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        })
        .with_context(|| format!("could not start {name}"))?;
        Ok(Self { name: name.to_owned(), child, log })
    }

    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, if it did.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("lost sight of {}", self.name))
    }

    /// An error with the end of its log if it is not running any more.
    pub fn must_live(&mut self) -> Result<()> {
        match self.ended()? {
            Some(status) => bail!("{} ended with {status}:\n{}", self.name, self.tail()),
            None => Ok(()),
        }
    }

    /// Asks it to end (SIGTERM) and waits until it did.
    pub async fn terminate(&mut self) -> Result<ExitStatus> {
        if self.ended()?.is_none() {
            kill_process(self.pid(), Signal::TERM)
                .with_context(|| format!("could not signal {}", self.name))?;
        }
        let what = format!("{} to end after SIGTERM", self.name);
        wait::until(&what, async || self.ended()).await
    }

    /// Ends it as `kill -9` does, and waits until it is gone.
    pub fn kill(&mut self) -> Result<ExitStatus> {
        if self.ended()?.is_none() {
            // It may end in between, which is what we want.
            let _ = kill_process_group(self.pid(), Signal::KILL);
            let _ = self.child.kill();
        }
        self.child.wait().with_context(|| format!("lost sight of {}", self.name))
    }

    /// Stops it where it is, or lets it go on: it lives, and does nothing.
    pub fn freeze(&self, frozen: bool) -> Result<()> {
        let signal = if frozen { Signal::STOP } else { Signal::CONT };
        kill_process(self.pid(), signal).with_context(|| format!("could not signal {}", self.name))
    }

    /// Where its output is.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The last lines of its output.
    #[must_use]
    pub fn tail(&self) -> String {
        let bytes = fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<String> =
            text.lines().map(|line| line.chars().take(LINE_CHARACTERS).collect()).collect();
        lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing to do about a child that cannot be waited for.
        let _ = self.kill();
    }
}

/// Writes `text` where only this user can read it.
pub fn write_private(path: &Path, text: &str) -> Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let open = || -> std::io::Result<File> {
        OpenOptions::new().create(true).write(true).truncate(true).mode(0o600).open(path)
    };
    let write = || open()?.write_all(text.as_bytes());
    write().with_context(|| format!("could not write {}", path.display()))
}
