//! `applecart`: the one command line. One file per verb.

#[cfg(feature = "demo")]
mod demo;
#[cfg(feature = "demo")]
mod sim;

use std::process::ExitCode;

use anyhow::Context;
use applecart_api::clock::Clock;
use clap::{Parser, Subcommand};
use jiff::Timestamp;

/// Runs fleets of rented Mac minis as ordinary Kubernetes nodes, for CI.
///
/// Logs go to standard error, if the environment asks for them: `RUST_LOG=info`.
#[derive(Debug, Parser)]
#[command(name = "applecart", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Shows the whole of Applecart at work on this machine, with everything outside simulated.
    #[cfg(feature = "demo")]
    Demo(demo::Arguments),
    /// Runs a part of the outside world on this machine, for any client to be pointed at.
    #[cfg(feature = "demo")]
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    log();
    match run(arguments.verb) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(verb: Verb) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .context("could not start the runtime")?;
    let result = match verb {
        #[cfg(feature = "demo")]
        Verb::Demo(arguments) => runtime.block_on(demo::run(&arguments)),
        #[cfg(feature = "demo")]
        Verb::Sim(arguments) => runtime.block_on(sim::run(arguments)),
    };
    // Tasks hold nothing that outlives the process; do not wait for them.
    runtime.shutdown_background();
    result
}

/// The one place that asks the system for the time.
#[expect(clippy::disallowed_methods, reason = "a process hands out the system's clock once")]
fn system_clock() -> Clock {
    Clock::new(Timestamp::now)
}

/// Logs on standard error, as far as `RUST_LOG` asks for them.
fn log() {
    if let Ok(filter) = tracing_subscriber::EnvFilter::try_from_default_env() {
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    }
}
