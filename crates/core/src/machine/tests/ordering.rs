//! Hosts that are bought: only for who asks, and never twice.

use super::*;

fn asking(ordered: Option<Ordered>) -> Observed {
    let pool = candidate(|_| {}, Lease::free());
    with(pool, |seen| {
        seen.object.auto_order = true;
        seen.object.ordered = ordered;
    })
}

fn at(minutes: u64, unsent: bool) -> Ordered {
    Ordered { at: minutes_ago(minutes), unsent }
}

#[test]
fn an_order_is_noted_first_and_sent_under_the_claiming_name() {
    assert_eq!(effect(&asking(None)).action, Some(Action::NoteOrder));
    let create = Action::Create {
        name: NameClass::claiming(&fresh().marker()),
        server_type: "M2-L".into(),
        image: None,
    };
    assert_eq!(effect(&asking(Some(at(0, true)))).action, Some(create));
}

#[test]
fn an_order_whose_answer_was_lost_is_not_repeated_while_it_may_arrive() {
    // G17
    for minutes in 0..10 {
        let decision = effect(&asking(Some(at(minutes, false))));
        assert_eq!((decision.action, decision.reason), (None, Reason::Ordering));
    }
    assert_eq!(effect(&asking(Some(at(10, false)))).action, Some(Action::NoteOrder));
}

#[test]
fn nothing_is_ordered_from_a_list_that_could_not_be_had() {
    for ordered in [None, Some(at(0, true)), Some(at(60, false))] {
        let blind = Bound::Unbound(Candidates::Failed("503".into()));
        let decision = effect(&Observed { bound: blind, ..asking(ordered) });
        assert_eq!(decision.action, None);
    }
}

#[test]
fn a_host_of_the_pool_is_neither_bought_nor_taken_for_who_orders() {
    for ordered in [None, Some(at(0, false)), Some(at(0, true)), Some(at(60, false))] {
        let action = effect(&asking(ordered)).action;
        assert!(!matches!(action, Some(Action::TakeLease { .. })), "{action:?}");
    }
    for empty in [fresh(), candidate(|host| host.delivered = false, Lease::free())] {
        let action = effect(&empty).action;
        assert_eq!(action, None, "an empty pool is no reason to buy");
    }
    // Its wish was taken back, its order was not.
    let changed = with(asking(Some(at(60, false))), |seen| seen.object.auto_order = false);
    assert_eq!(effect(&changed).action, Some(Action::NoteOrder));
}

#[test]
fn an_ordered_host_is_named_once_it_is_delivered() {
    let claiming = NameClass::claiming(&fresh().marker());
    let marked = Lease { marked_at: Some(minutes_ago(1)), ..ours() };
    let starting = with_host(bound(&claiming, marked.clone()), |host| host.delivered = false);
    assert_eq!(effect(&starting).action, None);
    assert_eq!(effect(&bound(&claiming, marked)).action, Some(rename(&claiming, NAME)));
}

#[test]
fn a_machine_that_bought_its_host_buys_no_second_one() {
    let bought = with(prepared(), |seen| seen.object.ordered = Some(at(60, false)));
    let gone = Bound::To { server: server(), lease: ours(), host: HostRead::Gone };
    let decision = effect(&Observed { bound: gone, ..bought.clone() });
    assert_eq!((decision.action, decision.reason), (None, Reason::HostGone));
    let worn_out = with(bought, |seen| {
        seen.object.status.bootstrap_attempts = Some(8);
        seen.object.status.bootstrap_reboot_issued = Some(true);
    });
    assert_eq!(effect(&worn_out).action, Some(Action::StartBootstrap(server())));
}
