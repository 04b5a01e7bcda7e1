//! Objects come to be, or are refused.

use serde_json::{Value, json};

use super::{MERGE, Story, around, delete, get, patch, post};
use crate::conformance::kinds::Kind;

/// A uid that no object has.
const NO_UID: &str = "00000000-0000-4000-8000-000000000000";

/// What can be said of a new object.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let mut stories = names(kind);
    stories.extend(bodies(kind));
    stories
}

fn with(kind: &Kind, field: &str, value: Value) -> Value {
    let mut object = kind.object("one");
    object[field] = value;
    object
}

fn with_metadata(kind: &Kind, field: &str, value: Value) -> Value {
    let mut object = kind.object("one");
    object["metadata"][field] = value;
    object
}

fn names(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let named = |name: &str| vec![post(&all, kind.object(name))];
    let meta = |field: &str, value: Value| {
        vec![post(&all, with_metadata(kind, field, value)), delete(&one)]
    };
    vec![
        ("create without a name", named("")),
        ("create with capitals", named("One")),
        ("create with an underscore", named("o_ne")),
        ("create with a long name", named(&"x".repeat(254))),
        ("create with a dot", vec![post(&all, kind.object("o.ne")), delete(kind.path_of("o.ne"))]),
        ("create with a generated name", {
            let mut object = kind.object("");
            object["metadata"] = json!({"generateName": "made-"});
            vec![post(&all, object), delete(kind.path_of("{name}"))]
        }),
        ("create with a version", meta("resourceVersion", json!("1"))),
        ("create with a uid", meta("uid", json!(NO_UID))),
        ("create in another namespace", meta("namespace", json!("else"))),
        ("create with a bad label", meta("labels", json!({"a b": "c"}))),
        ("create with a bad label value", meta("labels", json!({"a": "-"}))),
        ("create with a long label", meta("labels", json!({"a": "x".repeat(64)}))),
        ("create with an annotation", meta("annotations", json!({"a.dev/b": "any text: ✓"}))),
        ("create with a bad annotation", meta("annotations", json!({"a b": "c"}))),
        ("create with a bad finalizer", meta("finalizers", json!(["not a finalizer"]))),
        ("create with labels of the wrong type", meta("labels", json!(["a"]))),
        ("create with a deletion", meta("deletionTimestamp", json!("2020-01-01T00:00:00Z"))),
    ]
}

fn bodies(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let object = || kind.object("one");
    let without = |field: &str| {
        let mut object = object();
        if let Some(fields) = object.as_object_mut() {
            fields.remove(field);
        }
        object
    };
    let then_gone = |object: Value| vec![post(&all, object), delete(&one)];
    let strict = format!("{all}?fieldValidation=Strict");
    vec![
        ("create", around(kind, vec![get(&one)])),
        ("create twice", around(kind, vec![post(&all, object())])),
        ("create for practice", vec![post(format!("{all}?dryRun=All"), object()), get(&one)]),
        ("create for some practice", vec![post(format!("{all}?dryRun=Some"), object())]),
        ("create, kind left out", then_gone(without("kind"))),
        ("create, apiVersion left out", then_gone(without("apiVersion"))),
        ("create, metadata left out", vec![post(&all, without("metadata"))]),
        ("create another kind", then_gone(with(kind, "kind", json!("Other")))),
        ("create in another version", then_gone(with(kind, "apiVersion", json!("v9")))),
        ("create with an unknown field", then_gone(with(kind, "unknown", json!(1)))),
        ("create with an unknown field, strictly", {
            vec![post(&strict, with(kind, "unknown", json!(1))), get(&one)]
        }),
        ("create strictly", vec![post(&strict, object()), delete(&one)]),
        ("create with a status", then_gone(with(kind, "status", json!({"phase": "Done"})))),
        ("create what is no object", vec![post(&all, json!([1])), post(&all, json!("x"))]),
        ("create at an object's path", vec![post(&one, object())]),
        ("create with a finalizer", {
            let held = with_metadata(kind, "finalizers", json!(["conformance.dev/held"]));
            let free = json!({"metadata": {"finalizers": null}});
            vec![post(&all, held), delete(&one), get(&one), patch(MERGE, &one, free), get(&one)]
        }),
    ]
}
