//! How an effect ended.

/// How an effect ended. `Unknown` is neither success nor failure: look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened.
    Done,
    /// Its precondition no longer held; nothing happened.
    Refused,
    /// It did not happen, and this is what was said. Never contains a secret.
    Failed(String),
    /// It did not happen, cannot happen before its time, and this is what was said.
    TooEarly(String),
    /// No answer. It may have happened.
    Unknown,
}
