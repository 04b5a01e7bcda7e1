//! One run: a fresh world on a fresh thread under virtual time, a plan, a story, the oracles.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::faults::{Class, Fault, Faults, Plan, Step};
use applecart_sim::oracle::Safety;
use applecart_sim::world::{self, World, WorldSettings};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::oracle::{Counts, Limits, at_end};
use crate::plant::Bug;
use crate::story::{self, Story};

/// Any day will do, as long as it is always the same.
const BEGINNING: i64 = 1_800_000_000;
/// What a story leaves behind must be right so long after its end, at the latest.
const CONVERGE: Duration = Duration::from_mins(10);
/// One answer of a Mac over SSH: short, so that nobody looks at a bootstrap dozens of times.
const SSH_LATENCY: Duration = Duration::from_millis(100);
/// How long a world is watched after it came to rest: a few plans, and one.
pub const SHORT_SILENCE: Duration = Duration::from_mins(30);
/// The one without faults, and a sample.
pub const LONG_SILENCE: Duration = Duration::from_hours(24);

/// Everything that decides how a run goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// What happens.
    pub story: Story,
    /// Schedules, ids and names follow from it.
    pub seed: u64,
    /// What goes wrong, by the number of the step.
    pub faults: Vec<(usize, Fault)>,
    /// The step at which [`Story::DeleteAnywhere`] deletes.
    pub delete_at: Option<usize>,
    /// How long the world is watched after it came to rest, if it is.
    pub silence: Option<Duration>,
    /// A bug, so that an oracle can show that it finds it.
    pub bug: Option<Bug>,
}

impl Case {
    /// A story without faults.
    pub fn new(story: Story, seed: u64) -> Self {
        let (faults, delete_at, bug) = (vec![], None, None);
        Self { story, seed, faults, delete_at, silence: None, bug }
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        let Self { story, seed, faults, delete_at, bug, .. } = self;
        let mut command = format!("cargo xtask sweep {story} --seed {seed}");
        for (step, fault) in faults {
            let _ = write!(command, " --fault {step}:{fault}");
        }
        if let Some(step) = delete_at {
            let _ = write!(command, " --delete-at {step}");
        }
        if let Some(bug) = bug {
            let _ = write!(command, " --plant {bug}");
        }
        if faults.is_empty() && delete_at.is_none() { command + " --replay" } else { command }
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default)]
pub struct End {
    /// Every call and every event, in order.
    pub steps: Vec<Step>,
    /// The first step that a fault may meet.
    pub first: usize,
    /// When the story was over, since the beginning.
    pub took: Duration,
    /// What was created, deleted, wiped and rebooted.
    pub counts: Counts,
    /// What was violated, if anything.
    pub violation: Option<String>,
}

/// Runs a case; `reference` is the run without faults that it is compared with. The same arguments
/// always give the same trace.
pub fn run(case: &Case, reference: Option<&End>) -> End {
    world::prepare();
    let case = case.clone();
    let limits = reference.map(|end| Limits { took: end.took, counts: end.counts.clone() });
    let thread = std::thread::spawn(move || {
        applecart_entropy::seed(case.seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(play(case, limits))
    });
    thread.join().unwrap_or_else(|_| End {
        violation: Some("panic: the run panicked".to_owned()),
        ..End::default()
    })
}

/// A clock that follows tokio's, and so stands still while somebody works.
pub fn virtual_clock() -> Clock {
    let start = Instant::now();
    let beginning = Timestamp::from_second(BEGINNING).expect("a time");
    Clock::new(move || beginning + start.elapsed())
}

/// A small world: one Machine, a pool of two.
pub fn settings(seed: u64, clock: Clock) -> WorldSettings {
    WorldSettings {
        hosts: 2,
        machines: 1,
        runners: 0,
        speed: 1.0,
        seed,
        clock,
        authority: None,
        api_url: "https://kubernetes.default.svc".to_owned(),
        ssh_latency: SSH_LATENCY,
        foreign: true,
        jobs: false,
        faults: None,
    }
}

async fn play(case: Case, limits: Option<Limits>) -> End {
    let faults = Faults::new(Plan::At(case.faults.clone()));
    let size = case.story.size();
    let world = World::new(WorldSettings {
        hosts: size.hosts,
        machines: size.machines,
        faults: Some(Arc::clone(&faults)),
        ..settings(case.seed, virtual_clock())
    });
    let safety = Safety::new(world.sight().clone());
    faults.ask_after_effects(Box::new(move |step| safety.check(step)));
    let mut end = End::default();
    let judged = Box::pin(judge(&case, &world, &faults, limits.as_ref(), &mut end)).await;
    end.violation = match faults.violation() {
        Some((step, violated)) => Some(format!("{violated} (after step {step})")),
        None => judged.err(),
    };
    end.steps = faults.steps();
    end
}

async fn judge(
    case: &Case,
    world: &World,
    faults: &Faults,
    limits: Option<&Limits>,
    end: &mut End,
) -> Result<(), String> {
    world.apply().await.map_err(|error| error.to_string())?;
    let story = async {
        case.story.begin(world).await?;
        end.first = faults.next_number();
        let began = Instant::now();
        if let Some(step) = case.delete_at {
            faults.reached(step).await;
            story::scale(world, 0).await?;
        }
        case.story.play(world).await?;
        end.took = began.elapsed();
        converge(case, world, faults).await?;
        let steps = faults.steps();
        end.counts = Counts::of(&steps);
        if let Some(limits) = limits {
            limits.check(end.took, &end.counts, &steps)?;
        }
        match case.silence {
            Some(silence) => be_silent(silence, faults).await,
            None => Ok(()),
        }
    };
    tokio::select! {
        biased;
        told = story => told,
        () = world.run() => Err("the world stopped".to_owned()),
        () = crate::plant::plant(world, case.bug) => unreachable!("a bug has no end"),
    }
}

/// Waits until what the story leaves behind is right.
async fn converge(case: &Case, world: &World, faults: &Faults) -> Result<(), String> {
    let deadline = Instant::now() + CONVERGE;
    loop {
        match at_end(world, case.story, &faults.steps()) {
            Ok(()) => return Ok(()),
            Err(wrong) if Instant::now() >= deadline => return Err(wrong),
            Err(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
    }
}

/// Nothing is written once all is well, but heartbeats (G5).
async fn be_silent(silence: Duration, faults: &Faults) -> Result<(), String> {
    tokio::time::sleep(CONVERGE).await;
    faults.be_quiet();
    let before = faults.steps().len();
    tokio::time::sleep(silence).await;
    let steps = faults.steps();
    let mut writes = steps[before..].iter().filter(|step| step.class == Class::Effect);
    match writes.next() {
        None => Ok(()),
        Some(Step { process, edge, call, .. }) => {
            let more = writes.count();
            Err(format!("silence: {process} still writes, {edge}: {call}, and {more} more"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(seed: u64, fault: Fault) -> Vec<Step> {
        let calm = Case::new(Story::Release, seed);
        let reference = run(&calm, None);
        let number = reference.first + 60;
        let end = run(&Case { faults: vec![(number, fault)], ..calm }, Some(&reference));
        assert_eq!(end.violation, None);
        end.steps
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_faults_included() {
        for fault in [Fault::CrashAfter, Fault::Error, Fault::Cut] {
            let first = trace(7, fault);
            assert!(first == trace(7, fault), "two runs of one seed differ");
            assert!(first != trace(8, fault), "two seeds give one trace");
        }
    }

    #[test]
    fn a_case_tells_the_command_that_runs_it_again() {
        let faults = vec![(7, Fault::Cut), (9, Fault::CrashAfter)];
        let case = Case { faults, ..Case::new(Story::Pod, 3) };
        let command = "cargo xtask sweep pod --seed 3 --fault 7:cut --fault 9:crash-after";
        assert_eq!(case.command(), command);
    }
}
