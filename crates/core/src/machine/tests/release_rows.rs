//! From a deleted Machine to nothing.

use super::*;

pub fn all() -> Vec<Row> {
    let locked = unnameable_rows();
    [
        release_rows(),
        builder_rows(),
        wipe_rows(),
        wiped_rows(),
        left_rows(),
        locked,
        unwipeable_rows(),
        overdue_rows(),
        terminate_rows(),
        doomed_rows(),
        ordered_rows(),
        gone_rows(),
    ]
    .into_iter()
    .flatten()
    .chain(strange_release_rows())
    .collect()
}

/// Of Macs that build for GitHub: their jobs are no Pods.
fn builder_rows() -> Vec<Row> {
    let releasing = NameClass::releasing(&fresh().marker());
    let on_node =
        || with(deleting(bootstrapped()), |s| s.node = Some(Node { cordoned: true, ..node() }));
    vec![
        (
            "a job runs on the Mac itself (LH24)",
            with(on_node(), |s| s.builder = Builder::Busy),
            None,
            Reason::WaitingForJob("its own GitHub runner".into()),
        ),
        (
            "a job runs on the Mac itself, and longer than it may",
            with(on_node(), |s| {
                s.builder = Builder::Busy;
                s.object.drain_timeout = Some(Duration::ZERO);
            }),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
        (
            "a job ran on the Mac itself, and its Node is dead",
            with(on_node(), |s| {
                s.builder = Builder::Busy;
                s.node = Some(silent(300));
            }),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
        (
            "the Mac's own runner waits for a job",
            with(on_node(), |s| s.builder = Builder::Idle),
            Some(Action::RemoveRunner),
            Reason::Emptying,
        ),
        (
            "GitHub does not tell whether the Mac's own runner has a job",
            github_silent(on_node(), false, 59),
            None,
            untold_job(),
        ),
        (
            "GitHub does not tell for as long as a job may run",
            github_silent(on_node(), false, 60),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
        (
            "GitHub does not tell, and a job may run for ever",
            with(github_silent(on_node(), false, 59), |s| s.object.drain_timeout = None),
            None,
            untold_job(),
        ),
        (
            "GitHub does not tell for long, and a job may run for ever: its silence is no job",
            with(github_silent(on_node(), false, 60), |s| s.object.drain_timeout = None),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
        (
            "GitHub does not tell any more of a runner that had no job",
            github_silent(on_node(), true, 4),
            None,
            Reason::Emptying,
        ),
        (
            "GitHub does not tell for long of a runner that had no job: it is not waited for",
            github_silent(on_node(), true, 5),
            Some(rename(NAME, &releasing)),
            Reason::Releasing,
        ),
    ]
}

/// A Mac that goes since so many minutes, and of whose own runner GitHub tells nothing now.
fn github_silent(seen: Observed, was_idle: bool, minutes: u64) -> Observed {
    with(seen, |seen| {
        seen.builder = Builder::Unknown { was_idle };
        seen.object.deleting_since = Some(minutes_ago(minutes));
    })
}

fn untold_job() -> Reason {
    let what = "from GitHub whether its own runner has a job (check GitHub and the app's Secret; \
                without spec.ghActionsRunner nobody waits for it)";
    Reason::CannotRead(what.into())
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
            Reason::WaitingForJob("Pod runners/job".into()),
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
            Reason::WaitingForJob("Pod runners/job".into()),
        ),
        (
            "a job runs, and only the server id is left of what names its host (LH24)",
            with(on_node(vec![Guest { busy: true, ..guest("job") }], true), |s| {
                s.object.provider_id = None;
                s.object.status.server_id = Some(SERVER.into());
            }),
            None,
            Reason::WaitingForJob("Pod runners/job".into()),
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
    let releasing_name = NameClass::releasing(&fresh().marker());
    let released = |lease: Lease| deleting(bound(&releasing_name, lease));
    let marked = Lease { releasing_at: Some(minutes_ago(1)), ..ours() };
    let wiped = Lease { wiped_at: Some(now()), ..marked.clone() };
    let in_pool = NameClass::pool("pool-", &server());
    let in_state = |state| with_host(released(marked.clone()), |h| h.state = state);
    vec![
        (
            "renamed",
            released(ours()),
            Some(Action::NoteReleasing { server: server(), owners_failed: 0 }),
            Reason::Releasing,
        ),
        (
            "marked",
            released(marked.clone()),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "wipe seen (LH22)",
            in_state(HostState::Reinstalling),
            Some(Action::NoteWiped(server())),
            Reason::Wiping,
        ),
        (
            "rebooting is not wiping (LH22)",
            in_state(HostState::Rebooting),
            None,
            Reason::HostChanging("rebooting".into()),
        ),
        (
            "locked",
            in_state(HostState::Stuck("locked".into())),
            None,
            Reason::CannotWipe("locked".into()),
        ),
        (
            "wiped: into the pool, and not before (LH1)",
            released(wiped.clone()),
            Some(rename(&releasing_name, &in_pool)),
            Reason::Releasing,
        ),
    ]
}

/// What an agent and its host leave in Kubernetes, once a wipe was accepted.
fn left_rows() -> Vec<Row> {
    let lease = Lease { releasing_at: Some(minutes_ago(1)), wiped_at: Some(now()), ..ours() };
    let name = NameClass::releasing(&fresh().marker());
    let wiped = || deleting(bound(&name, lease.clone()));
    vec![
        (
            "wiped, identity left",
            with(wiped(), |s| s.identity = whole_identity()),
            Some(Action::DeleteIdentity { part: Identity::Token, exactly: exactly() }),
            Reason::CleaningUp,
        ),
        (
            "wiped, password left",
            with(wiped(), |s| {
                s.credentials.stored = Some(exactly());
                s.credentials.password = true;
            }),
            Some(Action::DeleteCredentials(exactly())),
            Reason::CleaningUp,
        ),
        (
            "wiped, password and account left: a namesake takes the name once that goes (LH14)",
            with(wiped(), |s| {
                s.identity = identity(&[Identity::ServiceAccount]);
                s.credentials.stored = Some(exactly());
            }),
            Some(Action::DeleteCredentials(exactly())),
            Reason::CleaningUp,
        ),
        (
            "wiped, Node and account left",
            with(wiped(), |s| {
                s.identity = identity(&[Identity::ServiceAccount]);
                s.node = Some(node());
            }),
            Some(Action::DeleteNode { uid: "node-1".into() }),
            Reason::CleaningUp,
        ),
        (
            "wiped, account left",
            with(wiped(), |s| s.identity = identity(&[Identity::ServiceAccount])),
            Some(Action::DeleteIdentity { part: Identity::ServiceAccount, exactly: exactly() }),
            Reason::CleaningUp,
        ),
        (
            "wiped, a sealed password and a pin left (S17, C5)",
            with(wiped(), |s| s.credentials.stored = Some(exactly())),
            Some(Action::DeleteCredentials(exactly())),
            Reason::CleaningUp,
        ),
    ]
}

/// What goes once a wipe was accepted.
fn wiped_rows() -> Vec<Row> {
    let releasing_name = NameClass::releasing(&fresh().marker());
    let released = |lease: Lease| deleting(bound(&releasing_name, lease));
    let wiped = Lease { releasing_at: Some(minutes_ago(1)), wiped_at: Some(now()), ..ours() };
    let in_pool = NameClass::pool("pool-", &server());
    // A Node has a provider ID, and so has its owner.
    let with_node = |seen| {
        with(seen, |s: &mut Observed| {
            s.object.provider_id = prepared().object.provider_id;
            s.node = Some(node());
        })
    };
    vec![
        (
            "wiped, and a rename that was sent before it was marked may be on its way",
            released(Lease { releasing_at: Some(seconds_ago(24)), ..wiped.clone() }),
            None,
            Reason::Wiping,
        ),
        (
            "wiped, and whatever was sent before has landed",
            released(Lease { releasing_at: Some(seconds_ago(25)), ..wiped.clone() }),
            Some(rename(&releasing_name, &in_pool)),
            Reason::Releasing,
        ),
        (
            "its Cluster was paused before: it goes back, and nowhere else",
            released(Lease { moved: true, ..wiped.clone() }),
            Some(Action::NoteMoving { server: server(), moving: false }),
            Reason::Releasing,
        ),
        (
            "its zone is none",
            deleting(Observed {
                bound: Bound::Unbound(Candidates::NoZone("404".into())),
                ..fresh()
            }),
            Some(Action::RemoveFinalizer),
            Reason::ReleaseSkipped("its zone is unknown: 404".into()),
        ),
        (
            "wiped, Node left",
            with_node(released(wiped.clone())),
            Some(Action::DeleteNode { uid: "node-1".into() }),
            Reason::CleaningUp,
        ),
        (
            "wiped, and a namesake's Node (LH14)",
            with(released(wiped.clone()), |s| {
                s.node = Some(Node { provider_id: Some("x".into()), ..node() });
            }),
            Some(rename(&releasing_name, &in_pool)),
            Reason::Releasing,
        ),
        (
            "wiped, and a Node that says nothing of its host, which may be a namesake's",
            with(released(wiped.clone()), |s| {
                s.node = Some(Node { provider_id: None, ..node() });
            }),
            Some(rename(&releasing_name, &in_pool)),
            Reason::Releasing,
        ),
        (
            "wiped, Node left, and the provider ID lost",
            with(released(wiped.clone()), |s| s.node = Some(node())),
            Some(Action::DeleteNode { uid: "node-1".into() }),
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
        (
            "in the pool, its own, and no Lease keeps it from being adopted: maybe unwiped (LH1)",
            named(deleting(bound(&in_pool, Lease::free()))),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Releasing,
        ),
        (
            "the same, and it is being wiped",
            with_host(named(deleting(bound(&in_pool, Lease::free()))), |h| {
                h.state = HostState::Reinstalling;
            }),
            Some(Action::RemoveFinalizer),
            Reason::Released,
        ),
        (
            "in the pool, its own, and its Lease given up",
            named(deleting(bound(&in_pool, Lease { holder: LeaseHolder::Nobody, ..ours() }))),
            Some(Action::RemoveFinalizer),
            Reason::Released,
        ),
    ]
}

/// The status still tells the host.
fn named(seen: Observed) -> Observed {
    with(seen, |seen| seen.object.status.server_id = Some(SERVER.into()))
}

/// Hosts that cannot be wiped, or renamed.
fn unwipeable_rows() -> Vec<Row> {
    let releasing_name = NameClass::releasing(&fresh().marker());
    let aside = NameClass::quarantined(&server());
    let locked = |minutes| {
        with_host(deleting(releasing(minutes)), |h| h.state = HostState::Stuck("locked".into()))
    };
    let wiped = with_lease(deleting(releasing(5)), |lease| {
        (lease.wiped_at, lease.unwiped) = (Some(minutes_ago(2)), false);
    });
    let let_go = |seen| with_lease(seen, |lease| lease.holder = LeaseHolder::Nobody);
    vec![
        (
            "locked for half an hour",
            locked(30),
            Some(rename(&releasing_name, &aside)),
            Reason::Quarantined("it is locked".into()),
        ),
        (
            "refusing wipes for half an hour",
            refused(Action::WIPE, 6, 30, deleting(releasing(30))),
            Some(rename(&releasing_name, &aside)),
            Reason::Quarantined("could not do it".into()),
        ),
        (
            "refusing wipes, and its new name",
            after(Action::RENAME, deleting(releasing(30))),
            Some(rename(&releasing_name, &aside)),
            Reason::Quarantined("could not do it".into()),
        ),
        (
            "on its way for long, and one wipe failed: nobody tried meanwhile",
            refused(Action::WIPE, 1, 40, deleting(releasing(40))),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "on its way for long, and many wipes failed in a moment",
            refused(Action::WIPE, 9, 29, deleting(releasing(60))),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "on its way for long, and something else failed often",
            refused("write the status", 9, 60, deleting(releasing(60))),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "locked, and not to be renamed either",
            after(Action::RENAME, locked(31)),
            Some(Action::NoteQuarantined(server())),
            Reason::Quarantined("it is locked".into()),
        ),
        (
            "locked, and not tried to rename yet",
            after_trouble(locked(60)),
            Some(rename(&releasing_name, &aside)),
            Reason::Quarantined("it is locked".into()),
        ),
        (
            "set aside by its Lease alone",
            with_lease(locked(31), |lease| lease.quarantined = true),
            Some(Action::ClearLease(server())),
            Reason::Releasing,
        ),
        (
            "set aside by its Lease alone, given up",
            with_lease(let_go(locked(31)), |lease| lease.quarantined = true),
            Some(Action::RemoveFinalizer),
            Reason::Quarantined("it could not be renamed".into()),
        ),
        (
            "set aside",
            deleting(bound(&aside, ours())),
            Some(Action::ClearLease(server())),
            Reason::Releasing,
        ),
        (
            "set aside, given up",
            deleting(bound(&aside, Lease::free())),
            Some(Action::RemoveFinalizer),
            Reason::Quarantined("see its Lease".into()),
        ),
        (
            "being wiped, and not to be renamed meanwhile",
            after(Action::RENAME, wiped.clone()),
            Some(Action::ClearLease(server())),
            Reason::LeftToSweep,
        ),
        (
            "being wiped, given up",
            let_go(wiped),
            Some(Action::RemoveFinalizer),
            Reason::LeftToSweep,
        ),
    ]
}

/// Releases that nothing refuses, and that do not end (V1).
fn overdue_rows() -> Vec<Row> {
    let releasing_name = NameClass::releasing(&fresh().marker());
    let aside = || Some(rename(&releasing_name, &NameClass::quarantined(&server())));
    let asked = || Some(Action::RequestWipe { server: server(), image: None });
    let unseen = "ready, and no wipe of it was seen to run";
    let in_state =
        |minutes, state| with_host(deleting(releasing(minutes)), |host| host.state = state);
    // One that nobody saw run, and for how long that has been told.
    let told = |reason: Reason, seconds| {
        with(deleting(releasing(31)), |seen| say(seen, &reason, seconds_ago(seconds)))
    };
    let unlisted = |minutes| {
        with(deleting(releasing(minutes)), |seen| seen.images = Images::Failed("503".into()))
    };
    vec![
        (
            "rebooting for a while",
            in_state(29, HostState::Rebooting),
            None,
            Reason::HostChanging("rebooting".into()),
        ),
        (
            "rebooting for half an hour",
            in_state(30, HostState::Rebooting),
            aside(),
            Reason::Quarantined("it is rebooting".into()),
        ),
        (
            "busy for half an hour",
            in_state(30, HostState::Changing("busy".into())),
            aside(),
            Reason::Quarantined("it is busy".into()),
        ),
        ("wiped in vain for a while", deleting(releasing(29)), asked(), Reason::Wiping),
        (
            "wiped in vain for half an hour, or nobody was there to ask",
            deleting(releasing(30)),
            asked(),
            Reason::CannotWipe(unseen.into()),
        ),
        (
            "wiped in vain, which is not told for long",
            told(Reason::CannotWipe(unseen.into()), 59),
            asked(),
            Reason::CannotWipe(unseen.into()),
        ),
        (
            "wiped in vain, which is told for long",
            told(Reason::CannotWipe(unseen.into()), 60),
            aside(),
            Reason::Quarantined(format!("it is {unseen}")),
        ),
        (
            "wiped in vain, and told that it is set aside",
            told(Reason::Quarantined(format!("it is {unseen}")), 0),
            aside(),
            Reason::Quarantined(format!("it is {unseen}")),
        ),
        (
            "no image is listed for a while",
            unlisted(14),
            None,
            Reason::CannotRead("the images to wipe to: 503".into()),
        ),
        ("no image is listed for long", unlisted(15), asked(), Reason::Wiping),
    ]
}

/// Hosts that take no other name, from the first on.
fn unnameable_rows() -> Vec<Row> {
    let releasing_name = NameClass::releasing(&fresh().marker());
    let aside = NameClass::quarantined(&server());
    let claimed = |minutes, state: HostState| {
        let seen = with_host(bound(NAME, ours()), |h| h.state = state);
        let seen = with(seen, |s| s.object.deleting_since = Some(minutes_ago(minutes)));
        after(Action::RENAME, seen)
    };
    let locked = || HostState::Stuck("locked".into());
    let quarantined = || Reason::Quarantined("it is locked".into());
    vec![
        (
            "locked under its own name for a while",
            claimed(29, locked()),
            Some(rename(NAME, &releasing_name)),
            Reason::Releasing,
        ),
        (
            "locked under its own name for half an hour",
            claimed(30, locked()),
            Some(rename(NAME, &aside)),
            quarantined(),
        ),
        (
            "locked under its own name, and not to be set aside by a name either",
            claimed(31, locked()),
            Some(Action::NoteQuarantined(server())),
            quarantined(),
        ),
        (
            "the same, and that could not be told",
            untold(refused(Action::RENAME, 3, 31, claimed(31, locked()))),
            Some(Action::NoteQuarantined(server())),
            quarantined(),
        ),
        (
            "well, and its name refused for an hour: nobody's right is read as a bad host",
            claimed(60, HostState::Ready),
            Some(rename(NAME, &releasing_name)),
            Reason::Releasing,
        ),
    ]
}

/// Hosts that are not there any more.
fn gone_rows() -> Vec<Row> {
    let gone = |lease| {
        let bound = Bound::To { server: server(), lease, host: HostRead::Gone };
        deleting(Observed { bound, ..fresh() })
    };
    vec![
        (
            "gone, and held by us: nobody holds what is not there (C5)",
            gone(ours()),
            Some(Action::ClearLease(server())),
            Reason::HostGone,
        ),
        ("gone", gone(Lease::free()), Some(Action::RemoveFinalizer), Reason::HostGone),
    ]
}

fn trouble_of(seen: Observed) -> Trouble {
    seen.trouble.expect("a trouble")
}

/// Hosts that go for good.
fn terminate_rows() -> Vec<Row> {
    let doomed = |lease| with(deleting(bound(NAME, lease)), |s| s.object.terminate = true);
    let asked = |minutes| Lease { delete_requested_at: Some(minutes_ago(minutes)), ..ours() };
    let releasing_name = NameClass::releasing(&fresh().marker());
    let scheduled = |name: &str, lease| {
        let doomed = with(deleting(bound(name, lease)), |s| s.object.terminate = true);
        with_host(doomed, |h| h.retiring = true)
    };
    let wiped =
        Lease { releasing_at: Some(now()), wiped_at: Some(now()), unwiped: false, ..asked(1) };
    let too_early =
        Trouble { too_early: true, message: "412".into(), ..trouble_of(after_trouble(fresh())) };
    vec![
        ("to be deleted", doomed(ours()), Some(Action::NoteDelete(server())), Reason::Terminating),
        (
            "to be deleted, with a job on it",
            with(doomed(ours()), |s| {
                s.object.provider_id = prepared().object.provider_id;
                s.node = Some(Node { cordoned: true, ..node() });
                s.guests = vec![Guest { busy: true, ..guest("job") }];
            }),
            None,
            Reason::WaitingForJob("Pod runners/job".into()),
        ),
        (
            "to be deleted, noted",
            doomed(asked(0)),
            Some(Action::DeleteServer(server())),
            Reason::Terminating,
        ),
        (
            "to be deleted, and no pool is needed for that",
            with(doomed(asked(0)), |s| s.object.pool_prefix = None),
            Some(Action::DeleteServer(server())),
            Reason::Terminating,
        ),
        (
            "inside the licensing floor (P15)",
            with(doomed(asked(0)), |s| s.trouble = Some(too_early)),
            Some(Action::ScheduleDeletion(server())),
            Reason::Terminating,
        ),
        (
            "scheduled: wiped like any other",
            scheduled(NAME, asked(1)),
            Some(rename(NAME, &releasing_name)),
            Reason::DeletionScheduled,
        ),
        (
            "scheduled, under its releasing name",
            scheduled(&releasing_name, Lease { releasing_at: Some(now()), ..asked(1) }),
            Some(Action::RequestWipe { server: server(), image: None }),
            Reason::Wiping,
        ),
        (
            "scheduled and wiped",
            scheduled(&releasing_name, wiped.clone()),
            Some(Action::ClearLease(server())),
            Reason::DeletionScheduled,
        ),
        (
            "scheduled and wiped, Lease given up",
            scheduled(&releasing_name, Lease { holder: LeaseHolder::Nobody, ..wiped }),
            Some(Action::RemoveFinalizer),
            Reason::DeletionScheduled,
        ),
        (
            "not to be deleted for half an hour",
            refused(Action::DELETE[0], 6, 30, doomed(asked(30))),
            Some(rename(NAME, &NameClass::quarantined(&server()))),
            Reason::Quarantined("could not do it".into()),
        ),
        (
            "not to be scheduled for deletion for half an hour",
            refused(Action::DELETE[1], 6, 30, doomed(asked(30))),
            Some(rename(NAME, &NameClass::quarantined(&server()))),
            Reason::Quarantined("could not do it".into()),
        ),
        (
            "to be deleted for long, and one deletion failed: nobody tried meanwhile",
            refused(Action::DELETE[0], 1, 40, doomed(asked(40))),
            Some(Action::DeleteServer(server())),
            Reason::Terminating,
        ),
    ]
}

/// Hosts that are deleted later, and take no other name until then.
fn doomed_rows() -> Vec<Row> {
    let asked = |minutes| Lease { delete_requested_at: Some(minutes_ago(minutes)), ..ours() };
    let scheduled = |lease| {
        let doomed = with(deleting(bound(NAME, lease)), |s| s.object.terminate = true);
        with_host(doomed, |h| (h.retiring, h.state) = (true, HostState::Stuck("locked".into())))
    };
    let aside = |lease| Lease { quarantined: true, ..lease };
    let given_up = Lease { holder: LeaseHolder::Nobody, ..aside(asked(31)) };
    vec![
        (
            "scheduled, and its name refused for a while",
            after(Action::RENAME, scheduled(asked(29))),
            Some(rename(NAME, &NameClass::releasing(&fresh().marker()))),
            Reason::DeletionScheduled,
        ),
        (
            "scheduled, and its name refused for half an hour: nobody waits until it goes (P15)",
            after(Action::RENAME, scheduled(asked(30))),
            Some(Action::NoteQuarantined(server())),
            Reason::DeletionScheduled,
        ),
        (
            "scheduled, set aside by its Lease, and something is left of it",
            with(scheduled(aside(asked(31))), |s| s.identity = whole_identity()),
            Some(Action::DeleteIdentity { part: Identity::Token, exactly: exactly() }),
            Reason::CleaningUp,
        ),
        (
            "scheduled, and set aside by its Lease",
            scheduled(aside(asked(31))),
            Some(Action::ClearLease(server())),
            Reason::Releasing,
        ),
        (
            "scheduled, set aside by its Lease, given up",
            scheduled(given_up),
            Some(Action::RemoveFinalizer),
            Reason::DeletionScheduled,
        ),
    ]
}

/// Hosts that were bought.
fn ordered_rows() -> Vec<Row> {
    let claiming = NameClass::claiming(&fresh().marker());
    let paused_order = |seen, minutes| {
        with(seen, |s: &mut Observed| {
            s.object.paused = Some(Pause::Annotation);
            s.object.ordered = Some(Ordered { at: minutes_ago(minutes), unsent: false });
        })
    };
    let asked = Lease { delete_requested_at: Some(minutes_ago(0)), ..ours() };
    vec![
        (
            "ordered for it",
            with(deleting(bound(NAME, asked)), |s| {
                s.object.ordered = Some(Ordered { at: minutes_ago(60), unsent: false });
            }),
            Some(Action::DeleteServer(server())),
            Reason::Terminating,
        ),
        (
            "ordered a moment ago, and not seen yet",
            with(deleting(fresh()), |s| {
                s.object.ordered = Some(Ordered { at: minutes_ago(9), unsent: false });
            }),
            None,
            Reason::Ordering,
        ),
        (
            "ordered a moment ago, not seen yet, and paused (G17)",
            paused_order(deleting(fresh()), 9),
            None,
            Reason::Ordering,
        ),
        (
            "ordered long ago, never seen, and paused",
            paused_order(deleting(fresh()), 10),
            Some(Action::RemoveFinalizer),
            Reason::Released,
        ),
        (
            "ordered, arrived unseen, and paused (G17)",
            paused_order(deleting(bound(&claiming, Lease::free())), 60),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Releasing,
        ),
        (
            "ordered, and taken away by a person",
            paused_order(deleting(bound(NAME, ours())), 60),
            Some(Action::ClearLease(server())),
            Reason::Detached,
        ),
        (
            "ordered, and taken away by a person, Lease given up",
            paused_order(deleting(bound(NAME, Lease::free())), 60),
            Some(Action::RemoveFinalizer),
            Reason::Detached,
        ),
    ]
}

fn strange_release_rows() -> Vec<Row> {
    let skipped = |why: &str| Reason::ReleaseSkipped(why.into());
    let other = Lease { holder: LeaseHolder::Other("b".into()), ..ours() };
    let namesake =
        Lease { holder: LeaseHolder::Other("there/fleet-x7k2p/1".into()), ..Lease::free() };
    vec![
        (
            "claim lost before the status was written (LH2)",
            deleting(bound(NAME, Lease::free())),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Releasing,
        ),
        (
            "a host of its name and of another type is not its own to wipe (LH14)",
            with_host(deleting(bound(NAME, Lease::free())), |h| h.server_type = "M4-S".into()),
            Some(Action::RemoveFinalizer),
            skipped(&format!("host {SERVER} bears it, and is of type M4-S, not M2-L")),
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
            "moved",
            with(deleting(prepared()), |s| s.object.deleted_for_move = true),
            Some(Action::LeaveLease(server())),
            Reason::Moved,
        ),
        (
            "detached",
            with(deleting(fresh()), |s| s.object.paused = Some(Pause::Annotation)),
            Some(Action::RemoveFinalizer),
            Reason::Detached,
        ),
        (
            "held by a namesake of another namespace: what carries the name is its (LH14)",
            with(deleting(bound(NAME, namesake)), |s| {
                s.identity = whole_identity();
                s.credentials.stored = Some(exactly());
                s.credentials.password = true;
            }),
            Some(Action::RemoveFinalizer),
            skipped("it is held by there/fleet-x7k2p/1"),
        ),
        (
            "two hosts carry its name (P1)",
            deleting(Observed { bound: Bound::Several(vec![server(), server()]), ..fresh() }),
            Some(Action::RemoveFinalizer),
            skipped(&format!("hosts {SERVER} and {SERVER} all carry its name")),
        ),
        (
            "host unread",
            deleting(Observed { bound: Bound::NotRead(None), ..fresh() }),
            None,
            Reason::CannotRead("its host".into()),
        ),
    ]
}

/// What failed could not be told either.
fn untold(seen: Observed) -> Observed {
    with(seen, |seen| match &mut seen.trouble {
        Some(trouble) => trouble.tried = "write the status",
        None => panic!("no trouble"),
    })
}
