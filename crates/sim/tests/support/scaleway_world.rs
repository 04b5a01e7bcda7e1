//! A simulated Scaleway under tokio's paused clock, for the tests beside it.

use applecart_api::clock::Clock;
use applecart_api::ids::Zone;
use applecart_sim::scaleway::{Scaleway, Settings};
use jiff::Timestamp;
use tokio::time::Instant;

/// Moves with tokio's clock: virtual in tests that pause it.
pub fn clock() -> Clock {
    let (start, epoch) = (Instant::now(), "2026-03-05T08:25:47.808092Z".parse::<Timestamp>());
    let epoch = epoch.unwrap();
    Clock::new(move || epoch + start.elapsed())
}

pub fn world(settings: Settings) -> Scaleway {
    Scaleway::new(settings, clock())
}

pub fn zone() -> Zone {
    "fr-par-1".parse().unwrap()
}
