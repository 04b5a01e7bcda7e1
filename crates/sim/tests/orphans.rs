//! The orphan sweep of the real provider, in a simulated world under a paused clock.

#[path = "orphans/crashes.rs"]
mod crashes;
#[path = "orphans/metrics.rs"]
mod metrics;
#[path = "orphans/observing.rs"]
mod observing;
#[path = "orphans/others.rs"]
mod others;
#[path = "orphans/stage.rs"]
mod stage;
#[path = "orphans/wipes.rs"]
mod wipes;

use std::time::Duration;

use applecart_sim::kubernetes::{Refusal, Verb};
use applecart_sim::scaleway::{self, Answer, HostSpec, Operation, Rule};

use stage::{Stage, minutes};

/// A host of each kind; the last one is the stray.
const INVENTORY: [&str; 7] = [
    "tuist-pool-1",
    "tuist-claim-pending-deadbeef-5fb0ab062ab74ef58bb89f1c9f8f1c3e",
    "macs-by-name",
    "whatever-by-id",
    "someone-elses-mac",
    "apple-silicon-romantic-x",
    "macs-stray",
];

/// Two objects, who own the third and the fourth host of [`INVENTORY`].
async fn owners(stage: &Stage) {
    stage.object("macs-by-name", None).await;
    stage.object("macs-by-id", Some(&stage.host("whatever-by-id"))).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_stray_of_an_inventory_is_returned_and_only_after_two_sightings() {
    // P21, V3
    let stage = Stage::new(&INVENTORY);
    owners(&stage).await;
    let stray = stage.host("macs-stray");
    stage.run(stage.after(minutes(14))).await;
    assert_eq!(stage.names(), INVENTORY, "seen once");
    let stage = Stage::new(&INVENTORY);
    owners(&stage).await;
    stage.run(stage.after(minutes(17))).await;
    let mut expected = INVENTORY.map(str::to_owned);
    expected[6] = format!("tuist-pool-{stray}");
    assert_eq!(stage.names(), expected);
    assert_eq!(stage.wipes(), [0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(stage.lease(&stray), (None, Some("false".to_owned())), "free, and wiped");
    assert_eq!(stage.count("scaleway_orphan_servers_reclaimed_total"), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_claim_prefix_the_stray_is_counted_and_nothing_is_changed() {
    // V3
    let stage = Stage { claim_prefix: None, ..Stage::new(&INVENTORY) };
    owners(&stage).await;
    stage.run(stage.after(minutes(60))).await;
    assert_eq!(stage.names(), INVENTORY);
    assert_eq!(stage.effects(), 0);
    assert_eq!(
        stage.count(r#"scaleway_orphan_servers{zone="fr-par-1"}"#),
        3,
        "a claim of others is none"
    );
}

/// An object takes the stray while the sweep is about to return it.
async fn adopted_meanwhile(by_id: bool) {
    let stage = Stage::new(&INVENTORY);
    owners(&stage).await;
    let stray = stage.host("macs-stray");
    let (name, server) = if by_id { ("macs-new", Some(&stray)) } else { ("macs-stray", None) };
    let adopted = async {
        stage.reached(Verb::Create, "leases.coordination.k8s.io").await;
        stage.object(name, server).await;
        stage.let_go();
        tokio::time::sleep(minutes(60)).await;
    };
    stage.run(adopted).await;
    assert_eq!(stage.names(), INVENTORY);
    assert_eq!(stage.wipes(), [0; 7]);
    assert_eq!(stage.lease(&stray).0, None, "the sweep gave its Lease up");
    assert!(stage.count(r#"applecart_sweep_refusals_total{reason="owned"}"#) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_host_adopted_since_the_scan_is_not_reclaimed() {
    // Seed 004; by name, as a claim renames first, and by id, as a take-over may find it.
    adopted_meanwhile(false).await;
    adopted_meanwhile(true).await;
}

#[tokio::test(start_paused = true)]
async fn while_objects_cannot_be_read_nothing_is_changed() {
    // S7
    let stage = Stage::new(&INVENTORY);
    owners(&stage).await;
    let unread = async {
        tokio::time::sleep(minutes(5)).await;
        let down = Refusal::new(503, "ServiceUnavailable", "not now");
        stage.fail(Verb::List, "scalewayapplesiliconmachines", Some(down));
        tokio::time::sleep(minutes(120)).await;
        assert_eq!(stage.names(), INVENTORY);
        assert_eq!(stage.effects(), 0);
        let refused = r#"applecart_sweep_refusals_total{reason="owners_unreadable"}"#;
        assert!(stage.count(refused) >= 7);
        stage.fail(Verb::List, "scalewayapplesiliconmachines", None);
        tokio::time::sleep(minutes(31)).await;
    };
    stage.run(unread).await;
    assert_eq!(stage.wipes(), [0, 0, 0, 0, 0, 0, 1], "it goes on when they can");
}

#[tokio::test(start_paused = true)]
async fn a_re_check_that_fails_ends_the_cycle() {
    let stage = Stage::new(&["macs-a", "macs-b", "macs-owned"]);
    for name in ["macs-owned", "macs-2", "macs-3"] {
        stage.object(name, None).await;
    }
    let broken = scaleway::Verdict::FailBefore(Answer::html(502));
    stage.scaleway.add_rule(Rule::next(Operation::GetServer, broken).for_ever());
    stage.run(stage.after(minutes(16))).await;
    assert_eq!(stage.effects(), 0);
    // The second stray was not even asked for: one refusal, not two.
    assert_eq!(stage.count(r#"applecart_sweep_refusals_total{reason="host_unreadable"}"#), 1);
}

#[tokio::test(start_paused = true)]
async fn when_no_object_is_left_no_host_is_believed_to_be_an_orphan() {
    // LH15
    let stage = Stage::new(&["macs-1", "macs-2", "macs-3"]);
    stage.run(stage.after(minutes(120))).await;
    assert_eq!(stage.effects(), 0);
    assert!(stage.count(r#"applecart_sweep_refusals_total{reason="nothing_owned"}"#) > 0);
}

#[tokio::test(start_paused = true)]
async fn when_most_objects_are_missing_no_host_is_believed_to_be_an_orphan() {
    // LH15
    let stage = Stage::new(&["macs-1", "macs-2", "macs-3"]);
    stage.object("macs-1", None).await;
    stage.run(stage.after(minutes(120))).await;
    assert_eq!(stage.effects(), 0);
    assert!(stage.count(r#"applecart_sweep_refusals_total{reason="too_many_orphans"}"#) > 0);
}

#[tokio::test(start_paused = true)]
async fn the_host_of_a_force_deleted_object_is_returned_after_two_sightings() {
    let stage = Stage::new(&["macs-1", "macs-2"]);
    let lost = stage.host("macs-2");
    stage.object("macs-1", None).await;
    let uid = stage.object("macs-2", Some(&lost)).await;
    stage.hold(&lost, &format!("default/macs-2/{uid}")).await;
    let deleted = async {
        tokio::time::sleep(minutes(20)).await;
        stage.delete("macs-2").await;
        tokio::time::sleep(minutes(24)).await;
        assert_eq!(stage.names(), ["macs-1", "macs-2"], "seen once, at 30 minutes");
        tokio::time::sleep(minutes(3)).await;
    };
    stage.run(deleted).await;
    assert_eq!(stage.names(), ["macs-1".to_owned(), format!("tuist-pool-{lost}")]);
    assert_eq!(stage.wipes(), [0, 1]);
    assert_eq!(stage.lease(&lost).0, None);
}

#[tokio::test(start_paused = true)]
async fn stale_markers_are_finished_even_when_nothing_may_be_reclaimed() {
    // V2, LH13: also after the last object is gone.
    let dead = "5fb0ab062ab74ef58bb89f1c9f8f1c3e";
    let stage = Stage { claim_prefix: None, ..Stage::new(&["a", "b", "c"]) };
    let cluster = stage.cluster();
    let ids = ["a", "b", "c"].map(|name| stage.host(name));
    for (id, kind) in ids.iter().zip(["claim", "release", "claim"]) {
        let cluster = if *id == ids[2] { "deadbeef" } else { &cluster };
        stage.scaleway.rename_host(id, &format!("tuist-{kind}-pending-{cluster}-{dead}"));
    }
    stage.run(stage.after(minutes(17))).await;
    let pool = |n: usize| format!("tuist-pool-{}", ids[n]);
    let foreign = format!("tuist-claim-pending-deadbeef-{dead}");
    assert_eq!(stage.names(), [pool(0), pool(1), foreign]);
    assert_eq!(stage.wipes(), [1, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_marker_whose_object_lives_is_left_to_it() {
    let stage = Stage::new(&["a"]);
    let (host, cluster) = (stage.host("a"), stage.cluster());
    let uid = stage.object("macs-1", None).await;
    let name = format!("tuist-claim-pending-{cluster}-{}", uid.replace('-', ""));
    stage.scaleway.rename_host(&host, &name);
    stage.run(stage.after(minutes(120))).await;
    assert_eq!(stage.names(), [name]);
    assert_eq!(stage.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_token_changes_nothing_and_is_told() {
    let stage = Stage::new(&INVENTORY);
    owners(&stage).await;
    let revoked = async {
        tokio::time::sleep(minutes(5)).await;
        let denied = Answer::error("denied_authentication").expect("a kind of error");
        let rule = Rule::any(scaleway::Verdict::FailBefore(denied)).for_ever();
        stage.scaleway.add_rule(rule);
        tokio::time::sleep(minutes(60)).await;
        assert_eq!(stage.names(), INVENTORY);
        assert_eq!(stage.effects(), 0);
        let unread = r#"applecart_sweep_refusals_total{reason="zone_unreadable"}"#;
        assert_eq!(stage.count(unread), 4);
        let orphans = r#"applecart_hosts{zone="fr-par-1",class="orphan"}"#;
        assert_eq!(stage.count(orphans), 1, "what cannot be seen is not gone");
        stage.scaleway.clear_rules();
        tokio::time::sleep(minutes(16)).await;
    };
    stage.run(revoked).await;
    assert_eq!(stage.wipes(), [0, 0, 0, 0, 0, 0, 1], "seen before and after: twice");
}

#[tokio::test(start_paused = true)]
async fn moved_retiring_and_quarantined_hosts_are_never_touched() {
    let names = ["macs-moved", "tuist-quarantine-1", "macs-retiring"];
    let stage = Stage::new(&names[..2]);
    for name in ["macs-1", "macs-2", "macs-3"] {
        stage.object(name, None).await;
    }
    let moved = stage.host("macs-moved");
    stage.hold(&moved, "default/macs-moved/gone").await;
    stage.annotate(&moved, "applecart.dev/moved", "true").await;
    // Ordered a moment ago: inside its licensing floor for a day.
    let fresh = HostSpec { ordered_ago: Duration::ZERO, ..HostSpec::named("macs-retiring") };
    let retiring = stage.scaleway.order_host(&fresh);
    let zone = stage.scaleway.host(&retiring).expect("a host").zone;
    stage.scaleway.client().schedule_deletion(&zone, &retiring).await.expect("scheduled");
    let before = stage.effects();
    stage.run(stage.after(minutes(120))).await;
    assert_eq!(stage.names(), names);
    assert_eq!(stage.effects(), before);
    assert_eq!(stage.lease(&moved).0.as_deref(), Some("default/macs-moved/gone"));
}

#[tokio::test(start_paused = true)]
async fn no_more_hosts_than_allowed_are_begun_in_one_cycle() {
    let stage = Stage::new(&["macs-a", "macs-b", "macs-c", "macs-d", "macs-e"]);
    for n in 1..=5 {
        stage.object(&format!("macs-{n}"), None).await;
    }
    let counted = async {
        tokio::time::sleep(minutes(16)).await;
        assert_eq!(stage.wipes().iter().sum::<u64>(), 3);
        tokio::time::sleep(minutes(15)).await;
    };
    stage.run(counted).await;
    assert_eq!(stage.wipes(), [1; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_be_renamed_while_it_is_wiped_is_finished_soon_after() {
    let stage = Stage::new(&["macs-stray", "macs-1"]);
    stage.object("macs-1", None).await;
    let stray = stage.host("macs-stray");
    // The first rename, to the marker, passes; the next three, into the pool, do not.
    let refuse = scaleway::Verdict::FailBefore(Answer::error("transient_state").expect("a kind"));
    stage.scaleway.add_rule(Rule::next(Operation::UpdateServer, refuse).nth(2).times(3));
    stage.run(stage.after(Duration::from_mins(20))).await;
    assert_eq!(stage.names()[0], format!("tuist-pool-{stray}"));
    assert_eq!(stage.wipes(), [1, 0], "and is not wiped twice");
}

#[tokio::test(start_paused = true)]
async fn what_a_vanished_object_left_goes_once_its_host_is_back_in_the_pool() {
    // C5
    let stage = Stage::new(&["macs-gone", "macs-1"]);
    stage.object("macs-1", None).await;
    let gone = stage.host("macs-gone");
    stage.belongings("macs-gone", &gone).await;
    stage.belongings("macs-1", &stage.host("macs-1")).await;
    let script = async {
        stage.after(minutes(14)).await;
        assert_eq!(stage.left_of("macs-gone").len(), 6, "its host lives by it");
        // Returned after 15 minutes, cleaned up after two more looks.
        stage.after(minutes(32)).await;
    };
    stage.run(script).await;
    assert_eq!(stage.wipes(), [1, 0]);
    assert_eq!(stage.left_of("macs-gone"), Vec::<String>::new());
    assert_eq!(stage.left_of("macs-1").len(), 6, "what lives is left alone");
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_host_that_is_gone_from_scaleway_goes() {
    let stage = Stage::new(&["macs-stray", "macs-1"]);
    stage.object("macs-1", None).await;
    let stray = stage.host("macs-stray");
    let script = async {
        stage.after(minutes(20)).await;
        assert!(stage.has_lease(&stray), "the sweep took it, and it outlives the return");
        stage.scaleway.delete_host(&stray);
        stage.after(minutes(14)).await;
        assert!(stage.has_lease(&stray), "seen once");
        stage.after(minutes(20)).await;
    };
    stage.run(script).await;
    assert!(!stage.has_lease(&stray));
}
