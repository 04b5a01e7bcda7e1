//! Sweeps, benchmarks and soaks. `cargo xtask sweep`, `bench` and `soak` call this.

mod apart;
mod bench;
mod explore;
mod log;
mod oracle;
mod plant;
mod roles;
mod run;
mod story;
mod sweep;

use std::process::ExitCode;
use std::time::Duration;

use applecart_sim::faults::Fault;
use clap::{Args, Parser, Subcommand};
use explore::Seconds;
use plant::Bug;
use run::{Case, LONG_SILENCE, SHORT_SILENCE};
use story::Story;
use sweep::Breadth;

/// A plan is a million small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Where a story begins at any moment, one later effect in so many meets faults: all of them would
/// take some minutes.
const LATER: usize = 7;

/// The real controllers in a simulated world, with faults.
#[derive(Debug, Parser)]
#[command(name = "applecart-sweep", version)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Runs each story once for every effect and every fault; ends with 1 if any run breaks.
    ///
    /// With --fault, --at or --replay, runs that one plan again and prints its trace.
    Sweep(Sweep),
    /// Measures: how long N Machines take to become Ready, and how fast the simulators are.
    Bench {
        /// What to measure.
        #[arg(value_enum, default_value_t = bench::What::Fleet)]
        what: bench::What,
        /// Hosts, and for a fleet as many Machines; 1,000 if not given.
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

#[derive(Debug, Args)]
struct Sweep {
    /// Only this story; without one, all of them.
    story: Option<Story>,
    /// Seed of schedules, ids, names and random plans.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One read and one event in so many meets its faults; 1 is all of them.
    #[arg(long, default_value_t = 41, value_parser = clap::value_parser!(u32).range(1..))]
    one_in: u32,
    /// All pairs of crashes after effects, too, or those with one first crash in N; where a story
    /// begins at any moment, a crash at every later effect.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// So many plans with one to three random faults for each story, too.
    #[arg(long, default_value_t = 0, value_name = "N")]
    random: usize,
    /// Only so many plans of each story, drawn from the seed: a short sweep.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Replay: what goes wrong at which step, as STEP:FAULT; may be given more than once.
    #[arg(long, requires = "story", value_name = "STEP:FAULT", value_parser = planned)]
    fault: Vec<(usize, Fault)>,
    /// Replay: the step at which a story begins that may begin at any moment.
    #[arg(long, requires = "story", value_name = "STEP")]
    at: Option<usize>,
    /// Replay: watch it for a day after it came to rest, instead of half an hour.
    #[arg(long, requires = "story")]
    day: bool,
    /// Replay the story without faults.
    #[arg(long, requires = "story")]
    replay: bool,
    /// With a planted bug, which the oracle of its name must find.
    #[arg(long, requires = "story")]
    plant: Option<Bug>,
}

fn planned(text: &str) -> Result<(usize, Fault), String> {
    let (step, fault) = text.split_once(':').ok_or("as STEP:FAULT, for example 17:crash-after")?;
    let step = step.parse().map_err(|_| format!("{step:?} is not the number of a step"))?;
    Ok((step, fault.parse()?))
}

impl Sweep {
    /// The one plan that is asked for, if it is one.
    fn case(&self) -> Option<Case> {
        let replays = self.replay || !self.fault.is_empty() || self.at.is_some();
        replays.then_some(())?;
        Some(Case {
            story: self.story?,
            seed: self.seed,
            faults: self.fault.clone(),
            at: self.at,
            silence: Some(if self.day { LONG_SILENCE } else { SHORT_SILENCE }),
            bug: self.plant,
        })
    }

    fn run(&self) -> bool {
        if let Some(case) = self.case() {
            return sweep::replay(&case);
        }
        let one_in = usize::try_from(self.one_in).unwrap_or(1);
        let Self { random, .. } = *self;
        let pairs = self.pairs.and_then(|pairs| usize::try_from(pairs).ok());
        let seconds = Seconds { pairs, one_in: if self.sample.is_some() { one_in } else { LATER } };
        let sample = self.sample.and_then(|sample| usize::try_from(sample).ok());
        let breadth = Breadth { one_in, seconds, random, long_in: 1000, sample, bug: self.plant };
        sweep::all(self.story, self.seed, breadth).violations == 0
    }
}

fn main() -> anyhow::Result<ExitCode> {
    perform(Arguments::parse().verb)
}

fn perform(verb: Verb) -> anyhow::Result<ExitCode> {
    let sound = match verb {
        Verb::Sweep(sweep) => sweep.run(),
        Verb::Bench { what, hosts } => {
            bench::run(what, hosts)?;
            true
        }
        Verb::Soak { minutes, seed } => sweep::soak(Duration::from_mins(minutes), seed),
    };
    Ok(if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(arguments: &[&str]) -> ExitCode {
        let program = ["applecart-sweep", "sweep"];
        let all = program.iter().chain(arguments);
        perform(Arguments::try_parse_from(all).expect("arguments").verb).expect("an end")
    }

    #[test]
    fn a_sweep_that_finds_something_ends_with_1() {
        let sampled = ["release", "--sample", "24"];
        assert_eq!(exit(&sampled), ExitCode::SUCCESS);
        assert_eq!(exit(&[&sampled[..], &["--plant", "amnesia"]].concat()), ExitCode::FAILURE);
    }

    #[test]
    fn a_soak_that_has_no_time_to_play_anything_is_no_success() {
        assert!(!sweep::soak(Duration::ZERO, 1));
    }
}
