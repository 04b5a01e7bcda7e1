//! Tables: every class, every guard, every step of a return.

mod guards;
mod leftovers;
mod turns;
mod wipe;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::*;
use crate::machine::{Host, HostRead, HostState, Image, Images, Lease, LeaseHolder, OwnerNote};

const CLUSTER: &str = "0badcafe";
const UID: &str = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
const INTERVAL: Duration = Duration::from_mins(15);

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + 60 * minute).unwrap()
}

fn id(n: u32) -> ServerId {
    format!("{n:08}-0000-4000-8000-000000000000").parse().unwrap()
}

fn zone() -> Zone {
    "fr-par-1".parse().unwrap()
}

fn host(n: u32, name: &str) -> Host {
    Host {
        id: id(n),
        name: name.to_owned(),
        state: HostState::Ready,
        delivered: true,
        retiring: false,
        server_type: "M2-L".into(),
        os: Some(("macos-tahoe-26.0".into(), "macos-tahoe".into())),
        address: None,
        has_password: true,
        changed_at: None,
    }
}

fn owner(name: &str, server: Option<u32>) -> Owner {
    Owner {
        namespace: "macs".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        servers: server.map(id).into_iter().collect(),
        pool_prefix: None,
    }
}

fn policy() -> Policy {
    Policy {
        interval: INTERVAL,
        pool_prefix: Some("pool-".into()),
        claim_prefix: Some("fleet-".into()),
        max_per_cycle: 3,
        max_share_percent: 50,
        quarantine_after: 3,
        patience: Duration::from_mins(30),
    }
}

fn inventory(hosts: Vec<Host>, owners: Vec<Owner>) -> Inventory {
    let listed = hosts.into_iter().map(|host| Listed { host, changed_at: None }).collect();
    Inventory {
        cluster: CLUSTER.parse().unwrap(),
        zones: BTreeMap::from([(zone(), ZoneRead::Listed(listed))]),
        leases: BTreeMap::new(),
        belongings: BTreeMap::new(),
        owners: Owners::new(owners),
    }
}

fn held(holder: LeaseHolder) -> HostLease {
    let lease = Lease { holder, version: Some("1".into()), ..Lease::free() };
    HostLease { lease, ..HostLease::free() }
}

fn note(owner: &str, pool: Option<&str>) -> OwnerNote {
    OwnerNote { owner: Some(owner.into()), pool: pool.map(str::to_owned), builder: false }
}

/// Of a host that this one had, and nobody wiped since.
fn left_by(owner: &str) -> HostLease {
    let mut lease = held(LeaseHolder::Nobody);
    lease.lease.unwiped = true;
    lease.lease.note = note(owner, None);
    lease
}

fn claiming(cluster: &str) -> String {
    format!("tuist-claim-pending-{cluster}-{}", UID.replace('-', ""))
}

fn releasing(cluster: &str) -> String {
    format!("tuist-release-pending-{cluster}-{}", UID.replace('-', ""))
}

/// What a second look, a full interval after the first, makes due.
fn second_look(all: &Inventory, policy: &Policy) -> Survey {
    let first = survey(at(0), all, policy, &Memory::default());
    survey(at(15), all, policy, &first.memory)
}

fn servers(tasks: &[Task]) -> Vec<ServerId> {
    tasks.iter().map(|task| task.server().clone()).collect()
}

fn words(survey: &Survey) -> Vec<&'static str> {
    survey.refusals.iter().map(|(_, reason)| reason.word()).collect()
}

#[test]
fn every_host_is_in_the_class_that_its_name_and_its_owner_say() {
    let owned = Owners::new(vec![owner("fleet-a", None), owner("fleet-b", Some(7))]);
    let names = Names::new(&CLUSTER.parse().unwrap(), &policy(), &owned, []);
    let class = |host: &Host| classify(host, owned.of(host, None).is_some(), None, &names);
    for (host, expected) in [
        (host(1, "pool-1"), Class::Pool),
        (host(1, &claiming(CLUSTER)), Class::Claiming),
        (host(1, &releasing(CLUSTER)), Class::Releasing),
        (host(1, "fleet-a"), Class::Claimed),
        (host(7, "renamed-by-hand"), Class::Claimed),
        (host(1, "fleet-gone"), Class::Orphan),
        (host(1, &format!("tuist-claim-pending-{UID}")), Class::Orphan), // LH13
        (Host { retiring: true, ..host(1, "pool-1") }, Class::Retiring),
        (Host { retiring: true, ..host(1, "fleet-gone") }, Class::Retiring),
        (host(1, "tuist-quarantine-1"), Class::Quarantined),
        (host(1, "apple-silicon-romantic-x"), Class::Foreign),
        (host(1, &claiming("deadbeef")), Class::Foreign),
        (host(1, &releasing("deadbeef")), Class::Foreign),
        (host(1, ""), Class::Foreign),
    ] {
        assert_eq!(class(&host), expected, "{}", host.name);
    }
    let mut left = left_by("macs/a-fleet-gone/uid");
    let by_lease =
        |name: &str, lease: &HostLease| classify(&host(1, name), false, Some(lease), &names);
    assert_eq!(by_lease("a-fleet-gone", &left), Class::Orphan);
    assert_eq!(by_lease("renamed-by-hand", &left), Class::Foreign);
    left.lease.unwiped = false;
    assert_eq!(by_lease("a-fleet-gone", &left), Class::Foreign, "it was returned since");
    let set_aside = HostLease { quarantined: true, ..HostLease::free() };
    let quarantined = classify(&host(1, "fleet-gone"), false, Some(&set_aside), &names);
    assert_eq!(quarantined, Class::Quarantined);
}

#[test]
fn the_pools_of_live_objects_are_pools_and_empty_prefixes_are_none() {
    // S6
    let other = Owner { pool_prefix: Some("other-".into()), ..owner("x", None) };
    let none = Owner { pool_prefix: Some(String::new()), ..owner("y", None) };
    let owned = Owners::new(vec![other, none]);
    let empty = Policy { claim_prefix: Some(String::new()), ..policy() };
    let names = Names::new(&CLUSTER.parse().unwrap(), &empty, &owned, []);
    assert_eq!(classify(&host(1, "other-1"), false, None, &names), Class::Pool);
    assert_eq!(classify(&host(1, "anything"), false, None, &names), Class::Foreign);
}

#[test]
fn the_pool_of_objects_that_are_all_gone_is_a_pool_all_the_same() {
    // S6: its hosts are nobody's orphans, though they bear names that orphans may have.
    let wide = Policy { claim_prefix: Some("fleet".into()), ..policy() };
    let mut all = inventory(vec![host(1, "fleet2-pool-1")], vec![owner("fleet-a", None)]);
    assert_eq!(servers(&second_look(&all, &wide).tasks), [id(1)]);
    let mut returned = HostLease::free();
    returned.lease.note = note("macs/x/gone", Some("fleet2-pool-"));
    all.leases.insert(id(7), returned);
    assert_eq!(second_look(&all, &wide).tasks, []);
}

#[test]
fn only_the_stray_of_an_inventory_is_due_and_only_when_seen_twice() {
    // P21
    let hosts = vec![
        host(1, "pool-1"),
        host(2, &claiming("deadbeef")),
        host(3, "fleet-by-name"),
        host(4, "whatever-by-id"),
        host(5, "someone-elses"),
        host(6, "fleet-stray"),
    ];
    let all = inventory(hosts, vec![owner("fleet-by-name", None), owner("fleet-by-id", Some(4))]);
    let first = survey(at(0), &all, &policy(), &Memory::default());
    assert_eq!((first.tasks.len(), words(&first)), (0, vec!["first_sighting"]));
    let early = survey(at(14), &all, &policy(), &first.memory);
    assert_eq!((early.tasks.len(), words(&early)), (0, vec!["first_sighting"]));
    let second = survey(at(15), &all, &policy(), &early.memory);
    assert_eq!(servers(&second.tasks), [id(6)]);
    let report = &second.report.zones[&zone()];
    let counts: Vec<usize> = report.classes.values().map(|class| class.count).collect();
    assert_eq!(counts, [1, 0, 2, 0, 1, 0, 0, 2], "{report:?}");
    assert_eq!(counts.iter().sum::<usize>(), 6, "C1: each host is counted once");
    let unowned: Vec<&str> = report.unowned.iter().map(|host| host.name.as_str()).collect();
    assert_eq!(unowned, ["someone-elses", "fleet-stray"]);
}

#[test]
fn strays_are_counted_as_the_system_before_us_counted_them() {
    let retiring = |n, name: &str| Host { retiring: true, ..host(n, name) };
    let hosts = vec![
        host(1, "pool-1"),
        retiring(2, "pool-2"),
        host(3, &claiming("deadbeef")),
        host(4, &claiming(CLUSTER)),
        host(5, &format!("tuist-claim-pending-{UID}")),
        host(6, &releasing("deadbeef")),
        host(7, &of_sweep(7)),
        host(8, "tuist-quarantine-1"),
        retiring(9, "someone-elses"),
        host(10, "fleet-owned"),
    ];
    let all = inventory(hosts, vec![owner("fleet-owned", None)]);
    let survey = survey(at(0), &all, &policy(), &Memory::default());
    let unowned = &survey.report.zones[&zone()].unowned;
    let strays: Vec<&str> = unowned.iter().map(|host| host.name.as_str()).collect();
    let (theirs, ours) = (releasing("deadbeef"), of_sweep(7));
    assert_eq!(strays, [theirs.as_str(), &ours, "tuist-quarantine-1", "someone-elses"]);
}

#[test]
fn a_stray_under_another_name_is_another_sighting() {
    let owners = vec![owner("fleet-a", None)];
    let before = inventory(vec![host(1, "fleet-x")], owners.clone());
    let first = survey(at(0), &before, &policy(), &Memory::default());
    let renamed = inventory(vec![host(1, "fleet-y")], owners);
    let second = survey(at(15), &renamed, &policy(), &first.memory);
    assert_eq!((second.tasks.len(), words(&second)), (0, vec!["first_sighting"]));
}

#[test]
fn without_a_claim_prefix_orphans_are_only_reported() {
    let old = format!("tuist-claim-pending-{UID}");
    let all = inventory(vec![host(1, "fleet-x"), host(2, &old)], vec![owner("fleet-a", None)]);
    let report_only = Policy { claim_prefix: None, ..policy() };
    let survey = second_look(&all, &report_only);
    assert_eq!((survey.tasks.len(), words(&survey)), (0, vec!["report_only"]));
    assert_eq!(survey.report.zones[&zone()].unowned.len(), 1, "claiming names are nobody's");
}

#[test]
fn a_host_that_bears_the_name_of_its_last_owner_is_an_orphan_whatever_the_flags_say() {
    // C1, V3: told as one, and returned only under the prefix that an operator named.
    let left = left_by("macs/x/gone");
    let mut all = inventory(vec![host(1, "x")], vec![owner("fleet-a", None)]);
    all.leases.insert(id(1), left.clone());
    for policy in [policy(), Policy { claim_prefix: None, ..policy() }] {
        let survey = second_look(&all, &policy);
        assert_eq!((survey.tasks.len(), words(&survey)), (0, vec!["report_only"]));
        assert_eq!(survey.report.zones[&zone()].classes[&Class::Orphan].count, 1);
        let decision = decided(&seen(host(1, "x"), left.clone(), vec![]));
        assert_eq!((decision.action, decision.reason.word()), (None, "report_only"));
    }
}

#[test]
fn a_namesake_that_came_later_does_not_own_the_host_that_another_left() {
    // LH14, C1: else the one waits for its name, and nobody returns the other.
    let of = |left: HostLease, server| {
        let mut all = inventory(vec![host(1, "fleet-x")], vec![owner("fleet-x", server)]);
        all.owners = Owners::new(vec![owner("fleet-x", server), owner("fleet-lives", Some(7))]);
        all.leases.insert(id(1), left.clone());
        let due = servers(&second_look(&all, &policy()).tasks);
        let owners = all.owners.all().cloned().collect();
        let action = decided(&seen(host(1, "fleet-x"), left, owners)).action;
        assert_eq!(action.is_some(), !due.is_empty(), "{server:?}");
        due
    };
    let gone = || left_by("macs/fleet-x/gone");
    assert_eq!(of(gone(), None), [id(1)]);
    assert_eq!(of(gone(), Some(1)), [], "it names the host");
    assert_eq!(of(left_by("macs/fleet-x/uid-of-fleet-x"), None), [], "it had the host itself");
    assert_eq!(of(left_by("macs/x/uid-of-fleet-lives"), None), [], "whoever had it lives");
    let mut wiped = gone();
    wiped.lease.unwiped = false;
    assert_eq!(of(wiped, None), [], "it was wiped since");
    assert_eq!(of(HostLease::free(), None), [], "of a Lease that says nothing");
}

#[test]
fn orphans_that_stay_where_they_are_hold_up_no_others() {
    // V3: those of a fleet that was moved or detached, outside of the prefix, are no accident.
    let mut hosts: Vec<Host> = (1..=9).map(|n| host(n, &format!("theirs-{n}"))).collect();
    hosts.push(host(10, "fleet-x"));
    let mut all = inventory(hosts, vec![owner("fleet-a", None)]);
    for n in 1..=9 {
        let left = left_by(&format!("macs/theirs-{n}/gone"));
        all.leases.insert(id(n), HostLease { moved: n < 5, ..left });
    }
    assert_eq!(servers(&second_look(&all, &policy()).tasks), [id(10)]);
}

#[test]
fn a_builder_is_only_reported() {
    // LH24: its jobs are not in Kubernetes, and who could ask GitHub is gone.
    let mut left = left_by("macs/fleet-x/gone");
    left.lease.note.builder = true;
    let mut all = inventory(vec![host(1, "fleet-x")], vec![owner("fleet-a", None)]);
    all.leases.insert(id(1), left.clone());
    let survey = second_look(&all, &policy());
    assert_eq!((survey.tasks.len(), words(&survey)), (0, vec!["builder"]));
    let decision = decided(&seen(host(1, "fleet-x"), left, vec![]));
    assert_eq!((decision.action, decision.reason.word()), (None, "builder"));
}

#[test]
fn when_objects_are_missing_no_host_is_believed_to_be_an_orphan() {
    // S7, LH15
    let hosts = |n: u32| (1..=n).map(|n| host(n, &format!("fleet-{n}"))).collect::<Vec<_>>();
    let nothing = second_look(&inventory(hosts(2), vec![]), &policy());
    assert_eq!((nothing.tasks.len(), words(&nothing)), (0, vec!["nothing_owned"; 2]));
    let few = second_look(&inventory(hosts(3), vec![owner("fleet-1", None)]), &policy());
    assert_eq!((few.tasks.len(), words(&few)), (0, vec!["too_many_orphans"; 2]));
    let wide = Policy { max_share_percent: 100, ..policy() };
    let trusted = second_look(&inventory(hosts(3), vec![owner("fleet-1", None)]), &wide);
    assert_eq!(servers(&trusted.tasks), [id(2), id(3)]);
}

#[test]
fn when_many_objects_went_at_once_no_host_is_believed_to_be_an_orphan_for_a_while() {
    // S7, LH15: of a hundred objects 45 are lost, and their hosts are fewer than half of all.
    let hosts = || (1..=100).map(|n| host(n, &format!("fleet-{n}"))).collect::<Vec<_>>();
    let of = |n: u32| (1..=n).map(|n| owner(&format!("fleet-{n}"), None)).collect::<Vec<_>>();
    let before = survey(at(0), &inventory(hosts(), of(100)), &policy(), &Memory::default());
    let left = inventory(hosts(), of(55));
    let mut memory = before.memory;
    for cycle in 1..=7 {
        let look = survey(at(15 * cycle), &left, &policy(), &memory);
        assert_eq!(look.tasks, [], "cycle {cycle}");
        memory = look.memory;
    }
    let look = survey(at(15 * 7), &left, &policy(), &memory);
    assert_eq!(words(&look), vec!["objects_vanished"; 45]);
    let long_after = survey(at(15 * 8), &left, &policy(), &look.memory);
    assert_eq!(long_after.tasks.len(), 3, "nobody missed them");
    // A few may go at any time.
    let first = survey(at(15), &inventory(hosts(), of(97)), &policy(), &Memory::default());
    let few = survey(at(30), &inventory(hosts(), of(97)), &policy(), &first.memory);
    assert_eq!(servers(&few.tasks), [id(98), id(99), id(100)]);
}

#[test]
fn a_marker_whose_object_has_another_host_is_a_stray() {
    // V2: a rename that landed after its Machine had taken another host.
    let of = |server| Owner { uid: UID.into(), ..owner("fleet-a", server) };
    for name in [releasing(CLUSTER), claiming(CLUSTER)] {
        let due = |server| {
            let all = inventory(vec![host(1, &name), host(2, "fleet-a")], vec![of(server)]);
            servers(&second_look(&all, &policy()).tasks)
        };
        assert_eq!(due(Some(2)), [id(1)], "{name}");
        assert_eq!(due(Some(1)), [], "it is on its way: {name}");
        assert_eq!(due(None), [], "it may be: {name}");
    }
}

#[test]
fn a_cycle_begins_only_so_many_and_what_is_under_way_comes_first() {
    let mut hosts: Vec<Host> = (1..=4).map(|n| host(n, &format!("fleet-{n}"))).collect();
    hosts.push(host(9, &releasing(CLUSTER)));
    let owners = (10..20).map(|n| owner(&format!("fleet-{n}"), None)).collect();
    let mut all = inventory(hosts, owners);
    all.leases.insert(id(9), held(LeaseHolder::Us));
    let survey = second_look(&all, &policy());
    assert_eq!(servers(&survey.tasks), [id(9), id(1), id(2), id(3)]);
    assert_eq!(words(&survey), ["limit_reached"]);
}

#[test]
fn hosts_that_were_wiped_are_renamed_however_many_there_are() {
    // V2: a fleet went while Scaleway renamed nothing.
    let hosts = (1..=10).map(|n| host(n, &of_sweep(n))).collect();
    let mut all = inventory(hosts, vec![owner("fleet-a", None)]);
    let mut wiped = held(LeaseHolder::Nobody);
    wiped.lease.wiped_at = Some(at(-10));
    for n in 1..=9 {
        all.leases.insert(id(n), wiped.clone());
    }
    let first = survey(at(0), &all, &policy(), &Memory::default());
    assert_eq!(first.tasks, []);
    assert_eq!(second_look(&all, &policy()).tasks.len(), 10);
    wiped.lease.unwiped = true;
    for n in 1..=9 {
        all.leases.insert(id(n), wiped.clone());
    }
    assert_eq!(second_look(&all, &policy()).tasks.len(), 3, "wipes are begun one by one");
}

#[test]
fn stale_markers_of_this_cluster_are_finished_even_when_no_object_is_left() {
    // V2
    let hosts = vec![host(1, &claiming(CLUSTER)), host(2, &releasing(CLUSTER))];
    let report_only = Policy { claim_prefix: None, ..policy() };
    let survey = second_look(&inventory(hosts.clone(), vec![]), &report_only);
    assert_eq!(servers(&survey.tasks), [id(1), id(2)]);
    let alive = Owner { uid: UID.into(), ..owner("fleet-a", None) };
    let survey = second_look(&inventory(hosts, vec![alive]), &report_only);
    assert_eq!(survey.tasks, [], "their object lives");
}

#[test]
fn retiring_quarantined_foreign_and_moved_hosts_are_never_due() {
    let retiring = Host { retiring: true, ..host(1, "fleet-x") };
    let hosts =
        vec![retiring, host(2, "tuist-quarantine-2"), host(3, "foreign"), host(4, "fleet-moved")];
    let owners = (10..20).map(|n| owner(&format!("fleet-{n}"), None)).collect();
    let mut all = inventory(hosts, owners);
    let moved = HostLease { moved: true, ..held(LeaseHolder::Other("macs/x/gone".into())) };
    all.leases.insert(id(4), moved);
    let survey = second_look(&all, &policy());
    assert_eq!((survey.tasks.len(), words(&survey)), (0, vec!["moved"]));
}

#[test]
fn the_lease_of_a_holder_who_is_gone_is_due_when_that_was_seen_twice() {
    let mut all = inventory(vec![host(1, "pool-1")], vec![owner("fleet-a", None)]);
    all.leases.insert(id(1), held(LeaseHolder::Other("macs/fleet-x/gone".into())));
    all.leases.insert(id(2), held(LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into())));
    let first = survey(at(0), &all, &policy(), &Memory::default());
    assert_eq!(first.tasks, []);
    assert_eq!(second_look(&all, &policy()).tasks, [Task::FreeLease(id(1))]);
}

#[test]
fn the_lease_of_a_holder_with_another_host_is_freed_when_that_was_seen_twice() {
    // P1: taken late, after its taker had given up to hear of it.
    let holder = LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into());
    let spare = HostLease { zone: Some(zone()), ..held(holder) };
    let all = |name: &str, servers: Option<u32>| {
        let mut all = inventory(vec![host(1, name)], vec![owner("fleet-a", servers)]);
        all.leases.insert(id(1), spare.clone());
        all
    };
    let task = Task::SpareLease { zone: zone(), server: id(1), missing: false };
    let first = survey(at(0), &all("pool-1", Some(2)), &policy(), &Memory::default());
    assert_eq!(first.tasks, []);
    assert_eq!(second_look(&all("pool-1", Some(2)), &policy()).tasks, std::slice::from_ref(&task));
    let without = |others: Vec<Host>| {
        let leases = all("pool-1", None).leases;
        Inventory { leases, ..inventory(others, vec![owner("fleet-a", Some(2))]) }
    };
    // Scaleway says 403 of a host that is deleted: that is believed of one that lists lack (S10).
    let missing = Task::SpareLease { zone: zone(), server: id(1), missing: true };
    assert_eq!(second_look(&without(vec![host(2, "fleet-a")]), &policy()).tasks, [missing]);
    let strangers = HostLease { zone: Some(zone()), ..HostLease::free() };
    let mut doubted = without(vec![host(3, "of-another-project")]);
    doubted.leases.insert(id(2), strangers);
    assert_eq!(second_look(&doubted, &policy()).tasks, [], "they may be of another project");
    for (name, servers, why) in [
        ("pool-1", None, "it may be about to claim it"),
        ("pool-1", Some(1), "it names it"),
        ("fleet-a", Some(2), "the host has its name"),
    ] {
        assert_eq!(second_look(&all(name, servers), &policy()).tasks, [], "{why}");
        let seen = seen(host(1, name), spare.clone(), vec![owner("fleet-a", servers)]);
        assert_eq!(decide(at(0), &task, &seen, &policy()).action, None, "{why}");
    }
    let marked = Owner { uid: UID.into(), ..owner("fleet-a", Some(2)) };
    let of_uid = HostLease {
        lease: Lease {
            holder: LeaseHolder::Other(format!("macs/fleet-a/{UID}")),
            ..spare.lease.clone()
        },
        ..spare.clone()
    };
    let seen_as = |name: &str, lease: &HostLease| {
        let seen = seen(host(1, name), lease.clone(), vec![marked.clone()]);
        decide(at(0), &task, &seen, &policy())
    };
    assert_eq!(seen_as(&claiming(CLUSTER), &of_uid).action, None, "the host has its marker");
    assert_eq!(seen_as(&releasing(CLUSTER), &of_uid).action, None, "the host has its marker");
    assert_eq!(seen_as("pool-1", &of_uid).action, Some(Action::FreeLease));
    assert_eq!(seen_as("pool-1", &of_uid).reason.word(), "spare");
    let moved = HostLease { moved: true, ..of_uid.clone() };
    assert_eq!(seen_as("pool-1", &moved).reason, Reason::Moved);
    let unread = Seen {
        host: HostRead::Failed("503".into()),
        ..seen(host(1, "pool-1"), of_uid, vec![marked.clone()])
    };
    assert_eq!(decide(at(0), &task, &unread, &policy()).action, None);
}

#[test]
fn a_zone_that_cannot_be_listed_is_neither_empty_nor_forgotten() {
    let all = inventory(vec![host(1, "fleet-x")], vec![owner("fleet-a", None)]);
    let first = survey(at(0), &all, &policy(), &Memory::default());
    let mut blind = all.clone();
    blind.zones.insert(zone(), ZoneRead::Failed("503".into()));
    let second = survey(at(15), &blind, &policy(), &first.memory);
    assert_eq!((second.tasks.len(), words(&second)), (0, vec!["zone_unreadable"]));
    assert!(second.report.zones.is_empty());
    let third = survey(at(30), &all, &policy(), &second.memory);
    assert_eq!(servers(&third.tasks), [id(1)]);
}

#[test]
fn hosts_of_the_pool_that_nobody_can_adopt_are_named() {
    let of = |state| Host { state, ..host(1, "pool-1") };
    for (host, minutes, named) in [
        (of(HostState::Stuck("error".into())), 0, true),
        (of(HostState::Reinstalling), 179, false),
        (of(HostState::Reinstalling), 180, true),
        (of(HostState::Changing("starting".into())), 500, true),
        (Host { delivered: false, ..of(HostState::Ready) }, 500, true),
        (of(HostState::Ready), 500, false),
    ] {
        let state = host.state.clone();
        let mut all = inventory(vec![], vec![]);
        let listed = vec![Listed { host, changed_at: Some(at(0)) }];
        all.zones.insert(zone(), ZoneRead::Listed(listed));
        let survey = survey(at(minutes), &all, &policy(), &Memory::default());
        assert_eq!(survey.report.zones[&zone()].stuck.len(), usize::from(named), "{state:?}");
    }
}

#[test]
fn what_a_person_wipes_is_noted_and_until_then_it_is_named() {
    // V5: the way back of a host that was set aside.
    let asked = Lease { delete_requested_at: Some(at(0)), ..Lease::free() };
    let unwiped = Lease { unwiped: true, ..Lease::free() };
    let stored = |lease: &Lease| HostLease {
        lease: Lease { version: Some("1".into()), ..lease.clone() },
        ..HostLease::free()
    };
    let look = |name: &str, state: &HostState, lease: &HostLease| {
        let host = Host { state: state.clone(), ..host(1, name) };
        let mut all = inventory(vec![host], vec![owner("fleet-a", None)]);
        all.leases.insert(id(1), lease.clone());
        survey(at(0), &all, &policy(), &Memory::default())
    };
    let (wiping, well) = (HostState::Reinstalling, HostState::Ready);
    for lease in [&unwiped, &asked] {
        let lease = stored(lease);
        for name in ["pool-1", "tuist-quarantine-1"] {
            assert_eq!(servers(&look(name, &wiping, &lease).tasks), [id(1)], "{name}");
            let wiped = Host { state: wiping.clone(), ..host(1, name) };
            let decision = decided(&seen(wiped, lease.clone(), vec![]));
            assert_eq!(decision.action, Some(Action::NoteWiped), "{name}");
            assert_eq!(decision.reason.word(), "wiped_by_hand");
            assert_eq!(look(name, &well, &lease).tasks, [], "{name}: nobody wipes it");
        }
        let stuck = &look("pool-1", &well, &lease).report.zones[&zone()].stuck;
        assert_eq!(stuck.len(), 1, "{lease:?}");
        let aside = &look("tuist-quarantine-1", &well, &lease).report.zones[&zone()].stuck;
        assert_eq!(aside.len(), 0, "it is told as set aside");
    }
    let holder = LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into());
    let held = stored(&Lease { holder, ..unwiped.clone() });
    let moved = HostLease { moved: true, ..stored(&unwiped) };
    let wiped = stored(&Lease { wiped_at: Some(at(1)), ..asked });
    for lease in [held, moved, wiped.clone(), stored(&Lease::free())] {
        assert_eq!(look("pool-1", &wiping, &lease).tasks, [], "{lease:?}");
    }
    assert_eq!(look("pool-1", &well, &wiped).report.zones[&zone()].stuck, []);
    assert_eq!(look("fleet-a", &wiping, &stored(&unwiped)).tasks, [], "it has an owner");
}

#[test]
fn the_age_of_a_class_survives_a_restart_and_begins_anew_with_the_class() {
    // O3
    let age = |survey: &Survey, class| survey.report.zones[&zone()].classes[&class].oldest;
    let listed = |name: &str| {
        let mut all = inventory(vec![], vec![]);
        let listed = Listed { host: host(1, name), changed_at: Some(at(0)) };
        all.zones.insert(zone(), ZoneRead::Listed(vec![listed]));
        all
    };
    let first = survey(at(60), &listed("fleet-x"), &policy(), &Memory::default());
    assert_eq!(age(&first, Class::Orphan), Duration::from_hours(1));
    let second = survey(at(75), &listed("pool-1"), &policy(), &first.memory);
    assert_eq!(age(&second, Class::Pool), Duration::ZERO);
    let third = survey(at(90), &listed("pool-1"), &policy(), &second.memory);
    assert_eq!(age(&third, Class::Pool), INTERVAL);
}

#[test]
fn what_is_not_one_to_one_is_named_and_left_alone() {
    // P1, P7: left behind by a system that claimed without a lock.
    let hosts = vec![host(1, "fleet-a"), host(2, "fleet-a"), host(3, "fleet-c")];
    let owners =
        vec![owner("fleet-a", Some(1)), owner("fleet-b", Some(3)), owner("fleet-c", Some(3))];
    let survey = second_look(&inventory(hosts, owners), &policy());
    assert_eq!(survey.tasks, []);
    let objects = BTreeSet::from(["macs/fleet-b".to_owned(), "macs/fleet-c".to_owned()]);
    let servers = BTreeSet::from([id(1), id(2)]);
    let expected = [
        Duplicate::Host { server: id(3), objects },
        Duplicate::Object { name: "fleet-a".into(), servers },
    ];
    assert_eq!(survey.report.duplicates, expected);
    assert_eq!(
        expected[0].to_string(),
        format!("host {} is named by macs/fleet-b and macs/fleet-c", id(3))
    );
}

fn seen(host: Host, lease: HostLease, owners: Vec<Owner>) -> Seen {
    let owners = Owners::new(owners);
    Seen {
        server: host.id.clone(),
        names: Names::new(&CLUSTER.parse().unwrap(), &policy(), &owners, [&lease]),
        host: HostRead::Seen(host),
        lease,
        owners,
        job: None,
        mac: None,
        asking: false,
        images: Images::Listed(vec![]),
    }
}

fn decided(seen: &Seen) -> Decision {
    let task = Task::Host { zone: zone(), server: seen.server.clone() };
    decide(at(0), &task, seen, &policy())
}

fn ours() -> HostLease {
    held(LeaseHolder::Us)
}

fn of_sweep(n: u32) -> String {
    format!("tuist-release-pending-{CLUSTER}-{}", id(n).digits())
}

#[test]
fn an_orphan_goes_back_step_by_step_and_gets_a_pool_name_only_after_its_wipe() {
    // LH1, LH22, P22
    let reinstalling = |name: &str| Host { state: HostState::Reinstalling, ..host(1, name) };
    let mut wiped = ours();
    wiped.lease.wiped_at = Some(at(0));
    let rename = |to: &str| Some(Action::Rename { to: to.into() });
    let marked = of_sweep(1);
    for (host, lease, expected) in [
        (host(1, "fleet-x"), HostLease::free(), Some(Action::TakeLease { used: true })),
        (host(1, "fleet-x"), ours(), rename(&marked)),
        (host(1, &marked), ours(), Some(Action::NoteAsked { times: 1 })),
        (reinstalling(&marked), ours(), Some(Action::NoteWiped)),
        (reinstalling(&marked), wiped.clone(), rename(&format!("pool-{}", id(1)))),
        (reinstalling("pool-1"), wiped.clone(), Some(Action::FreeLease)),
        (reinstalling("pool-1"), HostLease::free(), None),
    ] {
        let name = host.name.clone();
        assert_eq!(decided(&seen(host, lease, vec![])).action, expected, "{name}");
    }
}

#[test]
fn a_host_goes_back_to_the_pool_of_its_last_owner_else_to_the_default_one() {
    let named = |pool: Option<&str>| {
        let mut lease = ours();
        lease.lease.note = note("macs/x/gone", pool);
        lease.lease.wiped_at = Some(at(0));
        lease
    };
    let task = Task::Host { zone: zone(), server: id(1) };
    for (pool, default, to) in [
        (Some("other-"), Some("pool-"), Some("other-")),
        (Some("other-"), None, Some("other-")),
        (None, Some("pool-"), Some("pool-")),
        (Some(""), Some("pool-"), Some("pool-")), // S6
        (None, None, None),
    ] {
        let policy = Policy { pool_prefix: default.map(str::to_owned), ..policy() };
        let rename = to.map(|prefix| Action::Rename { to: format!("{prefix}{}", id(1)) });
        let marked = seen(host(1, &of_sweep(1)), named(pool), vec![]);
        let action = decide(at(0), &task, &marked, &policy).action;
        assert_eq!(action, rename.clone().or(Some(Action::FreeLease)), "{pool:?} {default:?}");
        let orphan = seen(host(1, "fleet-x"), named(pool), vec![]);
        let action = decide(at(0), &task, &orphan, &policy).action;
        let marks = Some(Action::Rename { to: of_sweep(1) }).filter(|_| to.is_some());
        assert_eq!(action, marks.or(Some(Action::FreeLease)), "{pool:?} {default:?}");
    }
}

#[test]
fn a_host_that_failed_its_owners_is_set_aside_whoever_finishes_its_release() {
    // V5
    let mut lease = ours();
    lease.lease.wiped_at = Some(at(0));
    for (failed, expected) in [(2, format!("pool-{}", id(1))), (3, NameClass::quarantined(&id(1)))]
    {
        lease.lease.owners_failed = failed;
        let action = decided(&seen(host(1, &of_sweep(1)), lease.clone(), vec![])).action;
        assert_eq!(action, Some(Action::Rename { to: expected }), "{failed} owners failed");
    }
}

#[test]
fn a_host_whose_wipe_its_last_owner_saw_is_not_wiped_again() {
    let mut lease = held(LeaseHolder::Nobody);
    lease.lease.wiped_at = Some(at(0));
    let left = seen(host(1, &releasing(CLUSTER)), lease, vec![]);
    assert_eq!(decided(&left).action, Some(Action::TakeLease { used: false }));
}

#[test]
fn every_state_of_a_marked_host_is_waited_out_wiped_or_told() {
    let marked = of_sweep(1);
    for (state, action, word) in [
        (HostState::Ready, Some(Action::NoteAsked { times: 1 }), "finishing"),
        (HostState::Reinstalling, Some(Action::NoteWiped), "finishing"),
        (HostState::Changing("rebooting".into()), None, "waiting"), // LH22
        (HostState::Stuck("locked".into()), None, "cannot_wipe"),
    ] {
        let decision = decided(&seen(Host { state, ..host(1, &marked) }, ours(), vec![]));
        assert_eq!((decision.action, decision.reason.word()), (action, word));
    }
    let blind =
        Seen { images: Images::Failed("503".into()), ..seen(host(1, &marked), ours(), vec![]) };
    assert_eq!(decided(&blind).reason.word(), "images_unreadable");
}

#[test]
fn a_returned_host_keeps_its_image_or_gets_the_newest_of_its_family() {
    // P32
    let image = |name: &str, family: &str, version: &str, beta| Image {
        id: format!("id-of-{name}"),
        name: name.into(),
        family: family.into(),
        version: version.into(),
        beta,
    };
    let old = image("macos-tahoe-26.9", "macos-tahoe", "26.9", false);
    let new = image("macos-tahoe-26.10", "macos-tahoe", "26.10", false);
    let beta = image("macos-tahoe-27.0", "macos-tahoe", "27.0", true);
    let same = image("macos-tahoe-26.0", "macos-tahoe", "26.0", false);
    let other = image("macos-sequoia-15.6", "macos-sequoia", "15.6", false);
    for (offered, expected) in [
        (vec![old.clone(), same, new.clone()], Some("id-of-macos-tahoe-26.0")),
        (vec![old, beta, new, other.clone()], Some("id-of-macos-tahoe-26.10")),
        (vec![other], None),
    ] {
        let images = Images::Listed(offered);
        let seen = Seen { images, asking: true, ..seen(host(1, &of_sweep(1)), ours(), vec![]) };
        let image = expected.map(str::to_owned);
        assert_eq!(decided(&seen).action, Some(Action::RequestWipe { image }));
    }
}

#[test]
fn a_host_that_got_an_owner_since_the_scan_is_left_alone() {
    // Seed 004: the host was adopted between the scan and the effect.
    let by_name = || vec![owner("fleet-x", None)];
    let by_id = || vec![owner("fleet-y", Some(1))];
    for owners in [by_name(), by_id()] {
        let free = decided(&seen(host(1, "fleet-x"), HostLease::free(), owners.clone()));
        assert_eq!((free.action, free.reason.word()), (None, "owned"));
        let leased = decided(&seen(host(1, "fleet-x"), ours(), owners));
        assert_eq!((leased.action, leased.reason.word()), (Some(Action::FreeLease), "owned"));
    }
    let marked = Owner { uid: UID.into(), ..owner("fleet-z", None) };
    let claims = decided(&seen(host(1, &claiming(CLUSTER)), HostLease::free(), vec![marked]));
    assert_eq!((claims.action, claims.reason.word()), (None, "owned"));
}

#[test]
fn whatever_is_not_ours_to_change_is_left_alone_and_told_why() {
    let held_by_other = held(LeaseHolder::Other("macs/a/b".into()));
    let retiring = Host { retiring: true, ..host(1, "fleet-x") };
    let moved = HostLease { moved: true, ..HostLease::free() };
    for (host, lease, word) in [
        (host(1, "fleet-x"), held_by_other, "held_by_other"),
        (host(1, "fleet-x"), moved, "moved"),
        (retiring, HostLease::free(), "not_ours"),
        (host(1, "tuist-quarantine-1"), HostLease::free(), "not_ours"),
        (host(1, "someones"), HostLease::free(), "not_ours"),
        (host(1, &releasing("deadbeef")), HostLease::free(), "not_ours"),
    ] {
        let decision = decided(&seen(host, lease, vec![]));
        assert_eq!((decision.action, decision.reason.word()), (None, word));
        assert!(decision.reason.is_refusal());
    }
}

#[test]
fn a_host_that_cannot_be_read_ends_the_cycle_and_one_that_is_gone_does_not() {
    let unread =
        Seen { host: HostRead::Failed("502".into()), ..seen(host(1, "fleet-x"), ours(), vec![]) };
    assert!(decided(&unread).reason.ends_cycle());
    assert_eq!(decided(&unread).action, None);
    let gone = Seen { host: HostRead::Gone, ..unread };
    assert_eq!(decided(&gone).action, Some(Action::FreeLease));
    assert!(!decided(&gone).reason.ends_cycle());
}

#[test]
fn without_a_pool_or_a_claim_prefix_nothing_is_begun() {
    let task = Task::Host { zone: zone(), server: id(1) };
    let orphan = seen(host(1, "fleet-x"), HostLease::free(), vec![]);
    let no_pool = Policy { pool_prefix: None, ..policy() };
    assert_eq!(decide(at(0), &task, &orphan, &no_pool).reason.word(), "no_pool");
    let marked = seen(host(1, &of_sweep(1)), HostLease::free(), vec![]);
    assert_eq!(decide(at(0), &task, &marked, &no_pool).reason.word(), "no_pool");
    let report_only = Policy { claim_prefix: None, ..policy() };
    let names = Names::new(&CLUSTER.parse().unwrap(), &report_only, &orphan.owners, []);
    let old = host(1, &format!("tuist-claim-pending-{UID}"));
    let orphan = Seen { names, host: HostRead::Seen(old), ..orphan };
    let decision = decide(at(0), &task, &orphan, &report_only);
    assert_eq!((decision.action, decision.reason.word()), (None, "report_only"));
}

#[test]
fn no_job_is_wiped_away_while_its_agent_may_live() {
    let job = |silent_since| Some(Job { pod: "runners/r-1".into(), silent_since });
    let with = |job| Seen { job, ..seen(host(1, "fleet-x"), HostLease::free(), vec![]) };
    for (job, word) in [
        (job(None), "busy"),
        (job(Some(at(-4))), "busy"),
        (job(Some(at(-5))), "returning"),
        (None, "returning"),
    ] {
        assert_eq!(decided(&with(job)).reason.word(), word);
    }
}

#[test]
fn a_lease_is_freed_only_while_its_holder_is_gone() {
    let task = Task::FreeLease(id(1));
    let gone = held(LeaseHolder::Other("macs/fleet-x/gone".into()));
    let of = |lease: HostLease| {
        let seen = seen(host(1, "x"), lease, vec![owner("fleet-a", None)]);
        decide(at(0), &task, &seen, &policy())
    };
    assert_eq!(of(gone.clone()).action, Some(Action::FreeLease));
    let alive = held(LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into()));
    for lease in [alive, held(LeaseHolder::Nobody), HostLease { moved: true, ..gone }] {
        let decision = of(lease);
        assert!(decision.action.is_none() && decision.reason.is_refusal(), "{decision:?}");
    }
}

#[test]
fn every_refusal_has_a_word_of_its_own() {
    // O1
    let words: BTreeSet<&str> = Reason::REFUSALS.into_iter().collect();
    assert_eq!(words.len(), Reason::REFUSALS.len());
    assert!(Reason::Moved.is_refusal() && !Reason::Returning.is_refusal());
}
