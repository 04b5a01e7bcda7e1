//! A Mac that was bootstrapped stays as it shall be.

use super::*;

/// A Mac that is well, last looked at so many minutes ago.
fn well(minutes: i64) -> Observed {
    let at = now() - jiff::SignedDuration::from_mins(minutes);
    let mut seen = with(bootstrapped(), |seen| {
        seen.node = Some(node());
        seen.upkeep = Upkeep::Idle(Some(Looked { at, generation: Some(1) }));
    });
    seen = with_lease(seen, |lease| lease.marked_at = Some(minutes_ago(60)));
    tell(&mut seen);
    seen
}

/// A Mac that the system before us made a Node, at the first sight of a new process.
fn taken_over() -> Observed {
    let mut seen = with_lease(well(15), |lease| lease.marked_at = None);
    seen.upkeep = Upkeep::Idle(None);
    seen
}

/// What follows once a comparison ended with this.
fn compared(seen: &Observed, stamp: Option<&str>) -> Observed {
    let ended = with(seen.clone(), |seen| {
        seen.upkeep = Upkeep::Ended(Upkept::TakenOver(stamp.map(Into::into)));
    });
    with(ended.clone(), |seen| {
        match next(&ended).action {
            Some(Action::RecordBootstrap(status)) => seen.object.status = *status,
            Some(Action::StopBootstrap) => {}
            other => panic!("{other:?}"),
        }
        seen.upkeep = Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) }));
    })
}

/// Stores what the status would say, so that the effect itself comes next.
fn tell(seen: &mut Observed) {
    if let Some(Action::WriteStatus(status)) = decide(now(), seen, &Limits::default()).action {
        seen.object.status = *status;
    }
}

fn next(seen: &Observed) -> Decision {
    next_at(now(), seen)
}

/// What comes once `clusterctl move` was told to wait or to come.
fn next_at(now: Timestamp, seen: &Observed) -> Decision {
    let decision = decide(now, seen, &Limits::default());
    let Some(Action::BlockMove(block)) = decision.action else { return decision };
    decide(now, &with(seen.clone(), |s| s.object.move_is_blocked = block), &Limits::default())
}

fn recorded(seen: &Observed) -> ScalewayAppleSiliconMachineStatus {
    match next(seen).action {
        Some(Action::RecordBootstrap(status)) => *status,
        other => panic!("{other:?}"),
    }
}

fn current(stamp: &str) -> Upkeep {
    let did = "0 of 9 steps changed in 2 s".into();
    Upkeep::Ended(Upkept::Current { stamp: stamp.into(), awaits_boot: None, did })
}

/// What the condition says: status, reason, message.
fn up_to_date(status: &ScalewayAppleSiliconMachineStatus) -> (String, String, String) {
    let found = status.conditions.iter().find(|c| c.type_ == "UpToDate").expect("a condition");
    let text = |part: &Option<String>| part.clone().unwrap_or_default();
    (found.status.clone(), text(&found.reason), text(&found.message))
}

#[test]
fn a_mac_that_is_well_is_looked_at_once_an_interval_and_by_every_new_process() {
    // V17
    let decision = next(&well(14));
    assert_eq!((decision.action, decision.wake), (None, Some(Duration::from_mins(1))));
    let start = Some(Action::StartUpkeep(server()));
    assert_eq!(next(&well(15)).action, start);
    assert_eq!(next(&with(well(1), |s| s.upkeep = Upkeep::Idle(None))).action, start);
    assert_eq!(next(&with(well(1), |s| s.upkeep = Upkeep::Running)).action, None);
    assert_eq!(next(&well(15)).reason, Reason::Ready, "it stays Ready all the while");
}

#[test]
fn a_changed_spec_reaches_its_mac_at_once() {
    // P23
    let mut seen = well(1);
    seen.object.generation = Some(2);
    tell(&mut seen);
    assert_eq!(next(&seen).action, Some(Action::StartUpkeep(server())));
}

#[test]
fn a_deleted_node_brings_the_steps_back_after_a_grace() {
    let missing = |minutes| {
        let mut seen = with(well(minutes), |seen| seen.node = None);
        tell(&mut seen);
        next(&seen)
    };
    assert_eq!(missing(1).action, None);
    assert_eq!(missing(2).action, Some(Action::StartUpkeep(server())));
    assert_eq!(missing(2).reason, Reason::NodeMissing);
}

#[test]
fn nothing_is_stored_of_a_look_that_found_nothing_new() {
    let mut seen = with(well(15), |seen| seen.upkeep = current("abc"));
    let status = recorded(&seen);
    assert_eq!(status.tart_kubelet_binary_sha.as_deref(), Some("abc"));
    assert_eq!(up_to_date(&status).0, "True");
    seen.object.status = status;
    let decision = next(&seen);
    assert_eq!(decision.action, Some(Action::StopBootstrap));
    assert_eq!(decision.reason, Reason::Ready);
    seen.upkeep = current("def");
    assert_eq!(recorded(&seen).tart_kubelet_binary_sha.as_deref(), Some("def"), "S20");
}

#[test]
fn a_failed_look_leaves_the_mac_ready_and_is_repeated_with_back_off_alone() {
    // LH21, V7
    let mut seen = with(well(15), |seen| {
        seen.object.status.tart_kubelet_binary_sha = Some("old".into());
        seen.upkeep = Upkeep::Ended(Upkept::Failed("no route".into()));
    });
    let status = recorded(&seen);
    assert_eq!(up_to_date(&status), ("False".into(), "AgentRollFailed".into(), "no route".into()));
    assert_eq!((status.ready, status.tart_kubelet_update_attempts), (Some(true), Some(1)));
    assert_eq!(status.next_attempt_at, Some(now() + Duration::from_mins(1)));
    assert_eq!(status.tart_kubelet_binary_sha.as_deref(), Some("old"), "S20");
    seen.object.status = status;
    seen.upkeep = Upkeep::Idle(None);
    let decision = next(&seen);
    assert_eq!((decision.action, decision.wake), (None, Some(Duration::from_mins(1))));
    seen.object.status.next_attempt_at = Some(now());
    assert_eq!(next(&seen).action, Some(Action::StartUpkeep(server())));
    seen.upkeep = Upkeep::Ended(Upkept::Failed("no route".into()));
    assert_eq!(recorded(&seen).tart_kubelet_update_attempts, Some(2));
    seen.upkeep = current("new");
    let status = recorded(&seen);
    assert_eq!((status.tart_kubelet_update_attempts, status.next_attempt_at), (None, None));
}

#[test]
fn what_a_run_found_is_told_of_the_spec_that_it_was_for() {
    // P25
    let mut seen = with(well(15), |seen| {
        seen.object.generation = Some(2);
        seen.run_of = Some(1);
        seen.upkeep = Upkeep::Ended(Upkept::Failed("no route".into()));
    });
    let status = recorded(&seen);
    let told = status.conditions.iter().find(|c| c.type_ == "UpToDate").expect("a condition");
    assert_eq!((told.observed_generation, status.observed_generation), (Some(1), Some(2)));
    assert!(status.next_attempt_at.is_some());
    (seen.object.status, seen.run_of) = (status, None);
    seen.upkeep = Upkeep::Idle(None);
    assert_eq!(next(&seen).action, Some(Action::StartUpkeep(server())), "the new spec waits");
}

#[test]
fn a_mac_whose_updates_fail_too_often_says_so_and_is_tried_rarely_but_never_given_up() {
    // P30
    let mut seen = with(well(15), |seen| {
        seen.object.status.tart_kubelet_update_attempts = Some(4);
        seen.upkeep = Upkeep::Ended(Upkept::Failed("no route".into()));
    });
    let status = recorded(&seen);
    let word = "TartKubeletUpdateExceededRetries";
    assert_eq!(up_to_date(&status), ("False".into(), word.into(), "no route".into()));
    assert_eq!((status.ready, status.tart_kubelet_update_attempts), (Some(true), Some(5)));
    assert_eq!(status.next_attempt_at, Some(now() + Duration::from_hours(1)));
    seen.object.status.tart_kubelet_update_attempts = Some(3);
    assert_eq!(up_to_date(&recorded(&seen)).1, "AgentRollFailed");
    // P25: it is held until its hour is over, or until its spec is another.
    let looked = Looked { at: now(), generation: seen.object.generation };
    seen.object.status = status;
    seen.upkeep = Upkeep::Idle(Some(looked));
    let after = |minutes| next_at(now() + Duration::from_mins(minutes), &seen);
    assert_eq!((after(0).action, after(59).action), (None, None));
    assert_eq!(after(60).action, Some(Action::StartUpkeep(server())));
    seen.object.generation = Some(2);
    tell(&mut seen);
    assert_eq!(next(&seen).action, Some(Action::StartUpkeep(server())));
}

#[test]
fn upkeep_of_what_is_no_more_said_to_be_bootstrapped_ends_before_a_bootstrap_begins() {
    // LH25: another leader, or a person, took the condition away.
    for upkeep in [Upkeep::Running, Upkeep::Ended(Upkept::Failed("no route".into()))] {
        let seen = with(prepared(), |seen| seen.upkeep = upkeep);
        assert_eq!(effect(&seen).action, Some(Action::StopBootstrap));
    }
}

#[test]
fn what_the_system_before_us_gave_up_on_is_failed_until_it_is_well_again() {
    // P25, P29, S13
    let mut seen = with(well(15), |seen| {
        seen.object.status.failure_reason = Some("TartKubeletUpdateExceededRetries".into());
        seen.object.status.failure_message = Some("gave up after 5 attempts".into());
    });
    tell(&mut seen);
    assert_eq!(seen.object.status.phase.as_deref(), Some("Failed"));
    seen.upkeep = Upkeep::Ended(Upkept::Failed("no route".into()));
    assert_eq!(recorded(&seen).phase.as_deref(), Some("Failed"));
    seen.upkeep = current("abc");
    let status = recorded(&seen);
    assert_eq!((&status.failure_reason, &status.failure_message), (&None, &None));
    assert_eq!(status.phase.as_deref(), Some("Ready"));
}

#[test]
fn what_waits_for_vms_or_for_a_boot_is_told_and_the_stamp_stays_what_it_was() {
    // S20, S24, B23
    let seen = with(well(15), |seen| {
        seen.upkeep = Upkeep::Ended(Upkept::Postponed("Tart: VMs run".into()));
    });
    let status = recorded(&seen);
    assert_eq!(up_to_date(&status), ("False".into(), "Postponed".into(), "Tart: VMs run".into()));
    assert_eq!((status.tart_kubelet_binary_sha, status.ready), (None, Some(true)));
    let awaits_boot = Some("a boot".into());
    let boot = Upkept::Current { stamp: "abc".into(), awaits_boot, did: String::new() };
    let status = recorded(&with(well(15), |seen| seen.upkeep = Upkeep::Ended(boot)));
    assert_eq!(up_to_date(&status), ("True".into(), "UpToDate".into(), "a boot".into()));
}

#[test]
fn what_waits_for_vms_is_tried_again_soon() {
    // V7: hosts that are rarely without a VM have short moments without one.
    let ended = with(well(15), |seen| {
        seen.upkeep = Upkeep::Ended(Upkept::Postponed("Tart: VMs run".into()));
    });
    let told = |minutes| {
        let mut seen = well(minutes);
        seen.object.status = recorded(&ended);
        seen
    };
    let decision = next(&told(0));
    assert_eq!((decision.action, decision.wake), (None, Some(Limits::default().retry)));
    assert_eq!(next(&told(1)).action, Some(Action::StartUpkeep(server())));
}

#[test]
fn lost_credentials_are_made_again_and_what_cannot_be_had_is_told_without_harm() {
    // C5
    let mut seen = well(15);
    seen.identity = identity(&[Identity::ServiceAccount]);
    assert_eq!(next(&seen).action, Some(Action::CreateIdentity(Identity::Binding)));
    assert_eq!(next(&seen).reason, Reason::Ready);
    let mut seen = with_host(well(15), |host| host.has_password = false);
    seen.credentials.password = false;
    let status = recorded(&seen);
    assert_eq!(up_to_date(&status).1, "MissingSudoPassword");
    assert_eq!(status.ready, Some(true));
    seen.object.status = status;
    assert_eq!(next(&seen).action, None, "told once");
    seen.credentials.fleet_key = FleetKey::NotLooked;
    assert_eq!(next(&seen).wake, Some(Limits::default().look), "on its way");
}

#[test]
fn a_pause_and_a_deletion_end_it() {
    for upkeep in [Upkeep::Running, current("abc")] {
        let paused = with(well(15), |seen| {
            seen.upkeep = upkeep.clone();
            seen.object.paused = Some(Pause::Annotation);
        });
        let deleted = deleting(with(well(15), |seen| seen.upkeep = upkeep.clone()));
        for seen in [paused, deleted] {
            assert_eq!(effect(&seen).action, Some(Action::StopBootstrap), "{upkeep:?}");
        }
    }
}

#[test]
fn a_host_that_is_busy_with_itself_is_left_alone() {
    let busy = HostState::Changing("rebooting".into());
    let seen = with_host(well(15), |host| host.state = busy);
    assert_eq!(next(&seen).action, None);
}

#[test]
fn a_mac_that_was_taken_over_is_left_as_it_is_until_its_configuration_changes() {
    // DESIGN 4: it keeps what it has until its first update.
    let compare = Some(Action::Compare(server()));
    let first = next(&taken_over());
    assert_eq!((first.action, first.reason), (compare.clone(), Reason::Ready));
    let noted = compared(&taken_over(), Some("abc"));
    let status = &noted.object.status;
    assert_eq!(status.taken_over_stamp.as_deref(), Some("abc"));
    let (says, word, _) = up_to_date(status);
    assert_eq!((says.as_str(), word.as_str()), ("Unknown", "TakenOver"));
    assert_eq!(status.tart_kubelet_binary_sha, None, "S20: nothing was applied");
    assert_eq!(next(&noted).action, None);
    // Each interval, each new process and each new spec compares, and nobody goes to the Mac.
    let restarted = with(noted.clone(), |seen| seen.upkeep = Upkeep::Idle(None));
    assert_eq!(next(&restarted).action, compare);
    let same = compared(&restarted, Some("abc"));
    assert_eq!(same.object.status, noted.object.status, "nothing is stored");
    let untold = compared(&restarted, None);
    assert_eq!(untold.object.status, noted.object.status, "what cannot be told changes nothing");
    let changed = compared(&restarted, Some("def"));
    assert_eq!(up_to_date(&changed.object.status).1, "Outdated");
    assert_eq!(next(&changed).action, Some(Action::StartUpkeep(server())), "at once");
    let done = with(changed, |seen| seen.upkeep = current("def"));
    let status = recorded(&done);
    assert_eq!(
        (status.taken_over_stamp.as_deref(), up_to_date(&status).0.as_str()),
        (None, "True")
    );
}

#[test]
fn a_mac_that_was_taken_over_is_brought_up_to_date_when_a_person_asks() {
    let asked = |seen: Observed| with(seen, |seen| seen.object.update = true);
    let start = Some(Action::StartUpkeep(server()));
    assert_eq!(next(&asked(taken_over())).action, start);
    assert_eq!(next(&asked(compared(&taken_over(), Some("abc")))).action, start, "at once");
}

/// A Mac that is out of date for so many minutes, with a warm runner on it.
fn waiting(minutes: u64) -> Observed {
    let mut seen = with(well(1), |seen| {
        seen.upkeep = Upkeep::Ended(Upkept::Postponed("Tart waits".into()));
        seen.guests = vec![guest("idle")];
        seen.may_drain = true;
    });
    seen.object.status = recorded(&seen);
    let told = seen.object.status.conditions.iter_mut().find(|c| c.type_ == "UpToDate").unwrap();
    told.last_transition_time = Some(minutes_ago(minutes));
    seen.upkeep = Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) }));
    seen
}

/// The same, emptied since so many minutes.
fn draining(minutes: u64) -> Observed {
    let drained = Node { cordoned: true, draining: Some(minutes_ago(minutes)), ..node() };
    with(waiting(60 + minutes), |seen| seen.node = Some(drained))
}

#[test]
fn an_update_that_waits_too_long_for_warm_runners_empties_its_mac_when_it_is_its_turn() {
    // V7: they replace each other for ever.
    let drain = Some(Action::Drain { uid: "node-1".into() });
    assert_eq!(next(&waiting(59)).action, None);
    assert_eq!(next(&waiting(60)).action, drain);
    assert_eq!(next(&waiting(60)).reason, Reason::Ready, "it stays Ready all the while");
    let never = Limits { drain: Duration::ZERO, ..Limits::default() };
    assert_eq!(decide(now(), &waiting(600), &never).action, None);
    let other = Guest { runner: false, ..guest("other") };
    let changed = |change: &dyn Fn(&mut Observed)| with(waiting(60), |seen| change(seen));
    let of = |node: Node| changed(&|seen| seen.node = Some(node.clone()));
    let left_alone = [
        ("another's turn", changed(&|seen| seen.may_drain = false)),
        ("nobody is in the way", changed(&|seen| seen.guests.clear())),
        ("somebody else's VM", changed(&|seen| seen.guests.push(other.clone()))),
        ("a person cordoned it", of(Node { cordoned: true, ..node() })),
        ("tried an hour ago", of(Node { drained: Some(minutes_ago(60)), ..node() })),
        ("another's Node", of(Node { provider_id: Some("other".into()), ..node() })),
    ];
    for (why, seen) in left_alone {
        assert_ne!(next(&seen).action, drain, "{why}");
    }
    let yesterday = of(Node { drained: Some(minutes_ago(24 * 60)), ..node() });
    assert_eq!(next(&yesterday).action, drain);
}

#[test]
fn a_mac_that_is_emptied_for_an_update_loses_idle_runners_alone_and_says_so() {
    let mut seen = draining(1);
    let gone = next(&seen).action;
    assert!(matches!(gone, Some(Action::DeleteGuest { force: false, .. })), "{gone:?}");
    let job = Guest { busy: true, ..guest("job") };
    let other = Guest { runner: false, ..guest("other") };
    let going = Guest { deleting: true, ..guest("going") };
    seen.guests = vec![job, other, going];
    assert_eq!(next(&seen).action, None, "jobs, other people's Pods, and who goes already");
    seen.upkeep = Upkeep::Ended(Upkept::Postponed("Tart waits".into()));
    let status = recorded(&seen);
    let message = "Tart waits; its Node is cordoned until they have ended";
    assert_eq!(up_to_date(&status), ("False".into(), "Draining".into(), message.into()));
    seen.object.status = status;
    seen.upkeep = Upkeep::Idle(Some(Looked { at: minutes_ago(1), generation: Some(1) }));
    assert_eq!(next(&seen).action, Some(Action::StartUpkeep(server())), "every minute");
}

#[test]
fn a_mac_that_was_emptied_takes_pods_again_once_its_update_came_or_not() {
    let uncordon = |came| Some(Action::Uncordon { uid: "node-1".into(), came });
    let failed = || Upkeep::Ended(Upkept::Failed("no route".into()));
    let last = Limits::default().tiers.max_updates;
    let cases = [
        (current("abc"), 0, uncordon(true)),
        (failed(), 0, None),
        (failed(), last - 1, uncordon(false)),
    ];
    for (ended, failures, expected) in cases {
        let mut seen = with(draining(1), |seen| {
            seen.guests.clear();
            seen.upkeep = ended;
            seen.object.status.tart_kubelet_update_attempts = i32::try_from(failures).ok();
        });
        seen.object.status = recorded(&seen);
        seen.upkeep = Upkeep::Idle(Some(Looked { at: now(), generation: Some(1) }));
        assert_eq!(next(&seen).action, expected, "after {failures} failures");
        if expected.is_none() {
            assert_eq!(next(&seen).wake, Some(Duration::from_mins(1)), "tried again soon");
        }
        seen.node = Some(Node { cordoned: true, ..node() });
        assert_eq!(next(&seen).action, None, "what a person cordoned stays so");
    }
    assert_eq!(next(&draining(60)).action, uncordon(false), "it takes too long");
    let let_go = Node { draining: Some(minutes_ago(1)), ..node() };
    let seen = with(draining(1), |seen| seen.node = Some(let_go));
    assert_eq!(next(&seen).action, uncordon(false), "a person let it go: nobody argues");
}

#[test]
fn a_mac_works_on_though_nobody_may_cordon_its_node() {
    let refused = Trouble {
        tried: Action::DRAIN[0],
        message: "a policy forbids it".into(),
        at: now(),
        retry_at: now() + Duration::from_mins(1),
        too_early: false,
        streaks: vec![],
    };
    let seen = with(waiting(60), |seen| seen.trouble = Some(refused));
    assert_eq!((next(&seen).action, next(&seen).reason), (None, Reason::Ready));
    let again = decide(now() + Duration::from_mins(1), &seen, &Limits::default()).action;
    assert_eq!(again, Some(Action::Drain { uid: "node-1".into() }));
}

#[test]
fn a_lease_that_does_not_say_who_has_its_host_is_told_where_nothing_else_is_to_be_done() {
    // C1, V3: of a host that was claimed before there were such notes, and of a spec that changed.
    let noted = Some(Action::NoteOwner(server()));
    let well = with(bootstrapped(), |seen| seen.node = Some(node()));
    let of = |note: OwnerNote| {
        let mut seen = well.clone();
        if let Bound::To { lease, .. } = &mut seen.bound {
            lease.note = note;
        }
        effect(&seen).action
    };
    assert_eq!(of(note()), None);
    assert_eq!(of(OwnerNote::default()), noted);
    assert_eq!(of(OwnerNote { pool: None, ..note() }), noted);
    assert_eq!(of(OwnerNote { builder: true, ..note() }), noted);
    let lost = with(well, |seen| {
        if let Bound::To { lease, host: HostRead::Seen(host), .. } = &mut seen.bound {
            (lease.note, host.name) = (OwnerNote::default(), "mine".into());
        }
    });
    assert_eq!(effect(&lost).action, None, "a host that is not ours is not noted as ours");
}
