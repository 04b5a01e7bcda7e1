//! A Scaleway that runs on a laptop: the Apple silicon API and the IAM SSH keys.
//!
//! # Guarantees
//! - What the real service is known to do on the wire, this one does; what nobody knows, it does
//!   either way ([`Unsure`]).
//! - Everything that takes time is computed from the clock when somebody looks: no task runs, and
//!   virtual time works.
//! - Same seed, same calls at the same times: same answers, byte for byte.
//! - A call is performed at once and whole, or not at all.
//!
//! # Not simulated
//! Runners, private networks and connectivity diagnostics: paths that nobody here calls answer 404.

mod answer;
mod bench;
mod catalogue;
mod control;
mod gate;
mod host;
mod keys;
mod levers;
mod route;
mod seeded;
mod servers;
mod service;
mod settings;
mod shape;
mod state;

use std::sync::{Arc, Mutex, PoisonError};

use applecart_api::clock::Clock;
use applecart_api::ids::Zone;
use applecart_scaleway::{CONCURRENT_CALLS, Client, Config, Limit, Profile};
use secrecy::{ExposeSecret, SecretString};

pub use answer::Answer;
pub use bench::{BenchReport, bench};
pub use catalogue::server_types;
pub use control::levers;
pub use gate::{Call, Gate, Open, Operation, Verdict};
pub use levers::{HostSpec, HostView, MacSecrets, Rule};
pub use settings::{
    Accepts, Durations, ExistsStatus, Gone, Message, NewPassword, PageSize, Question,
    RateLimitReset, Settings, Shown, Unsure,
};

use state::State;

/// The limit of one simulated process: of this many calls at once.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "many simulated processes run in one, apart")]
pub fn limit(concurrent: usize) -> Limit {
    Limit::new(concurrent)
}

/// A handle on one simulated Scaleway; clones are handles on the same one.
#[derive(Clone)]
pub struct Scaleway {
    state: Arc<Mutex<State>>,
    gate: Arc<dyn Gate>,
}

impl Scaleway {
    /// An empty account that lets every call through.
    #[must_use]
    pub fn new(settings: Settings, clock: Clock) -> Self {
        Self::with_gate(settings, clock, Arc::new(Open))
    }

    /// An empty account whose calls pass `gate`, after any rules.
    #[must_use]
    pub fn with_gate(settings: Settings, clock: Clock, gate: Arc<dyn Gate>) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(settings, clock))), gate }
    }

    /// This world's time: its clock, and how far levers have moved it ahead.
    #[must_use]
    pub fn clock(&self) -> Clock {
        let this = self.clone();
        Clock::new(move || this.with(|state| state.now))
    }

    /// How a client of the account's own project is configured, in a process with this limit.
    #[must_use]
    pub fn config(&self, limit: Limit) -> Config {
        let settings = self.with(|state| state.settings.clone());
        let profile =
            Profile::new("http://scaleway.invalid", settings.secret_key, settings.project);
        Config::new(profile.expect("a profile"), self.clock(), limit)
    }

    /// The client of a simulated process that has no other: it has a limit of its own.
    #[must_use]
    pub fn client(&self) -> Client {
        Client::new(self.service(), self.config(limit(CONCURRENT_CALLS)))
    }

    /// The one secret key that is accepted.
    #[must_use]
    pub fn secret_key(&self) -> SecretString {
        self.with(|state| state.settings.secret_key.clone())
    }

    /// What to set for any client of the real service to call this one at `url`.
    #[must_use]
    pub fn environment(&self, url: &str, zone: &Zone) -> Vec<(&'static str, String)> {
        self.with(|state| {
            vec![
                ("SCW_API_URL", url.to_owned()),
                // Never sent, but Scaleway's own tools insist on its form.
                ("SCW_ACCESS_KEY", "SCWXXXXXXXXXXXXXXXXX".to_owned()),
                ("SCW_SECRET_KEY", state.settings.secret_key.expose_secret().to_owned()),
                ("SCW_DEFAULT_ORGANIZATION_ID", seeded::ORGANIZATION.to_owned()),
                ("SCW_DEFAULT_PROJECT_ID", state.settings.project.to_string()),
                ("SCW_DEFAULT_ZONE", zone.to_string()),
            ]
        })
    }

    /// Does something with the state as it is now.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.settle();
        act(&mut state)
    }
}
