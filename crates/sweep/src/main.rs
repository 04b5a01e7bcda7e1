//! Sweeps, benchmarks and soaks. `cargo xtask sweep`, `bench` and `soak` call this.

mod apart;
mod bench;
mod explore;
mod log;
mod oracle;
mod plant;
mod replay;
mod roles;
mod run;
mod soak;
mod story;
mod sweep;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

use applecart_sim::faults::Fault;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use explore::Seconds;
use plant::Bug;
use replay::{Outcome, replay};
use run::{Case, LONG_SILENCE, SHORT_SILENCE};
use story::Story;
use sweep::Breadth;

/// A plan is a million small allocations.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// One read and one event in so many meets its faults, if nothing else is asked for.
const ONE_IN: u32 = 41;
/// Where a story begins at any moment, one later effect in so many meets faults: all of them would
/// take some minutes.
const LATER: usize = 7;
/// It could not be done: what was asked for never happened. Also clap's.
const NOT_DONE: u8 = 2;

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
    /// With --fault, --at or --replay, runs that one plan again and prints its trace; ends with 2
    /// if a fault of it cannot happen to its step, or the step never comes.
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
    ///
    /// Each seed begins with a story that is drawn from it, and comes to all of them if there is
    /// time. When the time is up no plan begins any more, and it is told which stories were played,
    /// and how many plans of the last one were not.
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
    /// One read and one event in so many meets its faults, 41 if not given; 1 is all of them.
    ///
    /// Where a story begins at any moment, these meet none; of the effects after each beginning one
    /// in 7 does, and with --sample one in as many as this says.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    one_in: Option<u32>,
    /// All pairs of crashes after effects, too, or those with one first crash in N; where a story
    /// begins at any moment, a crash at every later effect.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..))]
    pairs: Option<u32>,
    /// So many plans with one to three random faults for each story, too.
    #[arg(long, value_name = "N")]
    random: Option<usize>,
    /// Only so many plans of each story, drawn from the seed: a short sweep.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    sample: Option<u32>,
    /// Replay: what goes wrong at which step, as STEP:FAULT; may be given more than once. A fault
    /// that cannot happen to its step is refused.
    #[arg(long, requires = "story", value_name = "STEP:FAULT", value_parser = planned)]
    fault: Vec<(usize, Fault)>,
    /// Replay: the step at which a story begins that may begin at any moment; a replay of
    /// delete-anywhere or upgrade-anywhere needs it, and no other takes it.
    #[arg(long, requires = "story", value_name = "STEP")]
    at: Option<usize>,
    /// With --fault, --at or --replay: watch it for a day after it came to rest, instead of half an
    /// hour.
    #[arg(long, requires = "story")]
    day: bool,
    /// Replay the story, without faults if none is given.
    #[arg(long, requires = "story")]
    replay: bool,
    /// With a planted bug, which an oracle must find, most often the one of its name, where the
    /// story gives it its chance; some need a fault, too.
    #[arg(long, requires = "story")]
    plant: Option<Bug>,
}

fn planned(text: &str) -> Result<(usize, Fault), String> {
    let (step, fault) = text.split_once(':').ok_or("as STEP:FAULT, for example 17:crash-after")?;
    let step = step.parse().map_err(|_| format!("{step:?} is not the number of a step"))?;
    Ok((step, fault.parse()?))
}

impl Sweep {
    fn is_replay(&self) -> bool {
        self.replay || !self.fault.is_empty() || self.at.is_some()
    }

    /// The one plan that is asked for, if it is one.
    fn case(&self) -> Option<Case> {
        self.is_replay().then_some(())?;
        let mut faults = self.fault.clone();
        faults.sort_unstable();
        Some(Case {
            story: self.story?,
            seed: self.seed,
            faults,
            at: self.at,
            silence: Some(if self.day { LONG_SILENCE } else { SHORT_SILENCE }),
            bug: self.plant,
        })
    }

    /// Nothing that is typed is ignored: what means nothing here is told, and what to do.
    fn check(&self) -> Result<(), (ErrorKind, String)> {
        let missing = |what: String| Err((ErrorKind::MissingRequiredArgument, what));
        let conflict = |what: String| Err((ErrorKind::ArgumentConflict, what));
        if let Some(flag) = self.flag_of_a_sweep().filter(|_| self.is_replay()) {
            return conflict(format!(
                "{flag} says how much a sweep plays, but --fault, --at and --replay play one plan: \
                 leave out {flag}, or these"
            ));
        }
        if self.day && !self.is_replay() {
            return missing("--day watches one plan: add --replay, --fault or --at".to_owned());
        }
        let mut steps: Vec<usize> = self.fault.iter().map(|(step, _)| *step).collect();
        steps.sort_unstable();
        if let Some(pair) = steps.windows(2).find(|pair| pair[0] == pair[1]) {
            let step = pair[0];
            return conflict(format!("step {step} meets one fault: leave out a --fault {step}:…"));
        }
        match (self.story, self.at) {
            (Some(story), None) if story.is_anywhere() && self.is_replay() => missing(format!(
                "{story} begins at any moment of a claim: add --at STEP, with the number of a step \
                 that `cargo xtask sweep claim --replay` prints"
            )),
            (Some(story), Some(_)) if !story.is_anywhere() => conflict(format!(
                "{story} begins at its own moment: leave out --at, which is for {} and {}",
                Story::DeleteAnywhere,
                Story::UpgradeAnywhere
            )),
            _ => Ok(()),
        }
    }

    /// A flag that says how much is tried, if one was typed.
    fn flag_of_a_sweep(&self) -> Option<&'static str> {
        let flags = [
            ("--one-in", self.one_in.is_some()),
            ("--pairs", self.pairs.is_some()),
            ("--random", self.random.is_some()),
            ("--sample", self.sample.is_some()),
        ];
        flags.into_iter().find(|(_, typed)| *typed).map(|(flag, _)| flag)
    }

    fn breadth(&self) -> Breadth {
        let number = |typed: u32| usize::try_from(typed).unwrap_or(usize::MAX);
        let one_in = number(self.one_in.unwrap_or(ONE_IN));
        let later = if self.sample.is_some() { one_in } else { LATER };
        Breadth {
            one_in,
            seconds: Seconds { pairs: self.pairs.map(number), one_in: later },
            random: self.random.unwrap_or_default(),
            long_in: 1000,
            sample: self.sample.map(number),
            bug: self.plant,
            until: None,
        }
    }

    fn run(&self) -> ExitCode {
        if let Some(case) = self.case() {
            return match replay(&case) {
                Outcome::Sound => ExitCode::SUCCESS,
                Outcome::Broken => ExitCode::FAILURE,
                Outcome::NotPlayed => ExitCode::from(NOT_DONE),
            };
        }
        let sound = sweep::all(self.story, self.seed, self.breadth()).violations == 0;
        if let Some(bug) = self.plant.filter(|_| sound) {
            println!("nobody found {bug}: perhaps it had no chance in this story");
        }
        code(sound)
    }
}

/// What was typed, if it means something.
fn parse(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<Verb, clap::Error> {
    let verb = Arguments::try_parse_from(words)?.verb;
    if let Verb::Sweep(sweep) = &verb {
        sweep.check().map_err(|(kind, why)| Arguments::command().error(kind, why))?;
    }
    Ok(verb)
}

fn main() -> anyhow::Result<ExitCode> {
    perform(parse(std::env::args_os()).unwrap_or_else(|error| error.exit()))
}

fn perform(verb: Verb) -> anyhow::Result<ExitCode> {
    Ok(match verb {
        Verb::Sweep(sweep) => sweep.run(),
        Verb::Bench { what, hosts } => {
            bench::run(what, hosts)?;
            ExitCode::SUCCESS
        }
        Verb::Soak { minutes, seed } => code(soak::soak(Duration::from_mins(minutes), seed)),
    })
}

fn code(sound: bool) -> ExitCode {
    if sound { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(arguments: &[&str]) -> Result<Verb, clap::Error> {
        parse(["applecart-sweep", "sweep"].iter().chain(arguments))
    }

    fn exit(arguments: &[&str]) -> ExitCode {
        perform(typed(arguments).expect("arguments")).expect("an end")
    }

    #[test]
    fn a_sweep_that_finds_something_ends_with_1() {
        let sampled = ["release", "--sample", "24"];
        assert_eq!(exit(&sampled), ExitCode::SUCCESS);
        assert_eq!(exit(&[&sampled[..], &["--plant", "amnesia"]].concat()), ExitCode::FAILURE);
    }

    #[test]
    fn a_bug_is_found_that_only_shows_beside_a_run_without_it() {
        let planted = |how: &[&str]| exit(&[&["claim", "--plant", "counts"], how].concat());
        assert_eq!(planted(&["--replay"]), ExitCode::FAILURE);
        assert_eq!(planted(&["--sample", "2"]), ExitCode::FAILURE);
    }

    #[test]
    fn a_replay_of_what_never_happens_ends_with_2() {
        let fault = ["release", "--fault", "999999:crash-after"];
        assert_eq!(exit(&fault), ExitCode::from(NOT_DONE));
    }

    #[test]
    fn what_would_be_ignored_is_told_and_what_to_do() {
        for (words, told) in [
            ("delete-anywhere --replay", "add --at STEP"),
            ("upgrade-anywhere --fault 7:error", "add --at STEP"),
            ("claim --at 7", "leave out --at"),
            ("claim --fault 7:error --at 7", "leave out --at"),
            ("claim --day", "add --replay, --fault or --at"),
            ("claim --day --sample 3", "add --replay, --fault or --at"),
            ("claim --replay --one-in 3", "leave out --one-in"),
            ("claim --replay --pairs", "leave out --pairs"),
            ("claim --fault 7:error --random 3", "leave out --random"),
            ("delete-anywhere --at 7 --sample 3", "leave out --sample"),
            ("claim --fault 7:error --fault 7:cut", "step 7 meets one fault"),
        ] {
            let words: Vec<&str> = words.split(' ').collect();
            let error = typed(&words).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains(told), "{words:?}: {error}");
        }
        for words in ["claim --day --replay", "delete-anywhere --day --at 7", "claim --one-in 3"] {
            let words: Vec<&str> = words.split(' ').collect();
            assert!(typed(&words).is_ok(), "{words:?}");
        }
    }

    #[test]
    fn faults_are_played_in_the_order_of_their_steps() {
        let Ok(Verb::Sweep(sweep)) = typed(&["pod", "--fault", "9:cut", "--fault", "7:error"])
        else {
            panic!("no sweep");
        };
        let faults = sweep.case().expect("a plan").faults;
        assert_eq!(faults, [(7, Fault::Error), (9, Fault::Cut)]);
    }
}
