//! What people are told.

use super::*;

#[test]
fn nothing_is_written_before_a_machine_owns_the_object() {
    let seen = with(fresh(), |seen| seen.object.owned_by_machine = false);
    assert_eq!(decide(now(), &seen, &Limits::default()).action, None);
}

#[test]
fn provisioned_is_told_with_the_provider_id_and_never_taken_back() {
    // S13
    let ready = with(bootstrapped(), |seen| seen.node = Some(node()));
    let limits = Limits::default();
    let told = status::status(now(), &ready, &decide(now(), &ready, &limits));
    assert_eq!(told.initialization.unwrap().provisioned, Some(true));
    assert_eq!((told.ready, told.phase.as_deref()), (Some(true), Some("Ready")));
    let lost = with(ready, |seen| {
        seen.object.status = told;
        seen.node = None;
    });
    let told = status::status(now(), &lost, &decide(now(), &lost, &limits));
    assert_eq!(told.initialization.unwrap().provisioned, Some(true));
    assert_eq!(told.ready, Some(false));
    assert!(!is_true(&told.conditions, "Ready"));
}

#[test]
fn pool_counts_say_exactly_why() {
    // V4
    let counts =
        PoolCounts { pool: 12, wrong_type: 7, not_ready: 3, not_wiped: 2, ..PoolCounts::default() };
    assert_eq!(
        Reason::NoAvailableHost(counts).to_string(),
        "no available host: 12 in pool: 7 wrong type, 3 not ready, 2 not wiped"
    );
}

#[test]
fn a_mac_that_nobody_looked_at_stays_as_it_was_told() {
    // S10: paused, or Scaleway silent: nothing is known to have changed.
    let ready = with(bootstrapped(), |seen| seen.node = Some(node()));
    let limits = Limits::default();
    let told = status::status(now(), &ready, &decide(now(), &ready, &limits));
    let failed = HostRead::Failed("503".into());
    let unread = Bound::To { server: server(), lease: ours(), host: failed };
    let silent = Observed { bound: unread, node: None, ..ready.clone() };
    let paused = with(Observed { bound: Bound::NotRead(None), node: None, ..ready }, |seen| {
        seen.object.paused = Some(Pause::Cluster);
    });
    for blind in [silent, paused] {
        let blind = with(blind, |seen| seen.object.status = told.clone());
        let now_told = status::status(now(), &blind, &decide(now(), &blind, &limits));
        assert_eq!(now_told.ready, Some(true));
        assert_eq!(now_told.phase.as_deref(), Some("Ready"));
        assert_eq!(now_told.node_name, told.node_name);
        assert!(is_true(&now_told.conditions, "Ready"));
        assert_ne!(now_told.last_reason, told.last_reason);
    }
}

#[test]
fn every_reason_word_is_explained_to_people() {
    let page = include_str!("../../../../../docs/states.md");
    let reasons = include_str!("../reason.rs");
    let words = reasons.split("=> \"").skip(1).filter_map(|rest| rest.split_once("\",\n"));
    let words: Vec<&str> = words
        .map(|(word, _)| word)
        .filter(|word| !word.contains(' ') && word.starts_with(char::is_uppercase))
        .collect();
    assert!(words.len() > 25, "{words:?}");
    for word in words {
        assert!(page.contains(&format!("| `{word}` |")), "docs/states.md does not explain {word}");
    }
}
