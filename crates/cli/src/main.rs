//! `applecart`: the one command line. One file per verb.

#[cfg(feature = "demo")]
mod demo;
mod prepare_host;
mod provider;
mod runner_pools;
mod serving;
#[cfg(feature = "demo")]
mod sim;

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::Context;
use applecart_api::clock::Clock;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use jiff::Timestamp;

/// Runs fleets of rented Mac minis as ordinary Kubernetes nodes, for CI.
///
/// Logs go to standard error; `RUST_LOG` says how much, such as `RUST_LOG=info`.
#[derive(Debug, Parser)]
#[command(name = "applecart", version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one value a process")]
enum Verb {
    /// Runs the provider: claims Macs for Machines, bootstraps them, returns them wiped.
    Provider(provider::Arguments),
    /// Runs the runner pools: keeps warm, single-use CI runners.
    RunnerPools(runner_pools::Arguments),
    /// Prepares a Mac by hand: passwordless sudo, and a login that survives a reboot.
    PrepareHost(prepare_host::Arguments),
    /// Shows the whole of Applecart at work on this machine, with everything outside simulated.
    #[cfg(feature = "demo")]
    Demo(demo::Arguments),
    /// Runs a part of the outside world on this machine, for any client to be pointed at.
    #[cfg(feature = "demo")]
    Sim(sim::Args),
}

fn main() -> ExitCode {
    let is_empty = |name: &OsStr| std::env::var_os(name).is_some_and(|value| value.is_empty());
    let command = serving::without_empty_variables(Arguments::command(), &is_empty);
    let arguments = Arguments::from_arg_matches(&command.get_matches());
    let arguments = arguments.unwrap_or_else(|error| error.exit());
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
        Verb::Provider(arguments) => runtime.block_on(provider::run(arguments)),
        Verb::RunnerPools(arguments) => runtime.block_on(runner_pools::run(arguments)),
        Verb::PrepareHost(arguments) => runtime.block_on(prepare_host::run(arguments)),
        #[cfg(feature = "demo")]
        Verb::Demo(arguments) => {
            log("off");
            runtime.block_on(demo::run(&arguments))
        }
        #[cfg(feature = "demo")]
        Verb::Sim(arguments) => {
            log("warn");
            runtime.block_on(sim::run(arguments))
        }
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

/// Logs on standard error, as far as `RUST_LOG` asks for it; as far as is `usual` if it says
/// nothing that can be read.
#[cfg(feature = "demo")]
fn log(usual: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    let filter = filter.unwrap_or_else(|_| usual.into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn every_verb_and_flag_is_well_formed() {
        super::Arguments::command().debug_assert();
    }

    #[test]
    fn every_flag_says_what_it_is_for() {
        fn look(command: &clap::Command) {
            for argument in command.get_arguments().filter(|a| !a.is_hide_set()) {
                let (verb, name) = (command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{verb}: {name} has no help");
            }
            command.get_subcommands().filter(|c| !c.is_hide_set()).for_each(look);
        }
        look(&super::Arguments::command());
    }
}
