//! Objects are patched in each of the four ways.

use serde_json::{Value, json};

use super::{MERGE, Request, Story, around, delete, get, patch, settled};
use crate::conformance::kinds::Kind;

const OPERATIONS: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// What can be patched.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let mut stories = merges(kind);
    stories.extend(operations(kind));
    stories.extend(applies(kind));
    stories
}

fn merges(kind: &Kind) -> Vec<Story> {
    let one = kind.path_of("one");
    let merge = |change: Value| around(kind, vec![patch(MERGE, &one, change), get(&one)]);
    let meta = |field: &str, value: Value| merge(json!({"metadata": {field: value}}));
    let labels = || json!({"metadata": {"labels": {"more": "1", "suite": null}}});
    let pinned = |version: &str| {
        merge(json!({"metadata": {"resourceVersion": version, "labels": {"more": "1"}}}))
    };
    vec![
        ("merge labels", merge(labels())),
        ("merge the change", merge(kind.change())),
        ("merge nothing", merge(json!({}))),
        ("merge at the version", pinned("{version}")),
        ("merge at an old version", pinned("1")),
        ("merge into what is not there", vec![patch(MERGE, &one, labels())]),
        ("merge a bad label", meta("labels", json!({"a b": "1"}))),
        ("merge annotations", meta("annotations", json!({"a": "1"}))),
        ("merge a name", meta("name", json!("other"))),
        ("merge another uid", meta("uid", json!("00000000-0000-4000-8000-000000000000"))),
        ("merge a status", merge(json!({"status": {"phase": "x"}}))),
        ("merge into the status", {
            let path = format!("{one}/status");
            around(kind, vec![patch(MERGE, path, labels()), get(&one)])
        }),
        ("merge for practice", {
            around(kind, vec![patch(MERGE, format!("{one}?dryRun=All"), labels()), get(&one)])
        }),
        ("merge an unknown field, strictly", {
            let path = format!("{one}?fieldValidation=Strict");
            around(kind, vec![patch(MERGE, path, json!({"unknown": 1}))])
        }),
        ("merge by strategy", around(kind, vec![patch(STRATEGIC, &one, labels()), get(&one)])),
        ("merge the change by strategy", {
            around(kind, vec![patch(STRATEGIC, &one, kind.change()), get(&one)])
        }),
        ("patch of an unknown type", around(kind, vec![patch("text/plain", &one, json!({}))])),
    ]
}

fn operations(kind: &Kind) -> Vec<Story> {
    let one = kind.path_of("one");
    let operation = |op: &str, label: &str, value: Option<&str>| {
        let mut operation = json!({"op": op, "path": format!("/metadata/labels/{label}")});
        if let Some(value) = value {
            operation["value"] = json!(value);
        }
        operation
    };
    let apply =
        |operations: Value| around(kind, vec![patch(OPERATIONS, &one, operations), get(&one)]);
    let one_of =
        |op: &str, label: &str, value: Option<&str>| apply(json!([operation(op, label, value)]));
    vec![
        ("patch by adding", one_of("add", "x", Some("1"))),
        ("patch by removing", one_of("remove", "suite", None)),
        ("patch by removing nothing", one_of("remove", "x", None)),
        ("patch by replacing", one_of("replace", "suite", Some("x"))),
        ("patch by replacing nothing", one_of("replace", "x", Some("x"))),
        ("patch after a failed test", one_of("test", "suite", Some("x"))),
        ("patch after a test", {
            let test = operation("test", "suite", Some("conformance"));
            apply(json!([test, operation("add", "x", Some("1"))]))
        }),
        ("patch with no operation", apply(json!([]))),
        ("patch with an unknown operation", one_of("do", "x", None)),
        ("patch with what is no patch", apply(json!({"op": "add"}))),
    ]
}

fn applies(kind: &Kind) -> Vec<Story> {
    let one = kind.path_of("one");
    let by = |owner: &str| format!("{one}?fieldManager={owner}");
    let first = |owner: &str, requests: Vec<Request>| {
        let applied = vec![patch(APPLY, by(owner), kind.object("one"))];
        [applied, settled(kind, "one"), requests, vec![delete(&one)]].concat()
    };
    let mut less = kind.object("one");
    if let Some(metadata) = less["metadata"].as_object_mut() {
        metadata.remove("labels");
    }
    vec![
        ("apply without an owner", { vec![patch(APPLY, &one, kind.object("one")), delete(&one)] }),
        ("apply", first("suite", vec![get(&one)])),
        ("apply twice", { first("suite", vec![patch(APPLY, by("suite"), kind.object("one"))]) }),
        ("apply to what is there", {
            around(kind, vec![patch(APPLY, by("suite"), kind.object("one")), get(&one)])
        }),
        ("apply, then apply less", {
            first("suite", vec![patch(APPLY, by("suite"), less), get(&one)])
        }),
        ("apply against another owner", {
            let theirs = || kind.changed("one");
            let forced = format!("{}&force=true", by("second"));
            let second = patch(APPLY, by("second"), theirs());
            first("first", vec![second, patch(APPLY, forced, theirs())])
        }),
        ("apply with a version", {
            let mut object = kind.object("one");
            object["metadata"]["resourceVersion"] = json!("1");
            vec![patch(APPLY, by("suite"), object), delete(&one)]
        }),
    ]
}
