//! Macs, simulated: a file tree, an account with a password, sudo, launchd, a login window, a
//! packet filter; behind the same edge as real ones, with levers for what goes wrong.
//!
//! A Mac understands the commands that the bootstrap sends, and nothing else: an unknown command
//! fails, so that a new one is modelled before it is used. It has no tasks of its own: time passes
//! for it only while it is looked at.

mod files;
mod gate;
mod launchd;
mod model;
mod outside;
mod pf;
mod pfctl;
mod scripts;
mod tools;
mod vms;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::keys::AGENT_JOB;
use applecart_mac::{
    Answer, Command, Dial, File, HostKey, Input, Mac, MacError, Output, Payload, Privilege,
    Program, Session, Target, TartBundle, public_key,
};
use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use gate::{ALWAYS, Mutates, NEVER, failed, refused};
pub use gate::{Effect, Gate, Open, Verdict};
pub use launchd::AgentHealth;
pub use outside::{DaemonChange, DaemonStart, OnDaemon, Sudo};
pub use pf::{OWN_ADDRESSES, Packet, VM_BRIDGE};

use files::Files;
use model::{Model, Notice};

use crate::tart::SimTart;

/// The account that Scaleway's Macs come with.
pub const USER: &str = "m1";

/// How many calls are remembered: a bootstrap is some hundred, and each may be a long script.
const REMEMBERED_CALLS: usize = 512;

/// How long a file's read or write may take, as over SSH.
const FILE_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a command goes on whose connection was lost.
const GOES_ON: Duration = Duration::from_secs(30);

/// How long connecting may take, as over SSH.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// What launchd started the agent with.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentStart {
    /// Its process's number, as launchd tells it.
    pub pid: u32,
    /// Its arguments, without the program.
    pub args: Vec<String>,
    /// Its environment, as its job says.
    pub environment: Vec<(String, String)>,
    /// Its kubeconfig as it was on disk then.
    pub kubeconfig: Option<Bytes>,
}

impl fmt::Debug for AgentStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentStart").field("args", &self.args).finish_non_exhaustive()
    }
}

/// Told when the agent's process starts.
pub type OnStart = Arc<dyn Fn(AgentStart) + Send + Sync>;

/// The public keys that open a Mac now.
pub type Keys = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

/// Told when the agent's process ends.
pub type OnStop = Arc<dyn Fn() + Send + Sync>;

/// A simulated Mac. Clones are the same Mac.
#[derive(Clone)]
pub struct SimMac {
    name: Arc<str>,
    state: Arc<Mutex<State>>,
}

struct State {
    model: Model,
    tart: Option<SimTart>,
    /// Every boot and wipe ends all connections.
    generation: u64,
    wipes: u64,
    off: bool,
    unreachable: bool,
    hangs: bool,
    latency: Duration,
    authorized: Option<Keys>,
    gate: Arc<dyn Gate>,
    hooks: Vec<(OnStart, OnStop)>,
    on_daemon: Option<OnDaemon>,
    calls: VecDeque<Effect>,
    remembered: usize,
    call_count: u64,
    mutation_count: u64,
}

impl SimMac {
    /// A Mac as Scaleway delivers it: account [`USER`] with `password`, nothing else set up.
    #[must_use]
    pub fn new(name: &str, password: &str) -> Self {
        Self::with(Files::default(), name, password)
    }

    fn with(files: Files, name: &str, password: &str) -> Self {
        let state = State {
            model: Model::factory(files, USER, password, &format!("{name} 0")),
            tart: None,
            generation: 0,
            wipes: 0,
            off: false,
            unreachable: false,
            hangs: false,
            latency: Duration::ZERO,
            authorized: None,
            gate: Arc::new(Open),
            hooks: Vec::new(),
            on_daemon: None,
            calls: VecDeque::new(),
            remembered: REMEMBERED_CALLS,
            call_count: 0,
            mutation_count: 0,
        };
        Self { name: name.into(), state: Arc::new(Mutex::new(state)) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.look_for_vms();
        state
    }

    /// Changes the Mac, then tells the hooks what happened, with the Mac unlocked again.
    fn change<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let before = state.model.vms;
        let result = act(&mut state);
        if state.model.vms < before {
            state.end_vms();
        }
        let notices = std::mem::take(&mut state.model.notices);
        // Most changes start and stop nothing.
        let hooks = if notices.is_empty() { Vec::new() } else { state.hooks.clone() };
        let on_daemon = state.on_daemon.clone();
        drop(state);
        for notice in notices {
            match notice {
                Notice::Started(start) => hooks.iter().for_each(|(tell, _)| tell(start.clone())),
                Notice::Stopped => hooks.iter().for_each(|(_, tell)| tell()),
                Notice::Daemon(change) => on_daemon.iter().for_each(|tell| tell(change.clone())),
            }
        }
        result
    }

    /// A connection, without dialling. A reboot ends it.
    #[must_use]
    pub fn connect(&self) -> SimSession {
        SimSession { mac: self.clone(), generation: self.lock().generation }
    }

    /// Calls these too, when the agent's process starts and ends, on whatever thread caused it.
    pub fn on_agent(&self, start: OnStart, stop: OnStop) {
        self.lock().hooks.push((start, stop));
    }

    /// Asks this gate about every call from now on.
    pub fn set_gate(&self, gate: Arc<dyn Gate>) {
        self.lock().gate = gate;
    }

    /// Lets in the holders of these public keys alone. Before the first call, any key opens.
    pub fn authorize(&self, public_keys: Vec<String>) {
        self.authorize_by(Arc::new(move || public_keys.clone()));
    }

    /// Lets in the holders of whatever public keys these are at the time.
    pub fn authorize_by(&self, keys: Keys) {
        self.lock().authorized = Some(keys);
    }

    /// Ends everything that runs, and every connection. Files stay.
    pub fn power_off(&self) {
        self.change(|state| {
            state.model.shut_down();
            state.generation += 1;
            state.off = true;
        });
    }

    /// Boots: what starts by itself, starts.
    pub fn power_on(&self) {
        self.change(|state| {
            state.off = false;
            state.model.boot();
        });
    }

    /// Power off, and on again.
    pub fn reboot(&self) {
        self.power_off();
        self.power_on();
    }

    /// What it calls this boot.
    #[must_use]
    pub fn boot_session(&self) -> String {
        self.lock().model.boot_session()
    }

    /// Nothing is left on the disk but what the factory put there, as a wipe begins.
    pub fn erase(&self) {
        let mut state = self.lock();
        state.model.files = state.model.files.wiped();
    }

    /// The factory's state with a new password and a new host key, powered on.
    pub fn wipe(&self, new_password: &str) {
        self.change(|state| {
            state.model.shut_down();
            let stopped = std::mem::take(&mut state.model.notices);
            state.wipes += 1;
            state.generation += 1;
            state.off = false;
            let seed = format!("{} {}", self.name, state.wipes);
            let files = state.model.files.wiped();
            state.model = Model::factory(files, USER, new_password, &seed);
            state.model.notices = stopped;
        });
    }

    /// Makes the network swallow everything, or not any more.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    /// Makes it take connections and answer nothing, or not any more.
    pub fn set_hanging(&self, hangs: bool) {
        self.lock().hangs = hangs;
    }

    /// Makes every call take this long.
    pub fn set_latency(&self, latency: Duration) {
        self.lock().latency = latency;
    }

    /// Makes the agent behave like this from its next start or look on.
    pub fn set_agent_health(&self, health: AgentHealth) {
        self.lock().model.agent_health = health;
    }

    /// Makes launchd refuse to restart loginwindow, as newer versions may.
    pub fn set_kickstart_refused(&self, refused: bool) {
        self.lock().model.kickstart_refused = refused;
    }

    /// Kills loginwindow; launchd does not start it again by itself.
    pub fn kill_loginwindow(&self) {
        self.change(|state| state.model.end_loginwindow());
    }

    /// Flushes our firewall rules, as a person or an update might.
    pub fn flush_firewall(&self) {
        self.lock().model.pf.flush_anchors();
    }

    /// Makes the next loads of rules meet another pfctl at work.
    pub fn set_firewall_busy(&self, loads: u32) {
        self.lock().model.pf.busy = loads;
    }

    /// Whether a packet gets through the live firewall.
    #[must_use]
    pub fn lets_pass(&self, packet: Packet) -> bool {
        self.lock().model.pf.passes(packet)
    }

    /// Puts bytes where a file is, or a new one: as a person or an older version would.
    pub fn put_file(&self, path: &str, content: impl Into<Bytes>) {
        self.lock().model.files.overwrite(path, content.into());
    }

    /// A file's content, owner and mode.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<(Bytes, String, u32)> {
        let state = self.lock();
        let stat = state.model.files.stat(path)?;
        Some((state.model.files.read(path)?, stat.owner, stat.mode))
    }

    /// Which file it is that is at a path now: another one for every file that was newly made.
    #[must_use]
    pub fn inode(&self, path: &str) -> Option<u64> {
        Some(self.lock().model.files.stat(path)?.inode)
    }

    /// The key that it shows since its last wipe.
    #[must_use]
    pub fn host_key(&self) -> HostKey {
        self.lock().model.host_key.clone()
    }

    /// How often a wrong password was tried since the last wipe.
    #[must_use]
    pub fn wrong_passwords(&self) -> u32 {
        self.lock().model.wrong_ever
    }

    /// How often a wrong password was tried since a right one, or since it booted.
    #[must_use]
    pub fn wrong_in_a_row(&self) -> u32 {
        self.lock().model.wrong_in_a_row
    }

    /// Whether a user is logged in on the screen.
    #[must_use]
    pub fn has_session(&self) -> bool {
        self.change(|state| {
            state.model.pass_time();
            state.model.has_session()
        })
    }

    /// The agent's process, if it runs.
    #[must_use]
    pub fn agent_pid(&self) -> Option<u32> {
        self.change(|state| {
            state.model.pass_time();
            state.model.launchd.job(launchd::Domain::System, AGENT_JOB)?.pid
        })
    }

    /// The latest calls, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<Effect> {
        self.lock().calls.iter().cloned().collect()
    }

    /// Remembers no more than so many calls from now on.
    pub fn remember(&self, calls: usize) {
        self.lock().remembered = calls;
    }

    /// How many calls there were, and how many of them could change anything.
    #[must_use]
    pub fn call_counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.call_count, state.mutation_count)
    }

    /// Notes a call, and finds out what becomes of it.
    fn judge(&self, what: &str, mutates: Mutates) -> (Verdict, Effect) {
        let mut state = self.lock();
        let (mac, mutates) = (self.name.to_string(), mutates(&state.model));
        let effect = Effect { mac, index: state.call_count, mutates, what: what.to_owned() };
        state.call_count += 1;
        state.mutation_count += u64::from(mutates);
        state.calls.push_back(effect.clone());
        while state.calls.len() > state.remembered {
            state.calls.pop_front();
        }
        let gate = state.gate.clone();
        drop(state);
        (gate.verdict(&effect), effect)
    }
}

impl fmt::Debug for SimMac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SimMac").field(&self.name).finish()
    }
}

/// One connection to a simulated Mac.
#[derive(Clone, Debug)]
pub struct SimSession {
    mac: SimMac,
    generation: u64,
}

impl SimSession {
    async fn call<T: 'static>(
        &self,
        what: String,
        mutates: Mutates,
        after: Duration,
        fail: fn(&str) -> Result<T, MacError>,
        act: impl FnOnce(&mut Model) -> Result<T, MacError> + Send + 'static,
    ) -> Result<T, MacError> {
        let attempt = self.attempt(&what, mutates, fail, act);
        match timeout(after, attempt).await {
            Ok(result) => result,
            Err(_) => Err(MacError::TimedOut { doing: what, after }),
        }
    }

    async fn attempt<T: 'static>(
        &self,
        what: &str,
        mutates: Mutates,
        fail: fn(&str) -> Result<T, MacError>,
        act: impl FnOnce(&mut Model) -> Result<T, MacError> + Send + 'static,
    ) -> Result<T, MacError> {
        let latency = self.mac.lock().latency;
        if !latency.is_zero() {
            sleep(latency).await;
        }
        let (verdict, effect) = self.mac.judge(what, mutates);
        let lost = || Err(MacError::Unknown { doing: what.to_owned() });
        let (silent, gone) = {
            let state = self.mac.lock();
            (state.hangs || state.unreachable, state.generation != self.generation || state.off)
        };
        if gone || verdict == Verdict::FailBefore {
            return lost();
        }
        if silent || verdict == Verdict::HangBefore {
            return std::future::pending().await;
        }
        if verdict == Verdict::LostRunning {
            let late = Box::new(move |model: &mut Model| drop(act(model)));
            self.mac.lock().model.leftovers.push((Instant::now() + GOES_ON, late));
            return lost();
        }
        let result = if verdict == Verdict::Fails {
            fail(what)
        } else {
            self.mac.change(|state| {
                state.model.pass_time();
                act(&mut state.model)
            })
        };
        let gate = self.mac.lock().gate.clone();
        gate.answered(&effect, if result.is_ok() { "ok" } else { "refused" });
        if verdict == Verdict::HangAfter {
            return std::future::pending().await;
        }
        result
    }
}

impl Mac for SimSession {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        let (doing, path) = (format!("reading {path}"), path.to_owned());
        Box::pin(self.call(doing.clone(), NEVER, FILE_TIMEOUT, refused, move |model| {
            needs_sudo(model, &doing)?;
            Ok(model.files.read(&path))
        }))
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        let (doing, file) = (format!("writing {}", file.path), file.clone());
        Box::pin(self.call(doing.clone(), ALWAYS, FILE_TIMEOUT, refused, move |model| {
            needs_sudo(model, &doing)?;
            model.needs_room(&doing)?;
            let content = file.content.expose().clone();
            model.files.replace(&file.path, content, &file.owner.to_string(), file.mode);
            Ok(())
        }))
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        let mutates = match &command.program {
            Program::Argv(argv) => {
                tools::mutates(&argv.iter().map(String::as_str).collect::<Vec<_>>())
            }
            Program::Script(script, _) => scripts::mutates(*script),
        };
        let (line, after, command) = (command.line(), command.timeout, command.clone());
        Box::pin(self.call(line, mutates, after, failed, move |model| Ok(execute(model, &command))))
    }
}

fn needs_sudo(model: &Model, doing: &str) -> Result<(), MacError> {
    if model.sudo_is_free() {
        return Ok(());
    }
    let stderr = "sudo: a password is required".to_owned();
    Err(MacError::Refused { doing: doing.to_owned(), status: 1, stderr })
}

fn execute(model: &mut Model, command: &Command) -> Output {
    let mut stdin = match &command.stdin {
        Input::Hidden(bytes) => bytes.expose().clone(),
        Input::Payload(payload) => match payload.bytes() {
            Ok(bytes) => bytes,
            Err(error) => return tools::fail(1, format!("cannot read what is sent: {error}\n")),
        },
    };
    if let Some(refused) = sudo(model, command.privilege, &mut stdin) {
        return refused;
    }
    match &command.program {
        Program::Argv(argv) => {
            let as_root = command.privilege != Privilege::User;
            tools::run(model, &argv.iter().map(String::as_str).collect::<Vec<_>>(), as_root)
        }
        Program::Script(script, arguments) => scripts::run(model, *script, arguments, &stdin),
    }
}

/// What sudo says instead of running the command, if it does. A password that it asks for is the
/// first line of stdin; one that it does not ask for stays there, for the command to read.
fn sudo(model: &mut Model, privilege: Privilege, stdin: &mut Bytes) -> Option<Output> {
    if privilege == Privilege::User || model.sudo_is_free() {
        return None;
    }
    let complaint = model.sudo_complaint();
    if privilege == Privilege::Root {
        return Some(tools::fail(1, format!("{complaint}sudo: a password is required\n")));
    }
    let end = stdin.iter().position(|&byte| byte == b'\n').map_or(stdin.len(), |at| at + 1);
    let line = stdin.split_to(end);
    if model.try_password(String::from_utf8_lossy(&line).trim_end_matches('\n')) {
        return None;
    }
    let said = "Sorry, try again.\nsudo: 1 incorrect password attempt\n";
    Some(tools::fail(1, format!("{complaint}{said}")))
}

/// The network that simulated Macs are on, by address.
#[derive(Clone, Debug, Default)]
pub struct SimNetwork(Arc<Mutex<BTreeMap<String, SimMac>>>);

impl SimNetwork {
    /// Puts a Mac at an address.
    pub fn insert(&self, address: &str, mac: SimMac) {
        let mut macs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        macs.insert(address.to_owned(), mac);
    }

    /// The Mac at an address.
    #[must_use]
    pub fn get(&self, address: &str) -> Option<SimMac> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(address).cloned()
    }
}

impl Dial for SimNetwork {
    fn dial<'a>(&'a self, target: &'a Target) -> Answer<'a, Session> {
        Box::pin(async move {
            let address = format!("{}:{}", target.address, target.port);
            let mac = self.get(&target.address);
            let reachable = mac.filter(|mac| {
                let state = mac.lock();
                !state.off && !state.unreachable && !state.hangs
            });
            let Some(mac) = reachable else {
                sleep(CONNECT_TIMEOUT).await;
                let within = CONNECT_TIMEOUT;
                return Err(MacError::Unreachable { address, within, source: None });
            };
            let latency = mac.lock().latency;
            if !latency.is_zero() {
                sleep(latency).await;
            }
            let (verdict, effect) = mac.judge("dial", NEVER);
            if verdict != Verdict::Pass {
                sleep(CONNECT_TIMEOUT).await;
                let within = CONNECT_TIMEOUT;
                return Err(MacError::Unreachable { address, within, source: None });
            }
            let gate = mac.lock().gate.clone();
            gate.answered(&effect, "ok");
            let seen = mac.host_key();
            if let Some(pinned) = target.pinned.clone().filter(|pinned| *pinned != seen) {
                return Err(MacError::HostKeyChanged { address, pinned, seen });
            }
            let authorized = mac.lock().authorized.clone();
            if let Some(keys) = authorized
                && !keys().contains(&public_key(&target.key)?)
            {
                return Err(MacError::AuthRefused { user: target.user.to_string(), address });
            }
            Ok(Session { mac: Arc::new(mac.connect()), host_key: seen })
        })
    }
}

/// A Tart archive that a simulated Mac can unpack.
#[must_use]
pub fn tart_bundle(version: &str) -> TartBundle {
    TartBundle { version: version.to_owned(), archive: Payload::new(format!("tart {version}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_remembers_its_latest_calls_and_no_more_than_it_shall() {
        let mac = SimMac::new("mac", "password");
        mac.remember(2);
        for what in ["one", "two", "three"] {
            mac.judge(what, NEVER);
        }
        let calls: Vec<String> = mac.calls().into_iter().map(|call| call.what).collect();
        assert_eq!(calls, ["two", "three"]);
        assert_eq!(mac.call_counts(), (3, 0));
    }
}
