//! What was typed. [`crate::Config`] is what it means.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use jiff::SignedDuration;

const EXAMPLE: &str = "Example:
  tart-kubelet --node-name=mac-1 --kubeconfig=/etc/tart-kubelet/kubeconfig \\
    --host-cpu=8 --host-memory-mb=14336 --max-pods=2 --node-labels=tuist.dev/fleet=runners \\
    --provider-id=scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";

/// The agent on a Mac: registers it as a Node and runs each Pod as one Tart VM.
#[derive(Debug, Parser)]
#[command(name = "tart-kubelet", version, after_help = EXAMPLE)]
pub(crate) struct Flags {
    /// The Node's name.
    #[arg(long, env = "TART_KUBELET_NODE_NAME")]
    pub node_name: String,

    /// The Node's provider ID, set when the Node has none yet.
    #[arg(long, env = "TART_KUBELET_PROVIDER_ID", default_value = "", hide_default_value = true)]
    pub provider_id: String,

    /// The Node's address; it goes before --node-ip-source.
    #[arg(long, env = "TART_KUBELET_NODE_IP")]
    pub node_ip: Option<IpAddr>,

    /// Where the Node's address comes from if it is not given.
    #[arg(long, env = "TART_KUBELET_NODE_IP_SOURCE", value_enum, default_value = "auto")]
    pub node_ip_source: NodeIpSource,

    /// Labels of the Node, beside those that every Mac has.
    #[arg(
        long,
        env = "TART_KUBELET_NODE_LABELS",
        value_name = "KEY=VALUE,…",
        value_delimiter = ',',
        value_parser = label
    )]
    pub node_labels: Vec<Option<(String, String)>>,

    /// Cores for Pods.
    #[arg(long, env = "TART_KUBELET_HOST_CPU", default_value_t = 8)]
    pub host_cpu: u32,

    /// Memory for Pods, in MiB.
    #[arg(long, env = "TART_KUBELET_HOST_MEMORY_MB", default_value_t = 16_384)]
    pub host_memory_mb: u64,

    /// How many Pods may be placed here. At most two run at once, as macOS allows; more wait.
    #[arg(long, env = "TART_KUBELET_MAX_PODS", default_value_t = 2)]
    pub max_pods: u32,

    /// What the Node gives as its kubelet version. Cluster API compares it with a Machine's.
    #[arg(
        long,
        env = "TART_KUBELET_KUBELET_VERSION",
        default_value = concat!("v", env!("CARGO_PKG_VERSION"))
    )]
    pub kubelet_version: String,

    /// The kubeconfig to use; else the usual places are looked at.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,

    /// Tart's command line.
    #[arg(long, env = "TART_KUBELET_TART_BINARY", default_value = "/usr/local/bin/tart")]
    pub tart_binary: PathBuf,

    /// Tailscale's command line.
    #[arg(long, env = "TART_KUBELET_TAILSCALE_BINARY", default_value = "/usr/local/bin/tailscale")]
    pub tailscale_binary: PathBuf,

    /// Where a record of each VM is kept, and its share.
    #[arg(long, env = "TART_KUBELET_STATE_DIR", default_value = "/var/lib/tart-userdata")]
    pub state_dir: PathBuf,

    /// How long a VM may take from its start to its address before its Pod fails.
    #[arg(long, env = "TART_KUBELET_BOOT_DEADLINE", default_value = "15m", value_parser = duration)]
    pub boot_deadline: Duration,

    /// How long a Node that was deleted under this agent stays away.
    #[arg(
        long,
        env = "TART_KUBELET_REREGISTER_AFTER",
        default_value = "1m",
        value_parser = duration
    )]
    pub reregister_after: Duration,
}

/// Where a Node's address comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum NodeIpSource {
    /// Nowhere: the Node has none but its name, and no interface's address leaks.
    Auto,
    /// The tailnet. Until that tells one, the Node has none; no other takes its place.
    Tailscale,
}

/// One `key=value`; nothing for the empty text, which is what an empty flag is.
fn label(text: &str) -> Result<Option<(String, String)>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok(Some((key.to_owned(), value.to_owned()))),
        _ => Err("a label is key=value, and labels are separated by commas".to_owned()),
    }
}

/// A duration as people write it: `90s`, `15m`, `1h30m`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = text.parse::<SignedDuration>().map_err(|error| error.to_string())?;
    parsed.try_into().map_err(|_| "a duration is not negative".to_owned())
}
