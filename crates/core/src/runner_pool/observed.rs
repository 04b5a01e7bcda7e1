//! What was read this turn, parsed once. The shell fills it in; nothing here reads.

use std::time::Duration;

use applecart_api::runner_pool::{RunnerPoolSpec, RunnerPoolStatus};
use jiff::Timestamp;

use crate::Trouble;

/// Everything that one decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The pool itself, read this turn.
    pub pool: Pool,
    /// Its runners, listed this turn from the API server, not from a cache (R12), by name.
    pub runners: Vec<Runner>,
    /// Its `ServiceAccounts`, by name.
    pub accounts: Vec<Account>,
    /// A name that no runner had before; the same for all who see the same.
    pub fresh_name: String,
    /// Another leader told another status than we did: until then it is not told again.
    pub contested_until: Option<Timestamp>,
    /// The last effect that failed, if that was the last thing that happened.
    pub trouble: Option<Trouble>,
}

/// The pool as stored.
#[derive(Clone, Debug)]
pub struct Pool {
    /// Name.
    pub name: String,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Our finalizer is on it.
    pub finalizer: bool,
    /// It is being deleted.
    pub deleting: bool,
    /// What is asked for; empty if it cannot be read.
    pub spec: RunnerPoolSpec,
    /// Why its spec cannot be read: old objects may have none (S15).
    pub unreadable: Option<String>,
    /// Status as stored.
    pub status: RunnerPoolStatus,
}

impl Pool {
    /// How many runners to keep.
    #[must_use]
    pub fn replicas(&self) -> usize {
        usize::try_from(self.spec.replicas.unwrap_or(0)).unwrap_or(0)
    }

    /// Whether its runners are Macs.
    #[must_use]
    pub fn is_darwin(&self) -> bool {
        self.spec.os.as_deref().is_none_or(|os| os == "darwin")
    }
}

/// One runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runner {
    /// Name of Pod and `ServiceAccount`.
    pub name: String,
    /// UID that a delete must meet.
    pub uid: String,
    /// Version that a delete must meet: a claim in between changes it.
    pub version: String,
    /// What it is doing.
    pub state: RunnerState,
    /// Image that it was made with.
    pub image: String,
    /// Being deleted.
    pub deleting: bool,
    /// Since when this process sees that nobody hears of its Mac, if it does. Never before it saw
    /// so itself: one that was cut off with all Macs waits for them when it is back.
    pub silent_since: Option<Timestamp>,
}

impl Runner {
    /// Neither ended nor leaving.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        !self.deleting && self.state != RunnerState::Ended
    }

    /// Nobody has heard of its Mac for so long.
    #[must_use]
    pub fn is_silent_for(&self, long: Duration, now: Timestamp) -> bool {
        let silence = |since| Duration::try_from(now.duration_since(since)).unwrap_or_default();
        self.silent_since.is_some_and(|since| silence(since) >= long)
    }
}

/// The `ServiceAccount` of a runner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name, and its Pod's.
    pub name: String,
    /// UID that a delete must meet.
    pub uid: String,
    /// Whose it is while it has no Pod.
    pub state: AccountState,
}

/// Whose an account without a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccountState {
    /// This process made it and has not made its Pod yet.
    Begun,
    /// Another process that believes to lead may have, a moment ago (G7).
    Young,
    /// A runner left it behind, or a process that died: its name is not used again.
    Left,
}

/// What a runner is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunnerState {
    /// Not running yet, and not claimed.
    Starting,
    /// Ready for a job.
    Idle,
    /// Claimed by a job.
    Busy,
    /// Its one job is done, or it failed.
    Ended,
}
