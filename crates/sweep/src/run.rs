//! One run: a fresh world on a fresh thread under virtual time, a plan, a story, the oracles.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::faults::{Fault, Faults};
use applecart_sim::world::{World, WorldSettings};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::oracle;
use crate::scenario::Scenario;

/// How often the oracles look, in the world's time.
const LOOK: Duration = Duration::from_secs(1);
/// Any day will do, as long as it is always the same.
const BEGINNING: i64 = 1_800_000_000;

/// How a run ended.
#[derive(Clone, Debug)]
pub struct End {
    /// Every effect, in order.
    pub trace: Vec<String>,
    /// What was violated, if anything.
    pub violation: Option<String>,
}

/// Runs `scenario` with `plan`. The same arguments always give the same trace.
pub fn run(scenario: Scenario, seed: u64, plan: Option<(usize, Fault)>) -> End {
    let thread = std::thread::spawn(move || {
        applecart_entropy::seed(seed);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .expect("a runtime");
        runtime.block_on(play(scenario, seed, plan))
    });
    thread
        .join()
        .unwrap_or_else(|_| End { trace: vec![], violation: Some("the run panicked".to_owned()) })
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
        faults: None,
    }
}

async fn play(scenario: Scenario, seed: u64, plan: Option<(usize, Fault)>) -> End {
    let faults = Faults::new(plan);
    let mut settings = settings(seed, virtual_clock());
    settings.faults = Some(Arc::clone(&faults));
    let violation = match World::new(settings) {
        Ok(world) => Box::pin(judge(scenario, &world)).await.err(),
        Err(error) => Some(error.to_string()),
    };
    let trace = faults.trace().clone();
    End { trace, violation }
}

async fn judge(scenario: Scenario, world: &World) -> Result<(), String> {
    world.apply().await.map_err(|error| error.to_string())?;
    let story = async {
        scenario.play(world).await?;
        oracle::at_end(world, scenario).await
    };
    tokio::select! {
        biased;
        violated = watch(world) => Err(violated),
        told = story => told,
        () = world.run() => Err("the world stopped".to_owned()),
    }
}

/// Ends when an oracle finds something.
async fn watch(world: &World) -> String {
    loop {
        if let Err(violated) = oracle::always(world) {
            return violated;
        }
        tokio::time::sleep(LOOK).await;
    }
}
