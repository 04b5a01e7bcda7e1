//! Pods and the templates of Pods: what is filled in, what is refused, and their class of service.
//! No I/O.

use serde_json::{Value, json};

use super::admission::fill;
use super::naming;
use super::quantity::thousandths;
use super::refusal::Fault;

/// The two lists of containers.
const CONTAINERS: [&str; 2] = ["containers", "initContainers"];
/// The two resources that a class of service is about.
const CLASSED: [&str; 2] = ["cpu", "memory"];

/// The containers of one list of `spec`. Looked up, not indexed: that would put a null where there
/// is no list.
pub(crate) fn containers_mut<'a>(
    spec: &'a mut Value,
    list: &str,
) -> impl Iterator<Item = &'a mut Value> {
    spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten()
}

/// What a new or changed Pod says at least.
pub(crate) fn fill_in(pod: &mut Value) {
    let spec = &mut pod["spec"];
    fill_in_spec(spec);
    fill(spec, "enableServiceLinks", json!(true));
    for list in CONTAINERS {
        for container in containers_mut(spec, list) {
            request_the_limits(container);
        }
    }
}

/// What the specification of a Pod, or of a template of Pods, says at least.
pub(crate) fn fill_in_spec(spec: &mut Value) {
    fill(spec, "restartPolicy", json!("Always"));
    fill(spec, "terminationGracePeriodSeconds", json!(30));
    fill(spec, "dnsPolicy", json!("ClusterFirst"));
    fill(spec, "schedulerName", json!("default-scheduler"));
    fill(spec, "securityContext", json!({}));
    for list in CONTAINERS {
        for container in containers_mut(spec, list) {
            fill_in_container(container);
        }
    }
}

fn fill_in_container(container: &mut Value) {
    let image = container["image"].as_str().unwrap_or_default();
    let name = image.rsplit('/').next().unwrap_or_default();
    let latest = !name.contains([':', '@']) || name.ends_with(":latest");
    let policy = if latest { "Always" } else { "IfNotPresent" };
    fill(container, "imagePullPolicy", json!(policy));
    fill(container, "resources", json!({}));
    fill(container, "terminationMessagePath", json!("/dev/termination-log"));
    fill(container, "terminationMessagePolicy", json!("File"));
    let ports = container.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        fill(port, "protocol", json!("TCP"));
    }
}

/// Who says how much it may have and not how much it needs, needs that much.
fn request_the_limits(container: &mut Value) {
    let limits = container["resources"]["limits"].as_object().cloned().unwrap_or_default();
    for (resource, limit) in limits {
        fill(&mut container["resources"]["requests"], &resource, limit);
    }
}

/// How soon a Pod makes room for others: what all its containers ask for, and may have, decides.
pub(crate) fn service_class(spec: &Value) -> &'static str {
    let lists = CONTAINERS.iter().filter_map(|list| spec[*list].as_array());
    let containers: Vec<&Value> = lists.flatten().collect();
    let amount = |container: &Value, kind: &str, resource: &str| {
        let text = container["resources"][kind][resource].as_str();
        text.and_then(thousandths).filter(|amount| *amount > 0)
    };
    let asks = |container: &&Value| {
        CLASSED.iter().any(|resource| {
            ["requests", "limits"].iter().any(|kind| amount(container, kind, resource).is_some())
        })
    };
    let is_bounded = |container: &&Value| {
        CLASSED.iter().all(|resource| {
            let limit = amount(container, "limits", resource);
            limit.is_some() && limit == amount(container, "requests", resource)
        })
    };
    if !containers.iter().any(asks) {
        "BestEffort"
    } else if containers.iter().all(is_bounded) {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// What is wrong with the specification of a Pod, which stands at `path`.
pub(crate) fn faults(spec: &Value, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    if spec["containers"].as_array().is_none_or(Vec::is_empty) {
        faults.push(Fault::required(format!("{path}.containers"), ""));
    }
    let mut names: Vec<&Value> = Vec::new();
    for list in CONTAINERS {
        let containers = spec[list].as_array().into_iter().flatten();
        for (at, container) in containers.enumerate() {
            let path = format!("{path}.{list}[{at}]");
            let name = &container["name"];
            if names.contains(&name) {
                faults.push(Fault::duplicate(format!("{path}.name"), name));
            }
            names.push(name);
            faults.extend(container_faults(container, &path));
        }
    }
    for (field, choices) in [
        ("restartPolicy", ["Always", "OnFailure", "Never"].as_slice()),
        ("dnsPolicy", ["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"].as_slice()),
    ] {
        let said = &spec[field];
        if said.as_str().is_some_and(|said| !choices.contains(&said)) {
            faults.push(Fault::unsupported(format!("{path}.{field}"), said, choices));
        }
    }
    faults
}

fn container_faults(container: &Value, path: &str) -> Vec<Fault> {
    let mut faults = Vec::new();
    match container["name"].as_str().unwrap_or_default() {
        "" => faults.push(Fault::required(format!("{path}.name"), "")),
        name => faults.extend(naming::check_label_name(&format!("{path}.name"), name)),
    }
    if container["image"].as_str().is_none_or(str::is_empty) {
        faults.push(Fault::required(format!("{path}.image"), ""));
    }
    let policy = &container["imagePullPolicy"];
    let policies = ["Always", "IfNotPresent", "Never"];
    if policy.as_str().is_some_and(|policy| !policies.contains(&policy)) {
        faults.push(Fault::unsupported(format!("{path}.imagePullPolicy"), policy, &policies));
    }
    let resources = &container["resources"];
    for kind in ["limits", "requests"] {
        for (resource, amount) in resources[kind].as_object().into_iter().flatten() {
            if amount.as_str().and_then(thousandths).is_some_and(|amount| amount < 0) {
                let path = format!("{path}.resources.{kind}[{resource}]");
                faults.push(Fault::invalid(path, amount, "must be greater than or equal to 0"));
            }
        }
    }
    for (resource, request) in resources["requests"].as_object().into_iter().flatten() {
        let limit = &resources["limits"][resource];
        let read = |amount: &Value| amount.as_str().and_then(thousandths);
        if read(request).zip(read(limit)).is_some_and(|(request, limit)| request > limit) {
            let limit = limit.as_str().unwrap_or_default();
            let why = format!("must be less than or equal to {resource} limit of {limit}");
            faults.push(Fault::invalid(format!("{path}.resources.requests"), request, &why));
        }
    }
    faults
}

/// Quantities may come as numbers; one that is no quantity is told, and the body is unreadable.
pub(crate) fn read_quantities(spec: &mut Value) -> Result<(), String> {
    for list in CONTAINERS {
        for container in containers_mut(spec, list) {
            let Some(resources) = container.get_mut("resources") else { continue };
            for kind in ["limits", "requests"] {
                let amounts = resources.get_mut(kind).and_then(Value::as_object_mut);
                for amount in amounts.into_iter().flatten().map(|(_, amount)| amount) {
                    if amount.is_number() {
                        *amount = json!(amount.to_string());
                    }
                    if let Some(text) = amount.as_str().filter(|text| thousandths(text).is_none()) {
                        return Err(format!("{text:?} is no quantity"));
                    }
                }
            }
        }
    }
    Ok(())
}
