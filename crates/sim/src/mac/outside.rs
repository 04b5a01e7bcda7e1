//! What a real shell, a real agent and a person ask of the model: the way in for every transport
//! that is not a [`SimSession`].

use std::net::IpAddr;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use applecart_mac::{MacError, Output};

use super::files::Files;
use super::gate::{NEVER, failed, refused};
use super::launchd::{AgentHealth, Domain};
use super::model::{LOCKED_AFTER_TRIES, Room, Shown};
use super::{SimMac, tools};

/// How long a tool may take, as long as the longest that any step waits for one.
const TOOL_TIMEOUT: Duration = Duration::from_mins(10);

/// What sudo says to somebody who asks to be root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sudo {
    /// Come in.
    Allowed,
    /// Not without a password; with what sudo complains about before it says so.
    NeedsPassword(String),
    /// Not with this password; with what sudo says.
    Refused(String),
}

/// What launchd started a job of root's with that is not the agent's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonStart {
    /// Its label.
    pub label: String,
    /// Its process's number, as launchd tells it.
    pub pid: u32,
    /// Its program and arguments.
    pub words: Vec<String>,
    /// Where its output goes.
    pub log: Option<String>,
}

/// What became of such a job's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DaemonChange {
    /// It starts.
    Started(DaemonStart),
    /// The process of the job of this label ends.
    Stopped(String),
}

/// Told of every such change.
pub type OnDaemon = Arc<dyn Fn(DaemonChange) + Send + Sync>;

fn words(argv: &[String]) -> Vec<&str> {
    argv.iter().map(String::as_str).collect()
}

impl SimMac {
    /// A Mac whose files are in a folder of this machine, whose paths begin there.
    #[must_use]
    pub fn on_disk(name: &str, password: &str, root: &Path) -> Self {
        Self::with(Files::on_disk(root), name, password)
    }

    /// Runs one of macOS's tools as a process of this Mac would.
    pub async fn tool(&self, argv: &[String], as_root: bool) -> Result<Output, MacError> {
        let mutates = tools::mutates(&words(argv));
        let owned = argv.to_vec();
        let act = move |model: &mut super::Model| Ok(tools::run(model, &words(&owned), as_root));
        self.connect().call(argv.join(" "), mutates, TOOL_TIMEOUT, failed, act).await
    }

    /// Asks sudo to let the user be root, with a password or without; `what` is for.
    pub async fn sudo(&self, password: Option<String>, what: &str) -> Result<Sudo, MacError> {
        let act = move |model: &mut super::Model| {
            if model.sudo_is_free() {
                return Ok(Sudo::Allowed);
            }
            let complaint = model.sudo_complaint();
            Ok(match password {
                None => Sudo::NeedsPassword(complaint),
                Some(password) if model.try_password(&password) => Sudo::Allowed,
                Some(_) => Sudo::Refused(format!(
                    "{complaint}Sorry, try again.\nsudo: 1 incorrect password attempt\n"
                )),
            })
        };
        self.connect().call(format!("sudo {what}"), NEVER, TOOL_TIMEOUT, refused, act).await
    }

    /// Calls this when the process of a job of root's starts and ends.
    pub fn on_daemon(&self, tell: OnDaemon) {
        self.lock().on_daemon = Some(tell);
    }

    /// The process of a job has ended by itself.
    pub fn process_ended(&self, pid: u32) {
        self.change(|state| state.model.launchd.ended(pid));
    }

    /// Starts a job of root's or the agent again if it is there and its process is not.
    pub fn keep_alive(&self, label: &str) {
        self.change(|state| {
            let job = state.model.launchd.job(Domain::System, label);
            if !state.off && job.is_some_and(|job| job.pid.is_none()) {
                state.model.start_job(Domain::System, label);
            }
        });
    }

    /// Makes the tailnet take this key alone.
    pub fn set_tailnet_key(&self, key: &str) {
        self.lock().model.tailnet_key = Some(key.to_owned());
    }

    /// Makes GitHub take this registration token alone, and refuse releases below 2.`least`.
    pub fn set_github(&self, token: &str, least: u32) {
        let mut inner = self.lock();
        inner.model.github.token = Some(token.to_owned());
        inner.model.github.least_release = least;
    }

    /// Gives the Mac's own runner a job, or ends it.
    pub fn set_runner_job(&self, has: bool) {
        self.lock().model.github.has_job = has;
    }

    /// What the Mac joined its tailnet as, if it did: name and tags.
    #[must_use]
    pub fn tailnet(&self) -> Option<(String, String)> {
        self.lock().model.tailnet.clone()
    }

    /// Its address in its tailnet, while the daemon there runs.
    #[must_use]
    pub fn tailnet_address(&self) -> Option<IpAddr> {
        self.lock().model.tailnet_address().and_then(|address| address.parse().ok())
    }

    /// Whether a launchd job has a process.
    #[must_use]
    pub fn job_runs(&self, label: &str) -> bool {
        self.change(|state| {
            state.model.pass_time();
            let launchd = &mut state.model.launchd;
            [Domain::System, Domain::Gui]
                .into_iter()
                .any(|domain| launchd.job(domain, label).is_some_and(|job| job.pid.is_some()))
        })
    }

    /// Empties the folder for temporary files, as macOS does now and then without a boot.
    pub fn empty_temporary(&self) {
        self.lock().model.empty_temporary();
    }

    /// Makes every `pgrep` for a pattern end like this, or do its work again.
    pub fn set_pgrep_trouble(&self, pattern: &str, trouble: Option<(i32, &str)>) {
        let all = &mut self.lock().model.pgrep_trouble;
        match trouble {
            Some((status, said)) => all.insert(pattern.to_owned(), (status, said.to_owned())),
            None => all.remove(pattern),
        };
    }

    /// Makes the process of a job that is not the agent's behave like this.
    pub fn set_job_health(&self, label: &str, health: AgentHealth) {
        self.lock().model.job_health.insert(label.to_owned(), health);
    }

    /// Makes launchd keep to itself which process loginwindow is.
    pub fn set_login_window_untold(&self, untold: bool) {
        self.lock().model.loginwindow_shown = if untold { Shown::Job } else { Shown::Pid };
    }

    /// Makes loads of rules meet another pfctl at work, after so many that did not.
    pub fn set_firewall_busy_after(&self, well: u32, busy: u32) {
        self.set_firewall_busy_around(0, well, busy);
    }

    /// Makes so many loads of rules meet another pfctl at work, then so many not, then others.
    pub fn set_firewall_busy_around(&self, first: u32, well: u32, then: u32) {
        let pf = &mut self.lock().model.pf;
        (pf.busy_first, pf.busy_after, pf.busy) = (first, well, then);
    }

    /// Leaves no room on the disk, or as much as before. For a Mac whose files are in memory.
    pub fn set_disk_full(&self, full: bool) {
        self.lock().model.room = if full { Room::Nothing } else { Room::Enough };
    }

    /// Gives the account another password, which nobody is told.
    pub fn set_password(&self, password: &str) {
        password.clone_into(&mut self.lock().model.password);
    }

    /// Makes a file or folder root's.
    pub fn give_away(&self, path: &str) {
        self.give(path, "root:wheel", 0o755);
    }

    /// Gives a file or folder another owner and mode.
    pub fn give(&self, path: &str, owner: &str, mode: u32) {
        self.lock().model.files.chown(path, owner, mode);
    }

    /// Locks the account, as too many wrong passwords do, or unlocks it.
    pub fn set_locked(&self, locked: bool) {
        self.lock().model.wrong_in_a_row = if locked { LOCKED_AFTER_TRIES } else { 0 };
    }

    /// Makes loginwindow one that nothing restarts, or not any more.
    pub fn set_login_window_stuck(&self, stuck: bool) {
        self.lock().model.loginwindow_stuck = stuck;
    }

    /// Makes a loginwindow that is hung up die for good, until launchd is told to start it.
    pub fn set_hang_up_kills(&self, kills: bool) {
        self.lock().model.hang_up_kills = kills;
    }

    /// Whether it is on.
    #[must_use]
    pub fn is_on(&self) -> bool {
        !self.lock().off
    }
}
