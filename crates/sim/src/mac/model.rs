//! One Mac's state, and what happens to it by itself: boot, login, sudo, the agent's process.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::keys::AGENT_JOB;
use applecart_mac::{HostKey, MacError, kcpassword, paths, pf as rules, plist};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tokio::time::Instant;

use super::files::Files;
use super::launchd::{AgentHealth, Domain, Launchd, parse_plist};
use super::pf::Pf;
use super::{AgentStart, DaemonChange, DaemonStart};

/// What macOS appends when it signs a binary here.
pub(super) const SIGNATURE: &[u8] = b"\n<signature>";

/// After this many wrong passwords in a row the account is locked until reboot.
pub(super) const LOCKED_AFTER_TRIES: u32 = 3;

/// How long a login takes to become a session.
const LOGIN_TAKES: Duration = Duration::from_secs(2);

/// How long a session that is told to end is still there, and its loginwindow with it.
const SESSION_ENDS: Duration = Duration::from_secs(3);

/// How long that session outlives its loginwindow: the new one is there before it does anything.
const SESSION_LINGERS: Duration = Duration::from_secs(3);

/// What a write says that there is no room for.
pub(super) const NO_ROOM: &str = "No space left on device\n";

/// The user's number.
pub(super) const UID: u32 = 501;

/// Something that others want to know, told once the Mac is unlocked again.
pub(super) enum Notice {
    Started(AgentStart),
    Stopped,
    Daemon(DaemonChange),
}

/// What is free on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// Not for a byte more.
    Nothing,
}

/// What launchd shows of loginwindow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shown {
    /// Which process it is.
    Pid,
    /// That there is such a job.
    Job,
}

/// What GitHub takes from a runner that registers.
#[derive(Clone, Debug, Default)]
pub(super) struct Github {
    /// The only token that it takes; any if `None`.
    pub(super) token: Option<String>,
    /// Releases whose second number is smaller are refused (P35).
    pub(super) least_release: u32,
    /// The runner here works on a job of its.
    pub(super) has_job: bool,
}

/// One Mac.
pub(super) struct Model {
    pub(super) files: Files,
    pub(super) user: String,
    pub(super) password: String,
    pub(super) wrong_in_a_row: u32,
    pub(super) wrong_ever: u32,
    /// `defaults`, `pmset` and `scutil`, by everything before the value.
    pub(super) settings: BTreeMap<String, String>,
    pub(super) pf: Pf,
    pub(super) launchd: Launchd,
    pub(super) loginwindow: Option<u32>,
    /// When the loginwindow that was told to restart does so.
    restarts_at: Option<Instant>,
    /// When the one that did ends the session of before, and tries the password.
    logs_in_at: Option<Instant>,
    session_from: Option<Instant>,
    pub(super) vms: u32,
    /// How many boots there were.
    boots: u64,
    pub(super) host_key: HostKey,
    pub(super) agent_health: AgentHealth,
    /// How the processes of other jobs behave, by label.
    pub(super) job_health: BTreeMap<String, AgentHealth>,
    /// Whether launchd refuses to restart loginwindow, as newer versions may.
    pub(super) kickstart_refused: bool,
    /// Whether a loginwindow that is hung up stays dead until launchd is told to start it.
    pub(super) hang_up_kills: bool,
    pub(super) loginwindow_shown: Shown,
    /// Whether nothing restarts loginwindow.
    pub(super) loginwindow_stuck: bool,
    /// The key that the tailnet takes, and what the host joined it as: name and tags.
    pub(super) tailnet_key: Option<String>,
    pub(super) tailnet: Option<(String, String)>,
    /// What GitHub takes from a runner that registers here.
    pub(super) github: Github,
    /// How a `pgrep` for a pattern ends, and what it complains about, while something is wrong.
    pub(super) pgrep_trouble: BTreeMap<String, (i32, String)>,
    /// A disk of this machine's is filled there, not here.
    pub(super) room: Room,
    /// Which revision of an inode the kernel has verified.
    verified: BTreeMap<u64, u64>,
    pub(super) notices: Vec<Notice>,
    /// Commands whose connection was lost, and when each would come to its end.
    pub(super) leftovers: Vec<(Instant, Leftover)>,
}

/// What a command does that nobody waits for.
pub(super) type Leftover = Box<dyn FnOnce(&mut Model) + Send>;

impl Model {
    /// A Mac as it leaves the factory, or a wipe.
    pub(super) fn factory(mut files: Files, user: &str, password: &str, seed: &str) -> Self {
        files.replace(
            paths::PF_CONF,
            Bytes::from_static(rules::STOCK.as_bytes()),
            "root:wheel",
            0o644,
        );
        let apple = Bytes::from_static(b"anchor \"200.AirDrop/*\"\n");
        files.replace("/etc/pf.anchors/com.apple", apple, "root:wheel", 0o644);
        let settings = [
            ("pmset sleep", "1"),
            ("pmset displaysleep", "10"),
            ("pmset disksleep", "10"),
            ("pmset powernap", "1"),
            ("pmset autorestart", "0"),
            ("scutil ComputerName", "Mac mini"),
            ("scutil LocalHostName", "Mac-mini"),
        ];
        let digest = Sha256::digest(seed.as_bytes());
        let mut model = Self {
            files,
            user: user.to_owned(),
            password: password.to_owned(),
            wrong_in_a_row: 0,
            wrong_ever: 0,
            settings: settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            pf: Pf::default(),
            launchd: Launchd::default(),
            loginwindow: None,
            restarts_at: None,
            logs_in_at: None,
            session_from: None,
            vms: 0,
            boots: 0,
            host_key: HostKey(format!("SHA256:{}", STANDARD_NO_PAD.encode(digest))),
            agent_health: AgentHealth::default(),
            job_health: BTreeMap::new(),
            kickstart_refused: false,
            hang_up_kills: false,
            loginwindow_shown: Shown::Pid,
            loginwindow_stuck: false,
            tailnet_key: None,
            tailnet: None,
            github: Github::default(),
            pgrep_trouble: BTreeMap::new(),
            room: Room::Enough,
            verified: BTreeMap::new(),
            notices: Vec::new(),
            leftovers: Vec::new(),
        };
        model.boot();
        model
    }

    /// Ends everything that runs.
    pub(super) fn shut_down(&mut self) {
        self.leftovers.clear();
        self.stop_agent();
        self.stop_daemons(Domain::System);
        self.launchd.reboot();
        self.vms = 0;
        self.pf = Pf::default();
        self.verified.clear();
        self.session_from = None;
        (self.restarts_at, self.logs_in_at) = (None, None);
        self.wrong_in_a_row = 0;
        self.empty_temporary();
    }

    /// Empties the folder that macOS empties at boot, and of old files in between.
    pub(super) fn empty_temporary(&mut self) {
        self.files.remove("/private/tmp");
        self.files.folder("/private/tmp", "root:wheel", 0o1777);
    }

    /// Refuses a write that there is no room for.
    pub(super) fn needs_room(&self, doing: &str) -> Result<(), MacError> {
        if self.room == Room::Enough {
            return Ok(());
        }
        let (doing, stderr) = (doing.to_owned(), NO_ROOM.to_owned());
        Err(MacError::Refused { doing, status: 1, stderr })
    }

    /// What this boot is called.
    pub(super) fn boot_session(&self) -> String {
        let HostKey(key) = &self.host_key;
        let digest = Sha256::digest(format!("{key} {}", self.boots));
        let hex = digest.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"));
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..32]].join("-")
    }

    /// Starts what starts by itself.
    pub(super) fn boot(&mut self) {
        self.boots += 1;
        // macOS loads the main ruleset but leaves the filter off; a broken file loads nothing.
        let _ = self.pf.load(&self.files, None, paths::PF_CONF, false);
        for path in self.files.in_folder("/Library/LaunchDaemons") {
            self.load_job(Domain::System, &path);
        }
        self.start_loginwindow();
    }

    /// Whether a command that nobody waits for goes on.
    pub(super) fn has_leftovers(&self) -> bool {
        let now = Instant::now();
        self.leftovers.iter().any(|(at, _)| *at > now)
    }

    /// Lets commands that nobody waits for come to their end, if it is time.
    pub(super) fn pass_time(&mut self) {
        let now = Instant::now();
        let all = std::mem::take(&mut self.leftovers);
        let (due, left): (Vec<_>, Vec<_>) = all.into_iter().partition(|(at, _)| *at <= now);
        self.leftovers = left;
        for (_, act) in due {
            act(self);
        }
        if self.restarts_at.is_some_and(|at| at <= now) {
            self.start_loginwindow();
        }
        if let Some(at) = self.logs_in_at.filter(|at| *at <= now) {
            self.end_session();
            self.log_in(at);
        }
        for (domain, label) in self.launchd.due() {
            self.start_job(domain, &label);
        }
    }

    /// Takes a job in and starts it. False: not a job that launchd accepts.
    pub(super) fn load_job(&mut self, domain: Domain, path: &str) -> bool {
        let Some(stat) = self.files.stat(path) else { return false };
        let owner = match domain {
            Domain::Gui => format!("{}:staff", self.user),
            Domain::System => "root:wheel".to_owned(),
        };
        if stat.owner != owner || stat.mode & 0o022 != 0 {
            return false;
        }
        let Some(definition) = self.files.text(path).and_then(|text| parse_plist(&text)) else {
            return false;
        };
        let label = definition.label.clone();
        if self.launchd.job(domain, &label).is_some() || self.launchd.is_disabled(domain, &label) {
            return false;
        }
        if label == AGENT_JOB && self.agent_health == AgentHealth::LostOnReload {
            return true;
        }
        self.launchd.insert(domain, definition);
        if label == plist::FIREWALL_JOB
            && self.pf.load(&self.files, None, paths::PF_CONF, false).is_ok()
        {
            self.pf.take_reference();
        }
        if label != plist::FIREWALL_JOB {
            self.start_job(domain, &label);
        }
        true
    }

    /// Starts a job's process.
    pub(super) fn start_job(&mut self, domain: Domain, label: &str) {
        if (domain, label) == (Domain::System, AGENT_JOB) {
            self.start_agent();
        } else {
            self.start_daemon(domain, label);
        }
    }

    /// Ends a job's process, if there is one, and starts another; soon, if the last one is young.
    pub(super) fn restart_job(&mut self, domain: Domain, label: &str) {
        if (domain, label) == (Domain::System, AGENT_JOB) {
            if self.agent_health == AgentHealth::KickIgnored {
                return;
            }
            self.stop_agent();
        } else {
            self.stop_daemon(domain, label);
        }
        if self.launchd.job(domain, label).is_some_and(|job| !job.is_throttled()) {
            self.start_job(domain, label);
        }
    }

    /// Starts a job that is no more to us than a process.
    fn start_daemon(&mut self, domain: Domain, label: &str) {
        let pid = self.launchd.new_pid();
        let Some(job) = self.launchd.job(domain, label) else { return };
        let definition = job.definition.clone();
        let program = definition.arguments.first();
        if program.is_none_or(|path| self.files.stat(path).is_none())
            || self.health_of(label) == AgentHealth::NeverStarts
        {
            return;
        }
        if let Some(job) = self.launchd.job(domain, label) {
            job.starts(pid);
        }
        if domain == Domain::System {
            let (words, log) = (definition.arguments, definition.log);
            let start = DaemonStart { label: label.to_owned(), pid, words, log };
            self.notices.push(Notice::Daemon(DaemonChange::Started(start)));
        }
    }

    /// Ends the process of a job that is no more to us than that.
    pub(super) fn stop_daemon(&mut self, domain: Domain, label: &str) {
        let stopped = self.launchd.job(domain, label).and_then(|job| job.pid.take());
        if stopped.is_some() && domain == Domain::System {
            self.notices.push(Notice::Daemon(DaemonChange::Stopped(label.to_owned())));
        }
    }

    fn stop_daemons(&mut self, domain: Domain) {
        for (of, label) in self.launchd.labels() {
            if of == domain && label != AGENT_JOB {
                self.stop_daemon(domain, &label);
            }
        }
    }

    /// How the process of a job behaves.
    pub(super) fn health_of(&self, label: &str) -> AgentHealth {
        let other = self.job_health.get(label).copied().unwrap_or_default();
        if label == AGENT_JOB { self.agent_health } else { other }
    }

    /// The node exporter's process, once its wrapper found an address.
    pub(super) fn exporter(&mut self) -> Option<u32> {
        self.tailnet_address()?;
        self.launchd.job(Domain::System, plist::NODE_EXPORTER_JOB)?.pid
    }

    /// The host's address in the tailnet, while its daemon runs.
    pub(super) fn tailnet_address(&mut self) -> Option<&'static str> {
        let runs = self.launchd.job(Domain::System, plist::TAILSCALE_JOB)?.pid.is_some();
        (runs && self.tailnet.is_some()).then_some("100.100.1.2")
    }

    /// Starts the agent's process, if its job is loaded and the kernel lets the binary run.
    pub(super) fn start_agent(&mut self) {
        if !self.may_execute(paths::AGENT) || self.agent_health == AgentHealth::NeverStarts {
            return;
        }
        let kubeconfig = self.files.read(paths::KUBECONFIG);
        let pid = self.launchd.new_pid();
        let Some(job) = self.launchd.job(Domain::System, AGENT_JOB) else { return };
        job.starts(pid);
        let args = job.definition.arguments.iter().skip(1).cloned().collect();
        let environment = job.definition.environment.clone();
        self.notices.push(Notice::Started(AgentStart { pid, args, environment, kubeconfig }));
    }

    /// Ends the agent's process, if there is one. Its job stays.
    pub(super) fn stop_agent(&mut self) {
        if let Some(job) = self.launchd.job(Domain::System, AGENT_JOB)
            && job.pid.take().is_some()
        {
            self.notices.push(Notice::Stopped);
        }
    }

    /// The kernel remembers the signature of a file that ran: other bytes in the same file are
    /// killed, however well they are signed.
    fn may_execute(&mut self, path: &str) -> bool {
        let Some(stat) = self.files.stat(path) else { return false };
        let tail = self.files.tail(path, SIGNATURE.len());
        let signed = tail.is_some_and(|tail| tail == SIGNATURE) && stat.mode & 0o111 != 0;
        let verified = *self.verified.entry(stat.inode).or_insert(stat.revision);
        signed && verified == stat.revision
    }

    /// loginwindow is told to restart: it does once the session that it has is gone.
    pub(super) fn restart_loginwindow(&mut self) {
        if self.has_session() {
            self.restarts_at.get_or_insert(Instant::now() + SESSION_ENDS);
        } else {
            self.start_loginwindow();
        }
    }

    /// loginwindow dies, and its session and the VMs in it with it.
    pub(super) fn end_loginwindow(&mut self) {
        self.loginwindow = None;
        self.restarts_at = None;
        self.end_session();
    }

    fn end_session(&mut self) {
        self.logs_in_at = None;
        self.launchd.end_session();
        self.vms = if self.session_from.take().is_some() { 0 } else { self.vms };
    }

    /// loginwindow starts; the session of before, if there is one, is in its way for a moment.
    fn start_loginwindow(&mut self) {
        let at = self.restarts_at.take().unwrap_or_else(Instant::now);
        self.loginwindow = Some(self.launchd.new_pid());
        if self.has_session() {
            self.logs_in_at = Some(at + SESSION_LINGERS);
        } else {
            self.end_session();
            self.log_in(at);
        }
    }

    /// loginwindow logs the automatic user in if its password is right.
    fn log_in(&mut self, at: Instant) {
        let key = "defaults /Library/Preferences/com.apple.loginwindow autoLoginUser";
        let Some(file) = self.files.read(paths::KCPASSWORD) else { return };
        let given = kcpassword::decode(&file).unwrap_or_default();
        if self.settings.get(key) != Some(&self.user) || given == kcpassword::SEALED {
            return;
        }
        // A login is a try like any other: it counts, and a locked account refuses it.
        if self.try_password(&given) {
            self.session_from = Some(at + LOGIN_TAKES);
            let agents = format!("/Users/{}/Library/LaunchAgents", self.user);
            for path in self.files.in_folder(&agents) {
                self.load_job(Domain::Gui, &path);
            }
        } else {
            let sealed = kcpassword::encode(kcpassword::SEALED);
            self.files.overwrite(paths::KCPASSWORD, sealed.into());
        }
    }

    pub(super) fn has_session(&self) -> bool {
        self.session_from.is_some_and(|from| Instant::now() >= from)
    }

    /// Whether a sudo rule lets the user in without a password.
    pub(super) fn sudo_is_free(&self) -> bool {
        let rule = format!("{} ALL=(ALL) NOPASSWD: ALL", self.user);
        self.sudoers_lines().any(|line| line == rule)
    }

    /// What sudo complains about, quoting lines that it does not understand.
    pub(super) fn sudo_complaint(&self) -> String {
        let bad = self.sudoers_lines().filter(|line| !line.contains("ALL=") && !line.is_empty());
        bad.map(|line| format!("sudoers: syntax error\n{line}\n")).collect::<Vec<_>>().concat()
    }

    fn sudoers_lines(&self) -> impl Iterator<Item = String> {
        let ignored = |path: &String| {
            let name = path.rsplit('/').next().unwrap_or_default();
            name.contains('.') || name.ends_with('~')
        };
        let in_folder = self.files.in_folder("/etc/sudoers.d").into_iter();
        in_folder.filter(move |path| !ignored(path)).flat_map(|path| {
            let text = self.files.text(&path).unwrap_or_default();
            text.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        })
    }

    /// One login attempt. Locked accounts refuse the right password too.
    pub(super) fn try_password(&mut self, given: &str) -> bool {
        if given == self.password && self.wrong_in_a_row < LOCKED_AFTER_TRIES {
            self.wrong_in_a_row = 0;
            return true;
        }
        self.wrong_in_a_row += 1;
        self.wrong_ever += 1;
        false
    }
}
