//! What one bad host, one bad read, or a zone that nothing names any more costs all the others.

use applecart_api::keys::lease as key;
use applecart_sim::kubernetes::{Refusal, Verb};
use applecart_sim::scaleway::{Answer, HostSpec, Operation, Rule, Verdict};

use crate::stage::{Stage, minutes};

const OBJECTS: &str = "scalewayapplesiliconmachines";

#[tokio::test(start_paused = true)]
async fn the_hosts_of_a_zone_are_swept_when_its_last_object_is_gone() {
    // C1: no flag names the zone, and no object any more; a Lease does.
    let stage = Stage::new(&["macs-1"]);
    stage.object("macs-1", Some(&stage.host("macs-1"))).await;
    let zone = "fr-par-3".parse().expect("a zone");
    let lost = HostSpec { zone, server_type: "M1-M".into(), ..HostSpec::named("macs-lost") };
    let lost = stage.scaleway.order_host(&lost);
    stage.hold(&lost, "default/macs-lost/gone").await;
    stage.annotate(&lost, key::ZONE, "fr-par-3").await;
    stage.run(stage.after(minutes(31))).await;
    assert_eq!(stage.names()[1], format!("tuist-pool-{lost}"));
    assert_eq!(stage.wipes(), [0, 1]);
    assert_eq!(stage.count(r#"applecart_hosts{zone="fr-par-3",class="pool"}"#), 1);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_cannot_be_read_keeps_no_others_from_their_turn() {
    let stage = Stage::new(&["unread", "macs-stray", "macs-1"]);
    stage.object("macs-1", Some(&stage.host("macs-1"))).await;
    let (unread, stray) = (stage.host("unread"), stage.host("macs-stray"));
    // Own markers come first, and it is one.
    let dead = "5fb0ab062ab74ef58bb89f1c9f8f1c3e";
    let marker = format!("tuist-release-pending-{}-{dead}", stage.cluster());
    stage.scaleway.rename_host(&unread, &marker);
    let denied = Answer::error("permissions_denied").expect("a kind of error");
    let rule = Rule::next(Operation::GetServer, Verdict::FailBefore(denied));
    stage.scaleway.add_rule(rule.on(&unread).for_ever());
    let script = async {
        stage.after(minutes(20)).await;
        assert_eq!(stage.names()[1], "macs-stray", "the cycle has ended");
        stage.after(minutes(14)).await;
    };
    stage.run(script).await;
    let pool = format!("tuist-pool-{stray}");
    assert_eq!(stage.names(), [marker, pool, "macs-1".to_owned()]);
    assert_eq!(stage.wipes(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn an_ownership_read_that_fails_while_leftovers_go_ends_the_cycle() {
    // S7
    let stage = Stage::new(&["tuist-pool-1", "macs-stray", "macs-1"]);
    stage.object("macs-1", Some(&stage.host("macs-1"))).await;
    stage.belongings("macs-gone", &stage.host("tuist-pool-1")).await;
    let refused = r#"applecart_sweep_refusals_total{reason="owners_unreadable"}"#;
    let script = async {
        stage.reached(Verb::Delete, "secrets").await;
        stage.fail(Verb::List, OBJECTS, Some(Refusal::new(503, "ServiceUnavailable", "not now")));
        stage.let_go();
        stage.after(minutes(1)).await;
        // The stray that is due, too, was not even asked for: one refusal, not two.
        assert_eq!(stage.count(refused), 1);
        stage.fail(Verb::List, OBJECTS, None);
        stage.after(minutes(20)).await;
    };
    stage.run(script).await;
    assert_eq!(stage.left_of("macs-gone"), Vec::<String>::new(), "it goes on in the next one");
    assert_eq!(stage.wipes(), [0, 1, 0]);
}

#[tokio::test(start_paused = true)]
async fn the_spare_lease_of_a_host_that_is_gone_is_freed_though_scaleway_denies_it() {
    // P1, S10: of a host that is deleted, Scaleway says 403 for hours.
    let stage = Stage::new(&["macs-1", "spare"]);
    let uid = stage.object("macs-1", Some(&stage.host("macs-1"))).await;
    let spare = stage.host("spare");
    stage.hold(&spare, &format!("default/macs-1/{uid}")).await;
    stage.annotate(&spare, key::ZONE, "fr-par-1").await;
    stage.scaleway.delete_host(&spare);
    let denied = Answer::error("permissions_denied").expect("a kind of error");
    let rule = Rule::next(Operation::GetServer, Verdict::FailBefore(denied));
    stage.scaleway.add_rule(rule.on(&spare).for_ever());
    let script = async {
        stage.after(minutes(14)).await;
        assert!(stage.lease(&spare).0.is_some(), "seen once");
        stage.after(minutes(2)).await;
        assert!(stage.has_lease(&spare));
        assert_eq!(stage.lease(&spare).0, None);
        // Nobody's any more, it goes like that of any host that is gone.
        stage.after(minutes(30)).await;
    };
    stage.run(script).await;
    assert!(!stage.has_lease(&spare));
}
