//! Every effect of every scenario × every fault, on all cores.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use applecart_sim::faults::Fault;

use crate::run::{End, run};
use crate::scenario::Scenario;

/// Sweeps one scenario, or all; whether nothing was violated.
pub fn all(only: Option<Scenario>, seed: u64) -> bool {
    let mut sound = true;
    for scenario in Scenario::all().iter().filter(|s| only.is_none_or(|only| only == **s)) {
        sound &= sweep(*scenario, seed);
    }
    sound
}

/// Sweeps all scenarios with one seed after another.
pub fn soak(time: Duration, first: u64) -> bool {
    let began = Instant::now();
    let mut seed = first;
    while began.elapsed() < time {
        if !all(None, seed) {
            return false;
        }
        seed += 1;
    }
    println!("soaked {} seeds in {:.0?}", seed - first, began.elapsed());
    true
}

/// Runs one plan again and prints what happened.
pub fn replay(scenario: Scenario, seed: u64, effect: usize, fault: Fault) -> bool {
    let end = run(scenario, seed, Some((effect, fault)));
    for (number, line) in end.trace.iter().enumerate() {
        println!("{number:4}  {line}");
    }
    match &end.violation {
        None => println!("no violation"),
        Some(violation) => println!("violation: {violation}"),
    }
    end.violation.is_none()
}

fn sweep(scenario: Scenario, seed: u64) -> bool {
    let began = Instant::now();
    let reference = run(scenario, seed, None);
    if let Some(violation) = reference.violation {
        println!("{scenario}: broken without any fault: {violation}");
        return false;
    }
    let effects = reference.trace.len();
    let plans: Vec<(usize, Fault)> =
        (0..effects).flat_map(|effect| Fault::ALL.map(|fault| (effect, fault))).collect();
    let violations = in_parallel(scenario, seed, &plans);
    let seconds = began.elapsed().as_secs_f64();
    let count = plans.len() + 1;
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    let rate = count as f64 / seconds;
    println!(
        "{scenario}: {effects} effects, {count} plans in {seconds:.1} s, {rate:.0} a second, \
         {} violations",
        violations.len()
    );
    for ((effect, fault), end) in &violations {
        let violation = end.violation.as_deref().unwrap_or_default();
        println!("  effect {effect}, {fault}: {violation}");
        let fault = fault.to_string().replace(' ', "-");
        println!(
            "    cargo xtask sweep {scenario} --seed {seed} --effect {effect} --fault {fault}"
        );
    }
    violations.is_empty()
}

type Violation = ((usize, Fault), End);

fn in_parallel(scenario: Scenario, seed: u64, plans: &[(usize, Fault)]) -> Vec<Violation> {
    let next = AtomicUsize::new(0);
    let found = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                while let Some(plan) = plans.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let end = run(scenario, seed, Some(*plan));
                    if end.violation.is_some() {
                        found.lock().expect("no worker panics").push((*plan, end));
                    }
                }
            });
        }
    });
    let mut found = found.into_inner().expect("no worker panics");
    found.sort_by_key(|(plan, _)| *plan);
    found
}
