//! What must hold before a host is touched.

mod overdue;
mod rules;

use rules::{EFFECTS, is_overdue, kind, may};

use super::*;
use crate::Streak;

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

/// One thing that may be this way or that: how many ways there are, and how to make it so.
type Dimension = (usize, fn(&mut Observed, usize));

/// Every combination of every dimension (G6). Returns how many there were.
fn every_state(dimensions: &[Dimension], mut look: impl FnMut(&Observed)) -> usize {
    let mut seen = with(prepared(), |seen| seen.images = Images::Listed(vec![]));
    let mut at = vec![0; dimensions.len()];
    for (_, set) in dimensions {
        set(&mut seen, 0);
    }
    for states in 1.. {
        look(&seen);
        let mut turned = dimensions.len();
        loop {
            if turned == 0 {
                return states;
            }
            turned -= 1;
            let (ways, set) = dimensions[turned];
            at[turned] = (at[turned] + 1) % ways;
            set(&mut seen, at[turned]);
            if at[turned] > 0 {
                break;
            }
        }
    }
    unreachable!("there are finitely many")
}

fn the_lease(seen: &mut Observed) -> &mut Lease {
    match &mut seen.bound {
        Bound::To { lease, .. } => lease,
        other => panic!("no Lease in {other:?}"),
    }
}

fn the_host(seen: &mut Observed) -> &mut Host {
    match &mut seen.bound {
        Bound::To { host: HostRead::Seen(host), .. } => host,
        other => panic!("no host in {other:?}"),
    }
}

const HOLDER: Dimension = (4, |seen, way| {
    let other = |name: &str| LeaseHolder::Other(format!("there/{name}/1"));
    the_lease(seen).holder =
        [LeaseHolder::Us, LeaseHolder::Nobody, other("other"), other(NAME)][way].clone();
});
const NAMES: Dimension = (8, |seen, way| {
    let (ours, theirs) =
        (seen.marker(), with(fresh(), |s| s.cluster = "0badf00d".parse().unwrap()));
    the_host(seen).name = match way {
        0 => NAME.into(),
        1 => NameClass::releasing(&ours),
        2 => NameClass::claiming(&ours),
        3 => "pool-1".into(),
        4 => "tuist-quarantine-1".into(),
        5 => NameClass::claiming(&theirs.marker()),
        6 => NameClass::releasing(&theirs.marker()),
        _ => "mine".into(),
    };
});
/// Our own name, our releasing and our claiming one.
const OUR_NAMES: Dimension = (3, NAMES.1);
/// And those that it gets when it is ours no more.
const LEFT_NAMES: Dimension = (5, NAMES.1);
const STATE: Dimension = (5, |seen, way| {
    the_host(seen).state = match way {
        0 => HostState::Ready,
        1 => HostState::Reinstalling,
        2 => HostState::Rebooting,
        3 => HostState::Changing("busy".into()),
        _ => HostState::Stuck("locked".into()),
    };
});
const FIT: Dimension = (5, |seen, way| {
    let host = the_host(seen);
    (host.retiring, host.delivered) = (way == 1, way != 2);
    host.server_type = if way == 3 { "M1-M".into() } else { "M2-L".into() };
    let os = if way == 4 { ("macos-sonoma-14", "Sonoma") } else { ("macos-tahoe-26.3", "Tahoe") };
    host.os = Some((os.0.into(), os.1.into()));
});
const RETIRING: Dimension = (2, |seen, way| the_host(seen).retiring = way == 1);
const PREFIX: Dimension =
    (2, |seen, way| seen.object.pool_prefix = [Some("pool-".into()), None][way].clone());
const GUESTS: Dimension = (8, |seen, way| {
    seen.node = (way > 0).then(|| Node { cordoned: way != 1, ..node() });
    let (idle, busy) = (guest("idle"), Guest { busy: true, ..guest("job") });
    let forced = Guest { deleting: true, forced: true, ..guest("forced") };
    let freed = Guest { agent_finalizer: false, ..forced.clone() };
    let pods = [vec![], vec![idle.clone()], vec![idle], vec![busy], vec![forced], vec![freed]];
    seen.guests = pods.get(way).cloned().unwrap_or_default();
    // And the Mac's own runner.
    seen.builder = match way {
        6 => Builder::Idle,
        7 => Builder::Busy,
        _ => Builder::None,
    };
    // Nobody waits long for GitHub.
    if way == 6 {
        seen.object.deleting_since = seen.object.deleting_since.map(|_| now());
    }
});
/// No Pod, or a job.
const JOB: Dimension = (2, |seen, way| {
    seen.node = Some(Node { cordoned: true, ..node() });
    seen.guests = vec![Guest { busy: true, ..guest("job") }];
    seen.guests.truncate(way);
});
const TROUBLE: Dimension = (6, |seen, way| {
    let tried = ["", "try", Action::RENAME, Action::WIPE, Action::DELETE[0], "try"][way];
    // Refused again and again, for longer than anybody waits; but the first and the last once.
    let streak = Streak { tried, since: minutes_ago(45), times: 9, retry_at: now() };
    let streaks = if tried == "try" { vec![] } else { vec![streak] };
    let (message, retry_at, too_early) = ("x".into(), now(), way == 5);
    let at = minutes_ago(0);
    seen.trouble = Some(Trouble { tried, message, at, retry_at, too_early, streaks });
    seen.trouble.take_if(|_| way == 0);
});
/// Wiped or not; at last, with what another left on it.
const WIPED: Dimension = (4, |seen, way| {
    let lease = the_lease(seen);
    (lease.wiped_at, lease.unwiped) =
        [(None, false), (Some(minutes_ago(2)), true), (Some(minutes_ago(2)), false), (None, true)]
            [way];
    lease.note = if way == 3 { anothers() } else { note() };
});
/// What its Lease says of its owner: what it is, nothing, and something else.
const NOTED: Dimension = (3, |seen, way| {
    the_lease(seen).note = [note(), OwnerNote::default(), anothers()][way].clone();
});

fn anothers() -> OwnerNote {
    OwnerNote { owner: Some("there/other/1".into()), pool: None, builder: true }
}

const RELEASING: Dimension = (3, |seen, way| {
    the_lease(seen).releasing_at = [None, Some(minutes_ago(1)), Some(minutes_ago(32))][way];
});
const ASIDE: Dimension = (2, |seen, way| the_lease(seen).quarantined = way == 1);
const WORN: Dimension = (2, |seen, way| the_lease(seen).owners_failed = [0, 3][way]);
const MARKED: Dimension =
    (2, |seen, way| the_lease(seen).marked_at = [None, Some(minutes_ago(1))][way]);
const DOOM: Dimension = (3, |seen, way| {
    seen.object.terminate = way == 1;
    seen.object.ordered = (way == 2).then(|| Ordered { at: minutes_ago(60), unsent: false });
});
const ORDERED: Dimension = (2, |seen, way| {
    seen.object.ordered = (way == 1).then(|| Ordered { at: minutes_ago(60), unsent: false });
});
const PROVIDER_ID: Dimension = (3, |seen, way| {
    let of = |server: &str| Some(format!("scw-applesilicon://fr-par-1/{server}").parse().unwrap());
    seen.object.provider_id =
        [of(SERVER), None, of("00000000-0000-4000-8000-000000000000")][way].clone();
});
/// All that there is, nothing, or no identity.
const CREDENTIALS: Dimension = (4, |seen, way| {
    // A Secret may be there without a password that can be used.
    seen.credentials.stored = (way != 1).then(exactly);
    seen.credentials.password = way != 1 && way != 3;
    seen.identity = if way == 0 { whole_identity() } else { BTreeMap::new() };
});
/// All of it is gone.
const BARE: Dimension = (1, |seen, _| CREDENTIALS.1(seen, 1));
const GOING: Dimension = (2, |seen, way| {
    seen.object.deleting_since = Some(minutes_ago([5, 32][way]));
});
/// Free to act, and the ways in which it is not.
const LEAVE: Dimension = (3, |seen, way| {
    seen.object.paused = (way == 1).then_some(Pause::Cluster);
    seen.object.owned_by_machine = way != 2;
});
const BOOTSTRAP: Dimension = (7, |seen, way| {
    let what = || "what".to_owned();
    seen.bootstrap = match way {
        0 => Bootstrap::None,
        1 => Bootstrap::Running { step: None, since: now() },
        2 => Bootstrap::Succeeded { stamp: what(), awaits_boot: None, did: what() },
        3 => Bootstrap::Incomplete(what()),
        4 => Bootstrap::Postponed(what()),
        5 => Bootstrap::Failed(what()),
        _ => Bootstrap::PasswordRefused(what()),
    };
});
const UPKEEP: Dimension = (5, |seen, way| {
    let current =
        || Upkept::Current { stamp: "stamp".into(), awaits_boot: None, did: String::new() };
    seen.upkeep = match way {
        0 => Upkeep::Idle(None),
        1 => Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) })),
        2 => Upkeep::Running,
        3 => Upkeep::Ended(current()),
        _ => Upkeep::Ended(Upkept::Failed("what".into())),
    };
});
const TOLD: Dimension = (2, |seen, way| {
    let told = [vec![], bootstrapped().object.status.conditions];
    seen.object.status.conditions.clone_from(&told[way]);
});
const ATTEMPTS: Dimension =
    (3, |seen, way| seen.object.status.bootstrap_attempts = [None, Some(3), Some(8)][way]);
const REBOOTED: Dimension =
    (2, |seen, way| seen.object.status.bootstrap_reboot_issued = Some(way == 1));
const IS_BOUND: Dimension = (2, |seen, way| seen.object.machine_is_bound = way == 1);

const WHOSE_NAME: Dimension = (3, |seen, way| {
    seen.name = [Name::Ours, Name::Free(None), Name::Other("there/other/1".into())][way].clone();
});

/// Looks at every state, and returns how many there were and which effects they led to.
fn guarded(dimensions: &[Dimension]) -> (usize, BTreeSet<&'static str>) {
    let mut reached = BTreeSet::new();
    let states = every_state(dimensions, |seen| {
        let decision = decide::next(now(), seen, &Limits::default());
        let last = seen.object.deleting_since.is_some() && !seen.object.finalizer;
        let timed = decision.action.is_some() || decision.wake.is_some() || last;
        assert!(timed, "V6: nothing would wake it: {decision:?} in {seen:#?}");
        let waits = decision.action.is_none() && is_overdue(seen);
        assert!(!waits, "V1: it waits for ever: {decision:?} in {seen:#?}");
        if let Some(action) = &decision.action {
            assert!(may(seen, action), "{action:?} in {seen:#?}");
            reached.insert(kind(action));
        }
    });
    (states, reached)
}

/// Every state of these dimensions is guarded, and they lead to these effects at least: a guard
/// that is never asked guards nothing.
fn assert_guarded(dimensions: &[Dimension], effects: &[&[&str]]) {
    let (states, reached) = guarded(dimensions);
    assert_eq!(states, dimensions.iter().map(|(ways, _)| ways).product::<usize>());
    let missed: Vec<&str> =
        effects.concat().into_iter().filter(|effect| !reached.contains(effect)).collect();
    assert_eq!(missed, [""; 0], "{reached:?}");
}

const CLAIMING: &[&str] = &[
    "TakeName",
    "TakeLease",
    "NoteMarked",
    "Rename",
    "SetProviderId",
    "ClearLease",
    "ReturnLease",
];
const PREPARING: &[&str] = &["StoreCredentials", "CreateIdentity", "StartBootstrap"];
const KEEPING: &[&str] =
    &["Compare", "RecordBootstrap", "StartUpkeep", "StopBootstrap", "NoteHealthy", "NoteOwner"];
const UPDATING: &[&str] = &["Drain", "Uncordon"];
const RECOVERING: &[&str] = &["Reboot", "Cordon", "DeleteGuest"];
const RETURNING: &[&str] = &["NoteReleasing", "RequestWipe", "NoteWiped", "NoteQuarantined"];
const EMPTYING: &[&str] = &["RemoveRunner", "DeleteGuest", "FreeGuest", "DeleteNode"];
const CLEANING: &[&str] = &["DeleteGuest", "FreeGuest", "DeleteNode", "DeleteCredentials"];
const DELETING: &[&str] = &["NoteDelete", "DeleteServer", "ScheduleDeletion"];
const ENDING: &[&str] = &["DeleteIdentity", "RemoveFinalizer"];
const LEAVING: &[&str] = &["LeaveLease", "NoteMoving"];
const ORDERING: &[&str] = &["NoteOrder", "Create"];
const TELLING: &[&str] = &["AddFinalizer", "WriteStatus", "BlockMove"];

#[test]
fn every_kind_of_effect_is_reached_somewhere() {
    let tables = [
        CLAIMING, PREPARING, KEEPING, UPDATING, RECOVERING, RETURNING, CLEANING, DELETING, ENDING,
        EMPTYING, LEAVING, ORDERING, TELLING,
    ];
    let reached: BTreeSet<&str> = tables.concat().into_iter().collect();
    assert_eq!(reached, EFFECTS.iter().copied().collect());
}

#[test]
fn every_state_of_a_claim_guards_what_it_does_to_a_host() {
    // G6
    let dimensions = [
        LEAVE,
        (3, HOLDER.1),
        NAMES,
        STATE,
        FIT,
        PREFIX,
        MARKED,
        WIPED,
        (2, RELEASING.1),
        ASIDE,
        PROVIDER_ID,
        ORDERED,
        WHOSE_NAME,
    ];
    // A Machine that has all it needs begins to bootstrap.
    let others = ["StartBootstrap", "NoteReleasing", "RequestWipe", "NoteWiped"];
    let others = [&others[..], &["DeleteCredentials"]].concat();
    assert_guarded(&dimensions, &[CLAIMING, &others]);
}

#[test]
fn every_state_of_a_bootstrap_and_its_recovery_guards_what_it_does_to_a_host() {
    // G6, LH21
    let dimensions = [
        LEAVE,
        STATE,
        PREFIX,
        JOB,
        ATTEMPTS,
        REBOOTED,
        IS_BOUND,
        WORN,
        BOOTSTRAP,
        UPKEEP,
        TOLD,
        CREDENTIALS,
        NOTED,
        (2, |seen, way| the_lease(seen).marked_at = [Some(minutes_ago(9)), None][way]),
    ];
    let effects = [PREPARING, KEEPING, &["Reboot", "Rename"]];
    assert_guarded(&dimensions, &effects);
}

#[test]
fn every_state_of_a_recovery_that_scaleway_does_not_grant_guards_what_it_does_to_a_host() {
    // G6, S12, V5
    let dimensions = [
        STATE,
        ATTEMPTS,
        REBOOTED,
        JOB,
        BOOTSTRAP,
        (4, |seen, way| {
            let [just, long_ago] = [1, 6].map(|ago| Reboot::Unanswered(minutes_ago(ago)));
            seen.reboot = [Reboot::NotGranted, Reboot::Granted, just, long_ago][way];
        }),
        (3, |seen, way| {
            let streak =
                |tried| Streak { tried, since: minutes_ago(9), times: 2, retry_at: minutes_ago(1) };
            let tried = [None, Some("try"), Some(Action::REBOOT)][way];
            seen.trouble = tried.map(|tried| Trouble {
                tried,
                message: "x".into(),
                at: minutes_ago(2),
                retry_at: minutes_ago(1),
                too_early: false,
                streaks: vec![streak(tried)],
            });
        }),
        (3, |seen, way| {
            let due = [None, Some(minutes_ago(1)), Some(now() + Duration::from_mins(1))];
            seen.object.status.next_attempt_at = due[way];
        }),
    ];
    assert_guarded(&dimensions, &[&["Reboot", "StartBootstrap", "Rename"]]);
}

/// An update came, failed, or has waited for VMs for a minute or two hours.
const UPDATE: Dimension = (5, |seen, way| {
    let told =
        [None, Some("AgentRollFailed"), Some("Postponed"), Some("Postponed"), Some("Draining")];
    seen.object.status.conditions = bootstrapped().object.status.conditions;
    let like = seen.object.status.conditions[0].clone();
    seen.object.status.conditions.extend(told[way].map(|reason| Condition {
        type_: "UpToDate".into(),
        status: "False".into(),
        reason: Some(reason.into()),
        last_transition_time: Some(minutes_ago([0, 0, 1, 120, 120][way])),
        ..like
    }));
});
/// Its Node: none, free, silent, and cordoned by a person, by us, or let go since.
const CORDON: Dimension = (6, |seen, way| {
    seen.node = (way > 0).then(|| Node {
        ready: way != 2,
        cordoned: way == 3 || way == 4,
        draining: (way > 3).then(|| minutes_ago(9)),
        ..node()
    });
});

#[test]
fn every_state_of_an_update_that_waits_for_vms_guards_what_it_does_to_a_node() {
    // G6, V7
    let dimensions = [
        LEAVE,
        HOLDER,
        NAMES,
        STATE,
        UPDATE,
        CORDON,
        UPKEEP,
        PROVIDER_ID,
        (2, |seen, way| seen.may_drain = way == 1),
        (4, |seen, way| {
            let (idle, busy) = (guest("idle"), Guest { busy: true, ..guest("job") });
            let other = Guest { runner: false, ..guest("other") };
            let going = Guest { deleting: true, ..guest("going") };
            seen.guests = vec![idle, busy, going, other];
            seen.guests.truncate(way + 1);
        }),
    ];
    assert_guarded(&dimensions, &[UPDATING, &["DeleteGuest", "StartUpkeep", "RecordBootstrap"]]);
}

#[test]
fn every_state_of_an_exchange_guards_what_it_does_to_a_host() {
    // G6, S2, LH1
    let dimensions = [
        (
            1,
            (|seen, _| seen.object.status.bootstrap_attempts = Some(8)) as fn(&mut Observed, usize),
        ),
        LEFT_NAMES,
        STATE,
        PREFIX,
        WIPED,
        RELEASING,
        ASIDE,
        WORN,
        TROUBLE,
        GUESTS,
        PROVIDER_ID,
        CREDENTIALS,
    ];
    let effects =
        [RETURNING, CLEANING, &["Cordon", "Rename", "SetProviderId", "ClearLease", "NoteMarked"]];
    assert_guarded(&dimensions, &effects);
}

#[test]
fn every_state_of_a_release_guards_what_it_does_to_a_host() {
    // G6, P22: under a name of ours.
    let dimensions = [
        BARE,
        GOING,
        OUR_NAMES,
        STATE,
        RETIRING,
        PREFIX,
        GUESTS,
        TROUBLE,
        DOOM,
        (2, |seen, way| {
            the_lease(seen).delete_requested_at = [None, Some(minutes_ago(32))][way];
        }),
        ASIDE,
        WIPED,
        RELEASING,
    ];
    let effects = [RETURNING, DELETING, EMPTYING, &["Cordon", "Rename", "ClearLease"]];
    assert_guarded(&dimensions, &effects);
}

#[test]
fn every_state_at_the_end_of_a_release_guards_what_goes_with_it() {
    // G6, C5: under any name, whoever holds it.
    let dimensions = [
        (1, GOING.1),
        HOLDER,
        NAMES,
        (3, |seen, way| {
            seen.object.paused = (way == 1).then_some(Pause::Annotation);
            seen.object.deleted_for_move = way == 2;
        }),
        PREFIX,
        GUESTS,
        DOOM,
        ASIDE,
        WIPED,
        PROVIDER_ID,
        CREDENTIALS,
        (2, |seen, way| {
            seen.bootstrap = [Bootstrap::None, Bootstrap::Failed("what".into())][way].clone();
        }),
    ];
    let effects = [
        CLEANING,
        ENDING,
        &["TakeLease", "Cordon", "Rename", "NoteDelete", "NoteReleasing"],
        &["ClearLease", "StopBootstrap"],
    ];
    assert_guarded(&dimensions, &effects);
}

#[test]
fn every_state_of_a_release_that_another_system_left_half_done_guards_who_gets_the_host() {
    // G6, LH1
    let dimensions = [
        BARE,
        (3, HOLDER.1),
        NAMES,
        STATE,
        (2, |seen, way| the_lease(seen).version = [None, Some("7".into())][way].clone()),
        (2, MARKED.1),
        WIPED,
        PROVIDER_ID,
        IS_BOUND,
        ORDERED,
        (2, |seen, way| {
            let id = [Some(SERVER.to_owned()), None];
            seen.object.status.server_id.clone_from(&id[way]);
        }),
        (2, |seen, way| seen.object.deleting_since = [None, Some(minutes_ago(1))][way]),
    ];
    let effects = [&["TakeLease", "ClearLease", "SetProviderId", "RemoveFinalizer", "Rename"][..]];
    assert_guarded(&dimensions, &effects);
}

/// What is known of a host that nobody saw: where its Lease is, and what the read of it said.
const UNSEEN: Dimension = (11, |seen, way| {
    let server: applecart_api::ids::ServerId = SERVER.parse().unwrap();
    let to = |holder: LeaseHolder, host| {
        let lease = Lease { holder, ..ours() };
        Bound::To { server: server.clone(), lease, host }
    };
    let other = LeaseHolder::Other("there/other/1".into());
    seen.bound = match way {
        0 => to(LeaseHolder::Us, HostRead::Gone),
        1 => to(LeaseHolder::Nobody, HostRead::Gone),
        2 => to(other, HostRead::Gone),
        3 => to(LeaseHolder::Us, HostRead::Failed("503".into())),
        4 => Bound::Several(vec![server.clone(), server.clone()]),
        5 => Bound::NotRead(None),
        6 => Bound::NotRead(Some((server.clone(), ours()))),
        7 => Bound::NotRead(Some((server.clone(), Lease { moved: true, ..ours() }))),
        8 => Bound::Unbound(Candidates::Failed("503".into())),
        9 => Bound::Unbound(Candidates::NoZone("404".into())),
        _ => Bound::Unbound(Candidates::Listed(vec![])),
    };
});

#[test]
fn every_state_without_a_host_to_see_guards_what_it_gives_up() {
    // G6, LH16
    let dimensions = [
        UNSEEN,
        LEAVE,
        GUESTS,
        PROVIDER_ID,
        CREDENTIALS,
        ORDERED,
        IS_BOUND,
        TOLD,
        (2, |seen, way| seen.object.deleting_since = [None, Some(minutes_ago(1))][way]),
        (2, |seen, way| seen.object.deleted_for_move = way == 1),
        (2, |seen, way| seen.object.finalizer = way == 0),
        (2, |seen, way| {
            let id = [Some(SERVER.to_owned()), None];
            seen.object.status.server_id.clone_from(&id[way]);
        }),
    ];
    let effects =
        [CLEANING, ENDING, LEAVING, &["SetProviderId", "ClearLease", "AddFinalizer", "NoteOrder"]];
    assert_guarded(&dimensions, &effects);
}

#[test]
fn every_state_that_is_told_first_guards_what_it_tells() {
    // G6: what comes before the effect itself.
    let dimensions = [
        LEAVE,
        HOLDER,
        OUR_NAMES,
        MARKED,
        TOLD,
        CREDENTIALS,
        (2, |seen, way| the_lease(seen).moved = way == 1),
        (2, |seen, way| seen.object.move_is_blocked = way == 1),
        (2, |seen, way| seen.object.deleting_since = [None, Some(minutes_ago(1))][way]),
    ];
    let mut reached = BTreeSet::new();
    every_state(&dimensions, |seen| {
        let told = with(seen.clone(), |seen| seen.object.status = told(seen));
        for seen in [seen, &told] {
            if let Some(action) = decide(now(), seen, &Limits::default()).action {
                assert!(may(seen, &action), "{action:?} in {seen:#?}");
                reached.insert(kind(&action));
            }
        }
    });
    for effect in ["WriteStatus", "BlockMove", "NoteMoving"] {
        assert!(reached.contains(effect), "{effect} is not among {reached:?}");
    }
}

#[test]
fn in_every_state_without_a_host_one_is_bought_only_for_who_asks_and_never_blindly() {
    // G6, G17
    let dimensions: &[Dimension] = &[
        (3, |seen, way| {
            let empty = Candidates::Listed(vec![]);
            let failed = Candidates::Failed("503".into());
            let unread = Bound::NotRead(None);
            seen.bound = [Bound::Unbound(empty), Bound::Unbound(failed), unread][way].clone();
        }),
        (2, |seen, way| seen.object.deleting_since = [None, Some(minutes_ago(1))][way]),
        (3, |seen, way| {
            seen.object.paused = [None, Some(Pause::Cluster), Some(Pause::Annotation)][way];
        }),
        (2, |seen, way| seen.object.owned_by_machine = way == 0),
        (2, |seen, way| seen.object.finalizer = way == 0),
        (2, |seen, way| seen.object.waiting_for = [None, Some("c".into())][way].clone()),
        (2, |seen, way| seen.object.auto_order = way == 1),
        (4, |seen, way| {
            let order = |minutes, unsent| Some(Ordered { at: minutes_ago(minutes), unsent });
            seen.object.ordered = [None, order(0, true), order(1, false), order(60, false)][way];
        }),
        (2, |seen, way| {
            seen.images = [Images::Listed(vec![]), Images::Failed("503".into())][way].clone();
        }),
        (2, |seen, way| {
            let retry_at = now() + Duration::from_secs(1);
            let trouble = Trouble {
                tried: "try",
                message: "x".into(),
                at: now(),
                retry_at,
                too_early: false,
                streaks: vec![],
            };
            seen.trouble = (way == 1).then_some(trouble);
        }),
    ];
    let mut orders = 0;
    let states = every_state(dimensions, |seen| {
        let decision = decide::next(now(), seen, &Limits::default());
        let object = &seen.object;
        let living = object.deleting_since.is_none() && object.owned_by_machine;
        let listed = matches!(seen.bound, Bound::Unbound(Candidates::Listed(_)));
        let free = living && object.paused.is_none() && object.finalizer && listed;
        match decision.action {
            Some(Action::Create { name, .. }) => {
                assert!(free && object.ordered.is_some_and(|order| order.unsent), "{seen:#?}");
                assert_eq!(name, NameClass::claiming(&seen.marker()));
                orders += 1;
            }
            Some(Action::NoteOrder) => {
                let asked = object.auto_order || object.ordered.is_some();
                let lost = object.ordered.is_none_or(|order| order.at < minutes_ago(10));
                assert!(free && asked && lost, "{seen:#?}");
            }
            Some(Action::RemoveFinalizer) => {
                let pending = object.ordered.is_some_and(|order| order.at > minutes_ago(10));
                assert!(!pending, "a rental without an owner: {seen:#?}");
            }
            Some(action) => assert!(!action.changes_host(), "{action:?} in {seen:#?}"),
            None => {}
        }
    });
    assert_eq!((states, orders), (4608, 2));
}
