//! Every stage of `check` and `test`: the one list of what there is to check.

use std::fmt;
use std::io::Write;
use std::process::ExitStatus;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use clap::ValueEnum;

use crate::cargo::{self, Cargo};
use crate::counts::Counts;
use crate::program::{Profile, SWEEP};
use crate::terminal::{Paint, seconds};
use crate::{e2e, generated, tidy, tools};

/// Plans of each story in the short sweep: three minutes' worth.
const SAMPLE: &str = "3";

/// Tests of one program at once: those that talk to real SSH servers mostly wait.
const TESTS_AT_ONCE: &str = "4";

/// One thing to check. The order here is the order in which they run: quick ones first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stage {
    /// Every file is formatted
    Format,
    /// The tree keeps its own rules: lengths, names, layers, what must not be named
    Tidy,
    /// Generated files are what `gen` would write
    Generated,
    /// clippy is content, warnings denied
    Clippy,
    /// rustdoc is content, warnings denied
    Docs,
    /// Programs that tests talk to are there
    Tools,
    /// All tests of the workspace
    Tests,
    /// Scenarios on a real Kubernetes control plane and Cluster API
    E2e,
    /// A short sweep of faults through the simulated world
    Sweep,
}

/// What `check` runs.
pub const CHECK: &[Stage] =
    &[Stage::Format, Stage::Tidy, Stage::Generated, Stage::Clippy, Stage::Docs];
/// What `test` runs after [`CHECK`].
pub const TEST: &[Stage] = &[Stage::Tools, Stage::Tests, Stage::E2e, Stage::Sweep];

impl Stage {
    /// One line for each of `stages`: its name and what it checks.
    pub fn describe(stages: &[Self]) -> String {
        let line = |stage: &Self| {
            let value = stage.to_possible_value();
            let help = value.as_ref().and_then(|v| v.get_help()).map(ToString::to_string);
            format!("  {:<11}{}", stage.to_string(), help.unwrap_or_default())
        };
        stages.iter().map(line).collect::<Vec<_>>().join("\n")
    }

    /// `false`: it failed, and said why.
    fn run(self) -> Result<Outcome> {
        match self {
            Self::Format => {
                cargo::need_component("fmt", "rustfmt")?;
                command(Cargo::new(["fmt", "--all", "--check"]), "run `cargo fmt --all`")
            }
            Self::Tidy => run_tidy(),
            Self::Generated => run_generated(),
            Self::Clippy => {
                cargo::need_component("clippy", "clippy")?;
                let arguments = ["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"];
                command(Cargo::new(arguments), "see above")
            }
            Self::Docs => command(
                Cargo::new(["doc", "--workspace", "--no-deps"]).env("RUSTDOCFLAGS", "-D warnings"),
                "see above",
            ),
            Self::Tools => tools::need_all().map(|()| Outcome::without_tests(true)),
            Self::Tests => {
                let cargo = Cargo::new(["test", "--workspace", "--no-fail-fast"]);
                let cargo = cargo.env("RUST_TEST_THREADS", TESTS_AT_ONCE);
                Ok(Outcome::of_tests(cargo.count_tests()?))
            }
            Self::E2e => Ok(Outcome::of_tests(e2e::count(e2e::all()?, &mut std::io::stdout())?)),
            Self::Sweep => short_sweep(),
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// How a stage ended, and how many tests it counted.
struct Outcome {
    passed: bool,
    counts: Counts,
}

impl Outcome {
    /// Of a stage that is no test runner.
    fn without_tests(passed: bool) -> Self {
        Self { passed, counts: Counts::default() }
    }

    fn of_tests((status, counts): (ExitStatus, Counts)) -> Self {
        Self { passed: status.success() && counts.failed == 0, counts }
    }
}

fn command(cargo: Cargo, remedy: &str) -> Result<Outcome> {
    let line = cargo.to_line();
    let status = cargo.status()?;
    if !status.success() {
        println!("`{line}` ended with {status}: {remedy}");
    }
    Ok(Outcome::without_tests(status.success()))
}

/// Some plans of every story, not built for release: that takes longer than it saves.
fn short_sweep() -> Result<Outcome> {
    let mut command = SWEEP.build(Profile::Dev)?;
    command.args(["sweep", "--sample", SAMPLE]);
    Ok(Outcome::without_tests(SWEEP.status(command)?.success()))
}

fn run_tidy() -> Result<Outcome> {
    let problems = tidy::check(&cargo::workspace_root())?;
    for problem in &problems {
        println!("{problem}");
    }
    Ok(Outcome::without_tests(problems.is_empty()))
}

fn run_generated() -> Result<Outcome> {
    let differences = generated::differences(&cargo::workspace_root())?;
    for (file, difference) in &differences {
        println!("{file}: {}: {}", difference.name(), generated::REMEDY);
    }
    Ok(Outcome::without_tests(differences.is_empty()))
}

/// How the scenarios ended, what they said, and how long they took.
type Beside = JoinHandle<(Result<Outcome>, Vec<u8>, Duration)>;

/// Begins the scenarios beside the tests: both mostly wait. Everything is built before, so that
/// neither waits for the other's compiler; what cannot be built is told by the stage itself.
fn begin_e2e() -> Option<Beside> {
    let built = Cargo::new(["test", "--workspace", "--no-run", "--quiet"]).status();
    if !built.is_ok_and(|status| status.success()) {
        return None;
    }
    let command = e2e::all().ok()?;
    println!("the scenarios of `{}` run beside; what they say comes after the tests", Stage::E2e);
    Some(std::thread::spawn(move || {
        let (start, mut said) = (Instant::now(), Vec::new());
        let done = e2e::count(command, &mut said).map(Outcome::of_tests);
        (done, said, start.elapsed())
    }))
}

fn end_e2e(begun: Beside) -> (Result<Outcome>, Duration) {
    let (done, said, took) = match begun.join() {
        Ok(ended) => ended,
        Err(_) => (Err(anyhow!("the thread that ran it panicked")), Vec::new(), Duration::ZERO),
    };
    // Shown as it was said; whoever closed our output does not read it.
    let _ = std::io::stdout().write_all(&said);
    (done, took)
}

/// What a run of several stages found.
pub struct Report {
    stages: Vec<(Stage, Outcome, Duration)>,
}

impl Report {
    /// Nothing failed.
    pub fn passed(&self) -> bool {
        self.stages.iter().all(|(_, outcome, _)| outcome.passed)
    }

    /// What the runners counted. A stage that failed without a failed test (code that does not
    /// compile, a warning, a runner that crashed) counts as one failure, so that the sum never
    /// looks better than the run was.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (_, outcome, _) in &self.stages {
            counts += outcome.counts;
            counts.failed += u64::from(!outcome.passed && outcome.counts.failed == 0);
        }
        counts
    }
}

/// Runs `stages` in turn, says which and how long each took, and goes on after a failure: one run
/// tells everything that is wrong.
pub fn run(stages: &[Stage]) -> Report {
    let paint = Paint::stdout();
    let mut report = Report { stages: Vec::new() };
    let mut beside = None;
    for (index, stage) in stages.iter().enumerate() {
        println!("{}", paint.bold(format!("[{}/{}] {stage}", index + 1, stages.len())));
        let start = Instant::now();
        if *stage == Stage::Tests && stages.contains(&Stage::E2e) {
            beside = begin_e2e();
        }
        let begun = beside.take_if(|_| *stage == Stage::E2e);
        let (outcome, earlier) = match begun {
            Some(begun) => end_e2e(begun),
            None => (stage.run(), Duration::ZERO),
        };
        let outcome = outcome.unwrap_or_else(|error| {
            println!("{error:#}");
            Outcome::without_tests(false)
        });
        report.stages.push((*stage, outcome, start.elapsed().max(earlier)));
    }
    println!();
    for (stage, outcome, time) in &report.stages {
        let word = if outcome.passed { paint.green("ok    ") } else { paint.red("FAILED") };
        println!("{:<11}{word} {:>12}", stage.to_string(), seconds(*time));
    }
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(stages: &[(Stage, bool, Counts)]) -> Report {
        let stages = stages.iter().map(|(stage, passed, counts)| {
            (*stage, Outcome { passed: *passed, counts: *counts }, Duration::ZERO)
        });
        Report { stages: stages.collect() }
    }

    const NONE: Counts = Counts { passed: 0, failed: 0 };

    #[test]
    fn every_stage_is_run_by_check_or_by_test_and_by_one_of_them_only() {
        let run: Vec<Stage> = CHECK.iter().chain(TEST).copied().collect();
        assert_eq!(run, Stage::value_variants());
    }

    #[test]
    fn the_sum_is_what_the_runners_counted() {
        let (tests, e2e) = (Counts { passed: 5, failed: 0 }, Counts { passed: 3, failed: 0 });
        let good = report(&[
            (Stage::Clippy, true, NONE),
            (Stage::Tests, true, tests),
            (Stage::E2e, true, e2e),
        ]);
        assert!(good.passed());
        assert_eq!(good.counts(), Counts { passed: 8, failed: 0 });
        let e2e = Counts { passed: 3, failed: 2 };
        let bad = report(&[(Stage::Tests, true, tests), (Stage::E2e, false, e2e)]);
        assert!(!bad.passed());
        assert_eq!(bad.counts(), Counts { passed: 8, failed: 2 });
    }

    #[test]
    fn a_stage_that_failed_without_a_failed_test_is_one_failure() {
        let five = Counts { passed: 5, failed: 0 };
        for (stage, counts) in [(Stage::Tests, five), (Stage::E2e, five), (Stage::Clippy, NONE)] {
            let bad = report(&[(stage, false, counts)]);
            assert!(!bad.passed());
            assert_eq!(bad.counts(), Counts { passed: counts.passed, failed: 1 }, "{stage}");
        }
        let failed = Counts { passed: 5, failed: 2 };
        let both = report(&[(Stage::Tests, false, failed), (Stage::Sweep, false, NONE)]);
        assert_eq!(both.counts(), Counts { passed: 5, failed: 3 });
    }
}
