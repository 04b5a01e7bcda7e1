//! Bootstraps that fail, and what is done about it.

use super::*;

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
    let on_time = effect_at(due, &after);
    assert_eq!(on_time.action, Some(Action::StartBootstrap(server())));
}

#[test]
fn a_refused_password_is_a_state_of_its_own_that_says_where_a_new_one_goes() {
    let limits = Limits::default();
    let said = || "macOS refused the password".to_owned();
    let refused = with(prepared(), |seen| seen.bootstrap = Bootstrap::PasswordRefused(said()));
    let Some(Action::RecordBootstrap(told)) = decide(now(), &refused, &limits).action else {
        panic!("the refusal is not recorded");
    };
    let after = with(prepared(), |seen| seen.object.status = (*told).clone());
    let waiting = decide(now() + Duration::from_secs(1), &after, &limits);
    assert_eq!(waiting.reason, Reason::PasswordRefused { attempts: 1, message: said() });
    assert!(
        waiting.reason.to_string().contains("sudo-password of the Machine's -bootstrap Secret")
    );
    assert_eq!(waiting.wake, Some(limits.look), "a new one is looked for");
    let renewed = with(after.clone(), |seen| seen.credentials.renewed = true);
    let again = decide(now() + Duration::from_secs(1), &renewed, &limits);
    assert_eq!(again.reason, Reason::Bootstrapping(None));
    let other = with(after, |seen| seen.bootstrap = Bootstrap::Failed("no route".into()));
    let Some(Action::RecordBootstrap(told)) = decide(now(), &other, &limits).action else {
        panic!("the failure is not recorded");
    };
    let after = with(prepared(), |seen| seen.object.status = (*told).clone());
    assert_eq!(decide(now(), &after, &limits).reason.word(), "BootstrapFailed");
}

#[test]
fn what_is_no_part_of_being_a_node_fails_alone_and_is_left_to_upkeep() {
    // B22
    let limits = Limits::default();
    let said = "Tailscale: the key is not valid";
    let seen = with(prepared(), |seen| {
        seen.bootstrap = Bootstrap::Incomplete(said.into());
        seen.object.status.bootstrap_attempts = Some(2);
    });
    let Some(Action::RecordBootstrap(told)) = decide(now(), &seen, &limits).action else {
        panic!("the end is not recorded");
    };
    assert_eq!(told.bootstrap_attempts, None);
    assert!(is_true(&told.conditions, "Bootstrapped"));
    let current = told.conditions.iter().find(|c| c.type_ == "UpToDate").unwrap();
    assert_eq!((current.status.as_str(), current.message.as_deref()), ("False", Some(said)));
    assert_eq!(told.next_attempt_at, Some(now() + limits.retry), "upkeep tries again");
}

#[test]
fn a_bootstrap_that_waits_for_running_vms_has_not_failed() {
    // S24: else three waits would reboot the host, and eight wipe it.
    let limits = Limits::default();
    let what = "Tart: a VM runs";
    let seen = with(prepared(), |seen| {
        seen.bootstrap = Bootstrap::Postponed(what.into());
        seen.object.status.bootstrap_attempts = Some(2);
    });
    let Some(Action::RecordBootstrap(told)) = decide(now(), &seen, &limits).action else {
        panic!("the wait is not recorded");
    };
    assert_eq!(told.bootstrap_attempts, Some(2), "neither more nor less");
    assert!(!is_true(&told.conditions, "Bootstrapped"));
    let after = with(prepared(), |seen| seen.object.status = (*told).clone());
    let waiting = decide(now() + Duration::from_secs(1), &after, &limits);
    assert_eq!(waiting.reason, Reason::BootstrapPostponed(what.into()));
    assert!(!waiting.reason.is_warning());
    let on_time = effect_at(told.next_attempt_at.unwrap(), &after);
    assert_eq!(on_time.action, Some(Action::StartBootstrap(server())));
}

#[test]
fn a_bootstrap_that_ended_well_is_recorded_with_its_stamp() {
    let seen = with(prepared(), |seen| {
        let (stamp, did) = ("abc".into(), "9 of 9 steps changed in 84 s".into());
        seen.bootstrap = Bootstrap::Succeeded { stamp, awaits_boot: None, did };
        seen.object.status.bootstrap_attempts = Some(2);
    });
    let Decision { action, reason, .. } = decide(now(), &seen, &Limits::default());
    let Some(Action::RecordBootstrap(told)) = action else {
        panic!("the success is not recorded");
    };
    assert_eq!(reason.to_string(), "bootstrapped: 9 of 9 steps changed in 84 s");
    assert_eq!(told.tart_kubelet_binary_sha.as_deref(), Some("abc"));
    assert_eq!(told.bootstrap_attempts, None);
    assert!(is_true(&told.conditions, "Bootstrapped"));
}

fn failed(times: i32) -> Observed {
    with(prepared(), |seen| {
        seen.object.status.bootstrap_attempts = Some(times);
        seen.object.status.next_attempt_at = Some(now() + Duration::from_mins(4));
    })
}

fn tiers(reboot_after: u32, max_attempts: u32) -> Limits {
    let usual = Limits::default();
    Limits { tiers: Tiers { reboot_after, max_attempts, ..usual.tiers }, ..usual }
}

/// What is done, once it was told.
fn done(seen: &Observed, limits: &Limits) -> Option<Action> {
    let told = status::status(now(), seen, &decide(now(), seen, limits));
    decide(now(), &with(seen.clone(), |seen| seen.object.status = told), limits).action
}

#[test]
fn a_reboot_that_failed_keeps_its_one_shot() {
    // P20: `>=`, and only a reboot that was seen to run counts.
    for failures in [3, 4, 7] {
        let seen = failed(failures);
        assert_eq!(effect(&seen).action, Some(Action::Reboot(server())), "{failures}");
        assert_eq!(told(&seen).bootstrap_reboot_issued, None, "not used up by being tried");
        let again = after_trouble(seen);
        assert_eq!(effect(&again).action, Some(Action::Reboot(server())), "{failures}");
    }
    let rebooting = with_host(failed(3), |host| host.state = HostState::Rebooting);
    let told = told(&rebooting);
    assert_eq!(told.bootstrap_reboot_issued, Some(true));
    let back = with(failed(3), |seen| seen.object.status = told);
    assert_eq!(effect(&back).action, None, "S12: once, and then the next attempt is waited for");
    let other = with_host(failed(3), |host| host.state = HostState::Changing("busy".into()));
    assert_eq!(effect(&other).action, None, "LH22: busy is not rebooting");
}

#[test]
fn a_reboot_that_is_refused_holds_up_neither_the_next_attempt_nor_the_exchange() {
    // P20, V5: refused at 3, it is tried again at 4, and so on, until the host is exchanged.
    let due = |minutes: i64| now() + jiff::SignedDuration::from_mins(minutes);
    for failures in 3..=7 {
        let waiting = refused(Action::REBOOT, 2, 3, failed(failures));
        assert_eq!(effect(&waiting).action, Some(Action::Reboot(server())), "{failures}: not due");
        let next = effect_at(due(4), &waiting);
        assert_eq!(next.action, Some(Action::StartBootstrap(server())), "{failures}: it is due");
        assert_eq!(told(&waiting).bootstrap_reboot_issued, None, "not used up");
    }
    let exchange = effect(&refused(Action::REBOOT, 9, 90, failed(8))).action;
    assert!(matches!(exchange, Some(Action::Rename { .. })), "{exchange:?}");
}

#[test]
fn a_reboot_that_was_granted_is_not_asked_for_again_though_nobody_sees_it() {
    // S12, V5: else the exchange would never come.
    let granted = with(failed(3), |seen| seen.reboot = Reboot::Granted);
    assert_eq!(effect(&granted).action, None);
    let told = told(&granted);
    assert_eq!(told.bootstrap_reboot_issued, Some(true));
    let later = with(failed(3), |seen| seen.object.status = told);
    assert_eq!(effect(&later).action, None, "whatever this process remembers");
    let due = later.object.status.next_attempt_at.expect("another attempt");
    let next = effect_at(due, &later);
    assert_eq!(next.action, Some(Action::StartBootstrap(server())));
}

#[test]
fn a_reboot_that_nobody_answered_is_asked_for_again_only_once_it_would_be_over() {
    // S12: it may have been granted; and V5: it holds nothing up for long.
    let asked_at = |at| with(failed(3), |seen| seen.reboot = Reboot::Unanswered(at));
    let asked = asked_at(now());
    let at = |seconds| effect_at(now() + Duration::from_secs(seconds), &asked);
    let waiting = at(239);
    assert_eq!((waiting.action, waiting.reason), (None, Reason::Rebooting(3)));
    // A look that comes of a wait reads the host: else nobody would see that it is rebooting.
    let limits = Limits::default();
    assert!(
        !decide(now(), &with(asked.clone(), |s| s.object.status = told(s)), &limits)
            .may_follow_a_read_of(limits.look, &limits)
    );
    // The next attempt is due at 240, and no answer is no refusal.
    let lasting = refused("try", 9, 30, asked.clone());
    for seen in [&asked, &refused(Action::REBOOT, 4, 3, lasting)] {
        let due = effect_at(now() + Duration::from_secs(299), seen);
        assert_eq!(due.action, None, "it may be on its way");
        let over = effect_at(now() + Duration::from_mins(5), seen);
        assert_eq!(over.action, Some(Action::StartBootstrap(server())));
    }
    let later = with(asked_at(minutes_ago(5)), |seen| {
        seen.object.status.next_attempt_at = Some(now() + Duration::from_mins(1));
    });
    assert_eq!(effect(&later).action, Some(Action::Reboot(server())), "nobody saw one");
    assert_eq!(told(&asked).bootstrap_reboot_issued, None, "not used up");
}

#[test]
fn a_tier_of_zero_is_off() {
    // Seed 003, P20: each tier is opt-out on its own.
    assert_eq!(done(&failed(100), &tiers(0, 0)), None);
    assert_eq!(done(&failed(100), &tiers(3, 0)), Some(Action::Reboot(server())));
    assert!(matches!(done(&failed(100), &tiers(0, 8)), Some(Action::Rename { .. })));
}

#[test]
fn a_release_that_failed_keeps_the_server_id() {
    // P20, S2: until the host is wiped and back in the pool, it is told whose it is.
    let worn_out = after_trouble(failed(8));
    assert_eq!(told(&worn_out).server_id.as_deref(), Some(SERVER));
    let unwiped = after_trouble(with(releasing(3), |seen| {
        seen.object.status.server_id = Some(SERVER.into());
    }));
    assert_eq!(told(&unwiped).server_id.as_deref(), Some(SERVER));
}

#[test]
fn everything_of_a_host_goes_with_it() {
    // P20: a pin, a stamp or a failure of the old host must not meet the new one.
    let returned = Lease { releasing_at: Some(now()), ..ours() };
    let mut seen = bound("pool-1", returned);
    seen.object.status = ScalewayAppleSiliconMachineStatus {
        server_id: Some(SERVER.into()),
        addresses: vec![applecart_api::machine::MachineAddress {
            type_: "ExternalIP".into(),
            address: "192.0.2.7".into(),
        }],
        tart_kubelet_binary_sha: Some("abc".into()),
        tart_kubelet_update_attempts: Some(1),
        bootstrap_attempts: Some(8),
        bootstrap_reboot_issued: Some(true),
        next_attempt_at: Some(now()),
        failure_reason: Some("x".into()),
        failure_message: Some("x".into()),
        conditions: bootstrapped().object.status.conditions,
        ..ScalewayAppleSiliconMachineStatus::default()
    };
    seen.object.provider_id = prepared().object.provider_id;
    seen.credentials.stored = Some(exactly());
    let cleared = told(&seen);
    let expected = ScalewayAppleSiliconMachineStatus {
        observed_generation: Some(1),
        phase: Some("Pending".into()),
        ready: Some(false),
        since: cleared.since,
        last_reason: cleared.last_reason.clone(),
        conditions: cleared.conditions.clone(),
        ..ScalewayAppleSiliconMachineStatus::default()
    };
    assert_eq!(cleared, expected);
    assert!(cleared.conditions.iter().all(|condition| condition.type_ != "Bootstrapped"));
    assert_eq!(
        effect(&seen).action,
        Some(Action::DeleteCredentials(exactly())),
        "with the host-key pin"
    );
    seen.credentials.stored = None;
    assert_eq!(effect(&seen).action, Some(Action::SetProviderId(None)));
    seen.object.provider_id = None;
    assert_eq!(effect(&seen).action, Some(Action::ClearLease(server())));
}

#[test]
fn a_host_is_exchanged_only_before_cluster_api_was_told_of_it() {
    let provisioned = with(failed(8), |seen| {
        seen.object.status.initialization =
            Some(applecart_api::machine::Initialization { provisioned: Some(true) });
        seen.object.status.bootstrap_reboot_issued = Some(true);
    });
    assert_eq!(effect(&provisioned).action, None);
    // A move drops the status; the Machine's own provider ID stays.
    let moved = with(failed(8), |seen| {
        seen.object.machine_is_bound = true;
        seen.object.status.bootstrap_reboot_issued = Some(true);
    });
    assert_eq!(effect(&moved).action, None);
}

#[test]
fn a_host_that_takes_no_name_of_its_pool_is_set_aside_and_holds_its_machine_no_more() {
    // V5: wiped, and then locked: nobody waits for ever while good hosts idle.
    let wiped = with_lease(releasing(40), |lease| {
        (lease.wiped_at, lease.unwiped) = (Some(minutes_ago(35)), false);
    });
    let name = NameClass::releasing(&wiped.marker());
    let next = |times, minutes| effect(&refused(Action::RENAME, times, minutes, wiped.clone()));
    let in_pool = NameClass::pool("pool-", &server());
    for (times, minutes) in [(6, 29), (5, 30)] {
        assert_eq!(next(times, minutes).action, Some(rename(&name, &in_pool)));
    }
    let aside = next(6, 30);
    assert_eq!(aside.action, Some(Action::NoteQuarantined(server())));
    assert_eq!(aside.reason, Reason::Quarantined("it could not be renamed".into()));
    let noted = with_lease(wiped, |lease| lease.quarantined = true);
    assert_eq!(effect(&noted).action, Some(Action::ClearLease(server())));
    // It is not taken once more for the name that it could not lose.
    let given_up = with_lease(noted, |lease| lease.holder = LeaseHolder::Nobody);
    assert_eq!(effect(&given_up).action, None);
}

/// A host in the pool that has no Lease, and that the object names all the same.
fn half_swapped(change: impl FnOnce(&mut Host)) -> Observed {
    let seen = with_host(bound("pool-1", Lease::free()), change);
    with(seen, |seen| seen.object.status.server_id = Some(SERVER.into()))
}

#[test]
fn an_exchange_that_the_system_before_us_left_half_done_is_finished() {
    // LH1: it gave a host its pool name, and wiped it then, if it lived as long.
    let take = |used| Action::TakeLease { server: server(), version: None, used };
    let left = half_swapped(|_| {});
    assert_eq!(effect(&left).action, Some(take(true)), "nobody adopts it with our disk");
    let wiping = half_swapped(|host| host.state = HostState::Reinstalling);
    assert_eq!(effect(&wiping).action, Some(take(false)));
    let taken = with_lease(left.clone(), |lease| *lease = Lease { unwiped: true, ..ours() });
    let unbound = decide(now(), &taken, &Limits::default());
    assert_eq!(unbound.reason.word(), "HostReleased");
    assert_eq!(told(&taken).server_id, None);
    let noted = with(taken.clone(), |seen| {
        seen.object.provider_id = prepared().object.provider_id;
        seen.object.status = told(seen);
    });
    assert_eq!(effect(&noted).action, Some(Action::SetProviderId(None)));
    assert_eq!(effect(&taken).action, Some(Action::ClearLease(server())));
    // Cluster API knows the host: only its Lease is written, and no other host is looked for.
    let provisioned = |seen| with(seen, |seen: &mut Observed| seen.object.machine_is_bound = true);
    assert_eq!(effect(&provisioned(left)).action, Some(take(true)));
    assert_eq!(effect(&provisioned(taken.clone())).action, Some(Action::ClearLease(server())));
    let given_up = with_lease(provisioned(taken), |lease| lease.holder = LeaseHolder::Nobody);
    let decision = effect(&given_up);
    assert_eq!((decision.action, decision.reason.word()), (None, "NotOurs"));
}

#[test]
fn a_host_with_a_job_is_not_exchanged_under_it() {
    // LH24: an agent may be up although its bootstrap never ends well.
    let seen = with(failed(8), |seen| {
        seen.node = Some(Node { cordoned: true, ..node() });
        seen.guests = vec![Guest { busy: true, ..guest("job") }];
    });
    assert_eq!(effect(&seen).reason, Reason::WaitingForJob("Pod runners/job".into()));
}

#[test]
fn a_host_that_is_locked_before_its_first_bootstrap_is_exchanged_after_a_while() {
    // V5
    let locked = with_host(prepared(), |host| host.state = HostState::Stuck("locked".into()));
    let told = told(&locked);
    let locked = with(locked, |seen| seen.object.status = told);
    assert_eq!(effect_at(now() + Duration::from_mins(29), &locked).action, None);
    let late = effect_at(now() + Duration::from_mins(30), &locked).action;
    assert!(matches!(late, Some(Action::Rename { .. })), "{late:?}");
}

#[test]
fn a_host_in_a_state_that_does_not_pass_is_exchanged_after_a_while() {
    // V5: before its first bootstrap, and after the reboot that was to recover it.
    let states =
        [HostState::Rebooting, HostState::Reinstalling, HostState::Changing("busy".into())];
    for (state, failures) in states.iter().flat_map(|state| [(state, 0), (state, 3)]) {
        let seen = with_host(failed(failures), |host| host.state = state.clone());
        let told = told(&seen);
        let seen = with(seen, |seen| seen.object.status = told);
        let at =
            |minutes, seen: &Observed| effect_at(now() + Duration::from_mins(minutes), seen).action;
        assert_eq!(at(29, &seen), None, "{state:?}");
        let to = NameClass::releasing(&seen.marker());
        assert_eq!(at(30, &seen), Some(rename(NAME, &to)), "{state:?}, {failures}");
        let provisioned = with(seen, |seen| seen.object.machine_is_bound = true);
        assert_eq!(at(30, &provisioned), None, "{state:?}: Cluster API knows it");
    }
}

#[test]
fn a_host_that_fails_at_once_is_rebooted_once_and_exchanged_once_at_their_times() {
    // LH21: 30 reboots and 27 wipes in 20 seconds, on the system before us.
    let limits = Limits::default();
    let mut seen = prepared();
    let mut clock = now();
    let (mut attempts, mut reboots) = (vec![], vec![]);
    let minutes = |at: Timestamp| at.duration_since(now()).as_secs() / 60;
    let exchanged = loop {
        let decision = decide(clock, &seen, &limits);
        let (bootstrap, state) = match (&decision.action, decision.wake) {
            (Some(Action::WriteStatus(told) | Action::RecordBootstrap(told)), _) => {
                seen.object.status = (**told).clone();
                (Bootstrap::None, HostState::Ready)
            }
            (Some(Action::StartBootstrap(_)), _) => {
                attempts.push(minutes(clock));
                (Bootstrap::Failed("at once".into()), HostState::Ready)
            }
            (Some(Action::Reboot(_)), _) => {
                reboots.push(minutes(clock));
                (Bootstrap::None, HostState::Rebooting)
            }
            (Some(Action::Rename { .. }), _) => break minutes(clock),
            (None, Some(_)) => {
                // Events wake it every second: nothing comes of that.
                clock += Duration::from_secs(1);
                (Bootstrap::None, HostState::Ready)
            }
            other => panic!("{other:?}"),
        };
        seen.bootstrap = bootstrap;
        let recorded = decision.reason == Reason::Rebooted;
        let told = matches!(decision.action, Some(Action::WriteStatus(_)));
        // A told reboot is still to be seen; a recorded one is over.
        seen = with_host(seen, |host| {
            if host.state != HostState::Rebooting || (recorded && told) {
                host.state = state;
            }
        });
    };
    assert_eq!(attempts, [0, 1, 3, 7, 15, 25, 35, 45]);
    assert_eq!(reboots, [3]);
    assert_eq!(exchanged, 45);
}

#[test]
fn a_machine_prefers_hosts_that_failed_nobody() {
    let mut seen = candidate(|_| {}, Lease { owners_failed: 1, ..Lease::free() });
    let Bound::Unbound(Candidates::Listed(listed)) = &mut seen.bound else { panic!("a list") };
    let id: applecart_api::ids::ServerId = "6fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap();
    let mut good = Candidate::clone(&listed[0]);
    good.lease.owners_failed = 0;
    good.host.id = id.clone();
    listed.push(Arc::new(good));
    let taken = effect(&seen).action;
    assert!(matches!(taken, Some(Action::TakeLease { server, .. }) if server == id));
}
