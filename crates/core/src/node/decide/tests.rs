use k8s_openapi::api::core::v1::{Node, NodeStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde_json::json;

use super::super::observed::{Address, Health, Registration};
use super::*;

const LIMITS: Limits = Limits {
    lease: Duration::from_secs(10),
    heartbeat: Duration::from_secs(30),
    reregister: Duration::from_mins(1),
    tart_patience: Duration::from_mins(1),
};

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

fn at(seconds_ago: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds_ago)
}

/// An agent that has just started on a Mac that nobody knows yet.
fn unregistered() -> Observed {
    Observed {
        registration: Registration {
            name: "mac-1".into(),
            labels: BTreeMap::from([("tuist.dev/fleet".into(), "runners".into())]),
            provider_id: Some("scw-applesilicon://fr-par-1/x".into()),
            cpu: 8,
            memory_mib: 14_336,
            pods: 3,
            kubelet_version: "v1.36.4".into(),
        },
        address: Address::Known("10.0.0.7".parse().unwrap()),
        node: NodeObject::Missing,
        missing_since: None,
        lease: LeaseObject::Missing,
        heartbeat: None,
        health: Health::Good,
    }
}

/// The Node as it was registered a while ago, all current.
fn registered() -> Observed {
    let mut seen = unregistered();
    let Some(Action::Register(mut node)) = decide(at(100), &LIMITS, &seen).action else {
        panic!("not registered")
    };
    node.metadata.resource_version = Some("3".into());
    node.metadata.uid = Some("node-uid".into());
    seen.node = NodeObject::Live(node);
    seen.heartbeat = Some(at(5));
    seen.lease = LeaseObject::Live { version: "9".into(), renewed: Some(at(5)) };
    seen
}

fn node(seen: &mut Observed) -> &mut Node {
    match &mut seen.node {
        NodeObject::Live(node) => node,
        other => panic!("{other:?}"),
    }
}

fn published(decision: &Decision) -> NodeStatus {
    match &decision.action {
        Some(Action::PublishStatus { version, status }) => {
            assert_eq!(version, "3");
            (**status).clone()
        }
        other => panic!("{other:?}"),
    }
}

fn conditions(status: &NodeStatus) -> Vec<(String, String)> {
    let all = status.conditions.clone().unwrap();
    all.into_iter().map(|c| (c.type_, c.status)).collect()
}

#[test]
fn a_mac_registers_with_everything_that_a_node_needs_from_the_start() {
    let decision = decide(now(), &LIMITS, &unregistered());
    assert_eq!(decision.reason, Reason::Registering);
    let Some(Action::Register(node)) = decision.action else { panic!() };
    let value = serde_json::to_value(&*node).unwrap();
    assert_eq!(
        value["metadata"]["labels"],
        json!({"kubernetes.io/os": "darwin", "kubernetes.io/arch": "arm64",
            "kubernetes.io/hostname": "mac-1", "tuist.dev/runtime": "tart",
            "tuist.dev/fleet": "runners"})
    );
    assert_eq!(
        value["spec"],
        json!({"providerID": "scw-applesilicon://fr-par-1/x", "taints": [
            {"key": "tuist.dev/macos", "value": "true", "effect": "NoSchedule"}]})
    );
    let status = &value["status"];
    assert_eq!(status["capacity"], json!({"cpu": "8", "memory": "14Gi", "pods": "3"}));
    assert_eq!(status["allocatable"], status["capacity"]);
    assert_eq!(status["nodeInfo"]["kubeletVersion"], "v1.36.4");
    assert_eq!(
        status["addresses"],
        json!([{"type": "InternalIP", "address": "10.0.0.7"},
            {"type": "Hostname", "address": "mac-1"}])
    );
    let all = conditions(&node.status.unwrap());
    let expected = [
        ("Ready", "True"),
        ("MemoryPressure", "False"),
        ("DiskPressure", "False"),
        ("PIDPressure", "False"),
    ];
    assert_eq!(all, expected.map(|(type_, status)| (type_.to_owned(), status.to_owned())));
}

#[test]
fn a_current_node_is_left_alone() {
    let decision = decide(now(), &LIMITS, &registered());
    assert_eq!((decision.action, decision.reason), (None, Reason::Current));
    assert_eq!(decision.wake, LIMITS.lease);
}

#[test]
fn who_changes_what_we_say_is_contradicted_but_never_in_a_hot_loop() {
    let mut seen = registered();
    let capacity = node(&mut seen).status.as_mut().unwrap().capacity.as_mut().unwrap();
    capacity.insert("memory".into(), Quantity("1Gi".into()));
    seen.heartbeat = Some(now());
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!((decision.action, decision.reason), (None, Reason::StatusDiffers));
    assert_eq!(decision.wake, LIMITS.lease / 10);
    seen.heartbeat = Some(now() - SignedDuration::try_from(LIMITS.lease / 10).unwrap());
    assert!(decide(now(), &LIMITS, &seen).action.is_some());
}

#[test]
fn a_node_that_others_call_unknown_is_ready_again_in_one_write() {
    // K17, V11: nothing of the stored status comes back.
    let mut seen = registered();
    for condition in node(&mut seen).status.as_mut().unwrap().conditions.as_mut().unwrap() {
        condition.status = "Unknown".into();
        condition.reason = Some("NodeStatusUnknown".into());
    }
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!(decision.reason, Reason::StatusDiffers);
    let status = published(&decision);
    assert_eq!(conditions(&status)[0], ("Ready".into(), "True".into()));
    assert_eq!(status.conditions.unwrap()[0].last_transition_time.as_ref().unwrap().0, now());
}

#[test]
fn a_heartbeat_is_due_after_its_interval_and_right_after_a_start() {
    for (last, reason) in [
        (Some(at(29)), Reason::Current),
        (Some(at(30)), Reason::Heartbeat),
        (None, Reason::Heartbeat),
    ] {
        let seen = Observed { heartbeat: last, ..registered() };
        let decision = decide(now(), &LIMITS, &seen);
        assert_eq!(decision.reason, reason, "{last:?}");
        if reason == Reason::Heartbeat {
            let ready = published(&decision).conditions.unwrap()[0].clone();
            assert_eq!(ready.last_heartbeat_time.unwrap().0, now());
            assert_eq!(ready.last_transition_time.unwrap().0, at(100), "since it became so");
        }
    }
}

#[test]
fn conditions_and_labels_of_others_stay() {
    let mut seen = registered();
    let foreign = json!({"type": "NetworkUnavailable", "status": "False"});
    let stored = node(&mut seen);
    let all = stored.status.as_mut().unwrap().conditions.as_mut().unwrap();
    all.push(serde_json::from_value(foreign).unwrap());
    stored.metadata.labels.as_mut().unwrap().insert("tuist.dev/other".into(), "x".into());
    assert_eq!(decide(now(), &LIMITS, &seen).reason, Reason::Current);
    let due = Observed { heartbeat: None, ..seen };
    let status = published(&decide(now(), &LIMITS, &due));
    assert_eq!(conditions(&status)[4].0, "NetworkUnavailable");
}

#[test]
fn a_label_that_differs_is_set_and_only_that_one() {
    let mut seen = registered();
    let labels = node(&mut seen).metadata.labels.as_mut().unwrap();
    labels.insert("tuist.dev/fleet".into(), "old".into());
    let decision = decide(now(), &LIMITS, &seen);
    let only = BTreeMap::from([("tuist.dev/fleet".to_owned(), "runners".to_owned())]);
    assert_eq!(decision.action, Some(Action::SetLabels(only)));
    assert_eq!(decision.reason, Reason::LabelsDiffer);
}

#[test]
fn a_provider_id_is_set_if_empty_and_never_changed() {
    // P36
    for (stored, sets) in [(None, true), (Some(""), true), (Some("other://x"), false)] {
        let mut seen = registered();
        node(&mut seen).spec.as_mut().unwrap().provider_id = stored.map(str::to_owned);
        let decision = decide(now(), &LIMITS, &seen);
        assert_eq!(decision.reason == Reason::NoProviderId, sets, "P36: {stored:?}");
        assert_eq!(matches!(decision.action, Some(Action::SetProviderId { .. })), sets);
    }
}

#[test]
fn a_deleted_node_stays_away_for_the_grace_and_then_comes_back() {
    for (since, reason) in [(59, Reason::Deleted), (60, Reason::Reregistering)] {
        let seen = Observed { missing_since: Some(at(since)), ..unregistered() };
        let decision = decide(now(), &LIMITS, &seen);
        assert_eq!(decision.reason, reason, "{since}");
        assert_eq!(decision.action.is_some(), reason == Reason::Reregistering);
    }
}

#[test]
fn the_lease_is_created_for_the_node_and_renewed_when_due() {
    let missing = Observed { lease: LeaseObject::Missing, ..registered() };
    let decision = decide(now(), &LIMITS, &missing);
    let create = Action::CreateLease { owner: "node-uid".into(), renewed: now(), seconds: 40 };
    assert_eq!((decision.action, decision.reason), (Some(create), Reason::LeaseDue));
    for (renewed, due) in [(Some(at(9)), false), (Some(at(10)), true), (None, true)] {
        let lease = LeaseObject::Live { version: "9".into(), renewed };
        let decision = decide(now(), &LIMITS, &Observed { lease, ..registered() });
        let renew = Action::RenewLease { version: "9".into(), renewed: now(), seconds: 40 };
        assert_eq!(decision.action, due.then_some(renew), "{renewed:?}");
    }
}

#[test]
fn a_lease_that_cannot_be_read_does_not_stop_the_status() {
    let lease = LeaseObject::Unknown("forbidden".into());
    let seen = Observed { lease, ..registered() };
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!(decision.reason, Reason::LeaseUnknown("forbidden".into()));
    let due = Observed { heartbeat: None, ..seen };
    assert_eq!(decide(now(), &LIMITS, &due).reason, Reason::Heartbeat);
}

#[test]
fn a_silent_api_server_changes_nothing() {
    let seen = Observed { node: NodeObject::Unknown("timed out".into()), ..registered() };
    let decision = decide(now(), &LIMITS, &seen);
    assert_eq!(decision.action, None);
    assert_eq!(decision.reason, Reason::NodeUnknown("timed out".into()));
}

#[test]
fn a_tart_that_stays_silent_makes_the_node_not_ready_and_a_hiccup_does_not() {
    for (seconds, ready) in [(59, "True"), (60, "False")] {
        let health = Health::TartSilent { since: at(seconds), message: "hung".into() };
        let seen = Observed { health, heartbeat: None, ..registered() };
        let status = published(&decide(now(), &LIMITS, &seen));
        assert_eq!(conditions(&status)[0], ("Ready".into(), ready.into()), "{seconds}");
    }
}

#[test]
fn an_address_that_is_awaited_is_replaced_by_no_other_and_told_once_it_is_there() {
    // K6, B22: the Node is there without it, and says what it waits for.
    let mut seen = registered();
    seen.address = Address::Awaited("Tailscale tells no address: NeedsLogin".into());
    let status = published(&decide(now(), &LIMITS, &seen));
    let named = json!([{"type": "Hostname", "address": "mac-1"}]);
    assert_eq!(serde_json::to_value(&status.addresses).unwrap(), named);
    let ready = status.conditions.unwrap().remove(0);
    assert_eq!((ready.type_.as_str(), ready.status.as_str()), ("Ready", "True"));
    let message = ready.message.unwrap();
    assert!(message.contains("waiting for the Node's address") && message.contains("NeedsLogin"));
    seen.address = Address::Known("100.100.1.2".parse().unwrap());
    let status = published(&decide(now(), &LIMITS, &seen));
    assert_eq!(status.addresses.unwrap()[0].address, "100.100.1.2");
    seen.address = Address::Untold;
    let status = published(&decide(now(), &LIMITS, &seen));
    assert!(!status.conditions.unwrap()[0].message.clone().unwrap().contains("waiting"));
}
