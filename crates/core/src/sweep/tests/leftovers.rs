//! Tables: what objects that are gone left behind (C5).

use applecart_api::ids::ProviderId;

use super::*;
use crate::machine::{self, Exactly, Guest, Identity, Node};

const NAME: &str = "fleet-gone";

fn provider_id(n: u32) -> ProviderId {
    ProviderId { zone: zone(), server: id(n) }
}

/// An object that lives, hosts, one of the pool that its Lease makes ours for certain, and what
/// `fleet-gone` left: a Node of host 1, and more.
fn left(mut hosts: Vec<Host>, objects: bool) -> Inventory {
    hosts.push(host(9, "pool-9"));
    let mut all = inventory(hosts, vec![owner("fleet-a", None)]);
    all.leases.insert(id(9), free());
    let belongings = Belongings { objects, node: Some(provider_id(1)) };
    all.belongings.insert(NAME.into(), belongings);
    all.leases.insert(id(1), free());
    all
}

fn free() -> HostLease {
    HostLease { zone: Some(zone()), ..held(LeaseHolder::Nobody) }
}

fn task() -> CleanUp {
    CleanUp { machine: NAME.into(), node: Some(provider_id(1)) }
}

#[test]
fn what_an_object_left_is_due_when_it_was_seen_twice() {
    for objects in [true, false] {
        let all = left(vec![host(1, "pool-1")], objects);
        let first = survey(at(0), &all, &policy(), &Memory::default());
        assert_eq!(first.clean_ups, []);
        let early = survey(at(14), &all, &policy(), &first.memory);
        assert_eq!(early.clean_ups, []);
        assert_eq!(survey(at(15), &all, &policy(), &early.memory).clean_ups, [task()]);
    }
    let alive = Inventory {
        owners: Owners::new(vec![owner(NAME, None)]),
        ..left(vec![host(1, "pool-1")], true)
    };
    assert_eq!(second_look(&alive, &policy()).clean_ups, [], "its object lives");
}

#[test]
fn nothing_goes_while_a_host_lives_by_it() {
    let gone = "tuist-quarantine-1".to_owned();
    for (hosts, due) in [
        (vec![], true),
        (vec![host(1, "pool-1")], true),
        (vec![host(1, "fleet-a")], true),
        (vec![host(1, &gone)], true),
        // Moved, detached, or an orphan: it bears the name.
        (vec![host(1, NAME)], false),
        (vec![host(1, "pool-1"), host(2, NAME)], false),
        // Renamed by hand, on its way back, or about to go.
        (vec![host(1, "renamed-by-hand")], false),
        (vec![host(1, "fleet-other")], false),
        (vec![host(1, &releasing(CLUSTER))], false),
        (vec![Host { retiring: true, ..host(1, "pool-1") }], false),
    ] {
        let all = left(hosts.clone(), true);
        let found = second_look(&all, &policy()).clean_ups;
        assert_eq!(found.len(), usize::from(due), "{hosts:?}");
    }
}

#[test]
fn nothing_goes_while_a_zone_is_unread_and_nothing_is_forgotten_meanwhile() {
    let all = left(vec![], true);
    let first = survey(at(0), &all, &policy(), &Memory::default());
    let mut blind = all.clone();
    blind.zones.insert(zone(), ZoneRead::Failed("503".into()));
    let second = survey(at(15), &blind, &policy(), &first.memory);
    assert_eq!((second.clean_ups.len(), second.tasks.len()), (0, 0));
    let third = survey(at(30), &all, &policy(), &second.memory);
    assert_eq!(third.clean_ups, [task()]);
    let mut elsewhere = all;
    elsewhere.zones = BTreeMap::from([("fr-par-3".parse().unwrap(), ZoneRead::Listed(vec![]))]);
    let survey = second_look(&elsewhere, &policy());
    assert_eq!((survey.clean_ups.len(), survey.tasks.len()), (0, 0), "nobody listed its zone");
}

#[test]
fn a_node_of_a_host_that_we_never_had_is_left_alone() {
    let mut all = left(vec![], false);
    all.leases.clear();
    assert_eq!(second_look(&all, &policy()).clean_ups, []);
}

#[test]
fn access_goes_before_pods_and_node_and_the_account_goes_last() {
    let guest = |name: &str| Guest {
        namespace: "runners".into(),
        name: name.into(),
        uid: format!("uid-of-{name}"),
        version: "1".into(),
        runner: true,
        busy: false,
        deleting: true,
        forced: true,
        agent_finalizer: name == "stuck",
    };
    let node = |server| Node {
        uid: "uid-of-node".into(),
        provider_id: Some(provider_id(server).to_string()),
        cordoned: false,
        draining: None,
        drained: None,
        ready: false,
        silent_since: None,
    };
    let exactly = |name: &str| Exactly { uid: format!("uid-of-{name}"), version: "1".into() };
    let part = |part: Identity| (part, exactly(&format!("{part:?}")));
    let owners = Owners::new(vec![owner("fleet-a", None)]);
    let next = |left: &Leftovers| clean_up(&task(), left, &owners);
    let mut left = Leftovers {
        identity: Identity::ALL.map(part).into(),
        credentials: Some(exactly("secret")),
        node: Some(node(1)),
        guests: vec![Guest { forced: false, ..guest("runs") }, guest("stuck")],
    };
    for (part, exactly) in [Identity::Token, Identity::Binding].map(part) {
        assert_eq!(next(&left), Some(machine::Action::DeleteIdentity { part, exactly }));
        left.identity.remove(&part);
    }
    let secret = machine::Action::DeleteCredentials(exactly("secret"));
    assert_eq!(next(&left), Some(secret));
    left.credentials = None;
    assert!(matches!(next(&left), Some(machine::Action::DeleteGuest { force: true, .. })));
    left.guests.remove(0);
    assert!(matches!(next(&left), Some(machine::Action::FreeGuest { .. })));
    left.guests.clear();
    let uid = "uid-of-node".to_owned();
    assert_eq!(next(&left), Some(machine::Action::DeleteNode { uid }));
    let again = Owners::new(vec![owner(NAME, None)]);
    assert_eq!(clean_up(&task(), &left, &again), None, "somebody bears the name again");
    left.node = Some(node(2));
    let (part, exactly) = part(Identity::ServiceAccount);
    assert_eq!(next(&left), Some(machine::Action::DeleteIdentity { part, exactly }));
    left.identity.clear();
    assert_eq!(next(&left), None, "another host's Node");
}

#[test]
fn the_lease_of_a_host_that_is_gone_is_due_when_that_was_seen_twice() {
    let with = |lease: HostLease| {
        let mut all = inventory(vec![host(9, "pool-9")], vec![owner("fleet-a", Some(7))]);
        all.leases = BTreeMap::from([(id(1), lease), (id(9), free())]);
        all
    };
    let drop = Task::DropLease { zone: zone(), server: id(1) };
    let first = survey(at(0), &with(free()), &policy(), &Memory::default());
    assert_eq!(first.tasks, []);
    assert_eq!(second_look(&with(free()), &policy()).tasks, std::slice::from_ref(&drop));
    // What a moved object's or a dead holder's Lease says is about nothing, too.
    let moved = HostLease { moved: true, ..free() };
    assert_eq!(second_look(&with(moved), &policy()).tasks, std::slice::from_ref(&drop));
    let of = |holder: &str| {
        let held = held(LeaseHolder::Other(holder.into()));
        HostLease { zone: Some(zone()), ..held }
    };
    let dead = second_look(&with(of("macs/x/gone")), &policy()).tasks;
    assert_eq!(dead, [Task::FreeLease(id(1)), drop]);
    let mut listed = with(free());
    listed.zones = inventory(vec![host(1, "pool-1"), host(9, "pool-9")], vec![]).zones;
    let mut owned = with(free());
    owned.owners = Owners::new(vec![owner("fleet-a", Some(1))]);
    let mut node = with(free());
    node.belongings.insert("x".into(), Belongings { objects: false, node: Some(provider_id(1)) });
    let nowhere = with(HostLease { zone: None, ..free() });
    let mut lives = with(of("macs/fleet-a/uid-of-fleet-a"));
    lives.owners = Owners::new(vec![owner("fleet-a", None)]);
    for all in [listed, owned, node, nowhere, lives] {
        assert_eq!(second_look(&all, &policy()).tasks, [], "{all:?}");
    }
}

#[test]
fn a_list_that_shows_none_of_our_hosts_proves_no_absence() {
    // S10: so does the key of another project, and what Leases keep from being adopted or wiped
    // would be forgotten.
    let (unwiped, doubted) = (left_by("macs/fleet-gone/gone"), vec!["zone_doubted"]);
    let unwiped = HostLease { zone: Some(zone()), ..unwiped };
    let moved = HostLease { moved: true, ..free() };
    for (hosts, lease, dropped) in [
        (vec![], unwiped.clone(), false),
        (vec![], moved, false),
        (vec![host(5, "pool-5")], unwiped.clone(), false),
        (vec![], free(), true),
    ] {
        let mut all = left(vec![], true);
        all.leases = BTreeMap::from([(id(1), lease.clone()), (id(2), unwiped.clone())]);
        all.belongings.clear();
        all.belongings.insert(NAME.into(), Belongings { objects: true, node: None });
        all.zones = inventory(hosts, vec![]).zones;
        let survey = second_look(&all, &policy());
        let due = survey.tasks.iter().any(|task| matches!(task, Task::DropLease { .. }));
        let found = (due, words(&survey), survey.clean_ups);
        assert_eq!(found, (dropped, doubted.clone(), vec![]));
    }
    // One that was to be deleted is missed by nobody.
    let mut all = left(vec![], true);
    let mut asked = unwiped;
    asked.lease.delete_requested_at = Some(at(0));
    all.leases = BTreeMap::from([(id(1), asked.clone()), (id(2), asked)]);
    all.belongings.clear();
    all.zones = inventory(vec![], vec![]).zones;
    let survey = second_look(&all, &policy());
    assert_eq!((survey.tasks.len(), words(&survey)), (2, vec![]));
    // One alone may be gone.
    all.leases.remove(&id(2));
    assert_eq!(second_look(&all, &policy()).tasks.len(), 1);
}

#[test]
fn a_lease_is_deleted_only_while_its_host_is_gone_and_nobodys() {
    let task = Task::DropLease { zone: zone(), server: id(1) };
    let of = |host: HostRead, lease: HostLease, owners: Vec<Owner>| {
        let seen = Seen { host, ..seen(super::host(1, "x"), lease, owners) };
        let decision = decide(at(0), &task, &seen, &policy());
        (decision.action, decision.reason.word())
    };
    let expected = (Some(Action::DeleteLease), "vanished");
    assert_eq!(of(HostRead::Gone, free(), vec![]), expected);
    let there = HostRead::Seen(host(1, "pool-1"));
    assert_eq!(of(there, free(), vec![]), (None, "still_there"));
    let unread = HostRead::Failed("502".into());
    assert_eq!(of(unread, free(), vec![]), (None, "host_unreadable"));
    let owned = of(HostRead::Gone, free(), vec![owner("fleet-a", Some(1))]);
    assert_eq!(owned, (None, "owned"));
    let held = held(LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into()));
    let lives = of(HostRead::Gone, held, vec![owner("fleet-a", None)]);
    assert_eq!(lives, (None, "holder_lives"));
    assert_eq!(of(HostRead::Gone, HostLease::free(), vec![]), (None, "gone"));
}

#[test]
fn the_lease_of_a_moved_host_goes_when_its_new_cluster_has_returned_it() {
    let pool = format!("pool-{}", id(1));
    let gone = held(LeaseHolder::Other("macs/x/gone".into()));
    let moved = HostLease { moved: true, zone: Some(zone()), ..gone };
    let task = Task::DropLease { zone: zone(), server: id(1) };
    for (name, lease, due) in [
        (pool.as_str(), moved.clone(), true),
        (NAME, moved.clone(), false),
        ("pool-by-hand", moved.clone(), false),
        (&pool, HostLease { moved: false, ..moved }, false),
    ] {
        let mut all = inventory(vec![host(1, name)], vec![owner("fleet-a", None)]);
        all.leases.insert(id(1), lease.clone());
        assert_eq!(survey(at(0), &all, &policy(), &Memory::default()).tasks, []);
        let found = second_look(&all, &policy()).tasks.contains(&task);
        assert_eq!(found, due, "{name} {lease:?}");
        let seen = seen(host(1, name), lease, vec![owner("fleet-a", None)]);
        let action = decide(at(0), &task, &seen, &policy()).action;
        assert_eq!(action == Some(Action::DeleteLease), due, "{name}");
    }
}
