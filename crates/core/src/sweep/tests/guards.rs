//! G6: every state of a host, and what must hold before each effect.

use super::*;

/// What an operator allows: all of it, no return of orphans, no pool.
fn policies() -> [Policy; 3] {
    let report_only = Policy { claim_prefix: None, ..policy() };
    [policy(), report_only, Policy { pool_prefix: None, ..policy() }]
}

/// Nobody works there, somebody does, and somebody did on a Mac of which nobody hears any more.
fn jobs() -> [Option<Job>; 3] {
    let job = |silent_since| Some(Job { pod: "runners/job".into(), silent_since });
    [None, job(None), job(Some(at(-6)))]
}

/// What a host may be installed with. Nobody looks before it can be.
fn every_image(read: &HostRead) -> Vec<Images> {
    let ready = matches!(read, HostRead::Seen(host) if host.state == HostState::Ready);
    if !ready {
        return vec![Images::NotRead];
    }
    let image = |id: &str, family: &str| Image {
        id: id.into(),
        name: format!("{family}-26.9"),
        family: family.into(),
        version: "26.9".into(),
        beta: false,
    };
    let fitting = image("fitting", "macos-tahoe");
    let other = image("other", "macos-sequoia");
    vec![
        Images::NotRead,
        Images::Failed("503".into()),
        Images::Listed(vec![]),
        Images::Listed(vec![other, fitting]),
    ]
}

/// P32: it fits the fleet that the host came from, if any of those that were read does.
fn may_install(images: &Images, image: Option<&str>) -> bool {
    let fits = |image: &Image| image.family == "macos-tahoe";
    match images {
        Images::Listed(listed) => listed.iter().find(|i| fits(i)).map(|i| i.id.as_str()) == image,
        Images::NotRead | Images::Failed(_) => false,
    }
}

/// Every host as it may be read: its name, what it does, or that it is not there.
fn every_read() -> Vec<HostRead> {
    let names = ["pool-1", "fleet-x", "someones", "tuist-quarantine-1", "tuist-claim-pending-x"];
    let markers = [claiming(CLUSTER), releasing(CLUSTER), of_sweep(1), claiming("deadbeef")];
    let states = [
        HostState::Ready,
        HostState::Reinstalling,
        HostState::Rebooting,
        HostState::Changing("busy".into()),
        HostState::Stuck("error".into()),
    ];
    let names = names.map(str::to_owned).into_iter().chain(markers);
    let each = |name: String| {
        let of = move |state: &HostState, retiring| {
            HostRead::Seen(Host { state: state.clone(), retiring, ..host(1, &name) })
        };
        states.iter().flat_map(move |s| [of(s, false), of(s, true)]).collect::<Vec<_>>()
    };
    let seen = names.flat_map(each);
    seen.chain([HostRead::Gone, HostRead::Failed("503".into())]).collect()
}

/// Every Lease that a host may have.
fn every_lease() -> Vec<HostLease> {
    let holders = [
        LeaseHolder::Nobody,
        LeaseHolder::Us,
        LeaseHolder::Other("macs/a/gone".into()),
        LeaseHolder::Other(format!("macs/fleet-x/{UID}")),
    ];
    let of = |(bits, holder): (u32, &LeaseHolder)| {
        let mut lease = held(holder.clone());
        // One that nobody ever held does not exist.
        lease.lease.version = (bits > 0).then(|| "7".into());
        lease.lease.wiped_at = (bits & 1 > 0).then(|| at(0));
        lease.lease.unwiped = bits & 2 > 0;
        lease.moved = bits & 4 > 0;
        lease.quarantined = bits & 8 > 0;
        lease.lease.owners_failed = if bits & 16 > 0 { 3 } else { 0 };
        if bits & 32 > 0 {
            lease.lease.note = note("macs/someones/gone", Some("other-"));
        }
        lease.lease.note.builder = bits & 64 > 0;
        lease
    };
    (0..128).flat_map(|bits| holders.iter().map(move |holder| (bits, holder))).map(of).collect()
}

/// P1: its holder lives, with another host, and this one does not bear its name or its marker.
fn is_spare(seen: &Seen, host: Option<&Host>) -> bool {
    let fleet_x = |holder: &str| holder == format!("macs/fleet-x/{UID}");
    let held = seen.lease.holder().is_some_and(fleet_x);
    let has_other = seen.owners.by_server(&id(2)).any(|owner| owner.uid == UID);
    let names = ["fleet-x".to_owned(), claiming(CLUSTER), releasing(CLUSTER)];
    let unread = matches!(seen.host, HostRead::Failed(_));
    held && has_other && !unread && !host.is_some_and(|host| names.contains(&host.name))
}

/// S4, LH1, LH16: what must hold before an effect of the sweep.
fn guard(task: &Task, seen: &Seen, policy: &Policy, action: &Action) {
    let lease = &seen.lease;
    let what = || format!("{action:?} for {task:?} in {seen:#?}");
    let ours = lease.lease.holder == LeaseHolder::Us;
    let held_by_other = lease.holder().is_some();
    let holder_lives = lease.holder().is_some_and(|holder| seen.owners.holder_lives(holder));
    let host = match &seen.host {
        HostRead::Seen(host) => Some(host),
        HostRead::Gone | HostRead::Failed(_) => None,
    };
    let owned = host.is_some_and(|host| seen.owner_of(host).is_some());
    match action {
        Action::FreeLease => {
            let dead = matches!(task, Task::FreeLease(_)) && held_by_other && !holder_lives;
            let spare = matches!(task, Task::SpareLease { .. }) && is_spare(seen, host);
            let may = (ours && !held_by_other) || ((dead || spare) && !lease.moved);
            assert!(may, "{}", what());
        }
        Action::DeleteLease => {
            assert!(matches!(task, Task::DropLease { .. }) && !holder_lives, "{}", what());
            assert!(seen.owners.by_server(&seen.server).next().is_none(), "{}", what());
            let elsewhere = host.is_some_and(|host| seen.is_pool_name(&host.name) && lease.moved);
            assert!(seen.host == HostRead::Gone || elsewhere, "{}", what());
        }
        Action::TakeLease { used } => {
            assert!(!held_by_other && !owned && host.is_some(), "{}", what());
            assert!(
                *used || (lease.lease.wiped_at.is_some() && !lease.lease.unwiped),
                "{}",
                what()
            );
        }
        Action::NoteWiped => {
            let wiping = host.is_some_and(|host| host.state == HostState::Reinstalling);
            // By hand: of a host that waits for that, and is nobody's.
            let waits = lease.lease.unwiped && !held_by_other && !owned;
            assert!((ours || waits) && wiping, "LH22: {}", what());
        }
        Action::Rename { .. } | Action::RequestWipe { .. } => {
            let host = host.expect("a host that is changed was seen");
            assert!(ours && !owned && !host.retiring && !lease.quarantined, "S4: {}", what());
            assert!(seen.pool_prefix(policy).is_some(), "{}", what());
            let begun = seen.class(host) == Class::Releasing;
            let alive = seen.job.as_ref().is_some_and(|job| job.silent_since.is_none());
            assert!(begun || !lease.moved, "{}", what());
            let work_on = matches!(action, Action::Rename { .. }) && begun;
            assert!(work_on || !alive, "S24: {}", what());
            let orphan = seen.class(host) == Class::Orphan;
            let named = policy.claim_prefix.is_some() && host.name != "someones";
            assert!(!orphan || named, "V3: {}", what());
            assert!(!orphan || !lease.lease.note.builder, "LH24: {}", what());
            let wiped = lease.lease.wiped_at.is_some() && !lease.lease.unwiped;
            match action {
                Action::Rename { to } if seen.is_pool_name(to) => {
                    let own = lease.lease.note.pool.as_deref().unwrap_or("pool-");
                    assert!(to.starts_with(own), "{}", what());
                    assert!(begun && wiped && lease.lease.owners_failed < 3, "LH1: {}", what());
                }
                Action::Rename { to } if to.starts_with("tuist-quarantine-") => {
                    assert!(begun && wiped && lease.lease.owners_failed >= 3, "{}", what());
                }
                Action::Rename { .. } => assert!(!begun, "{}", what()),
                Action::RequestWipe { image } => {
                    assert!(may_install(&seen.images, image.as_deref()), "P32: {}", what());
                    assert!(begun && !wiped && host.state == HostState::Ready, "{}", what());
                }
                _ => unreachable!("{}", what()),
            }
        }
    }
}

/// What is due, in a word.
fn kind(task: &Task) -> &'static str {
    match task {
        Task::Host { .. } => "host",
        Task::FreeLease(_) => "free",
        Task::SpareLease { .. } => "spare",
        Task::DropLease { .. } => "drop",
    }
}

#[test]
fn in_every_state_that_allows_it_the_guard_of_a_destructive_effect_holds() {
    // G6: the whole abstract state space of one host, for each thing that may be due.
    let fleet_x = |server| vec![Owner { uid: UID.into(), ..owner("fleet-x", server) }];
    let owners = [vec![], fleet_x(None), fleet_x(Some(2)), vec![owner("other", Some(1))]];
    let tasks = [
        Task::Host { zone: zone(), server: id(1) },
        Task::FreeLease(id(1)),
        Task::SpareLease { zone: zone(), server: id(1), missing: false },
        Task::SpareLease { zone: zone(), server: id(1), missing: true },
        Task::DropLease { zone: zone(), server: id(1) },
    ];
    let mut reached = BTreeSet::new();
    let leases = every_lease();
    for (read, images) in
        every_read().iter().flat_map(|r| every_image(r).into_iter().map(move |i| (r, i)))
    {
        for (lease, owners) in leases.iter().flat_map(|l| owners.iter().map(move |o| (l, o))) {
            for (policy, job) in policies().iter().flat_map(|p| jobs().map(|job| (p.clone(), job)))
            {
                let owners = Owners::new(owners.clone());
                let seen = Seen {
                    server: id(1),
                    names: Names::new(&CLUSTER.parse().unwrap(), &policy, &owners, [lease]),
                    host: read.clone(),
                    lease: lease.clone(),
                    owners,
                    job,
                    images: images.clone(),
                };
                for task in &tasks {
                    let Some(action) = decide(at(0), task, &seen, &policy).action else { continue };
                    guard(task, &seen, &policy, &action);
                    reached.insert((kind(task), action.word()));
                }
            }
        }
    }
    let spare = ("spare", Action::FreeLease.word());
    assert!(reached.contains(&spare), "{reached:?}");
    let reached: BTreeSet<&str> = reached.into_iter().map(|(_, word)| word).collect();
    let all = Action::WORDS.into_iter().filter(|word| *word != Action::CLEAN_UP);
    assert_eq!(reached, all.collect(), "each effect is reached, and so its guard asked");
}
