//! Effects: performed, counted and logged in one place; or, by a process that only observes, told.

use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use applecart_core::Outcome;

use crate::metrics::Metrics;

/// Effects told so far that are remembered: past it, some may be told again.
const TOLD_MAX: usize = 10_000;

/// One effect, and whose.
pub struct Effect<'a> {
    /// Which of our controllers.
    pub controller: &'static str,
    /// On which object or host.
    pub object: &'a str,
    /// What it is, as metrics say it.
    pub word: &'static str,
    /// With what, if that is worth a word.
    pub detail: String,
    /// Why.
    pub reason: &'a (dyn Display + Sync),
}

/// Performs effects, or only tells of them.
pub struct Effects {
    metrics: Metrics,
    turns: AtomicU64,
    /// What was told, if this process only observes.
    told: Option<Mutex<BTreeSet<String>>>,
}

impl Effects {
    /// Performs effects, unless this process only observes.
    pub fn new(observe_only: bool, metrics: Metrics) -> Self {
        let told = observe_only.then(Mutex::default);
        Self { metrics, turns: AtomicU64::new(1), told }
    }

    /// Whether nothing may be performed.
    pub fn only_observes(&self) -> bool {
        self.told.is_some()
    }

    /// The span of one turn: each line that is logged within carries its number.
    pub fn turn(&self, controller: &'static str, object: &str) -> tracing::Span {
        let turn = self.turns.fetch_add(1, Ordering::Relaxed);
        tracing::info_span!("turn", turn, controller, object)
    }

    /// Performs an effect and says how it ended. `None` if this process only observes: then it is
    /// told, once for each object, effect and reason.
    pub async fn perform(
        &self,
        effect: &Effect<'_>,
        performed: impl Future<Output = Outcome>,
    ) -> Option<Outcome> {
        let Effect { controller, object, word: action, detail, reason } = effect;
        if let Some(told) = &self.told {
            let line = format!("{controller} {object}: {action} {detail}: {reason}");
            let mut told = told.lock().unwrap_or_else(PoisonError::into_inner);
            if told.len() >= TOLD_MAX {
                told.clear();
            }
            if told.insert(line) {
                self.metrics.count_withheld(controller, action);
                let told = "would, but only observes";
                tracing::info!(controller, object, action, detail, %reason, "{told}");
            }
            return None;
        }
        let outcome = performed.await;
        self.metrics.count_effect(controller, action, &outcome);
        tracing::info!(controller, object, action, detail, ?outcome, %reason, "turn");
        Some(outcome)
    }
}
