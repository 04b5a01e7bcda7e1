//! What a process that only observes tells of a Machine.

use applecart_core::Outcome;
use applecart_core::machine::{Action, Decision, Observed, decide};

use super::Context;
use super::turn::effect;

/// What a turn may write before the effect that it is about: its status, and a word to clusterctl.
const FIRST: usize = 2;

/// What comes before an effect only speaks of it, and nothing is written here: it is told, taken
/// for stored, and what would follow is decided.
pub async fn rehearse(context: &Context, seen: &Observed, mut decision: Decision) -> Decision {
    let mut stored = seen.clone();
    for _ in 0..FIRST {
        let Some(action) = &decision.action else { break };
        match action {
            Action::WriteStatus(status) => stored.object.status = (**status).clone(),
            Action::BlockMove(blocked) => stored.object.move_is_blocked = *blocked,
            _ => break,
        }
        let written = std::future::ready(Outcome::Refused);
        let told = effect(&seen.object.name, action, &decision.reason);
        context.effects.perform(&told, written).await;
        decision = decide(context.clock.now(), &stored, &context.settings.limits);
    }
    decision
}
