//! The CRDs of Cluster API's own kinds, with the columns that `kubectl get` shows for core 1.14.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use serde_json::{Value, json};

use super::kind::{Kind, VERSION};
use super::schemas::schema;

/// Cluster, `MachineDeployment`, `MachineSet` and Machine.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        crd(Kind::Cluster, "cl", false, &cluster_columns()),
        crd(Kind::Deployment, "md", true, &deployment_columns()),
        crd(Kind::Set, "ms", true, &set_columns()),
        crd(Kind::Machine, "ma", false, &machine_columns()),
    ]
}

/// Columns that only `-o wide` shows have priority.
const WIDE: i32 = 10;

struct Column {
    name: &'static str,
    type_: &'static str,
    path: String,
    priority: i32,
}

fn column(name: &'static str, type_: &'static str, path: &str) -> Column {
    Column { name, type_, path: path.into(), priority: 0 }
}

fn condition(name: &'static str, condition: &str) -> Column {
    let path = format!(".status.conditions[?(@.type==\"{condition}\")].status");
    column(name, "string", &path)
}

fn wide(column: Column) -> Column {
    Column { priority: WIDE, ..column }
}

fn age() -> Column {
    column("Age", "date", ".metadata.creationTimestamp")
}

fn cluster_columns() -> Vec<Column> {
    vec![
        column("ClusterClass", "string", ".spec.topology.classRef.name"),
        condition("Available", "Available"),
        column("CP Desired", "integer", ".status.controlPlane.desiredReplicas"),
        wide(column("CP Current", "integer", ".status.controlPlane.replicas")),
        wide(column("CP Ready", "integer", ".status.controlPlane.readyReplicas")),
        column("CP Available", "integer", ".status.controlPlane.availableReplicas"),
        column("CP Up-to-date", "integer", ".status.controlPlane.upToDateReplicas"),
        column("W Desired", "integer", ".status.workers.desiredReplicas"),
        wide(column("W Current", "integer", ".status.workers.replicas")),
        wide(column("W Ready", "integer", ".status.workers.readyReplicas")),
        column("W Available", "integer", ".status.workers.availableReplicas"),
        column("W Up-to-date", "integer", ".status.workers.upToDateReplicas"),
        wide(condition("Paused", "Paused")),
        column("Phase", "string", ".status.phase"),
        age(),
        column("Version", "string", ".spec.topology.version"),
    ]
}

fn deployment_columns() -> Vec<Column> {
    vec![
        column("Cluster", "string", ".spec.clusterName"),
        condition("Available", "Available"),
        column("Desired", "integer", ".spec.replicas"),
        column("Current", "integer", ".status.replicas"),
        column("Ready", "integer", ".status.readyReplicas"),
        column("Available", "integer", ".status.availableReplicas"),
        column("Up-to-date", "integer", ".status.upToDateReplicas"),
        wide(condition("Paused", "Paused")),
        column("Phase", "string", ".status.phase"),
        age(),
        column("Version", "string", ".spec.template.spec.version"),
    ]
}

fn set_columns() -> Vec<Column> {
    vec![
        column("Cluster", "string", ".spec.clusterName"),
        column("Desired", "integer", ".spec.replicas"),
        column("Current", "integer", ".status.replicas"),
        column("Ready", "integer", ".status.readyReplicas"),
        column("Available", "integer", ".status.availableReplicas"),
        column("Up-to-date", "integer", ".status.upToDateReplicas"),
        wide(condition("Paused", "Paused")),
        age(),
        column("Version", "string", ".spec.template.spec.version"),
    ]
}

fn machine_columns() -> Vec<Column> {
    let address = |name, type_: &str| {
        let path = format!(".status.addresses[?(@.type==\"{type_}\")].address");
        wide(column(name, "string", &path))
    };
    vec![
        column("Cluster", "string", ".spec.clusterName"),
        column("Node Name", "string", ".status.nodeRef.name"),
        wide(column("Provider ID", "string", ".spec.providerID")),
        condition("Ready", "Ready"),
        condition("Available", "Available"),
        condition("Up-to-date", "UpToDate"),
        address("Internal-IP", "InternalIP"),
        address("External-IP", "ExternalIP"),
        wide(column("OS-Image", "string", ".status.nodeInfo.osImage")),
        wide(condition("Paused", "Paused")),
        column("Phase", "string", ".status.phase"),
        age(),
        column("Version", "string", ".spec.version"),
    ]
}

fn crd(kind: Kind, short: &str, scales: bool, columns: &[Column]) -> CustomResourceDefinition {
    let resource = kind.resource();
    let columns: Vec<Value> = columns
        .iter()
        .map(|column| {
            json!({
                "name": column.name,
                "type": column.type_,
                "jsonPath": column.path,
                "priority": column.priority,
            })
        })
        .collect();
    let mut subresources = json!({ "status": {} });
    if scales {
        subresources["scale"] = json!({
            "specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        });
    }
    let definition = json!({
        "metadata": { "name": format!("{}.{}", resource.plural, resource.group) },
        "spec": {
            "group": resource.group,
            "names": {
                "kind": resource.kind,
                "listKind": format!("{}List", resource.kind),
                "plural": resource.plural,
                "singular": resource.kind.to_lowercase(),
                "shortNames": [short],
                "categories": ["cluster-api"],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "schema": { "openAPIV3Schema": schema(kind) },
                "subresources": subresources,
                "additionalPrinterColumns": columns,
            }],
        },
    });
    serde_json::from_value(definition).expect("a CRD")
}
