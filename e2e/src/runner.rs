//! Runs scenarios, a few at once, and tells how each ended.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, ensure};
use futures::FutureExt;
use futures::future::join_all;
use tokio::time::Instant;

use crate::Ground;
use crate::ground::Needs;
use crate::scenarios::{ALL, MISSING, Scenario};

/// So many scenarios run at once, each on a ground of its own: most of them mostly wait.
const LANES: usize = 2;

/// Prints the scenarios.
pub fn list() {
    for scenario in ALL {
        println!("{}", scenario.name);
    }
    print_missing();
}

/// Runs those whose names contain one of `wanted` (all if there is none), prints each with its time
/// and ends with a line that counts every scenario there is. `false`: something failed.
pub async fn run(wanted: &[String], keep: bool, seed: u64) -> Result<bool> {
    let chosen: Vec<&Scenario> = ALL.iter().filter(|scenario| scenario.is_in(wanted)).collect();
    ensure!(!chosen.is_empty(), "no scenario is called like that: see `cargo xtask e2e --list`");
    let counts = Counts { not_asked_for: ALL.len() - chosen.len(), ..Counts::default() };
    let (counts, queue) = (RefCell::new(counts), RefCell::new(queued(chosen)));
    let mut grounds = vec![Ground::from_environment(seed).await?];
    let most = queue.borrow().len().min(LANES);
    while !keep && grounds.len() < most && grounds[0].may_have_a_second() {
        grounds.push(Ground::from_environment(seed).await?);
    }
    join_all(grounds.iter_mut().map(|ground| lane(ground, &queue, &counts))).await;
    print_missing();
    println!("{}", counts.borrow());
    for mut ground in grounds {
        if keep {
            keep_up(&mut ground).await?;
        }
        ground.leave().await?;
    }
    let failed = counts.borrow().failed;
    Ok(failed == 0)
}

/// What runs on one ground, one after the other: a scenario alone, or all that share a fleet.
fn queued(chosen: Vec<&'static Scenario>) -> VecDeque<Vec<&'static Scenario>> {
    let mut queue: VecDeque<Vec<&Scenario>> = VecDeque::new();
    for scenario in chosen {
        let shares = |others: &Vec<&Scenario>| others[0].needs == Needs::Contract;
        let sharing = queue.iter_mut().find(|others| shares(others));
        match sharing.filter(|_| scenario.needs == Needs::Contract) {
            Some(others) => others.push(scenario),
            None => queue.push_back(vec![scenario]),
        }
    }
    queue
}

/// Runs on one ground what no other lane has begun, until nothing is left.
async fn lane(
    ground: &mut Ground,
    queue: &RefCell<VecDeque<Vec<&Scenario>>>,
    counts: &RefCell<Counts>,
) {
    loop {
        let Some(next) = queue.borrow_mut().pop_front() else { return };
        for scenario in next {
            run_one(scenario, ground, counts).await;
        }
    }
}

/// What became of every scenario there is.
#[derive(Default)]
struct Counts {
    passed: usize,
    failed: usize,
    not_asked_for: usize,
    left_out: usize,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { passed, failed, not_asked_for, left_out } = self;
        write!(f, "e2e: {passed} passed, {failed} failed")?;
        for (count, what) in [
            (*not_asked_for, "not asked for"),
            (*left_out, "left out"),
            (MISSING.len(), "lines of the contract missing"),
        ] {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

async fn run_one(scenario: &Scenario, ground: &mut Ground, counts: &RefCell<Counts>) {
    let name = scenario.name;
    if let Some(why) = ground.cannot_carry(scenario.needs) {
        counts.borrow_mut().left_out += 1;
        println!("left out        {name}: {why}");
        return;
    }
    let start = Instant::now();
    let prepared = ground.prepare(scenario.needs).await;
    let preparing = start.elapsed();
    if preparing > Duration::from_secs(1) {
        println!("        {} the ground is ready", seconds(preparing));
    }
    let start = Instant::now();
    let done = match prepared {
        Ok(()) => caught((scenario.run)(ground)).await,
        Err(error) => Err(error.context("the ground did not get ready")),
    };
    let time = seconds(start.elapsed());
    match done {
        Ok(()) => {
            counts.borrow_mut().passed += 1;
            println!("ok      {time} {name}");
        }
        Err(error) => {
            counts.borrow_mut().failed += 1;
            let seed = ground.seed();
            println!("FAILED  {time} {name} (--seed {seed})\n{error:#}\n{}", ground.tails());
        }
    }
}

/// A scenario may assert: a panic is a failure like any other, and the next one runs.
async fn caught(story: impl Future<Output = Result<()>>) -> Result<()> {
    AssertUnwindSafe(story).catch_unwind().await.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(text.map_or_else(|| anyhow!("it panicked"), Error::msg))
    })
}

/// Until Ctrl-C, which drops the whole run.
async fn keep_up(ground: &mut Ground) -> Result<()> {
    let kubeconfig = ground.kubeconfig().await?;
    println!("\nThe control plane stays up until Ctrl-C:\n");
    println!("  export KUBECONFIG={}", kubeconfig.display());
    println!("  kubectl get --raw /readyz\n");
    std::future::pending().await
}

fn print_missing() {
    for (line, why) in MISSING {
        println!("missing: line {line}: {why}");
    }
}

fn seconds(time: Duration) -> String {
    format!("{:5.1} s", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_counts_those_that_did_not_run_too() {
        let counts = Counts { passed: 12, not_asked_for: 26, left_out: 2, ..Counts::default() };
        let line = counts.to_string();
        let start = "e2e: 12 passed, 0 failed, 26 not asked for, 2 left out";
        assert!(line.starts_with(start), "{line}");
        let all = Counts { passed: 40, ..Counts::default() }.to_string();
        assert!(!all.contains("asked for") && !all.contains("left out"), "{all}");
    }
}
