//! Runs scenarios one after the other and tells how each ended.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use anyhow::{Error, Result, anyhow, ensure};
use futures::FutureExt;
use tokio::time::Instant;

use crate::Ground;
use crate::scenarios::{ALL, MISSING, Scenario};

/// Prints the scenarios.
pub fn list() {
    for scenario in ALL {
        println!("{}", scenario.name);
    }
    print_missing();
}

/// Runs those whose names contain one of `wanted` (all if there is none), prints each with its time
/// and ends with the line `e2e: N passed, M failed`. `false`: something failed.
pub async fn run(wanted: &[String], keep: bool) -> Result<bool> {
    let chosen: Vec<&Scenario> = ALL.iter().filter(|scenario| scenario.is_in(wanted)).collect();
    ensure!(!chosen.is_empty(), "no scenario is called like that: see `cargo xtask e2e --list`");
    let mut ground = Ground::from_environment().await?;
    let mut counts = Counts::default();
    for scenario in chosen {
        run_one(scenario, &mut ground, &mut counts).await;
    }
    if wanted.is_empty() {
        print_missing();
    }
    println!("e2e: {} passed, {} failed", counts.passed, counts.failed);
    if keep {
        keep_up(&mut ground).await?;
    }
    ground.leave().await?;
    Ok(counts.failed == 0)
}

#[derive(Default)]
struct Counts {
    passed: u32,
    failed: u32,
}

async fn run_one(scenario: &Scenario, ground: &mut Ground, counts: &mut Counts) {
    let name = scenario.name;
    if let Some(why) = ground.cannot_carry(scenario.needs) {
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
            counts.passed += 1;
            println!("ok      {time} {name}");
        }
        Err(error) => {
            counts.failed += 1;
            println!("FAILED  {time} {name}\n{error:#}\n{}", ground.tails());
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
