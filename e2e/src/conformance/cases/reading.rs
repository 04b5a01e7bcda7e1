//! Objects are read: one, many, in pages, by selectors, in other forms.

use super::{Request, Story, around, delete, get, made};
use crate::conformance::kinds::Kind;

/// The objects of a case.
const OURS: &str = "labelSelector=suite%3Dconformance";

/// What can be read of two objects.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let between = |requests: Vec<Request>| {
        let mut story = made(kind, &["one", "two"]);
        story.extend(requests);
        story.extend([delete(&one), delete(kind.path_of("two"))]);
        story
    };
    let list = |query: &str| between(vec![get(format!("{all}?{query}"))]);
    let ours = |more: &str| list(&format!("{OURS}{more}"));
    let shown = |accept: &'static str, path: String| between(vec![Request { accept, ..get(path) }]);
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    let partials = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    vec![
        ("get what is not there", vec![get(&one)]),
        ("list", ours("")),
        ("list one name", ours("&fieldSelector=metadata.name%3Done")),
        ("list all but one name", ours("&fieldSelector=metadata.name%21%3Done")),
        ("list by an unknown field", list("fieldSelector=spec.nothing%3D1")),
        ("list with a bad field selector", list("fieldSelector=metadata.name")),
        ("list in pages", {
            // The last page is not full: whether one goes on after a full one, where a selector
            // leaves out the rest, depends on where the real server reads it.
            let page = |limit: u8| format!("{all}?{OURS}&limit={limit}");
            between(vec![get(page(1)), get(format!("{}&continue={{token}}", page(2)))])
        }),
        ("list with a bad token", list("limit=1&continue=nonsense")),
        ("list with a bad limit", list("limit=many")),
        ("list with a bad version", list("resourceVersion=x")),
        ("list at any version", {
            // The first list is not answered from a cache that is a moment behind.
            let (now, any) = (format!("{all}?{OURS}"), format!("{all}?{OURS}&resourceVersion=0"));
            between(vec![get(now), get(any)])
        }),
        ("list no older", ours("&resourceVersion={version}&resourceVersionMatch=NotOlderThan")),
        ("list of one version", {
            let then =
                format!("{all}?{OURS}&resourceVersion={{version}}&resourceVersionMatch=Exact");
            around(kind, vec![get(then)])
        }),
        ("list of a version that is over", {
            let then = format!("{all}?{OURS}&resourceVersion={{start}}&resourceVersionMatch=Exact");
            between(vec![get(format!("{all}?{OURS}")), delete(&one), get(then)])
        }),
        ("list of a version to come", ours("&resourceVersion=1000000000")),
        ("list with a match alone", ours("&resourceVersionMatch=Exact")),
        ("list with a bad match", ours("&resourceVersion={version}&resourceVersionMatch=Any")),
        ("list exactly any version", ours("&resourceVersion=0&resourceVersionMatch=Exact")),
        ("list with initial events", ours("&sendInitialEvents=true")),
        ("list in a form that nobody has", {
            between(vec![Request { accept: "text/html", ..get(&one) }])
        }),
        ("list in sets", list("labelSelector=suite+in+%28conformance%2Cb%29%2C%21none")),
        ("list outside of sets", list("labelSelector=suite+notin+%28x%29%2Csuite")),
        ("list two equalities", list("labelSelector=suite%3D%3Dconformance%2Csuite%21%3Dx")),
        ("list with a bad selector", list("labelSelector=%3D%3D")),
        ("list nothing", list("labelSelector=suite%3Dnone")),
        ("list as metadata", shown(partials, format!("{all}?{OURS}"))),
        ("get as metadata", shown(partial, one.clone())),
        ("read a part that is not there", between(vec![get(format!("{one}/nothing"))])),
        ("read the status", between(vec![get(format!("{one}/status"))])),
        ("read the scale", between(vec![get(format!("{one}/scale"))])),
    ]
}
