//! `clusterctl move`, pausing and detaching.

use super::*;

fn paused(seen: Observed, by: Pause) -> Observed {
    with(seen, |seen| seen.object.paused = Some(by))
}

fn holding(moved: bool) -> Bound {
    Bound::NotRead(Some((server(), Lease { moved, ..ours() })))
}

#[test]
fn a_paused_cluster_may_be_moving_and_the_lease_says_so_in_time() {
    // clusterctl takes finalizers off by itself: afterwards nobody could say it any more.
    let seen = paused(Observed { bound: holding(false), ..prepared() }, Pause::Cluster);
    let note = |moving| Some(Action::NoteMoving { server: server(), moving });
    assert_eq!(effect(&seen).action, note(true));
    let noted = paused(Observed { bound: holding(true), ..prepared() }, Pause::Cluster);
    assert_eq!(effect(&noted).action, None);
    let by_hand = paused(Observed { bound: holding(false), ..prepared() }, Pause::Annotation);
    assert_eq!(effect(&by_hand).action, None);
    let resumed = with_lease(bootstrapped(), |lease| lease.moved = true);
    assert_eq!(effect(&resumed).action, note(false));
}

#[test]
fn a_moved_object_leaves_its_host_alone_and_its_lease_says_so() {
    let moved = with(deleting(prepared()), |seen| {
        seen.object.deleted_for_move = true;
        seen.object.paused = Some(Pause::Cluster);
    });
    let held = Observed { bound: holding(true), ..moved.clone() };
    assert_eq!(effect(&held).action, Some(Action::LeaveLease(server())));
    let left = Observed { bound: Bound::NotRead(None), ..moved };
    assert_eq!(effect(&left).action, Some(Action::RemoveFinalizer));
}

#[test]
fn a_detached_object_gives_up_its_lease_and_nothing_else() {
    // P14, seed: paused, then its ids cleared, then deleted.
    let detached = paused(deleting(fresh()), Pause::Annotation);
    let held = Observed { bound: holding(false), ..detached.clone() };
    assert_eq!(effect(&held).action, Some(Action::ClearLease(server())));
    assert_eq!(effect(&held).reason, Reason::Detached);
    let left = Observed { bound: Bound::NotRead(None), ..detached };
    assert_eq!(effect(&left).action, Some(Action::RemoveFinalizer));
}

#[test]
fn a_paused_object_without_ids_adopts_nothing() {
    // P14: a second after its ids were cleared it had claimed a fresh host.
    for by in [Pause::Cluster, Pause::Annotation] {
        let seen = paused(candidate(|_| {}, Lease::free()), by);
        assert_eq!(effect(&seen).action, None);
    }
}

#[test]
fn move_waits_while_a_host_is_on_its_way_and_not_a_turn_longer() {
    let blocks = |seen: Observed, blocked: bool| {
        let told = told(&seen);
        let seen = with(seen, |seen| {
            seen.object.status = told;
            seen.object.move_is_blocked = blocked;
        });
        match decide(now(), &seen, &Limits::default()).action {
            Some(Action::BlockMove(block)) => block,
            _ => blocked,
        }
    };
    let ready = || with(bootstrapped(), |seen| seen.node = Some(node()));
    let claiming = NameClass::claiming(&fresh().marker());
    let under_way = vec![
        candidate(|_| {}, Lease::free()),
        bound("pool-1", ours()),
        bound(&claiming, ours()),
        bound(NAME, ours()),
        prepared(),
        deleting(ready()),
        deleting(releasing(3)),
        releasing(3),
        paused(Observed { bound: holding(true), ..fresh() }, Pause::Cluster),
        with(fresh(), |seen| seen.object.auto_order = true),
    ];
    for (number, seen) in under_way.into_iter().enumerate() {
        assert!(blocks(seen.clone(), false), "{number} begins unguarded");
        assert!(blocks(seen, true), "{number} ends unguarded");
    }
    let at_rest = [
        ready(),
        fresh(),
        bound(NAME, Lease { holder: LeaseHolder::Other("b".into()), ..ours() }),
        paused(Observed { bound: holding(true), ..prepared() }, Pause::Cluster),
        paused(Observed { bound: Bound::NotRead(None), ..fresh() }, Pause::Annotation),
    ];
    for (number, seen) in at_rest.into_iter().enumerate() {
        assert!(!blocks(seen.clone(), true), "{number} keeps it waiting");
        assert!(!blocks(seen, false), "{number} makes it wait");
    }
    let unread =
        Bound::To { server: server(), lease: ours(), host: HostRead::Failed(String::new()) };
    for blocked in [false, true] {
        let seen = Observed { bound: unread.clone(), ..prepared() };
        assert_eq!(blocks(seen, blocked), blocked, "nobody can tell, so it stays");
    }
}

#[test]
fn move_waits_until_the_bootstrap_that_a_pause_ends_has_ended() {
    let next = |seen: &Observed| {
        let seen = with(seen.clone(), |seen| seen.object.status = told(seen));
        decide(now(), &seen, &Limits::default()).action
    };
    let running = paused(Observed { bound: holding(true), ..prepared() }, Pause::Cluster);
    let running = with(running, |seen| {
        seen.object.move_is_blocked = true;
        seen.bootstrap = Bootstrap::Running { step: None, since: now() };
    });
    assert_eq!(next(&running), Some(Action::StopBootstrap));
    let ended = with(running, |seen| seen.bootstrap = Bootstrap::None);
    assert_eq!(next(&ended), Some(Action::BlockMove(false)));
}

#[test]
fn move_waits_for_an_upkeep_that_may_change_something_and_for_no_look_at_a_mac_that_is_well() {
    let current = |seen: &mut Observed, status: &str| {
        let like = seen.object.status.conditions[0].clone();
        let told = Condition { type_: "UpToDate".into(), status: status.into(), ..like };
        seen.object.status.conditions.push(told);
    };
    let long_ago = || Upkeep::Idle(Some(Looked { at: minutes_ago(60), generation: Some(1) }));
    let due = |status: &str| {
        with(bootstrapped(), |seen| {
            (seen.node, seen.upkeep) = (Some(node()), long_ago());
            current(seen, status);
            seen.object.status = told(seen);
        })
    };
    let next = |seen: &Observed| decide(now(), seen, &Limits::default()).action;
    let look = due("True");
    assert_eq!(next(&look), Some(Action::StartUpkeep(server())), "two writes for nothing");
    let unlooked = with(look.clone(), |seen| seen.upkeep = Upkeep::Idle(None));
    let silent = with(look, |seen| {
        seen.node = Some(silent(300));
        seen.object.status = told(seen);
    });
    for outdated in [due("False"), unlooked, silent] {
        assert_eq!(next(&outdated), Some(Action::BlockMove(true)));
        let blocked = with(outdated, |seen| seen.object.move_is_blocked = true);
        assert_eq!(next(&blocked), Some(Action::StartUpkeep(server())));
        let running = with(blocked, |seen| seen.upkeep = Upkeep::Running);
        assert_eq!(next(&running), None, "it is kept waiting");
        let paused = Observed { bound: holding(true), ..paused(running.clone(), Pause::Cluster) };
        let paused = with(paused, |seen| seen.object.status = told(seen));
        assert_eq!(next(&paused), Some(Action::StopBootstrap));
        let ended = with(paused, |seen| seen.upkeep = long_ago());
        assert_eq!(next(&ended), Some(Action::BlockMove(false)));
        let over = with(running, |seen| seen.upkeep = Upkeep::Ended(Upkept::Failed("x".into())));
        assert_eq!(next(&over), Some(Action::BlockMove(false)));
    }
}

#[test]
fn a_status_that_was_wiped_is_rebuilt_from_the_node_without_touching_the_host() {
    // G11: after a move there is a provider ID and nothing else.
    let moved = with(prepared(), |seen| {
        seen.node = Some(node());
        seen.object.move_is_blocked = false;
    });
    let unleased = with_lease(moved.clone(), |lease| lease.holder = LeaseHolder::Nobody);
    let take = effect(&unleased).action;
    assert!(matches!(take, Some(Action::TakeLease { used: true, .. })), "{take:?}");
    assert!(is_true(&told(&unleased).conditions, "Bootstrapped"));
    let told = told(&moved);
    assert!(is_true(&told.conditions, "Bootstrapped"));
    let again = with(moved, |seen| seen.object.status = told);
    let decision = effect(&again);
    assert_eq!((decision.action, decision.reason), (None, Reason::Ready));
    // An old version of the system before us told nothing but that.
    let old = with(prepared(), |seen| {
        seen.node = Some(node());
        seen.object.status.ready = Some(true);
    });
    assert!(is_true(&self::told(&old).conditions, "Bootstrapped"));
    // One that is being bootstrapped has a status, and its Node proves nothing.
    let bootstrapping = with(prepared(), |seen| {
        seen.node = Some(node());
        seen.object.status.phase = Some("Bootstrapping".into());
    });
    assert_eq!(effect(&bootstrapping).action, Some(Action::StartBootstrap(server())));
}
