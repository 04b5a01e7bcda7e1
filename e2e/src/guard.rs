//! Children that cannot outlive whoever started them, not even after `kill -9`.
//!
//! # Flow
//! [`spawn`] starts this very program as `guard <signal> <parent> <program> <argument>…`. The guard
//! asks the kernel for the signal when its parent dies, makes sure that the parent still lives, and
//! becomes the program: the request survives `exec`.
//!
//! # Assumptions
//! - The running program calls [`run`] when its first argument is [`VERB`].
//! - The program is not set-uid: the kernel would forget the request.
//! - What the program itself starts dies with it by its own care: the request is not inherited.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::sync::{OnceLock, mpsc};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, getppid};

/// The verb that makes this program a guard.
pub const VERB: &str = "guard";

/// This very program, even after a build has put another in its place.
const OURSELVES: &str = "/proc/self/exe";

/// Becomes the program that `arguments` (all after the verb) name. Returns only what went wrong.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> Result<()> {
    let mut arguments = arguments.into_iter();
    let mut next = |what: &str| arguments.next().with_context(|| format!("{VERB}: no {what}"));
    let signal = match next("signal")?.to_str() {
        Some("kill") => Signal::KILL,
        Some("term") => Signal::TERM,
        other => bail!("{VERB}: the signal is kill or term, not {other:?}"),
    };
    let parent = next("parent")?.to_str().and_then(|text| text.parse().ok());
    let program = next("program")?;
    die_with_parent(signal)?;
    // Whoever died before the line above sends no signal any more.
    ensure!(getppid() == parent.and_then(Pid::from_raw), "{VERB}: the parent is gone");
    let error = Command::new(&program).args(arguments).exec();
    Err(error).with_context(|| format!("could not start {}", program.display()))
}

/// Asks the kernel to signal this process when the thread that started it ends.
#[cfg(target_os = "linux")]
pub fn die_with_parent(signal: Signal) -> Result<()> {
    rustix::process::set_parent_process_death_signal(Some(signal))
        .context("the kernel does not tell of a parent's death")
}

/// Only Linux can.
#[cfg(not(target_os = "linux"))]
pub fn die_with_parent(_: Signal) -> Result<()> {
    bail!("only Linux can end the programs of a run that was killed: run this on Linux")
}

/// Starts `command` so that it is killed when this process dies, however it dies. Its arguments,
/// environment and folder are taken; `configure` sets the rest (output, process group).
pub fn spawn(command: &Command, configure: impl FnOnce(&mut Command)) -> io::Result<Child> {
    let mut guarded = Command::new(OURSELVES);
    guarded.args([VERB, "kill", &std::process::id().to_string()]);
    guarded.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => guarded.env(name, value),
            None => guarded.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        guarded.current_dir(folder);
    }
    configure(&mut guarded);
    let (reply, answer) = mpsc::sync_channel(1);
    let gone = || io::Error::other("the thread that starts programs is gone");
    spawner().send((guarded, reply)).map_err(|_| gone())?;
    answer.recv().map_err(|_| gone())?
}

type Order = (Command, mpsc::SyncSender<io::Result<Child>>);

/// The kernel means the *thread* that started a program when it says parent, so one thread that
/// lives as long as this process starts them all.
fn spawner() -> &'static mpsc::Sender<Order> {
    static SPAWNER: OnceLock<mpsc::Sender<Order>> = OnceLock::new();
    SPAWNER.get_or_init(|| {
        let (orders, queue) = mpsc::channel::<Order>();
        std::thread::spawn(move || {
            for (mut command, reply) in queue {
                // Whoever asked may have gone; the child then goes with its handle's process.
                let _ = reply.send(command.spawn());
            }
        });
        orders
    })
}
