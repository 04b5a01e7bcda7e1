//! G6: every state of a host, and what must hold before each effect.

use super::*;
use crate::machine::Guest;

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

/// What there is besides a host, its Lease and its owners.
#[derive(Clone, Default)]
struct Beside {
    job: Option<Job>,
    mac: Option<Mac>,
    asked: Option<Asked>,
    asking: bool,
}

/// A job on whatever is not about to be wiped; on what is, every Node, and every ask so far.
fn every_beside(read: &HostRead) -> Vec<Beside> {
    let is_ours = |name: &str| [releasing(CLUSTER), of_sweep(1)].contains(&name.to_owned());
    let HostRead::Seen(host) = read else { return vec![Beside::default()] };
    if !(is_ours(&host.name) && host.state == HostState::Ready) {
        return jobs().map(|job| Beside { job, ..Beside::default() }).into();
    }
    let asked = |times, minute| Some(Asked { times, at: at(minute) });
    let of = |mac: Option<Mac>, (asked, asking)| Beside { job: None, mac, asked, asking };
    let asks = [(asked(1, 0), false), (asked(5, -5), false), (asked(6, -5), false)];
    let asking = (asked(6, 0), true);
    let each = |mac: Option<Mac>| [of(mac.clone(), (None, false)), of(mac, asking)];
    let macs = every_mac().into_iter().flat_map(each);
    macs.chain(asks.map(|asked| of(None, asked))).collect()
}

/// No Node, and each that there may be.
fn every_mac() -> Vec<Option<Mac>> {
    let of = |(cordoned, silent_since, guests): (bool, Option<Timestamp>, Vec<Guest>)| {
        Some(Mac { node: wipe::node(cordoned, silent_since), ..wipe::mac(guests) })
    };
    let (idle, busy) = (wipe::guest(false, false), wipe::guest(true, false));
    let leaving = wipe::guest(false, true);
    let nodes = [
        (false, None, vec![]),
        (false, None, vec![idle.clone()]),
        (true, None, vec![]),
        (true, None, vec![leaving, idle]),
        (true, None, vec![busy.clone()]),
        (true, Some(at(-6)), vec![busy]),
    ];
    [None].into_iter().chain(nodes.map(of)).collect()
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

/// LH24: nothing can begin to run on it, and no job does, as far as anybody can tell.
fn is_empty(seen: &Seen) -> bool {
    let Some(Mac { node, guests, .. }) = &seen.mac else { return true };
    let idle = |guest: &Guest| guest.runner && !guest.busy && !guest.deleting;
    let works = guests.iter().any(|guest| guest.busy || idle(guest));
    node.silent_since.is_some() || (node.cordoned && !works)
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
        Action::Cordon { .. } | Action::DeleteGuest(_) | Action::NoteAsked { .. } => {
            let ready = host.is_some_and(|host| {
                host.state == HostState::Ready && seen.class(host) == Class::Releasing
            });
            assert!(ours && !owned && ready, "S4: {}", what());
            let goes = |guest: &Guest| !guest.busy && !guest.deleting;
            assert!(!matches!(action, Action::DeleteGuest(guest) if !goes(guest)), "{}", what());
            let asks = matches!(action, Action::NoteAsked { .. });
            assert!(!asks || is_empty(seen), "LH24: {}", what());
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
            let asks = matches!(action, Action::RequestWipe { .. });
            assert!(!asks || (seen.asking && is_empty(seen)), "S24: {}", what());
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
                    let in_vain = lease.asked.is_some_and(|asked| asked.times >= 6);
                    let failed = wiped && lease.lease.owners_failed >= 3;
                    assert!(begun && (failed || (!wiped && in_vain)), "{}", what());
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
        let beside = every_beside(read);
        for (lease, owners) in leases.iter().flat_map(|l| owners.iter().map(move |o| (l, o))) {
            for (policy, beside) in
                policies().iter().flat_map(|p| beside.iter().map(move |b| (p, b)))
            {
                let owners = Owners::new(owners.clone());
                let Beside { job, mac, asked, asking } = beside.clone();
                let seen = Seen {
                    server: id(1),
                    names: Names::new(&CLUSTER.parse().unwrap(), policy, &owners, [lease]),
                    host: read.clone(),
                    lease: HostLease { asked, ..lease.clone() },
                    owners,
                    job,
                    mac,
                    asking,
                    images: images.clone(),
                };
                for task in &tasks {
                    let Some(action) = decide(at(0), task, &seen, policy).action else { continue };
                    guard(task, &seen, policy, &action);
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
