//! One Mac: its disk, its power, its agent; all that Scaleway, a lever or its own launchd does to
//! it.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use applecart_api::keys::AGENT_JOB;
use applecart_mac::paths;
use futures::future::select_all;
use serde::Deserialize;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::process::{Change, Process};
use super::sandbox::{As, Sandbox};
use super::{Handle, KeysCome, MacsError, MacsSettings, WORKSHOP, disk, socket};
use crate::mac::{AgentStart, DaemonChange, DaemonStart, SimMac};
use crate::tart::{Durations, SimTart};

/// Where the project's keys are on Scaleway's Macs.
const PROJECT_KEYS: &str = "/Users/m1/.ssh/scw_authorized_keys";

/// Where an agent of this machine's is in every Mac.
const GIVEN: &str = "/.applecart/tools/agent";

/// What launchd gives a daemon whose job says nothing of it.
const DAEMON_PATH: &str = "/.applecart/tools/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// A host as the simulated Scaleway tells it.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Seen {
    pub id: applecart_api::ids::ServerId,
    pub name: String,
    pub ip: Ipv4Addr,
    status: String,
    wipes: u64,
    power_cycles: u64,
    password: String,
    host_key: [u8; 32],
}

impl Seen {
    fn is_down(&self) -> bool {
        ["reinstalling", "rebooting", "starting"].contains(&self.status.as_str())
    }
}

/// What a Mac is told to do.
#[derive(Clone, Debug)]
pub(super) enum Order {
    /// This is what Scaleway makes of it, and these are the project's keys.
    Follow(Box<Seen>, Arc<Vec<String>>),
    /// Take connections and say nothing, or go on.
    Hang(bool),
    /// Let nobody's key in, or the project's again.
    RefuseKeys(bool),
    /// Have no room on the disk, or as much as before.
    FillDisk(bool),
    /// Power off, and on again.
    Reboot,
    /// Kill the agent's process.
    KillAgent,
}

enum Notice {
    Started(AgentStart),
    Stopped,
    Daemon(DaemonChange),
}

/// A Mac.
pub(super) struct Host {
    settings: MacsSettings,
    folder: PathBuf,
    mac: SimMac,
    tart: SimTart,
    /// How Scaleway last showed it.
    seen: Seen,
    /// The project's keys that came to it; none before its first boot.
    keys: Option<Arc<Vec<String>>>,
    refuses_keys: bool,
    hangs: bool,
    sandbox: Option<Sandbox>,
    agent: Process,
    /// By label.
    daemons: BTreeMap<String, Process>,
    notices: mpsc::UnboundedReceiver<Notice>,
    orders: mpsc::UnboundedReceiver<Order>,
    /// Serves its tools.
    sockets: JoinSet<()>,
}

impl Host {
    /// A Mac fresh from the factory, off.
    pub(super) async fn new(
        settings: &MacsSettings,
        seen: Seen,
    ) -> Result<(Self, Handle), MacsError> {
        if !seen.ip.is_loopback() {
            return Err(MacsError::NotLoopback { name: seen.name, address: seen.ip });
        }
        let folder = Path::new(WORKSHOP).join(seen.id.to_string());
        let root = folder.join("disk");
        disk::format(&root, settings.disk_mb, identity(settings, &seen)).await?;
        let mac = SimMac::on_disk(seen.id.as_str(), &seen.password, &root);
        mac.power_off();
        let tart = SimTart::new(settings.clock.clone());
        tart.set_durations(Durations::default().scaled(settings.speed));
        tart.set_job(settings.job.map(|job| job.div_f64(settings.speed)));
        let (told, notices) = mpsc::unbounded_channel();
        let (started, stopped, daemons) = (told.clone(), told.clone(), told);
        // Nobody listens any more once the Mac is gone.
        mac.on_agent(
            Arc::new(move |start| drop(started.send(Notice::Started(start)))),
            Arc::new(move || drop(stopped.send(Notice::Stopped))),
        );
        mac.on_daemon(Arc::new(move |change| drop(daemons.send(Notice::Daemon(change)))));
        let (sender, orders) = mpsc::unbounded_channel();
        let handle = Handle {
            name: seen.name.clone(),
            address: seen.ip,
            mac: mac.clone(),
            tart: tart.clone(),
            orders: sender,
        };
        let sockets = serve_tools(&folder, &mac, &tart).await?;
        let host = Self {
            settings: settings.clone(),
            folder,
            mac,
            tart,
            seen,
            keys: None,
            refuses_keys: false,
            hangs: false,
            sandbox: None,
            agent: Process::default(),
            daemons: BTreeMap::new(),
            notices,
            orders,
            sockets,
        };
        Ok((host, handle))
    }

    /// Lives until nobody can give it orders any more.
    pub(super) async fn live(mut self) -> Result<(), MacsError> {
        loop {
            tokio::select! {
                biased;
                Some(notice) = self.notices.recv() => self.hear(notice)?,
                order = self.orders.recv() => match order {
                    Some(order) => self.obey(order).await?,
                    None => break,
                },
                () = ended(&mut self.sandbox) => {
                    tracing::warn!(mac = self.seen.name, "its SSH server ended; it is rebooted");
                    self.power_off().await;
                    self.power_on().await?;
                }
                change = self.agent.next() => match change {
                    Change::Ended(pid) => self.mac.process_ended(pid),
                    Change::Again => self.mac.keep_alive(AGENT_JOB),
                },
                (label, change) = next_of(&mut self.daemons) => match change {
                    Change::Ended(pid) => self.mac.process_ended(pid),
                    Change::Again => self.mac.keep_alive(&label),
                },
                Some(_) = self.sockets.join_next() => {}
            }
        }
        self.power_off().await;
        Ok(())
    }

    fn hear(&mut self, notice: Notice) -> Result<(), MacsError> {
        match (notice, &self.sandbox) {
            (Notice::Started(start), Some(sandbox)) => {
                let given = self.settings.agent.is_some();
                let mut words = vec![if given { GIVEN } else { paths::AGENT }.to_owned()];
                words.extend_from_slice(&start.args);
                let log = paths::AGENT_LOG;
                let program = sandbox.program(As::User, &words, &start.environment, log);
                return self.agent.start(start.pid, program);
            }
            (Notice::Daemon(DaemonChange::Started(start)), Some(sandbox)) => {
                let environment = [("PATH".to_owned(), DAEMON_PATH.to_owned())];
                let log = start.log.as_deref().unwrap_or("/dev/null");
                let program = sandbox.program(As::Root, &start.words, &environment, log);
                return self.daemons.entry(start.label).or_default().start(start.pid, program);
            }
            (Notice::Started(_) | Notice::Stopped, _) => self.agent.stop(),
            (
                Notice::Daemon(
                    DaemonChange::Started(DaemonStart { label, .. }) | DaemonChange::Stopped(label),
                ),
                _,
            ) => {
                if let Some(mut daemon) = self.daemons.remove(&label) {
                    daemon.stop();
                }
            }
        }
        Ok(())
    }

    async fn obey(&mut self, order: Order) -> Result<(), MacsError> {
        match order {
            Order::Follow(seen, keys) => return self.follow(*seen, keys).await,
            Order::Hang(hangs) => {
                self.hangs = hangs;
                self.mac.set_hanging(hangs);
                if let Some(sandbox) = &self.sandbox {
                    sandbox.hang(hangs);
                }
            }
            Order::RefuseKeys(refuses) => {
                self.refuses_keys = refuses;
                self.write_keys();
            }
            Order::FillDisk(full) => {
                disk::set_full(&self.root(), self.settings.disk_mb, full).await?;
            }
            Order::Reboot if self.sandbox.is_some() => {
                self.power_off().await;
                self.power_on().await?;
            }
            Order::Reboot => {}
            Order::KillAgent => self.agent.kill(),
        }
        Ok(())
    }

    /// Does to the Mac what Scaleway did to the host.
    async fn follow(&mut self, seen: Seen, keys: Arc<Vec<String>>) -> Result<(), MacsError> {
        let cycled = seen.power_cycles != self.seen.power_cycles;
        let wiped = seen.wipes != self.seen.wipes;
        if cycled || wiped || seen.is_down() {
            self.power_off().await;
        }
        // A Mac that is being wiped has its new disk when it is done.
        if wiped && seen.is_down() {
            return Ok(());
        }
        let known = self.keys.as_ref();
        let new_keys =
            known.is_none_or(|known| **known != *keys && self.settings.keys == KeysCome::AtOnce);
        self.seen = seen;
        if wiped {
            let who = identity(&self.settings, &self.seen);
            disk::format(&self.root(), self.settings.disk_mb, who).await?;
            self.tart.wipe();
            self.mac.wipe(&self.seen.password);
            self.mac.power_off();
        }
        if wiped || new_keys {
            self.keys = Some(keys);
            self.write_keys();
        }
        if self.sandbox.is_none() && !self.seen.is_down() {
            self.power_on().await?;
        }
        Ok(())
    }

    async fn power_on(&mut self) -> Result<(), MacsError> {
        let tools = Path::new(WORKSHOP).join("tools");
        let sandbox = Sandbox::start(&self.root(), &self.folder.join("run"), &tools).await?;
        sandbox.hang(self.hangs);
        self.sandbox = Some(sandbox);
        self.mac.power_on();
        tracing::info!(mac = self.seen.name, address = %self.seen.ip, "on");
        Ok(())
    }

    async fn power_off(&mut self) {
        let Some(sandbox) = self.sandbox.take() else { return };
        self.mac.power_off();
        self.agent.stop();
        self.daemons.clear();
        sandbox.cut().await;
        for vm in self.tart.running() {
            let _killed = self.tart.kill(&vm);
        }
        tracing::info!(mac = self.seen.name, "off");
    }

    fn write_keys(&self) {
        let keys = self.keys.as_ref().filter(|_| !self.refuses_keys);
        let text = keys.map(|keys| keys.join("\n") + "\n").unwrap_or_default();
        self.mac.put_file(PROJECT_KEYS, text);
    }

    fn root(&self) -> PathBuf {
        self.folder.join("disk")
    }
}

/// Waits for what happens next to any daemon.
async fn next_of(daemons: &mut BTreeMap<String, Process>) -> (String, Change) {
    if daemons.is_empty() {
        return std::future::pending().await;
    }
    let each = daemons
        .iter_mut()
        .map(|(label, daemon)| Box::pin(async move { (label.clone(), daemon.next().await) }));
    select_all(each).await.0
}

async fn ended(sandbox: &mut Option<Sandbox>) {
    match sandbox {
        Some(sandbox) => sandbox.ended().await,
        None => std::future::pending().await,
    }
}

fn identity(settings: &MacsSettings, seen: &Seen) -> disk::Identity {
    disk::Identity { address: seen.ip, port: settings.ssh_port, host_key: seen.host_key }
}

async fn serve_tools(
    folder: &Path,
    mac: &SimMac,
    tart: &SimTart,
) -> Result<JoinSet<()>, MacsError> {
    let made = || MacsError::machine("making a Mac's socket");
    tokio::fs::create_dir_all(folder.join("run")).await.map_err(made())?;
    let listener = UnixListener::bind(folder.join("run/socket")).map_err(made())?;
    let mut tasks = JoinSet::new();
    tasks.spawn(socket::serve(listener, mac.clone(), tart.clone()));
    Ok(tasks)
}
