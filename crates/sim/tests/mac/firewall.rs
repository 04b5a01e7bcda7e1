//! The live firewall, and what others do to it.

use std::sync::Arc;
use std::time::Duration;

use applecart_mac::{Done, Next, Step, paths, pf};
use applecart_sim::mac::{Effect, Gate, Open, Packet, SimMac, VM_BRIDGE, Verdict};
use tokio::time::advance;

use super::{FaultAt, assert_converges, changed, converged, desired, postponed, run, shown};

/// Whether a VM is held back from a private network.
fn holds_back(mac: &SimMac) -> bool {
    let (source, destination) = ([192, 168, 64, 5].into(), [10, 0, 0, 1].into());
    let (interface, protocol) = (VM_BRIDGE, "tcp");
    !mac.lets_pass(Packet { interface, inbound: true, protocol, source, destination, port: 443 })
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
async fn rules_alone_that_were_flushed_come_back_and_what_is_translated_stays() {
    // V17, S24
    let mac = converged().await;
    mac.set_vms(2);
    shown(&mac, &["pfctl", "-F", "rules"]).await;
    assert!(!holds_back(&mac));
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
    assert_eq!(mac.vms(), (2, true));
    mac.set_vms(0);
    assert_converges(&mac, "flushed").await;
}

#[tokio::test(start_paused = true)]
async fn a_ruleset_without_ours_is_loaded_at_once_where_no_vm_is_translated_any_more() {
    // V17: Apple's own translations come back with the file.
    let mac = converged().await;
    mac.set_vms(2);
    load(&mac, pf::STOCK).await;
    assert!(!holds_back(&mac) && shown(&mac, &["pfctl", "-s", "nat"]).await.contains("com.apple"));
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac) && mac.vms().0 == 2);
}

/// A Mac whose `/etc/pf.conf` an update replaced, with VMs that started after its boot.
async fn replaced() -> SimMac {
    let mac = converged().await;
    mac.put_file(paths::PF_CONF, pf::STOCK);
    mac.reboot();
    advance(Duration::from_secs(5)).await;
    mac.set_vms(2);
    assert!(!holds_back(&mac), "it is open");
    mac
}

/// The rules that stand in for ours below Apple's anchor.
async fn standing_in(mac: &SimMac) -> String {
    shown(mac, &["pfctl", "-a", pf::STAND_IN, "-s", "rules"]).await
}

#[tokio::test(start_paused = true)]
async fn a_main_file_that_was_replaced_opens_nothing_while_vms_keep_it_from_being_loaded() {
    // V17, S22, S24
    let mac = replaced().await;
    for _ in 0..2 {
        assert_eq!(postponed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
        assert!(holds_back(&mac));
        assert_eq!(mac.vms(), (2, true));
    }
    let before = mac.call_counts().1;
    run(&mac, &desired()).await.unwrap();
    // Which boot a setting waits for is noted anew after a boot; the firewall is only read.
    assert_eq!(mac.call_counts().1, before, "it is not loaded again and again");
    assert!(pf::are_live(&standing_in(&mac).await));
    mac.set_vms(0);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
    assert_eq!(standing_in(&mac).await, "", "nothing stands in any more");
    assert_converges(&mac, "replaced").await;
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_is_not_told_as_live_where_a_rule_of_anothers_decides_before_it() {
    // S22, S23
    let below = replaced().await;
    below.put_file("/private/tmp/other", "pass in quick all\n");
    shown(&below, &["pfctl", "-a", "com.apple/200.Other", "-f", "/private/tmp/other"]).await;
    let main = converged().await;
    let apples = "anchor \"com.apple/*\"\nload";
    let file = pf::STOCK.replace(apples, &format!("pass in quick all\n{apples}"));
    main.put_file(paths::PF_CONF, file);
    main.reboot();
    advance(Duration::from_secs(5)).await;
    main.set_vms(2);
    for (mac, place) in [(&below, "anchor com.apple/200.Other"), (&main, paths::PF_CONF)] {
        for _ in 0..2 {
            let error = run(mac, &desired()).await.unwrap_err();
            assert_eq!(error.step, Step::Firewall);
            let said = error.explain();
            assert!(said.contains("`pass in quick all") && said.contains(place), "{said}");
            assert!(!holds_back(mac) && mac.vms() == (2, true), "{place}");
        }
    }
    shown(&below, &["pfctl", "-a", "com.apple/200.Other", "-F", "all"]).await;
    assert_eq!(postponed(&run(&below, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&below));
    // One that is evaluated after it opens nothing.
    shown(&below, &["pfctl", "-a", "com.apple/zzz", "-f", "/private/tmp/other"]).await;
    assert_eq!(postponed(&run(&below, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&below));
}

/// Another's pfctl: empties every anchor once ours is loaded below Apple's.
struct Flushes(SimMac);

impl Gate for Flushes {
    fn verdict(&self, _: &Effect) -> Verdict {
        Verdict::Pass
    }

    fn answered(&self, effect: &Effect, _: &str) {
        if effect.what.contains("com.apple/$anchor") {
            self.0.flush_firewall();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_is_told_as_live_only_if_it_is_seen_to_be() {
    // S22, S23
    let mac = replaced().await;
    mac.set_gate(Arc::new(Flushes(mac.clone())));
    let error = run(&mac, &desired()).await.unwrap_err();
    assert!(error.explain().contains("not live below Apple's anchor"), "{}", error.explain());
    assert!(!holds_back(&mac));
    mac.set_gate(Arc::new(Open));
    assert_eq!(postponed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac));
}

#[tokio::test(start_paused = true)]
async fn a_mistake_in_the_main_file_keeps_no_flushed_anchor_open() {
    // S22, V17
    let mac = converged().await;
    mac.set_vms(2);
    let broken = format!("{}pass sideways all\n{}", pf::STOCK, pf::BLOCK);
    mac.put_file(paths::PF_CONF, broken.clone());
    mac.flush_firewall();
    assert!(!holds_back(&mac));
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac) && mac.vms() == (2, true));
    assert_eq!(mac.file(paths::PF_CONF).unwrap().0, broken, "it is not ours to mend");
}

#[tokio::test(start_paused = true)]
async fn a_mistake_in_a_main_file_that_was_replaced_keeps_nothing_from_standing_in() {
    // S22, V17
    let mac = replaced().await;
    mac.put_file(paths::PF_CONF, format!("{}pass sideways all\n", pf::STOCK));
    assert_eq!(postponed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac) && mac.vms() == (2, true));
    mac.set_vms(0);
    let error = run(&mac, &desired()).await.unwrap_err();
    assert!(error.explain().contains("syntax error"), "{}", error.explain());
    assert!(holds_back(&mac), "and what stands in stays");
}

#[tokio::test(start_paused = true)]
async fn what_stands_in_goes_once_ours_is_attached_wherever_a_run_is_cut_off() {
    let reference = replaced().await;
    let first = reference.call_counts().0;
    run(&reference, &desired()).await.unwrap();
    reference.set_vms(0);
    let second = reference.call_counts().0;
    run(&reference, &desired()).await.unwrap();
    for index in first..reference.call_counts().0 {
        for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
            let what = format!("call {index} {verdict:?}");
            let mac = replaced().await;
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            let under_vms = run(&mac, &desired()).await;
            assert_eq!(under_vms.is_err(), index < second, "{what}");
            if index < second {
                run(&mac, &desired()).await.unwrap();
            }
            assert!(holds_back(&mac) && mac.vms() == (2, true), "{what}");
            mac.set_vms(0);
            let _cut = run(&mac, &desired()).await;
            assert!(holds_back(&mac), "{what}");
            mac.set_gate(Arc::new(Open));
            assert_converges(&mac, &what).await;
            assert_eq!(standing_in(&mac).await, "", "{what}");
        }
    }
}

/// A Mac with VMs and rules of an older version, which hold them back.
async fn older_rules() -> SimMac {
    let mac = converged().await;
    let older = "table <vm_sources> { 192.168.64.0/22 }\ntable <blocked_dst> { 10.0.0.0/8 }\n\
                 block drop in quick from <vm_sources> to <blocked_dst>\n";
    mac.put_file(paths::PF_ANCHOR, older);
    shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-f", paths::PF_ANCHOR]).await;
    mac.set_vms(2);
    assert!(holds_back(&mac));
    mac
}

#[tokio::test(start_paused = true)]
async fn a_reload_that_meets_another_pfctl_leaves_a_closed_host_closed() {
    // S22
    let mac = older_rules().await;
    mac.set_firewall_busy(u32::MAX);
    let error = run(&mac, &desired()).await.unwrap_err();
    assert_eq!((error.step, error.next()), (Step::Firewall, Next::TryAgain));
    assert!(holds_back(&mac), "{}", error.explain());
    mac.set_firewall_busy(0);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    for well in [1, 2, 3] {
        let mac = older_rules().await;
        mac.set_firewall_busy_after(well, u32::MAX);
        let _either = run(&mac, &desired()).await;
        assert!(holds_back(&mac), "busy after {well}");
    }
    let mac = older_rules().await;
    mac.set_firewall_busy(4);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    assert!(holds_back(&mac) && mac.vms() == (2, true));
}

#[tokio::test(start_paused = true)]
async fn an_anchor_that_was_emptied_opens_nothing_whichever_loads_meet_another_pfctl() {
    // S22: the next run comes only when the back-off ends.
    for well in 0..4 {
        let what = format!("four busy, {well} well, the others busy");
        let mac = older_rules().await;
        mac.set_firewall_busy_around(4, well, u32::MAX);
        let failed = run(&mac, &desired()).await.is_err();
        assert_eq!(failed, well < 3, "{what}");
        assert!(holds_back(&mac), "{what}");
        mac.set_firewall_busy(0);
        run(&mac, &desired()).await.unwrap();
        assert!(holds_back(&mac) && mac.vms() == (2, true), "{what}");
        assert_eq!(standing_in(&mac).await, "", "{what}: nothing stands in any more");
        mac.set_vms(0);
        assert_converges(&mac, &what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_anchor_for_which_nothing_can_stand_in_is_never_emptied() {
    // S22: the live main ruleset has no anchor of Apple's.
    let bare = async || {
        let mac = older_rules().await;
        load(&mac, "anchor \"tuist.runners\"\n").await;
        assert!(holds_back(&mac));
        mac
    };
    for well in 0..4 {
        let mac = bare().await;
        mac.set_firewall_busy_around(4, well, u32::MAX);
        let _either = run(&mac, &desired()).await;
        assert!(holds_back(&mac), "four busy, {well} well");
    }
    let mac = bare().await;
    mac.set_firewall_busy(7);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall], "tried longer");
}

#[tokio::test(start_paused = true)]
async fn a_rule_of_anothers_that_only_blocks_is_left_alone() {
    // S22: it tightens, and a host is not swapped for that.
    let mac = converged().await;
    let blocks = "block drop in quick on en0 proto tcp from any to any port 5900";
    let file = format!("{}{blocks}\n{}", pf::STOCK, pf::BLOCK);
    mac.put_file(paths::PF_CONF, file.clone());
    shown(&mac, &["pfctl", "-f", paths::PF_CONF]).await;
    let report = run(&mac, &desired()).await.unwrap();
    assert!(!report.changed() && holds_back(&mac), "{report:?}");
    assert_eq!(mac.file(paths::PF_CONF).unwrap().0, file);
}

#[tokio::test(start_paused = true)]
async fn a_quick_rule_below_apples_anchor_is_found_and_named() {
    // S22
    let mac = converged().await;
    mac.put_file("/private/tmp/other", "pass in quick all\n");
    shown(&mac, &["pfctl", "-a", "com.apple/999.Other", "-f", "/private/tmp/other"]).await;
    assert!(!holds_back(&mac), "it is evaluated before ours");
    let error = run(&mac, &desired()).await.unwrap_err();
    assert_eq!(error.step, Step::Firewall);
    let said = error.explain();
    assert!(said.contains("`pass in quick all") && said.contains("com.apple/999.Other"), "{said}");
    shown(&mac, &["pfctl", "-a", "com.apple/999.Other", "-F", "all"]).await;
    assert!(holds_back(&mac));
    assert_converges(&mac, "gone").await;
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

#[tokio::test(start_paused = true)]
async fn every_older_main_file_closes_under_running_vms_wherever_the_run_is_cut_off() {
    // B2, B19, S24: the hosts that a fleet is taken over with.
    let line = "load anchor \"tuist.runners\" from \"/etc/pf.anchors/tuist.runners\"\n";
    let unmarked = format!("anchor \"tuist.runners\"\n{line}");
    for older in [
        unmarked.clone(),
        format!("{unmarked}{unmarked}"),
        format!("table <vm_sources> persist\n{unmarked}"),
        "# BEGIN tuist.runners\nanchor \"tuist.run".to_owned(),
    ] {
        let taken_over = async || {
            let mac = converged().await;
            let rules = "table <vm_sources> persist { 192.168.64.0/22 }\n";
            mac.put_file(paths::PF_ANCHOR, rules);
            mac.put_file(paths::PF_CONF, format!("{}{older}", pf::STOCK));
            mac.reboot();
            advance(Duration::from_secs(5)).await;
            mac.set_vms(2);
            mac
        };
        let reference = taken_over().await;
        let first = reference.call_counts().0;
        run(&reference, &desired()).await.unwrap();
        for index in first..reference.call_counts().0 {
            for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
                let what = format!("{older:?}, call {index} {verdict:?}");
                let mac = taken_over().await;
                mac.set_gate(Arc::new(FaultAt { index, verdict }));
                run(&mac, &desired()).await.unwrap_err();
                mac.set_gate(Arc::new(Open));
                run(&mac, &desired()).await.unwrap();
                assert!(holds_back(&mac) && mac.vms() == (2, true), "{what}");
                mac.set_vms(0);
                assert_converges(&mac, &what).await;
            }
        }
    }
}
