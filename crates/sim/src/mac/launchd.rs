//! launchd as far as our jobs see it: jobs by domain with PIDs; leaving takes a moment, and a
//! process that ended is not started again at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::model::UID;

/// How long a job that was told to leave is still known.
const LEAVES_AFTER: Duration = Duration::from_secs(1);

/// The least time between two starts of a job.
const THROTTLE: Duration = Duration::from_secs(10);

/// Whose a job is. The same label in another domain is another job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Domain {
    /// The computer's, from boot on.
    System,
    /// The graphical session's: its jobs end with it.
    Gui,
}

impl Domain {
    /// The domain called so, if there is one.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name {
            "system" => Some(Self::System),
            name if name == format!("gui/{UID}") => Some(Self::Gui),
            _ => None,
        }
    }

    /// The domain and the label in a target such as `system/label`.
    pub(super) fn of_target(target: &str) -> Option<(Self, &str)> {
        let (domain, label) = target.rsplit_once('/')?;
        Some((Self::named(domain)?, label))
    }
}

/// A job that launchd knows.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The definition as it was when it was loaded.
    pub(super) definition: Definition,
    pub(super) pid: Option<u32>,
    /// When its process was last started.
    started: Option<Instant>,
    /// When it is to be started, if that has to wait.
    again_at: Option<Instant>,
    leaves: Option<Instant>,
}

impl Job {
    /// Its process starts.
    pub(super) fn starts(&mut self, pid: u32) {
        self.pid = Some(pid);
        self.started = Some(Instant::now());
        self.again_at = None;
    }

    /// Whether its last start is so recent that the next one has to wait; then it will.
    pub(super) fn is_throttled(&mut self) -> bool {
        let due = self.started.map(|started| started + THROTTLE);
        self.again_at = due.filter(|due| Instant::now() < *due);
        self.again_at.is_some()
    }
}

/// How the agent behaves once started, and what launchd makes of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentHealth {
    /// It runs.
    #[default]
    Runs,
    /// It ends at once and is started again: another PID at every look.
    CrashLoops,
    /// It never gets a PID.
    NeverStarts,
    /// A kick is answered as done, and the old process runs on.
    KickIgnored,
    /// A job that is put in is taken, and then is not there.
    LostOnReload,
}

/// launchd's table.
#[derive(Clone, Debug)]
pub(super) struct Launchd {
    jobs: BTreeMap<(Domain, String), Job>,
    /// Those that may not be put in; on disk, so they outlive a boot.
    disabled: BTreeSet<(Domain, String)>,
    next_pid: u32,
}

impl Default for Launchd {
    fn default() -> Self {
        Self { jobs: BTreeMap::new(), disabled: BTreeSet::new(), next_pid: 400 }
    }
}

impl Launchd {
    /// The job, unless it has left.
    pub(super) fn job(&mut self, domain: Domain, label: &str) -> Option<&mut Job> {
        let key = (domain, label.to_owned());
        let gone = |job: &Job| job.leaves.is_some_and(|at| Instant::now() >= at);
        if self.jobs.get(&key).is_some_and(gone) {
            self.jobs.remove(&key);
        }
        self.jobs.get_mut(&key)
    }

    /// The domain and label of every job.
    pub(super) fn labels(&self) -> Vec<(Domain, String)> {
        self.jobs.keys().cloned().collect()
    }

    pub(super) fn insert(&mut self, domain: Domain, definition: Definition) {
        let label = definition.label.clone();
        let job = Job { definition, pid: None, started: None, again_at: None, leaves: None };
        self.jobs.insert((domain, label), job);
    }

    /// Starts leaving; false if there is no such job.
    pub(super) fn boot_out(&mut self, domain: Domain, label: &str) -> bool {
        match self.job(domain, label) {
            Some(job) => {
                (job.pid, job.again_at) = (None, None);
                job.leaves.get_or_insert(Instant::now() + LEAVES_AFTER);
                true
            }
            None => false,
        }
    }

    /// Lets a job be put in, or not any more. One that is there stays.
    pub(super) fn set_disabled(&mut self, domain: Domain, label: &str, disabled: bool) {
        let key = (domain, label.to_owned());
        if disabled {
            self.disabled.insert(key);
        } else {
            self.disabled.remove(&key);
        }
    }

    pub(super) fn is_disabled(&self, domain: Domain, label: &str) -> bool {
        self.disabled.contains(&(domain, label.to_owned()))
    }

    /// The job whose process has this number has none any more.
    pub(super) fn ended(&mut self, pid: u32) {
        if let Some(job) = self.jobs.values_mut().find(|job| job.pid == Some(pid)) {
            job.pid = None;
        }
    }

    /// Those that waited long enough to be started again.
    pub(super) fn due(&self) -> Vec<(Domain, String)> {
        let now = Instant::now();
        let is_due = |job: &Job| job.leaves.is_none() && job.again_at.is_some_and(|at| at <= now);
        let due = self.jobs.iter().filter(|(_, job)| is_due(job));
        due.map(|(key, _)| key.clone()).collect()
    }

    /// The graphical session ends, and its jobs with it.
    pub(super) fn end_session(&mut self) {
        self.jobs.retain(|(domain, _), _| *domain != Domain::Gui);
    }

    pub(super) fn new_pid(&mut self) -> u32 {
        self.next_pid += 1;
        self.next_pid
    }

    /// All processes end; what is loaded at boot is loaded by the caller. PIDs start elsewhere.
    pub(super) fn reboot(&mut self) {
        self.jobs.clear();
        self.next_pid += 100;
    }
}

/// What a job's property list says, as far as it matters here.
#[derive(Clone, Debug)]
pub(super) struct Definition {
    pub(super) label: String,
    pub(super) arguments: Vec<String>,
    pub(super) environment: Vec<(String, String)>,
    /// Where its output goes.
    pub(super) log: Option<String>,
}

/// Reads a job's property list.
pub(super) fn parse_plist(text: &str) -> Option<Definition> {
    let label = strings(text.split_once("<key>Label</key>")?.1).into_iter().next()?;
    let array = text.split_once("<key>ProgramArguments</key>")?.1;
    let (array, _) = array.split_once("</array>")?;
    let whole = text.trim_end().ends_with("</plist>");
    let (environment, arguments) = (environment(text), strings(array));
    let log = text.split_once("<key>StandardErrorPath</key>").map(|(_, after)| strings(after));
    let log = log.and_then(|strings| strings.into_iter().next());
    whole.then_some(Definition { label, arguments, environment, log })
}

fn environment(text: &str) -> Vec<(String, String)> {
    let after = text.split_once("<key>EnvironmentVariables</key>").map(|(_, after)| after);
    let inside = after.and_then(|after| after.split_once("</dict>")).map(|(inside, _)| inside);
    let keys = inside.unwrap_or_default().split("<key>").skip(1);
    let pair = |part: &str| {
        let (key, rest) = part.split_once("</key>")?;
        Some((key.to_owned(), strings(rest).into_iter().next()?))
    };
    keys.filter_map(pair).collect()
}

fn strings(text: &str) -> Vec<String> {
    let parts = text.split("<string>").skip(1).filter_map(|part| part.split("</string>").next());
    parts.map(|part| part.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")).collect()
}
