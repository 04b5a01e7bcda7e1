//! Objects as rows, as `kubectl get` asks for them.

use super::{MERGE, Request, Story, around, delete, get, made, patch, post};
use crate::conformance::kinds::Kind;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";
/// The objects of a case.
const OURS: &str = "labelSelector=suite%3Dconformance";

/// What can be shown as a table.
pub fn stories(kind: &Kind) -> Vec<Story> {
    let (all, one) = (kind.path(), kind.path_of("one"));
    let table = |request: Request| Request { accept: TABLE, ..request };
    let between = |request: Request| {
        let gone = vec![delete(&one), delete(kind.path_of("two"))];
        [made(kind, &["one", "two"]), vec![table(request)], gone].concat()
    };
    let list = |query: &str| between(get(format!("{all}?{OURS}{query}")));
    vec![
        ("get as a table", between(get(&one))),
        ("get as a table with the object", between(get(format!("{one}?includeObject=Object")))),
        ("list as a table", list("")),
        ("list a page as a table", list("&limit=1")),
        ("list as a table with objects", list("&includeObject=Object")),
        ("list as a table without objects", list("&includeObject=None")),
        ("list as a table with something", list("&includeObject=Something")),
        ("list nothing as a table", {
            vec![table(get(format!("{all}?labelSelector=suite%3Dnone")))]
        }),
        ("create as a table", vec![table(post(&all, kind.object("one"))), delete(&one)]),
        ("merge as a table", { around(kind, vec![table(patch(MERGE, &one, kind.change()))]) }),
    ]
}
