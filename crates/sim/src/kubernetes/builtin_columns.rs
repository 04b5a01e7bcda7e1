//! What `kubectl get` shows of the built-in kinds.

use serde_json::{Value, json};

use super::column::{Cell, Column, age, field, name, path};

pub(crate) fn created() -> Vec<Column> {
    let path = path(".metadata.creationTimestamp");
    vec![name(), Column::new("Created At", "date", Cell::Path(path))]
}

pub(crate) fn bindings() -> Vec<Column> {
    let role = |binding: &Value| {
        let role = &binding["roleRef"];
        json!(format!("{}/{}", text(role, "kind"), text(role, "name")))
    };
    vec![name(), Column::computed("Role", role), age()]
}

pub(crate) fn namespaces() -> Vec<Column> {
    vec![name(), field("Status", ".status.phase"), age()]
}

pub(crate) fn nodes() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Status", node_status),
        Column::computed("Roles", node_roles),
        age(),
        field("Version", ".status.nodeInfo.kubeletVersion"),
        Column::computed("Internal-IP", |node| node_address(node, "InternalIP")).wide(),
        Column::computed("External-IP", |node| node_address(node, "ExternalIP")).wide(),
        Column::computed("OS-Image", |node| node_info(node, "osImage")).wide(),
        Column::computed("Kernel-Version", |node| node_info(node, "kernelVersion")).wide(),
        Column::computed("Container-Runtime", |node| node_info(node, "containerRuntimeVersion"))
            .wide(),
    ]
}

pub(crate) fn pods() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Ready", pod_ready),
        Column::computed("Status", pod_status),
        Column::computed("Restarts", pod_restarts),
        age(),
        Column::computed("IP", |pod| or_none(&pod["status"]["podIP"])).wide(),
        Column::computed("Node", |pod| or_none(&pod["spec"]["nodeName"])).wide(),
        Column::computed("Nominated Node", |pod| or_none(&pod["status"]["nominatedNodeName"]))
            .wide(),
        Column::computed("Readiness Gates", |_| json!("<none>")).wide(),
    ]
}

pub(crate) fn secrets() -> Vec<Column> {
    vec![name(), field("Type", ".type"), Column::computed("Data", data_count), age()]
}

pub(crate) fn config_maps() -> Vec<Column> {
    vec![name(), Column::computed("Data", data_count), age()]
}

pub(crate) fn service_accounts() -> Vec<Column> {
    vec![name(), age()]
}

pub(crate) fn services() -> Vec<Column> {
    let ports = |service: &Value| {
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let ports: Vec<String> = ports
            .map(|port| {
                let protocol = port["protocol"].as_str().unwrap_or("TCP");
                format!("{}/{protocol}", port["port"])
            })
            .collect();
        if ports.is_empty() { json!("<none>") } else { json!(ports.join(",")) }
    };
    let kind = |service: &Value| json!(service["spec"]["type"].as_str().unwrap_or_default());
    let selector = |service: &Value| {
        let labels = service["spec"]["selector"].as_object().into_iter().flatten();
        let text = |(key, value): (&String, &Value)| {
            format!("{key}={}", value.as_str().unwrap_or_default())
        };
        let labels: Vec<String> = labels.map(text).collect();
        if labels.is_empty() { json!("<none>") } else { json!(labels.join(",")) }
    };
    vec![
        name(),
        Column::computed("Type", kind),
        Column::computed("Cluster-IP", |service| or_none(&service["spec"]["clusterIP"])),
        Column::computed("External-IP", |_| json!("<none>")),
        Column::computed("Port(s)", ports),
        age(),
        Column::computed("Selector", selector).wide(),
    ]
}

pub(crate) fn events() -> Vec<Column> {
    let object = |event: &Value| {
        let about = &event["involvedObject"];
        json!(format!("{}/{}", text(about, "kind").to_lowercase(), text(about, "name")))
    };
    let source = |event: &Value| {
        let source = &event["source"];
        let component = text(source, "component");
        json!(if component.is_empty() { text(event, "reportingComponent") } else { component })
    };
    let count = |event: &Value| json!(event["count"].as_i64().unwrap_or(1));
    vec![
        Column::new("Last Seen", "string", last_seen()),
        field("Type", ".type"),
        field("Reason", ".reason"),
        Column::computed("Object", object),
        field("Subobject", ".involvedObject.fieldPath").wide(),
        Column::computed("Source", source).wide(),
        field("Message", ".message"),
        Column::new("First Seen", "string", first_seen()).wide(),
        Column::new("Count", "integer", Cell::Computed(count)).wide(),
        name().wide(),
    ]
}

pub(crate) fn leases() -> Vec<Column> {
    vec![name(), field("Holder", ".spec.holderIdentity"), age()]
}

pub(crate) fn deployments() -> Vec<Column> {
    let ready = |deployment: &Value| {
        let ready = number(&deployment["status"]["readyReplicas"]);
        json!(format!("{ready}/{}", number(&deployment["spec"]["replicas"])))
    };
    let status = |title: &str, cell| Column::new(title, "string", Cell::Computed(cell));
    vec![
        name(),
        Column::computed("Ready", ready),
        status("Up-to-date", |d| json!(number(&d["status"]["updatedReplicas"]))),
        status("Available", |d| json!(number(&d["status"]["availableReplicas"]))),
        age(),
    ]
}

pub(crate) fn replica_sets() -> Vec<Column> {
    let integer = |title: &str, cell| Column::new(title, "integer", Cell::Computed(cell));
    vec![
        name(),
        integer("Desired", |set| json!(number(&set["spec"]["replicas"]))),
        integer("Current", |set| json!(number(&set["status"]["replicas"]))),
        integer("Ready", |set| json!(number(&set["status"]["readyReplicas"]))),
        age(),
    ]
}

pub(crate) fn budgets() -> Vec<Column> {
    vec![
        name(),
        Column::computed("Min Available", |budget| limit(&budget["spec"]["minAvailable"])),
        Column::computed("Max Unavailable", |budget| limit(&budget["spec"]["maxUnavailable"])),
        Column::new(
            "Allowed Disruptions",
            "integer",
            Cell::Computed(|budget| json!(number(&budget["status"]["disruptionsAllowed"]))),
        ),
        age(),
    ]
}

pub(crate) fn signing_requests() -> Vec<Column> {
    let condition = |request: &Value| {
        let conditions = request["status"]["conditions"].as_array().into_iter().flatten();
        let mut words: Vec<&str> = conditions.map(|condition| text(condition, "type")).collect();
        if words.is_empty() {
            words.push("Pending");
        }
        if request["status"]["certificate"].is_string() {
            words.push("Issued");
        }
        json!(words.join(","))
    };
    vec![
        name(),
        age(),
        field("SignerName", ".spec.signerName"),
        field("Requestor", ".spec.username"),
        Column::computed("Condition", condition),
    ]
}

fn last_seen() -> Cell {
    let paths = [".series.lastObservedTime", ".lastTimestamp", ".eventTime"];
    Cell::Age(paths.map(path).to_vec())
}

fn first_seen() -> Cell {
    Cell::Age([".firstTimestamp", ".eventTime"].map(path).to_vec())
}

fn limit(value: &Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object[key].as_str().unwrap_or_default()
}

fn number(value: &Value) -> i64 {
    value.as_i64().unwrap_or_default()
}

fn data_count(object: &Value) -> Value {
    json!(object["data"].as_object().map_or(0, serde_json::Map::len))
}

fn or_none(value: &Value) -> Value {
    json!(value.as_str().unwrap_or("<none>"))
}

fn node_status(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions
        .filter(|condition| text(condition, "type") == "Ready")
        .map(|condition| if text(condition, "status") == "True" { "Ready" } else { "NotReady" })
        .next()
        .unwrap_or("Unknown");
    let cordoned = node["spec"]["unschedulable"] == json!(true);
    json!(if cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() })
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let roles: Vec<&str> =
        labels.filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/")).collect();
    json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") })
}

fn node_info(node: &Value, field: &str) -> Value {
    let text = text(&node["status"]["nodeInfo"], field);
    json!(if text.is_empty() { "<unknown>" } else { text })
}

fn node_address(node: &Value, kind: &str) -> Value {
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let found = addresses.find(|address| text(address, "type") == kind);
    json!(found.map_or("<none>", |address| text(address, "address")))
}

fn container_statuses(pod: &Value) -> impl Iterator<Item = &Value> {
    pod["status"]["containerStatuses"].as_array().into_iter().flatten()
}

fn pod_ready(pod: &Value) -> Value {
    let ready = container_statuses(pod).filter(|status| status["ready"] == json!(true)).count();
    let all = pod["spec"]["containers"].as_array().map_or(0, Vec::len);
    json!(format!("{ready}/{all}"))
}

fn pod_restarts(pod: &Value) -> Value {
    json!(
        container_statuses(pod)
            .map(|status| number(&status["restartCount"]))
            .sum::<i64>()
            .to_string()
    )
}

/// The most telling word about a Pod, found as the real printer finds it.
fn pod_status(pod: &Value) -> Value {
    if !pod["metadata"]["deletionTimestamp"].is_null() {
        return json!("Terminating");
    }
    let status = &pod["status"];
    let mut word = text(status, "reason");
    for container in container_statuses(pod) {
        let state = &container["state"];
        let waiting = text(&state["waiting"], "reason");
        let ended = text(&state["terminated"], "reason");
        word = [waiting, ended].into_iter().find(|word| !word.is_empty()).unwrap_or(word);
    }
    json!(if word.is_empty() { text(status, "phase") } else { word })
}
