//! What a process that only observes tells of a Machine.

use applecart_core::Outcome;
use applecart_core::machine::{Action, Bound, Decision, LeaseHolder, Name, Observed, decide};

use super::Context;
use super::turn::effect;

/// What a turn may write before the effect that it is about: its status and a word to clusterctl, a
/// name and a Lease, and both of the first again.
const FIRST: usize = 6;

/// What comes before an effect only speaks of it, or takes what nobody else has, and nothing is
/// written here: it is told, taken for stored, and what would follow is decided. So the day before
/// a take-over shows what comes after the Lease of each host was taken.
pub async fn rehearse(context: &Context, seen: &Observed, mut decision: Decision) -> Decision {
    let mut stored = seen.clone();
    for _ in 0..FIRST {
        let Some(action) = &decision.action else { break };
        if !store(&mut stored, action) {
            break;
        }
        let written = std::future::ready(Outcome::Refused);
        let told = effect(&seen.object.name, action, &decision.reason);
        context.effects.perform(&told, written).await;
        decision = decide(context.clock.now(), &stored, &context.settings.limits);
    }
    decision
}

/// Takes what an effect writes for written; whether what follows can be told from that.
fn store(stored: &mut Observed, action: &Action) -> bool {
    match (action, &mut stored.bound) {
        (Action::WriteStatus(status), _) => stored.object.status = (**status).clone(),
        (Action::BlockMove(blocked), _) => stored.object.move_is_blocked = *blocked,
        (Action::TakeName { .. }, _) => stored.name = Name::Ours,
        // Of one that is only listed, nothing more is known.
        (Action::TakeLease { .. }, Bound::To { lease, .. }) => lease.holder = LeaseHolder::Us,
        _ => return false,
    }
    true
}
