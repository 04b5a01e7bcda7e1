//! Schemas for `kubectl explain` and for kubectl's checks before it applies: `OpenAPI` 3, one
//! document for each version of a group. No I/O.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::document::VERSION;
use super::kind::{Kind, Shape};
use super::registry::Registry;

/// What the fields of every object mean, in the real server's words.
const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an \
    object. Servers should convert recognized schemas to the latest internal value, and may reject \
    unrecognized values. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents. \
    Servers may infer this from the endpoint the client submits requests to. Cannot be updated. In \
    CamelCase. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/\
    api-conventions.md#types-kinds";
const METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

/// Which documents there are.
pub(crate) fn index(registry: &Registry) -> Value {
    let mut paths = Map::new();
    for (group, versions) in registry.groups() {
        for version in versions {
            let path = if group.is_empty() {
                format!("api/{version}")
            } else {
                format!("apis/{group}/{version}")
            };
            let url = format!("/openapi/v3/{path}");
            paths.insert(path, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

/// The document of one version of a group; `None` if there is no such version.
pub(crate) fn document(registry: &Registry, group: &str, version: &str) -> Option<Value> {
    let mut generator = SchemaSettings::openapi3().into_generator();
    let mut paths = Map::new();
    let mut custom = Map::new();
    for kind in registry.kinds().filter(|kind| kind.group == group) {
        let Some(at) = kind.versions.iter().position(|known| known.name == version) else {
            continue;
        };
        add_paths(kind, at, &mut paths);
        match &kind.versions[at].shape {
            Shape::Typed { describe, .. } => drop(describe(&mut generator)),
            Shape::Structural(structural) => {
                let schema = describe_custom(&mut generator, kind, at, &structural.document);
                let backwards: Vec<&str> = group.rsplit('.').collect();
                custom.insert(format!("{}.{version}.{}", backwards.join("."), kind.name), schema);
            }
        }
    }
    if paths.is_empty() {
        return None;
    }
    let mut schemas = generator.take_definitions(true);
    for kind in registry.kinds().filter(|kind| kind.group == group) {
        mark_built_in(kind, &mut schemas);
    }
    schemas.extend(custom);
    Some(json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": VERSION},
        "paths": paths, "components": {"schemas": schemas}}))
}

fn identity(kind: &Kind, version: usize) -> Value {
    json!({"group": kind.group, "version": kind.versions[version].name, "kind": kind.name})
}

/// A built-in kind's schema says which kind it is; its name ends in the kind's own.
fn mark_built_in(kind: &Arc<Kind>, schemas: &mut Map<String, Value>) {
    let ending = format!(".{}.{}", kind.versions[0].name, kind.name);
    for (name, schema) in schemas.iter_mut() {
        if name.ends_with(&ending) {
            schema["x-kubernetes-group-version-kind"] = json!([identity(kind, 0)]);
        }
    }
}

/// A schema whose limits are written as they were: 9, not 9.0.
fn whole_numbers(schema: Value) -> Value {
    match schema {
        Value::Object(map) => {
            map.into_iter().map(|(key, below)| (key, whole_numbers(below))).collect()
        }
        Value::Array(items) => items.into_iter().map(whole_numbers).collect(),
        Value::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() && float.fract() == 0.0 => {
                let whole = format!("{float:.0}").parse::<i64>();
                whole.map_or(Value::Number(number), |whole| json!(whole))
            }
            _ => Value::Number(number),
        },
        other => other,
    }
}

fn describe_custom(
    generator: &mut SchemaGenerator,
    kind: &Kind,
    version: usize,
    document: &Value,
) -> Value {
    let mut schema = whole_numbers(document.clone());
    schema["x-kubernetes-group-version-kind"] = json!([identity(kind, version)]);
    let text = |about: &str| json!({"type": "string", "description": about});
    schema["properties"]["apiVersion"] = text(API_VERSION);
    schema["properties"]["kind"] = text(KIND);
    schema["properties"]["metadata"] = json!({"allOf": [generator.subschema_for::<ObjectMeta>()],
            "description": METADATA});
    schema
}

/// The operations of a kind, as far as kubectl looks at them.
fn add_paths(kind: &Kind, version: usize, paths: &mut Map<String, Value>) {
    let root = match kind.group.as_str() {
        "" => format!("/api/{}", kind.versions[version].name),
        group => format!("/apis/{group}/{}", kind.versions[version].name),
    };
    let root = if kind.namespaced { format!("{root}/namespaces/{{namespace}}") } else { root };
    let collection = format!("{root}/{}", kind.plural);
    let item = format!("{collection}/{{name}}");
    let operation = |action: &str| {
        json!({"x-kubernetes-action": action, "parameters": parameters(),
            "x-kubernetes-group-version-kind": identity(kind, version),
            "responses": {"200": {"description": "OK"}}})
    };
    paths.insert(collection, json!({"get": operation("list"), "post": operation("post")}));
    let one = json!({"get": operation("get"), "put": operation("put"),
        "patch": operation("patch"), "delete": operation("delete")});
    paths.insert(item, one);
}

fn parameters() -> Value {
    let query = |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string"}});
    json!([query("dryRun"), query("fieldManager"), query("fieldValidation")])
}
