//! What we tell people. Derived from what was seen and decided; can be wiped and rebuilt.

use applecart_api::condition::{Condition, Says, set};
use applecart_api::machine::{
    BootstrapProgress, Initialization, MachineAddress, ScalewayAppleSiliconMachineStatus,
};
use jiff::Timestamp;

use super::decide::Decision;
use super::observed::{
    Bootstrap, Bound, Candidates, Host, HostRead, LeaseHolder, Observed, Release,
};
use super::reason::Reason;

/// The condition that says that a bootstrap ended well on this host.
pub(super) const BOOTSTRAPPED: &str = "Bootstrapped";
const PROVISIONED: &str = "Provisioned";
const READY: &str = "Ready";
const PAUSED: &str = "Paused";
/// The condition that says whether a Mac that was bootstrapped is still all that it shall be.
pub(super) const UP_TO_DATE: &str = "UpToDate";
/// Its reason on a Mac that is as the system before us left it.
pub(super) const TAKEN_OVER: &str = "TakenOver";
/// Its reason on such a Mac that shall be something else by now.
pub(super) const OUTDATED: &str = "Outdated";
/// Its reason on a Mac on which something waits until no VM runs.
pub(super) const POSTPONED: &str = "Postponed";
/// Its reason on a Mac on which a step failed.
pub(super) const FAILED: &str = "AgentRollFailed";
/// Something waits until no VM runs, and the Node takes no new Pods for it.
pub(super) const DRAINING: &str = "Draining";

/// The status that goes with this turn.
///
/// Equal input gives an equal status, so an unchanged world causes no write.
#[must_use]
pub fn status(
    now: Timestamp,
    seen: &Observed,
    decision: &Decision,
) -> ScalewayAppleSiliconMachineStatus {
    let mut status = seen.object.status.clone();
    status.observed_generation = seen.object.generation;
    status.last_reason = Some(decision.reason.to_string());
    if is_blind(seen) {
        return tell_blind(now, seen, decision, status);
    }
    status.since = reason_since(&status, &decision.reason).or(Some(whole_second(now)));
    // What a person took away is not told as ours again.
    if let Some(host) = held_host(seen).filter(|_| decision.reason != Reason::Detached) {
        bind(&mut status, host);
    }
    match decision.reason {
        Reason::HostReleased(_) => unbind(&mut status),
        Reason::Rebooted => status.bootstrap_reboot_issued = Some(true),
        _ => {}
    }
    if is_rebuilt(seen) {
        say_bootstrapped(now, seen, &mut status);
    }
    status.bootstrap = match &seen.bootstrap {
        Bootstrap::Running { step: Some((name, index, total)), since } => {
            Some(progress(name, *index, *total, *since))
        }
        Bootstrap::Running { step: None, .. }
        | Bootstrap::None
        | Bootstrap::Succeeded { .. }
        | Bootstrap::Incomplete(_)
        | Bootstrap::Postponed(_)
        | Bootstrap::Failed(_)
        | Bootstrap::PasswordRefused(_) => None,
    };
    status.node_name = seen.node.as_ref().map(|_| seen.object.name.clone());
    let ready = decision.reason == Reason::Ready;
    status.ready = Some(ready);
    if ready {
        status.initialization = Some(Initialization { provisioned: Some(true) });
    }
    tell_paused(now, seen, decision, &mut status);
    tell_conditions(now, seen, decision, &mut status);
    let failed = status.failure_reason.is_some();
    status.phase = Some(phase(seen, decision, failed).to_owned());
    status
}

/// Since when a stored status has told this reason; `None` if it told another one last.
pub(super) fn reason_since(
    status: &ScalewayAppleSiliconMachineStatus,
    reason: &Reason,
) -> Option<Timestamp> {
    let told = status.conditions.iter().find(|condition| condition.type_ == READY)?;
    status.since.filter(|_| told.reason.as_deref() == Some(reason.word()))
}

fn whole_second(now: Timestamp) -> Timestamp {
    Timestamp::from_second(now.as_second()).expect("a time that was a time")
}

/// G11: of an object that lost its status, by a move or by hand, its Node tells that its host was
/// bootstrapped; so it does of one that an old version of the system before us called ready. One
/// that is being bootstrapped has a status.
fn is_rebuilt(seen: &Observed) -> bool {
    let (object, node) = (&seen.object, seen.node.as_ref());
    let untold = object.status.conditions.iter().all(|c| c.type_ != BOOTSTRAPPED);
    let wiped = object.status == ScalewayAppleSiliconMachineStatus::default()
        || (untold && object.status.ready == Some(true));
    let ours = object.provider_id.as_ref().map(ToString::to_string);
    let up = node.is_some_and(|node| node.ready && node.provider_id == ours);
    wiped && ours.is_some() && up
}

/// Whether this turn did not look at the host, or could not: nothing follows from that.
fn is_blind(seen: &Observed) -> bool {
    matches!(
        seen.bound,
        Bound::NotRead(_)
            | Bound::Unbound(Candidates::Failed(_) | Candidates::NoZone(_))
            | Bound::To { host: HostRead::Failed(_), .. }
    )
}

/// What was true when we last looked stays told; only why we do not look is new (S10).
fn tell_blind(
    now: Timestamp,
    seen: &Observed,
    decision: &Decision,
    mut status: ScalewayAppleSiliconMachineStatus,
) -> ScalewayAppleSiliconMachineStatus {
    if seen.object.deleting_since.is_some() {
        status.phase = Some("Deleting".to_owned());
    } else if status.phase.is_none() {
        status.phase = Some("Pending".to_owned());
    }
    tell_paused(now, seen, decision, &mut status);
    status
}

fn tell_paused(
    now: Timestamp,
    seen: &Observed,
    decision: &Decision,
    status: &mut ScalewayAppleSiliconMachineStatus,
) {
    let (holds, word, message) = match &decision.reason {
        reason @ Reason::Paused(_) => ("True", "Paused", reason.to_string()),
        _ => ("False", "NotPaused", String::new()),
    };
    let says = Says { type_: PAUSED, status: holds, reason: word, message };
    set(&mut status.conditions, says, seen.object.generation, now);
}

/// The status after a bootstrap that made the host a Node, and all else that it shall be or not.
pub(super) fn bootstrapped_status(
    now: Timestamp,
    seen: &Observed,
    told: &UpToDate<'_>,
    reason: &Reason,
) -> ScalewayAppleSiliconMachineStatus {
    let mut status = upkeep_status(now, seen, told, reason);
    status.bootstrap_attempts = None;
    status.bootstrap_reboot_issued = None;
    say_bootstrapped(now, seen, &mut status);
    status
}

fn say_bootstrapped(
    now: Timestamp,
    seen: &Observed,
    status: &mut ScalewayAppleSiliconMachineStatus,
) {
    let (holds, word) = ("True", "Bootstrapped");
    let says = Says { type_: BOOTSTRAPPED, status: holds, reason: word, message: String::new() };
    set(&mut status.conditions, says, seen.object.generation, now);
}

/// What upkeep has to tell.
pub(super) enum UpToDate<'a> {
    /// All is as it shall be; what counts from the next boot on, if anything.
    Yes { stamp: &'a str, awaits_boot: Option<&'a str> },
    /// It is as the system before us left it; fingerprint of what it should have been then.
    TakenOver(Option<&'a str>),
    /// It was taken over, and shall be something else by now.
    Outdated,
    /// Something waits until no VM runs.
    Postponed(&'a str),
    /// It failed: the next try is due then.
    Failed { message: &'a str, attempts: i32, due: Timestamp, exceeded: bool },
    /// What it needs is not there.
    Missing(&'a Reason),
}

/// The status after the steps ran again, or could not: whether the Mac is Ready is another matter.
pub(super) fn upkeep_status(
    now: Timestamp,
    seen: &Observed,
    told: &UpToDate<'_>,
    reason: &Reason,
) -> ScalewayAppleSiliconMachineStatus {
    let mut status = base(now, seen, reason);
    let (attempts, due) = match told {
        UpToDate::Failed { attempts, due, .. } => (Some(*attempts), Some(*due)),
        UpToDate::Yes { .. }
        | UpToDate::TakenOver(_)
        | UpToDate::Outdated
        | UpToDate::Postponed(_)
        | UpToDate::Missing(_) => (None, None),
    };
    status.tart_kubelet_update_attempts = attempts;
    status.next_attempt_at = due;
    let (holds, word, message) = match told {
        UpToDate::Yes { stamp, awaits_boot } => {
            status.tart_kubelet_binary_sha = Some((*stamp).to_owned());
            status.taken_over_stamp = None;
            // P29: what the system before us gave up on is well again.
            status.failure_reason = None;
            status.failure_message = None;
            let decision = Decision { action: None, wake: None, reason: reason.clone() };
            status.phase = Some(phase(seen, &decision, false).to_owned());
            ("True", "UpToDate", awaits_boot.unwrap_or_default().to_owned())
        }
        UpToDate::TakenOver(stamp) => {
            status.taken_over_stamp = stamp.map(str::to_owned);
            ("Unknown", TAKEN_OVER, "as it was left, until its configuration changes".to_owned())
        }
        UpToDate::Outdated => {
            ("False", OUTDATED, "its configuration changed since it was taken over".to_owned())
        }
        UpToDate::Postponed(what) if is_draining(seen) => {
            ("False", DRAINING, format!("{what}; its Node is cordoned until they have ended"))
        }
        UpToDate::Postponed(what) => ("False", POSTPONED, (*what).to_owned()),
        UpToDate::Failed { message, exceeded: true, .. } => {
            ("False", "TartKubeletUpdateExceededRetries", (*message).to_owned())
        }
        UpToDate::Failed { message, .. } => ("False", FAILED, (*message).to_owned()),
        UpToDate::Missing(what) => ("False", what.word(), what.to_string()),
    };
    let says = Says { type_: UP_TO_DATE, status: holds, reason: word, message };
    // What a run found says nothing about a spec that changed under it (P25).
    set(&mut status.conditions, says, seen.run_of.or(seen.object.generation), now);
    status
}

fn is_draining(seen: &Observed) -> bool {
    seen.node.as_ref().is_some_and(|node| node.draining && node.cordoned)
}

/// The status after a bootstrap that failed: the next one is due at `due`.
pub(super) fn failed_status(
    now: Timestamp,
    seen: &Observed,
    attempts: i32,
    due: Timestamp,
    reason: &Reason,
) -> ScalewayAppleSiliconMachineStatus {
    let mut status = base(now, seen, reason);
    status.bootstrap_attempts = Some(attempts);
    status.next_attempt_at = Some(due);
    let message = match reason {
        Reason::BootstrapFailed { message, .. } | Reason::PasswordRefused { message, .. } => {
            message.clone()
        }
        other => other.to_string(),
    };
    let says = Says { type_: BOOTSTRAPPED, status: "False", reason: reason.word(), message };
    set(&mut status.conditions, says, seen.object.generation, now);
    status
}

/// The status after a bootstrap that waits for running VMs: none failed, the next is at `due`.
pub(super) fn postponed_status(
    now: Timestamp,
    seen: &Observed,
    due: Timestamp,
    what: &str,
) -> ScalewayAppleSiliconMachineStatus {
    let reason = Reason::BootstrapPostponed(what.to_owned());
    let mut status = base(now, seen, &reason);
    status.next_attempt_at = Some(due);
    let (word, message) = (reason.word(), what.to_owned());
    let says = Says { type_: BOOTSTRAPPED, status: "False", reason: word, message };
    set(&mut status.conditions, says, seen.object.generation, now);
    status
}

fn base(now: Timestamp, seen: &Observed, reason: &Reason) -> ScalewayAppleSiliconMachineStatus {
    let decision = Decision { action: None, wake: None, reason: reason.clone() };
    let mut status = status(now, seen, &decision);
    status.bootstrap = None;
    status
}

/// The host that we hold under a name of ours, if this turn saw it.
fn held_host(seen: &Observed) -> Option<&Host> {
    match &seen.bound {
        Bound::To { lease, host: HostRead::Seen(host), .. }
            if lease.holder == LeaseHolder::Us
                && matches!(seen.release_of(host), Release::NotBegun | Release::Marked) =>
        {
            Some(host)
        }
        Bound::To { .. } | Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => None,
    }
}

fn bind(status: &mut ScalewayAppleSiliconMachineStatus, host: &Host) {
    status.server_id = Some(host.id.to_string());
    if let Some(address) = &host.address {
        status.addresses =
            vec![MachineAddress { type_: "ExternalIP".to_owned(), address: address.clone() }];
    }
}

/// P20, S2: everything that belongs to a host goes with it.
fn unbind(status: &mut ScalewayAppleSiliconMachineStatus) {
    status.server_id = None;
    status.addresses = vec![];
    status.tart_kubelet_binary_sha = None;
    status.tart_kubelet_update_attempts = None;
    status.taken_over_stamp = None;
    status.bootstrap_attempts = None;
    status.bootstrap_reboot_issued = None;
    status.next_attempt_at = None;
    status.failure_reason = None;
    status.failure_message = None;
    let of_host = [BOOTSTRAPPED, UP_TO_DATE];
    status.conditions.retain(|condition| !of_host.contains(&condition.type_.as_str()));
}

fn progress(name: &str, index: usize, total: usize, since: Timestamp) -> BootstrapProgress {
    let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
    BootstrapProgress {
        step: name.to_owned(),
        index: number(index),
        total: number(total),
        since: Some(since),
        display: format!("{index}/{total} {name}"),
    }
}

fn tell_conditions(
    now: Timestamp,
    seen: &Observed,
    decision: &Decision,
    status: &mut ScalewayAppleSiliconMachineStatus,
) {
    let generation = seen.object.generation;
    let reason = &decision.reason;
    let mut say = |type_, holds: bool, word, message: String| {
        let says =
            Says { type_, status: if holds { "True" } else { "False" }, reason: word, message };
        set(&mut status.conditions, says, generation, now);
    };
    let word = if *reason == Reason::Ready { "Ready" } else { reason.word() };
    let text = if *reason == Reason::Ready { String::new() } else { reason.to_string() };
    say(READY, *reason == Reason::Ready, word, text);
    let claimed = held_host(seen).is_some_and(|host| host.name == seen.object.name);
    if claimed {
        say(PROVISIONED, true, "Provisioned", String::new());
    } else if seen.object.deleting_since.is_none() {
        say(PROVISIONED, false, reason.word(), reason.to_string());
    }
}

/// Phase is a function of what is true, never a memory (P29).
fn phase(seen: &Observed, decision: &Decision, failed: bool) -> &'static str {
    let object = &seen.object;
    if object.deleting_since.is_some() {
        return "Deleting";
    }
    if failed {
        return "Failed";
    }
    let claimed = held_host(seen).is_some_and(|host| host.name == object.name);
    match (&seen.bound, &decision.reason) {
        (_, Reason::Ready) => "Ready",
        (
            _,
            Reason::BootstrapFailed { .. }
            | Reason::PasswordRefused { .. }
            | Reason::Rebooting(_)
            | Reason::Swapping(_),
        ) => "Failed",
        (_, Reason::HostReleased(_)) => "Pending",
        _ if is_swapped(seen) => "Failed",
        _ if claimed => "Bootstrapping",
        (Bound::To { .. }, _) | (Bound::Unbound(_), Reason::Adopting) => "Adopting",
        (Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_), _) => "Pending",
    }
}

/// Whether a living Machine's host is on its way back.
fn is_swapped(seen: &Observed) -> bool {
    held_host(seen).is_some_and(|host| seen.release_of(host) == Release::Marked)
}

/// Whether the last bootstrap failed because macOS refused the password.
pub(super) fn failed_by_password(status: &ScalewayAppleSiliconMachineStatus) -> bool {
    bootstrap_says(status, &Reason::PasswordRefused { attempts: 0, message: String::new() })
}

/// Whether the last bootstrap waits for running VMs.
pub(super) fn is_postponed(status: &ScalewayAppleSiliconMachineStatus) -> bool {
    bootstrap_says(status, &Reason::BootstrapPostponed(String::new()))
}

fn bootstrap_says(status: &ScalewayAppleSiliconMachineStatus, reason: &Reason) -> bool {
    let word = Some(reason.word());
    let says = |c: &Condition| c.type_ == BOOTSTRAPPED && c.reason.as_deref() == word;
    status.conditions.iter().any(says)
}

/// What a stored status says of its last failed bootstrap; empty if there was none.
pub(super) fn failure_detail(status: &ScalewayAppleSiliconMachineStatus) -> String {
    let failed = |c: &&Condition| c.type_ == BOOTSTRAPPED && c.status == "False";
    status.conditions.iter().find(failed).and_then(|c| c.message.clone()).unwrap_or_default()
}
