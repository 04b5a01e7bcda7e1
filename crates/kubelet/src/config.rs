//! What the agent was told, ready to use.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use applecart_core::{node, pod};
use clap::Parser;

use crate::flags::{Flags, NodeIpSource};

/// VMs that macOS lets run at once.
const SLOTS: usize = 2;

/// Everything that the agent is configured with.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The Node's name, labels and size.
    pub registration: node::Registration,
    /// Where its address comes from.
    pub node_ip: NodeIp,
    /// Where the API server is and who we are; `None` for the usual places.
    pub kubeconfig: Option<PathBuf>,
    /// Tart's command line.
    pub tart_binary: PathBuf,
    /// Tailscale's command line.
    pub tailscale_binary: PathBuf,
    /// Where the agent keeps a record of each VM, and its share.
    pub state_dir: PathBuf,
    /// How long things may take and how often they are looked at.
    pub timing: Timing,
}

impl Config {
    /// Reads an argument list as launchd hands it over, the program's own name first.
    pub fn from_args(
        args: impl IntoIterator<Item = impl Into<OsString> + Clone>,
    ) -> Result<Self, clap::Error> {
        Flags::try_parse_from(args).map(Self::from)
    }

    /// The Node's name.
    #[must_use]
    pub fn node_name(&self) -> &str {
        &self.registration.name
    }
}

/// Where the Node's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeIp {
    /// It was given, or there is none.
    Given(Option<IpAddr>),
    /// The tailnet's, and no other (K6).
    Tailnet,
}

impl NodeIp {
    /// What is known of it before anybody is asked.
    pub(crate) fn at_start(self) -> node::Address {
        match self {
            Self::Given(Some(address)) => node::Address::Known(address),
            Self::Given(None) => node::Address::Untold,
            Self::Tailnet => node::Address::Awaited("Tailscale was not asked yet".to_owned()),
        }
    }
}

impl From<Flags> for Config {
    fn from(flags: Flags) -> Self {
        Self {
            registration: node::Registration {
                name: flags.node_name,
                labels: flags.node_labels.into_iter().flatten().collect(),
                provider_id: Some(flags.provider_id).filter(|id| !id.is_empty()),
                cpu: flags.host_cpu,
                memory_mib: flags.host_memory_mb,
                pods: flags.max_pods,
                kubelet_version: flags.kubelet_version,
            },
            node_ip: match (flags.node_ip, flags.node_ip_source) {
                (None, NodeIpSource::Tailscale) => NodeIp::Tailnet,
                (given, NodeIpSource::Auto | NodeIpSource::Tailscale) => NodeIp::Given(given),
            },
            kubeconfig: flags.kubeconfig,
            tart_binary: flags.tart_binary,
            tailscale_binary: flags.tailscale_binary,
            state_dir: flags.state_dir,
            timing: Timing {
                boot_deadline: flags.boot_deadline,
                reregister: flags.reregister_after,
                ..Timing::default()
            },
        }
    }
}

/// How long things may take and how often they are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How often a Pod and its VM are looked at when nothing happens.
    pub poll: Duration,
    /// How often all Pods are listed, in case a watch event was lost.
    pub resync: Duration,
    /// How often the Lease is renewed, and Tart asked whether it is there.
    pub lease: Duration,
    /// How often the Node's status is written although nothing changed.
    pub heartbeat: Duration,
    /// How long a Node that was deleted stays away.
    pub reregister: Duration,
    /// How long Tart may be silent before the Node says that it is not ready.
    pub tart_patience: Duration,
    /// How long a VM may take from its start to its address.
    pub boot_deadline: Duration,
    /// The wait after a first failure; it doubles with each further one.
    pub retry_first: Duration,
    /// The longest wait between two tries.
    pub retry_longest: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(10),
            resync: Duration::from_mins(1),
            lease: Duration::from_secs(10),
            heartbeat: Duration::from_secs(30),
            reregister: Duration::from_mins(1),
            tart_patience: Duration::from_mins(1),
            boot_deadline: Duration::from_mins(15),
            retry_first: Duration::from_secs(10),
            retry_longest: Duration::from_mins(5),
        }
    }
}

impl Timing {
    /// All of it, `speed` times as fast.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        assert!(speed.is_finite() && speed > 0.0, "a speed is a positive number, not {speed}");
        let scale = |duration: Duration| duration.div_f64(speed);
        Self {
            poll: scale(self.poll),
            resync: scale(self.resync),
            lease: scale(self.lease),
            heartbeat: scale(self.heartbeat),
            reregister: scale(self.reregister),
            tart_patience: scale(self.tart_patience),
            boot_deadline: scale(self.boot_deadline),
            retry_first: scale(self.retry_first),
            retry_longest: scale(self.retry_longest),
        }
    }

    pub(crate) fn of_pods(&self) -> pod::Limits {
        pod::Limits {
            slots: SLOTS,
            boot_deadline: self.boot_deadline,
            poll: self.poll,
            retry_first: self.retry_first,
            retry_longest: self.retry_longest,
        }
    }

    pub(crate) fn of_node(&self) -> node::Limits {
        node::Limits {
            lease: self.lease,
            heartbeat: self.heartbeat,
            reregister: self.reregister,
            tart_patience: self.tart_patience,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_list_that_launchd_hands_over_is_read_whole() {
        let config = Config::from_args([
            "/usr/local/bin/tart-kubelet",
            "--node-name=mac-1",
            "--kubeconfig=/etc/tart-kubelet/kubeconfig",
            "--host-cpu=8",
            "--host-memory-mb=14336",
            "--max-pods=3",
            "--node-labels=tuist.dev/fleet=runners,a=b",
            "--node-ip-source=tailscale",
            "--provider-id=scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
        ])
        .unwrap();
        assert_eq!(config.node_name(), "mac-1");
        assert_eq!(config.kubeconfig, Some("/etc/tart-kubelet/kubeconfig".into()));
        assert_eq!(config.node_ip, NodeIp::Tailnet);
        let registration = config.registration;
        assert_eq!((registration.cpu, registration.memory_mib, registration.pods), (8, 14_336, 3));
        assert_eq!(registration.labels["tuist.dev/fleet"], "runners");
        assert_eq!(registration.labels["a"], "b");
        assert!(registration.provider_id.unwrap().ends_with("9f1c9f8f1c3e"));
    }

    #[test]
    fn what_is_not_said_has_the_default_that_running_fleets_have() {
        let config = Config::from_args(["x", "--node-name=m", "--provider-id=", "--node-labels="]);
        let config = config.unwrap();
        assert_eq!(config.registration.provider_id, None);
        assert!(config.registration.labels.is_empty());
        assert_eq!((config.registration.cpu, config.registration.memory_mib), (8, 16_384));
        assert_eq!(config.registration.pods, 2);
        assert_eq!(config.tart_binary, PathBuf::from("/usr/local/bin/tart"));
        assert_eq!(config.timing, Timing::default());
        assert_eq!(config.node_ip, NodeIp::Given(None));
        assert_eq!(config.tailscale_binary, PathBuf::from("/usr/local/bin/tailscale"));
    }

    #[test]
    fn a_bad_flag_gets_an_error_that_names_it() {
        for (flag, part) in [
            ("--node-labels=novalue", "key=value"),
            ("--host-cpu=many", "--host-cpu"),
            ("--boot-deadline=soon", "--boot-deadline"),
            ("--node-ip=nowhere", "--node-ip"),
            ("--node-ip-source=en0", "possible values: auto, tailscale"),
        ] {
            let error = Config::from_args(["x", "--node-name=m", flag]).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        assert!(Config::from_args(["x"]).unwrap_err().to_string().contains("--node-name"));
    }

    #[test]
    fn an_address_that_is_given_goes_before_any_source() {
        let given = ["x", "--node-name=m", "--node-ip=10.0.0.7", "--node-ip-source=tailscale"];
        let address = "10.0.0.7".parse().unwrap();
        assert_eq!(Config::from_args(given).unwrap().node_ip, NodeIp::Given(Some(address)));
    }

    #[test]
    fn durations_are_read_as_people_write_them_and_scaled_together() {
        let args = ["x", "--node-name=m", "--boot-deadline=20m", "--reregister-after=90s"];
        let timing = Config::from_args(args).unwrap().timing;
        assert_eq!(timing.boot_deadline, Duration::from_mins(20));
        let fast = timing.scaled(10.0);
        assert_eq!(fast.boot_deadline, Duration::from_mins(2));
        assert_eq!(fast.poll, Duration::from_secs(1));
        assert_eq!(fast.reregister, Duration::from_secs(9));
    }
}
