//! What must hold before a host is touched.

use super::*;

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

const HOLDER: Dimension = (3, |seen, way| {
    let other = LeaseHolder::Other("there/other/1".into());
    the_lease(seen).holder = [LeaseHolder::Us, LeaseHolder::Nobody, other][way].clone();
});
const NAMES: Dimension = (8, |seen, way| {
    let (ours, theirs) =
        (seen.marker(), with(fresh(), |s| s.cluster = "0badf00d".parse().unwrap()));
    the_host(seen).name = match way {
        0 => NAME.into(),
        1 => "pool-1".into(),
        2 => NameClass::claiming(&ours),
        3 => NameClass::releasing(&ours),
        4 => NameClass::claiming(&theirs.marker()),
        5 => NameClass::releasing(&theirs.marker()),
        6 => "tuist-quarantine-1".into(),
        _ => "mine".into(),
    };
});
const STATE: Dimension = (5, |seen, way| {
    the_host(seen).state = match way {
        0 => HostState::Ready,
        1 => HostState::Reinstalling,
        2 => HostState::Rebooting,
        3 => HostState::Changing("busy".into()),
        _ => HostState::Stuck("locked".into()),
    };
});
const RETIRING: Dimension = (2, |seen, way| the_host(seen).retiring = way == 1);
const PREFIX: Dimension =
    (2, |seen, way| seen.object.pool_prefix = [Some("pool-".into()), None][way].clone());
const JOB: Dimension = (2, |seen, way| {
    seen.node = Some(Node { cordoned: true, ..node() });
    seen.guests = vec![Guest { busy: true, ..guest("job") }];
    seen.guests.truncate(way);
});
const TROUBLE: Dimension = (3, |seen, way| {
    let trouble = |too_early| {
        let (tried, message, retry_at) = ("try", "x".into(), now());
        Some(Trouble { tried, message, retry_at, too_early, streaks: vec![] })
    };
    seen.trouble = [None, trouble(false), trouble(true)][way].clone();
});
const WIPED: Dimension = (3, |seen, way| {
    let lease = the_lease(seen);
    (lease.wiped_at, lease.unwiped) =
        [(None, false), (Some(minutes_ago(2)), true), (Some(minutes_ago(2)), false)][way];
});
const RELEASING: Dimension = (3, |seen, way| {
    the_lease(seen).releasing_at = [None, Some(minutes_ago(1)), Some(minutes_ago(31))][way];
});

fn is_one_of(seen: &Observed, host: &Host, releases: &[Release]) -> bool {
    releases.contains(&seen.release_of(host))
}

/// Whether a host may be renamed so.
fn may_rename(seen: &Observed, lease: &Lease, host: &Host, to: &str) -> bool {
    let living = seen.object.deleting_since.is_none();
    let busy = seen.guests.iter().any(|guest| guest.busy);
    let stuck = host.state != HostState::Ready || seen.trouble.is_some();
    let leaving = is_one_of(seen, host, &[Release::Marked]);
    match NameClass::read(to, seen.object.pool_prefix.as_deref().unwrap_or_default()) {
        // LH1, LH22: wiped, and by us.
        NameClass::Pool => leaving && lease.is_wiped(),
        NameClass::Claiming(marker) => {
            let fits = host.state == HostState::Ready && !host.retiring && !lease.unwiped;
            marker == seen.marker() && living && is_one_of(seen, host, &[Release::InPool]) && fits
        }
        NameClass::Releasing(marker) => {
            let given_up = !living || (seen.failures() >= 8 && !seen.is_provisioned());
            let ours = is_one_of(seen, host, &[Release::NotBegun]);
            marker == seen.marker() && ours && given_up && !busy
        }
        NameClass::Quarantined => {
            let ours = is_one_of(seen, host, &[Release::NotBegun, Release::Marked]);
            ours && (lease.is_wiped() || stuck)
        }
        NameClass::Other(name) => {
            let claiming = host.name == NameClass::claiming(&seen.marker());
            living && name == seen.object.name && claiming && lease.marked_at.is_some()
        }
        NameClass::OldMarker => false,
    }
}

/// S3, S4, S6, S9, S12: what must hold before an effect on a host.
fn may(seen: &Observed, action: &Action) -> bool {
    let object = &seen.object;
    let living = object.deleting_since.is_none();
    let Bound::To { lease, host: HostRead::Seen(host), .. } = &seen.bound else {
        return !action.changes_host();
    };
    if let Action::TakeLease { .. } = action {
        return lease.holder == LeaseHolder::Nobody;
    }
    if !action.changes_host() {
        return true;
    }
    let allowed = object.finalizer
        && !object.deleted_for_move
        && (!living || (object.paused.is_none() && object.owned_by_machine));
    let ours = is_one_of(seen, host, &[Release::NotBegun, Release::Marked]);
    let doomed = !living && (object.terminate || object.ordered.is_some());
    let guarded = match action {
        Action::Rename { was, to, .. } => *was == host.name && may_rename(seen, lease, host, to),
        Action::RequestWipe { .. } => {
            let marked = is_one_of(seen, host, &[Release::Marked]);
            marked && host.state == HostState::Ready && !lease.is_wiped()
        }
        Action::Reboot(_) => {
            let fresh = object.status.bootstrap_reboot_issued != Some(true);
            // S24: whatever runs there, lives on; no state here has waited for all of a drain.
            let busy = seen.guests.iter().any(|guest| guest.busy);
            living && host.name == object.name && seen.failures() >= 3 && fresh && !busy
        }
        Action::DeleteServer(_) => doomed && ours && lease.delete_requested_at.is_some(),
        Action::ScheduleDeletion(_) => {
            let early = seen.trouble.as_ref().is_some_and(|trouble| trouble.too_early);
            doomed && ours && early && lease.delete_requested_at.is_some()
        }
        _ => false,
    };
    allowed && guarded && lease.holder == LeaseHolder::Us
}

fn assert_guarded(seen: &Observed) {
    let decision = decide::next(now(), seen, &Limits::default());
    let timed = decision.action.is_some() || decision.wake.is_some();
    assert!(timed, "V6: nothing would wake it: {decision:?} in {seen:#?}");
    if let Some(action) = &decision.action {
        assert!(may(seen, action), "{action:?} in {seen:#?}");
    }
}

#[test]
fn every_state_of_a_living_machine_guards_what_it_does_to_a_host() {
    // G6
    let dimensions: &[Dimension] = &[
        (2, |seen, way| seen.object.paused = [None, Some(Pause::Cluster)][way]),
        (2, |seen, way| seen.object.owned_by_machine = way == 0),
        HOLDER,
        NAMES,
        STATE,
        RETIRING,
        PREFIX,
        JOB,
        (3, |seen, way| seen.object.status.bootstrap_attempts = [None, Some(3), Some(8)][way]),
        (2, |seen, way| seen.object.status.bootstrap_reboot_issued = Some(way == 1)),
        (2, |seen, way| seen.object.machine_is_bound = way == 1),
        (2, |seen, way| the_lease(seen).marked_at = [None, Some(minutes_ago(1))][way]),
        (2, |seen, way| the_lease(seen).owners_failed = [0, 3][way]),
        WIPED,
    ];
    let states = every_state(dimensions, assert_guarded);
    assert_eq!(states, 552_960);
}

#[test]
fn every_state_of_a_machine_that_goes_guards_what_it_does_to_a_host() {
    // G6, P22
    let dimensions: &[Dimension] = &[
        (1, |seen, _| seen.object.deleting_since = Some(minutes_ago(5))),
        (2, |seen, way| seen.object.paused = [None, Some(Pause::Cluster)][way]),
        (2, |seen, way| seen.object.deleted_for_move = way == 1),
        HOLDER,
        NAMES,
        STATE,
        RETIRING,
        PREFIX,
        JOB,
        TROUBLE,
        (3, |seen, way| {
            seen.object.terminate = way == 1;
            let ordered = Ordered { at: minutes_ago(60), unsent: false };
            seen.object.ordered = (way == 2).then_some(ordered);
        }),
        (2, |seen, way| {
            the_lease(seen).delete_requested_at = [None, Some(minutes_ago(31))][way];
        }),
        (2, |seen, way| the_lease(seen).quarantined = way == 1),
        WIPED,
        RELEASING,
    ];
    let states = every_state(dimensions, assert_guarded);
    assert_eq!(states, 1_244_160);
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
