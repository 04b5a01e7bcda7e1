//! What there is to ask for: groups, versions, resources. No I/O.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::kind::{Kind, Nature, StatusRule};
use super::registry::Registry;

/// Verbs on objects.
const VERBS: [&str; 8] =
    ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// The same on custom resources, in the order in which the real server tells them.
const CUSTOM_VERBS: [&str; 8] =
    ["delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"];
/// How many bytes of its digest tell one stored version from another.
const HASH_BYTES: usize = 8;
/// Questions, which are not stored: group, resource, kind.
const REVIEWS: [(&str, &str, &str); 2] = [
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview"),
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview"),
];
const REVIEW_VERSION: &str = "v1";

pub(crate) fn core_versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub(crate) fn groups(registry: &Registry) -> Value {
    let groups = registry.groups().into_iter().filter(|(group, _)| !group.is_empty());
    let reviews = REVIEWS.map(|(group, ..)| group_document(group, &[REVIEW_VERSION]));
    let groups: Vec<Value> =
        groups.map(|(group, versions)| group_document(group, &versions)).chain(reviews).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

pub(crate) fn group(registry: &Registry, name: &str) -> Option<Value> {
    let mut groups = registry.groups();
    groups.extend(REVIEWS.map(|(group, ..)| (group, vec![REVIEW_VERSION])));
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
    for (_, plural, name) in REVIEWS.iter().filter(|review| review.0 == group) {
        if version == REVIEW_VERSION {
            resources.push(json!({"name": plural, "singularName": name.to_lowercase(),
                "namespaced": false, "kind": name, "verbs": ["create"]}));
        }
    }
    if resources.is_empty() {
        return None;
    }
    let group_version =
        if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version,
        "resources": resources});
    // The oldest list of all does not say its version.
    if !group.is_empty() {
        list["apiVersion"] = json!("v1");
    }
    Some(list)
}

fn verbs(kind: &Kind) -> Vec<&'static str> {
    match kind.nature {
        Nature::Custom => CUSTOM_VERBS.to_vec(),
        // All of them at once cannot be deleted.
        Nature::Namespace => VERBS.into_iter().filter(|verb| *verb != "deletecollection").collect(),
        _ => VERBS.to_vec(),
    }
}

/// Which version of which kind is stored, as a digest.
fn storage_hash(kind: &Kind) -> String {
    // Events are stored in their older words, definitions in an older version.
    let group = if kind.nature == Nature::NewerEvent { "" } else { kind.group.as_str() };
    let version = match kind.nature {
        Nature::Definition => "v1beta1",
        _ => kind.versions[0].name.as_str(),
    };
    let stored = format!("{group}/{version}/{}", kind.name);
    STANDARD.encode(&Sha256::digest(stored)[..HASH_BYTES])
}

fn describe(kind: &Kind, version: usize, resources: &mut Vec<Value>) {
    let mut resource = json!({"name": kind.plural, "singularName": kind.singular,
        "namespaced": kind.namespaced, "kind": kind.name, "verbs": verbs(kind),
        "storageVersionHash": storage_hash(kind)});
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
            "binding" => ("", "", "Binding"),
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
