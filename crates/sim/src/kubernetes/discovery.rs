//! What there is to ask for: groups, versions, resources. No I/O.

use serde_json::{Value, json};

use super::kind::{Kind, StatusRule};
use super::registry::Registry;

/// Verbs on objects.
const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn groups(registry: &Registry) -> Value {
    let groups: Vec<Value> = registry
        .groups()
        .into_iter()
        .filter(|(group, _)| !group.is_empty())
        .map(|(group, versions)| group_document(group, &versions))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let groups = registry.groups();
    let versions = groups.get(name).filter(|_| !name.is_empty())?;
    let mut document = group_document(name, versions);
    document["kind"] = json!("APIGroup");
    document["apiVersion"] = json!("v1");
    Some(document)
}

fn group_document(name: &str, versions: &[&str]) -> Value {
    let versions: Vec<Value> = versions
        .iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

/// The resources of one version of a group; `None` if there is no such version.
pub(crate) fn resources(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut resources = Vec::new();
    for kind in registry.kinds().filter(|kind| kind.group == group) {
        let at = kind.versions.iter().position(|known| known.name == version);
        if let Some(at) = at {
            describe(kind, at, &mut resources);
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    Some(json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version,
        "resources": resources}))
}

fn describe(kind: &Kind, version: usize, resources: &mut Vec<Value>) {
    let mut resource = json!({"name": kind.plural, "singularName": kind.singular,
        "namespaced": kind.namespaced, "kind": kind.name, "verbs": VERBS});
    if !kind.short_names.is_empty() {
        resource["shortNames"] = json!(kind.short_names);
    }
    if !kind.categories.is_empty() {
        resource["categories"] = json!(kind.categories);
    }
    resources.push(resource);
    let below = |name: &str, verbs: &[&str]| {
        json!({"name": format!("{}/{name}", kind.plural), "singularName": "",
            "namespaced": kind.namespaced, "kind": kind.name, "verbs": verbs})
    };
    if kind.status != StatusRule::None {
        resources.push(below("status", &["get", "patch", "update"]));
    }
    if kind.versions[version].scale.is_some() {
        let mut scale = below("scale", &["get", "patch", "update"]);
        scale["group"] = json!("autoscaling");
        scale["version"] = json!("v1");
        scale["kind"] = json!("Scale");
        resources.push(scale);
    }
    for &action in kind.versions[version].actions {
        let mut resource = below(action, &["create"]);
        let (group, version, name) = match action {
            "eviction" => ("policy", "v1", "Eviction"),
            "token" => ("authentication.k8s.io", "v1", "TokenRequest"),
            "binding" => ("", "v1", "Binding"),
            _ => ("", "", kind.name.as_str()),
        };
        if !version.is_empty() {
            resource["group"] = json!(group);
            resource["version"] = json!(version);
        }
        resource["kind"] = json!(name);
        if action == "approval" {
            resource["verbs"] = json!(["get", "patch", "update"]);
        }
        resources.push(resource);
    }
}
