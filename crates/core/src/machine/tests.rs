//! Tables for a Machine's decisions: each row a state, the one effect, and the reason.

use std::collections::BTreeSet;
use std::time::Duration;

use applecart_api::condition::{Condition, is_true};
use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use applecart_api::name_class::NameClass;
use applecart_api::os_pin::OsPin;
use jiff::Timestamp;

use super::*;
use crate::Trouble;
use crate::fleet_key::FleetKey;

mod upkeep;

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
    }
}

fn ours() -> Lease {
    Lease { holder: LeaseHolder::Us, version: Some("7".into()), ..Lease::free() }
}

fn node() -> Node {
    Node {
        uid: "node-1".into(),
        provider_id: Some(format!("scw-applesilicon://fr-par-1/{SERVER}")),
        cordoned: false,
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
            generation: Some(1),
            finalizer: true,
            deleting_since: None,
            deleted_for_move: false,
            owned_by_machine: true,
            paused: None,
            waiting_for: None,
            drain_timeout: Some(Duration::from_hours(1)),
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
        identity: vec![],
        node: None,
        guests: vec![],
        bootstrap: Bootstrap::None,
        upkeep: Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) })),
        trouble: None,
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
    seen.credentials = Credentials { fleet_key: FleetKey::Ready, password: true, token: true };
    seen.identity = Identity::ALL.to_vec();
    seen
}

fn bootstrapped() -> Observed {
    let mut seen = prepared();
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

/// Decides as if the status had been told already, so that the effect itself is seen.
fn effect(seen: &Observed) -> Decision {
    let limits = Limits::default();
    let told = status::status(now(), seen, &decide(now(), seen, &limits));
    decide(now(), &with(seen.clone(), |seen| seen.object.status = told), &limits)
}

fn candidate(change: impl FnOnce(&mut Host), lease: Lease) -> Observed {
    let mut host = host("pool-1");
    change(&mut host);
    let listed = vec![Candidate { host, lease }];
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

fn waiting_rows() -> Vec<Row> {
    let read = |host| {
        let bound = Bound::To { server: server(), lease: ours(), host };
        Observed { bound, ..fresh() }
    };
    let trouble = Trouble { message: "x".into(), retry_at: now() + Duration::from_secs(1) };
    vec![
        ("not owned", with(fresh(), |s| s.object.owned_by_machine = false), None, Reason::NotOwned),
        (
            "Cluster paused",
            with(fresh(), |s| s.object.paused = Some(Pause::Cluster)),
            None,
            Reason::Paused("its Cluster"),
        ),
        (
            "object paused",
            with(fresh(), |s| s.object.paused = Some(Pause::Annotation)),
            None,
            Reason::Paused("annotation"),
        ),
        (
            "paused while it bootstraps",
            with(prepared(), |s| {
                s.object.paused = Some(Pause::Annotation);
                s.bootstrap = Bootstrap::Running { step: None, since: now() };
            }),
            Some(Action::StopBootstrap),
            Reason::Paused("annotation"),
        ),
        (
            "Cluster not ready",
            with(fresh(), |s| s.object.waiting_for = Some("c".into())),
            None,
            Reason::WaitingForOwner("c".into()),
        ),
        (
            "an effect failed",
            with(fresh(), |s| s.trouble = Some(trouble)),
            None,
            Reason::Trouble("x".into()),
        ),
        (
            "zone unreadable",
            Observed { bound: Bound::Unbound(Candidates::Failed("503".into())), ..fresh() },
            None,
            Reason::CannotRead("the zone's hosts: 503".into()),
        ),
        (
            "host unreadable",
            read(HostRead::Failed("403".into())),
            None,
            Reason::CannotRead("its host: 403".into()),
        ),
        ("host gone", read(HostRead::Gone), None, Reason::HostGone),
        ("no pool", with(fresh(), |s| s.object.pool_prefix = None), None, Reason::NoPool),
    ]
}

fn claim_rows() -> Vec<Row> {
    let take = |version: Option<&str>| {
        Some(Action::TakeLease { server: server(), version: version.map(Into::into), used: false })
    };
    let claiming = NameClass::claiming(&fresh().marker());
    let marked = |ago| Lease { marked_at: Some(now() - Duration::from_secs(ago)), ..ours() };
    let other = Lease { holder: LeaseHolder::Other("b".into()), ..ours() };
    vec![
        (
            "no finalizer",
            with(fresh(), |s| s.object.finalizer = false),
            Some(Action::AddFinalizer),
            Reason::Adopting,
        ),
        ("empty pool", fresh(), None, Reason::NoAvailableHost(PoolCounts::default())),
        ("fits", candidate(|_| {}, Lease::free()), take(None), Reason::Adopting),
        (
            "wrong type",
            candidate(|h| h.server_type = "M4-S".into(), Lease::free()),
            None,
            unfit(|c| c.wrong_type = 1),
        ),
        ("wrong OS", candidate(|h| h.os = None, Lease::free()), None, unfit(|c| c.wrong_os = 1)),
        (
            "not delivered",
            candidate(|h| h.delivered = false, Lease::free()),
            None,
            unfit(|c| c.not_ready = 1),
        ),
        (
            "about to be deleted",
            candidate(|h| h.retiring = true, Lease::free()),
            None,
            unfit(|c| c.not_ready = 1),
        ),
        (
            "being wiped",
            candidate(|h| h.state = HostState::Reinstalling, Lease::free()),
            None,
            unfit(|c| c.not_ready = 1),
        ),
        ("held", candidate(|_| {}, other.clone()), None, unfit(|c| c.held = 1)),
        (
            "never wiped",
            candidate(|_| {}, Lease { unwiped: true, ..Lease::free() }),
            None,
            unfit(|c| c.not_wiped = 1),
        ),
        ("leased", bound("pool-1", ours()), Some(rename("pool-1", &claiming)), Reason::Adopting),
        (
            "leased, but it does not fit any more",
            with_host(bound("pool-1", ours()), |h| h.state = HostState::Reinstalling),
            Some(Action::ClearLease(server())),
            Reason::Adopting,
        ),
        ("marked", bound(&claiming, ours()), Some(Action::NoteMarked(server())), Reason::Settling),
        ("settling", bound(&claiming, marked(14)), None, Reason::Settling),
        ("settled", bound(&claiming, marked(15)), Some(rename(&claiming, NAME)), Reason::Settling),
        (
            "taken over by name: it carries somebody's work",
            bound(NAME, Lease { wiped_at: Some(now()), ..Lease::free() }),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Adopting,
        ),
        ("held by another", bound(NAME, other), None, Reason::HeldByOther("b".into())),
        ("renamed by hand", bound("mine", ours()), None, Reason::NotOurs("mine".into())),
        ("unleased stranger", bound("mine", Lease::free()), None, Reason::NotOurs("mine".into())),
    ]
}

fn bootstrap_rows() -> Vec<Row> {
    let provider_id = format!("scw-applesilicon://fr-par-1/{SERVER}").parse().unwrap();
    let since = now();
    let step = Some(("power".to_owned(), 3, 9));
    vec![
        (
            "claimed",
            bound(NAME, ours()),
            Some(Action::SetProviderId(provider_id)),
            Reason::Preparing,
        ),
        (
            "rebooting",
            with_host(prepared(), |h| h.state = HostState::Changing("rebooting".into())),
            None,
            Reason::HostChanging("rebooting".into()),
        ),
        ("no address", with_host(prepared(), |h| h.address = None), None, Reason::NoAddress),
        (
            "no fleet key",
            with(prepared(), |s| s.credentials.fleet_key = FleetKey::Waiting("why".into())),
            None,
            Reason::SshKeyUnavailable("why".into()),
        ),
        (
            "password not stored",
            with(prepared(), |s| s.credentials.password = false),
            Some(Action::StoreCredentials(server())),
            Reason::Preparing,
        ),
        (
            "no password at all",
            with_host(with(prepared(), |s| s.credentials.password = false), |h| {
                h.has_password = false;
            }),
            None,
            Reason::MissingSudoPassword,
        ),
        (
            "no identity",
            with(prepared(), |s| s.identity = vec![Identity::ServiceAccount]),
            Some(Action::CreateIdentity(Identity::Binding)),
            Reason::Preparing,
        ),
        (
            "token empty",
            with(prepared(), |s| s.credentials.token = false),
            None,
            Reason::WaitingForToken,
        ),
        (
            "all there",
            prepared(),
            Some(Action::StartBootstrap(server())),
            Reason::Bootstrapping(None),
        ),
        (
            "a step runs",
            with(prepared(), |s| s.bootstrap = Bootstrap::Running { step: step.clone(), since }),
            None,
            Reason::Bootstrapping(step),
        ),
        ("no Node yet", bootstrapped(), None, Reason::NodeMissing),
        (
            "Node unwell",
            with(bootstrapped(), |s| s.node = Some(Node { ready: false, ..node() })),
            None,
            Reason::NodeNotReady,
        ),
        (
            "Node of another host",
            with(bootstrapped(), |s| {
                s.node = Some(Node { provider_id: Some("x".into()), ..node() });
            }),
            None,
            Reason::NodeOfOther("x".into()),
        ),
        ("ready", with(bootstrapped(), |s| s.node = Some(node())), None, Reason::Ready),
    ]
}

fn delete_action(guest: &Guest, force: bool) -> Action {
    Action::DeleteGuest {
        namespace: guest.namespace.clone(),
        name: guest.name.clone(),
        uid: guest.uid.clone(),
        version: guest.version.clone(),
        force,
    }
}

fn release_rows() -> Vec<Row> {
    let releasing = NameClass::releasing(&fresh().marker());
    let on_node = |guests: Vec<Guest>, cordoned| {
        with(deleting(bootstrapped()), |s| {
            s.node = Some(Node { cordoned, ..node() });
            s.guests = guests;
        })
    };
    let busy = Guest { busy: true, ..guest("job") };
    let idle = guest("idle");
    vec![
        (
            "being deleted, node up",
            on_node(vec![], false),
            Some(Action::Cordon { uid: "node-1".into() }),
            Reason::Emptying,
        ),
        (
            "idle Pod",
            on_node(vec![idle.clone()], true),
            Some(delete_action(&idle, false)),
            Reason::Emptying,
        ),
        (
            "idle Pod leaves",
            on_node(vec![Guest { deleting: true, ..idle }], true),
            None,
            Reason::Emptying,
        ),
        (
            "a job runs",
            on_node(vec![busy.clone()], true),
            None,
            Reason::WaitingForJob("runners/job".into()),
        ),
        (
            "a job runs, but its Node is dead",
            with(on_node(vec![busy.clone()], true), |s| s.node = Some(silent(300))),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
        (
            "a job runs, and its agent is silent for a moment",
            with(on_node(vec![busy], true), |s| s.node = Some(silent(299))),
            None,
            Reason::WaitingForJob("runners/job".into()),
        ),
        ("empty", on_node(vec![], true), Some(rename(NAME, &releasing)), Reason::Releasing),
        (
            "bootstrap runs",
            with(deleting(prepared()), |s| {
                s.bootstrap = Bootstrap::Running { step: None, since: now() }
            }),
            Some(Action::StopBootstrap),
            Reason::Releasing,
        ),
    ]
}

fn wipe_rows() -> Vec<Row> {
    let releasing = NameClass::releasing(&fresh().marker());
    let released = |lease: Lease| deleting(bound(&releasing, lease));
    let wiped = Lease { wiped_at: Some(now()), ..ours() };
    let in_pool = NameClass::pool("pool-", &server());
    vec![
        (
            "marked",
            released(ours()),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "wipe seen",
            with_host(released(ours()), |h| h.state = HostState::Reinstalling),
            Some(Action::NoteWiped(server())),
            Reason::Wiping,
        ),
        (
            "rebooting is not wiping",
            with_host(released(ours()), |h| h.state = HostState::Changing("rebooting".into())),
            None,
            Reason::HostChanging("rebooting".into()),
        ),
        (
            "locked",
            with_host(released(ours()), |h| h.state = HostState::Stuck("locked".into())),
            None,
            Reason::CannotWipe("locked".into()),
        ),
        ("wiped", released(wiped.clone()), Some(rename(&releasing, &in_pool)), Reason::Releasing),
        (
            "wiped, Node left",
            with(released(wiped.clone()), |s| s.node = Some(node())),
            Some(Action::DeleteNode { uid: "node-1".into() }),
            Reason::CleaningUp,
        ),
        (
            "wiped, identity left",
            with(released(wiped.clone()), |s| s.identity = Identity::ALL.to_vec()),
            Some(Action::DeleteIdentity(Identity::Token)),
            Reason::CleaningUp,
        ),
        (
            "wiped, password left",
            with(released(wiped.clone()), |s| s.credentials.password = true),
            Some(Action::DeleteCredentials),
            Reason::CleaningUp,
        ),
        (
            "in the pool",
            deleting(bound(&in_pool, wiped)),
            Some(Action::ClearLease(server())),
            Reason::Releasing,
        ),
        (
            "in the pool, unleased",
            deleting(bound(&in_pool, Lease::free())),
            Some(Action::RemoveFinalizer),
            Reason::Released,
        ),
    ]
}

fn strange_release_rows() -> Vec<Row> {
    let skipped = |why: &str| Reason::ReleaseSkipped(why.into());
    let other = Lease { holder: LeaseHolder::Other("b".into()), ..ours() };
    let gone = Bound::To { server: server(), lease: ours(), host: HostRead::Gone };
    vec![
        (
            "claim lost before the status was written (LH2)",
            deleting(bound(NAME, Lease::free())),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Releasing,
        ),
        ("never had a host", deleting(fresh()), Some(Action::RemoveFinalizer), Reason::Released),
        (
            "another holds it",
            deleting(bound(NAME, other)),
            Some(Action::RemoveFinalizer),
            skipped("it is held by b"),
        ),
        (
            "renamed by hand",
            deleting(bound("mine", ours())),
            Some(Action::ClearLease(server())),
            skipped("it is called \"mine\""),
        ),
        (
            "renamed by hand, Lease given up",
            deleting(bound("mine", Lease::free())),
            Some(Action::RemoveFinalizer),
            skipped("it is called \"mine\""),
        ),
        (
            "no prefix at all",
            with(deleting(bound(NAME, ours())), |s| s.object.pool_prefix = None),
            Some(Action::ClearLease(server())),
            skipped("no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix"),
        ),
        (
            "no prefix at all, Lease given up",
            with(deleting(bound(NAME, Lease::free())), |s| s.object.pool_prefix = None),
            Some(Action::RemoveFinalizer),
            skipped("no pool: set spec.adoptPoolPrefix or --default-adopt-pool-prefix"),
        ),
        (
            "renamed by hand, with a job on it: the job is not ours to end",
            with(deleting(bound("mine", Lease::free())), |s| {
                s.node = Some(node());
                s.guests = vec![Guest { busy: true, ..guest("job") }];
            }),
            Some(Action::RemoveFinalizer),
            skipped("it is called \"mine\""),
        ),
        (
            "gone",
            deleting(Observed { bound: gone, ..fresh() }),
            Some(Action::RemoveFinalizer),
            Reason::HostGone,
        ),
        (
            "moved",
            with(deleting(prepared()), |s| s.object.deleted_for_move = true),
            Some(Action::RemoveFinalizer),
            Reason::Moved,
        ),
        (
            "detached",
            with(deleting(fresh()), |s| s.object.paused = Some(Pause::Annotation)),
            Some(Action::RemoveFinalizer),
            Reason::Detached,
        ),
        (
            "host unread",
            deleting(Observed { bound: Bound::NotRead, ..fresh() }),
            None,
            Reason::CannotRead("its host".into()),
        ),
    ]
}

fn rows() -> Vec<Row> {
    let rooms = [waiting_rows(), claim_rows(), bootstrap_rows(), release_rows(), wipe_rows()];
    rooms.into_iter().flatten().chain(strange_release_rows()).collect()
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
        Reason::Bootstrapped,
        Reason::BootstrapFailed { attempts: 2, message: "pf said no".into() },
    ];
    let mut variants = BTreeSet::new();
    for reason in rows().into_iter().map(|(.., reason)| reason).chain(recorded) {
        let text = reason.to_string();
        assert!(!text.is_empty() && !text.ends_with('.'), "{reason:?}: {text}");
        let debug = format!("{reason:?}");
        variants.insert(debug.split(['(', ' ']).next().unwrap_or_default().to_owned());
    }
    assert_eq!(variants.len(), 35, "of the enum's variants, only {variants:?} are reached");
}

#[test]
fn the_status_is_told_before_the_effect_and_only_once() {
    for (name, seen, action, _) in rows() {
        let limits = Limits::default();
        let first = decide(now(), &seen, &limits);
        if let Some(Action::WriteStatus(told)) = first.action {
            let again = with(seen, |seen| seen.object.status = *told);
            assert_eq!(decide(now(), &again, &limits).action, action, "{name}");
        } else {
            assert_eq!(first.action, action, "{name}");
        }
    }
}

#[test]
fn nothing_is_written_before_a_machine_owns_the_object() {
    let seen = with(fresh(), |seen| seen.object.owned_by_machine = false);
    assert_eq!(decide(now(), &seen, &Limits::default()).action, None);
}

#[test]
fn a_failed_bootstrap_is_retried_when_its_time_has_come_and_not_a_second_before() {
    // LH21: the next attempt's time is state; nothing brings it forward.
    let limits = Limits::default();
    let failed = with(prepared(), |seen| seen.bootstrap = Bootstrap::Failed("pf said no".into()));
    let Some(Action::RecordBootstrap(told)) = decide(now(), &failed, &limits).action else {
        panic!("the failure is not recorded");
    };
    assert_eq!(told.bootstrap_attempts, Some(1));
    let after = with(prepared(), |seen| seen.object.status = (*told).clone());
    let due = told.next_attempt_at.unwrap();
    assert_eq!(due, now() + limits.retry);
    let early = decide(due - Duration::from_secs(1), &after, &limits);
    assert_eq!(early.action, None);
    assert_eq!(early.reason.word(), "BootstrapFailed");
    let on_time = decide(due, &after, &limits);
    assert!(matches!(on_time.action, Some(Action::WriteStatus(_) | Action::StartBootstrap(_))));
}

#[test]
fn a_bootstrap_that_ended_well_is_recorded_with_its_stamp() {
    let seen = with(prepared(), |seen| {
        seen.bootstrap = Bootstrap::Succeeded { stamp: "abc".into(), awaits_boot: None };
        seen.object.status.bootstrap_attempts = Some(2);
    });
    let Some(Action::RecordBootstrap(told)) = decide(now(), &seen, &Limits::default()).action
    else {
        panic!("the success is not recorded");
    };
    assert_eq!(told.tart_kubelet_binary_sha.as_deref(), Some("abc"));
    assert_eq!(told.bootstrap_attempts, None);
    assert!(is_true(&told.conditions, "Bootstrapped"));
}

#[test]
fn provisioned_is_told_with_the_provider_id_and_never_taken_back() {
    let ready = with(bootstrapped(), |seen| seen.node = Some(node()));
    let limits = Limits::default();
    let told = status::status(now(), &ready, &decide(now(), &ready, &limits));
    assert_eq!(told.initialization.unwrap().provisioned, Some(true));
    assert_eq!((told.ready, told.phase.as_deref()), (Some(true), Some("Ready")));
    let lost = with(ready, |seen| {
        seen.object.status = told;
        seen.node = None;
    });
    let told = status::status(now(), &lost, &decide(now(), &lost, &limits));
    assert_eq!(told.initialization.unwrap().provisioned, Some(true));
    assert_eq!(told.ready, Some(false));
    assert!(!is_true(&told.conditions, "Ready"));
}

#[test]
fn no_name_but_ours_is_ever_renamed_wiped_or_adopted() {
    // S3, S4: whatever else is true of it.
    for name in ["mine", "tuist-quarantine-1", "tuist-claim-pending-x", "other-fleet-1"] {
        for lease in [Lease::free(), ours(), Lease { wiped_at: Some(now()), ..ours() }] {
            for seen in [bound(name, lease.clone()), deleting(bound(name, lease.clone()))] {
                let action = effect(&seen).action;
                assert!(
                    !matches!(action, Some(Action::Rename { .. } | Action::RequestWipe { .. })),
                    "{name}: {action:?}"
                );
            }
        }
    }
}

#[test]
fn a_job_is_waited_for_until_the_drain_time_out_and_no_longer() {
    let seen = with(deleting(bootstrapped()), |seen| {
        seen.node = Some(Node { cordoned: true, ..node() });
        seen.guests = vec![Guest { busy: true, ..guest("job") }];
    });
    let at = |minutes| {
        let later = now() + Duration::from_mins(minutes);
        let limits = Limits::default();
        let told = status::status(later, &seen, &decide(later, &seen, &limits));
        decide(later, &with(seen.clone(), |seen| seen.object.status = told), &limits)
    };
    assert_eq!(at(59).reason.word(), "WaitingForJob");
    assert!(matches!(at(60).action, Some(Action::Rename { .. })));
}

#[test]
fn pool_counts_say_exactly_why() {
    let counts =
        PoolCounts { pool: 12, wrong_type: 7, not_ready: 3, not_wiped: 2, ..PoolCounts::default() };
    assert_eq!(
        Reason::NoAvailableHost(counts).to_string(),
        "no available host: 12 in pool: 7 wrong type, 3 not ready, 2 not wiped"
    );
}

#[test]
fn pods_of_a_wiped_mac_are_forced_and_freed_before_its_node_goes() {
    let releasing = NameClass::releasing(&fresh().marker());
    let wiped = Lease { wiped_at: Some(now()), ..ours() };
    let with_guest = |guest: Guest| {
        with(deleting(bound(&releasing, wiped.clone())), |seen| {
            seen.node = Some(node());
            seen.guests = vec![guest];
        })
    };
    let left = Guest { busy: true, ..guest("job") };
    assert_eq!(effect(&with_guest(left.clone())).action, Some(delete_action(&left, true)));
    let forced = Guest { deleting: true, forced: true, ..left };
    assert!(matches!(effect(&with_guest(forced)).action, Some(Action::FreeGuest { .. })));
}

#[test]
fn a_host_is_wiped_to_the_newest_image_that_its_pin_accepts() {
    // P32, S14: a released host must fit the fleet that released it.
    let image = |id: &str, family: &str, version: &str, beta| Image {
        id: id.into(),
        name: format!("macos-{}-{version}", family.to_lowercase()),
        family: family.into(),
        version: version.into(),
        beta,
    };
    let releasing = NameClass::releasing(&fresh().marker());
    let wiped_to = |images: Vec<Image>| {
        let seen = with(deleting(bound(&releasing, ours())), |seen| {
            seen.images = Images::Listed(images);
        });
        match effect(&seen).action {
            Some(Action::RequestWipe { image, .. }) => image,
            other => panic!("not wiped: {other:?}"),
        }
    };
    let catalogue = vec![
        image("old", "Tahoe", "26.9", false),
        image("new", "Tahoe", "26.10", false),
        image("beta", "Tahoe", "27.0", true),
        image("other", "Sequoia", "99.0", false),
    ];
    assert_eq!(wiped_to(catalogue.clone()).as_deref(), Some("new"));
    assert_eq!(wiped_to(vec![catalogue[3].clone()]), None, "the pin's images are withdrawn");
    let unread = with(deleting(bound(&releasing, ours())), |seen| {
        seen.images = Images::Failed("503".into());
    });
    assert_eq!(effect(&unread).action, None);
}

#[test]
fn a_mac_that_nobody_looked_at_stays_as_it_was_told() {
    // S10: paused, or Scaleway silent: nothing is known to have changed.
    let ready = with(bootstrapped(), |seen| seen.node = Some(node()));
    let limits = Limits::default();
    let told = status::status(now(), &ready, &decide(now(), &ready, &limits));
    let failed = HostRead::Failed("503".into());
    let unread = Bound::To { server: server(), lease: ours(), host: failed };
    let silent = Observed { bound: unread, node: None, ..ready.clone() };
    let paused = with(Observed { bound: Bound::NotRead, node: None, ..ready }, |seen| {
        seen.object.paused = Some(Pause::Cluster);
    });
    for blind in [silent, paused] {
        let blind = with(blind, |seen| seen.object.status = told.clone());
        let now_told = status::status(now(), &blind, &decide(now(), &blind, &limits));
        assert_eq!(now_told.ready, Some(true));
        assert_eq!(now_told.phase.as_deref(), Some("Ready"));
        assert_eq!(now_told.node_name, told.node_name);
        assert!(is_true(&now_told.conditions, "Ready"));
        assert_ne!(now_told.last_reason, told.last_reason);
    }
}

#[test]
fn every_reason_word_is_explained_to_people() {
    let page = include_str!("../../../../docs/states.md");
    let reasons = include_str!("reason.rs");
    let words = reasons.split("=> \"").skip(1).filter_map(|rest| rest.split_once("\",\n"));
    let words: Vec<&str> = words.map(|(word, _)| word).filter(|word| !word.contains(' ')).collect();
    assert!(words.len() > 25, "{words:?}");
    for word in words {
        assert!(page.contains(&format!("| `{word}` |")), "docs/states.md does not explain {word}");
    }
}
