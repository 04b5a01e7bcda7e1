//! One turn: observe, decide, perform one effect, tell, and say when to look again.

use std::sync::Arc;

use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::Outcome;
use applecart_core::machine::{Action, Decision, decide};
use kube::runtime::controller::Action as Wake;
use kube::{Resource, ResourceExt};

use super::Context;
use super::observe::{Turn, observe};
use super::perform::perform;
use crate::calls::ReadError;

/// Runs one turn for the object.
pub async fn turn(
    object: Arc<ScalewayAppleSiliconMachine>,
    context: Arc<Context>,
) -> Result<Wake, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let Some(turn) = observe(&context, &namespace, &object.name_any()).await? else {
        forget(&context, &object);
        return Ok(Wake::await_change());
    };
    let decision = decide(context.clock.now(), &turn.seen, &context.settings.limits);
    let Some(action) = &decision.action else {
        return Ok(decision.wake.map_or_else(Wake::await_change, Wake::requeue));
    };
    let outcome = perform(&context, &turn, action).await;
    tracing::info!(
        object = %turn.seen.object.name,
        action = action.describe(),
        ?outcome,
        reason = %decision.reason,
        "turn"
    );
    let uid = turn.seen.object.uid.as_str();
    let now = context.clock.now();
    let told = matches!(action, Action::WriteStatus(_));
    let again = context.troubles.settle(uid, action.describe(), &outcome, told, now);
    if outcome == Outcome::Done {
        tell(&context, &turn, action, &decision).await;
    }
    Ok(Wake::requeue(again))
}

/// Save, then tell: an Event for each reason that a stored status gives for the first time.
async fn tell(context: &Context, turn: &Turn, action: &Action, decision: &Decision) {
    let (Action::WriteStatus(status) | Action::RecordBootstrap(status)) = action else { return };
    if status.last_reason == turn.seen.object.status.last_reason {
        return;
    }
    let reason = &decision.reason;
    let about = turn.object.object_ref(&());
    context.events.publish(&about, reason.word(), reason.to_string(), reason.is_warning()).await;
}

fn forget(context: &Context, object: &ScalewayAppleSiliconMachine) {
    let Some(uid) = object.uid() else { return };
    context.troubles.clear(&uid);
    if let Ok(uid) = uid.parse() {
        context.jobs.stop(&uid);
    }
}
