//! How two answers differ, and which differences are known. `docs/simulated-kubernetes.md` lists
//! the same reasons for people; a test below holds the two together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Difference;
use super::play::Answer;

/// A known difference: where, and why it stays.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The case's name; `*` stands for any text.
    pub case: &'static str,
    /// The path in the answer, in the same way.
    pub path: &'static str,
    /// Where, in words.
    pub place: &'static str,
    /// Why the simulated server answers otherwise.
    pub reason: &'static str,
}

/// Every difference that stays. Each is seen by some case, or the suite fails.
pub const KNOWN: &[Known] = &[
    Known {
        case: "*",
        path: "message",
        place: "the text of a refusal",
        reason: "people read it; programs read code and reason",
    },
    Known {
        case: "*",
        path: "[0].object.message",
        place: "the text of a refusal",
        reason: "people read it; programs read code and reason",
    },
    Known {
        case: "*",
        path: "details*",
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "Node: *",
        path: "spec.taints",
        place: "a new Node's taints",
        reason: "the real admission adds one; our scheduler looks at Ready itself",
    },
    Known {
        case: "*: create at an object's path",
        path: "code",
        place: "POST to a custom resource's own path",
        reason: "the real server creates it, by accident",
    },
    Known {
        case: "*: create another kind",
        path: "code",
        place: "another kind's name in a custom resource",
        reason: "400 for all kinds; the real server says 422 for these",
    },
    Known {
        case: "Secret: apply against another owner",
        path: "code",
        place: "conflicts over a Secret's `stringData`",
        reason: "owners are those of `data`",
    },
    Known {
        case: "*: no such group",
        path: "",
        place: "a path of no group",
        reason: "the real server's page is plain text",
    },
    Known {
        case: "openapi: no such version",
        path: "",
        place: "a path of no group",
        reason: "the real server's page is plain text",
    },
    Known {
        case: "*: watch *",
        path: "[2].object.spec",
        place: "the empty fields of a bookmark",
        reason: "only its version and its annotation are read",
    },
    Known {
        case: "*: watch *",
        path: "[2].object.status",
        place: "the empty fields of a bookmark",
        reason: "only its version and its annotation are read",
    },
    Known {
        case: "*: watch from now as a table",
        path: "[2].object.rows[0].cells[*]",
        place: "the empty cells of a bookmark",
        reason: "`kubectl` asks for no bookmarks of a table",
    },
    Known {
        case: "ClusterRole: list nothing as a table",
        path: "rows",
        place: "the rows of an empty table of a kind without columns of its own",
        reason: "an empty list instead of null",
    },
    Known {
        case: "*table*",
        path: "*columnDefinitions[*].description",
        place: "the descriptions of a built-in kind's columns",
        reason: "`kubectl` does not show them",
    },
    Known {
        case: "discovery: versions",
        path: "serverAddressByClientCIDRs",
        place: "addresses in `/api`",
        reason: "in one process there are none",
    },
    Known {
        case: "discovery: all at once",
        path: "*",
        place: "discovery in one answer",
        reason: "not served: `kubectl` then asks group by group",
    },
    Known {
        case: "openapi: index",
        path: "*.serverRelativeURL",
        place: "hashes in the index of OpenAPI",
        reason: "none: `kubectl` then asks anew",
    },
    Known {
        case: "rights: *",
        path: "status.reason",
        place: "why an access review allows",
        reason: "it says only that it does",
    },
    Known {
        case: "watch: at the old path",
        path: "code",
        place: "`/api/v1/watch/…`",
        reason: "not served: deprecated since Kubernetes 1.11",
    },
];

/// What is not compared at all, and why.
pub const ASIDE: &[(&str, &str)] = &[
    ("`managedFields`", "kept, and not shown; their effects are compared"),
    (
        "kinds and parts of kinds that neither we nor `kubectl` touch here",
        "not served; of discovery and OpenAPI what is served is compared",
    ),
    (
        "operations in OpenAPI, and schemas of built-in kinds",
        "as far as `kubectl explain` and `apply` look",
    ),
    (
        "watches of Nodes",
        "only refusals are: the real controllers write to every Node when they come to it",
    ),
    ("how many bookmarks come in a row", "one tells as much as two"),
    (
        "what the real controllers write to a new Node, and stories of Nodes and Pods that they \
         disturb later",
        "a story waits for the first, and is played again after the second, up to five times",
    ),
    ("everything else that controllers do", "ours are never late: they act within the request"),
    (
        "a history that was compacted",
        "410 after 1,024 changes or five minutes; compared is a watch from before its kind was \
         defined",
    ),
    (
        "a body in Kubernetes' binary form",
        "415: it reads JSON alone. `kubectl create KIND …`, `kubectl auth can-i` and `kubectl \
         certificate approve` write nothing else; `kubectl create -f` and `apply -f` write JSON",
    ),
];

/// The rows of the page's table.
#[must_use]
pub fn rows() -> Vec<String> {
    let known = KNOWN.iter().map(|known| (known.place, known.reason));
    let mut rows: Vec<String> = vec![];
    for (place, reason) in known.chain(ASIDE.iter().copied()) {
        let row = format!("| {place} | {reason} |");
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    rows
}

/// The places where two answers differ, and what each says there.
pub fn between(ours: &Answer, theirs: &Answer) -> Vec<(String, (Value, Value))> {
    let mut found = vec![];
    if ours.code != theirs.code {
        // The rest of two answers of different kinds is not worth a line each.
        found.push(("code".to_owned(), (ours.code.into(), theirs.code.into())));
        return found;
    }
    walk("", &ours.body, &theirs.body, &mut found);
    found
}

fn walk(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<(String, (Value, Value))>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let fields: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for field in fields {
                let below = if path.is_empty() { field.clone() } else { format!("{path}.{field}") };
                let of = |map: &Map<String, Value>| map.get(field).cloned().unwrap_or(Value::Null);
                walk(&below, &of(a), &of(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                walk(&format!("{path}[{at}]"), a, b, found);
            }
        }
        (a, b) if a == b => {}
        (a, b) => found.push((path.to_owned(), (a.clone(), b.clone()))),
    }
}

/// The number of the reason why a difference stays, if it is known.
pub fn excuse(difference: &Difference) -> Option<usize> {
    KNOWN.iter().position(|known| {
        is_like(&difference.case, known.case) && is_like(&difference.path, known.path)
    })
}

/// Whether `text` is `pattern`, in which `*` stands for any text.
fn is_like(text: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => text == pattern,
        Some((before, after)) => text.strip_prefix(before).is_some_and(|rest| {
            rest.char_indices()
                .map(|(at, _)| at)
                .chain([rest.len()])
                .any(|at| is_like(&rest[at..], after))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_lists_every_difference_with_its_reason_and_nothing_else() {
        let page = crate::binaries::package_folder().join("../docs/simulated-kubernetes.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table = page.lines().skip_while(|line| *line != "| where | why it stays |").skip(2);
        let listed: Vec<&str> = table.take_while(|line| line.starts_with('|')).collect();
        assert_eq!(listed, rows(), "the table should be:\n{}", rows().join("\n"));
    }

    #[test]
    fn an_excuse_is_for_one_place_and_not_for_what_is_beside_or_below_it() {
        let of = |case: &str, path: &str| {
            let said = (Value::Null, Value::Null);
            let (case, path) = (case.to_owned(), path.to_owned());
            excuse(&Difference { case, request: String::new(), path, said }).is_some()
        };
        assert!(of("Pod: get", "message") && of("Pod: get", "details.causes[0].field"));
        assert!(!of("Pod: get", "messages") && !of("Pod: get", "code"));
        assert!(of("Node: get", "spec.taints") && !of("Pod: get", "spec.taints"));
        assert!(!of("Node: get", "spec") && !of("Node: get", "spec.taints[0].key"));
        let bookmark = "ConfigMap: watch from now as a table";
        assert!(of(bookmark, "[2].object.rows[0].cells[1]"));
        assert!(!of(bookmark, "[1].object.rows[0].cells[1]"));
        assert!(!of("Node: replace", "") && !of("Node: replace", "code"));
        assert!(of("path: no such group", "") && !of("path: no such group", "code"));
    }

    #[test]
    fn a_star_stands_for_any_text() {
        for (text, pattern, like) in [
            ("", "", true),
            ("a", "", false),
            ("abc", "*", true),
            ("abc", "a*c", true),
            ("abc", "a*b", false),
            ("items[12].x", "items[*].x", true),
            ("items[1].y.x", "items[*].z", false),
        ] {
            assert_eq!(is_like(text, pattern), like, "{text} {pattern}");
        }
    }
}
