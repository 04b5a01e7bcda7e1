//! Tables: whose turn it is when not all can have one, and what of that outlives a bad cycle.

use super::*;

/// Nine objects without trouble, so that five strays are no accident.
fn owners() -> Vec<Owner> {
    (10..19).map(|n| owner(&format!("fleet-{n}"), None)).collect()
}

fn strays(n: u32) -> Vec<Host> {
    (1..=n).map(|n| host(n, &format!("fleet-{n}"))).collect()
}

fn busy() -> Reason {
    Reason::Busy("runners/r-1".into())
}

fn unreadable() -> Reason {
    Reason::HostUnreadable("403".into())
}

/// The memory after these tasks of a look had their turns.
fn after<'a>(look: &Survey, had: impl IntoIterator<Item = &'a Task>, why: &Reason) -> Memory {
    let mut memory = look.memory.clone();
    for task in had {
        memory.had_turn(task.server(), why, at(0));
    }
    memory
}

#[test]
fn those_that_cannot_go_keep_no_others_from_their_turn() {
    let all = inventory(strays(5), owners());
    let mut look = second_look(&all, &policy());
    let mut turns = vec![];
    for minutes in [30, 45, 60] {
        turns.push(servers(&look.tasks));
        let mut memory = look.memory.clone();
        for task in &look.tasks {
            memory.had_turn(task.server(), &busy(), at(minutes - 15));
        }
        look = survey(at(minutes), &all, &policy(), &memory);
    }
    let expected = [[id(1), id(2), id(3)], [id(4), id(5), id(1)], [id(2), id(3), id(1)]];
    assert_eq!(turns, expected);
}

#[test]
fn a_turn_that_nobody_took_was_none() {
    let all = inventory(strays(5), owners());
    let look = second_look(&all, &policy());
    // The cycle ended with the first of three: by its host, or because nobody knows who owns it.
    for (why, expected) in [
        (unreadable(), [id(2), id(3), id(4)]),
        (Reason::OwnersUnreadable("503".into()), [id(1), id(2), id(3)]),
    ] {
        let memory = after(&look, look.tasks.first(), &why);
        assert_eq!(servers(&survey(at(30), &all, &policy(), &memory).tasks), expected, "{why}");
    }
}

#[test]
fn turns_outlive_a_cycle_that_believes_in_no_orphan_and_one_that_lists_no_zone() {
    let all = inventory(strays(5), owners());
    let look = second_look(&all, &policy());
    let memory = after(&look, &look.tasks, &busy());
    let distrusted = Inventory { owners: Owners::default(), ..all.clone() };
    let mut unlisted = all.clone();
    unlisted.zones.insert(zone(), ZoneRead::Failed("503".into()));
    for between in [distrusted, unlisted] {
        let second = survey(at(30), &between, &policy(), &memory);
        assert_eq!(second.tasks, []);
        let third = survey(at(45), &all, &policy(), &second.memory);
        assert_eq!(servers(&third.tasks), [id(4), id(5), id(1)]);
    }
}

#[test]
fn own_markers_come_before_orphans_however_often_they_had_a_turn() {
    let mut hosts = strays(3);
    hosts.push(host(7, &claiming(CLUSTER)));
    hosts.push(host(8, &of_sweep(8)));
    let all = inventory(hosts, owners());
    let look = second_look(&all, &policy());
    assert_eq!(servers(&look.tasks), [id(7), id(8), id(1)]);
    let memory = after(&look, &look.tasks[..1], &busy());
    let next = survey(at(30), &all, &policy(), &memory);
    assert_eq!(servers(&next.tasks), [id(8), id(7), id(1)]);
}

#[test]
fn a_host_whose_lease_the_sweep_took_is_under_way_whatever_its_name_is_by_now() {
    // Its rename failed, or we crashed before it.
    let mut hosts = strays(4);
    hosts.push(host(7, &claiming(CLUSTER)));
    let mut all = inventory(hosts, owners());
    all.leases.insert(id(4), ours());
    all.leases.insert(id(7), ours());
    assert_eq!(servers(&second_look(&all, &policy()).tasks)[..2], [id(4), id(7)]);
    // Nobody is believed to be an orphan any more: one that was, when it was taken, is finished.
    let nothing = Inventory { owners: Owners::default(), ..all };
    let look = survey(at(0), &nothing, &policy(), &Memory::default());
    assert_eq!(servers(&look.tasks), [id(4), id(7)]);
}

#[test]
fn a_host_that_cannot_be_read_has_the_last_turn_until_it_can() {
    let mut hosts = strays(2);
    hosts.push(host(7, &of_sweep(7)));
    let mut all = inventory(hosts, owners());
    all.leases.insert(id(7), ours());
    let look = second_look(&all, &policy());
    assert_eq!(servers(&look.tasks), [id(7), id(1), id(2)]);
    let memory = after(&look, look.tasks.first(), &unreadable());
    let next = survey(at(30), &all, &policy(), &memory);
    assert_eq!(servers(&next.tasks), [id(1), id(2), id(7)]);
    // It still cannot; then it can.
    let memory = after(&next, &next.tasks[2..], &unreadable());
    let again = survey(at(45), &all, &policy(), &memory);
    assert_eq!(servers(&again.tasks), [id(1), id(2), id(7)]);
    let memory = after(&again, &again.tasks[2..], &busy());
    assert_eq!(servers(&survey(at(60), &all, &policy(), &memory).tasks)[0], id(7));
}

#[test]
fn a_spare_lease_is_not_seen_anew_because_its_zone_could_not_be_listed_once() {
    let mut all = inventory(vec![host(1, "pool-1")], vec![owner("fleet-a", Some(2))]);
    let held = held(LeaseHolder::Other("macs/fleet-a/uid-of-fleet-a".into()));
    all.leases.insert(id(1), HostLease { zone: Some(zone()), ..held });
    let mut unlisted = all.clone();
    unlisted.zones.insert(zone(), ZoneRead::Failed("503".into()));
    let first = survey(at(0), &all, &policy(), &Memory::default());
    let second = survey(at(15), &unlisted, &policy(), &first.memory);
    assert_eq!(second.tasks, [], "nobody knows what its host is called");
    assert_eq!(survey(at(30), &all, &policy(), &second.memory).tasks.len(), 1);
}
