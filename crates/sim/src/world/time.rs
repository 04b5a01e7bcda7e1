//! Levers on what a world's processes are told of time, and on whether they reach their API server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use applecart_api::clock::Clock;
use jiff::SignedDuration;

use super::World;
use crate::faults::Process;

/// How many seconds the clocks of the processes under test are ahead of everybody else's.
#[derive(Clone, Debug, Default)]
pub(super) struct Skew(Arc<AtomicI64>);

impl World {
    /// The wall clock of the provider, the runner pools and the agents: it can jump.
    pub(super) fn process_clock(&self) -> Clock {
        let (clock, skew) = (self.settings.clock.clone(), self.skew.clone());
        Clock::new(move || clock.now() + SignedDuration::from_secs(skew.0.load(Ordering::Relaxed)))
    }

    /// The wall clocks of the provider, the runner pools and the agents jump by so many seconds.
    /// All others' go on, and so does time.
    pub fn jump(&self, seconds: i64) {
        self.skew.0.fetch_add(seconds, Ordering::Relaxed);
    }

    /// For so long the API server is gone for the provider, the runner pools and the agents.
    pub fn lose_api_server(&self, time: Duration) {
        if let Some(faults) = &self.settings.faults {
            faults.lose_api_server(time);
        }
    }

    /// For so long the agent on the Mac of this Node alone does not reach the API server.
    pub fn cut_off(&self, node: &str, time: Duration) {
        if let Some(faults) = &self.settings.faults {
            faults.cut_off(Process::Agent(node.to_owned()), time);
        }
    }
}
