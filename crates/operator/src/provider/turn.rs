//! One turn: observe, decide, perform one effect, tell, and say when to look again.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::Outcome;
use applecart_core::machine::{Action, Decision, decide};
use jiff::Timestamp;
use kube::runtime::controller::Action as Wake;
use kube::{Resource, ResourceExt};

use super::Context;
use super::observe::{Turn, observe};
use super::perform::perform;
use crate::calls::ReadError;

/// How old an ownership read may be when a host is renamed or wiped because of it.
const FRESH: Duration = Duration::from_secs(10);

/// Runs one turn for the object.
pub async fn turn(
    object: Arc<ScalewayAppleSiliconMachine>,
    context: Arc<Context>,
) -> Result<Wake, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let name = object.name_any();
    let Some(turn) = Box::pin(observe(&context, &namespace, &name)).await? else {
        forget(&context, &object);
        // Gone, or a read behind the times: then nothing else would ever bring us back.
        return Ok(Wake::requeue(context.settings.limits.look));
    };
    let decision = decide(context.clock.now(), &turn.seen, &context.settings.limits);
    let Some(action) = &decision.action else {
        return Ok(decision.wake.map_or_else(Wake::await_change, Wake::requeue));
    };
    let outcome = if action.changes_host() && !is_fresh(&turn, context.clock.now()) {
        Outcome::Refused
    } else {
        perform(&context, &turn, action).await
    };
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

fn is_fresh(turn: &Turn, now: Timestamp) -> bool {
    let age = turn.read_at.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    age.is_some_and(|age| age < FRESH)
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
        context.bootstraps.forget(&uid);
    }
}
