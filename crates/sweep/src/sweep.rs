//! Every step of every story × every fault that it can meet, on all cores.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use applecart_sim::faults::{Class, Fault, Step, table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::run::{Case, End, LONG_SILENCE, SHORT_SILENCE, run};
use crate::story::Story;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breadth {
    /// Of reads and events one in so many meets its faults; every effect always does.
    pub one_in: usize,
    /// All pairs of crashes, too.
    pub pairs: bool,
    /// So many plans with one to three faults drawn from the seed, too.
    pub random: usize,
    /// One run in so many is watched for a day after it came to rest.
    pub long_in: usize,
}

/// One run in so many is watched for half an hour after it came to rest.
const SHORT_IN: usize = 50;
/// Traces that are printed for one story; of further violations only their commands.
const TRACES: usize = 1;
/// Steps of a trace that are printed before and after the first fault.
const AROUND: usize = 40;

/// What a sweep found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Runs.
    pub plans: usize,
    /// Runs that broke something.
    pub violations: usize,
}

/// Sweeps one story, or all.
pub fn all(only: Option<Story>, seed: u64, breadth: Breadth) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    for story in Story::all().iter().filter(|s| only.is_none_or(|only| only == **s)) {
        let one = sweep(*story, seed, breadth);
        tally.plans += one.plans;
        tally.violations += one.violations;
    }
    if only.is_none() {
        println!("{}", figures("all stories", &tally, began.elapsed()));
    }
    tally
}

/// Sweeps all stories with one seed after another, at full breadth, until the time is up.
pub fn soak(time: Duration, first: u64) -> bool {
    let began = Instant::now();
    let mut tally = Tally::default();
    let mut seed = first;
    while began.elapsed() < time && tally.violations == 0 {
        let breadth = Breadth { one_in: 7, pairs: false, random: 200, long_in: 20 };
        let one = all(None, seed, breadth);
        tally.plans += one.plans;
        tally.violations += one.violations;
        println!("seed {seed}: {} kB of memory", resident_kib());
        seed += 1;
    }
    println!("soaked {} seeds: {}", seed - first, figures("soak", &tally, began.elapsed()));
    tally.violations == 0
}

/// This process's memory, as the system counts it; 0 where it does not say.
fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|line| line.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).unwrap_or_default()
}

/// Runs one case again and prints what happened; whether it was sound.
pub fn replay(case: &Case) -> bool {
    let reference = run(&Case { faults: vec![], ..case.clone() }, None);
    let reference = if reference.violation.is_some() { None } else { Some(reference) };
    let end = run(case, reference.as_ref());
    print!("{}", table(&end.steps));
    match &end.violation {
        None => println!("no violation"),
        Some(violation) => println!("violation: {violation}"),
    }
    end.violation.is_none()
}

fn sweep(story: Story, seed: u64, breadth: Breadth) -> Tally {
    let began = Instant::now();
    let calm = Case { silence: Some(LONG_SILENCE), ..Case::new(story, seed) };
    // What can be deleted at any moment is a claim.
    let told = if story == Story::DeleteAnywhere { Story::Claim } else { story };
    let reference = run(&Case { story: told, ..calm.clone() }, None);
    if let Some(violation) = &reference.violation {
        println!("{story}: broken without any fault: {violation}\n  {}", calm.command());
        return Tally { plans: 1, violations: 1 };
    }
    let mut cases = singles(&calm, &reference, breadth);
    cases.extend(random(&calm, &reference, breadth.random));
    for (at, case) in cases.iter_mut().enumerate() {
        case.silence = match at {
            at if (at + 1).is_multiple_of(breadth.long_in) => Some(LONG_SILENCE),
            at if (at + 1).is_multiple_of(SHORT_IN) => Some(SHORT_SILENCE),
            _ => None,
        };
    }
    let compared = (story != Story::DeleteAnywhere).then_some(&reference);
    let (mut found, ends) = in_parallel(&cases, compared, breadth.pairs);
    let mut plans = cases.len() + 1;
    if breadth.pairs {
        let pairs: Vec<Case> =
            cases.iter().zip(&ends).flat_map(|(case, end)| pairs(case, end)).collect();
        plans += pairs.len();
        found.extend(in_parallel(&pairs, compared, false).0);
    }
    let tally = Tally { plans, violations: found.len() };
    let effects = reference.steps.iter().filter(|step| step.class == Class::Effect);
    let effects = effects.filter(|step| step.number >= reference.first).count();
    let steps = reference.steps.len() - reference.first;
    let name = format!("{story}: {effects} effects in {steps} steps");
    println!("{}", figures(&name, &tally, began.elapsed()));
    tell(&found);
    tally
}

fn figures(name: &str, tally: &Tally, time: Duration) -> String {
    let Tally { plans, violations } = tally;
    let seconds = time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = *plans as f64 / seconds.max(0.001);
    format!("{name}, {plans} plans in {seconds:.1} s, {rate:.0} a second, {violations} violations")
}

/// Each fault that each step can meet, alone.
fn singles(calm: &Case, reference: &End, breadth: Breadth) -> Vec<Case> {
    let mut seen: usize = 0;
    let mut beats: BTreeSet<String> = BTreeSet::new();
    let steps = reference.steps.iter().filter(|step| step.number >= reference.first);
    let chosen = steps.filter(|step| match step.class {
        Class::Effect => true,
        // One heartbeat is like the other.
        Class::Heartbeat => beats.insert(step.call.clone()),
        Class::Read | Class::Event => {
            seen += 1;
            calm.story != Story::DeleteAnywhere && seen.is_multiple_of(breadth.one_in)
        }
    });
    let cases = |step: &Step| {
        if calm.story == Story::DeleteAnywhere {
            return vec![Case { delete_at: Some(step.number), ..calm.clone() }];
        }
        let with = |fault: &Fault| Case { faults: vec![(step.number, *fault)], ..calm.clone() };
        step.possible().iter().map(with).collect()
    };
    chosen.flat_map(cases).collect()
}

/// Plans with one to three faults, drawn from the seed.
fn random(calm: &Case, reference: &End, plans: usize) -> Vec<Case> {
    let mut random = SmallRng::seed_from_u64(calm.seed);
    let steps = &reference.steps[reference.first..];
    let mut draw = |_| {
        let number = random.random_range(1..=3);
        let mut faults: Vec<(usize, Fault)> = (0..number)
            .map(|_| {
                let step = &steps[random.random_range(0..steps.len())];
                let possible = step.possible();
                (step.number, possible[random.random_range(0..possible.len())])
            })
            .collect();
        faults.sort_unstable();
        faults.dedup_by_key(|(step, _)| *step);
        Case { faults, ..calm.clone() }
    };
    (0..plans).map(&mut draw).collect()
}

/// After one crash, another one at each later effect.
fn pairs(case: &Case, end: &End) -> Vec<Case> {
    let crashes = [Fault::CrashBefore, Fault::CrashAfter];
    let [(first, fault)] = case.faults.as_slice() else { return vec![] };
    if !crashes.contains(fault) {
        return vec![];
    }
    let later = end
        .steps
        .iter()
        .filter(|step| step.number > *first && step.class == Class::Effect && step.fault.is_none());
    let second = |step: &Step| {
        crashes.map(|crash| {
            let faults = vec![(*first, *fault), (step.number, crash)];
            Case { faults, silence: None, ..case.clone() }
        })
    };
    later.flat_map(second).collect()
}

type Violation = (Case, End);

/// Runs all cases; those that broke something, and, if they are wanted, how each ended.
fn in_parallel(cases: &[Case], reference: Option<&End>, keep: bool) -> (Vec<Violation>, Vec<End>) {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let ends = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { break };
                    let end = run(case, reference);
                    if end.violation.is_some() {
                        found.lock().expect("no worker panics").push((at, end.clone()));
                    }
                    if keep {
                        ends.lock().expect("no worker panics").push((at, end));
                    }
                }
            });
        }
    });
    let mut found: Vec<(usize, End)> = found.into_inner().expect("no worker panics");
    found.sort_by_key(|(at, _)| *at);
    let mut ends: Vec<(usize, End)> = ends.into_inner().expect("no worker panics");
    ends.sort_by_key(|(at, _)| *at);
    let found = found.into_iter().map(|(at, end)| (cases[at].clone(), end)).collect();
    (found, ends.into_iter().map(|(_, end)| end).collect())
}

fn tell(found: &[Violation]) {
    for (at, (case, end)) in found.iter().enumerate() {
        let violation = end.violation.as_deref().unwrap_or_default();
        let step = case.faults.first().and_then(|(step, _)| end.steps.get(*step));
        let call = step.map(|step| format!("{} {}: {}", step.process, step.edge, step.call));
        println!("  {violation}\n    at {}", call.unwrap_or_default());
        println!("    seed {}: {}", case.seed, case.command());
        if at < TRACES {
            let around = case.faults.first().map_or(0, |(step, _)| *step);
            let from = around.saturating_sub(AROUND);
            print!("{}", table(end.steps.iter().skip(from).take(2 * AROUND)));
        }
    }
}
