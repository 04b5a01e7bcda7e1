//! Objects go: at once, when their finalizers are gone, or not at all.

use serde_json::json;

use super::{MERGE, Story, around, ask, delete, get, patch, send, until};
use crate::conformance::kinds::Kind;

/// How an object can be deleted.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let only_if = |field: &str, value: &str| {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {field: value}});
        around(kind, vec![send("DELETE", &one, options), get(&one)])
    };
    let query = |query: &str| {
        let path = format!("{one}?gracePeriodSeconds=0&{query}");
        around(kind, vec![ask("DELETE", path), get(&one)])
    };
    let no_uid = "00000000-0000-4000-8000-000000000000";
    vec![
        ("delete what is not there", vec![delete(&one)]),
        ("delete twice", around(kind, vec![delete(&one)])),
        ("delete by uid", only_if("uid", "{uid}")),
        ("delete by another uid", only_if("uid", no_uid)),
        ("delete by version", only_if("resourceVersion", "{version}")),
        ("delete by another version", only_if("resourceVersion", "1")),
        ("delete for practice", query("dryRun=All")),
        ("delete with a bad policy", query("propagationPolicy=Never")),
        ("delete in the background", query("propagationPolicy=Background")),
        ("delete and orphan", {
            let go = format!("{one}?gracePeriodSeconds=0&propagationPolicy=Orphan");
            around(kind, vec![ask("DELETE", go), until(404, get(&one))])
        }),
        ("delete all", {
            let some = format!("{all}?labelSelector=suite%3Dconformance&gracePeriodSeconds=0");
            around(kind, vec![ask("DELETE", some), get(&one)])
        }),
        ("add a finalizer to what goes", {
            let finalizers = |names: &[&str]| json!({"metadata": {"finalizers": names}});
            let change = |names: &[&str]| patch(MERGE, &one, finalizers(names));
            let story = vec![
                change(&["conformance.dev/a"]),
                delete(&one),
                change(&["conformance.dev/a", "conformance.dev/b"]),
                patch(MERGE, &one, json!({"metadata": {"labels": {"more": "1"}}})),
                change(&[]),
                get(&one),
            ];
            around(kind, story)
        }),
    ]
}
