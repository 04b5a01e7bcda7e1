//! Every effect that a pool can have, as data.

use applecart_api::runner_pool::RunnerPoolStatus;

/// One effect, with the precondition under which it is safe inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer on the pool.
    AddFinalizer,
    /// Take our finalizer off: no runner is left.
    RemoveFinalizer,
    /// Store the status, if the pool is still at the version that was read.
    WriteStatus(Box<RunnerPoolStatus>),
    /// Make the `ServiceAccount` of a new runner.
    CreateAccount(String),
    /// Make the Pod of a runner whose `ServiceAccount` exists.
    CreatePod(String),
    /// Delete a Pod, if it is still as it was read.
    DeletePod {
        /// Name.
        name: String,
        /// UID that it must still have.
        uid: String,
        /// Version that it must still have.
        version: String,
    },
    /// Delete a `ServiceAccount` whose Pod is gone, if it still is.
    DeleteAccount {
        /// Name.
        name: String,
        /// UID that it must still have.
        uid: String,
    },
}

impl Action {
    /// What the effect is, for messages about it.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::AddFinalizer => "add the finalizer",
            Self::RemoveFinalizer => "remove the finalizer",
            Self::WriteStatus(_) => "write the status",
            Self::CreateAccount(_) => "create a runner's ServiceAccount",
            Self::CreatePod(_) => "create a runner's Pod",
            Self::DeletePod { .. } => "delete a runner's Pod",
            Self::DeleteAccount { .. } => "delete a runner's ServiceAccount",
        }
    }
}
