//! What the agent saw this turn. Pure: the Kubernetes object is parsed once, here.

use core::net::IpAddr;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodStatus};

use super::action::Effect;
use super::template::{Refusal, Template};
use super::vm_name::VmName;

/// Which Pod: its name may come back, its UID never does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PodId {
    /// The Pod's namespace.
    pub namespace: String,
    /// The Pod's name.
    pub name: String,
    /// The Pod's UID.
    pub uid: String,
}

/// How a VM's one run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exit {
    /// `tart run` ended with this code. 0 is a guest that shut itself down.
    Code {
        /// The exit code.
        code: i32,
        /// The last thing that it said; empty if nothing.
        message: String,
    },
    /// The guest was stopped by an error of the virtual machine, which Tart also ends with 0.
    Crashed(String),
    /// It ended, and nobody saw how: the host rebooted, or its record is gone. Not a success.
    Unknown,
}

/// A VM on the host, by what is already true of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VmState {
    /// There is something of it, but no record that its creation finished.
    Partial,
    /// Complete, and never started.
    Created,
    /// Running, or starting.
    Running,
    /// It ran, and runs no more.
    Ended {
        /// How its run ended.
        exit: Exit,
        /// When, if that was recorded.
        at: Option<Timestamp>,
    },
}

/// All VMs of the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Vms {
    /// A complete list: what is not in it does not exist.
    Known(BTreeMap<VmName, VmState>),
    /// Tart did not answer. Nothing follows from this.
    Unknown(String),
}

/// The guest's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Nobody asked this turn, because nothing depends on it.
    NotAsked,
    /// The guest has none yet.
    NotYet,
    /// The guest has this one.
    Known(IpAddr),
    /// Tart did not answer.
    Unknown(String),
}

/// What the Pod's status says already, by what it commits us to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// No VM of this Pod was ever started.
    NotStarted,
    /// Its VM is started, or was about to be, since then.
    Booting {
        /// Since when.
        since: Timestamp,
    },
    /// It runs.
    Running,
    /// It is over.
    Ended,
}

/// An effect that failed and was not followed by a success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What it said, for people.
    pub message: String,
    /// How often in a row.
    pub attempts: u32,
    /// When it failed last.
    pub at: Timestamp,
}

/// A live Pod object, parsed.
#[derive(Clone, Debug)]
pub struct PodSeen {
    /// Which Pod.
    pub id: PodId,
    /// The resourceVersion that was read: the precondition of every write.
    pub version: String,
    /// Somebody asked for its deletion.
    pub deleting: bool,
    /// Its grace period is over: only finalizers keep the object.
    pub released: bool,
    /// All its finalizers.
    pub finalizers: Vec<String>,
    /// What VM it asks for, or why it cannot have one.
    pub template: Result<Template, Refusal>,
    /// The stored status.
    pub status: PodStatus,
}

/// Marks a status as ours: the original dropped all conditions but `Ready`.
pub(super) const READY_TO_START: &str = "PodReadyToStartContainers";

impl PodSeen {
    /// Parses a Pod that was read from the API. `None` if it lacks what every stored Pod has.
    #[must_use]
    pub fn read(pod: &Pod) -> Option<Self> {
        let meta = &pod.metadata;
        let id = PodId {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        };
        Some(Self {
            version: meta.resource_version.clone()?,
            deleting: meta.deletion_timestamp.is_some(),
            released: meta.deletion_grace_period_seconds == Some(0),
            finalizers: meta.finalizers.clone().unwrap_or_default(),
            template: Template::read(&id, pod.spec.as_ref()?),
            status: pod.status.clone().unwrap_or_default(),
            id,
        })
    }

    /// What the stored status commits us to.
    #[must_use]
    pub fn published(&self) -> Published {
        let started = self.status.start_time.as_ref().map(|time| time.0);
        match (self.status.phase.as_deref(), self.ready_to_start(), started) {
            (Some("Succeeded" | "Failed"), ..) => Published::Ended,
            (Some("Running"), ..) => Published::Running,
            // The original published a start time only once its VM's process was alive.
            (_, Some((true, since)), _) | (_, None, Some(since)) => Published::Booting { since },
            (_, Some((false, _)), _) | (_, None, None) => Published::NotStarted,
        }
    }

    /// Which VM is this Pod's. A status names one only if it is one of the two that this Pod can
    /// have; a status by the original without a name means its form of the name.
    #[must_use]
    pub fn vm(&self) -> VmName {
        let (ours, original) = (VmName::of(&self.id), VmName::original(&self.id));
        let named = self.status.container_statuses.iter().flatten().find_map(|container| {
            let id = container.container_id.as_deref()?;
            [&ours, &original].into_iter().find(|name| name.container_id() == id)
        });
        let by_original = self.ready_to_start().is_none() && self.status.start_time.is_some();
        match named {
            Some(name) => name.clone(),
            None if by_original => original,
            None => ours,
        }
    }

    /// Whether `PodReadyToStartContainers` is true, and since when.
    fn ready_to_start(&self) -> Option<(bool, Timestamp)> {
        let conditions = self.status.conditions.iter().flatten();
        let condition = conditions.into_iter().find(|c| c.type_ == READY_TO_START)?;
        let since = condition.last_transition_time.as_ref().or(self.status.start_time.as_ref())?;
        Some((condition.status == "True", since.0))
    }
}

/// The Pod object.
#[derive(Clone, Debug)]
pub enum PodObject {
    /// The API server did not answer.
    Unknown(String),
    /// There is no Pod of this UID.
    Gone,
    /// There is one.
    Live(Box<PodSeen>),
}

/// Everything that one decision about a Pod may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The Pod object, read **this turn**.
    pub pod: PodObject,
    /// Which VM is the Pod's.
    pub vm: VmName,
    /// The host's VMs, read this turn.
    pub vms: Vms,
    /// The guest's address, if it was asked for.
    pub address: Address,
    /// VMs of others that run or are about to.
    pub slots_taken: Vec<VmName>,
    /// The Node's address, if it is known.
    pub node_ip: Option<IpAddr>,
    /// Effects that failed and did not succeed since.
    pub failures: BTreeMap<Effect, Failure>,
}

impl Observed {
    /// The state of this Pod's VM: the outer `None` if that is unknown, the inner one if there is
    /// none.
    #[must_use]
    pub fn vm_state(&self) -> Option<Option<&VmState>> {
        match &self.vms {
            Vms::Known(all) => Some(all.get(&self.vm)),
            Vms::Unknown(_) => None,
        }
    }
}
