//! Objects are replaced, if the preconditions hold.

use serde_json::{Value, json};

use super::{Story, around, get, put};
use crate::conformance::kinds::Kind;

/// What can be put in the place of an object.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let one = kind.path_of("one");
    let at = |version: &str| {
        let mut object = kind.changed("one");
        object["metadata"]["resourceVersion"] = json!(version);
        object
    };
    let meta = |field: &str, value: Value| {
        let mut object = at("{version}");
        object["metadata"][field] = value;
        around(kind, vec![put(&one, object), get(&one)])
    };
    let mut same = kind.object("one");
    same["metadata"]["resourceVersion"] = json!("{version}");
    let replace = |object: Value| around(kind, vec![put(&one, object), get(&one)]);
    vec![
        ("replace", replace(at("{version}"))),
        ("replace with itself", replace(same)),
        ("replace without a version", replace(kind.changed("one"))),
        ("replace an old version", replace(at("1"))),
        ("replace with a bad version", replace(at("x"))),
        ("replace what is not there", vec![put(&one, kind.changed("one"))]),
        ("replace under another name", meta("name", json!("other"))),
        ("replace in another namespace", meta("namespace", json!("else"))),
        ("replace with another uid", {
            meta("uid", json!("00000000-0000-4000-8000-000000000000"))
        }),
        ("replace with the uid", meta("uid", json!("{uid}"))),
        ("replace with a deletion", meta("deletionTimestamp", json!("2020-01-01T00:00:00Z"))),
        ("replace with another creation", meta("creationTimestamp", json!("2020-01-01T00:00:00Z"))),
        ("replace with a generation", meta("generation", json!(77))),
        ("replace without labels", meta("labels", json!({}))),
        ("replace with a bad owner", meta("ownerReferences", json!([{"name": "x"}]))),
        ("replace for practice", {
            around(kind, vec![put(format!("{one}?dryRun=All"), at("{version}")), get(&one)])
        }),
        ("replace the status", {
            around(kind, vec![put(format!("{one}/status"), at("{version}")), get(&one)])
        }),
    ]
}
