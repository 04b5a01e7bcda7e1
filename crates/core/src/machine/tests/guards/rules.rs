//! For each effect, what must hold before it. Written against what was read, not against how it is
//! decided.

use super::*;

macro_rules! effects {
    ($($name:ident)*) => {
        /// Every kind of effect there is.
        pub const EFFECTS: &[&str] = &[$(stringify!($name),)*];

        /// Of which kind an effect is.
        pub fn kind(action: &Action) -> &'static str {
            match action { $(Action::$name { .. } => stringify!($name),)* }
        }
    };
}

effects! {
    AddFinalizer RemoveFinalizer WriteStatus RecordBootstrap SetProviderId BlockMove TakeName
    TakeLease NoteMarked NoteReleasing NoteWiped NoteDelete NoteQuarantined NoteOwner NoteHealthy
    NoteMoving
    ClearLease ReturnLease LeaveLease Rename RequestWipe Reboot DeleteServer ScheduleDeletion
    NoteOrder Create StoreCredentials DeleteCredentials CreateIdentity DeleteIdentity StartBootstrap
    StartUpkeep Compare StopBootstrap RemoveRunner Cordon Drain Uncordon DeleteGuest FreeGuest
    DeleteNode
}

/// What an effect is judged by.
struct Case<'a> {
    seen: &'a Observed,
    living: bool,
    /// The Lease of the host that it knows of.
    lease: Option<&'a Lease>,
    /// That host, if it was seen.
    host: Option<&'a Host>,
}

impl<'a> Case<'a> {
    fn of(seen: &'a Observed) -> Self {
        let (lease, host) = match &seen.bound {
            Bound::To { lease, host: HostRead::Seen(host), .. } => (Some(lease), Some(host)),
            Bound::To { lease, .. } | Bound::NotRead(Some((_, lease))) => (Some(lease), None),
            Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(None) => (None, None),
        };
        Self { seen, living: seen.object.deleting_since.is_none(), lease, host }
    }

    fn holds(&self) -> bool {
        self.lease.is_some_and(|lease| lease.holder == LeaseHolder::Us)
    }

    fn is_one_of(&self, releases: &[Release]) -> bool {
        self.host.is_some_and(|host| releases.contains(&self.seen.release_of(host)))
    }

    /// Held by us, under our own name, our claiming or our releasing one.
    fn has(&self) -> bool {
        self.holds() && self.is_one_of(&[Release::NotBegun, Release::Marked])
    }

    /// Held by us, under the object's own name.
    fn has_claimed(&self) -> bool {
        self.holds() && self.host.is_some_and(|host| host.name == self.seen.object.name)
    }

    /// A living Machine may act: it is owned, not paused, and told that we are at work.
    fn may_act(&self) -> bool {
        let object = &self.seen.object;
        let may_live = object.paused.is_none() && object.owned_by_machine;
        object.finalizer && if self.living { may_live } else { !object.deleted_for_move }
    }

    /// The host goes with its Machine.
    fn is_doomed(&self) -> bool {
        let object = &self.seen.object;
        !self.living && (object.terminate || object.ordered.is_some())
    }

    fn is_wiped(&self) -> bool {
        self.lease.is_some_and(Lease::is_wiped)
    }

    fn is_quarantined(&self) -> bool {
        self.lease.is_some_and(|lease| lease.quarantined)
    }

    fn is_gone(&self) -> bool {
        matches!(self.seen.bound, Bound::To { host: HostRead::Gone, .. })
    }

    /// Nobody works on the host any more that we had: it is gone, wiped or set aside.
    fn is_over(&self) -> bool {
        let aside = &[Release::InPool, Release::Quarantined];
        let listed = matches!(self.seen.bound, Bound::Unbound(Candidates::Listed(_)));
        let unowned = self.lease.is_none_or(|l| !matches!(l.holder, LeaseHolder::Other(_)));
        let wiped = self.is_one_of(&[Release::Marked]) && self.is_wiped();
        let done = listed || wiped || self.is_quarantined() || self.is_one_of(aside);
        // Whoever holds the Lease of a host that is gone has nothing there.
        self.is_gone() || (unowned && done)
    }

    /// The Node is that of our host.
    fn is_our_node(&self, uid: Option<&str>) -> bool {
        let Some(node) = self.seen.node.as_ref() else { return false };
        let told = self.seen.object.provider_id.as_ref().map(ToString::to_string);
        let of_host = match (&told, &node.provider_id, &self.seen.bound) {
            (Some(_), None, _) => true,
            (Some(told), Some(id), _) => told == id,
            // Its provider ID was lost: the Lease tells whose host the Node names.
            (None, Some(id), Bound::To { server, .. }) => {
                self.holds() && id.ends_with(&server.to_string())
            }
            (None, _, _) => false,
        };
        of_host && uid.is_none_or(|uid| node.uid == uid)
    }

    /// A Mac is emptied: its Machine goes, or it gives up a host on which it never was anything.
    fn may_empty(&self) -> bool {
        let failed = self.seen.failures() >= 8;
        let stuck = self.host.is_some_and(|host| matches!(host.state, HostState::Stuck(_)));
        let given_up = (failed || stuck) && !self.seen.is_provisioned();
        let ours = self.holds() && self.is_one_of(&[Release::NotBegun]);
        ours && (!self.living || given_up) && self.is_our_node(None)
    }

    /// S5, LH14: another had the host of our name, nobody wiped it since, and nothing else says
    /// that it is ours.
    fn is_left_by_another(&self) -> bool {
        let object = &self.seen.object;
        let anothers = |lease: &Lease| {
            lease.unwiped && lease.note.owner.is_some() && lease.note.owner != object.note.owner
        };
        let known = object.status.server_id.is_some() || object.provider_id.is_some();
        let named = self.host.is_some_and(|host| host.name == object.name);
        named && !known && self.lease.is_some_and(anothers)
    }

    /// LH1: in the pool without a Lease, and the object's own: it counts as used unless it is being
    /// wiped.
    fn is_half_done(&self, used: bool) -> bool {
        let object = &self.seen.object;
        let known = object.status.server_id.is_some() || object.provider_id.is_some();
        let unleased = self.lease.is_some_and(|lease| lease.version.is_none());
        let wiped = self.host.is_some_and(|host| host.state == HostState::Reinstalling);
        known && unleased && self.is_one_of(&[Release::InPool]) && (used != wiped)
    }

    fn guest(&self, name: &str) -> Option<&Guest> {
        self.seen.guests.iter().find(|guest| guest.name == name)
    }

    /// Nobody knows where to return the host to.
    fn has_no_way(&self) -> bool {
        self.seen.object.pool_prefix.is_none() && !self.is_doomed()
    }

    /// `clusterctl move` takes it away, or a person detached it: its host works on.
    fn is_left(&self) -> bool {
        let object = &self.seen.object;
        let nameless = object.status.server_id.is_none() && object.provider_id.is_none();
        // G17: what was ordered, and nobody saw arrive, no person detached.
        let arrived = match &self.seen.bound {
            Bound::NotRead(held) => held.is_some(),
            _ => self.host.is_some_and(|host| host.name == object.name),
        };
        let detached = nameless && (object.ordered.is_none() || arrived);
        !self.living && (object.deleted_for_move || (object.paused.is_some() && detached))
    }
}

/// S3, S4, S6, S9, S12: whether an effect may happen in this state.
pub fn may(seen: &Observed, action: &Action) -> bool {
    let case = Case::of(seen);
    match action {
        Action::Rename { .. }
        | Action::RequestWipe { .. }
        | Action::Reboot(_)
        | Action::DeleteServer(_)
        | Action::ScheduleDeletion(_) => {
            case.may_act() && case.holds() && may_change(&case, action)
        }
        Action::NoteOrder | Action::Create { .. } => may_order(&case, action),
        // LH14: nobody else has the name.
        Action::TakeName { .. } => {
            case.living && case.may_act() && matches!(seen.name, Name::Free(_))
        }
        Action::TakeLease { .. }
        | Action::NoteMarked(_)
        | Action::NoteReleasing { .. }
        | Action::NoteWiped(_)
        | Action::NoteDelete(_)
        | Action::NoteQuarantined(_)
        | Action::NoteOwner(_)
        | Action::NoteHealthy(_)
        | Action::NoteMoving { .. }
        | Action::ClearLease(_)
        | Action::ReturnLease(_)
        | Action::LeaveLease(_) => may_lease(&case, action),
        Action::RemoveRunner
        | Action::Cordon { .. }
        | Action::Drain { .. }
        | Action::Uncordon { .. }
        | Action::DeleteGuest { .. }
        | Action::FreeGuest { .. }
        | Action::DeleteNode { .. } => case.may_act() && may_empty(&case, action),
        Action::AddFinalizer { .. }
        | Action::RemoveFinalizer
        | Action::WriteStatus(_)
        | Action::RecordBootstrap(_)
        | Action::SetProviderId(_)
        | Action::BlockMove(_) => may_write(&case, action),
        Action::StoreCredentials(_)
        | Action::DeleteCredentials(_)
        | Action::CreateIdentity(_)
        | Action::DeleteIdentity { .. }
        | Action::StartBootstrap(_)
        | Action::StartUpkeep(_)
        | Action::Compare(_)
        | Action::StopBootstrap => may_prepare(&case, action),
    }
}

fn may_change(case: &Case<'_>, action: &Action) -> bool {
    let (Some(host), Some(lease)) = (case.host, case.lease) else { return false };
    let (seen, object) = (case.seen, &case.seen.object);
    match action {
        Action::Rename { was, to, .. } => *was == host.name && may_rename(case, lease, host, to),
        Action::RequestWipe { .. } => {
            let marked = case.is_one_of(&[Release::Marked]);
            marked && host.state == HostState::Ready && !lease.is_wiped() && !lease.quarantined
        }
        Action::Reboot(_) => {
            let fresh = object.status.bootstrap_reboot_issued != Some(true);
            // S24: whatever runs there, lives on; no state here has waited for all of a drain.
            let busy = seen.guests.iter().any(|guest| guest.busy);
            let idle = matches!(seen.bootstrap, Bootstrap::None);
            case.living && case.has_claimed() && seen.failures() >= 3 && fresh && !busy && idle
        }
        Action::DeleteServer(_) => {
            case.is_doomed() && case.has() && lease.delete_requested_at.is_some()
        }
        Action::ScheduleDeletion(_) => {
            let early = seen.trouble.as_ref().is_some_and(|trouble| trouble.too_early);
            case.is_doomed() && case.has() && early && lease.delete_requested_at.is_some()
        }
        _ => false,
    }
}

/// Whether a host may be renamed so.
fn may_rename(case: &Case<'_>, lease: &Lease, host: &Host, to: &str) -> bool {
    let (seen, living) = (case.seen, case.living);
    // S24: a job of ours; what is on a Node of another's is not.
    let job = seen.guests.iter().any(|guest| guest.busy) || seen.builder == Builder::Busy;
    let busy = case.is_our_node(None) && job;
    let stuck = host.state != HostState::Ready || seen.trouble.is_some() || is_in_vain(seen, lease);
    match NameClass::read(to, seen.object.pool_prefix.as_deref().unwrap_or_default()) {
        // LH1, LH22: wiped, and by us.
        NameClass::Pool => case.is_one_of(&[Release::Marked]) && lease.is_wiped(),
        NameClass::Claiming(marker) => {
            let fits = host.state == HostState::Ready
                && host.delivered
                && !host.retiring
                && (!lease.unwiped || lease.marked_at.is_some())
                && host.server_type == seen.object.server_type
                && host.os.as_ref().is_some_and(|(os, family)| seen.object.os.accepts(os, family));
            marker == seen.marker() && living && case.is_one_of(&[Release::InPool]) && fits
        }
        NameClass::Releasing(marker) => {
            let given_up = seen.failures() >= 8 && !seen.is_provisioned();
            let ours = case.is_one_of(&[Release::NotBegun]) && (living || !lease.quarantined);
            // LH14: another has its name, so it never gets as far as that.
            let outdone = matches!(seen.name, Name::Other(_)) && !case.has_claimed();
            let goes = !living
                || (given_up && case.has_claimed())
                || (outdone && seen.object.ordered.is_none());
            marker == seen.marker() && ours && goes && !busy
        }
        NameClass::Quarantined => case.has() && (lease.is_wiped() || stuck),
        NameClass::Other(name) => {
            let claiming = host.name == NameClass::claiming(&seen.marker());
            let settled = lease.marked_at.is_some() && host.delivered;
            living && name == seen.object.name && claiming && settled
        }
        NameClass::OldMarker => false,
    }
}

/// Whether half an hour was not enough to see a wipe run, nor the minute for which that is told.
fn is_in_vain(seen: &Observed, lease: &Lease) -> bool {
    let status = &seen.object.status;
    let told = status.conditions.iter().find(|condition| condition.type_ == "Ready");
    let since = |minutes| status.since.is_some_and(|at| at <= minutes_ago(minutes));
    let enough = match told.and_then(|condition| condition.reason.as_deref()) {
        Some("CannotWipe") => since(1),
        Some("Quarantined") => true,
        _ => false,
    };
    enough && lease.releasing_at.is_some_and(|at| at <= minutes_ago(30))
}

/// V1: whether a host that was seen has been on its way back for longer than anybody waits. A
/// living Machine may wait for a pool.
pub fn is_overdue(seen: &Observed) -> bool {
    let (case, object) = (Case::of(seen), &seen.object);
    let long =
        case.lease.and_then(|lease| lease.releasing_at).is_some_and(|at| at <= minutes_ago(30));
    let goes = !case.living || object.pool_prefix.is_some();
    long && goes && case.may_act() && case.holds() && case.is_one_of(&[Release::Marked])
}

/// G17: never for who did not ask, never blindly.
fn may_order(case: &Case<'_>, action: &Action) -> bool {
    let object = &case.seen.object;
    let listed = matches!(case.seen.bound, Bound::Unbound(Candidates::Listed(_)));
    let free = case.living && case.may_act() && listed;
    if let Action::Create { name, .. } = action {
        let claiming = *name == NameClass::claiming(&case.seen.marker());
        return free && claiming && object.ordered.is_some_and(|order| order.unsent);
    }
    let asked = object.auto_order || object.ordered.is_some();
    let lost = object.ordered.is_none_or(|order| order.at < minutes_ago(10));
    free && asked && lost
}

fn may_lease(case: &Case<'_>, action: &Action) -> bool {
    let (seen, object) = (case.seen, &case.seen.object);
    let rename = |tried: &str| tried == Action::RENAME;
    let refused = seen.trouble.as_ref().is_some_and(|trouble| {
        rename(trouble.tried) || trouble.streaks.iter().any(|streak| rename(streak.tried))
    });
    let state = case.host.map(|host| &host.state);
    match action {
        Action::TakeLease { used, .. } => {
            let free = case.lease.is_none_or(|lease| lease.holder == LeaseHolder::Nobody);
            let ours = case.is_one_of(&[Release::NotBegun, Release::Marked]) && *used;
            let chosen = matches!(seen.bound, Bound::Unbound(Candidates::Listed(_)));
            let ours = ours && !case.is_left_by_another();
            case.may_act() && free && (ours || case.is_half_done(*used) || (chosen && case.living))
        }
        Action::NoteMarked(_) => {
            let claiming = NameClass::claiming(&seen.marker());
            case.living && case.holds() && case.host.is_some_and(|host| host.name == claiming)
        }
        Action::NoteReleasing { .. } => case.holds() && case.is_one_of(&[Release::Marked]),
        Action::NoteWiped(_) => {
            let marked = case.holds() && case.is_one_of(&[Release::Marked]);
            marked && state == Some(&HostState::Reinstalling)
        }
        Action::NoteDelete(_) => case.is_doomed() && case.has(),
        Action::NoteQuarantined(_) => case.has() && refused && !case.is_quarantined(),
        Action::NoteOwner(_) => {
            let new = case.lease.is_some_and(|lease| lease.note != object.note);
            case.living && case.may_act() && case.has_claimed() && new
        }
        Action::NoteHealthy(_) => {
            let well = is_true(&object.status.conditions, "Bootstrapped");
            case.living && case.has_claimed() && well
        }
        Action::NoteMoving { moving: true, .. } => {
            case.living && object.paused == Some(Pause::Cluster)
        }
        // Who goes back goes nowhere else.
        Action::NoteMoving { moving: false, .. } => {
            case.holds() && (case.living || (!case.is_left() && case.has()))
        }
        // S1: a host that carries our work, and nobody wiped, stays ours.
        Action::ClearLease(_) => {
            let nobodys = case.lease.is_some_and(|l| l.holder == LeaseHolder::Nobody);
            (case.holds() || (nobodys && case.is_gone())) && may_clear(case)
        }
        // S5: nothing of ours was ever on it.
        Action::ReturnLease(_) => {
            let marked = case.lease.is_some_and(|lease| lease.marked_at.is_some());
            let elsewhere = [Release::InPool, Release::NotOurs, Release::Quarantined];
            let elsewhere = case.is_one_of(&elsewhere);
            case.living && case.holds() && marked && object.provider_id.is_none() && elsewhere
        }
        Action::LeaveLease(_) => case.is_left() && object.deleted_for_move,
        _ => false,
    }
}

fn may_clear(case: &Case<'_>) -> bool {
    if case.is_left() {
        return !case.seen.object.deleted_for_move;
    }
    if case.is_one_of(&[Release::NotBegun]) {
        return !case.living && (case.is_quarantined() || case.has_no_way());
    }
    if case.is_one_of(&[Release::Marked]) {
        let going = !case.living && (case.is_wiped() || case.has_no_way());
        return going || case.is_quarantined();
    }
    let elsewhere = [Release::InPool, Release::Quarantined, Release::NotOurs];
    case.is_gone() || case.is_one_of(&elsewhere)
}

fn may_empty(case: &Case<'_>, action: &Action) -> bool {
    let guests = &case.seen.guests;
    match action {
        Action::RemoveRunner => case.may_empty() && case.seen.builder == Builder::Idle,
        Action::Cordon { uid } => case.may_empty() && case.is_our_node(Some(uid)),
        // V7: the update waits, and nobody else's of its fleet for longer.
        Action::Drain { uid } => {
            let asked = case.seen.may_drain && waits_for_vms(case.seen);
            let taken = |node: &Node| node.cordoned || node.draining.is_some();
            let taken = case.seen.node.as_ref().is_some_and(taken);
            case.living && case.has_claimed() && case.is_our_node(Some(uid)) && asked && !taken
        }
        // Only who we cordoned ourselves.
        Action::Uncordon { uid, came } => {
            let by_us = case.seen.node.as_ref().is_some_and(|node| node.draining.is_some());
            let let_go = case.seen.node.as_ref().is_some_and(|node| !node.cordoned);
            let waits = waits_for_vms(case.seen) || is_tried_again(case.seen);
            let over = by_us && (let_go || !waits) && !(*came && waits);
            case.living && case.has_claimed() && case.is_our_node(Some(uid)) && over
        }
        Action::DeleteGuest { name, force: false, .. } => {
            let drained = case.seen.node.as_ref().is_some_and(|node| node.draining.is_some());
            let for_update = drained && case.has_claimed() && waits_for_vms(case.seen);
            let idle = case.guest(name).is_some_and(|g| !g.busy && !g.deleting);
            let runner = case.guest(name).is_some_and(|g| g.runner);
            idle && (case.may_empty() || (for_update && runner && case.is_our_node(None)))
        }
        // S24, S37: without grace only where nothing can run any more.
        Action::DeleteGuest { name, force: true, .. } => {
            let there = case.guest(name).is_some_and(|guest| !guest.forced);
            case.is_over() && case.is_our_node(None) && there
        }
        Action::FreeGuest { name, .. } => {
            let stays = case.guest(name).is_some_and(|g| g.forced && g.agent_finalizer);
            case.is_over() && case.is_our_node(None) && stays
        }
        Action::DeleteNode { uid } => {
            let empty = guests.iter().all(|guest| guest.forced && !guest.agent_finalizer);
            case.is_over() && case.is_our_node(Some(uid)) && empty
        }
        _ => false,
    }
}

fn waits_for_vms(seen: &Observed) -> bool {
    let conditions = &seen.object.status.conditions;
    let told = conditions.iter().find(|c| c.type_ == "UpToDate").and_then(|c| c.reason.as_deref());
    matches!(told, Some("Postponed" | "Draining"))
}

fn is_tried_again(seen: &Observed) -> bool {
    let mut told = seen.object.status.conditions.iter().filter(|c| c.type_ == "UpToDate");
    told.any(|c| c.reason.as_deref() == Some("AgentRollFailed"))
}

fn may_write(case: &Case<'_>, action: &Action) -> bool {
    let (seen, object) = (case.seen, &case.seen.object);
    match action {
        Action::AddFinalizer { .. } => {
            case.living && object.owned_by_machine && object.paused.is_none() && !object.finalizer
        }
        Action::RemoveFinalizer => !case.living && object.finalizer && may_let_go(case),
        Action::SetProviderId(Some(id)) => {
            let same = case.host.is_some_and(|host| host.id == id.server);
            case.living && case.has_claimed() && same && object.provider_id.is_none()
        }
        // S2: of a host that is ours no more, and of which Cluster API never heard.
        Action::SetProviderId(None) => {
            let ours = case.is_one_of(&[Release::NotBegun]);
            let other = case.lease.is_some_and(|l| matches!(l.holder, LeaseHolder::Other(_)));
            case.living && !ours && !other
        }
        Action::WriteStatus(_) | Action::BlockMove(_) => !case.living || object.owned_by_machine,
        Action::RecordBootstrap(_) => {
            let idle = seen.bootstrap == Bootstrap::None && matches!(seen.upkeep, Upkeep::Running);
            case.living && case.has_claimed() && !idle
        }
        _ => false,
    }
}

/// C5, G17: nothing is held, nothing outside is left, and nothing is on its way.
fn may_let_go(case: &Case<'_>) -> bool {
    let (seen, object) = (case.seen, &case.seen.object);
    if case.is_left() {
        return !matches!(seen.bound, Bound::NotRead(Some(_)));
    }
    let held_by = match &seen.bound {
        Bound::To { lease: Lease { holder: LeaseHolder::Other(holder), .. }, .. } => Some(holder),
        _ => None,
    };
    let namesake = held_by.is_some_and(|holder| holder.split('/').nth(1) == Some(&object.name));
    let bare = seen.identity.is_empty() && seen.credentials.stored.is_none();
    let pending = object.ordered.is_some_and(|order| order.at > minutes_ago(10));
    let returned = match &seen.bound {
        Bound::Unbound(Candidates::Listed(_)) => !pending,
        Bound::Several(_) => true,
        Bound::Unbound(Candidates::NoZone(_)) => object.ordered.is_none(),
        Bound::Unbound(Candidates::Failed(_))
        | Bound::NotRead(_)
        | Bound::To { host: HostRead::Failed(_), .. } => false,
        Bound::To { .. } if held_by.is_some() || case.is_gone() => !case.holds(),
        Bound::To { .. } => {
            let wiped = case.is_one_of(&[Release::Marked]) && case.is_wiped();
            let aside = [Release::InPool, Release::Quarantined, Release::NotOurs];
            let done = wiped || case.is_quarantined() || case.has_no_way();
            let kept = !case.is_half_done(true);
            let aside = case.is_one_of(&aside) && kept;
            !case.holds() && (done || aside || case.is_left_by_another())
        }
    };
    returned && (bare || namesake)
}

fn may_prepare(case: &Case<'_>, action: &Action) -> bool {
    let (seen, object) = (case.seen, &case.seen.object);
    let works = case.living && case.may_act() && case.has_claimed();
    let own =
        case.host.map(|host| host.id.clone()) == object.provider_id.clone().map(|id| id.server);
    let up = case.host.is_some_and(|host| host.state == HostState::Ready);
    let idle = seen.bootstrap == Bootstrap::None;
    match action {
        Action::StoreCredentials(_) | Action::CreateIdentity(_) => works && own,
        Action::StartBootstrap(_) => {
            works && own && up && idle && matches!(seen.upkeep, Upkeep::Idle(_))
        }
        Action::StartUpkeep(_) => {
            let well = is_true(&object.status.conditions, "Bootstrapped");
            works && own && up && idle && well && matches!(seen.upkeep, Upkeep::Idle(_))
        }
        Action::Compare(_) => {
            let unmarked = case.lease.is_some_and(|lease| lease.marked_at.is_none());
            works && own && unmarked && matches!(seen.upkeep, Upkeep::Idle(_))
        }
        Action::StopBootstrap => !idle || !matches!(seen.upkeep, Upkeep::Idle(_)),
        // The password of a host that we keep stays.
        Action::DeleteCredentials(_) => !case.living || !case.is_one_of(&[Release::NotBegun]),
        // A Mac that works on keeps who it is.
        Action::DeleteIdentity { .. } => !case.living && !case.is_left(),
        _ => false,
    }
}
