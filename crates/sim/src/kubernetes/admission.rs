//! What each built-in kind adds to an object, or refuses, before it is stored. No I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::auth::Identity;
use super::authorize::{BINDINGS, CLUSTER_BINDINGS};
use super::budget::{self, BUDGETS};
use super::kind::{Kind, Nature};
use super::pod;
use super::refusal::Fault;
use super::workload::{self, DEPLOYMENTS, REPLICA_SETS, SERVICES};
use super::write::{Part, remove};

/// The type of a Secret that holds a service account's token.
pub(crate) const TOKEN_SECRET: &str = "kubernetes.io/service-account-token";
/// Which service account such a Secret is for.
pub(crate) const TOKEN_ACCOUNT: &str = "kubernetes.io/service-account.name";

/// Where Nodes are.
const NODES: &str = "nodes";
/// What a Node says of its system, were it nothing.
const NODE_INFO: [&str; 10] = [
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

/// Fills in what the server fills in when an object is created.
pub(crate) fn on_create(kind: &Kind, who: &Identity, object: &mut Value) {
    match (kind.nature, &*kind.key) {
        (Nature::Pod, _) => new_pod(object),
        (Nature::Namespace, _) => {
            let name = object["metadata"]["name"].clone();
            object["metadata"]["labels"]["kubernetes.io/metadata.name"] = name;
            object["spec"]["finalizers"] = json!(["kubernetes"]);
            object["status"] = json!({"phase": "Active"});
        }
        (Nature::Secret, _) => encode_strings(object),
        (_, NODES) => new_node_status(object),
        (_, BUDGETS) => object["status"] = budget::new_status(),
        (_, key @ (DEPLOYMENTS | REPLICA_SETS)) => {
            workload::fill_in(key, object);
            object["status"] = workload::new_status(key);
        }
        (_, SERVICES) => {
            object["status"] = json!({});
            workload::fill_in_service(&Value::Null, object);
        }
        (_, "certificatesigningrequests.certificates.k8s.io") => {
            object["spec"]["username"] = json!(who.user);
            object["spec"]["groups"] = json!(who.groups);
        }
        _ => {}
    }
}

/// Fills in what the server fills in when an object changes, and tells what may not change.
pub(crate) fn on_update(kind: &Kind, part: Part, old: &Value, new: &mut Value) -> Vec<Fault> {
    match (kind.nature, part) {
        (Nature::Secret, _) => {
            encode_strings(new);
            if new["data"].as_object().is_some_and(serde_json::Map::is_empty) {
                remove(new, "data");
            }
            let same = old["type"] == new["type"];
            (!same).then(|| Fault::invalid("type", &new["type"], "field is immutable"))
        }
        (Nature::Pod, Part::Status) => {
            if !old["status"]["qosClass"].is_null() {
                new["status"]["qosClass"] = old["status"]["qosClass"].clone();
            }
            None
        }
        (Nature::Pod, Part::Whole) => {
            pod::fill_in(new);
            frozen_pod(old, new)
        }
        (Nature::Namespace, _) => {
            new["spec"] = old["spec"].clone();
            None
        }
        _ => match &*kind.key {
            NODES => {
                new_node_status(new);
                None
            }
            key @ (DEPLOYMENTS | REPLICA_SETS) => {
                workload::fill_in(key, new);
                workload::frozen_selector(old, new)
            }
            SERVICES => {
                workload::fill_in_service(old, new);
                None
            }
            BINDINGS | CLUSTER_BINDINGS => {
                let same = ["kind", "name"].map(|it| old["roleRef"][it] == new["roleRef"][it]);
                (same != [true, true])
                    .then(|| Fault::invalid("roleRef", &new["roleRef"], "cannot change roleRef"))
            }
            _ => None,
        },
    }
    .into_iter()
    .collect()
}

/// Says `default` in `field`, where nothing is said.
pub(crate) fn fill(object: &mut Value, field: &str, default: Value) {
    if object[field].is_null() {
        object[field] = default;
    }
}

/// A Node always says that much of itself.
fn new_node_status(node: &mut Value) {
    let status = &mut node["status"];
    if status["daemonEndpoints"]["kubeletEndpoint"].is_null() {
        status["daemonEndpoints"]["kubeletEndpoint"] = json!({"Port": 0});
    }
    for field in NODE_INFO {
        fill(&mut status["nodeInfo"], field, json!(""));
    }
}

fn new_pod(pod: &mut Value) {
    pod::fill_in(pod);
    let spec = &mut pod["spec"];
    fill(spec, "serviceAccountName", json!("default"));
    let account = spec["serviceAccountName"].clone();
    fill(spec, "serviceAccount", account);
    fill(spec, "priority", json!(0));
    fill(spec, "preemptionPolicy", json!("PreemptLowerPriority"));
    tolerate(spec);
    let class = pod::service_class(spec);
    pod["status"] = json!({"phase": "Pending", "qosClass": class});
}

/// A Pod stays five minutes on a Node that is not well, unless it says otherwise.
fn tolerate(spec: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let known = spec["tolerations"].as_array().into_iter().flatten();
        let covers = |toleration: &Value| {
            let (its, effect) = (&toleration["key"], &toleration["effect"]);
            (its.is_null() || its == key) && (effect.is_null() || effect == "NoExecute")
        };
        if known.into_iter().any(covers) {
            continue;
        }
        let toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300});
        match spec["tolerations"].as_array_mut() {
            Some(tolerations) => tolerations.push(toleration),
            None => spec["tolerations"] = json!([toleration]),
        }
    }
}

/// A Pod's specification is fixed, but for a few fields.
fn frozen_pod(old: &Value, new: &Value) -> Option<Fault> {
    let fixed = |pod: &Value| {
        let mut spec = pod["spec"].clone();
        for field in ["activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds"] {
            remove(&mut spec, field);
        }
        for list in ["containers", "initContainers"] {
            for container in pod::containers_mut(&mut spec, list) {
                remove(container, "image");
            }
        }
        spec
    };
    let why = "pod updates may not change fields other than `spec.containers[*].image`, \
               `spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` \
               (only additions to existing tolerations), `spec.terminationGracePeriodSeconds`";
    let kept = |pod: &Value| pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    let new_tolerations = kept(new);
    let dropped = kept(old).iter().any(|toleration| !new_tolerations.contains(toleration));
    (dropped || fixed(old) != fixed(new)).then(|| Fault::forbidden("spec", why))
}

/// A Secret's `stringData` becomes `data`.
fn encode_strings(secret: &mut Value) {
    fill(secret, "type", json!("Opaque"));
    let strings = secret["stringData"].take();
    remove(secret, "stringData");
    for (key, value) in strings.as_object().into_iter().flatten() {
        let text = value.as_str().unwrap_or_default();
        secret["data"][key] = json!(STANDARD.encode(text));
    }
}

/// What the server itself checks of a built-in object.
pub(crate) fn faults(kind: &Kind, object: &Value) -> Vec<Fault> {
    match (kind.nature, &*kind.key) {
        (Nature::Pod, _) => pod::faults(&object["spec"], "spec"),
        (Nature::Secret, _) if object["type"] == TOKEN_SECRET => {
            let account = object["metadata"]["annotations"][TOKEN_ACCOUNT].as_str();
            let field = format!("metadata.annotations[{TOKEN_ACCOUNT}]");
            let none = account.is_none_or(str::is_empty);
            none.then(|| Fault::required(field, "")).into_iter().collect()
        }
        (_, key @ (DEPLOYMENTS | REPLICA_SETS)) => workload::faults(key, object),
        (_, SERVICES) => workload::service_faults(object),
        (_, BUDGETS) => budget::faults(object),
        _ => Vec::new(),
    }
}

/// Where a kind has the specification of a Pod, if it has one.
fn pod_spec<'a>(kind: &Kind, object: &'a mut Value) -> Option<&'a mut Value> {
    match (kind.nature, &*kind.key) {
        (Nature::Pod, _) => object.get_mut("spec"),
        (_, DEPLOYMENTS | REPLICA_SETS) => object.pointer_mut("/spec/template/spec"),
        _ => None,
    }
}

/// Reads what a body of a built-in kind may say in more than one way, or says why it cannot.
pub(crate) fn on_read(kind: &Kind, body: &mut Value) -> Result<(), String> {
    pod_spec(kind, body).map_or(Ok(()), pod::read_quantities)
}
