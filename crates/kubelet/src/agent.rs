//! The whole agent, as one future.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Mutex;

use applecart_api::clock::Clock;
use applecart_core::node::{Address, Health};
use applecart_core::pod::VmName;
use kube::Client;

use crate::config::Config;
use crate::tailnet::Tailnet;
use crate::vm::Vm;
use crate::{health, node, pods, tailnet};

/// What all parts of the agent share.
pub(crate) struct Agent<V> {
    pub config: Config,
    pub client: Client,
    pub vm: V,
    pub clock: Clock,
    /// VMs that run or are about to, by what this process decided. A VM that runs by itself, or
    /// that an earlier process started, is counted from Tart's list.
    pub slots: Mutex<BTreeSet<VmName>>,
    /// Whether Tart answers.
    pub health: Mutex<Health>,
    /// The Node's address.
    pub address: Mutex<Address>,
}

impl<V> Agent<V> {
    /// The Node's address, if it is known.
    pub fn node_ip(&self) -> Option<IpAddr> {
        self.address.lock().expect("no panic while the address is held").known()
    }
}

/// Runs the agent for ever: keeps the Node registered and runs its Pods as VMs.
///
/// # Guarantees
/// - Everything happens inside this future, none of it in tasks of its own: dropping it ends the
///   agent at once, and leaves every VM as it is.
/// - The next agent on the same host finds all VMs again by name.
/// - It waits by `tokio::time` alone and asks `clock` for the time, so it runs in virtual time too.
///
/// # Assumptions
/// - It is the only agent on the host, and the only one for this Node.
pub async fn run(
    config: Config,
    client: Client,
    vm: impl Vm,
    tailnet: impl Tailnet,
    clock: Clock,
) -> Infallible {
    let agent = Agent {
        address: Mutex::new(config.node_ip.at_start()),
        config,
        client,
        vm,
        clock,
        slots: Mutex::default(),
        health: Mutex::new(Health::Good),
    };
    // First of all, so that a restart takes no address off a Node that has one.
    tailnet::look(&agent, &tailnet).await;
    tokio::select! {
        biased;
        never = node::run(&agent) => never,
        never = pods::run(&agent) => never,
        never = health::run(&agent) => never,
        never = tailnet::run(&agent, &tailnet) => never,
    }
}
