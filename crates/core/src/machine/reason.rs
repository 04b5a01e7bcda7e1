//! Why a Machine does what it does: one word for programs, one sentence for people.

use std::fmt;
use std::time::Duration;

/// Why a Machine does what it does, or why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Only a `MachineSet` owns the object yet: nothing may be written.
    NotOwned,
    /// Paused.
    Paused(&'static str),
    /// Cluster or Machine are not ready for us.
    WaitingForOwner(String),
    /// The last effect failed.
    Trouble(String),
    /// Something could not be read; nothing follows from that.
    CannotRead(String),
    /// No host fits.
    NoAvailableHost(PoolCounts),
    /// Neither spec nor flag names a pool.
    NoPool,
    /// A host is being claimed.
    Adopting,
    /// Waiting until no rename of others can still be on its way.
    Settling,
    /// The host in our status is held by another object.
    HeldByOther(String),
    /// Another has the object's name; who, in words.
    NameTaken(String),
    /// The host carries a name that is not ours.
    NotOurs(String),
    /// Several hosts carry our name, and nothing says which is ours.
    SeveralHosts(String),
    /// The host does not exist any more.
    HostGone,
    /// The host is busy with itself.
    HostChanging(String),
    /// The host is locked or broken.
    HostStuck(String),
    /// The host is about to be deleted, by somebody else's wish.
    HostRetiring,
    /// A host was ordered, or is about to be.
    Ordering,
    /// The host has no address yet.
    NoAddress,
    /// Scaleway did not tell a usable password.
    MissingSudoPassword,
    /// The fleet's SSH key cannot be used yet; why.
    SshKeyUnavailable(String),
    /// What the bootstrap needs is being prepared.
    Preparing,
    /// Kubernetes has not filled in the agent's token yet.
    WaitingForToken,
    /// A bootstrap runs.
    Bootstrapping(Option<(String, usize, usize)>),
    /// A bootstrap ended well; what there was to do, if that is known.
    Bootstrapped(Option<String>),
    /// A bootstrap failed; the next one is due at a time that is state.
    BootstrapFailed {
        /// How often in a row.
        attempts: i32,
        /// What it said.
        message: String,
    },
    /// A part of the bootstrap waits until no VM runs on the host; what.
    BootstrapPostponed(String),
    /// macOS refused the host's password: a new one is waited for, or the next tier of recovery.
    PasswordRefused {
        /// How often in a row.
        attempts: i32,
        /// What was said.
        message: String,
    },
    /// The host is about to be rebooted, because its bootstrap failed too often.
    Rebooting(u32),
    /// That reboot was seen to run.
    Rebooted,
    /// The host is on its way back to the pool, because its bootstrap failed too often.
    Swapping(u32),
    /// The host is not ours any more, and another one is looked for.
    HostReleased(&'static str),
    /// Bootstrapped, but no Node of this name is registered.
    NodeMissing,
    /// The Node's agent is silent or unwell.
    NodeNotReady,
    /// The Node of our name carries another host's provider ID.
    NodeOfOther(String),
    /// All is well.
    Ready,
    /// The host is being emptied of idle Pods.
    Emptying,
    /// A job still runs on the host.
    WaitingForJob(String),
    /// The host is on its way back.
    Releasing,
    /// The wipe is under way or was asked for.
    Wiping,
    /// The host cannot be wiped in its present state.
    CannotWipe(String),
    /// The host is wiped, and cannot be renamed while that runs.
    LeftToSweep,
    /// The host is set aside for a person.
    Quarantined(String),
    /// The host is being deleted.
    Terminating,
    /// The host goes when its licensing floor ends.
    DeletionScheduled,
    /// The host is left where it is.
    ReleaseSkipped(String),
    /// What is left outside is being removed.
    CleaningUp,
    /// The host is back in the pool, and nothing is left.
    Released,
    /// `clusterctl move` took the object elsewhere.
    Moved,
    /// A person detached the object from its host.
    Detached,
}

/// How many hosts of the pool did not fit, by the first reason that ruled each out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounts {
    /// Hosts under the pool's prefix.
    pub pool: usize,
    /// Of another server type.
    pub wrong_type: usize,
    /// With another OS.
    pub wrong_os: usize,
    /// Not delivered, not ready, or about to be deleted.
    pub not_ready: usize,
    /// Not wiped since their last owner.
    pub not_wiped: usize,
    /// Held by another object.
    pub held: usize,
}

impl fmt::Display for PoolCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in pool", self.pool)?;
        let mut separator = ": ";
        for (count, what) in [
            (self.wrong_type, "wrong type"),
            (self.wrong_os, "wrong OS"),
            (self.not_ready, "not ready"),
            (self.not_wiped, "not wiped"),
            (self.held, "held by another Machine"),
        ] {
            if count > 0 {
                write!(f, "{separator}{count} {what}")?;
                separator = ", ";
            }
        }
        Ok(())
    }
}

impl Reason {
    /// One CamelCase word, for conditions and Events. Words that a running fleet's alerts know
    /// stay.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::NotOwned | Self::WaitingForOwner(_) => "WaitingForOwner",
            Self::Paused(_) => "Paused",
            Self::Trouble(_) => "EffectFailed",
            Self::CannotRead(_) => "CannotRead",
            Self::NoAvailableHost(_) => "NoAvailableHost",
            Self::NoPool => "NoPool",
            Self::Adopting | Self::Settling => "Adopting",
            Self::HeldByOther(_) => "HeldByOther",
            Self::NameTaken(_) => "NameTaken",
            Self::NotOurs(_) => "NotOurs",
            Self::SeveralHosts(_) => "SeveralHosts",
            Self::HostGone => "HostGone",
            Self::HostChanging(_) => "HostNotReady",
            Self::HostStuck(_) => "HostStuck",
            Self::HostRetiring => "HostRetiring",
            Self::Ordering => "Ordering",
            Self::NoAddress => "NoAddress",
            Self::MissingSudoPassword => "MissingSudoPassword",
            Self::SshKeyUnavailable(_) => "SSHKeyUnavailable",
            Self::Preparing => "Preparing",
            Self::WaitingForToken => "NodeIdentityUnavailable",
            Self::Bootstrapping(_) => "Bootstrapping",
            Self::Bootstrapped(_) => "Bootstrapped",
            Self::BootstrapFailed { .. } => "BootstrapFailed",
            Self::BootstrapPostponed(_) => "BootstrapPostponed",
            Self::PasswordRefused { .. } => "SudoPasswordRefused",
            Self::Rebooting(_) | Self::Rebooted => "RebootingForRecovery",
            Self::Swapping(_) => "BootstrapExhausted",
            Self::HostReleased(_) => "HostReleased",
            Self::NodeMissing => "NodeMissing",
            Self::NodeNotReady => "NodeNotReady",
            Self::NodeOfOther(_) => "NodeOfOtherHost",
            Self::Ready => "Ready",
            Self::Emptying => "Emptying",
            Self::WaitingForJob(_) => "WaitingForJob",
            Self::Releasing => "Releasing",
            Self::Wiping => "Wiping",
            Self::CannotWipe(_) => "CannotWipe",
            Self::LeftToSweep => "LeftToSweep",
            Self::Quarantined(_) => "Quarantined",
            Self::Terminating => "Terminating",
            Self::DeletionScheduled => "DeletionScheduled",
            Self::ReleaseSkipped(_) => "ReleaseSkipped",
            Self::CleaningUp | Self::Released => "Released",
            Self::Moved => "Moved",
            Self::Detached => "Detached",
        }
    }

    /// Whether a person may have to do something.
    #[must_use]
    pub fn is_warning(&self) -> bool {
        matches!(
            self,
            Self::Trouble(_)
                | Self::CannotRead(_)
                | Self::NoAvailableHost(_)
                | Self::NoPool
                | Self::HeldByOther(_)
                | Self::NameTaken(_)
                | Self::NotOurs(_)
                | Self::SeveralHosts(_)
                | Self::HostGone
                | Self::HostStuck(_)
                | Self::HostRetiring
                | Self::MissingSudoPassword
                | Self::SshKeyUnavailable(_)
                | Self::BootstrapFailed { .. }
                | Self::PasswordRefused { .. }
                | Self::Rebooting(_)
                | Self::Swapping(_)
                | Self::HostReleased(_)
                | Self::NodeMissing
                | Self::NodeNotReady
                | Self::NodeOfOther(_)
                | Self::CannotWipe(_)
                | Self::Quarantined(_)
                | Self::ReleaseSkipped(_)
        )
    }
}

impl Reason {
    /// Whether what ends a wait for this reason is seen at the host, and nowhere in Kubernetes.
    pub(super) fn waits_for_its_host(&self) -> bool {
        matches!(
            self,
            Self::CannotRead(_)
                | Self::NotOurs(_)
                | Self::HostGone
                | Self::HostChanging(_)
                | Self::HostStuck(_)
                | Self::HostRetiring
                | Self::Ordering
                | Self::NoAddress
                | Self::MissingSudoPassword
                | Self::Rebooting(_)
                | Self::Rebooted
        )
    }

    /// Whether what it waits for is a Secret or a Lease, of which no watch tells: whoever waits for
    /// one has just looked.
    #[must_use]
    pub fn waits_unwatched(&self) -> bool {
        matches!(
            self,
            Self::WaitingForToken
                | Self::MissingSudoPassword
                | Self::PasswordRefused { .. }
                | Self::HeldByOther(_)
                | Self::NameTaken(_)
                | Self::NotOurs(_)
                | Self::SeveralHosts(_)
        )
    }

    /// The sentence of a reason that has nothing to add.
    fn plain(&self) -> &'static str {
        match self {
            Self::NotOwned => "waiting for a Machine to own this object",
            Self::NoPool => "no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix",
            Self::Adopting => "claiming a host from the pool",
            Self::Settling => "claimed, waiting for renames by others to settle",
            Self::HostGone => "its host does not exist at Scaleway any more",
            Self::HostRetiring => "its host is scheduled for deletion at Scaleway",
            Self::Ordering => "waiting for the host that was ordered for it",
            Self::NoAddress => "its host has no address yet",
            Self::MissingSudoPassword => {
                "Scaleway tells no password for its host: reinstall or prepare it by hand"
            }
            Self::Preparing => "preparing the bootstrap",
            Self::WaitingForToken => "waiting for the agent's token",
            Self::Bootstrapping(None) => "bootstrap begins",
            Self::Bootstrapped(None) => "bootstrapped",
            Self::Rebooted => "its host is being rebooted to recover it",
            Self::NodeMissing => "bootstrapped, waiting for its Node to register",
            Self::NodeNotReady => "its Node is not Ready",
            Self::Ready => "ready",
            Self::Emptying => "emptying the Mac of idle Pods",
            Self::Releasing => "returning its host",
            Self::Wiping => "waiting for the wipe of its host",
            Self::LeftToSweep => "its host is being wiped; the sweep will give it its pool name",
            Self::Terminating => "deleting its host",
            Self::DeletionScheduled => "its host will be deleted when its licensing floor ends",
            Self::CleaningUp => "host wiped or gone: removing what is left of it",
            Self::Released => "host returned",
            Self::Moved => "moved to another cluster",
            Self::Detached => "detached from its host by hand",
            _ => "",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Paused(by) => write!(f, "paused by {by}"),
            Self::WaitingForOwner(what) => write!(f, "waiting for {what}"),
            Self::Trouble(message) => write!(f, "could not {message}"),
            Self::CannotRead(what) => write!(f, "could not read {what}"),
            Self::NoAvailableHost(counts) => write!(f, "no available host: {counts}"),
            Self::HeldByOther(holder) => write!(f, "its host is held by {holder}"),
            Self::NameTaken(whose) => write!(f, "its name is taken: {whose}"),
            Self::NotOurs(name) => {
                write!(f, "its host is called {name:?}, which is not ours: left alone")
            }
            Self::SeveralHosts(ids) => {
                write!(f, "hosts {ids} all carry its name: left alone until only one does")
            }
            Self::HostChanging(state) => write!(f, "waiting for its host, which is {state}"),
            Self::HostStuck(state) => write!(f, "its host is {state}: only Scaleway can help"),
            Self::SshKeyUnavailable(why) => write!(f, "waiting for the fleet's SSH key: {why}"),
            Self::Bootstrapped(Some(did)) => write!(f, "bootstrapped: {did}"),
            Self::Bootstrapping(Some((step, index, total))) => {
                write!(f, "bootstrap step {index} of {total}: {step}")
            }
            Self::BootstrapFailed { attempts, message } => {
                let times = times(u32::try_from(*attempts).unwrap_or(0));
                write!(f, "bootstrap failed {times}: {message}")
            }
            Self::BootstrapPostponed(what) => {
                write!(f, "bootstrap waits until no VM runs on its host: {what}")
            }
            Self::PasswordRefused { attempts, message } => {
                let times = times(u32::try_from(*attempts).unwrap_or(0));
                write!(
                    f,
                    "waiting for a new password, bootstrap failed {times}: {message} (put it into \
                     sudo-password of the Machine's -bootstrap Secret)"
                )
            }
            Self::Rebooting(failed) => {
                write!(f, "bootstrap failed {}: rebooting its host", times(*failed))
            }
            Self::Swapping(failed) => {
                let times = times(*failed);
                write!(f, "bootstrap failed {times}: returning its host for another one")
            }
            Self::HostReleased(why) => write!(f, "{why}: looking for another host"),
            Self::NodeOfOther(id) => write!(f, "the Node of its name belongs to {id}"),
            Self::WaitingForJob(pod) => write!(f, "waiting for the job in {pod} to end"),
            Self::CannotWipe(state) => write!(f, "cannot wipe its host, which is {state}"),
            Self::Quarantined(why) => write!(f, "its host is set aside: {why}"),
            Self::ReleaseSkipped(why) => write!(f, "its host is not returned: {why}"),
            plain => f.write_str(plain.plain()),
        }
    }
}

fn times(n: u32) -> String {
    match n {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        n => format!("{n} times"),
    }
}

/// How long to wait before attempt number `attempts + 1`: doubling, with a cap.
#[must_use]
pub(super) fn back_off(attempts: i32, base: Duration, cap: Duration) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(1)).unwrap_or(0).min(16);
    base.saturating_mul(1 << doublings).min(cap)
}
