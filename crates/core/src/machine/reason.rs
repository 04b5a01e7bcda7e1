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
    /// The host carries a name that is not ours.
    NotOurs(String),
    /// The host does not exist any more.
    HostGone,
    /// The host is busy with itself.
    HostChanging(String),
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
    /// A bootstrap ended well.
    Bootstrapped,
    /// A bootstrap failed; the next one is due at a time that is state.
    BootstrapFailed {
        /// How often in a row.
        attempts: i32,
        /// What it said.
        message: String,
    },
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
            Self::NotOurs(_) => "NotOurs",
            Self::HostGone => "HostGone",
            Self::HostChanging(_) => "HostNotReady",
            Self::NoAddress => "NoAddress",
            Self::MissingSudoPassword => "MissingSudoPassword",
            Self::SshKeyUnavailable(_) => "SSHKeyUnavailable",
            Self::Preparing => "Preparing",
            Self::WaitingForToken => "NodeIdentityUnavailable",
            Self::Bootstrapping(_) => "Bootstrapping",
            Self::Bootstrapped => "Bootstrapped",
            Self::BootstrapFailed { .. } => "BootstrapFailed",
            Self::NodeMissing => "NodeMissing",
            Self::NodeNotReady => "NodeNotReady",
            Self::NodeOfOther(_) => "NodeOfOtherHost",
            Self::Ready => "Ready",
            Self::Emptying => "Emptying",
            Self::WaitingForJob(_) => "WaitingForJob",
            Self::Releasing => "Releasing",
            Self::Wiping => "Wiping",
            Self::CannotWipe(_) => "CannotWipe",
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
                | Self::NotOurs(_)
                | Self::HostGone
                | Self::MissingSudoPassword
                | Self::SshKeyUnavailable(_)
                | Self::BootstrapFailed { .. }
                | Self::NodeMissing
                | Self::NodeNotReady
                | Self::NodeOfOther(_)
                | Self::CannotWipe(_)
                | Self::ReleaseSkipped(_)
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOwned => write!(f, "waiting for a Machine to own this object"),
            Self::Paused(by) => write!(f, "paused by {by}"),
            Self::WaitingForOwner(what) => write!(f, "waiting for {what}"),
            Self::Trouble(message) => write!(f, "could not {message}"),
            Self::CannotRead(what) => write!(f, "could not read {what}"),
            Self::NoAvailableHost(counts) => write!(f, "no available host: {counts}"),
            Self::NoPool => {
                write!(f, "no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix")
            }
            Self::Adopting => write!(f, "claiming a host from the pool"),
            Self::Settling => write!(f, "claimed, waiting for renames by others to settle"),
            Self::HeldByOther(holder) => write!(f, "its host is held by {holder}"),
            Self::NotOurs(name) => {
                write!(f, "its host is called {name:?}, which is not ours: left alone")
            }
            Self::HostGone => write!(f, "its host does not exist at Scaleway any more"),
            Self::HostChanging(state) => write!(f, "waiting for its host, which is {state}"),
            Self::NoAddress => write!(f, "its host has no address yet"),
            Self::MissingSudoPassword => {
                write!(
                    f,
                    "Scaleway tells no password for its host: reinstall or prepare it by hand"
                )
            }
            Self::SshKeyUnavailable(why) => write!(f, "waiting for the fleet's SSH key: {why}"),
            Self::Preparing => write!(f, "preparing the bootstrap"),
            Self::WaitingForToken => write!(f, "waiting for the agent's token"),
            Self::Bootstrapping(None) => write!(f, "bootstrap begins"),
            Self::Bootstrapping(Some((step, index, total))) => {
                write!(f, "bootstrap step {index} of {total}: {step}")
            }
            Self::Bootstrapped => write!(f, "bootstrapped"),
            Self::BootstrapFailed { attempts, message } => {
                write!(f, "bootstrap failed {}: {message}", times(*attempts))
            }
            Self::NodeMissing => write!(f, "bootstrapped, waiting for its Node to register"),
            Self::NodeNotReady => write!(f, "its Node is not Ready"),
            Self::NodeOfOther(id) => write!(f, "the Node of its name belongs to {id}"),
            Self::Ready => write!(f, "ready"),
            Self::Emptying => write!(f, "emptying the Mac of idle Pods"),
            Self::WaitingForJob(pod) => write!(f, "waiting for the job in Pod {pod} to end"),
            Self::Releasing => write!(f, "returning its host"),
            Self::Wiping => write!(f, "waiting for the wipe of its host"),
            Self::CannotWipe(state) => write!(f, "cannot wipe its host, which is {state}"),
            Self::ReleaseSkipped(why) => write!(f, "its host is not returned: {why}"),
            Self::CleaningUp => write!(f, "host wiped, removing what is left of it"),
            Self::Released => write!(f, "host returned"),
            Self::Moved => write!(f, "moved to another cluster"),
            Self::Detached => write!(f, "detached from its host by hand"),
        }
    }
}

fn times(n: i32) -> String {
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
