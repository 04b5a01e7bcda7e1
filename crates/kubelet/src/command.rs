//! One command with a deadline on everything: it ends in time even if what it started does not.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use futures::FutureExt;
use futures::future::FusedFuture;
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::{Child, Command};

use crate::vm::VmError;

/// Output beyond this is cut: a list of a thousand VMs is a tenth of it.
const LONGEST_OUTPUT: u64 = 4 << 20;
/// How long a child of the command's may hold its output open after the command ended.
const PIPES: Duration = Duration::from_secs(1);

/// A command that ended.
#[derive(Debug)]
pub(crate) struct Finished {
    /// Its exit code; `None` if a signal ended it.
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Finished {
    /// The first thing that it said, on stderr if it said anything there.
    pub fn said(&self) -> String {
        let lines = self.stderr.lines().chain(self.stdout.lines());
        match (lines.map(str::trim).find(|line| !line.is_empty()), self.code) {
            (Some(line), _) => line.to_owned(),
            (None, Some(code)) => format!("exit code {code}"),
            (None, None) => "ended by a signal".to_owned(),
        }
    }
}

/// A process group that ends with its owner: a command that is not waited for any more, because its
/// time is up or nobody wants it, takes all that it started with it.
struct Group(Option<Pid>);

impl Group {
    fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?)))
    }
}

impl Group {
    /// Lets go of a group that has ended: its number may be somebody else's by now.
    fn ended(mut self) {
        self.0 = None;
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Some(pid) = self.0 {
            // Nobody left is what we want, so an error is no news.
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

/// Runs a command to its end, or to its deadline.
pub(crate) async fn run(
    program: &Path,
    args: &[&str],
    deadline: Duration,
) -> Result<Finished, VmError> {
    let what = || {
        let name = program.file_name().unwrap_or(program.as_os_str()).to_string_lossy();
        format!("{name} {}", args.join(" "))
    };
    let mut child = Command::new(program)
        .args(args)
        .env("LC_ALL", "C")
        .env("TZ", "UTC")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|source| VmError::Host { what: what(), source })?;
    let group = Group::of(&child);
    match tokio::time::timeout(deadline, finish(&mut child, group)).await {
        Ok(Ok(finished)) => Ok(finished),
        Ok(Err(source)) => Err(VmError::Host { what: what(), source }),
        Err(_) => Err(VmError::Unknown { what: what(), seconds: deadline.as_secs() }),
    }
}

async fn finish(child: &mut Child, group: Group) -> io::Result<Finished> {
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let status = {
        let reading = async { tokio::join!(read(stdout, &mut out), read(stderr, &mut err)) };
        let mut reading = Box::pin(reading.fuse());
        let status = loop {
            tokio::select! {
                biased;
                status = child.wait() => break status?,
                _ = &mut reading => {}
            }
        };
        let closed =
            reading.is_terminated() || tokio::time::timeout(PIPES, &mut reading).await.is_ok();
        if closed {
            group.ended();
        }
        status
    };
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Ok(Finished { code: status.code(), stdout: text(out), stderr: text(err) })
}

async fn read(pipe: Option<impl AsyncRead + Unpin>, into: &mut Vec<u8>) {
    if let Some(pipe) = pipe {
        // What was read before an error still counts; the exit code says whether it matters.
        let _ = pipe.take(LONGEST_OUTPUT).read_to_end(into).await;
    }
}
