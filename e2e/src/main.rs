//! `cargo xtask e2e`: runs the scenarios on a real control plane.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use applecart_e2e::bench::{self, Case};
use applecart_e2e::{guard, runner};
use clap::Parser;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

const AFTER: &str = "\
Environment:
  KUBEBUILDER_ASSETS   a folder with etcd, kube-apiserver and kubectl, instead of building them
  KUBECONFIG           a cluster on loopback that may be used, instead of starting one
  XDG_CACHE_HOME       what is built is kept in applecart/e2e under it (default: ~/.cache)

Examples:
  cargo xtask e2e                         every scenario
  cargo xtask e2e --list                  what there is
  cargo xtask e2e contract_               those with `contract_` in their names
  cargo xtask e2e --seed 7 a_fleet_grows  kill processes at other moments
  cargo xtask e2e --keep our_definitions  and then a control plane to look at, until Ctrl-C";

/// Run scenarios on a real Kubernetes control plane with Cluster API's own manager.
#[derive(Parser)]
#[command(name = "cargo xtask e2e", bin_name = "cargo xtask e2e", after_help = AFTER)]
struct CommandLine {
    /// Run those whose names contain one of these; all if none is given
    #[arg(value_name = "SCENARIO")]
    scenarios: Vec<String>,
    /// Name the scenarios and run none
    #[arg(long)]
    list: bool,
    /// Leave the control plane up after the scenarios, until Ctrl-C, and print its kubeconfig
    #[arg(long)]
    keep: bool,
    /// Seeds the moments at which processes are killed, and the ids of simulated hosts; a scenario
    /// that failed names the seed that it ran with
    #[arg(long, default_value_t = 1, value_name = "N")]
    seed: u64,
}

/// The verb that measures.
const BENCH: &str = "bench";

/// Measures claims on a real API server: calls to Scaleway by operation, wall time, memory.
#[derive(Parser)]
#[command(name = "cargo xtask bench claims", bin_name = "cargo xtask bench claims")]
struct Bench {
    /// How many Machines, and as many hosts in the pool; may be repeated
    #[arg(long, value_name = "N", default_values_t = [10, 100, 1000])]
    machines: Vec<usize>,
    /// The provider to measure; `cargo xtask` builds it as it is shipped
    #[arg(long, value_name = "PROGRAM")]
    provider: Option<PathBuf>,
    /// How long Scaleway takes to answer, in milliseconds; may be repeated
    #[arg(long, value_name = "MS", default_values_t = [0, 50])]
    delay: Vec<u64>,
}

impl Bench {
    fn cases(&self) -> Vec<Case> {
        let case = |machines, delay| Case { machines, delay: Duration::from_millis(delay) };
        let of = |machines: &usize| self.delay.iter().map(|ms| case(*machines, *ms)).collect();
        self.machines.iter().flat_map(|machines| -> Vec<Case> { of(machines) }).collect()
    }
}

/// The exit code of a program that Ctrl-C ended, by custom.
const INTERRUPTED: u8 = 130;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let done = match arguments.split_first() {
        Some((verb, rest)) if verb == guard::VERB => {
            guard::run(rest.to_vec()).map(|()| ExitCode::SUCCESS)
        }
        Some((verb, rest)) if verb == BENCH => {
            // Its name first, as a parser expects it.
            let bench = Bench::parse_from([verb].into_iter().chain(rest));
            let (cases, provider) = (bench.cases(), bench.provider.as_deref());
            guarded(async { bench::claims(&cases, provider).await.map(|()| true) })
        }
        _ => run(&CommandLine::parse()),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::from(2)
    })
}

/// 0: all that ran passed; 1: a scenario failed; 2: it could not be done.
fn run(typed: &CommandLine) -> Result<ExitCode> {
    if typed.list {
        runner::list();
        return Ok(ExitCode::SUCCESS);
    }
    guarded(runner::run(&typed.scenarios, typed.keep, typed.seed))
}

/// Runs `work` and all that it starts, until it is done or we are told to stop.
fn guarded(work: impl Future<Output = Result<bool>>) -> Result<ExitCode> {
    // Whoever started us may be killed; then we end, and all that we started with us.
    guard::die_with_parent(Signal::TERM)?;
    let runtime = tokio::runtime::Runtime::new().context("no runtime")?;
    runtime.block_on(async {
        tokio::select! {
            passed = work => Ok(if passed? { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
            // The run is dropped here, and with it everything that it started.
            stopped = interrupted() => stopped.map(|()| ExitCode::from(INTERRUPTED)),
        }
    })
}

async fn interrupted() -> Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen to SIGTERM")?;
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => pressed.context("cannot listen to Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
