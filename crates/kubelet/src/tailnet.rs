//! The edge to the tailnet: what address this Mac has there. Asked beside the heartbeat, never
//! inside it, so that a hung Tailscale leaves the Node without an address instead of silent.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use applecart_core::node::Address;

use crate::agent::Agent;
use crate::api::chain;
use crate::command;
use crate::config::NodeIp;
use crate::vm::VmError;

/// How long Tailscale's command line may take.
const DEADLINE: Duration = Duration::from_secs(10);
/// Where the daemon that we install answers: the application's, if there is one too, is another.
const SOCKET: &str = "--socket=/var/run/tailscaled.socket";

/// The tailnet of one host.
pub trait Tailnet: Send + Sync {
    /// The host's address there. Answers within a limit of its own.
    fn address(&self) -> impl Future<Output = Result<IpAddr, TailnetError>> + Send;
}

/// Why the tailnet's address is not known.
#[derive(Debug, thiserror::Error)]
pub enum TailnetError {
    /// Tailscale is not there, hangs, or was never installed.
    #[error("Tailscale does not answer")]
    Silent(#[source] VmError),
    /// It answered, with no address: the host has not joined.
    #[error("Tailscale tells no address: {0}")]
    NotJoined(String),
    /// It answered with what is no address of a tailnet.
    #[error("Tailscale tells {0:?}, which is no address in 100.64.0.0/10")]
    Foreign(String),
}

/// Tailscale's command line.
#[derive(Clone, Debug)]
pub struct Tailscale {
    binary: PathBuf,
}

impl Tailscale {
    /// By its binary.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into() }
    }
}

impl Tailnet for Tailscale {
    async fn address(&self) -> Result<IpAddr, TailnetError> {
        let finished = command::run(&self.binary, &[SOCKET, "ip", "-4"], DEADLINE).await;
        let finished = finished.map_err(TailnetError::Silent)?;
        let line = finished.stdout.lines().map(str::trim).find(|line| !line.is_empty());
        match line.filter(|_| finished.code == Some(0)) {
            Some(line) => line
                .parse()
                .ok()
                .filter(|address: &Ipv4Addr| is_of_tailnet(*address))
                .map(IpAddr::V4)
                .ok_or_else(|| TailnetError::Foreign(line.to_owned())),
            None => Err(TailnetError::NotJoined(finished.said())),
        }
    }
}

/// The carrier-grade range, in which all tailnets are.
fn is_of_tailnet(address: Ipv4Addr) -> bool {
    let [first, second, ..] = address.octets();
    first == 100 && (64..128).contains(&second)
}

/// Asks for the address again and again: more often while there is none.
pub(crate) async fn run<V>(agent: &Agent<V>, tailnet: &impl Tailnet) -> Infallible {
    if let NodeIp::Given(_) = agent.config.node_ip {
        return std::future::pending().await;
    }
    loop {
        let timing = &agent.config.timing;
        let known = agent.node_ip().is_some();
        tokio::time::sleep(if known { timing.resync } else { timing.lease }).await;
        look(agent, tailnet).await;
    }
}

/// Asks for the address once, if the tailnet is where it comes from.
pub(crate) async fn look<V>(agent: &Agent<V>, tailnet: &impl Tailnet) {
    match agent.config.node_ip {
        NodeIp::Given(_) => {}
        NodeIp::Tailnet => {
            let answer = tailnet.address().await;
            let mut address = agent.address.lock().expect("no panic while the address is held");
            let now = next(&address, answer);
            if *address != now {
                tell(&now);
                *address = now;
            }
        }
    }
}

/// K6: the tailnet's address, or none. One that it once told is still its own while it is silent.
fn next(before: &Address, answer: Result<IpAddr, TailnetError>) -> Address {
    match (before, answer) {
        (_, Ok(address)) => Address::Known(address),
        (Address::Known(_), Err(_)) => before.clone(),
        (Address::Untold | Address::Awaited(_), Err(error)) => Address::Awaited(chain(&error)),
    }
}

fn tell(address: &Address) {
    match address {
        Address::Known(address) => tracing::info!(%address, "the Node's address in the tailnet"),
        Address::Awaited(why) => {
            tracing::warn!(why, "the Node has no address until the tailnet tells one");
        }
        Address::Untold => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_tailnets_own_address_is_ever_told() {
        // K6
        let address: IpAddr = "100.100.1.2".parse().unwrap();
        let silent = || Err(TailnetError::NotJoined("NeedsLogin".to_owned()));
        let awaited = next(&Address::Awaited("not asked yet".to_owned()), silent());
        assert!(matches!(&awaited, Address::Awaited(why) if why.contains("NeedsLogin")));
        let known = next(&awaited, Ok(address));
        assert_eq!(known, Address::Known(address));
        assert_eq!(next(&known, silent()), known, "a daemon that restarts moves nothing");
        let other: IpAddr = "100.100.1.3".parse().unwrap();
        assert_eq!(next(&known, Ok(other)), Address::Known(other));
        for (text, is) in [
            ("100.64.0.1", true),
            ("100.127.255.254", true),
            ("100.128.0.1", false),
            ("51.159.120.2", false),
            ("192.168.64.1", false),
        ] {
            assert_eq!(is_of_tailnet(text.parse().unwrap()), is, "{text}");
        }
    }
}
