//! One run: a fresh world in a fresh process under virtual time, a plan, a story, the oracles.

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::faults::{Edge, Fault, Faults, Plan, Step};
use applecart_sim::oracle::Safety;
use applecart_sim::world::{self, SecretsSeen, World, WorldSettings};
use futures::future::OptionFuture;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::apart::apart;
use crate::explore::Explorer;
use crate::log::Log;
use crate::oracle::{Course, at_end, on_the_way, secrets};
use crate::plant::Bug;
use crate::roles::roles;
use crate::story::{Story, said};

/// Any day will do, as long as it is always the same.
const BEGINNING: i64 = 1_800_000_000;
/// What a story leaves behind must be right so long after its end, at the latest.
const CONVERGE: Duration = Duration::from_mins(10);
/// A marker that a late rename gives a host whose object is gone is the sweep's to find, twice, and
/// to finish: so long after, at the latest (V2).
pub const SWEPT: Duration = Duration::from_hours(1);
/// What was begun before all was right is over so long after it: a status is told, a look that was
/// due is taken.
const SETTLE: Duration = Duration::from_secs(15);
/// Whoever waits for an answer that never comes gives up within a minute, and then goes on: all
/// steps on a Mac take half of that.
const ANSWER: Duration = Duration::from_secs(90);
/// The same for an answer of a Mac: a file may take two minutes.
const ANSWER_OF_A_MAC: Duration = Duration::from_secs(150);
/// How long after that it is looked at again: longer than a Node may be silent.
const REST: Duration = Duration::from_secs(75);
/// How long a controller takes to see what is late: it looks every ten seconds, and Kubernetes does
/// what is late with the next request.
const LOOK: Duration = Duration::from_secs(15);
/// One answer of a Mac over SSH: short, so that nobody looks at a bootstrap dozens of times.
const SSH_LATENCY: Duration = Duration::from_millis(100);
/// How long a world is watched after it came to rest: a few plans, and one.
pub const SHORT_SILENCE: Duration = Duration::from_mins(30);
/// The one without faults, and a sample.
pub const LONG_SILENCE: Duration = Duration::from_hours(24);
/// Only until it came to rest.
pub const NO_SILENCE: Duration = Duration::ZERO;
/// Within this a story begins that may begin at any moment: a claim is at rest long before.
const BEGIN: Duration = Duration::from_hours(1);

/// Everything that decides how a run goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Case {
    /// What happens.
    pub story: Story,
    /// Schedules, ids and names follow from it.
    pub seed: u64,
    /// What goes wrong, by the number of the step.
    pub faults: Vec<(usize, Fault)>,
    /// The step at which a story begins that may begin at any moment.
    pub at: Option<usize>,
    /// How long the world is watched after it came to rest, if it is.
    pub silence: Option<Duration>,
    /// A bug, so that an oracle can show that it finds it.
    pub bug: Option<Bug>,
}

impl Case {
    /// A story without faults.
    pub fn new(story: Story, seed: u64) -> Self {
        let (faults, at, bug) = (vec![], None, None);
        Self { story, seed, faults, at, silence: None, bug }
    }

    /// What it is compared with: nothing goes wrong there. What begins at any moment is compared
    /// with a claim, until something goes wrong.
    pub fn reference(&self) -> Self {
        let (story, at) = match self.story {
            story if story.is_anywhere() && self.faults.is_empty() => (Story::Claim, None),
            story => (story, self.at),
        };
        let bug = self.bug.filter(|bug| bug.is_right_alone());
        Self { story, at, bug, faults: vec![], ..self.clone() }
    }

    /// The step at which it begins to differ from a story without faults.
    pub fn begins(&self) -> usize {
        let first = self.faults.iter().map(|(step, _)| *step).chain(self.at).min();
        first.unwrap_or_default()
    }

    /// Whether something arrives later than its caller was told.
    pub fn is_late(&self) -> bool {
        self.faults.iter().any(|(_, fault)| *fault == Fault::Late)
    }

    /// The command that runs it again.
    pub fn command(&self) -> String {
        let Self { story, seed, faults, at, bug, .. } = self;
        let mut command = format!("cargo xtask sweep {story} --seed {seed}");
        for (step, fault) in faults {
            let _ = write!(command, " --fault {step}:{fault}");
        }
        if let Some(step) = at {
            let _ = write!(command, " --at {step}");
        }
        if let Some(bug) = bug {
            let _ = write!(command, " --plant {bug}");
        }
        if self.silence == Some(LONG_SILENCE) {
            command.push_str(" --day");
        }
        if faults.is_empty() && at.is_none() { command + " --replay" } else { command }
    }
}

/// How a run ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct End {
    /// Every call and every event, in order.
    pub steps: Vec<Step>,
    /// The first step that a fault may meet.
    pub first: usize,
    /// The first step after the story was over: what it leaves behind comes to rest.
    pub over: usize,
    /// How it went, to be compared.
    pub course: Course,
    /// What was violated, if anything.
    pub violation: Option<String>,
    /// The step after which it was, if it was one.
    pub violated_at: Option<usize>,
}

impl End {
    /// Of a run that panicked.
    pub fn panicked() -> Self {
        let violation = Some("panic: the run panicked".to_owned());
        Self { violation, ..Self::default() }
    }

    /// A number that only the same trace has.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for Step { number, at, process, call, answer, .. } in &self.steps {
            (number, at, process, call, answer).hash(&mut hasher);
        }
        hasher.finish()
    }
}

/// Makes what all runs share: made within the first one, it would draw from its randomness.
pub fn prepare() {
    world::prepare();
    let _ = roles();
}

/// Runs a case; `reference` is the run without faults that it is compared with. The same arguments
/// always give the same trace.
pub fn run(case: &Case, reference: Option<&End>) -> End {
    prepare();
    let explorer = Explorer::alone(case);
    let calm = reference.map(|reference| reference.course.clone());
    apart(move || play_here(&explorer, calm)).unwrap_or_else(End::panicked)
}

/// Runs what `explorer` decides, in a process that ran nothing before.
/// `calm` is how it went without faults.
pub fn play_here(explorer: &Arc<Explorer>, calm: Option<Course>) -> End {
    let Case { seed, .. } = explorer.case();
    applecart_entropy::seed(seed);
    // Watches that fail are begun again after a delay that is drawn from this one.
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let (log, _keeps) = Log::begin();
    runtime.block_on(play(explorer, calm, &log))
}

/// How long after the beginning of a run that is.
pub fn since_the_beginning(time: Timestamp) -> Duration {
    let beginning = Timestamp::from_second(BEGINNING).expect("a time");
    Duration::try_from(time.duration_since(beginning)).unwrap_or_default()
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
        roles: roles(),
        providers: 1,
        deployments: false,
        jobs: false,
        faults: None,
    }
}

async fn play(explorer: &Arc<Explorer>, calm: Option<Course>, log: &Log) -> End {
    let chooser = explorer.clone();
    let faults = Faults::new(Plan::Chosen(Box::new(move |ahead| chooser.choose(ahead))));
    let Case { story, seed, .. } = explorer.case();
    let size = story.size();
    let clock = virtual_clock();
    let sized = |seed| WorldSettings {
        hosts: size.hosts,
        machines: size.machines,
        providers: size.providers,
        faults: Some(Arc::clone(&faults)),
        ..settings(seed, clock.clone())
    };
    let world = World::new(sized(seed));
    let (world, neighbour) = if size.neighbour {
        let api_url = "https://kubernetes.neighbour.svc".to_owned();
        let (world, second) =
            world.with_neighbour(WorldSettings { api_url, ..sized(seed.wrapping_add(1)) });
        (world, Some(second))
    } else {
        (world, None)
    };
    for world in std::iter::once(&world).chain(&neighbour) {
        world.install(story.install());
    }
    let (safety, seen) = (Safety::new(world.sight().clone()), Arc::new(SecretsSeen::default()));
    let (sight, looks) = (world.sight().clone(), seen.clone());
    faults.ask_after_effects(Box::new(move |step| {
        looks.look(&sight);
        safety.check(step)
    }));
    let mut end = End::default();
    let worlds = (&world, neighbour.as_ref());
    let told = || secrets(&world, &faults, &seen, log);
    let judged = Box::pin(judge(explorer, worlds, (&faults, &told), calm.as_ref(), &mut end)).await;
    let violation = faults.violation();
    end.violated_at = violation.as_ref().map(|(step, _)| *step);
    end.violation = match violation {
        Some((step, violated)) => Some(format!("{violated} (after step {step})")),
        None => judged.err(),
    };
    end.steps = faults.look(<[Step]>::to_vec);
    end
}

async fn judge(
    explorer: &Explorer,
    (world, neighbour): (&World, Option<&World>),
    (faults, tells_nothing): (&Faults, &dyn Fn() -> Result<(), String>),
    calm: Option<&Course>,
    end: &mut End,
) -> Result<(), String> {
    let origin = Instant::now();
    for world in std::iter::once(world).chain(neighbour) {
        world.apply().await.map_err(|error| error.to_string())?;
    }
    let Case { story, bug, .. } = explorer.case();
    let told = async {
        story.begin(world).await?;
        end.first = faults.next_number();
        let began = Instant::now();
        if story.is_anywhere() {
            let never = |_| "begin: the step never came at which it should".to_owned();
            tokio::time::timeout(BEGIN, explorer.begun.notified()).await.map_err(never)?;
        }
        story.play(world).await.map_err(|wrong| format!("{wrong}; {}", said(world)))?;
        let told = began.elapsed();
        // What is late may land after all seemed well.
        if explorer.case().is_late() {
            faults.settle().await;
            tokio::time::sleep(LOOK).await;
        }
        converge(story, world, if explorer.case().is_late() { SWEPT } else { CONVERGE }).await?;
        let (began, rested) = (began - origin, began.elapsed());
        end.over = faults.next_number();
        // Reached, and it stays so: what is wrong is told before that somebody mends it.
        let silent = rest(faults).await;
        stay(explorer, world).await?;
        silent?;
        if explorer.case().silence.is_some() {
            be_silent(explorer, world, faults).await?;
            at_end(world, story)?;
        }
        tells_nothing()?;
        faults.look(|steps| {
            on_the_way(world, steps)?;
            story.never(steps)?;
            end.course = Course::of(began, told, rested, steps);
            let Case { faults, bug, .. } = explorer.case();
            if faults.is_empty() && bug.is_none() {
                story.check(steps)?;
            }
            calm.map_or(Ok(()), |calm| explorer.compare(&end.course, calm))
        })
    };
    let beside = OptionFuture::from(neighbour.map(World::run));
    tokio::select! {
        biased;
        told = told => told,
        () = explorer.over.notified() => Ok(()),
        () = faults.spun() => Err("spins: somebody does the same without end".to_owned()),
        () = world.run() => Err("the world stopped".to_owned()),
        Some(()) = beside => Err("the neighbour stopped".to_owned()),
        () = crate::plant::plant(world, faults, story, bug) => unreachable!("a bug has no end"),
    }
}

/// Waits until what the story leaves behind is right.
async fn converge(story: Story, world: &World, patience: Duration) -> Result<(), String> {
    let deadline = Instant::now() + patience;
    loop {
        match at_end(world, story) {
            Ok(()) => return Ok(()),
            Err(wrong) if Instant::now() >= deadline => return Err(wrong),
            Err(_) => tokio::time::sleep(Duration::from_secs(5)).await,
        }
    }
}

/// What is right is still so, but for what lands late.
async fn stay(explorer: &Explorer, world: &World) -> Result<(), String> {
    let late = explorer.case().is_late();
    converge(explorer.case().story, world, if late { SWEPT } else { Duration::ZERO }).await
}

/// Waits a little, in which nobody writes anything but heartbeats (G5). If something goes wrong
/// meanwhile, it waits for as long as that may take, and then once more.
async fn rest(faults: &Faults) -> Result<(), String> {
    loop {
        let from = faults.next_number();
        tokio::time::sleep(held_up(faults).max(SETTLE)).await;
        let before = faults.next_number();
        faults.hear_news(true);
        tokio::time::sleep(REST).await;
        faults.hear_news(false);
        let went_wrong = |steps: &[Step]| steps[from..].iter().any(|step| step.fault.is_some());
        if !faults.look(went_wrong) {
            return faults.silent_since(before, REST);
        }
        come_right(faults).await;
    }
}

/// For how long something that went wrong may still hold somebody up, though all is right.
fn held_up(faults: &Faults) -> Duration {
    let left = |ago: Option<Duration>, most: Duration| most.saturating_sub(ago.unwrap_or(most));
    // What a watch lost is seen when it is listed anew.
    let dropped = faults.since_the_last(|step| step.fault == Some(Fault::Drop));
    let on_a_mac = faults.since_the_last(|step| step.edge == Edge::Ssh);
    let unanswered = left(faults.since_the_last(|_| true), ANSWER);
    left(dropped, CONVERGE).max(left(on_a_mac, ANSWER_OF_A_MAC)).max(unanswered)
}

/// What went wrong has its time to come right.
async fn come_right(faults: &Faults) {
    let ago = || faults.since_the_last(|_| true);
    while let Some(rest) = ago().and_then(|ago| CONVERGE.checked_sub(ago))
        && !rest.is_zero()
    {
        tokio::time::sleep(rest).await;
    }
}

/// Nothing is written once all is well, but heartbeats (G5).
async fn be_silent(explorer: &Explorer, world: &World, faults: &Faults) -> Result<(), String> {
    tokio::time::sleep(CONVERGE).await;
    come_right(faults).await;
    stay(explorer, world).await?;
    faults.be_quiet();
    let before = faults.next_number();
    let began = Instant::now();
    // Whoever parted meanwhile has a silence of its own.
    tokio::time::sleep(explorer.case().silence.unwrap_or_default()).await;
    faults.silent_since(before, began.elapsed())
}

#[cfg(test)]
mod tests {
    use applecart_sim::faults::Process;

    use super::*;

    /// `fault` meets a call in the middle, or, if it is a refusal, the first watch of a new agent:
    /// it is begun again after a delay that is drawn at random.
    fn trace(seed: u64, fault: Fault) -> Vec<Step> {
        let refused = fault == Fault::Denied;
        let story = if refused { Story::Claim } else { Story::Release };
        let calm = Case::new(story, seed);
        let reference = run(&calm, None);
        let met = |step: &&Step| {
            let is_watch =
                matches!(step.process, Process::Agent(_)) && step.call.starts_with("watch ");
            if refused { is_watch } else { step.number == reference.first + 60 }
        };
        let number = reference.steps.iter().find(met).expect("such a step").number;
        let end = run(&Case { faults: vec![(number, fault)], ..calm }, Some(&reference));
        assert_eq!(end.violation, None);
        end.steps
    }

    #[test]
    fn the_same_seed_gives_the_same_trace_faults_included() {
        for fault in [Fault::CrashAfter, Fault::Error, Fault::Cut, Fault::Denied] {
            let first = trace(7, fault);
            assert!(first == trace(7, fault), "two runs of one seed differ");
            assert!(first != trace(8, fault), "two seeds give one trace");
        }
    }

    /// One Lease is read again and again: whichever of these reads is behind the times, nothing is
    /// taken or left that should not be.
    #[test]
    fn a_lease_that_was_there_a_moment_ago_is_not_believed_to_be_gone() {
        let calm = Case::new(Story::EarlyDelete, 1);
        let reference = run(&calm, None);
        let reads = reference
            .steps
            .iter()
            .filter(|step| step.number >= reference.first && step.call.starts_with("get leases"));
        let numbers: Vec<usize> = reads.map(|step| step.number).collect();
        assert!(numbers.len() > 10, "{numbers:?}");
        for number in numbers {
            let faults = vec![(number, Fault::Stale)];
            let end = run(&Case { faults, ..calm.clone() }, Some(&reference));
            assert_eq!(end.violation, None, "step {number}");
        }
    }

    #[test]
    fn a_story_whose_first_step_never_comes_ends() {
        for at in [None, Some(1_000_000)] {
            let end = run(&Case { at, ..Case::new(Story::DeleteAnywhere, 1) }, None);
            let violation = end.violation.unwrap_or_default();
            assert!(violation.starts_with("begin: "), "{at:?}: {violation}");
        }
    }

    #[test]
    fn what_a_case_is_compared_with_has_a_command_that_runs_it_and_no_bug() {
        let told = |case: Case| case.reference().command();
        let claim = "cargo xtask sweep claim --seed 3 --replay";
        let begun = Case { at: Some(7), ..Case::new(Story::DeleteAnywhere, 3) };
        assert_eq!(told(Case::new(Story::UpgradeAnywhere, 3)), claim);
        assert_eq!(told(begun.clone()), claim);
        let faults = vec![(9, Fault::Error)];
        let at = "cargo xtask sweep delete-anywhere --seed 3 --at 7";
        assert_eq!(told(Case { faults, ..begun }), at);
        let planted = |bug| Case { bug: Some(bug), ..Case::new(Story::Claim, 3) };
        assert_eq!(told(planted(Bug::Counts)), claim);
        // What this one does is right unless something goes wrong with it.
        assert_eq!(told(planted(Bug::Doubled)), planted(Bug::Doubled).command());
    }

    #[test]
    fn a_case_tells_the_command_that_runs_it_again() {
        let faults = vec![(7, Fault::Cut), (9, Fault::CrashAfter)];
        let case = Case { faults, ..Case::new(Story::Pod, 3) };
        let command = "cargo xtask sweep pod --seed 3 --fault 7:cut --fault 9:crash-after";
        assert_eq!(case.command(), command);
    }
}
