//! Where faults come in: every call to a simulated Mac asks here first.

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

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It happens and is answered.
    Pass,
    /// The connection is lost; it does not happen.
    FailBefore,
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
