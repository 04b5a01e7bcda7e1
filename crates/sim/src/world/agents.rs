//! The real agent on each Mac: started and stopped by that Mac's launchd, nobody else.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::ids::ServerId;
use secrecy::SecretString;
use tart_kubelet::{Config, Tailnet, TailnetError};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::World;
use crate::faults::{GatedTart, Process};
use crate::mac::{AgentStart, SimMac};

/// launchd waits so long before it starts a job again that crashed.
const THROTTLE: Duration = Duration::from_secs(10);

/// What a Mac's launchd did.
enum Notice {
    Started(ServerId, AgentStart),
    Stopped(ServerId),
}

/// Runs the agents until dropped, which ends them all; their VMs live on.
pub async fn run(world: &World) {
    let (sender, mut notices) = mpsc::unbounded_channel();
    let mut known = BTreeSet::new();
    listen(world, &sender, &mut known);
    let mut tasks = JoinSet::new();
    let mut running: BTreeMap<ServerId, AbortHandle> = BTreeMap::new();
    loop {
        tokio::select! {
            biased;
            Some(notice) = notices.recv() => match notice {
                Notice::Started(id, start) => {
                    let task = start_agent(world, &mut tasks, &id, &start);
                    if let Some(earlier) = task.and_then(|task| running.insert(id, task)) {
                        earlier.abort();
                    }
                }
                Notice::Stopped(id) => {
                    if let Some(task) = running.remove(&id) {
                        task.abort();
                    }
                }
            },
            Some(_) = tasks.join_next() => {}
            () = world.delivered.notified() => listen(world, &sender, &mut known),
        }
    }
}

/// Listens to the launchd of every Mac that there is by now.
fn listen(world: &World, sender: &mpsc::UnboundedSender<Notice>, known: &mut BTreeSet<ServerId>) {
    for (id, host) in world.sight.hosts().iter() {
        if !known.insert(id.clone()) {
            continue;
        }
        let (started, stopped) = (sender.clone(), sender.clone());
        let (start_id, stop_id) = (id.clone(), id.clone());
        // Nobody listens any more once the agents' future is gone, and then nothing shall start.
        host.mac.on_agent(
            Arc::new(move |start| drop(started.send(Notice::Started(start_id.clone(), start)))),
            Arc::new(move || drop(stopped.send(Notice::Stopped(stop_id.clone())))),
        );
    }
}

/// Starts the agent as its job says; a job that makes no sense starts nothing, as on a Mac.
fn start_agent(
    world: &World,
    tasks: &mut JoinSet<()>,
    id: &ServerId,
    start: &AgentStart,
) -> Option<AbortHandle> {
    let hosts = world.sight.hosts();
    let host = hosts.get(id)?;
    let args = std::iter::once("tart-kubelet".to_owned()).chain(start.args.iter().cloned());
    let config = match Config::from_args(args) {
        Ok(config) => config,
        Err(error) => {
            tracing::error!(%error, "the agent does not understand its arguments");
            return None;
        }
    };
    let config = Config { timing: config.timing.scaled(world.settings.speed), ..config };
    let kubeconfig = start.kubeconfig.as_deref().unwrap_or_default();
    let (Some(server), Some(token)) = (entry(kubeconfig, "server"), entry(kubeconfig, "token"))
    else {
        tracing::error!("the agent's kubeconfig has no server or no token");
        return None;
    };
    // It is another cluster's agent.
    if server != world.settings.api_url {
        return None;
    }
    let token = SecretString::from(token);
    let process = Process::Agent(config.node_name().to_owned());
    let (tart, clock) = (host.tart.clone(), world.process_clock());
    let tailnet = SimTailnet(host.mac.clone());
    let faults = world.settings.faults.clone();
    let throttle = world.settings.scale(THROTTLE);
    let api = world.api().clone();
    Some(tasks.spawn(async move {
        loop {
            let client = api.client_with_token(token.clone());
            let vm = GatedTart::new(tart.clone(), process.clone(), faults.clone());
            let (config, tailnet, clock) = (config.clone(), tailnet.clone(), clock.clone());
            let crashed = async {
                match &faults {
                    Some(faults) => faults.crashed(&process).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = crashed => tokio::time::sleep(throttle).await,
                _ = tart_kubelet::run(config, client, vm, tailnet, clock) => {}
            }
        }
    }))
}

/// The tailnet that a simulated Mac is in.
#[derive(Clone)]
struct SimTailnet(SimMac);

impl Tailnet for SimTailnet {
    async fn address(&self) -> Result<IpAddr, TailnetError> {
        let address = self.0.tailnet_address();
        address.ok_or_else(|| TailnetError::NotJoined("no current Tailscale IPs".to_owned()))
    }
}

/// What a kubeconfig says under `key`, as the provider writes it.
fn entry(kubeconfig: &[u8], key: &str) -> Option<String> {
    let text = std::str::from_utf8(kubeconfig).ok()?;
    let of_key = |line: &str| Some(line.trim().strip_prefix(key)?.strip_prefix(": ")?.to_owned());
    text.lines().find_map(of_key)
}
