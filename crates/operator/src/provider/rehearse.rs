//! What a process that only observes tells of a Machine.

use applecart_core::Outcome;
use applecart_core::machine::{Action, Decision, Observed, decide};

use super::Context;
use super::turn::effect;

/// A status comes before the effect that it speaks of, and nothing is written here: the status is
/// told, taken for stored, and what would follow is decided.
pub async fn rehearse(context: &Context, seen: &Observed, decision: Decision) -> Decision {
    let Some(action @ Action::WriteStatus(status)) = &decision.action else { return decision };
    let written = std::future::ready(Outcome::Refused);
    let told = effect(&seen.object.name, action, &decision.reason);
    context.effects.perform(&told, written).await;
    let mut stored = seen.clone();
    stored.object.status = (**status).clone();
    decide(context.clock.now(), &stored, &context.settings.limits)
}
