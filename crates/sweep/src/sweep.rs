//! Every step of every story × every fault that it can meet, on all cores.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use applecart_sim::faults::{Class, Fault, Step, table};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::explore::{Found, Seconds, explore};
use crate::plant::Bug;
use crate::run::{Case, End, LONG_SILENCE, NO_SILENCE, SHORT_SILENCE, run};
use crate::story::Story;

/// How much is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Breadth {
    /// Of reads and events one in so many meets its faults; every effect always does.
    pub one_in: usize,
    /// What goes wrong a second time.
    pub seconds: Seconds,
    /// So many plans with one to three faults drawn from the seed, too.
    pub random: usize,
    /// One run in so many is watched for a day after it came to rest.
    pub long_in: usize,
    /// Of all these plans so many of each story, drawn from the seed, and nobody watches for a day.
    pub sample: Option<usize>,
    /// A bug in all of them, so that a sweep can show that it finds it.
    pub bug: Option<Bug>,
    /// When the time is up: no plan begins any more.
    pub until: Option<Instant>,
}

/// One run in so many is watched for half an hour after it came to rest.
const SHORT_IN: usize = 50;
/// One plan in so many is run a second time, from its beginning.
const AGAIN_IN: usize = 50;
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
    /// The most memory that any of them had.
    pub most_kib: u64,
    /// Faults that were planned for steps that never came.
    pub never: usize,
    /// Plans that did not begin, because the time was up.
    pub left: usize,
}

impl Tally {
    pub fn add(&mut self, one: &Self) {
        self.plans += one.plans;
        self.violations += one.violations;
        self.most_kib = self.most_kib.max(one.most_kib);
        self.never += one.never;
        self.left += one.left;
    }
}

/// Sweeps one story, or all.
pub fn all(only: Option<Story>, seed: u64, breadth: Breadth) -> Tally {
    let began = Instant::now();
    let mut tally = Tally::default();
    let stories = only.map_or_else(|| Story::all().collect(), |story| vec![story]);
    for story in stories {
        tally.add(&sweep(story, seed, breadth));
    }
    if only.is_none() {
        println!("{}", figures("all stories", &tally, began.elapsed()));
    }
    tally
}

/// Sweeps one story.
pub fn sweep(story: Story, seed: u64, breadth: Breadth) -> Tally {
    let began = Instant::now();
    let calm = Case { silence: Some(NO_SILENCE), bug: breadth.bug, ..Case::new(story, seed) };
    let (reference, played) = match without_faults(&calm) {
        Ok(both) => both,
        Err((broken, violation)) => {
            let command = broken.command();
            println!("{story}: broken without any fault: {violation}\n  {command}");
            return Tally { plans: 1, violations: 1, ..Tally::default() };
        }
    };
    let mut cases = singles(&calm, &played, breadth);
    cases.extend(random(&calm, &played, breadth.random));
    if let Some(most) = breadth.sample {
        draw(&mut cases, most, seed);
    }
    let watched = one_of_each_kind(&cases, seed);
    for (at, case) in cases.iter_mut().enumerate() {
        case.silence = match at {
            at if breadth.sample.is_none() && watched.contains(&at) => Some(LONG_SILENCE),
            at if (at + 1).is_multiple_of(breadth.long_in) => Some(LONG_SILENCE),
            at if (at + 1).is_multiple_of(SHORT_IN) => Some(SHORT_SILENCE),
            // What goes wrong after the end is seen only by who looks on.
            _ if case.begins() >= played.over => Some(NO_SILENCE),
            _ => None,
        };
    }
    // The story without faults, and then a day of silence: beside all others, because it is long.
    if !story.is_anywhere() {
        let silence = if breadth.sample.is_some() { SHORT_SILENCE } else { LONG_SILENCE };
        cases.push(Case { silence: Some(silence), ..calm.clone() });
    }
    let compared = (!story.is_anywhere()).then_some(&reference);
    let course = Some(reference.course.clone());
    let mut found = explore(&calm, cases, course, breadth.seconds, breadth.until);
    found.plans += 1;
    run_again(&mut found, compared, breadth.until);
    let Found { plans, most_kib, never, left, .. } = found;
    let tally = Tally { plans, violations: found.broken.len(), most_kib, never, left };
    let effects = played.steps.iter().filter(|step| step.class == Class::Effect);
    let effects = effects.filter(|step| step.number >= played.first).count();
    let steps = played.steps.len() - played.first;
    let name = format!("{story}: {effects} effects in {steps} steps");
    println!("{}", figures(&name, &tally, began.elapsed()));
    tell(&found, compared);
    tally
}

/// The run without faults that others are compared with, and the one whose steps they share: the
/// same, but for a planted bug. Or which of them is broken, and how.
fn without_faults(calm: &Case) -> Result<(End, End), (Case, String)> {
    let sound = |case: Case, reference: Option<&End>| {
        let end = run(&case, reference);
        match end.violation {
            Some(violation) => Err((case, violation)),
            None => Ok(end),
        }
    };
    let told = calm.reference();
    let reference = sound(told.clone(), None)?;
    let planted = Case { bug: calm.bug, ..told.clone() };
    let played =
        if planted == told { reference.clone() } else { sound(planted, Some(&reference))? };
    Ok((reference, played))
}

/// What was played and found, for people.
pub fn figures(name: &str, tally: &Tally, time: Duration) -> String {
    let Tally { plans, violations, never, left, .. } = tally;
    let seconds = time.as_secs_f64();
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = *plans as f64 / seconds.max(0.001);
    let never = match never {
        0 => String::new(),
        never => format!("; planned faults that never came: {never}"),
    };
    let left = match left {
        0 => String::new(),
        left => format!("; the time was up before {left} more"),
    };
    let played = format!("{name}, {plans} plans in {seconds:.1} s, {rate:.0} a second");
    format!("{played}, {violations} violations{never}{left}")
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
            !calm.story.is_anywhere() && seen.is_multiple_of(breadth.one_in)
        }
    });
    let cases = |step: &Step| {
        if calm.story.is_anywhere() {
            return vec![Case { at: Some(step.number), ..calm.clone() }];
        }
        let with = |fault: &Fault| Case { faults: vec![(step.number, *fault)], ..calm.clone() };
        step.possible().iter().map(with).collect()
    };
    chosen.flat_map(cases).collect()
}

/// Where in `cases` one plan with each kind of fault is: which, the seed says.
fn one_of_each_kind(cases: &[Case], seed: u64) -> BTreeSet<usize> {
    let mut random = SmallRng::seed_from_u64(seed);
    let mut kinds: BTreeMap<Fault, Vec<usize>> = BTreeMap::new();
    for (at, case) in cases.iter().enumerate() {
        if let [(_, fault)] = case.faults.as_slice() {
            kinds.entry(*fault).or_default().push(at);
        }
    }
    kinds.into_values().map(|of_kind| of_kind[random.random_range(0..of_kind.len())]).collect()
}

/// Keeps so many plans, in their order: which, the seed says.
fn draw(cases: &mut Vec<Case>, most: usize, seed: u64) {
    let mut random = SmallRng::seed_from_u64(seed);
    while cases.len() > most {
        let at = random.random_range(0..cases.len());
        drop(cases.remove(at));
    }
}

/// Plans with one to three faults, drawn from the seed.
fn random(calm: &Case, reference: &End, plans: usize) -> Vec<Case> {
    let mut random = SmallRng::seed_from_u64(calm.seed);
    let steps = &reference.steps[reference.first..];
    let mut draw = |_| {
        // What begins at any moment begins at one of them, and then things go wrong.
        let begins = calm.story.is_anywhere();
        let from = if begins { random.random_range(0..steps.len()) } else { 0 };
        let (at, steps) = (begins.then_some(steps[from].number), &steps[from..]);
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
        Case { faults, at, ..calm.clone() }
    };
    (0..plans).map(&mut draw).collect()
}

/// Runs some plans again from their beginning: each must give the trace that it gave as a branch
/// of the others (G14); as long as there is time.
fn run_again(found: &mut Found, reference: Option<&End>, until: Option<Instant>) {
    found.digests.retain(|(case, _)| case.silence.is_none());
    found.digests.sort_by(|(one, _), (other, _)| one.faults.cmp(&other.faults));
    for (case, digest) in found.digests.iter().step_by(AGAIN_IN) {
        if until.is_some_and(|until| Instant::now() >= until) {
            return;
        }
        if run(case, reference).digest() != *digest {
            let what = "trace: the same plan, run by itself, gave another trace".to_owned();
            found.broken.push((case.clone(), what));
        }
    }
}

fn tell(found: &Found, reference: Option<&End>) {
    for (at, (case, violation)) in found.broken.iter().enumerate() {
        println!("  {violation}\n    seed {}: {}", case.seed, case.command());
        if at < TRACES {
            let end = run(case, reference);
            let from = case.begins().saturating_sub(AROUND);
            print!("{}", table(end.steps.iter().skip(from).take(2 * AROUND)));
            // What came of it, if that is further on.
            let shown = from + 2 * AROUND;
            let last = end.violated_at.unwrap_or(end.steps.len()) + 1;
            if last > shown {
                println!("  …");
                let from = last.saturating_sub(AROUND).max(shown);
                print!("{}", table(end.steps.iter().skip(from).take(last - from)));
            }
        }
    }
}
