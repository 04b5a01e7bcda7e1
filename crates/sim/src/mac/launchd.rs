//! launchd as far as our jobs see it: a table of jobs with PIDs; leaving takes a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// How long a job that was told to leave is still known.
const LEAVES_AFTER: Duration = Duration::from_secs(1);

/// A job that launchd knows.
#[derive(Clone, Debug)]
pub(super) struct Job {
    /// The definition as it was when it was loaded.
    pub(super) definition: Definition,
    pub(super) pid: Option<u32>,
    leaves: Option<Instant>,
}

/// How the agent behaves once started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AgentHealth {
    /// It runs.
    #[default]
    Runs,
    /// It ends at once and is started again: another PID at every look.
    CrashLoops,
    /// It never gets a PID.
    NeverStarts,
}

/// launchd's table.
#[derive(Clone, Debug)]
pub(super) struct Launchd {
    jobs: BTreeMap<String, Job>,
    next_pid: u32,
}

impl Default for Launchd {
    fn default() -> Self {
        Self { jobs: BTreeMap::new(), next_pid: 400 }
    }
}

impl Launchd {
    /// The job, unless it has left.
    pub(super) fn job(&mut self, label: &str) -> Option<&mut Job> {
        let gone = |job: &Job| job.leaves.is_some_and(|at| Instant::now() >= at);
        if self.jobs.get(label).is_some_and(gone) {
            self.jobs.remove(label);
        }
        self.jobs.get_mut(label)
    }

    pub(super) fn insert(&mut self, definition: Definition) {
        let label = definition.label.clone();
        self.jobs.insert(label, Job { definition, pid: None, leaves: None });
    }

    /// Starts leaving; false if there is no such job.
    pub(super) fn boot_out(&mut self, label: &str) -> bool {
        match self.job(label) {
            Some(job) => {
                job.pid = None;
                job.leaves.get_or_insert(Instant::now() + LEAVES_AFTER);
                true
            }
            None => false,
        }
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
}

/// Reads a job's property list.
pub(super) fn parse_plist(text: &str) -> Option<Definition> {
    let label = strings(text.split_once("<key>Label</key>")?.1).into_iter().next()?;
    let array = text.split_once("<key>ProgramArguments</key>")?.1;
    let (array, _) = array.split_once("</array>")?;
    let whole = text.trim_end().ends_with("</plist>");
    let environment = environment(text);
    whole.then(|| Definition { label, arguments: strings(array), environment })
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
