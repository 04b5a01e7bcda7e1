//! Sweeps, benchmarks and soaks. `cargo xtask sweep`, `bench` and `soak` call this.

mod bench;
mod oracle;
mod run;
mod scenario;
mod sweep;

use std::process::ExitCode;
use std::time::Duration;

use applecart_sim::faults::Fault;
use clap::{Parser, Subcommand};
use scenario::Scenario;

/// The real controllers in a simulated world, with faults.
#[derive(Debug, Parser)]
#[command(name = "applecart-sweep", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs each scenario once for every effect and every fault; ends with 1 if any run breaks.
    ///
    /// With --effect and --fault, replays that one run and prints its trace.
    Sweep {
        /// Only this scenario; without one, all of them.
        scenario: Option<Scenario>,
        /// Seed of schedules, ids and names.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Replay: number of the effect that goes wrong.
        #[arg(long, requires_all = ["fault", "scenario"])]
        effect: Option<usize>,
        /// Replay: crash-before, crash-after, error, denied or lost-answer.
        #[arg(long, requires = "effect")]
        fault: Option<Fault>,
    },
    /// Measures: how long N Machines take to become Ready, and how fast the simulators are.
    Bench {
        /// What to measure.
        #[arg(value_enum, default_value_t = bench::What::Claims)]
        what: bench::What,
        /// Hosts, and for claims as many Machines.
        #[arg(long)]
        hosts: Option<usize>,
    },
    /// Sweeps with one seed after another, until the time is up or a run breaks.
    Soak {
        /// For how long.
        #[arg(long, default_value_t = 10)]
        minutes: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
}

fn main() -> anyhow::Result<ExitCode> {
    let sound = match Arguments::parse().verb {
        Verb::Sweep {
            scenario: Some(scenario),
            seed,
            effect: Some(effect),
            fault: Some(fault),
        } => sweep::replay(scenario, seed, effect, fault),
        Verb::Sweep { scenario, seed, .. } => sweep::all(scenario, seed),
        Verb::Bench { what, hosts } => {
            bench::run(what, hosts)?;
            true
        }
        Verb::Soak { minutes, seed } => sweep::soak(Duration::from_mins(minutes), seed),
    };
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
