//! The one gate: every call of every process under test, to Kubernetes, Scaleway, GitHub, SSH and
//! Tart alike, and every event of its watches, is numbered and recorded here, and a plan says which
//! of them goes wrong and how.
//!
//! # Guarantees
//! - Calls get their numbers in the order in which they reach the gate.
//! - An oracle, if there is one, looks after every effect, before its caller hears of it.
//! - A process that crashed makes no further call, whichever of its tasks comes to it.
//! - A step that what the plan chose cannot happen to (a conflict to a read) is left alone. Whoever
//!   chooses sees what can, and may choose that instead, as drawn plans of the sweep do.

mod fault;
mod kubernetes;
mod mac;
mod service;
mod tart;
mod told;
mod trace;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use tokio::sync::Notify;
use tokio::time::Instant;

pub use fault::{Class, Edge, Fault, Terms, possible};
pub use mac::GatedDial;
pub use tart::GatedTart;
pub use told::Told;
pub use trace::{
    PROVIDER, Process, RUNNER_POOLS, SECOND_PROVIDER, SECOND_RUNNER_POOLS, Step, table,
};

/// How long a late effect takes to arrive in a real fleet: shorter than the wait of a claim for
/// renames of others.
const LATE: Duration = Duration::from_secs(10);
/// How long a call takes that is slow: others have time to act in between.
const SLOW: Duration = Duration::from_secs(8);
/// What a stale read does not see.
const STALE: Duration = Duration::from_mins(1);
/// How long events are held back that arrive as one.
const HELD: Duration = Duration::from_secs(30);
/// After so long without an answer, a server says so itself.
const SERVER_TIMEOUT: Duration = Duration::from_mins(1);

/// Looks for what must never be, after an effect.
pub type Oracle = Box<dyn Fn(&Step) -> Result<(), String> + Send + Sync>;
/// Cuts the power of the Mac of this name for a moment.
type PowerCut = Box<dyn Fn(&str) + Send + Sync>;

/// Says what goes wrong with a step that is about to happen.
pub type Chooser = Box<dyn Fn(&Ahead) -> Option<Fault> + Send + Sync>;

/// A step that is about to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Its number.
    pub number: usize,
    /// Of which kind.
    pub class: Class,
    /// What could go wrong with it.
    pub possible: &'static [Fault],
}

/// What goes wrong in a run.
pub enum Plan {
    /// What is chosen, step by step.
    Chosen(Chooser),
    /// One step in so many meets a fault, both drawn from a seed; only the last steps are kept.
    Chaos {
        /// Same seed, same faults.
        seed: u64,
        /// How rare faults are.
        one_in: u32,
        /// How much faster than a real fleet the world is.
        speed: f64,
    },
}

/// Steps that a run without an end remembers.
const KEPT_IN_CHAOS: usize = 256;

/// For so long calls are counted.
const MINUTE: Duration = Duration::from_mins(1);

/// Steps at one moment of virtual time, from which on somebody does the same without end (LH25).
const MOST_AT_ONCE: usize = 10_000;

/// Effects of one process at one edge in any minute of virtual time, from which on it tries again
/// and again with too short a pause (LH25). A provider with five new Macs has less than half of it.
const MOST_EFFECTS_A_MINUTE: usize = 600;

/// The same for reads: twice those of that provider.
const MOST_READS_A_MINUTE: usize = 2_000;

/// Heartbeats of one agent in a minute: six of its Lease, two of its Node, and as many again for a
/// status that changed.
const MOST_BEATS_A_MINUTE: u64 = 16;

/// Reads of one process at one edge in a minute in which all is well: a provider looks at each of
/// five Macs nine times, and asks Scaleway twice.
fn most_quiet_reads_a_minute(edge: Edge) -> u64 {
    match edge {
        Edge::Scaleway | Edge::Github => 20,
        Edge::Kubernetes | Edge::Ssh | Edge::Tart => 60,
    }
}

/// How much of what happens is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recording {
    Everything,
    /// Nothing goes wrong any more, and only effects are kept, Events among them.
    Effects,
}

/// The plan of one run, and the trace of what happened in it.
pub struct Faults {
    /// How long a late effect takes to arrive, in this world.
    late: Duration,
    /// What a stale read of Kubernetes does not see, in this world.
    stale: Duration,
    state: Mutex<State>,
    crashes: Mutex<BTreeMap<Process, Arc<Notify>>>,
    oracle: OnceLock<Oracle>,
    power_cut: OnceLock<PowerCut>,
    spins: Notify,
    services: Mutex<service::Memory>,
}

struct State {
    plan: Plan,
    random: SmallRng,
    recording: Recording,
    /// Whether Events are steps.
    hears_news: bool,
    began: Instant,
    steps: VecDeque<Step>,
    told: Vec<Told>,
    next: usize,
    /// The last step's time, and how many there were at that time.
    moment: (Duration, usize),
    /// When the last effects and reads of each process were, at each edge.
    busy: BTreeMap<(Process, Edge, Class), VecDeque<Duration>>,
    /// Calls to the API server by who makes them and its number, for two servers may give the same;
    /// and the steps that they are.
    open: BTreeMap<(Process, u64), usize>,
    /// The same for calls of Macs, by the Mac and its own count.
    open_macs: BTreeMap<(String, u64), usize>,
    /// Processes that crashed, and whose tasks may still be asked how far they are.
    dying: BTreeSet<Process>,
    /// Whose call to a Mac goes on at the moment.
    on_a_mac: Process,
    injected: usize,
    /// Until when the API server is gone for whoever is under test.
    gone_until: Option<Instant>,
    /// Until when some do not reach it.
    cut_off: BTreeMap<Process, Instant>,
    /// Heartbeats in a quiet time.
    beats: BTreeMap<Process, u64>,
    /// Reads in a quiet time.
    reads: BTreeMap<(Process, Edge), u64>,
    checks: u64,
    violation: Option<(usize, String)>,
}

impl fmt::Debug for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        write!(f, "Faults({} steps so far)", state.next)
    }
}

/// In place of the number of a call that a crashed process never made.
const NEVER_MADE: usize = usize::MAX;

/// A call at the gate.
#[derive(Clone, Copy, Debug)]
struct Entry {
    number: usize,
    fault: Option<Fault>,
}

impl Faults {
    /// A gate that does as `plan` says.
    #[must_use]
    pub fn new(plan: Plan) -> Arc<Self> {
        let (seed, faster) = match plan {
            Plan::Chaos { seed, speed, .. } => (seed, speed),
            Plan::Chosen(_) => (0, 1.0),
        };
        let state = State {
            plan,
            random: SmallRng::seed_from_u64(seed),
            recording: Recording::Everything,
            hears_news: false,
            began: Instant::now(),
            steps: VecDeque::new(),
            told: Vec::new(),
            next: 0,
            moment: (Duration::ZERO, 0),
            busy: BTreeMap::new(),
            open: BTreeMap::new(),
            open_macs: BTreeMap::new(),
            dying: BTreeSet::new(),
            on_a_mac: Process::Provider,
            injected: 0,
            gone_until: None,
            cut_off: BTreeMap::new(),
            beats: BTreeMap::new(),
            reads: BTreeMap::new(),
            checks: 0,
            violation: None,
        };
        Arc::new(Self {
            late: LATE.div_f64(faster),
            stale: STALE.div_f64(faster),
            state: Mutex::new(state),
            crashes: Mutex::default(),
            oracle: OnceLock::new(),
            power_cut: OnceLock::new(),
            spins: Notify::new(),
            services: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at everything that happened, in order; no step is taken meanwhile.
    pub fn look<T>(&self, look: impl FnOnce(&[Step]) -> T) -> T {
        look(self.state().steps.make_contiguous())
    }

    /// The number that the next step gets.
    #[must_use]
    pub fn next_number(&self) -> usize {
        self.state().next
    }

    /// How many faults happened, and how often the oracle looked.
    #[must_use]
    pub fn counts(&self) -> (usize, u64) {
        let state = self.state();
        (state.injected, state.checks)
    }

    /// How long ago the last fault of this kind was, if there was one.
    #[must_use]
    pub fn since_the_last(&self, is: impl Fn(&Step) -> bool) -> Option<Duration> {
        let state = self.state();
        let last = state.steps.iter().rev().find(|step| step.fault.is_some() && is(step))?;
        Some(state.began.elapsed().saturating_sub(last.at))
    }

    /// The first thing that the oracle found, and after which step.
    #[must_use]
    pub fn violation(&self) -> Option<(usize, String)> {
        self.state().violation.clone()
    }

    /// From now on nothing goes wrong, and only effects are recorded, Events among them; heartbeats
    /// are counted.
    pub fn be_quiet(&self) {
        let mut state = self.state();
        state.recording = Recording::Effects;
        state.beats.clear();
        state.reads.clear();
    }

    /// Whether Events are steps from now on: where nobody has anything to say, they are writes like
    /// any other.
    pub fn hear_news(&self, hears: bool) {
        self.state().hears_news = hears;
    }

    fn hears_news(&self) -> bool {
        let state = self.state();
        state.hears_news || state.recording == Recording::Effects
    }

    /// Whether nobody wrote anything since step `before`, in a time of this length, but heartbeats,
    /// and in a quiet time these, and reads, no more often than they are due (LH25).
    pub fn silent_since(&self, before: usize, time: Duration) -> Result<(), String> {
        let mut state = self.state();
        let later = state.steps.make_contiguous().iter().filter(|step| step.number >= before);
        let mut writes = later.filter(|step| step.class == Class::Effect);
        if let Some(Step { process, edge, call, .. }) = writes.next() {
            let more = writes.count();
            return Err(format!(
                "silence: {process} still writes, {edge}: {call}, and {more} more"
            ));
        }
        let minutes = time.as_secs() / 60;
        let most = (minutes + 1) * MOST_BEATS_A_MINUTE;
        if let Some((process, beats)) = state.beats.iter().find(|(_, beats)| **beats > most) {
            return Err(format!("silence: {process} sent {beats} heartbeats in {minutes} minutes"));
        }
        let most = |edge| (minutes + 1) * most_quiet_reads_a_minute(edge);
        match state.reads.iter().find(|((_, edge), reads)| **reads > most(*edge)) {
            None => Ok(()),
            Some(((process, edge), reads)) => {
                Err(format!("silence: {process} read {edge} {reads} times in {minutes} minutes"))
            }
        }
    }

    /// Asks `oracle` after every effect. The first one given stays.
    pub fn ask_after_effects(&self, oracle: Oracle) {
        let _ = self.oracle.set(oracle);
    }

    /// Whether the run has no end, so that nothing may be kept for ever.
    pub(crate) fn is_endless(&self) -> bool {
        matches!(self.state().plan, Plan::Chaos { .. })
    }

    /// Tells how to cut a Mac's power. The first way given stays.
    pub(crate) fn set_power_cut(&self, cut: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.power_cut.set(Box::new(cut));
    }

    /// For so long the API server is gone for whoever is under test: no call arrives, and watches
    /// end.
    pub(crate) fn lose_api_server(&self, time: Duration) {
        self.state().gone_until = Some(Instant::now() + time);
    }

    /// Whether it is gone at the moment.
    #[must_use]
    pub fn is_api_server_gone(&self) -> bool {
        self.state().gone_until.is_some_and(|until| Instant::now() < until)
    }

    /// For so long one process alone does not reach it.
    pub(crate) fn cut_off(&self, process: Process, time: Duration) {
        self.state().cut_off.insert(process, Instant::now() + time);
    }

    /// Whether it is gone at the moment, for this process at least.
    fn is_gone_for(&self, process: &Process) -> bool {
        let until = self.state().cut_off.get(process).copied();
        self.is_api_server_gone() || until.is_some_and(|until| Instant::now() < until)
    }

    /// Resolves when `process` shall die.
    pub async fn crashed(&self, process: &Process) {
        let crash = self.crash_of(process);
        crash.notified().await;
        self.state().dying.remove(process);
    }

    /// Resolves when somebody does something without end at one moment of virtual time.
    pub async fn spun(&self) {
        self.spins.notified().await;
    }

    fn crash_of(&self, process: &Process) -> Arc<Notify> {
        let mut crashes = self.crashes.lock().unwrap_or_else(PoisonError::into_inner);
        crashes.entry(process.clone()).or_default().clone()
    }

    /// Lets `process` die: whatever its tasks still ask for, it never did.
    fn ring(&self, state: &mut State, process: &Process) {
        self.crash_of(process).notify_one();
        state.dying.insert(process.clone());
    }

    /// Numbers a step, and says what shall go wrong with it; `None` if it is not recorded.
    fn enter(
        &self,
        process: Process,
        edge: Edge,
        class: Class,
        terms: Terms,
        call: impl FnOnce() -> String,
    ) -> Option<Entry> {
        let mut state = self.state();
        if state.dying.contains(&process) {
            // It never made this call.
            return Some(Entry { number: NEVER_MADE, fault: Some(Fault::CrashBefore) });
        }
        if state.recording == Recording::Effects && class != Class::Effect {
            match class {
                Class::Heartbeat => *state.beats.entry(process).or_default() += 1,
                Class::Read => *state.reads.entry((process, edge)).or_default() += 1,
                Class::Effect | Class::Event => {}
            }
            return None;
        }
        let number = state.next;
        state.next += 1;
        let possible = possible(edge, class, terms);
        let fault = state.draw(&Ahead { number, class, possible });
        state.injected += usize::from(fault.is_some());
        let at = state.began.elapsed();
        state.moment = if state.moment.0 == at { (at, state.moment.1 + 1) } else { (at, 1) };
        if state.moment.1 == MOST_AT_ONCE {
            self.spins.notify_one();
        }
        if let Some(most) = state.is_in_a_hurry(&process, edge, class, at) {
            let what = if class == Class::Effect { "does" } else { "reads" };
            let told = format!("spins: {process} {what} {most} things and more in a minute");
            state.violation.get_or_insert((number, told));
            self.spins.notify_one();
        }
        let answer = String::new();
        // What Tart takes its time for is done before its caller dies: its gate rings then.
        let crashes = match fault {
            Some(Fault::CrashBefore | Fault::CrashDuring) => true,
            Some(Fault::CrashAfter) => edge != Edge::Tart,
            _ => false,
        };
        if crashes {
            self.ring(&mut state, &process);
        }
        let call = call();
        let step = Step { number, at, process, edge, class, terms, call, answer, fault };
        state.steps.push_back(step);
        if matches!(state.plan, Plan::Chaos { .. }) && state.steps.len() > KEPT_IN_CHAOS {
            state.forget_the_first();
        }
        Some(Entry { number, fault })
    }

    /// Notes how a step was answered, and asks the oracle about it if it was an effect.
    fn answer(&self, number: usize, answer: &str) {
        let mut state = self.state();
        let Some(first) = state.steps.front().map(|step| step.number) else { return };
        let Some(step) = number.checked_sub(first).and_then(|at| state.steps.get_mut(at)) else {
            return;
        };
        answer.clone_into(&mut step.answer);
        if step.class != Class::Effect {
            return;
        }
        let step = step.clone();
        drop(state);
        if let Some(oracle) = self.oracle.get() {
            let found = oracle(&step);
            let mut state = self.state();
            state.checks += 1;
            if let (Err(violated), None) = (found, &state.violation) {
                state.violation = Some((number, violated));
            }
        }
    }
}

impl State {
    /// Forgets the oldest step; with it calls that nobody answered while it was known, for no
    /// answer to them would be noted any more.
    fn forget_the_first(&mut self) {
        self.steps.pop_front();
        let first = self.steps.front().map_or(self.next, |step| step.number);
        let known = |number: usize| number >= first && number != NEVER_MADE;
        self.open.retain(|_, number| known(*number));
        self.open_macs.retain(|_, number| known(*number));
    }

    /// Counts a call; how many there may be of its kind in a minute, if there were as many. A
    /// demo's minutes are its spectators': hours pass in one.
    fn is_in_a_hurry(
        &mut self,
        process: &Process,
        edge: Edge,
        class: Class,
        at: Duration,
    ) -> Option<usize> {
        let most = match class {
            Class::Effect => MOST_EFFECTS_A_MINUTE,
            Class::Read => MOST_READS_A_MINUTE,
            Class::Event | Class::Heartbeat => return None,
        };
        if matches!(self.plan, Plan::Chaos { .. }) {
            return None;
        }
        let times = self.busy.entry((process.clone(), edge, class)).or_default();
        times.push_back(at);
        while times.front().is_some_and(|first| at.saturating_sub(*first) > MINUTE) {
            times.pop_front();
        }
        (times.len() >= most).then_some(most)
    }

    fn draw(&mut self, ahead: &Ahead) -> Option<Fault> {
        if self.recording == Recording::Effects {
            return None;
        }
        match &self.plan {
            Plan::Chosen(choose) => choose(ahead).filter(|fault| ahead.possible.contains(fault)),
            Plan::Chaos { one_in, .. } => {
                let one_in = *one_in;
                let hit = self.random.random_range(0..one_in) == 0;
                hit.then(|| ahead.possible[self.random.random_range(0..ahead.possible.len())])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_crashed_makes_no_further_call_until_it_is_started_again() {
        let choose = |ahead: &Ahead| (ahead.number == 1).then_some(Fault::CrashAfter);
        let faults = Faults::new(Plan::Chosen(Box::new(choose)));
        let write = |process| {
            let call = || "create pods".to_owned();
            faults.enter(process, Edge::Kubernetes, Class::Effect, Terms::Plain, call).unwrap()
        };
        while write(Process::Provider).fault != Some(Fault::CrashAfter) {}
        let steps = faults.state().next;
        assert_eq!(write(Process::Provider).fault, Some(Fault::CrashBefore));
        assert_eq!(faults.state().next, steps, "nobody made it");
        assert_eq!(write(Process::RunnerPools).fault, None, "another process lives");
        faults.crashed(&Process::Provider).await;
        assert_eq!(write(Process::Provider).fault, None);
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_tries_again_and_again_with_too_short_a_pause_is_told() {
        // LH25
        let faults = Faults::new(Plan::Chosen(Box::new(|_| None)));
        let write = |process, class| {
            let call = || "patch nodes a".to_owned();
            let _step = faults.enter(process, Edge::Kubernetes, class, Terms::Plain, call);
        };
        for _ in 1..MOST_EFFECTS_A_MINUTE {
            write(Process::Provider, Class::Effect);
            write(Process::Provider, Class::Read);
            write(Process::RunnerPools, Class::Effect);
        }
        tokio::time::advance(MINUTE + Duration::from_secs(1)).await;
        for _ in 1..MOST_EFFECTS_A_MINUTE {
            write(Process::Provider, Class::Effect);
        }
        assert_eq!(faults.violation(), None, "another minute");
        write(Process::Provider, Class::Effect);
        let (_, told) = faults.violation().expect("it is too much");
        assert!(told.starts_with("spins: provider does 600"), "{told}");
        faults.spun().await;
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_reads_without_end_is_told_in_a_silence_too() {
        let read = |faults: &Faults| {
            let call = || "GET servers".to_owned();
            let _step =
                faults.enter(Process::Provider, Edge::Scaleway, Class::Read, Terms::Fresh, call);
        };
        let faults = Faults::new(Plan::Chosen(Box::new(|_| None)));
        for _ in 1..MOST_READS_A_MINUTE {
            read(&faults);
        }
        assert_eq!(faults.violation(), None);
        read(&faults);
        assert!(
            faults.violation().is_some_and(|(_, told)| told.starts_with("spins: provider reads"))
        );
        faults.be_quiet();
        for _ in 0..=most_quiet_reads_a_minute(Edge::Scaleway) {
            assert_eq!(faults.silent_since(0, Duration::ZERO), Ok(()));
            read(&faults);
        }
        let told = faults.silent_since(0, Duration::ZERO).unwrap_err();
        assert!(told.starts_with("silence: provider read"), "{told}");
    }

    #[test]
    fn a_run_without_an_end_forgets_calls_that_nobody_answered() {
        let faults = Faults::new(Plan::Chaos { seed: 1, one_in: u32::MAX, speed: 1.0 });
        for number in 0..10 * KEPT_IN_CHAOS {
            let call = || "get pods".to_owned();
            let (who, edge) = (Process::Provider, Edge::Kubernetes);
            let entry = faults.enter(who, edge, Class::Read, Terms::Plain, call);
            let key = u64::try_from(number).unwrap();
            let step = entry.unwrap().number;
            faults.state().open.insert((Process::Provider, key), step);
            faults.state().open_macs.insert(("mac".to_owned(), key), step);
        }
        let state = faults.state();
        assert_eq!(state.steps.len(), KEPT_IN_CHAOS);
        assert!(state.open.len() <= KEPT_IN_CHAOS && state.open_macs.len() <= KEPT_IN_CHAOS);
        assert!(state.told.is_empty());
    }
}
