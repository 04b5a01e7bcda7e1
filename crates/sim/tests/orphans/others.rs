//! What one bad host, one bad read, or a zone that nothing names any more costs all the others.

use applecart_api::keys::lease as key;
use applecart_sim::scaleway::HostSpec;

use crate::stage::{Stage, minutes};

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
