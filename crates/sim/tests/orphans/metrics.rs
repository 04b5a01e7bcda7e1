//! Metrics as Prometheus scrapes them.

use std::collections::BTreeSet;

use serde_json::json;

use crate::stage::{Stage, minutes};

/// The names of all metrics that a text describes.
fn described(text: &str) -> BTreeSet<String> {
    let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
    names.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn every_metric_is_in_the_manual_and_the_manual_has_no_other() {
    let manual = include_str!("../../../../docs/operating.md");
    let stage = Stage::new(&[]);
    let text = stage.metrics.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut documented = BTreeSet::new();
    for line in manual.lines().filter(|line| line.starts_with("| `")) {
        let name = line.trim_start_matches("| `").split(['`', '{']).next().unwrap_or_default();
        if name.starts_with("applecart_") || name.starts_with("scaleway_") {
            documented.insert(name.trim_end_matches("_total").to_owned());
        }
    }
    assert_eq!(documented, described(&text));
}

#[tokio::test(start_paused = true)]
async fn counters_exist_from_the_start() {
    // O2
    let stage = Stage::new(&[]);
    for series in [
        r#"applecart_scaleway_calls_total{operation="reinstall_server",outcome="locked"}"#,
        r#"applecart_sweep_refusals_total{reason="nothing_owned"}"#,
        r#"applecart_sweep_cycles_total{result="refused"}"#,
        "scaleway_orphan_servers_reclaimed_total",
        "applecart_leader",
    ] {
        assert_eq!(stage.count(series), 0, "{series}");
    }
}

#[tokio::test(start_paused = true)]
async fn hosts_are_counted_by_class_and_machines_by_phase_and_both_go_with_them() {
    // C1, O2, O3, P27
    let stage = Stage::new(&["tuist-pool-1", "macs-1", "macs-lost", "someone-elses-mac"]);
    stage.object("macs-1", None).await;
    let hosts = |class: &str| {
        stage.count(&format!(r#"applecart_hosts{{zone="fr-par-1",class="{class}"}}"#))
    };
    let phase = r#"applecart_machine_phase{namespace="default",machine="macs-1",phase="Pending"}"#;
    let watched = async {
        tokio::time::sleep(minutes(10)).await;
        let seen = ["pool", "claimed", "orphan", "foreign", "retiring"].map(hosts);
        assert_eq!(seen, [1, 1, 1, 1, 0]);
        assert_eq!(stage.count(r#"scaleway_orphan_servers{zone="fr-par-1"}"#), 2);
        assert_eq!(stage.count(phase), 1);
        assert_eq!(stage.count(r#"applecart_machines{phase="Pending"}"#), 1);
        let oldest = stage.count(r#"applecart_machines_oldest_seconds{phase="Pending"}"#);
        assert!((599..=601).contains(&oldest), "{oldest}");
        stage.delete("macs-1").await;
        tokio::time::sleep(minutes(6)).await;
        assert!(!stage.metrics.text().contains(r#"machine="macs-1""#), "it goes with its object");
        assert_eq!(stage.count(r#"applecart_machines{phase="Pending"}"#), 0);
        assert_eq!(stage.count(r#"applecart_machines_oldest_seconds{phase="Pending"}"#), 0);
        assert_eq!(["claimed", "orphan"].map(hosts), [0, 2]);
    };
    stage.run(watched).await;
    let calls = r#"applecart_scaleway_calls_total{operation="list_servers",outcome="ok"}"#;
    assert_eq!(stage.count(calls), 2);
    let took = r#"applecart_scaleway_call_seconds_count{operation="list_servers"}"#;
    assert_eq!(stage.count(took), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_one_to_one_is_counted_and_left_alone() {
    // P1, P7
    let stage = Stage::new(&["macs-1", "macs-1", "macs-3"]);
    stage.object("macs-1", None).await;
    stage.object("macs-2", Some(&stage.host("macs-3"))).await;
    stage.object("macs-3", Some(&stage.host("macs-3"))).await;
    stage.run(stage.after(minutes(60))).await;
    assert_eq!(stage.count(r#"applecart_duplicates{kind="object"}"#), 1);
    assert_eq!(stage.count(r#"applecart_duplicates{kind="host"}"#), 1);
    assert_eq!(stage.effects(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_mac_that_is_ready_but_not_up_to_date_is_counted_with_its_age() {
    // P30, O3
    let stage = Stage::new(&["macs-1"]);
    stage.object("macs-1", None).await;
    let watched = async {
        tokio::time::sleep(minutes(1)).await;
        assert_eq!(stage.count("applecart_machines_outdated"), 0);
        let since = |status: &str| {
            let at = stage.clock.now().to_string();
            json!([{"type": "UpToDate", "status": status, "lastTransitionTime": at}])
        };
        stage.conditions("macs-1", since("False")).await;
        tokio::time::sleep(minutes(10)).await;
        assert_eq!(stage.count("applecart_machines_outdated"), 1);
        let oldest = stage.count("applecart_machines_outdated_oldest_seconds");
        assert!((599..=601).contains(&oldest), "{oldest}");
        stage.conditions("macs-1", since("True")).await;
        tokio::time::sleep(minutes(1)).await;
        assert_eq!(stage.count("applecart_machines_outdated"), 0);
        assert_eq!(stage.count("applecart_machines_outdated_oldest_seconds"), 0);
    };
    stage.run(watched).await;
}
