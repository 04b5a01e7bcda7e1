//! Tables for a Machine's decisions: each row a state, the one effect, and the reason.

mod choosing;
mod claim_rows;
mod guards;
mod move_and_pause;
mod ordering;
mod recovery;
mod release;
mod release_rows;
mod remembered;
mod telling;
mod upkeep;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use applecart_api::condition::{Condition, is_true};
use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use applecart_api::name_class::NameClass;
use applecart_api::os_pin::OsPin;
use jiff::Timestamp;

use super::*;
use crate::Trouble;
use crate::fleet_key::FleetKey;

const SERVER: &str = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
const NAME: &str = "fleet-x7k2p";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn host(name: &str) -> Host {
    Host {
        id: SERVER.parse().unwrap(),
        name: name.into(),
        state: HostState::Ready,
        delivered: true,
        retiring: false,
        server_type: "M2-L".into(),
        os: Some(("macos-tahoe-26.3".into(), "Tahoe".into())),
        address: Some("192.0.2.7".into()),
        has_password: true,
        changed_at: None,
    }
}

fn ours() -> Lease {
    let version = Some("7".into());
    Lease { holder: LeaseHolder::Us, version, note: note(), ..Lease::free() }
}

/// What the object says of itself.
fn note() -> OwnerNote {
    let owner = format!("macs/{NAME}/11111111-2222-3333-4444-555555555555");
    OwnerNote { owner: Some(owner), pool: Some("pool-".into()), builder: false }
}

fn seconds_ago(seconds: u64) -> Timestamp {
    now() - Duration::from_secs(seconds)
}

fn exactly() -> Exactly {
    Exactly { uid: "uid-1".into(), version: "3".into() }
}

fn identity(parts: &[Identity]) -> BTreeMap<Identity, Exactly> {
    parts.iter().map(|part| (*part, exactly())).collect()
}

fn whole_identity() -> BTreeMap<Identity, Exactly> {
    identity(&Identity::ALL)
}

fn node() -> Node {
    Node {
        uid: "node-1".into(),
        provider_id: Some(format!("scw-applesilicon://fr-par-1/{SERVER}")),
        cordoned: false,
        draining: None,
        drained: None,
        ready: true,
        silent_since: None,
    }
}

/// A Node whose agent has been silent for so many seconds.
fn silent(seconds: i64) -> Node {
    let since = now() - jiff::SignedDuration::from_secs(seconds);
    Node { ready: false, cordoned: true, silent_since: Some(since), ..node() }
}

fn guest(name: &str) -> Guest {
    Guest {
        namespace: "runners".into(),
        name: name.into(),
        uid: format!("{name}-uid"),
        version: "3".into(),
        runner: true,
        busy: false,
        deleting: false,
        forced: false,
        agent_finalizer: true,
    }
}

/// A fresh object that its Machine owns, and an empty zone.
fn fresh() -> Observed {
    Observed {
        object: Object {
            name: NAME.into(),
            uid: "11111111-2222-3333-4444-555555555555".parse().unwrap(),
            created_at: None,
            generation: Some(1),
            finalizer: true,
            deleting_since: None,
            deleted_for_move: false,
            owned_by_machine: true,
            machine_is_bound: false,
            move_is_blocked: true,
            terminate: false,
            update: false,
            auto_order: false,
            ordered: None,
            paused: None,
            waiting_for: None,
            drain_timeout: Some(Duration::from_hours(1)),
            note: note(),
            pool_prefix: Some("pool-".into()),
            zone: "fr-par-1".parse().unwrap(),
            server_type: "M2-L".into(),
            os: OsPin::parse("macos-tahoe"),
            provider_id: None,
            status: ScalewayAppleSiliconMachineStatus::default(),
        },
        cluster: "0badcafe".parse().unwrap(),
        bound: Bound::Unbound(Candidates::Listed(vec![])),
        images: Images::Listed(vec![]),
        credentials: Credentials::default(),
        identity: BTreeMap::new(),
        name: Name::Ours,
        node: None,
        guests: vec![],
        builder: Builder::None,
        may_drain: false,
        bootstrap: Bootstrap::None,
        upkeep: Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) })),
        reboot: Reboot::NotGranted,
        run_of: None,
        trouble: None,
        contested_until: None,
    }
}

/// An object whose host was read under `name` with `lease`.
fn bound(name: &str, lease: Lease) -> Observed {
    let bound =
        Bound::To { server: SERVER.parse().unwrap(), lease, host: HostRead::Seen(host(name)) };
    Observed { bound, ..fresh() }
}

/// An object with a claimed host and everything that a bootstrap needs.
fn prepared() -> Observed {
    let mut seen = bound(NAME, ours());
    seen.object.provider_id =
        Some(format!("scw-applesilicon://fr-par-1/{SERVER}").parse().unwrap());
    seen.credentials = Credentials {
        fleet_key: FleetKey::Ready,
        stored: Some(exactly()),
        password: true,
        renewed: false,
        token: true,
    };
    seen.identity = whole_identity();
    seen
}

fn bootstrapped() -> Observed {
    let mut seen = prepared();
    seen.object.move_is_blocked = false;
    seen.object.status.conditions = vec![Condition {
        type_: "Bootstrapped".into(),
        status: "True".into(),
        severity: None,
        reason: None,
        message: None,
        last_transition_time: None,
        observed_generation: None,
    }];
    seen
}

fn deleting(mut seen: Observed) -> Observed {
    seen.object.deleting_since = Some(now());
    seen
}

fn with(mut seen: Observed, change: impl FnOnce(&mut Observed)) -> Observed {
    change(&mut seen);
    seen
}

fn with_host(seen: Observed, change: impl FnOnce(&mut Host)) -> Observed {
    with(seen, |seen| match &mut seen.bound {
        Bound::To { host: HostRead::Seen(host), .. } => change(host),
        other => panic!("no host to change in {other:?}"),
    })
}

/// Decides as if the status had been told already, and `clusterctl move` been told to wait or to
/// come, so that the effect itself is seen.
fn effect(seen: &Observed) -> Decision {
    effect_at(now(), seen)
}

fn effect_at(now: Timestamp, seen: &Observed) -> Decision {
    let limits = Limits::default();
    let mut seen = seen.clone();
    for _ in 0..3 {
        let decision = decide(now, &seen, &limits);
        match &decision.action {
            Some(Action::WriteStatus(told)) => seen.object.status = (**told).clone(),
            Some(Action::BlockMove(block)) => seen.object.move_is_blocked = *block,
            _ => return decision,
        }
    }
    panic!("it tells the same again and again");
}

/// A reason was told, and since then no other.
fn say(seen: &mut Observed, reason: &Reason, since: Timestamp) {
    let decision = Decision { action: None, wake: None, reason: reason.clone() };
    seen.object.status = status::status(since, seen, &decision);
}

/// The status that `seen` leads to.
fn told(seen: &Observed) -> ScalewayAppleSiliconMachineStatus {
    status::status(now(), seen, &decide(now(), seen, &Limits::default()))
}

fn minutes_ago(minutes: u64) -> Timestamp {
    now() - Duration::from_mins(minutes)
}

/// A host under our releasing name, since so many minutes.
fn releasing(minutes: u64) -> Observed {
    let lease = Lease { releasing_at: Some(minutes_ago(minutes)), unwiped: true, ..ours() };
    bound(&NameClass::releasing(&fresh().marker()), lease)
}

fn with_lease(seen: Observed, change: impl FnOnce(&mut Lease)) -> Observed {
    with(seen, |seen| match &mut seen.bound {
        Bound::To { lease, .. } => change(lease),
        other => panic!("no Lease to change in {other:?}"),
    })
}

/// The last effect failed, and is due again.
fn after_trouble(seen: Observed) -> Observed {
    after("try", seen)
}

/// The last effect was called `tried` and failed, and is due again.
fn after(tried: &'static str, mut seen: Observed) -> Observed {
    let (message, at, streaks) = ("do it".to_owned(), now(), vec![]);
    seen.trouble = Some(Trouble { tried, message, at, retry_at: at, too_early: false, streaks });
    seen
}

/// The last effect was called `tried`, is due again, and failed so often in so many minutes.
fn refused(tried: &'static str, times: u32, minutes: u64, seen: Observed) -> Observed {
    let streak = crate::Streak { tried, since: minutes_ago(minutes), times, retry_at: now() };
    with(after(tried, seen), |seen| match &mut seen.trouble {
        Some(trouble) => trouble.streaks = vec![streak],
        None => panic!("no trouble"),
    })
}

fn candidate(change: impl FnOnce(&mut Host), lease: Lease) -> Observed {
    let mut host = host("pool-1");
    change(&mut host);
    let listed = vec![Arc::new(Candidate { host, lease })];
    Observed { bound: Bound::Unbound(Candidates::Listed(listed)), ..fresh() }
}

fn unfit(change: impl FnOnce(&mut PoolCounts)) -> Reason {
    let mut counts = PoolCounts { pool: 1, ..PoolCounts::default() };
    change(&mut counts);
    Reason::NoAvailableHost(counts)
}

fn server() -> applecart_api::ids::ServerId {
    SERVER.parse().unwrap()
}

fn rename(was: &str, to: &str) -> Action {
    Action::Rename { server: server(), was: was.into(), to: to.into() }
}

/// Every row: a state, the one effect that it leads to, and why.
type Row = (&'static str, Observed, Option<Action>, Reason);

fn delete_action(guest: &Guest, force: bool) -> Action {
    Action::DeleteGuest {
        namespace: guest.namespace.clone(),
        name: guest.name.clone(),
        uid: guest.uid.clone(),
        version: guest.version.clone(),
        force,
    }
}

fn rows() -> Vec<Row> {
    claim_rows::all().into_iter().chain(release_rows::all()).collect()
}

#[test]
fn each_state_leads_to_its_one_effect_for_its_reason() {
    for (name, seen, action, reason) in rows() {
        let decision = effect(&seen);
        assert_eq!(decision.reason, reason, "{name}");
        assert_eq!(decision.action, action, "{name}");
        let last = matches!(action, Some(Action::RemoveFinalizer));
        let timed = decision.wake.is_some() || decision.action.is_some();
        assert!(timed || last, "{name}: nothing would wake it (V6)");
    }
}

#[test]
fn every_reason_is_reached_and_reads_as_a_sentence() {
    let recorded = [
        Reason::Bootstrapped(Some("9 of 9 steps changed in 84 s".into())),
        Reason::BootstrapFailed { attempts: 2, message: "pf said no".into() },
        Reason::PasswordRefused { attempts: 2, message: "sudo said no".into() },
    ];
    let mut variants = BTreeSet::new();
    for reason in rows().into_iter().map(|(.., reason)| reason).chain(recorded) {
        let text = reason.to_string();
        assert!(!text.is_empty() && !text.ends_with('.'), "{reason:?}: {text}");
        let debug = format!("{reason:?}");
        variants.insert(debug.split(['(', ' ']).next().unwrap_or_default().to_owned());
    }
    assert_eq!(variants.len(), 49, "of the enum's variants, only {variants:?} are reached");
}

#[test]
fn a_status_that_another_leader_just_replaced_is_told_again_later_and_not_at_once() {
    // LH25
    let soon = now() + Duration::from_secs(7);
    let seen = with(fresh(), |seen| {
        seen.object.finalizer = true;
        seen.contested_until = Some(soon);
    });
    let limits = Limits::default();
    let decision = decide(now(), &seen, &limits);
    assert_eq!((decision.action, decision.wake), (None, Some(Duration::from_secs(7))));
    assert!(matches!(decide(soon, &seen, &limits).action, Some(Action::WriteStatus(_))));
}

#[test]
fn the_status_is_told_before_the_effect_and_only_once() {
    for (name, seen, action, _) in rows() {
        let limits = Limits::default();
        let first = decide(now(), &seen, &limits);
        if let Some(Action::WriteStatus(told)) = first.action {
            let again = with(seen, |seen| seen.object.status = *told);
            let second = decide(now(), &again, &limits).action;
            assert!(!matches!(second, Some(Action::WriteStatus(_))), "{name}: told twice");
            assert_eq!(effect(&again).action, action, "{name}");
        } else {
            assert_eq!(effect(&seen).action, action, "{name}");
        }
    }
}
