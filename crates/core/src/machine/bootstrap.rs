//! From a host under our name to a Mac that is ready: preparing it, bootstrapping it, recovering it
//! in tiers, and looking after it.

use std::time::Duration;

use applecart_api::condition::is_true;
use applecart_api::ids::ProviderId;
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::{Action, Identity};
use super::claim::rename;
use super::decide::{Decision, act, since, wait};
use super::limits::{Limits, Tiers};
use super::observed::{Bootstrap, Host, HostState, Lease, Observed, Reboot};
use super::reason::{Reason, back_off};
use super::status::{
    BOOTSTRAPPED, UpToDate, bootstrapped_status, failed_by_password, failed_status, failure_detail,
    is_postponed, postponed_status, reason_since,
};
use super::upkeep::Upkeep;
use super::{leftovers, upkeep};
use crate::Streak;
use crate::fleet_key::FleetKey;

/// Claimed: everything that a bootstrap needs, then the bootstrap, then its Node.
pub(super) fn prepare(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    let expected = ProviderId { zone: seen.object.zone.clone(), server: host.id.clone() };
    match &seen.object.provider_id {
        None => return act(Action::SetProviderId(Some(expected)), Reason::Preparing),
        Some(other) if *other != expected => {
            return wait(Reason::NotOurs(host.name.clone()), limits.keep);
        }
        Some(_) => {}
    }
    match &seen.bootstrap {
        Bootstrap::Running { step, .. } => wait(Reason::Bootstrapping(step.clone()), limits.look),
        Bootstrap::Succeeded { stamp, awaits_boot, did } => {
            let told = UpToDate::Yes { stamp, awaits_boot: awaits_boot.as_deref() };
            bootstrapped(now, seen, &told, Some(did.clone()))
        }
        // B22: what is no part of being a Node fails alone, and is upkeep's to mend.
        Bootstrap::Incomplete(message) => {
            bootstrapped(now, seen, &upkeep::failed(now, seen, limits, message), None)
        }
        Bootstrap::Postponed(what) => {
            let status = postponed_status(now, seen, now + limits.retry, what);
            let reason = Reason::BootstrapPostponed(what.clone());
            act(Action::RecordBootstrap(Box::new(status)), reason)
        }
        Bootstrap::Failed(message) => {
            let message = message.clone();
            failed(now, seen, limits, |attempts| Reason::BootstrapFailed { attempts, message })
        }
        Bootstrap::PasswordRefused(message) => {
            let message = message.clone();
            failed(now, seen, limits, |attempts| Reason::PasswordRefused { attempts, message })
        }
        Bootstrap::None if is_true(&seen.object.status.conditions, BOOTSTRAPPED) => {
            if lease.owners_failed > 0 {
                return act(Action::NoteHealthy(host.id.clone()), Reason::Bootstrapped(None));
            }
            let state = look_after(seen, host, &expected, limits);
            upkeep::keep(now, seen, (host, lease), limits, state, || {
                lacking(seen, host, limits).unwrap_or_else(|| begin(host))
            })
        }
        // What was looked after is no more said to be bootstrapped: first that ends.
        Bootstrap::None if !matches!(seen.upkeep, Upkeep::Idle(_)) => {
            act(Action::StopBootstrap, Reason::Preparing)
        }
        Bootstrap::None => match recover(now, seen, host, limits) {
            Some(decision) => decision,
            None => bootstrap(now, seen, host, limits),
        },
    }
}

fn bootstrapped(
    now: Timestamp,
    seen: &Observed,
    told: &UpToDate<'_>,
    did: Option<String>,
) -> Decision {
    let reason = Reason::Bootstrapped(did);
    let status = bootstrapped_status(now, seen, told, &reason);
    act(Action::RecordBootstrap(Box::new(status)), reason)
}

/// Records a failure; the next attempt is due at a time that is state (LH21).
fn failed(
    now: Timestamp,
    seen: &Observed,
    limits: &Limits,
    reason: impl FnOnce(i32) -> Reason,
) -> Decision {
    let attempts = seen.object.status.bootstrap_attempts.unwrap_or(0).saturating_add(1);
    let due = now + back_off(attempts, limits.retry, limits.retry_cap);
    let reason = reason(attempts);
    let status = failed_status(now, seen, attempts, due, &reason);
    act(Action::RecordBootstrap(Box::new(status)), reason)
}

/// The tiers of recovery. Each is a one-shot that only its success uses up: a host is swapped once
/// it is under the releasing name, and was rebooted once that was granted, or it was seen to do so.
fn recover(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Option<Decision> {
    let (failures, tiers) = (seen.failures(), &limits.tiers);
    let reason = if Tiers::reached(tiers.max_attempts, failures) {
        Some(Reason::Swapping(failures))
    } else {
        stuck(now, seen, host, limits)
    };
    if let Some(reason) = reason.filter(|_| may_swap(seen)) {
        let swap = || rename(host, NameClass::releasing(&seen.marker()), reason);
        return Some(leftovers::empty(now, seen, limits).unwrap_or_else(swap));
    }
    if !Tiers::reached(tiers.reboot_after, failures) {
        return None;
    }
    let rebooted = seen.object.status.bootstrap_reboot_issued == Some(true);
    match host.state {
        HostState::Ready if !rebooted => reboot(now, seen, host, limits),
        HostState::Rebooting => Some(wait(Reason::Rebooted, limits.look)),
        HostState::Ready
        | HostState::Reinstalling
        | HostState::Changing(_)
        | HostState::Stuck(_) => None,
    }
}

/// Asks for the reboot, unless it was asked for.
fn reboot(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Option<Decision> {
    let (failures, due) = (seen.failures(), seen.object.status.next_attempt_at);
    let is_due = due.is_none_or(|due| now >= due);
    match seen.reboot {
        // S12: maybe nobody saw it, and it is over; asked again, it would never come to an end.
        Reboot::Granted => Some(wait(Reason::Rebooted, limits.look)),
        // S12: it may be on its way, and would be seen.
        Reboot::Unanswered(at) if since(now, at) < limits.reboot => {
            Some(wait(Reason::Rebooting(failures), limits.look))
        }
        // V5: neither one that is never answered nor one that is refused holds up the next attempt
        // and, in the end, the exchange.
        Reboot::Unanswered(_) if is_due => None,
        Reboot::NotGranted if is_due && is_refused(seen) => None,
        Reboot::NotGranted | Reboot::Unanswered(_) => {
            let reboot = || act(Action::Reboot(host.id.clone()), Reason::Rebooting(failures));
            Some(leftovers::busy(now, seen, limits).unwrap_or_else(reboot))
        }
    }
}

/// Whether the reboot failed since anything succeeded.
fn is_refused(seen: &Observed) -> bool {
    let reboots = |streak: &Streak| streak.tried == Action::REBOOT;
    seen.trouble.as_ref().is_some_and(|trouble| trouble.streaks.iter().any(reboots))
}

/// V5: a host that cannot even be tried is a bad one too, if that lasts, be it in a state that
/// should pass: none takes as long as our patience. Its reason stays what it was, for a new one
/// would begin to last anew.
fn stuck(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Option<Reason> {
    let changing = |state: &str| Reason::HostChanging(state.to_owned());
    let reasons = match &host.state {
        HostState::Ready => vec![],
        HostState::Reinstalling => vec![changing("reinstalling")],
        HostState::Rebooting => vec![changing("rebooting"), Reason::Rebooted],
        HostState::Changing(state) => vec![changing(state)],
        HostState::Stuck(state) => vec![Reason::HostStuck(state.clone())],
    };
    let lasts = |reason: &Reason| {
        let told = reason_since(&seen.object.status, reason);
        told.is_some_and(|at| since(now, at) >= limits.patience)
    };
    reasons.into_iter().find(lasts).filter(|_| limits.tiers.max_attempts > 0)
}

/// Cluster API binds a Node once, so a host is exchanged only before that; and only one of the
/// pool, to which it goes back.
fn may_swap(seen: &Observed) -> bool {
    !seen.is_provisioned() && seen.object.ordered.is_none() && seen.object.pool_prefix.is_some()
}

fn bootstrap(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Decision {
    let waiting = || next_attempt(now, seen, limits);
    lacking(seen, host, limits).or_else(waiting).unwrap_or_else(|| begin(host))
}

fn begin(host: &Host) -> Decision {
    act(Action::StartBootstrap(host.id.clone()), Reason::Bootstrapping(None))
}

/// What the steps need and do not have, if anything.
fn lacking(seen: &Observed, host: &Host, limits: &Limits) -> Option<Decision> {
    let changing = |state: &str| Some(wait(Reason::HostChanging(state.into()), limits.look));
    match &host.state {
        HostState::Ready => {}
        HostState::Reinstalling => return changing("reinstalling"),
        HostState::Rebooting => return changing("rebooting"),
        HostState::Changing(state) => return changing(state),
        HostState::Stuck(state) => {
            return Some(wait(Reason::HostStuck(state.clone()), limits.look));
        }
    }
    if host.address.is_none() {
        return Some(wait(Reason::NoAddress, limits.look));
    }
    match &seen.credentials.fleet_key {
        FleetKey::Ready => {}
        FleetKey::NotLooked => return Some(wait(Reason::Preparing, limits.look)),
        FleetKey::Waiting(why) => {
            return Some(wait(Reason::SshKeyUnavailable(why.clone()), limits.look));
        }
    }
    if !seen.credentials.password {
        return Some(if host.has_password {
            act(Action::StoreCredentials(host.id.clone()), Reason::Preparing)
        } else {
            wait(Reason::MissingSudoPassword, limits.keep)
        });
    }
    if let Some(part) = Identity::ALL.iter().find(|part| !seen.identity.contains_key(part)) {
        return Some(act(Action::CreateIdentity(*part), Reason::Preparing));
    }
    (!seen.credentials.token).then(|| wait(Reason::WaitingForToken, limits.look))
}

/// A wait for the next attempt, if it is not due. One that waits for another password looks for it,
/// and begins as soon as there is one.
fn next_attempt(now: Timestamp, seen: &Observed, limits: &Limits) -> Option<Decision> {
    let status = &seen.object.status;
    let due = status.next_attempt_at.filter(|due| now < *due)?;
    let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
    let attempts = status.bootstrap_attempts.unwrap_or(0);
    let message = failure_detail(status);
    if is_postponed(status) {
        return Some(wait(Reason::BootstrapPostponed(message), left));
    }
    if !failed_by_password(status) {
        return Some(wait(Reason::BootstrapFailed { attempts, message }, left));
    }
    let refused = || wait(Reason::PasswordRefused { attempts, message }, left.min(limits.look));
    (!seen.credentials.renewed).then(refused)
}

/// LH16: what became of the host since it was bootstrapped, by anybody's hand.
fn look_after(seen: &Observed, host: &Host, expected: &ProviderId, limits: &Limits) -> Decision {
    if host.retiring {
        return wait(Reason::HostRetiring, limits.keep);
    }
    match &host.state {
        HostState::Stuck(state) => return wait(Reason::HostStuck(state.clone()), limits.look),
        HostState::Reinstalling => {
            return wait(Reason::HostChanging("reinstalling".into()), limits.look);
        }
        // A Mac in passing trouble is what its Node says.
        HostState::Ready | HostState::Rebooting | HostState::Changing(_) => {}
    }
    match &seen.node {
        None => wait(Reason::NodeMissing, limits.look),
        Some(node) => match &node.provider_id {
            Some(id) if *id != expected.to_string() => {
                wait(Reason::NodeOfOther(id.clone()), limits.look)
            }
            _ if node.ready => wait(Reason::Ready, limits.keep),
            _ => wait(Reason::NodeNotReady, limits.look),
        },
    }
}
