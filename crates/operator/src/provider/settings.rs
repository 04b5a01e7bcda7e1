//! What an operator chooses.

use std::time::Duration;

use applecart_core::machine::Limits;
use applecart_mac::FleetWide;

use super::egress::Egress;
use super::spread::Spread;
use crate::sweep;

/// What an operator chooses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of Secrets and Leases.
    pub namespace: String,
    /// The only namespace whose objects are looked at; all of them if `None`.
    pub watch_namespace: Option<String>,
    /// Pool for objects that name none.
    pub default_pool_prefix: Option<String>,
    /// Where Macs reach the API server.
    pub api_server_url: String,
    /// `ClusterRole` that each agent is bound to.
    pub agent_role: String,
    /// Secret with the token by which Cluster API reaches the Nodes; without it, somebody else
    /// gives each Cluster its kubeconfig.
    pub remote_token: Option<String>,
    /// CPU cores that a Node advertises, unless its object says otherwise.
    pub host_cpu: u32,
    /// Memory in MiB that a Node advertises, unless its object says otherwise.
    pub host_memory_mb: u32,
    /// Pods that a Node takes; Apple's licence allows two macOS VMs.
    pub max_pods: u32,
    /// Port of the SSH server on a Mac.
    pub ssh_port: u16,
    /// How long a running job may hold up a deletion, unless its Machine says otherwise.
    pub drain_timeout: Duration,
    /// How long a host may take to answer SSH for the first time.
    pub ssh_patience: Duration,
    /// How old a list of a zone may be.
    pub list_fresh: Duration,
    /// Machines that take a turn at once: each mostly waits for an answer, none for a Mac.
    pub concurrent_turns: u16,
    /// Decides and tells, but performs nothing.
    pub observe_only: bool,
    /// The Deployment that is rolled when other Macs are Ready, if there is one.
    pub spread: Option<Spread>,
    /// Services by which the cluster reaches Macs in the tailnet, if there are any.
    pub egress: Option<Egress>,
    /// What the sweep may do, where, and how often.
    pub sweep: sweep::Settings,
    /// Waits and patience of a Machine.
    pub limits: Limits,
    /// What is the same on every Mac.
    pub fleet: FleetWide,
    /// Secret with the key by which Macs join the tailnet, if they do.
    pub tailscale_key_secret: Option<String>,
}

impl Settings {
    /// All waits and intervals, `speed` times shorter.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        Self {
            drain_timeout: self.drain_timeout.div_f64(speed),
            ssh_patience: self.ssh_patience.div_f64(speed),
            list_fresh: self.list_fresh.div_f64(speed),
            sweep: self.sweep.scaled(speed),
            limits: self.limits.scaled(speed),
            ..self
        }
    }
}
