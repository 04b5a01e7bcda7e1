//! What a Mac's Node says. Built from what the agent knows; from the stored one only times of
//! transitions and the conditions of others are taken over.

use std::collections::BTreeMap;

use applecart_api::keys::{TAINT_MACOS, label};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{
    Node, NodeAddress, NodeCondition, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::decide::Limits;
use super::observed::{Address, Health, Observed, Registration};

const NOT_MEASURED: &str = "assumed: this agent does not measure it";

/// The labels of every Mac, and those that this one was given.
pub(super) fn labels(registration: &Registration) -> BTreeMap<String, String> {
    let mut labels = registration.labels.clone();
    for (key, value) in [
        ("kubernetes.io/os", "darwin"),
        ("kubernetes.io/arch", "arm64"),
        ("kubernetes.io/hostname", registration.name.as_str()),
        (label::RUNTIME, label::RUNTIME_TART),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

/// A whole new Node.
pub(super) fn node(now: Timestamp, limits: &Limits, seen: &Observed) -> Node {
    let registration = &seen.registration;
    let taint = Taint {
        key: TAINT_MACOS.to_owned(),
        value: Some("true".to_owned()),
        effect: "NoSchedule".to_owned(),
        time_added: None,
    };
    Node {
        metadata: ObjectMeta {
            name: Some(registration.name.clone()),
            labels: Some(labels(registration)),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: registration.provider_id.clone(),
            taints: Some(vec![taint]),
            ..NodeSpec::default()
        }),
        status: Some(status(now, limits, seen, &NodeStatus::default())),
    }
}

/// The whole status that we assert.
pub(super) fn status(
    now: Timestamp,
    limits: &Limits,
    seen: &Observed,
    stored: &NodeStatus,
) -> NodeStatus {
    let registration = &seen.registration;
    let capacity: BTreeMap<String, Quantity> = [
        ("cpu", registration.cpu.to_string()),
        ("memory", canonical_mebibytes(registration.memory_mib)),
        ("pods", registration.pods.to_string()),
    ]
    .into_iter()
    .map(|(key, value)| (key.to_owned(), Quantity(value)))
    .collect();
    NodeStatus {
        addresses: Some(addresses(seen)),
        allocatable: Some(capacity.clone()),
        capacity: Some(capacity),
        conditions: Some(conditions(now, limits, seen, stored)),
        node_info: Some(NodeSystemInfo {
            architecture: "arm64".to_owned(),
            operating_system: "darwin".to_owned(),
            container_runtime_version: "tart".to_owned(),
            kubelet_version: registration.kubelet_version.clone(),
            ..NodeSystemInfo::default()
        }),
        ..NodeStatus::default()
    }
}

/// The form in which the API server gives it back, `14Gi` for 14336: else what is stored would
/// never equal what was sent.
fn canonical_mebibytes(mebibytes: u64) -> String {
    let units = ["Mi", "Gi", "Ti", "Pi"];
    let whole = |size: &u64| *size > 0 && size.is_multiple_of(1024);
    let divisions = std::iter::successors(Some(mebibytes), |size| whole(size).then(|| size / 1024));
    let (unit, size) = units.into_iter().zip(divisions).last().unwrap_or(("Mi", mebibytes));
    format!("{size}{unit}")
}

/// Whether two statuses differ in nothing but the time of the last heartbeat.
pub(super) fn says_the_same(wanted: &NodeStatus, stored: &NodeStatus) -> bool {
    let timeless = |status: &NodeStatus| {
        let mut conditions = status.conditions.clone().unwrap_or_default();
        for condition in &mut conditions {
            condition.last_heartbeat_time = None;
        }
        conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
        conditions
    };
    timeless(wanted) == timeless(stored)
        && wanted.addresses == stored.addresses
        && wanted.capacity == stored.capacity
        && wanted.allocatable == stored.allocatable
        && wanted.node_info == stored.node_info
}

fn addresses(seen: &Observed) -> Vec<NodeAddress> {
    let address = |type_: &str, address: String| NodeAddress { type_: type_.to_owned(), address };
    let internal = seen.address.known().map(|ip| address("InternalIP", ip.to_string()));
    let hostname = address("Hostname", seen.registration.name.clone());
    internal.into_iter().chain([hostname]).collect()
}

/// Ours, asserted; those of others, as they were.
fn conditions(
    now: Timestamp,
    limits: &Limits,
    seen: &Observed,
    stored: &NodeStatus,
) -> Vec<NodeCondition> {
    let now_time = Time(Timestamp::from_second(now.as_second()).unwrap_or(now));
    let stored = stored.conditions.as_deref().unwrap_or_default();
    let (ready, why, mut message) = readiness(now, limits, &seen.health);
    // Pods run without it, so it is said and no more (B22).
    if let Address::Awaited(said) = &seen.address {
        message = format!("{message}; waiting for the Node's address: {said}");
    }
    let ours = [
        ("Ready", ready, why, message.as_str()),
        ("MemoryPressure", false, "TartKubeletHasSufficientMemory", NOT_MEASURED),
        ("DiskPressure", false, "TartKubeletHasSufficientDisk", NOT_MEASURED),
        ("PIDPressure", false, "TartKubeletHasSufficientPID", NOT_MEASURED),
    ];
    let others = stored.iter().filter(|c| ours.iter().all(|(type_, ..)| c.type_ != *type_));
    let asserted = ours.iter().map(|(type_, status, reason, message)| {
        let status = if *status { "True" } else { "False" };
        let before = stored.iter().find(|c| c.type_ == *type_ && c.status == status);
        let since = before.and_then(|c| c.last_transition_time.clone());
        NodeCondition {
            type_: (*type_).to_owned(),
            status: status.to_owned(),
            reason: Some((*reason).to_owned()),
            message: Some((*message).to_owned()),
            last_heartbeat_time: Some(now_time.clone()),
            last_transition_time: Some(since.unwrap_or_else(|| now_time.clone())),
        }
    });
    asserted.chain(others.cloned()).collect()
}

/// One silent moment of Tart's is no reason to send Pods elsewhere; a lasting one is.
fn readiness(now: Timestamp, limits: &Limits, health: &Health) -> (bool, &'static str, String) {
    let patience = SignedDuration::try_from(limits.tart_patience).unwrap_or(SignedDuration::MAX);
    match health {
        Health::TartSilent { since, message } if now.duration_since(*since) >= patience => {
            (false, "TartUnavailable", format!("tart does not answer: {message}"))
        }
        Health::Good | Health::TartSilent { .. } => {
            (true, "TartKubeletReady", "the agent runs and tart answers".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_as_the_api_server_tells_it_back() {
        for (mebibytes, text) in [
            (14_336, "14Gi"),
            (16_384, "16Gi"),
            (1_048_576, "1Ti"),
            (15_000, "15000Mi"),
            (0, "0Mi"),
        ] {
            assert_eq!(canonical_mebibytes(mebibytes), text);
        }
    }
}
