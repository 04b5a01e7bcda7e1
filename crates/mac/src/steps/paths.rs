//! Where things are on a Mac. Running fleets have most of these; they stay where they are.

/// The agent's binary.
pub const AGENT: &str = "/usr/local/bin/tart-kubelet";
/// The agent's binary while it is being checked and signed.
pub const AGENT_STAGED: &str = "/usr/local/bin/.tart-kubelet.staged";
/// Which payload the agent's binary was made from, and its checksum after signing.
pub const AGENT_STAMP: &str = "/etc/tart-kubelet/agent.sha256";
/// The agent's launchd job.
pub const AGENT_PLIST: &str = "/Library/LaunchDaemons/dev.tuist.tart-kubelet.plist";
/// What the agent prints.
pub const AGENT_LOG: &str = "/var/log/tart-kubelet.log";
/// What VMs print.
pub const VM_LOGS: &str = "/var/log/tart-vms";
/// What VMs are given.
pub const VM_USER_DATA: &str = "/var/lib/tart-userdata";
/// The agent's kubeconfig.
pub const KUBECONFIG: &str = "/etc/tart-kubelet/kubeconfig";
/// Present from before something that the agent reads at its start changes until it was restarted.
pub const AGENT_PENDING: &str = "/etc/tart-kubelet/agent-pending";
/// Present from before the auto-login password changes until a login proved it.
pub const LOGIN_PENDING: &str = "/etc/tart-kubelet/login-pending";
/// The auto-login password.
pub const KCPASSWORD: &str = "/etc/kcpassword";
/// The auto-login password that worked, from before it changes until a login proved the new one.
pub const KCPASSWORD_PROVEN: &str = "/etc/tart-kubelet/kcpassword-proven";
/// The folder of Tart's bundle.
pub const TART_APP: &str = "/usr/local/lib/tart.app";
/// Which archive the bundle was unpacked from.
pub const TART_STAMP: &str = "/usr/local/lib/tart.app.sha256";
/// Tart as a command.
pub const TART: &str = "/usr/local/bin/tart";
/// Tailscale as a command.
pub const TAILSCALE: &str = "/usr/local/bin/tailscale";
/// Tailscale's daemon.
pub const TAILSCALED: &str = "/usr/local/bin/tailscaled";
/// Where the daemon answers.
pub const TAILSCALE_SOCKET: &str = "/var/run/tailscaled.socket";
/// What the daemon knows of its tailnet.
pub const TAILSCALE_STATE: &str = "/var/lib/tailscale/tailscaled.state";
/// The daemon's launchd job.
pub const TAILSCALE_PLIST: &str = "/Library/LaunchDaemons/com.tailscale.tailscaled.plist";
/// Which archive Tailscale was unpacked from, and the tags that the host joined with.
pub const TAILSCALE_STAMP: &str = "/etc/tart-kubelet/tailscale.sha256";
/// The node exporter.
pub const NODE_EXPORTER: &str = "/usr/local/bin/node_exporter";
/// What starts it on the right address.
pub const NODE_EXPORTER_WRAPPER: &str = "/usr/local/bin/tuist-node-exporter-wrapper";
/// Its launchd job.
pub const NODE_EXPORTER_PLIST: &str = "/Library/LaunchDaemons/dev.tuist.node-exporter.plist";
/// Which payload it was installed from.
pub const NODE_EXPORTER_STAMP: &str = "/etc/tart-kubelet/node-exporter.sha256";
/// The GitHub Actions runner of a host that builds images.
pub const RUNNER: &str = "/opt/actions-runner";
/// What the runner is registered as.
pub const RUNNER_REGISTERED: &str = "/opt/actions-runner/.runner";
/// By what the runner is let in.
pub const RUNNER_CREDENTIALS: &str = "/opt/actions-runner/.credentials";
/// Where the runner was registered, and with which labels; a host that the original registered has
/// none.
pub const RUNNER_STAMP: &str = "/etc/tart-kubelet/github-runner";
/// Where builds on such a host keep what they made.
pub const BUILD_CACHE: &str = "/opt/tuist-build-cache";
/// What every shell reads.
pub const ZSHENV: &str = "/etc/zshenv";
/// Our firewall rules.
pub const PF_ANCHOR: &str = "/etc/pf.anchors/tuist.runners";
/// The main ruleset.
pub const PF_CONF: &str = "/etc/pf.conf";
/// The job that loads and enables the firewall at boot.
pub const PF_PLIST: &str = "/Library/LaunchDaemons/dev.tuist.pfctl-runners.plist";
/// Says in which boot a setting changed that macOS reads at the next one. Not in a folder that
/// macOS empties: it does that between boots as well.
pub const BOOT_PENDING: &str = "/etc/tart-kubelet/boot-pending";

/// The launchd job of `user`'s runner, where its own `svc.sh` puts it.
#[must_use]
pub fn runner_plist(user: &crate::UserName, job: &str) -> String {
    format!("/Users/{user}/Library/LaunchAgents/{job}.plist")
}

/// How often each password was tried, with the boot in which; the user's own, for there is no sudo
/// yet.
#[must_use]
pub fn password_tries(user: &crate::UserName) -> String {
    format!("/Users/{user}/.applecart-password-tries")
}

/// The sudo rule of `user`.
#[must_use]
pub fn sudoers(user: &crate::UserName) -> String {
    format!("/etc/sudoers.d/{user}-nopasswd")
}
