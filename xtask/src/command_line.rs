//! What was typed, and what it means.

use std::ffi::OsString;
use std::process::{ExitCode, ExitStatus};

use anyhow::Result;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::cargo::{self, Cargo};
use crate::program::{Profile, SWEEP};
use crate::soak::Soak;
use crate::stage::{self, CHECK, Stage, TEST};
use crate::{e2e, generated, terminal};

const EXAMPLES: &str = "\
Examples:
  cargo xtask check               everything but the tests
  cargo xtask check tidy clippy   two stages of it
  cargo xtask test                everything; what CI runs
  cargo xtask gen                 write the chart's CRDs after a change in crates/api
  cargo xtask e2e --list          what is tried on a real control plane
  cargo xtask sweep --help        what the sweep can do";

/// The one door to everything a developer runs.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = EXAMPLES)]
struct CommandLine {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Check everything but the tests, or only the stages named
    Check {
        /// The stages to run; all but those of `test` if none is named
        #[arg(value_name = "STAGE")]
        stages: Vec<Stage>,
    },
    /// Check everything and run all tests; the last line counts them
    Test,
    /// Write the generated files: chart/crds
    Gen {
        /// Change nothing; report the files that differ and fail if there are any
        #[arg(long)]
        check: bool,
    },
    /// Run scenarios on a real Kubernetes and Cluster API; arguments go to them (try --help)
    #[command(disable_help_flag = true)]
    E2e(PassedOn),
    /// Sweep faults through every scenario; arguments go to the sweep (try --help)
    #[command(disable_help_flag = true)]
    Sweep(PassedOn),
    /// Measure: `claims` on a real API server, `mac` for Macs over real SSH (needs root); other
    /// arguments go to the sweep's binary (try --help)
    #[command(disable_help_flag = true)]
    Bench(PassedOn),
    /// The long run, never in CI: a demo with chaos and its memory, then sweeps of many seeds
    Soak(Soak),
}

#[derive(clap::Args)]
struct PassedOn {
    /// Passed on as they are
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "ARGUMENT")]
    arguments: Vec<OsString>,
}

/// Does what was typed. 0: all is well; 1: a check failed; 2: it could not be done.
pub fn run() -> Result<ExitCode> {
    let matches = command().get_matches();
    let verb = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).verb;
    match verb {
        Verb::Check { stages } if stages.is_empty() => Ok(check(CHECK)),
        Verb::Check { stages } => Ok(check(&stages)),
        Verb::Test => Ok(test()),
        Verb::Gen { check } => generate(check),
        Verb::E2e(rest) => e2e::run(rest.arguments).map(code),
        Verb::Sweep(rest) => pass_on("sweep", rest),
        Verb::Bench(rest) if rest.arguments.first().is_some_and(|what| what == "mac") => {
            Cargo::bench_macs(&rest.arguments[1..]).status().map(code)
        }
        Verb::Bench(rest) if rest.arguments.first().is_some_and(|what| what == "claims") => {
            e2e::bench_claims(&rest.arguments[1..]).map(code)
        }
        Verb::Bench(rest) => pass_on("bench", rest),
        Verb::Soak(soak) => soak.run(),
    }
}

/// The stages of `check` and `test` are described where they are run; their help says no more.
fn command() -> clap::Command {
    let test = format!(
        "Stages:\n{}\n{}\n\nThe last line is `N passed, N failed`: what the test runners counted, \
         and one failure\nfor each other stage that failed. Exit code 0 only if nothing failed.",
        Stage::describe(CHECK),
        Stage::describe(TEST)
    );
    let check = "Examples:\n  cargo xtask check\n  cargo xtask check format tidy";
    CommandLine::command()
        .mut_subcommand("check", |command| command.after_help(check))
        .mut_subcommand("test", |command| command.after_help(test))
}

fn check(stages: &[Stage]) -> ExitCode {
    if stage::run(stages).passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn test() -> ExitCode {
    let report = stage::run(&[CHECK, TEST].concat());
    println!("\n{}", report.counts());
    if report.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn generate(check: bool) -> Result<ExitCode> {
    let root = cargo::workspace_root();
    let paint = terminal::Paint::stdout();
    if !check {
        for (file, difference) in generated::write(&root)? {
            println!("{file}: {}, {}", difference.name(), paint.green("now right"));
        }
        return Ok(ExitCode::SUCCESS);
    }
    let differences = generated::differences(&root)?;
    for (file, difference) in &differences {
        println!("{file}: {}", paint.red(difference.name()));
    }
    if differences.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    println!("To repair: {}.", generated::REMEDY);
    Ok(ExitCode::FAILURE)
}

fn pass_on(verb: &str, rest: PassedOn) -> Result<ExitCode> {
    let mut command = SWEEP.build(Profile::Release)?;
    command.arg(verb).args(rest.arguments);
    SWEEP.status(command).map(code)
}

fn code(status: ExitStatus) -> ExitCode {
    // A child that a signal ended has no code.
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    code.map_or(ExitCode::FAILURE, ExitCode::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Verb, clap::Error> {
        let matches = command().try_get_matches_from(line.split(' '))?;
        Ok(CommandLine::from_arg_matches(&matches)?.verb)
    }

    #[test]
    fn the_command_line_is_well_formed() {
        command().debug_assert();
    }

    #[test]
    fn whatever_follows_a_verb_with_its_own_program_is_passed_on_even_help() {
        for verb in ["e2e", "sweep", "bench"] {
            let line = format!("xtask {verb} --help --seed 7 x");
            let (Verb::E2e(rest) | Verb::Sweep(rest) | Verb::Bench(rest)) = parse(&line).unwrap()
            else {
                panic!("{verb} is another verb");
            };
            assert_eq!(rest.arguments, ["--help", "--seed", "7", "x"]);
        }
    }

    #[test]
    fn stages_are_named_one_by_one_and_an_unknown_one_gets_the_list() {
        let Verb::Check { stages } = parse("xtask check tidy docs").unwrap() else {
            panic!("check is another verb");
        };
        assert_eq!(stages, [Stage::Tidy, Stage::Docs]);
        let error = parse("xtask check tydi").err().unwrap().to_string();
        assert!(error.contains("tidy"), "{error}");
    }

    #[test]
    fn the_help_of_test_names_every_stage() {
        let help = parse("xtask test --help").err().unwrap().to_string();
        for stage in CHECK.iter().chain(TEST) {
            assert!(help.contains(&stage.to_string()), "{stage} is missing in {help}");
        }
    }
}
