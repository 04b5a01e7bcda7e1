//! One turn: observe, decide, perform one effect, tell, and say when to look again.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineStatus};
use applecart_core::Outcome;
use applecart_core::machine::{Action, Decision, Identity, Observed, Reason, decide};

use super::Context;
use super::bootstraps::{Counts, MaybeTold};
use super::departures::Who;
use super::memory::{Reading, key};
use super::observe::{Turn, observe, read_afresh};
use super::perform::{perform, publish};
use super::rehearse::rehearse;
use crate::calls::ReadError;
use crate::effects::Effect;

/// How old an ownership read may be when a host is renamed or wiped because of it.
const FRESH: Duration = Duration::from_secs(10);

/// A host shows that it is being wiped or rebooted a moment after that was accepted: whoever looks
/// at once may read what was before, and ask again. That moment is this part of a look.
const SHOWS: u32 = 5;

/// Kubernetes fills a token in a moment after its Secret was made: whoever looks at once tells
/// people that it is not there, and waits for a whole look. That moment is this part of one.
const FILLS: u32 = 20;

/// After somebody else took the host that was chosen, another one is chosen: soon, and not at once.
const ANOTHER: Duration = Duration::from_millis(50);

/// Runs one turn for the object, and says when the next one is due; `None` if only a change of the
/// world makes it so.
pub async fn turn(
    object: Arc<ScalewayAppleSiliconMachine>,
    context: Arc<Context>,
) -> Result<Option<Duration>, ReadError> {
    let Some((turn, mut decision)) = Box::pin(look(&context, &object)).await? else {
        forget(&context, &Who::of(&object));
        // Gone, or a read behind the times: then nothing else would ever bring us back.
        return Ok(Some(context.settings.limits.look));
    };
    if context.effects.only_observes() {
        decision = rehearse(&context, &turn.seen, decision).await;
    }
    let Some(action) = &decision.action else {
        return Ok(decision.wake);
    };
    let performed = async {
        if !is_fresh(&context, &turn, action) {
            return Outcome::Refused;
        }
        act(&context, &turn, action).await
    };
    let effect = effect(&turn.seen.object.name, action, &decision.reason);
    let Some(outcome) = context.effects.perform(&effect, performed).await else {
        return Ok(Some(context.settings.limits.keep));
    };
    if outcome == Outcome::Done && *action == Action::RemoveFinalizer {
        // Nobody may call us again for what is gone.
        forget(&context, &Who::of(&turn.object));
        return Ok(None);
    }
    if let (Outcome::Unknown, Action::RecordBootstrap(status)) = (&outcome, action) {
        may_have_told(&context, &turn, status, &decision.reason);
    }
    let uid = turn.seen.object.uid.as_str();
    let now = context.clock.now();
    let told = matches!(action, Action::WriteStatus(_));
    let again = context.troubles.settle(uid, action.describe(), &outcome, told, now);
    if outcome == Outcome::Done {
        if let Action::WriteStatus(status) | Action::RecordBootstrap(status) = action {
            context.tellings.told(uid, status, now);
        }
        tell(&context, &turn, action, &decision).await;
        let look = context.settings.limits.look;
        match action {
            Action::RequestWipe { .. } | Action::Reboot(_) => return Ok(Some(look / SHOWS)),
            Action::CreateIdentity(Identity::Token) => return Ok(Some(look / FILLS)),
            _ => {}
        }
    }
    if outcome == Outcome::Refused && matches!(action, Action::TakeLease { .. }) {
        return Ok(Some(again.min(ANOTHER)));
    }
    Ok(Some(again))
}

/// Observes and decides: from what can be recalled, and all anew if what follows must not follow
/// from that.
async fn look(
    context: &Context,
    object: &ScalewayAppleSiliconMachine,
) -> Result<Option<(Turn, Decision)>, ReadError> {
    let recalling = Box::pin(observe(context, object, Reading::recalling())).await?;
    let Some(turn) = recalling else { return Ok(None) };
    let reading = turn.reading.anew();
    let first = decide(context.clock.now(), &turn.seen, &context.settings.limits);
    if may_recall(&turn, &first) {
        let (turn, decision) = with_host(context, turn, first).await?;
        if may_recall(&turn, &decision) {
            return Ok(Some((turn, decision)));
        }
    }
    let anew = Box::pin(observe(context, object, reading)).await?;
    let Some(turn) = anew else { return Ok(None) };
    let decision = decide(context.clock.now(), &turn.seen, &context.settings.limits);
    with_host(context, turn, decision).await.map(Some)
}

/// Reads the host and decides anew, if it was remembered and that will not do.
async fn with_host(
    context: &Context,
    mut turn: Turn,
    decision: Decision,
) -> Result<(Turn, Decision), ReadError> {
    let limits = &context.settings.limits;
    match turn.remembered {
        Some(age) if !decision.may_follow_a_read_of(age, limits) => {
            Box::pin(read_afresh(context, &mut turn)).await?;
            let decision = decide(context.clock.now(), &turn.seen, limits);
            Ok((turn, decision))
        }
        Some(_) | None => Ok((turn, decision)),
    }
}

/// Whether a decision may follow from what Kubernetes said a moment ago, if anything was recalled:
/// it changes no host and gives up nothing, whatever it writes is refused if the world has moved
/// on, and what it waits for, a watch tells.
fn may_recall(turn: &Turn, decision: &Decision) -> bool {
    let leaving = turn.seen.object.deleting_since.is_some();
    let may = match &decision.action {
        None => !decision.reason.waits_unwatched(),
        // The first thing that is made outside. A delete that read the object before our finalizer
        // was there takes it away all the same, and only a read tells.
        Some(Action::TakeName { .. }) => false,
        // Of the host they need nothing but that it is free, and the write itself finds that out.
        Some(Action::AddFinalizer { .. } | Action::TakeLease { .. }) => true,
        Some(action) => action.may_follow_a_remembered_read(),
    };
    !turn.reading.has_recalled() || (may && !leaving)
}

/// Performs the effect. A host that was chosen from a list is known from that list.
async fn act(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    let performed = Box::pin(perform(context, turn, action));
    let outcome = context.reads.during(turn.server(), action, performed).await;
    if outcome == Outcome::Done
        && let Action::TakeLease { server, .. } = action
        && let Some(read) = turn.listed(server)
    {
        context.reads.note(read);
    }
    outcome
}

/// An effect of a Machine, as it is told.
pub fn effect<'a>(object: &'a str, action: &'a Action, reason: &'a Reason) -> Effect<'a> {
    // A status says nothing that its reason does not.
    let is_status = matches!(action, Action::WriteStatus(_) | Action::RecordBootstrap(_));
    let detail = if is_status { String::new() } else { format!("{action:?}") };
    Effect { controller: "machine", object, word: action.describe(), detail, reason }
}

/// Whether the read that an effect follows from is new enough for it.
fn is_fresh(context: &Context, turn: &Turn, action: &Action) -> bool {
    if !action.changes_host() {
        return true;
    }
    let marking = context.settings.limits.mark_within().filter(|_| action.marks_host());
    let now = context.clock.now();
    let age = turn.read_at.and_then(|at| Duration::try_from(now.duration_since(at)).ok());
    age.is_some_and(|age| age < marking.map_or(FRESH, |marking| marking.min(FRESH)))
}

/// Save, then tell: an Event for each reason that a stored status gives for the first time.
async fn tell(context: &Context, turn: &Turn, action: &Action, decision: &Decision) {
    let (Action::WriteStatus(status) | Action::RecordBootstrap(status)) = action else { return };
    if is_news(&turn.seen, status) {
        publish(context, &turn.object, &decision.reason).await;
    }
}

fn is_news(seen: &Observed, status: &ScalewayAppleSiliconMachineStatus) -> bool {
    status.last_reason != seen.object.status.last_reason
}

/// Nobody knows whether this was stored: the next turn may learn it from the object. What counts
/// nothing may be told twice.
fn may_have_told(
    context: &Context,
    turn: &Turn,
    status: &ScalewayAppleSiliconMachineStatus,
    reason: &Reason,
) {
    let counts = Counts::from(status);
    if counts != Counts::from(&turn.seen.object.status) {
        let news = is_news(&turn.seen, status).then(|| reason.clone());
        let told = MaybeTold { counts, news };
        context.bootstraps.may_have_told(&turn.seen.object.uid, told);
    }
}

/// The object is gone: what this process remembers of it goes, and what runs for it ends.
pub fn forget(context: &Context, who: &Who) {
    let Who { uid, namespace, name } = who;
    context.troubles.clear(uid);
    context.memory.kits.forget(name);
    context.memory.objects.forget(uid);
    context.rests.forget(&key(namespace, name));
    context.tellings.forget(uid);
    context.unread.forget(uid);
    if let Ok(uid) = uid.parse() {
        context.bootstraps.forget(&uid);
        context.orders.forget(&uid);
        context.reboots.forget(&uid);
        context.builders.forget(&uid);
    }
}
