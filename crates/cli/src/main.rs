//! `applecart`: the one command line. One file per verb.

#[cfg(feature = "demo")]
mod demo;

use clap::{Parser, Subcommand};

/// Runs fleets of rented Mac minis as ordinary Kubernetes nodes, for CI.
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
}

fn main() -> std::process::ExitCode {
    let arguments = Arguments::parse();
    let result = match arguments.verb {
        #[cfg(feature = "demo")]
        Verb::Demo(arguments) => demo::run(&arguments),
    };
    match result {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            std::process::ExitCode::FAILURE
        }
    }
}
