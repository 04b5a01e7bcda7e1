//! The edge to virtual machines: one trait, Tart's command line behind it on a Mac, a simulated
//! twin in tests and the demo.

use std::collections::BTreeMap;
use std::net::IpAddr;

use applecart_core::pod::{Template, VmName, VmState};
use secrecy::SecretString;

/// The VMs of one host.
///
/// Every method answers within a limit of its own, and may be dropped at any point: whatever it had
/// begun is then visible in the next [`list`](Vm::list), or is not there.
pub trait Vm: Send + Sync {
    /// Everything there is, with how its run ended; complete or an error. What ran and was deleted
    /// behind our back is listed until it is [removed](Vm::remove).
    fn list(&self) -> impl Future<Output = Result<BTreeMap<VmName, VmState>, VmError>> + Send;

    /// Makes a VM that was never started, with an identity of its own, from the template's image,
    /// which is fetched if it is not there. What is there of this VM is replaced.
    fn create(
        &self,
        vm: &VmName,
        template: &Template,
    ) -> impl Future<Output = Result<(), VmError>> + Send;

    /// Starts a created VM with `share` mounted, and does not wait for it to boot. The VM outlives
    /// this process. A VM is started at most once in its life: later calls change nothing.
    fn start(&self, vm: &VmName, share: Share) -> impl Future<Output = Result<(), VmError>> + Send;

    /// The guest's address, if it has one yet.
    fn address(&self, vm: &VmName) -> impl Future<Output = Result<Option<IpAddr>, VmError>> + Send;

    /// Stops and deletes a VM and all that is known of it. One that is not there is no error.
    fn remove(&self, vm: &VmName) -> impl Future<Output = Result<(), VmError>> + Send;
}

/// The files that a guest finds in its share. Their contents do not print.
#[derive(Clone, Debug, Default)]
pub struct Share {
    /// Contents by file name.
    pub files: BTreeMap<String, SecretString>,
}

/// Why a VM did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum VmError {
    /// It said no.
    #[error("{what}: {said}")]
    Failed {
        /// What we tried.
        what: String,
        /// What we were told, in one line.
        said: String,
    },
    /// The host did not let us.
    #[error("{what}")]
    Host {
        /// What we tried.
        what: String,
        /// What the host said.
        source: std::io::Error,
    },
    /// No answer in time. It may have happened.
    #[error("{what}: no answer within {seconds} s")]
    Unknown {
        /// What we tried.
        what: String,
        /// How long we waited.
        seconds: u64,
    },
}
