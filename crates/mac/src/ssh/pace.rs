//! How often a host is dialled: a host under attack answers nobody if we add to it (B15).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// When each address is, or was, dialled last.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<BTreeMap<String, Instant>>);

impl Pace {
    /// Waits until `address` may be dialled: never twice within `every`, whoever asks.
    pub(super) async fn wait(&self, address: &str, every: Duration) {
        tokio::time::sleep_until(self.turn(address, every, Instant::now())).await;
    }

    fn turn(&self, address: &str, every: Duration, now: Instant) -> Instant {
        let mut turns = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        turns.retain(|_, at| *at + every > now);
        let at = turns.get(address).map_or(now, |last| *last + every);
        turns.insert(address.to_owned(), at);
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_dialled_at_its_pace_and_delays_no_other() {
        // B15
        let (pace, every, now) = (Pace::default(), Duration::from_secs(2), Instant::now());
        let turns = [0, 1, 2].map(|_| pace.turn("a", every, now));
        assert_eq!(turns, [now, now + every, now + every * 2]);
        assert_eq!(pace.turn("b", every, now), now);
        let later = now + every * 3;
        assert_eq!(pace.turn("a", every, later), later, "nothing is remembered for long");
    }
}
