//! The live firewall, and what others do to it.

use applecart_mac::{Done, Step, paths, pf};
use applecart_sim::mac::{Packet, SimMac};

use super::{changed, converged, desired, postponed, run, shown};

/// Whether a VM is held back from a private network.
fn holds_back(mac: &SimMac) -> bool {
    let (source, destination) = ([192, 168, 64, 5].into(), [10, 0, 0, 1].into());
    !mac.lets_pass(Packet { inbound: true, protocol: "tcp", source, destination, port: 443 })
}

/// Loads another main ruleset, as a person might.
async fn load(mac: &SimMac, text: &str) {
    mac.put_file("/private/tmp/other", text.to_owned());
    shown(mac, &["pfctl", "-f", "/private/tmp/other"]).await;
}

#[tokio::test(start_paused = true)]
async fn a_main_ruleset_that_was_flushed_comes_back_under_running_vms() {
    // V17: what macOS added for VMs is gone with it, so a load costs nothing.
    let mac = converged().await;
    mac.set_vms(2);
    shown(&mac, &["pfctl", "-F", "all"]).await;
    assert!(!holds_back(&mac) && shown(&mac, &["pfctl", "-s", "nat"]).await.is_empty());
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac) && mac.vms().0 == 2);
}

#[tokio::test(start_paused = true)]
async fn rules_alone_that_were_flushed_wait_for_the_vms_whose_addresses_are_translated() {
    // S24
    let mac = converged().await;
    mac.set_vms(2);
    shown(&mac, &["pfctl", "-F", "rules"]).await;
    assert_eq!(postponed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert_eq!(mac.vms(), (2, true));
    mac.set_vms(0);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
}

#[tokio::test(start_paused = true)]
async fn a_quick_rule_of_anothers_before_ours_fails_loudly() {
    // S22
    let mac = converged().await;
    let quick = "pass in quick proto tcp from any to any";
    let file = format!("{}{quick}\n{}", pf::STOCK, pf::BLOCK);
    mac.put_file(paths::PF_CONF, file.clone());
    shown(&mac, &["pfctl", "-f", paths::PF_CONF]).await;
    assert!(!holds_back(&mac), "it opens everything");
    let error = run(&mac, &desired()).await.unwrap_err();
    assert_eq!(error.step, Step::Firewall);
    assert!(error.explain().contains("`pass in quick proto tcp all"), "{}", error.explain());
    assert_eq!(mac.file(paths::PF_CONF).unwrap().0, file, "it is not ours to remove");
    mac.put_file(paths::PF_CONF, format!("{}{}", pf::STOCK, pf::BLOCK));
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
}

#[tokio::test(start_paused = true)]
async fn a_quick_rule_that_is_live_alone_goes_with_a_load_but_not_under_running_vms() {
    let mac = converged().await;
    load(&mac, &format!("{}pass in quick all\n{}", pf::STOCK, pf::BLOCK)).await;
    mac.set_vms(2);
    let error = run(&mac, &desired()).await.unwrap_err();
    assert!(error.explain().contains("`pass in quick all"), "{}", error.explain());
    assert_eq!(mac.vms(), (2, true));
    mac.set_vms(0);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
}

#[tokio::test(start_paused = true)]
async fn an_anchor_point_for_some_packets_alone_is_none() {
    // S22
    let mac = converged().await;
    let narrowed =
        pf::BLOCK.replacen("anchor \"tuist.runners\"", "anchor \"tuist.runners\" on lo0", 1);
    load(&mac, &format!("{}{narrowed}", pf::STOCK)).await;
    assert!(!holds_back(&mac));
    let report = run(&mac, &desired()).await.unwrap();
    assert_eq!(changed(&report), [Step::Firewall]);
    assert!(holds_back(&mac));
    assert!(report.steps.iter().all(|step| !matches!(step.done, Done::Failed(_))));
}
