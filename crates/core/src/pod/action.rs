//! Every effect that a Pod's turn can have, as data. The shell performs one and looks again; it has
//! no choices left to make.

use k8s_openapi::api::core::v1::PodStatus;

use super::template::Template;
use super::vm_name::VmName;

/// One effect, with the precondition under which it is safe inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Replace the Pod's finalizers, if the Pod is still at this version.
    SetFinalizers {
        /// The resourceVersion that was read.
        version: String,
        /// All finalizers that shall be there.
        finalizers: Vec<String>,
    },
    /// Write the Pod's status, if the Pod is still at this version.
    PublishStatus {
        /// The resourceVersion that was read.
        version: String,
        /// The whole status.
        status: Box<PodStatus>,
    },
    /// Make the VM, from the start: what is there of it is replaced.
    CreateVm(VmName, Box<Template>),
    /// Start the VM with its share, if it was never started.
    StartVm(VmName, Box<Template>),
    /// Stop and delete the VM and its record. Doing it twice is harmless.
    RemoveVm(VmName),
    /// End the Pod's grace period, if it still has this UID.
    DeletePod {
        /// The UID that was read.
        uid: String,
    },
}

/// What kind of effect an [`Action`] has: a failure of one kind does not delay another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// A write to the API server.
    Write,
    /// Making a VM.
    Create,
    /// Starting a VM.
    Start,
    /// Removing a VM.
    Remove,
}

impl Action {
    /// The kind of this effect.
    #[must_use]
    pub fn effect(&self) -> Effect {
        match self {
            Self::SetFinalizers { .. } | Self::PublishStatus { .. } | Self::DeletePod { .. } => {
                Effect::Write
            }
            Self::CreateVm(..) => Effect::Create,
            Self::StartVm(..) => Effect::Start,
            Self::RemoveVm(_) => Effect::Remove,
        }
    }
}

/// How an effect ended. `Unknown` is neither success nor failure: look again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened.
    Done,
    /// The precondition no longer held; nothing happened.
    Refused,
    /// It did not happen, and said why.
    Failed(String),
    /// No answer, or none in time. It may have happened.
    Unknown(String),
}
