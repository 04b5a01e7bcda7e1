//! A Mac that is switched on: an SSH server in namespaces of its own. Killing its first process
//! ends all of it.

use std::io;
use std::path::Path;
use std::process::Stdio;

use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, Command};

use super::{MacsError, find};

/// What root may do in a Mac: run its own disk, its own processes and its own SSH server.
const RIGHTS: &str = "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+sys_chroot,\
                      +net_bind_service";

/// Makes the disk `$1` the root of everything, with this machine's programs in it, the folder `$2`
/// for its socket and the folder `$3` for its tools; then runs the SSH server `$4` with rights
/// `$5`.
/// Goes on only if its parent still lives to say so.
const SETUP: &str = r#"set -eu
read -r go
cd "$1"
mount --bind "$2" .applecart/run
mount --rbind "$3" .applecart/tools
mount --bind usr/local .applecart/local
for folder in bin sbin lib lib32 lib64; do
  if [ -L "/$folder" ]; then
    ln -sfn "$(readlink "/$folder")" "$folder"
  elif [ -d "/$folder" ]; then
    mkdir -p "$folder"
    mount --bind "/$folder" "$folder"
    mount -o remount,bind,ro "$folder"
  fi
done
mount --bind /usr usr
mount -o remount,bind,ro usr
mount --bind .applecart/local usr/local
mkdir -p proc dev old
mount -t tmpfs -o mode=0755,nosuid applecart-dev dev
for device in null zero full random urandom tty; do
  : >"dev/$device"
  mount --bind "/dev/$device" "dev/$device"
  # A device takes what is written to it all the same; its mode and owner are the machine's.
  mount -o remount,bind,ro "dev/$device"
done
mkdir dev/pts
mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t proc -o ro,nosuid,nodev,noexec proc proc
pivot_root . old
cd /
umount -l /old
rmdir /old
echo ready
exec </dev/null >>/var/log/sshd.log 2>&1
exec setpriv --inh-caps=-all --bounding-set="$5" -- "$4" -D -e -f /etc/ssh/sshd_config
"#;

/// Runs what follows with its output in the log `$1`.
const LOGGED: &str = r#"log=$1; shift; exec "$@" >>"$log" 2>&1"#;

/// Who a program of a Mac's launchd is run as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum As {
    User,
    Root,
}

/// A Mac that is switched on.
#[derive(Debug)]
pub(super) struct Sandbox {
    outer: Child,
    first: Pid,
}

impl Sandbox {
    /// Switches it on.
    pub(super) async fn start(disk: &Path, run: &Path, tools: &Path) -> Result<Self, MacsError> {
        let failed = || MacsError::machine("switching a simulated Mac on");
        let sshd = find("sshd").unwrap_or_else(|| "/usr/sbin/sshd".into());
        let mut outer = Command::new("setpriv")
            .args(["--pdeathsig=KILL", "--", "unshare", "--mount", "--propagation", "private"])
            .args(["--pid", "--fork", "--kill-child=KILL", "--", "/bin/sh", "-c", SETUP, "sh"])
            .args([disk, run, tools, &sshd])
            .arg(RIGHTS)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed())?;
        if let Some(mut stdin) = outer.stdin.take() {
            stdin.write_all(b"go\n").await.map_err(failed())?;
        }
        let mut line = String::new();
        if let Some(stdout) = outer.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).await.map_err(failed())?;
        }
        if line != "ready\n" {
            let mut said = String::new();
            if let Some(mut stderr) = outer.stderr.take() {
                stderr.read_to_string(&mut said).await.map_err(failed())?;
            }
            let doing = "switching a simulated Mac on".to_owned();
            return Err(MacsError::Failed { doing, said: said.trim().to_owned() });
        }
        let first = first_process(&outer).await.map_err(failed())?;
        Ok(Self { outer, first })
    }

    /// Waits until it is off by itself.
    pub(super) async fn ended(&mut self) {
        let _ = self.outer.wait().await;
    }

    /// Cuts its power, and waits until nothing of it runs.
    pub(super) async fn cut(mut self) {
        // It may have ended by itself.
        let _ = kill_process(self.first, Signal::KILL);
        let _ = self.outer.wait().await;
    }

    /// Makes its server take connections and say nothing, or go on.
    pub(super) fn hang(&self, hangs: bool) {
        let signal = if hangs { Signal::STOP } else { Signal::CONT };
        let _ = kill_process(self.first, signal);
    }

    /// A program of its launchd's, in it; killed, it ends what it started.
    pub(super) fn program(
        &self,
        who: As,
        words: &[String],
        environment: &[(String, String)],
        log: &str,
    ) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.first.as_raw_nonzero())).args([
            "--mount",
            "--pid",
            "--root",
            "--wd",
            "--",
            "setpriv",
            "--pdeathsig=TERM",
        ]);
        if who == As::User {
            command.args(["--reuid=501", "--regid=20", "--clear-groups"]);
        }
        command
            .arg("--inh-caps=-all")
            .arg(format!("--bounding-set={RIGHTS}"))
            .args(["--", "/bin/sh", "-c", LOGGED, "sh", log])
            .args(words)
            .env_clear()
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

/// The one child of `unshare`: the first process of the namespace, by its number outside.
async fn first_process(outer: &Child) -> io::Result<Pid> {
    let number = outer.id().ok_or_else(|| io::Error::other("it ended at once"))?;
    let children = format!("/proc/{number}/task/{number}/children");
    let children = tokio::fs::read_to_string(children).await?;
    let first = children.split_whitespace().next().and_then(|number| number.parse().ok());
    first.and_then(Pid::from_raw).ok_or_else(|| io::Error::other("it has no first process"))
}
