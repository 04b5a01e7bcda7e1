//! Where faults come in: every call to a simulated Mac asks here first.

use applecart_mac::{MacError, Output};

use super::model::Model;
use super::tools;

/// The status of a command that the system had no room for, as `sysexits.h` numbers them.
const OS_ERROR: i32 = 71;
/// What is said of it.
const NO_PROCESS: &str = "sh: fork: Resource temporarily unavailable\n";

/// One call, before it happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Effect {
    /// The Mac's name.
    pub mac: String,
    /// How many calls it had before this one.
    pub index: u64,
    /// Whether the call can change anything.
    pub mutates: bool,
    /// What is asked: the command line, or the path.
    pub what: String,
}

/// Whether a call can change anything, on a Mac as it is when the call arrives.
pub(super) type Mutates = fn(&Model) -> bool;
/// It only looks.
pub(super) const NEVER: Mutates = |_| false;
/// It does.
pub(super) const ALWAYS: Mutates = |_| true;

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happens and is answered.
    Pass,
    /// The connection is lost; it does not happen.
    FailBefore,
    /// It does nothing, and ends with a status that is not 0.
    Fails,
    /// No answer, and it does not happen.
    HangBefore,
    /// It happens, and there is no answer.
    HangAfter,
    /// The connection is lost, and the command goes on: it happens a while later, unless it is
    /// ended before that.
    LostRunning,
}

/// Decides over every call. Asked outside of all locks: a gate may pull levers itself.
pub trait Gate: Send + Sync {
    /// What becomes of this call.
    fn verdict(&self, effect: &Effect) -> Verdict;

    /// Called after a call that happened, with how it ended: `ok` or `refused`.
    fn answered(&self, _: &Effect, _answer: &str) {}
}

/// Lets everything pass.
pub struct Open;

impl Gate for Open {
    fn verdict(&self, _: &Effect) -> Verdict {
        Verdict::Pass
    }
}

/// How a command ends on a Mac that can start no more processes.
#[expect(clippy::unnecessary_wraps, reason = "a read or a write ends in an error instead")]
pub(super) fn failed(_: &str) -> Result<Output, MacError> {
    Ok(tools::fail(OS_ERROR, NO_PROCESS))
}

/// How a read or a write ends on a Mac that can start no more processes.
pub(super) fn refused<T>(doing: &str) -> Result<T, MacError> {
    let (doing, stderr) = (doing.to_owned(), NO_PROCESS.trim_end().to_owned());
    Err(MacError::Refused { doing, status: OS_ERROR, stderr })
}
