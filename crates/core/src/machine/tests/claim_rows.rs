//! From nothing to a Mac that is ready.

use super::*;

pub fn all() -> Vec<Row> {
    [waiting_rows(), claim_rows(), lost_rows(), bootstrap_rows(), recovery_rows(), keep_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn waiting_rows() -> Vec<Row> {
    let read = |host| {
        let bound = Bound::To { server: server(), lease: ours(), host };
        Observed { bound, ..fresh() }
    };
    let retry_at = now() + Duration::from_secs(1);
    let (tried, message, at) = ("try", "x".to_owned(), now());
    let trouble = Trouble { tried, message, at, retry_at, too_early: false, streaks: vec![] };
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
            "unknown zone",
            Observed { bound: Bound::Unbound(Candidates::NoZone("404".into())), ..fresh() },
            None,
            Reason::WaitingForOwner("a spec.zone that Scaleway knows: 404".into()),
        ),
        (
            "host unreadable",
            read(HostRead::Failed("403".into())),
            None,
            Reason::CannotRead("its host: 403".into()),
        ),
        (
            "host gone, and Cluster API was told of it (LH16)",
            with(read(HostRead::Gone), |s| s.object.machine_is_bound = true),
            None,
            Reason::HostGone,
        ),
        (
            "two hosts carry its name (P1)",
            Observed { bound: Bound::Several(vec![server(), server()]), ..fresh() },
            None,
            Reason::SeveralHosts(format!("{SERVER} and {SERVER}")),
        ),
        ("no pool", with(fresh(), |s| s.object.pool_prefix = None), None, Reason::NoPool),
    ]
}

/// Marked as ours so many seconds ago.
fn marked(ago: u64) -> Lease {
    Lease { marked_at: Some(now() - Duration::from_secs(ago)), ..ours() }
}

fn claim_rows() -> Vec<Row> {
    [choice_rows(), mark_rows(), name_rows(), found_rows(), others_rows()]
        .into_iter()
        .flatten()
        .collect()
}

fn choice_rows() -> Vec<Row> {
    let take = |version: Option<&str>| {
        Some(Action::TakeLease { server: server(), version: version.map(Into::into), used: false })
    };
    let other = Lease { holder: LeaseHolder::Other("b".into()), ..ours() };
    vec![
        (
            "no finalizer",
            with(fresh(), |s| (s.object.finalizer, s.object.move_is_blocked) = (false, false)),
            Some(Action::AddFinalizer { block_move: true }),
            Reason::Adopting,
        ),
        (
            "no finalizer, and nothing can be claimed yet",
            with(fresh(), |s| {
                (s.object.finalizer, s.object.move_is_blocked) = (false, false);
                s.object.waiting_for = Some("its Machine to exist".into());
            }),
            Some(Action::AddFinalizer { block_move: false }),
            Reason::Adopting,
        ),
        ("empty pool", fresh(), None, Reason::NoAvailableHost(PoolCounts::default())),
        // V4
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
        (
            "its deletion was asked for",
            candidate(|_| {}, Lease { delete_requested_at: Some(minutes_ago(1)), ..Lease::free() }),
            None,
            unfit(|c| c.not_ready = 1),
        ),
        (
            "its deletion was asked for, and a person wiped it since",
            candidate(
                |_| {},
                Lease {
                    delete_requested_at: Some(minutes_ago(2)),
                    wiped_at: Some(minutes_ago(1)),
                    ..Lease::free()
                },
            ),
            take(None),
            Reason::Adopting,
        ),
    ]
}

fn mark_rows() -> Vec<Row> {
    let claiming = NameClass::claiming(&fresh().marker());
    vec![
        ("leased", bound("pool-1", ours()), Some(rename("pool-1", &claiming)), Reason::Adopting),
        (
            "leased, but it does not fit any more",
            with_host(bound("pool-1", ours()), |h| h.state = HostState::Reinstalling),
            Some(Action::ClearLease(server())),
            Reason::Adopting,
        ),
        (
            "marked, and an older rename into the pool landed after that",
            bound("pool-1", Lease { unwiped: true, ..marked(5) }),
            Some(rename("pool-1", &claiming)),
            Reason::Adopting,
        ),
        (
            "back in the pool, and it does not fit any more: as good as before",
            with_host(bound("pool-1", Lease { unwiped: true, ..marked(5) }), |h| {
                h.state = HostState::Reinstalling;
            }),
            Some(Action::ReturnLease(server())),
            Reason::Adopting,
        ),
        (
            "in the pool, and not wiped since its last owner",
            bound("pool-1", Lease { unwiped: true, ..ours() }),
            Some(Action::ClearLease(server())),
            Reason::Adopting,
        ),
        ("marked", bound(&claiming, ours()), Some(Action::NoteMarked(server())), Reason::Settling),
        ("settling", bound(&claiming, marked(14)), None, Reason::Settling),
        ("settled", bound(&claiming, marked(15)), Some(rename(&claiming, NAME)), Reason::Settling),
    ]
}

fn name_rows() -> Vec<Row> {
    let claiming = NameClass::claiming(&fresh().marker());
    vec![
        (
            "another Machine has its name, before it has a host (LH14)",
            with(candidate(|_| {}, Lease::free()), |s| s.name = Name::Other("b".into())),
            None,
            Reason::NameTaken("b".into()),
        ),
        (
            "nobody has its name: that comes before a host",
            with(candidate(|_| {}, Lease::free()), |s| s.name = Name::Free(None)),
            Some(Action::TakeName { version: None }),
            Reason::Adopting,
        ),
        (
            "nobody looked whose its name is",
            with(candidate(|_| {}, Lease::free()), |s| s.name = Name::NotRead),
            None,
            Reason::CannotRead("whose its name is".into()),
        ),
        (
            "settled, and another Machine has its name: the host goes back (LH14)",
            with(bound(&claiming, marked(15)), |s| s.name = Name::Other("b".into())),
            Some(rename(&claiming, &NameClass::releasing(&fresh().marker()))),
            Reason::NameTaken("b".into()),
        ),
        (
            "settled, and the account that says whose its name is, is gone",
            with(bound(&claiming, marked(15)), |s| s.name = Name::Free(Some("7".into()))),
            Some(Action::TakeName { version: Some("7".into()) }),
            Reason::Settling,
        ),
        (
            "bought, and another Machine has its name",
            with(bound(&claiming, marked(15)), |s| {
                s.name = Name::Other("b".into());
                s.object.ordered = Some(Ordered { at: minutes_ago(60), unsent: false });
            }),
            None,
            Reason::NameTaken("b".into()),
        ),
    ]
}

/// Of a host that a namesake had, and nobody wiped since.
fn left() -> Lease {
    let owner = OwnerNote { owner: Some(format!("macs/{NAME}/gone")), ..note() };
    Lease { holder: LeaseHolder::Nobody, unwiped: true, note: owner, ..ours() }
}

fn found_rows() -> Vec<Row> {
    vec![
        // P6
        (
            "taken over by name: it carries somebody's work",
            bound(NAME, Lease { wiped_at: Some(now()), ..Lease::free() }),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Adopting,
        ),
        (
            "a host of its name is of another type, and nothing else says that it is ours (LH14)",
            with_host(bound(NAME, Lease::free()), |h| h.server_type = "M4-S".into()),
            None,
            Reason::NameTaken(format!("host {SERVER} bears it, and is of type M4-S, not M2-L")),
        ),
        (
            "a host had its name before it was created (LH14)",
            with(
                with_host(bound(NAME, Lease::free()), |h| h.changed_at = Some(minutes_ago(9))),
                |s| {
                    s.object.created_at = Some(minutes_ago(5));
                },
            ),
            None,
            Reason::NameTaken(format!(
                "host {SERVER} bears it, and did so before this Machine was created"
            )),
        ),
        (
            "a host of its name was left by an object that is gone, whenever that was (LH14, S5)",
            bound(NAME, left()),
            None,
            Reason::NameTaken(format!(
                "host {SERVER} bears it, and was not wiped since macs/{NAME}/gone had it"
            )),
        ),
        (
            "it left the host itself, as when a person cleared its Lease",
            bound(NAME, Lease { note: note(), ..left() }),
            Some(Action::TakeLease { server: server(), version: Some("7".into()), used: true }),
            Reason::Adopting,
        ),
        (
            "another had the host before it was wiped",
            bound(NAME, Lease { unwiped: false, ..left() }),
            Some(Action::TakeLease { server: server(), version: Some("7".into()), used: true }),
            Reason::Adopting,
        ),
        (
            "another left the host, but its provider ID names it, as after a move to and fro",
            with(bound(NAME, left()), |s| s.object.provider_id = prepared().object.provider_id),
            Some(Action::TakeLease { server: server(), version: Some("7".into()), used: true }),
            Reason::Adopting,
        ),
        (
            "a host got its name after it was created",
            with(
                with_host(bound(NAME, Lease::free()), |h| h.changed_at = Some(minutes_ago(5))),
                |s| {
                    s.object.created_at = Some(minutes_ago(9));
                },
            ),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Adopting,
        ),
        (
            "of another type, but its provider ID names it",
            with(with_host(bound(NAME, Lease::free()), |h| h.server_type = "M4-S".into()), |s| {
                s.object.provider_id = prepared().object.provider_id;
            }),
            Some(Action::TakeLease { server: server(), version: None, used: true }),
            Reason::Adopting,
        ),
    ]
}

fn others_rows() -> Vec<Row> {
    let other = Lease { holder: LeaseHolder::Other("b".into()), ..ours() };
    let elsewhere = applecart_api::name_class::Marker {
        cluster: "5eedf00d".parse().unwrap(),
        ..fresh().marker()
    };
    let neighbours = NameClass::claiming(&elsewhere);
    vec![
        ("held by another", bound(NAME, other), None, Reason::HeldByOther("b".into())),
        (
            "renamed by hand",
            with(bound("mine", ours()), |s| s.object.provider_id = prepared().object.provider_id),
            None,
            Reason::NotOurs("mine".into()),
        ),
        (
            "another cluster's rename came last",
            with(bound(&neighbours, marked(15)), |s| {
                s.object.status.server_id = Some(SERVER.into());
            }),
            Some(Action::ReturnLease(server())),
            Reason::HostReleased(claim::OUTRUN),
        ),
        (
            "another cluster has given it its name already",
            bound("theirs", marked(15)),
            Some(Action::ReturnLease(server())),
            Reason::HostReleased(claim::OUTRUN),
        ),
        (
            "back in the pool under a name that it had, and it was used",
            with(bound("pool-1", Lease { unwiped: true, ..marked(15) }), |s| {
                s.object.provider_id = prepared().object.provider_id;
                (s.object.server_type, s.object.machine_is_bound) = ("M4-S".into(), false);
            }),
            Some(Action::ClearLease(server())),
            Reason::Adopting,
        ),
        ("unleased stranger", bound("mine", Lease::free()), None, Reason::NotOurs("mine".into())),
    ]
}

fn bootstrap_rows() -> Vec<Row> {
    let since = now();
    let step = Some(("no sleep".to_owned(), 4, 10));
    vec![
        (
            "claimed",
            bound(NAME, ours()),
            Some(Action::SetProviderId(prepared().object.provider_id)),
            Reason::Preparing,
        ),
        (
            "rebooting",
            with_host(prepared(), |h| h.state = HostState::Rebooting),
            None,
            Reason::HostChanging("rebooting".into()),
        ),
        (
            "locked",
            with_host(prepared(), |h| h.state = HostState::Stuck("locked".into())),
            None,
            Reason::HostStuck("locked".into()),
        ),
        // LH3
        ("no address", with_host(prepared(), |h| h.address = None), None, Reason::NoAddress),
        (
            "no fleet key",
            with(prepared(), |s| s.credentials.fleet_key = FleetKey::Waiting("why".into())),
            None,
            Reason::SshKeyUnavailable("why".into()),
        ),
        // P9, LH3
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
            with(prepared(), |s| s.identity = identity(&[Identity::ServiceAccount])),
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

fn failed(times: i32) -> Observed {
    with(prepared(), |s| {
        s.object.status.bootstrap_attempts = Some(times);
        s.object.status.next_attempt_at = Some(now() + Duration::from_mins(4));
    })
}

fn recovery_rows() -> Vec<Row> {
    let releasing_name = NameClass::releasing(&fresh().marker());
    let unnoted = || {
        with_lease(releasing(0), |lease| {
            (lease.releasing_at, lease.owners_failed) = (None, 1);
        })
    };
    let rebooting = |seen| with_host(seen, |h| h.state = HostState::Rebooting);
    let swapped = with_lease(releasing(1), |lease| {
        (lease.wiped_at, lease.unwiped) = (Some(now()), false);
    });
    vec![
        (
            "failed three times: rebooted",
            failed(3),
            Some(Action::Reboot(server())),
            Reason::Rebooting(3),
        ),
        (
            "failed three times, and a job runs there",
            with(failed(3), |s| {
                s.node = Some(node());
                s.guests = vec![Guest { busy: true, ..guest("job") }];
            }),
            None,
            Reason::WaitingForJob("Pod runners/job".into()),
        ),
        (
            "failed three times, and a job ran there for longer than a drain may last",
            with(failed(3), |s| {
                s.node = Some(node());
                s.guests = vec![Guest { busy: true, ..guest("job") }];
                s.object.drain_timeout = Some(Duration::from_hours(2));
                s.object.status.next_attempt_at = Some(now() - Duration::from_hours(2));
            }),
            Some(Action::Reboot(server())),
            Reason::Rebooting(3),
        ),
        ("the reboot is seen", rebooting(failed(3)), None, Reason::Rebooted),
        (
            "failed eight times: exchanged",
            failed(8),
            Some(rename(NAME, &releasing_name)),
            Reason::Swapping(8),
        ),
        (
            "under its releasing name, the owner that gave up is counted",
            with(unnoted(), |s| s.object.provider_id = prepared().object.provider_id),
            Some(Action::NoteReleasing { server: server(), owners_failed: 2 }),
            Reason::Swapping(0),
        ),
        (
            "under its releasing name, and never its own: that counts as no failure (LH14)",
            unnoted(),
            Some(Action::NoteReleasing { server: server(), owners_failed: 1 }),
            Reason::Releasing,
        ),
        (
            "wiped, into the pool",
            swapped.clone(),
            Some(rename(&releasing_name, &NameClass::pool("pool-", &server()))),
            Reason::Releasing,
        ),
        (
            "wiped, but it failed three owners",
            with_lease(swapped, |lease| lease.owners_failed = 3),
            Some(rename(&releasing_name, &NameClass::quarantined(&server()))),
            Reason::Quarantined("3 owners in a row could not bootstrap it".into()),
        ),
    ]
}

/// The host of a living Machine went away, or back.
fn lost_rows() -> Vec<Row> {
    let returned = Lease { releasing_at: Some(now()), owners_failed: 1, ..ours() };
    let gone = |lease| Bound::To { server: server(), lease, host: HostRead::Gone };
    let why = "its bootstrap failed too often";
    vec![
        (
            "gone before Cluster API was told of it",
            Observed { bound: gone(ours()), ..fresh() },
            Some(Action::ClearLease(server())),
            Reason::HostReleased("its host does not exist any more"),
        ),
        (
            "back in the pool, with our password",
            with(bound("pool-1", returned.clone()), |s| {
                s.credentials.stored = Some(exactly());
                s.credentials.password = true;
            }),
            Some(Action::DeleteCredentials(exactly())),
            Reason::HostReleased(why),
        ),
        (
            "back in the pool, with a sealed password and a pin (S17)",
            with(bound("pool-1", returned.clone()), |s| s.credentials.stored = Some(exactly())),
            Some(Action::DeleteCredentials(exactly())),
            Reason::HostReleased(why),
        ),
        (
            "back in the pool, with our provider ID",
            with(bound("pool-1", returned.clone()), |s| {
                s.object.provider_id = prepared().object.provider_id;
            }),
            Some(Action::SetProviderId(None)),
            Reason::HostReleased(why),
        ),
        (
            "back in the pool",
            bound("pool-1", returned.clone()),
            Some(Action::ClearLease(server())),
            Reason::HostReleased(why),
        ),
        (
            "back in the pool, because another Machine has its name (LH14)",
            bound("pool-1", Lease { owners_failed: 0, ..returned.clone() }),
            Some(Action::ClearLease(server())),
            Reason::HostReleased("another Machine has its name"),
        ),
        (
            "set aside",
            bound(&NameClass::quarantined(&server()), returned),
            Some(Action::ClearLease(server())),
            Reason::HostReleased(why),
        ),
    ]
}

/// LH16: what became of a Mac that was well.
fn keep_rows() -> Vec<Row> {
    let well = || with(bootstrapped(), |s| s.node = Some(node()));
    let in_state = |state| with_host(well(), |h| h.state = state);
    vec![
        (
            "scheduled for deletion by somebody",
            with_host(well(), |h| h.retiring = true),
            None,
            Reason::HostRetiring,
        ),
        (
            "locked by Scaleway",
            in_state(HostState::Stuck("locked".into())),
            None,
            Reason::HostStuck("locked".into()),
        ),
        (
            "reinstalled by somebody",
            in_state(HostState::Reinstalling),
            None,
            Reason::HostChanging("reinstalling".into()),
        ),
        (
            "in passing trouble: its Node says how it is",
            in_state(HostState::Changing("busy".into())),
            None,
            Reason::Ready,
        ),
        (
            "well again after owners that failed",
            with_lease(well(), |lease| lease.owners_failed = 2),
            Some(Action::NoteHealthy(server())),
            Reason::Bootstrapped(None),
        ),
    ]
}
