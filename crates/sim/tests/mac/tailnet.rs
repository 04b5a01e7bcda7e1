//! A fleet with a tailnet, and figures of its hosts.

use std::sync::Arc;

use applecart_mac::{FleetWide, HostConfig, Payload, PerHost, Step, Tailscale, paths};
use applecart_sim::mac::{AgentHealth, Open, SimMac, Verdict};

use super::{
    FaultAt, PASSWORD, TOKEN, assert_nothing_leaked, changed, converged, desired, fleet, host, run,
    shown,
};

const EXPORTER: &str = "dev.tuist.node-exporter";

/// A host of a fleet with a tailnet and figures.
fn in_tailnet(tags: &[&str], key: &str) -> HostConfig {
    let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
    let tailscale = Some(Tailscale { archive: Payload::new("tailscale 1"), tags });
    let node_exporter = Some(Payload::new("node exporter 1"));
    let fleet = FleetWide { tailscale, node_exporter, ..fleet() };
    HostConfig::new(fleet, PerHost { tailscale_key: Some(key.into()), ..host(PASSWORD) }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_joins_its_tailnet_with_its_tags_and_exports_its_figures() {
    // P12, B7, B16
    let mac = converged().await;
    let wanted = in_tailnet(&["tag:ci", "tag:mac"], TOKEN);
    let report = run(&mac, &wanted).await;
    let steps = [Step::AgentJob, Step::Tailscale, Step::NodeExporter];
    assert_eq!(changed(report.as_ref().unwrap()), steps, "the agent is told where to ask (K6)");
    let (name, tags) = mac.tailnet().unwrap();
    assert_eq!((name.as_str(), tags.as_str()), ("mac-a", "tag:ci,tag:mac"));
    assert!(mac.job_runs("dev.tuist.node-exporter"));
    assert!(!run(&mac, &wanted).await.unwrap().changed());
    assert_nothing_leaked(&mac, &[report]);
    assert_eq!(mac.file("/etc/tuist/tailscale-auth-key"), None);
    let tagged = in_tailnet(&["tag:other"], TOKEN);
    assert_eq!(changed(&run(&mac, &tagged).await.unwrap()), [Step::Tailscale]);
    assert_eq!(mac.tailnet().unwrap().1, "tag:other");
    assert_eq!(changed(&run(&SimMac::new("b", PASSWORD), &tagged).await.unwrap()).len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_the_tailnet_refuses_fails_alone_and_a_new_one_joins() {
    // B21, B22
    let mac = SimMac::new("a", PASSWORD);
    mac.set_tailnet_key("tskey-auth-new");
    let report = run(&mac, &in_tailnet(&["tag:ci"], TOKEN)).await;
    let failed = report.as_ref().unwrap().failed().unwrap();
    assert!(failed.starts_with("Tailscale: ") && failed.contains("invalid key"), "{failed}");
    let last = report.as_ref().unwrap().steps.last().map(|step| step.step);
    assert_eq!(last, Some(Step::NodeExporter), "what comes after it goes on");
    assert!(mac.agent_pid().is_some());
    assert_nothing_leaked(&mac, &[report]);
    let renewed = in_tailnet(&["tag:ci"], "tskey-auth-new");
    assert!(run(&mac, &renewed).await.unwrap().converged());
    assert!(!run(&mac, &in_tailnet(&["tag:ci"], TOKEN)).await.unwrap().changed(), "it is in");
}

#[tokio::test(start_paused = true)]
async fn a_join_cut_off_at_any_call_converges_on_the_next_run() {
    let wanted = in_tailnet(&["tag:ci"], TOKEN);
    let reference = converged().await;
    let before = reference.call_counts().0;
    run(&reference, &wanted).await.unwrap();
    for index in before..reference.call_counts().0 {
        for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
            let mac = converged().await;
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            let first = run(&mac, &wanted).await;
            assert!(!first.is_ok_and(|report| report.converged()), "call {index} {verdict:?}");
            assert!(run(&mac, &wanted).await.unwrap().converged(), "call {index} {verdict:?}");
            assert!(!run(&mac, &wanted).await.unwrap().changed(), "call {index} {verdict:?}");
            assert!(mac.job_runs("dev.tuist.node-exporter") && mac.tailnet().is_some());
        }
    }
}

/// A Mac that is in its tailnet.
async fn joined() -> (SimMac, HostConfig) {
    let (mac, wanted) = (converged().await, in_tailnet(&["tag:ci"], TOKEN));
    run(&mac, &wanted).await.unwrap();
    (mac, wanted)
}

#[tokio::test(start_paused = true)]
async fn a_host_that_the_original_joined_is_left_as_it_is() {
    let (mac, wanted) = joined().await;
    for stamp in [paths::TAILSCALE_STAMP, paths::NODE_EXPORTER_STAMP] {
        shown(&mac, &["rm", "-f", stamp]).await;
    }
    let wrapper = "#!/bin/bash\nexec /usr/local/bin/node_exporter --collector.cpu\n";
    mac.put_file(paths::NODE_EXPORTER_WRAPPER, wrapper);
    mac.set_tailnet_key("nothing is taken");
    let before = mac.call_counts().1;
    let report = run(&mac, &wanted).await.unwrap();
    assert!(!report.changed() && report.converged(), "{report:?}");
    assert_eq!(mac.call_counts().1, before, "nothing was written");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_was_lost_comes_back() {
    let both = [paths::TAILSCALE, paths::TAILSCALED].map(|path| (path, Step::Tailscale));
    for (path, step) in both.into_iter().chain([(paths::NODE_EXPORTER, Step::NodeExporter)]) {
        let (mac, wanted) = joined().await;
        let whole = mac.file(path);
        shown(&mac, &["rm", "-f", path]).await;
        assert_eq!(changed(&run(&mac, &wanted).await.unwrap()), [step], "{path}");
        assert_eq!(mac.file(path), whole);
        assert!(!run(&mac, &wanted).await.unwrap().changed(), "{path}");
    }
    let (mac, wanted) = joined().await;
    mac.put_file(paths::NODE_EXPORTER, "half");
    assert_eq!(changed(&run(&mac, &wanted).await.unwrap()), [Step::NodeExporter]);
}

#[tokio::test(start_paused = true)]
async fn a_first_join_that_was_cut_off_before_its_stamp_does_not_pass_for_the_originals() {
    // Tags that change afterwards must still reach the host.
    let (reference, wanted) = joined().await;
    let is_join = |what: &str| what.contains("--advertise-tags");
    let calls = reference.calls();
    let join = calls.iter().rfind(|call| is_join(&call.what)).unwrap().index;
    let mac = converged().await;
    mac.set_gate(Arc::new(FaultAt { index: join, verdict: Verdict::HangAfter }));
    run(&mac, &wanted).await.unwrap();
    assert!(mac.tailnet().is_some(), "it joined, and nobody knows");
    mac.set_gate(Arc::new(applecart_sim::mac::Open));
    run(&mac, &in_tailnet(&["tag:other"], TOKEN)).await.unwrap();
    assert_eq!(mac.tailnet().unwrap().1, "tag:other");
}

#[tokio::test(start_paused = true)]
async fn a_host_of_a_tailnet_keeps_the_agents_job_of_the_system_before_us() {
    // K6, S19: that one's agents were told where their address comes from, after their labels.
    let own = |config: HostConfig| {
        let id = "scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
        let provider_id = Some(id.parse().unwrap());
        let own = PerHost { provider_id, ..config.host().clone() };
        HostConfig::new(config.fleet().clone(), own).unwrap()
    };
    let labels = "    <string>--node-labels=tuist.dev/fleet=ci</string>\n";
    let theirs = own(desired())
        .agent_plist()
        .replace(labels, &format!("{labels}    <string>--node-ip-source=tailscale</string>\n"));
    let wanted = own(in_tailnet(&["tag:ci"], TOKEN));
    let mac = SimMac::new("a", PASSWORD);
    run(&mac, &wanted).await.unwrap();
    assert_eq!(mac.file(paths::AGENT_PLIST).unwrap().0, theirs);
    let before = (mac.inode(paths::AGENT_PLIST), mac.agent_pid());
    for stamp in [paths::TAILSCALE_STAMP, paths::NODE_EXPORTER_STAMP] {
        shown(&mac, &["rm", "-f", stamp]).await;
    }
    let report = run(&mac, &wanted).await.unwrap();
    assert!(!changed(&report).contains(&Step::AgentJob));
    assert_eq!((mac.inode(paths::AGENT_PLIST), mac.agent_pid()), before);
}

/// A Mac in its tailnet, cut off at the last call that is like `what` on its way to `wanted`.
async fn cut_off_at(wanted: &HostConfig, what: &str, damage: impl Fn(&SimMac)) -> SimMac {
    let (reference, _) = joined().await;
    damage(&reference);
    run(&reference, wanted).await.unwrap();
    let calls = reference.calls();
    let index = calls.iter().rfind(|call| call.what.contains(what)).unwrap().index;
    let (mac, _) = joined().await;
    damage(&mac);
    mac.set_gate(Arc::new(FaultAt { index, verdict: Verdict::HangAfter }));
    assert!(!run(&mac, wanted).await.unwrap().converged());
    mac.set_gate(Arc::new(Open));
    mac
}

#[tokio::test(start_paused = true)]
async fn tags_that_were_taken_back_after_a_cut_reach_the_tailnet_again() {
    let other = in_tailnet(&["tag:other"], TOKEN);
    let mac = cut_off_at(&other, "--advertise-tags", |_| {}).await;
    assert_eq!(mac.tailnet().unwrap().1, "tag:other", "it joined, and nobody knows");
    let before = in_tailnet(&["tag:ci"], TOKEN);
    assert!(run(&mac, &before).await.unwrap().converged());
    assert_eq!(mac.tailnet().unwrap().1, "tag:ci");
    assert!(!run(&mac, &before).await.unwrap().changed());
}

#[tokio::test(start_paused = true)]
async fn a_daemons_job_that_was_written_and_not_taken_in_is_no_success() {
    let wanted = in_tailnet(&["tag:ci"], TOKEN);
    let written = format!("writing {}", paths::TAILSCALE_PLIST);
    let damage = |mac: &SimMac| mac.put_file(paths::TAILSCALE_PLIST, "another");
    let mac = cut_off_at(&wanted, &written, damage).await;
    let print = ["launchctl", "print", "system/com.tailscale.tailscaled"];
    let before = shown(&mac, &print).await;
    assert_eq!(changed(&run(&mac, &wanted).await.unwrap()), [Step::Tailscale]);
    assert_ne!(shown(&mac, &print).await, before, "it is another process");
}

#[tokio::test(start_paused = true)]
async fn an_exporter_that_exports_nothing_is_no_success() {
    // S23: its wrapper lives for ten seconds without an address.
    let mac = SimMac::new("a", PASSWORD);
    mac.set_tailnet_key("tskey-auth-new");
    let failed = run(&mac, &in_tailnet(&["tag:ci"], TOKEN)).await.unwrap().failed().unwrap();
    assert!(mac.job_runs(EXPORTER), "its wrapper does");
    assert!(failed.contains("node exporter: applied, but the node exporter does not"), "{failed}");
    let wanted = in_tailnet(&["tag:ci"], "tskey-auth-new");
    assert!(run(&mac, &wanted).await.unwrap().converged());

    let (mac, wanted) = (converged().await, in_tailnet(&["tag:ci"], TOKEN));
    mac.set_job_health(EXPORTER, AgentHealth::CrashLoops);
    let failed = run(&mac, &wanted).await.unwrap().failed().unwrap();
    assert!(failed.contains("the node exporter does not stay up"), "{failed}");
    mac.set_job_health(EXPORTER, AgentHealth::Runs);
    assert!(run(&mac, &wanted).await.unwrap().converged());
    assert!(!run(&mac, &wanted).await.unwrap().changed());
}
