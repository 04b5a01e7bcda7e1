//! The one door to everything a developer runs: `cargo xtask --help`.

mod cargo;
mod command_line;
mod counts;
mod e2e;
mod generated;
mod program;
mod soak;
mod stage;
mod terminal;
mod tidy;
mod tools;

use std::process::ExitCode;

fn main() -> ExitCode {
    match command_line::run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{}: {error:#}", terminal::Paint::stderr().red("error"));
            ExitCode::from(2)
        }
    }
}
