//! Which host of the pool a Machine chooses.

use super::*;

fn numbered(n: u32) -> applecart_api::ids::ServerId {
    format!("{n:08}-0000-4000-8000-000000000000").parse().unwrap()
}

/// Which of these hosts an object of this number chooses.
fn chosen(object: u32, hosts: &[u32]) -> applecart_api::ids::ServerId {
    let candidate = |n: &u32| {
        let host = Host { id: numbered(*n), ..host("pool-1") };
        Arc::new(Candidate { host, lease: Lease::free() })
    };
    let listed = Candidates::Listed(hosts.iter().map(candidate).collect());
    let mut seen = Observed { bound: Bound::Unbound(listed), ..fresh() };
    seen.object.uid = format!("{object:08}-2222-3333-4444-555555555555").parse().unwrap();
    match effect(&seen).action {
        Some(Action::TakeLease { server, .. }) => server,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_machine_chooses_the_same_host_again_whatever_else_the_list_shows() {
    // P1: what it may have taken already, without having heard so.
    let all: Vec<u32> = (0..20).collect();
    for object in 0..20 {
        let first = chosen(object, &all);
        for other in all.iter().filter(|n| numbered(**n) != first) {
            let fewer: Vec<u32> = all.iter().copied().filter(|n| n != other).collect();
            assert_eq!(chosen(object, &fewer), first, "without {other}");
        }
        let more: Vec<u32> = (0..21).collect();
        let then = chosen(object, &more);
        assert!(then == first || then == numbered(20), "only what is new can be better");
    }
}

#[test]
fn machines_that_choose_from_one_list_choose_different_hosts_mostly() {
    let all: Vec<u32> = (0..100).collect();
    let taken: BTreeSet<_> = (0..100).map(|object| chosen(object, &all)).collect();
    // 63 is what chance gives.
    assert!(taken.len() > 50, "{} different ones of 100", taken.len());
}
