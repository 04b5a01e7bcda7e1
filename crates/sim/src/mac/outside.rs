//! What a real shell, a real agent and a person ask of the model: the way in for every transport
//! that is not a [`SimSession`].

use std::path::Path;
use std::time::Duration;

use applecart_api::keys::AGENT_JOB;
use applecart_mac::{MacError, Output};

use super::files::Files;
use super::model::LOCKED_AFTER_TRIES;
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
        let mutates = !tools::only_looks(&words(argv));
        let owned = argv.to_vec();
        let act = move |model: &mut super::Model| Ok(tools::run(model, &words(&owned), as_root));
        self.connect().call(argv.join(" "), mutates, TOOL_TIMEOUT, act).await
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
        self.connect().call(format!("sudo {what}"), false, TOOL_TIMEOUT, act).await
    }

    /// The agent's process has ended by itself.
    pub fn agent_ended(&self, pid: u32) {
        self.change(|state| {
            if let Some(job) = state.model.launchd.job(AGENT_JOB)
                && job.pid == Some(pid)
            {
                job.pid = None;
            }
        });
    }

    /// Starts the agent again if its job is there and its process is not.
    pub fn keep_agent_alive(&self) {
        self.change(|state| {
            let job = state.model.launchd.job(AGENT_JOB);
            if !state.off && job.is_some_and(|job| job.pid.is_none()) {
                state.model.start_agent();
            }
        });
    }

    /// Gives the account another password, which nobody is told.
    pub fn set_password(&self, password: &str) {
        password.clone_into(&mut self.lock().model.password);
    }

    /// Makes a file or folder root's.
    pub fn give_away(&self, path: &str) {
        self.lock().model.files.chown(path, "root:wheel", 0o755);
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
