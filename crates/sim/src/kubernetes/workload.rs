//! Deployments, `ReplicaSet`s and Services: what is filled in and what is refused. No I/O.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::admission::fill;
use super::naming;
use super::pod;
use super::refusal::Fault;
use super::selector::Selector;

pub(crate) const DEPLOYMENTS: &str = "deployments.apps";
pub(crate) const REPLICA_SETS: &str = "replicasets.apps";
pub(crate) const SERVICES: &str = "services";
/// The address of a Service that has none, and its Pods have one each.
const HEADLESS: &str = "None";
/// A Service that is only another name.
const EXTERNAL: &str = "ExternalName";

/// What a Deployment or a `ReplicaSet` says at least.
pub(crate) fn fill_in(key: &str, object: &mut Value) {
    let spec = &mut object["spec"];
    fill(spec, "replicas", json!(1));
    if let Some(template) = spec.get_mut("template").and_then(|template| template.get_mut("spec")) {
        pod::fill_in_spec(template);
    }
    if key != DEPLOYMENTS {
        return;
    }
    fill(spec, "revisionHistoryLimit", json!(10));
    fill(spec, "progressDeadlineSeconds", json!(600));
    fill(spec, "strategy", json!({}));
    let strategy = &mut spec["strategy"];
    fill(strategy, "type", json!("RollingUpdate"));
    if strategy["type"] == "RollingUpdate" {
        fill(strategy, "rollingUpdate", json!({}));
        fill(&mut strategy["rollingUpdate"], "maxSurge", json!("25%"));
        fill(&mut strategy["rollingUpdate"], "maxUnavailable", json!("25%"));
    }
}

/// What a new one says before anybody looked at it.
pub(crate) fn new_status(key: &str) -> Value {
    if key == REPLICA_SETS { json!({"replicas": 0}) } else { json!({}) }
}

/// What is wrong with a Deployment or a `ReplicaSet`.
pub(crate) fn faults(key: &str, object: &Value) -> Vec<Fault> {
    let spec = &object["spec"];
    let mut faults = Vec::new();
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let why = "must be greater than or equal to 0";
        faults.push(Fault::invalid("spec.replicas", &spec["replicas"], why));
    }
    let labels = &spec["template"]["metadata"]["labels"];
    let selector = Selector::from_object(&spec["selector"]);
    if spec["selector"].is_null() {
        faults.push(Fault::required("spec.selector", ""));
    } else if selector.is_empty() {
        let why = "empty selector is invalid";
        faults.push(Fault::invalid("spec.selector", &spec["selector"], why));
    }
    if !selector.matches(&spec["template"]) {
        let why = "`selector` does not match template `labels`";
        faults.push(Fault::invalid("spec.template.metadata.labels", labels, why));
    }
    let template = &spec["template"]["spec"];
    faults.extend(pod::faults(template, "spec.template.spec"));
    let policy = &template["restartPolicy"];
    // Another one that no Pod may have either is told once.
    if policy == "OnFailure" || policy == "Never" {
        faults.push(Fault::unsupported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    if key == DEPLOYMENTS {
        faults.extend(strategy_faults(&spec["strategy"]));
    }
    faults
}

fn strategy_faults(strategy: &Value) -> Vec<Fault> {
    let rolling = &strategy["rollingUpdate"];
    match strategy["type"].as_str().unwrap_or_default() {
        "Recreate" if !rolling.is_null() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            vec![Fault::forbidden("spec.strategy.rollingUpdate", why)]
        }
        "Recreate" => Vec::new(),
        "RollingUpdate" => {
            let none = |field: &str| rolling[field] == 0 || rolling[field] == "0%";
            let stuck = none("maxSurge") && none("maxUnavailable");
            let path = "spec.strategy.rollingUpdate.maxUnavailable";
            let why = "may not be 0 when `maxSurge` is 0";
            let fault = || Fault::invalid(path, &rolling["maxUnavailable"], why);
            stuck.then(fault).into_iter().collect()
        }
        _ => {
            let choices = ["Recreate", "RollingUpdate"];
            vec![Fault::unsupported("spec.strategy.type", &strategy["type"], &choices)]
        }
    }
}

/// A selector is for ever: whose Pods they are would change with it.
pub(crate) fn frozen_selector(old: &Value, new: &Value) -> Option<Fault> {
    let (old, new) = (&old["spec"]["selector"], &new["spec"]["selector"]);
    (old != new).then(|| Fault::invalid("spec.selector", new, "field is immutable"))
}

/// What a Service says at least. `old` is what it said before, if it is not new.
pub(crate) fn fill_in_service(old: &Value, service: &mut Value) {
    let uid = service["metadata"]["uid"].as_str().unwrap_or_default().to_owned();
    fill(service, "status", json!({}));
    fill(&mut service["status"], "loadBalancer", json!({}));
    fill(service, "spec", json!({}));
    let spec = &mut service["spec"];
    fill(spec, "type", json!("ClusterIP"));
    fill(spec, "sessionAffinity", json!("None"));
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    }
    if spec["type"] == EXTERNAL {
        return;
    }
    fill(spec, "internalTrafficPolicy", json!("Cluster"));
    if spec["type"] != "ClusterIP" {
        fill(spec, "externalTrafficPolicy", json!("Cluster"));
    }
    let address = match old["spec"]["clusterIP"].as_str() {
        Some(address) => address.to_owned(),
        None => made_up_address(&uid),
    };
    fill(spec, "clusterIP", json!(address));
    let address = spec["clusterIP"].clone();
    fill(spec, "clusterIPs", json!([address]));
    // Whoever gives its addresses by hand may give them of both families.
    let by_hand = spec["clusterIP"] == HEADLESS && spec["selector"].is_null();
    let families = if by_hand { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) };
    let policy = if by_hand { "RequireDualStack" } else { "SingleStack" };
    fill(spec, "ipFamilies", families);
    fill(spec, "ipFamilyPolicy", json!(policy));
}

/// Nothing is routed here: the address is only shown.
fn made_up_address(uid: &str) -> String {
    let digest = Sha256::digest(uid);
    format!("10.96.{}.{}", digest[0], digest[1].clamp(1, 254))
}

/// What is wrong with a Service.
pub(crate) fn service_faults(service: &Value) -> Vec<Fault> {
    let spec = &service["spec"];
    let mut faults = Vec::new();
    let types = ["ClusterIP", EXTERNAL, "LoadBalancer", "NodePort"];
    if spec["type"].as_str().is_none_or(|type_| !types.contains(&type_)) {
        faults.push(Fault::unsupported("spec.type", &spec["type"], &types));
    }
    let ports = spec["ports"].as_array().map(Vec::as_slice).unwrap_or_default();
    if ports.is_empty() && spec["clusterIP"] != HEADLESS && spec["type"] != EXTERNAL {
        faults.push(Fault::required("spec.ports", ""));
    }
    if spec["type"] == EXTERNAL && spec["externalName"].as_str().is_none_or(str::is_empty) {
        faults.push(Fault::required("spec.externalName", ""));
    }
    for (at, port) in ports.iter().enumerate() {
        faults.extend(port_faults(port, &format!("spec.ports[{at}]"), ports.len() > 1));
    }
    faults
}

fn port_faults(port: &Value, path: &str, among_others: bool) -> Vec<Fault> {
    let mut faults = Vec::new();
    match port["name"].as_str().unwrap_or_default() {
        "" if among_others => faults.push(Fault::required(format!("{path}.name"), "")),
        "" => {}
        name => faults.extend(naming::check_label_name(&format!("{path}.name"), name)),
    }
    let number = |field: &str| port[field].as_i64().filter(|n| !(1..=65_535).contains(n));
    for field in ["port", "targetPort"] {
        if number(field).is_some() {
            let why = "must be between 1 and 65535, inclusive";
            faults.push(Fault::invalid(format!("{path}.{field}"), &port[field], why));
        }
    }
    let protocols = ["SCTP", "TCP", "UDP"];
    if port["protocol"].as_str().is_none_or(|protocol| !protocols.contains(&protocol)) {
        faults.push(Fault::unsupported(format!("{path}.protocol"), &port["protocol"], &protocols));
    }
    faults
}
