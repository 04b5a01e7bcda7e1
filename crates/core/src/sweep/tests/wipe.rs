//! Tables: what goes before a wipe, and what comes of one that nobody sees.

use super::*;
use crate::machine::{Guest, Node};

pub(super) fn node(cordoned: bool, silent_since: Option<Timestamp>) -> Node {
    Node {
        uid: "uid-of-node".into(),
        provider_id: None,
        cordoned,
        draining: None,
        drained: None,
        ready: silent_since.is_none(),
        silent_since,
    }
}

pub(super) fn mac(guests: Vec<Guest>) -> Mac {
    Mac { name: "fleet-x".into(), node: node(true, None), guests }
}

pub(super) fn guest(busy: bool, deleting: bool) -> Guest {
    Guest {
        namespace: "runners".into(),
        name: "r-1".into(),
        uid: "uid-of-r-1".into(),
        version: "7".into(),
        runner: true,
        busy,
        deleting,
        forced: false,
        agent_finalizer: true,
    }
}

/// A host under our marker, whose Lease was taken at this time.
fn marked(taken_at: i64) -> Seen {
    let lease = HostLease { taken_at: Some(at(taken_at)), ..ours() };
    seen(host(1, &of_sweep(1)), lease, vec![])
}

fn asked(times: u32, minute: i64) -> Seen {
    let mut seen = marked(-60);
    seen.lease.asked = Some(Asked { times, at: at(minute) });
    seen
}

#[test]
fn a_mac_takes_no_new_pods_and_loses_idle_ones_before_it_is_wiped() {
    // LH24, S24: a runner may get a job between the look and the wipe.
    let with = |mac: Mac| Seen { mac: Some(mac), ..marked(-1) };
    let open = Mac { node: node(false, None), ..mac(vec![guest(true, false)]) };
    let cordon = Action::Cordon { node: "fleet-x".into(), uid: "uid-of-node".into() };
    assert_eq!(decided(&with(open)).action, Some(cordon));
    let idle = decided(&with(mac(vec![guest(true, false), guest(false, false)]))).action;
    assert_eq!(idle, Some(Action::DeleteGuest(guest(false, false))));
    for (guests, word, acts) in [
        (vec![guest(true, true), guest(false, true)], "busy", false),
        (vec![guest(false, true)], "waiting", false),
        (vec![], "finishing", true),
    ] {
        let decision = decided(&with(mac(guests)));
        assert_eq!((decision.action.is_some(), decision.reason.word()), (acts, word));
    }
}

#[test]
fn what_never_goes_keeps_no_mac_from_its_wipe_and_a_runner_does() {
    let with = |guests| Seen { mac: Some(mac(guests)), ..marked(-5) };
    let noted = Some(Action::NoteAsked { times: 1 });
    let daemon = |deleting| Guest { runner: false, ..guest(false, deleting) };
    for left in [guest(false, true), daemon(true), daemon(false)] {
        assert_eq!(decided(&with(vec![left])).action, noted);
    }
    assert_ne!(decided(&with(vec![guest(false, false)])).action, noted, "it may get a job");
    assert_eq!(decided(&with(vec![guest(true, false)])).reason.word(), "busy");
    // Nobody hears of it any more.
    let dead = Mac { node: node(false, Some(at(-5))), ..mac(vec![guest(true, false)]) };
    assert_eq!(decided(&Seen { mac: Some(dead), ..marked(-5) }).action, noted);
}

#[test]
fn a_wipe_is_asked_for_now_and_then_and_the_host_is_set_aside_when_that_was_in_vain() {
    let wipe = Some(Action::RequestWipe { image: None });
    let aside = Some(Action::Rename { to: NameClass::quarantined(&id(1)) });
    for (seen, action, word) in [
        (marked(-60), Some(Action::NoteAsked { times: 1 }), "finishing"),
        (Seen { asking: true, ..asked(1, 0) }, wipe.clone(), "finishing"),
        (asked(1, 0), None, "waiting"),
        (asked(1, -4), None, "waiting"),
        (asked(1, -5), Some(Action::NoteAsked { times: 2 }), "finishing"),
        (asked(5, -5), Some(Action::NoteAsked { times: 6 }), "finishing"),
        (Seen { asking: true, ..asked(6, 0) }, wipe, "finishing"),
        (asked(6, -4), None, "waiting"),
        (asked(6, -5), aside, "set_aside"),
    ] {
        let (decision, asked) = (decided(&seen), seen.lease.asked);
        assert_eq!((decision.action, decision.reason.word()), (action, word), "{asked:?}");
    }
    // However late it is seen to run.
    let mut late = asked(6, -9);
    late.host = HostRead::Seen(Host { state: HostState::Reinstalling, ..host(1, &of_sweep(1)) });
    assert_eq!(decided(&late).action, Some(Action::NoteWiped));
}

#[test]
fn images_that_cannot_be_listed_cost_no_ask() {
    let unlisted = Seen { images: Images::Failed("503".into()), ..asked(1, -5) };
    let decision = decided(&unlisted);
    assert_eq!((decision.action, decision.reason.word()), (None, "images_unreadable"));
    let in_vain = Seen { images: Images::Failed("503".into()), ..asked(6, -5) };
    assert_eq!(decided(&in_vain).reason.word(), "set_aside");
}
