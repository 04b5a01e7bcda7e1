//! From nothing to a Mac that is ready: choosing a host, claiming it, preparing and bootstrapping
//! it.

use std::time::Duration;

use applecart_api::condition::is_true;
use applecart_api::ids::{ProviderId, ServerId};
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::action::{Action, Identity};
use super::decide::{Decision, Limits, act, wait};
use super::observed::{
    Bootstrap, Candidate, Candidates, Host, HostRead, HostState, Lease, LeaseHolder, Observed,
};
use super::reason::{PoolCounts, Reason, back_off};
use super::status::{BOOTSTRAPPED, bootstrapped_status, failed_status, failure_detail};
use super::upkeep;
use crate::fleet_key::FleetKey;

/// Chooses a host from the list and takes its Lease.
pub(super) fn choose(seen: &Observed, candidates: &Candidates, limits: &Limits) -> Decision {
    let Some(_) = &seen.object.pool_prefix else { return wait(Reason::NoPool, limits.keep) };
    let listed = match candidates {
        Candidates::Failed(why) => {
            return wait(Reason::CannotRead(format!("the zone's hosts: {why}")), limits.look);
        }
        Candidates::Listed(listed) => listed,
    };
    let mut counts = PoolCounts::default();
    let fitting: Vec<&Candidate> =
        listed.iter().filter(|candidate| fits(seen, candidate, &mut counts)).collect();
    if fitting.is_empty() {
        return wait(Reason::NoAvailableHost(counts), limits.look);
    }
    // Machines that choose from the same list start at different places, so they rarely collide.
    let start = seen.object.uid.digits().bytes().map(usize::from).sum::<usize>();
    let chosen = fitting[start % fitting.len()];
    take(&chosen.host.id, &chosen.lease, false)
}

fn take(server: &ServerId, lease: &Lease, used: bool) -> Decision {
    let (server, version) = (server.clone(), lease.version.clone());
    let action = Action::TakeLease { server, version, used };
    act(action, Reason::Adopting)
}

/// S5: the one predicate for adoption; the first thing that rules a host out is counted.
fn fits(seen: &Observed, candidate: &Candidate, counts: &mut PoolCounts) -> bool {
    let host = &candidate.host;
    if host.class(seen.object.pool_prefix.as_deref()) != NameClass::Pool {
        return false;
    }
    counts.pool += 1;
    let ruled_out_by = if host.server_type != seen.object.server_type {
        &mut counts.wrong_type
    } else if !host.os.as_ref().is_some_and(|(name, family)| seen.object.os.accepts(name, family)) {
        &mut counts.wrong_os
    } else if !host.delivered || host.retiring || host.state != HostState::Ready {
        &mut counts.not_ready
    } else if candidate.lease.holder != LeaseHolder::Nobody {
        &mut counts.held
    } else if candidate.lease.unwiped {
        &mut counts.not_wiped
    } else {
        return true;
    };
    *ruled_out_by += 1;
    false
}

/// Moves a host that we know of on by one step.
pub(super) fn advance(
    now: Timestamp,
    seen: &Observed,
    server: &ServerId,
    lease: &Lease,
    read: &HostRead,
    limits: &Limits,
) -> Decision {
    let host = match read {
        HostRead::Failed(why) => {
            return wait(Reason::CannotRead(format!("its host: {why}")), limits.look);
        }
        HostRead::Gone => return wait(Reason::HostGone, limits.keep),
        HostRead::Seen(host) => host,
    };
    let class = host.class(seen.object.pool_prefix.as_deref());
    let mine = class == NameClass::Other(seen.object.name.clone())
        || class == NameClass::Claiming(seen.marker());
    match (&lease.holder, class) {
        (LeaseHolder::Other(holder), _) => wait(Reason::HeldByOther(holder.clone()), limits.keep),
        (LeaseHolder::Nobody, _) if mine => take(server, lease, true),
        (LeaseHolder::Us, NameClass::Pool) => mark(seen, host, lease),
        (LeaseHolder::Us, NameClass::Claiming(_)) if mine => settle(now, seen, host, lease, limits),
        (LeaseHolder::Us, NameClass::Other(_)) if mine => prepare(now, seen, host, limits),
        (LeaseHolder::Nobody | LeaseHolder::Us, _) => {
            wait(Reason::NotOurs(host.name.clone()), limits.keep)
        }
    }
}

/// Leased, still under its pool name: mark it as ours, if it still fits.
fn mark(seen: &Observed, host: &Host, lease: &Lease) -> Decision {
    let fresh = Candidate {
        host: host.clone(),
        lease: Lease { holder: LeaseHolder::Nobody, ..lease.clone() },
    };
    if fits(seen, &fresh, &mut PoolCounts::default()) {
        rename(host, NameClass::claiming(&seen.marker()), Reason::Adopting)
    } else {
        act(Action::ClearLease(host.id.clone()), Reason::Adopting)
    }
}

/// Marked: wait until nobody else's rename can still land, then give it our name.
fn settle(
    now: Timestamp,
    seen: &Observed,
    host: &Host,
    lease: &Lease,
    limits: &Limits,
) -> Decision {
    let Some(marked_at) = lease.marked_at else {
        return act(Action::NoteMarked(host.id.clone()), Reason::Settling);
    };
    let waited = Duration::try_from(now.duration_since(marked_at)).unwrap_or_default();
    if waited < limits.claim_settle {
        return wait(Reason::Settling, limits.claim_settle.saturating_sub(waited));
    }
    rename(host, seen.object.name.clone(), Reason::Settling)
}

pub(super) fn rename(host: &Host, to: String, reason: Reason) -> Decision {
    act(Action::Rename { server: host.id.clone(), was: host.name.clone(), to }, reason)
}

/// Claimed: everything that a bootstrap needs, then the bootstrap, then its Node.
fn prepare(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Decision {
    let expected = ProviderId { zone: seen.object.zone.clone(), server: host.id.clone() };
    match &seen.object.provider_id {
        None => return act(Action::SetProviderId(expected), Reason::Preparing),
        Some(other) if *other != expected => {
            return wait(Reason::NotOurs(host.name.clone()), limits.keep);
        }
        Some(_) => {}
    }
    match &seen.bootstrap {
        Bootstrap::Running { step, .. } => wait(Reason::Bootstrapping(step.clone()), limits.look),
        Bootstrap::Succeeded { stamp, awaits_boot } => {
            let reason = Reason::Bootstrapped;
            let boot = awaits_boot.as_deref();
            let status = bootstrapped_status(now, seen, stamp, boot, &reason);
            act(Action::RecordBootstrap(Box::new(status)), reason)
        }
        Bootstrap::Failed(message) => {
            let attempts = seen.object.status.bootstrap_attempts.unwrap_or(0).saturating_add(1);
            let due = now + back_off(attempts, limits.retry, limits.retry_cap);
            let reason = Reason::BootstrapFailed { attempts, message: message.clone() };
            let status = failed_status(now, seen, attempts, due, &reason);
            act(Action::RecordBootstrap(Box::new(status)), reason)
        }
        Bootstrap::None if is_true(&seen.object.status.conditions, BOOTSTRAPPED) => {
            let state = check_node(seen, &expected, limits);
            upkeep::keep(now, seen, host, limits, state, || bootstrap(now, seen, host, limits))
        }
        Bootstrap::None => bootstrap(now, seen, host, limits),
    }
}

fn bootstrap(now: Timestamp, seen: &Observed, host: &Host, limits: &Limits) -> Decision {
    match &host.state {
        HostState::Ready => {}
        HostState::Reinstalling => {
            return wait(Reason::HostChanging("reinstalling".into()), limits.look);
        }
        HostState::Changing(state) | HostState::Stuck(state) => {
            return wait(Reason::HostChanging(state.clone()), limits.look);
        }
    }
    if host.address.is_none() {
        return wait(Reason::NoAddress, limits.look);
    }
    match &seen.credentials.fleet_key {
        FleetKey::Ready => {}
        FleetKey::NotLooked => return wait(Reason::Preparing, limits.look),
        FleetKey::Waiting(why) => {
            return wait(Reason::SshKeyUnavailable(why.clone()), limits.look);
        }
    }
    if !seen.credentials.password {
        return if host.has_password {
            act(Action::StoreCredentials(host.id.clone()), Reason::Preparing)
        } else {
            wait(Reason::MissingSudoPassword, limits.keep)
        };
    }
    if let Some(part) = Identity::ALL.iter().find(|part| !seen.identity.contains(part)) {
        return act(Action::CreateIdentity(*part), Reason::Preparing);
    }
    if !seen.credentials.token {
        return wait(Reason::WaitingForToken, limits.look);
    }
    let status = &seen.object.status;
    if let Some(due) = status.next_attempt_at.filter(|due| now < *due) {
        let reason = Reason::BootstrapFailed {
            attempts: status.bootstrap_attempts.unwrap_or(0),
            message: failure_detail(status),
        };
        return wait(reason, Duration::try_from(due.duration_since(now)).unwrap_or_default());
    }
    act(Action::StartBootstrap(host.id.clone()), Reason::Bootstrapping(None))
}

fn check_node(seen: &Observed, expected: &ProviderId, limits: &Limits) -> Decision {
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
