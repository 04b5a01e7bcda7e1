//! What is written down about a VM, in a folder of its name.
//!
//! | file | says |
//! |---|---|
//! | `created` | its creation finished |
//! | `run` | it was started, by the process in it; made at most once |
//! | `exit` | how its run ended, and when |
//! | `log` | what `tart run` said |
//! | `share/` | what the guest sees |

use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use applecart_core::pod::VmName;
use jiff::Timestamp;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::ExposeSecret;
use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncSeekExt};
use tokio::process::Command;

use crate::command::run;
use crate::vm::{Share, VmError};

/// Runs a VM once in its life and leaves a trace of it: `ln` makes `run` whole or not at all, and
/// fails if there is one. Constant text: what varies comes in as arguments.
const SCRIPT: &str = r#"
record=$1; shift
printf '%s %s\n' "$$" "$(ps -o lstart= -p $$)" > "$record/run.$$" || exit 1
ln "$record/run.$$" "$record/run" 2>/dev/null; first=$?
rm -f "$record/run.$$"
[ "$first" = 0 ] || exit 0
"$@"
code=$?
printf '%s %s\n' "$code" "$(date +%s)" > "$record/exit.new"
mv "$record/exit.new" "$record/exit"
"#;
/// How long the script may take to its first lines on a busy host.
const FIRST_LINES: Duration = Duration::from_secs(10);
/// How often it is looked for them.
const LOOK: Duration = Duration::from_millis(20);
/// The end of the log, where the reason is.
const LAST_WORDS: u64 = 4096;
/// A question to `ps`.
const PS: Duration = Duration::from_secs(5);

/// What a record says of a VM's one run.
#[derive(Debug)]
pub(super) enum Run {
    NeverCreated,
    NeverStarted,
    Started(Process),
    Ended { code: i32, at: Option<Timestamp> },
}

/// A process that is told from a later one of the same number by when it started (LH27).
#[derive(Debug)]
pub(super) struct Process {
    pid: u32,
    started: String,
}

impl Process {
    fn parse(text: &str) -> Option<Self> {
        let (pid, started) = text.trim().split_once(' ')?;
        Some(Self { pid: pid.parse().ok()?, started: words(started) })
    }

    /// Whether it lives. No answer counts as yes: what may live is not deleted (S26).
    pub async fn lives(&self) -> bool {
        let pid = self.pid.to_string();
        let args = ["-o", "stat=", "-o", "lstart=", "-p", &pid];
        match run(Path::new("/bin/ps"), &args, PS).await {
            Ok(finished) => match finished.stdout.trim().split_once(' ') {
                Some((state, started)) => !state.starts_with('Z') && words(started) == self.started,
                None => false,
            },
            Err(_) => true,
        }
    }

    /// Ends it and all that it started, if it still lives.
    pub async fn kill(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        if let (Some(pid), true) = (pid, self.lives().await) {
            // That it ended in between is what we want.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

fn private_folder(path: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// `ps` pads dates as it likes.
fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The names of all VMs that something is written down about.
pub(super) async fn names(state: &Path) -> Result<Vec<VmName>, VmError> {
    let what = || format!("reading {}", state.display());
    let mut entries = match fs::read_dir(state).await {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(VmError::Host { what: what(), source }),
    };
    let mut names = Vec::new();
    while let Some(entry) =
        entries.next_entry().await.map_err(|source| VmError::Host { what: what(), source })?
    {
        if let Ok(name) = entry.file_name().into_string() {
            names.push(VmName::new(name));
        }
    }
    Ok(names)
}

/// One VM's folder.
pub(super) struct Record(PathBuf);

impl Record {
    pub fn new(folder: PathBuf) -> Self {
        Self(folder)
    }

    /// What is written down.
    pub async fn read(&self) -> Result<Run, VmError> {
        if let Some(text) = self.text("exit").await? {
            let (code, at) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
            let at = at.parse().ok().and_then(|at| Timestamp::from_second(at).ok());
            return match code.parse() {
                Ok(code) => Ok(Run::Ended { code, at }),
                Err(_) => Err(self.unreadable("exit")),
            };
        }
        if let Some(text) = self.text("run").await? {
            return Process::parse(&text).map(Run::Started).ok_or_else(|| self.unreadable("run"));
        }
        Ok(match self.text("created").await? {
            Some(_) => Run::NeverStarted,
            None => Run::NeverCreated,
        })
    }

    /// Writes down that the VM is being made.
    pub async fn begin(&self) -> Result<(), VmError> {
        let made = async {
            private_folder(&self.0)?;
            match fs::remove_file(self.0.join("created")).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            }
        };
        made.await.map_err(|source| self.host("making", source))
    }

    /// Writes down that the VM is complete.
    pub async fn created(&self) -> Result<(), VmError> {
        let written = fs::write(self.0.join("created"), "").await;
        written.map_err(|source| self.host("writing", source))
    }

    /// Writes what the guest shall see, for nobody else to read.
    pub async fn write_share(&self, share: Share) -> Result<PathBuf, VmError> {
        let folder = self.0.join("share");
        let written = async {
            private_folder(&folder)?;
            for (name, content) in share.files {
                let path = folder.join(name);
                // A new file each time: the mode of an old one would stay.
                match fs::remove_file(&path).await {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
                let mut options = std::fs::OpenOptions::new();
                let file = options.write(true).create_new(true).mode(0o600).open(&path)?;
                io::Write::write_all(&mut &file, content.expose_secret().as_bytes())?;
            }
            Ok(())
        };
        match written.await {
            Ok(()) => Ok(folder),
            Err(source) => Err(self.host("writing the share of", source)),
        }
    }

    /// Starts the script in a process group of its own, where nothing that ends this agent ends it,
    /// and waits until its start is written down.
    pub async fn start(&self, program: &Path, args: &[&str]) -> Result<(), VmError> {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.0.join("log"));
        let spawned = log.and_then(|log| {
            Command::new("/bin/sh")
                .args(["-c", SCRIPT, "sh"])
                .arg(&self.0)
                .arg(program)
                .args(args)
                .env("LC_ALL", "C")
                .env("TZ", "UTC")
                .stdin(Stdio::null())
                .stdout(log.try_clone()?)
                .stderr(log)
                .process_group(0)
                .spawn()
        });
        let mut child = spawned.map_err(|source| self.host("starting", source))?;
        let started = async {
            loop {
                if let Run::Started(_) | Run::Ended { .. } = self.read().await? {
                    return Ok(());
                }
                if let Ok(Some(status)) = child.try_wait() {
                    let said = format!("the script that runs it ended with {status}");
                    return Err(VmError::Failed { what: self.what("starting"), said });
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        tokio::time::timeout(FIRST_LINES, started).await.unwrap_or_else(|_| {
            Err(VmError::Unknown { what: self.what("starting"), seconds: FIRST_LINES.as_secs() })
        })
    }

    /// The last line that `tart run` said; empty if it said nothing that can be read.
    pub async fn last_words(&self) -> String {
        let read = async {
            let mut file = fs::File::open(self.0.join("log")).await?;
            let length = file.metadata().await?.len();
            file.seek(io::SeekFrom::Start(length.saturating_sub(LAST_WORDS))).await?;
            let mut bytes = Vec::new();
            file.take(LAST_WORDS).read_to_end(&mut bytes).await?;
            io::Result::Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let text = read.await.unwrap_or_default();
        text.lines().rev().map(str::trim).find(|line| !line.is_empty()).unwrap_or("").to_owned()
    }

    /// Removes all that is written down.
    pub async fn forget(&self) -> Result<(), VmError> {
        match fs::remove_dir_all(&self.0).await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(self.host("removing", error))
            }
            _ => Ok(()),
        }
    }

    async fn text(&self, file: &str) -> Result<Option<String>, VmError> {
        match fs::read_to_string(self.0.join(file)).await {
            Ok(text) => Ok(Some(text)),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
                ) =>
            {
                Ok(None)
            }
            Err(source) => Err(self.host("reading", source)),
        }
    }

    fn unreadable(&self, file: &str) -> VmError {
        VmError::Failed {
            what: self.what("reading"),
            said: format!("its file {file} is not what this agent writes"),
        }
    }

    fn host(&self, doing: &str, source: io::Error) -> VmError {
        VmError::Host { what: self.what(doing), source }
    }

    fn what(&self, doing: &str) -> String {
        format!("{doing} {}", self.0.display())
    }
}
