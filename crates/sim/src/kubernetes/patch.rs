//! The four kinds of patch, on plain JSON. No I/O.

use json_patch::PatchOperation;
use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::schema::{List, Schema};

/// What a PATCH body asks for.
#[derive(Clone, Debug)]
pub(crate) enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// RFC 6902.
    Json(Vec<PatchOperation>),
    /// Kubernetes' own merge, with lists that have keys.
    Strategic(Value),
    /// Server-side apply: the fields of one owner; see `apply`.
    Apply(Value),
}

impl Patch {
    /// Reads a body by its content type.
    pub fn parse(content_type: &str, body: &[u8]) -> Result<Self, Refusal> {
        let media = content_type.split(';').next().unwrap_or_default().trim();
        match media {
            "application/merge-patch+json" => Ok(Self::Merge(without_nulls(read(body)?, false))),
            "application/json-patch+json" => {
                let operations: Value = read(body)?;
                if !operations.is_array() {
                    return Err(Refusal::bad_request("error decoding patch: not a list"));
                }
                serde_json::from_value(operations).map(Self::Json).map_err(|error| rejected(&error))
            }
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(read(body)?)),
            "application/apply-patch+yaml" => Ok(Self::Apply(read(body)?)),
            other => Err(Refusal::unsupported_media(format!(
                "the body of the request was in an unknown format - accepted media types include: \
                 application/json-patch+json, application/merge-patch+json, \
                 application/apply-patch+yaml, got {other:?}"
            ))),
        }
    }

    /// The object after the patch. A custom resource's `schema` knows the keys of its lists.
    pub fn apply(&self, object: &Value, schema: Option<&Schema>) -> Result<Value, Refusal> {
        let mut patched = object.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut patched, patch),
            Self::Json(operations) => {
                for operation in operations {
                    let one = [lenient(&patched, operation)];
                    json_patch::patch(&mut patched, &one).map_err(|error| rejected(&error))?;
                }
            }
            Self::Strategic(patch) | Self::Apply(patch) => {
                patched = merge(Some(patched), patch, "", schema);
            }
        }
        Ok(patched)
    }
}

/// A patch that can be read and not be done.
fn rejected(error: &dyn std::error::Error) -> Refusal {
    let message =
        format!("the server rejected our request due to an error in our request: {error}");
    Refusal { details: serde_json::json!({}), ..Refusal::new(422, "Invalid", message) }
}

/// The real server replaces what is not there by adding it.
fn lenient(object: &Value, operation: &PatchOperation) -> PatchOperation {
    match operation {
        PatchOperation::Replace(replace) if object.pointer(replace.path.as_str()).is_none() => {
            let (path, value) = (replace.path.clone(), replace.value.clone());
            PatchOperation::Add(json_patch::AddOperation { path, value })
        }
        other => other.clone(),
    }
}

fn read<T: serde::de::DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("error decoding patch: {error}")))
}

/// A merge patch whose lists hold no fields of null: a list is put there whole, and the real server
/// drops them from it. Elsewhere a null takes a field away.
fn without_nulls(value: Value, in_list: bool) -> Value {
    match value {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(_, value)| !(in_list && value.is_null()));
            kept.map(|(field, value)| (field, without_nulls(value, in_list))).collect()
        }
        Value::Array(items) => items.into_iter().map(|item| without_nulls(item, true)).collect(),
        other => other,
    }
}

/// How a list is merged.
pub(super) enum ListMerge<'a> {
    Replace,
    Set,
    ByKeys(Vec<&'a str>),
}

/// The built-in lists that merge, by the name of their field.
fn built_in_list<'a>(field: &str, items: &[Value]) -> ListMerge<'a> {
    match field {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "env"
        | "volumes"
        | "secrets"
        | "imagePullSecrets" => ListMerge::ByKeys(vec!["name"]),
        "conditions" | "addresses" => ListMerge::ByKeys(vec!["type"]),
        "ownerReferences" => ListMerge::ByKeys(vec!["uid"]),
        "volumeMounts" => ListMerge::ByKeys(vec!["mountPath"]),
        "hostAliases" => ListMerge::ByKeys(vec!["ip"]),
        "ports" if items.iter().any(|item| item.get("containerPort").is_some()) => {
            ListMerge::ByKeys(vec!["containerPort"])
        }
        "ports" => ListMerge::ByKeys(vec!["port"]),
        "finalizers" => ListMerge::Set,
        _ => ListMerge::Replace,
    }
}

pub(super) fn list_merge<'a>(
    field: &str,
    items: &[Value],
    schema: Option<&'a Schema>,
) -> ListMerge<'a> {
    match schema {
        Some(schema) => match &schema.list {
            List::Map(keys) => ListMerge::ByKeys(keys.iter().map(String::as_str).collect()),
            List::Set => ListMerge::Set,
            List::Atomic => ListMerge::Replace,
        },
        None => built_in_list(field, items),
    }
}

pub(super) fn merge(
    old: Option<Value>,
    patch: &Value,
    field: &str,
    schema: Option<&Schema>,
) -> Value {
    match (old, patch) {
        (Some(Value::Object(old)), Value::Object(patch)) => {
            Value::Object(merge_map(old, patch, schema))
        }
        (_, Value::Object(patch)) => Value::Object(merge_map(Map::new(), patch, schema)),
        (Some(Value::Array(old)), Value::Array(items)) => {
            merge_list(old, items, &list_merge(field, items, schema), schema)
        }
        (_, Value::Array(items)) => {
            merge_list(Vec::new(), items, &list_merge(field, items, schema), schema)
        }
        (_, scalar) => scalar.clone(),
    }
}

fn merge_map(
    mut old: Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<&Schema>,
) -> Map<String, Value> {
    if patch.get("$patch").and_then(Value::as_str) == Some("replace") {
        old.clear();
    }
    if let Some(keys) = patch.get("$retainKeys").and_then(Value::as_array) {
        old.retain(|key, _| keys.iter().any(|kept| kept.as_str() == Some(key)));
    }
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix("$deleteFromPrimitiveList/") {
            let gone = value.as_array().cloned().unwrap_or_default();
            if let Some(Value::Array(items)) = old.get_mut(list) {
                items.retain(|item| !gone.contains(item));
            }
        }
    }
    for (key, value) in patch {
        let deleted = value.get("$patch").and_then(Value::as_str) == Some("delete");
        if key.starts_with('$') {
            continue;
        }
        if value.is_null() || deleted {
            old.remove(key);
            continue;
        }
        let before = old.remove(key);
        let below = schema.and_then(|schema| schema.below(key));
        old.insert(key.clone(), merge(before, value, key, below));
    }
    old
}

fn merge_list(
    mut old: Vec<Value>,
    patch: &[Value],
    how: &ListMerge<'_>,
    schema: Option<&Schema>,
) -> Value {
    let replaces = patch.iter().any(|item| item.get("$patch").is_some_and(|p| p == "replace"));
    if replaces {
        old.clear();
    }
    let patch = patch.iter().filter(|item| item.get("$patch").is_none_or(|p| p != "replace"));
    match how {
        ListMerge::Replace => return Value::Array(patch.cloned().collect()),
        ListMerge::Set => {
            for item in patch {
                if !old.contains(item) {
                    old.push(item.clone());
                }
            }
        }
        ListMerge::ByKeys(keys) => {
            let below = schema.and_then(|schema| schema.items.as_deref());
            for item in patch {
                let at =
                    old.iter().position(|it| keys.iter().all(|&key| it.get(key) == item.get(key)));
                let deletes = item.get("$patch").is_some_and(|p| p == "delete");
                match at {
                    Some(at) if deletes => drop(old.remove(at)),
                    Some(at) => {
                        let before = old[at].take();
                        old[at] = merge(Some(before), item, "", below);
                    }
                    None if deletes => {}
                    None => old.push(merge(None, item, "", below)),
                }
            }
        }
    }
    Value::Array(old)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn strategic(object: &Value, patch: Value) -> Value {
        Patch::Strategic(patch).apply(object, None).unwrap()
    }

    #[test]
    fn a_strategic_merge_finds_list_items_by_their_key() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [{"name": "a", "image": "2"}, {"name": "c"}]}});
        let containers = json!([{"name": "a", "image": "2"}, {"name": "b"}, {"name": "c"}]);
        assert_eq!(strategic(&pod, patch)["spec"]["containers"], containers);
    }

    #[test]
    fn a_strategic_merge_deletes_what_it_marks() {
        let node = json!({"status": {"conditions": [{"type": "A"}, {"type": "B"}]},
            "metadata": {"finalizers": ["x", "y"], "labels": {"k": "v"}}});
        let patch = json!({"status": {"conditions": [{"type": "A", "$patch": "delete"}]},
            "metadata": {"$deleteFromPrimitiveList/finalizers": ["x"], "labels": {"k": null}}});
        let patched = strategic(&node, patch);
        assert_eq!(patched["status"]["conditions"], json!([{"type": "B"}]));
        assert_eq!(patched["metadata"], json!({"finalizers": ["y"], "labels": {}}));
    }

    #[test]
    fn lists_without_a_key_are_replaced_and_finalizers_are_a_set() {
        let pod = json!({"spec": {"tolerations": [{"key": "a"}]},
            "metadata": {"finalizers": ["x"]}});
        let patch = json!({"spec": {"tolerations": [{"key": "b"}]},
            "metadata": {"finalizers": ["x", "y"]}});
        let patched = strategic(&pod, patch);
        assert_eq!(patched["spec"]["tolerations"], json!([{"key": "b"}]));
        assert_eq!(patched["metadata"]["finalizers"], json!(["x", "y"]));
    }

    #[test]
    fn a_json_patch_whose_test_fails_changes_nothing() {
        let body = br#"[{"op": "test", "path": "/a", "value": 2}]"#;
        let patch = Patch::parse("application/json-patch+json", body).unwrap();
        assert_eq!(patch.apply(&json!({"a": 1}), None).unwrap_err().code, 422);
    }
}
