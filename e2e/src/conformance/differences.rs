//! How two answers differ, and which differences are known. `docs/simulated-kubernetes.md` lists
//! the same reasons for people; a test below holds the two together.

use std::collections::BTreeSet;

use serde_json::Value;

use super::Difference;
use super::play::Answer;

/// A known difference: where, and why it stays.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The case's name; `*` stands for any text.
    pub case: &'static str,
    /// The path in the answer, in the same way.
    pub path: &'static str,
    /// What the simulated server and the real one say there, as JSON, in the same way.
    pub said: (&'static str, &'static str),
    /// Where, in words.
    pub place: &'static str,
    /// Why the simulated server answers otherwise.
    pub reason: &'static str,
}

/// Any two values.
const ANY: (&str, &str) = ("*", "*");
/// What stands for a field that one of the two does not tell: null is another thing.
const ABSENT: &str = "<absent>";

/// Every difference that stays. Each is seen by some case, or the suite fails.
pub const KNOWN: &[Known] = &[
    Known {
        case: "*",
        path: "message",
        said: ANY,
        place: "the text of a refusal",
        reason: "people read it; programs read code and reason",
    },
    Known {
        case: "*",
        path: "[0].object.message",
        said: ANY,
        place: "the text of a refusal",
        reason: "people read it; programs read code and reason",
    },
    Known {
        case: "*",
        path: "details.causes*",
        said: ANY,
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: create with a version",
        path: "details",
        said: (r#"{"causes":*"#, r#""<absent>""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: replace with a bad version",
        path: "details",
        said: (r#"{"causes":*"#, r#""<absent>""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: watch in a form that nobody has",
        path: "details",
        said: (r#""<absent>""#, "{}"),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: list in a form that nobody has",
        path: "details",
        said: (r#""<absent>""#, "{}"),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: patch of an unknown type",
        path: "details",
        said: ("{}", r#""<absent>""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: merge*by strategy",
        path: "details",
        said: ("{}", r#""<absent>""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "rights: ask for *",
        path: "details",
        said: (r#""<absent>""#, r#"{"causes":*"#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: create for some practice",
        path: "details.kind",
        said: (r#""Options""#, r#""CreateOptions""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: delete with a bad policy",
        path: "details.kind",
        said: (r#""Options""#, r#""DeleteOptions""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: replace without a version",
        path: "details.kind",
        said: ANY,
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "*: read a part that is not there",
        path: "details.*",
        said: (r#""<absent>""#, "*"),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "Machine: read the scale",
        path: "details.*",
        said: (r#""<absent>""#, "*"),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "Pod: bind twice",
        path: "details.kind",
        said: (r#""pods""#, r#""pods/binding""#),
        place: "the details of a refusal",
        reason: "programs of ours read code and reason",
    },
    Known {
        case: "Node: *",
        path: "spec.taints",
        said: (
            r#""<absent>""#,
            r#"[{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}]"#,
        ),
        place: "a new Node's taints",
        reason: "the real admission adds one; our scheduler looks at Ready itself",
    },
    Known {
        case: "Widget: create at an object's path",
        path: "code",
        said: ("405", "201"),
        place: "POST to a custom resource's own path",
        reason: "the real server creates it, by accident",
    },
    Known {
        case: "RunnerPool: create at an object's path",
        path: "code",
        said: ("405", "201"),
        place: "POST to a custom resource's own path",
        reason: "the real server creates it, by accident",
    },
    Known {
        case: "Machine: create at an object's path",
        path: "code",
        said: ("405", "201"),
        place: "POST to a custom resource's own path",
        reason: "the real server creates it, by accident",
    },
    Known {
        case: "Widget: create another kind",
        path: "code",
        said: ("400", "422"),
        place: "another kind's name in a custom resource",
        reason: "400 for all kinds; the real server says 422 for these",
    },
    Known {
        case: "RunnerPool: create another kind",
        path: "code",
        said: ("400", "422"),
        place: "another kind's name in a custom resource",
        reason: "400 for all kinds; the real server says 422 for these",
    },
    Known {
        case: "Machine: create another kind",
        path: "code",
        said: ("400", "422"),
        place: "another kind's name in a custom resource",
        reason: "400 for all kinds; the real server says 422 for these",
    },
    Known {
        case: "Pod: *",
        path: "status.conditions[0].lastProbeTime",
        said: (r#""<absent>""#, "null"),
        place: "times that a Pod's condition does not tell",
        reason: "absent instead of null: clients read both alike",
    },
    Known {
        case: "Pod: evict a ready one under a budget",
        path: "status.conditions[0].lastTransitionTime",
        said: (r#""<absent>""#, "null"),
        place: "times that a Pod's condition does not tell",
        reason: "absent instead of null: clients read both alike",
    },
    Known {
        case: "Secret: apply against another owner",
        path: "code",
        said: ANY,
        place: "conflicts over a Secret's `stringData`",
        reason: "owners are those of `data`",
    },
    Known {
        case: "*: no such group",
        path: "",
        said: ANY,
        place: "a path of no group",
        reason: "the real server's page is plain text",
    },
    Known {
        case: "openapi: no such version",
        path: "",
        said: ANY,
        place: "a path of no group",
        reason: "the real server's page is plain text",
    },
    Known {
        case: "*: watch *",
        path: "[2].object.spec",
        said: ANY,
        place: "the empty fields of a bookmark",
        reason: "only its version and its annotation are read",
    },
    Known {
        case: "ClusterRole: watch *",
        path: "[2].object.rules",
        said: (r#""<absent>""#, "null"),
        place: "the empty fields of a bookmark",
        reason: "only its version and its annotation are read",
    },
    Known {
        case: "*: watch *",
        path: "[2].object.status",
        said: ANY,
        place: "the empty fields of a bookmark",
        reason: "only its version and its annotation are read",
    },
    Known {
        case: "*: watch from now as a table",
        path: "[2].object.rows[0].cells[*]",
        said: ANY,
        place: "the empty cells of a bookmark",
        reason: "`kubectl` asks for no bookmarks of a table",
    },
    Known {
        case: "ClusterRole: list nothing as a table",
        path: "rows",
        said: ANY,
        place: "the rows of an empty table of a kind without columns of its own",
        reason: "an empty list instead of null",
    },
    Known {
        case: "*table*",
        path: "*columnDefinitions[*].description",
        said: ANY,
        place: "the descriptions of a built-in kind's columns",
        reason: "`kubectl` does not show them",
    },
    Known {
        case: "discovery: versions",
        path: "serverAddressByClientCIDRs",
        said: ANY,
        place: "addresses in `/api`",
        reason: "in one process there are none",
    },
    Known {
        case: "discovery: all at once",
        path: "*",
        said: ANY,
        place: "discovery in one answer",
        reason: "not served: `kubectl` then asks group by group",
    },
    Known {
        case: "openapi: index",
        path: "*.serverRelativeURL",
        said: ANY,
        place: "hashes in the index of OpenAPI",
        reason: "none: `kubectl` then asks anew",
    },
    Known {
        case: "rights: *",
        path: "status.reason",
        said: ANY,
        place: "why an access review allows",
        reason: "it says only that it does",
    },
    Known {
        case: "watch: at the old path",
        path: "code",
        said: ANY,
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
        "Deployments, `ReplicaSet`s and budgets, beside what is filled in and refused",
        "the real controllers write to each at once",
    ),
    (
        "Roles, bindings and Events, but for rights",
        "stored as they come: nothing is filled in and little refused",
    ),
    ("roles that are made of others (`aggregationRule`)", "only their own rules count"),
    (
        "the formats `isbn`, `creditcard`, `ssn` and `rgbcolor`, and rare e-mail addresses and \
         URIs",
        "not looked at, and told from what is none by their common forms",
    ),
    (
        "what was wrong in a custom resource before and does not change",
        "refused: the real server lets it be",
    ),
    (
        "the condition `DisruptionTarget` of a Pod that is evicted",
        "not written: nobody here asks why a Pod goes",
    ),
    (
        "the addresses of Services",
        "made up and only shown: nothing is routed. Compared are Services without one",
    ),
    ("how quantities are written", "as they came: the real server writes `1` for `1000m`"),
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
                match (a.get(field), b.get(field)) {
                    (Some(a), Some(b)) => walk(&below, a, b, found),
                    (a, b) => {
                        let said = |side: Option<&Value>| side.map_or(ABSENT.into(), Value::clone);
                        found.push((below, (said(a), said(b))));
                    }
                }
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
        let (ours, theirs) = &difference.said;
        is_like(&difference.case, known.case)
            && is_like(&difference.path, known.path)
            && is_like(&ours.to_string(), known.said.0)
            && is_like(&theirs.to_string(), known.said.1)
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
    use serde_json::json;

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
        assert!(!of("Pod: get", "details") && !of("Pod: get", "details.kind"));
        assert!(!of("Pod: get", "messages") && !of("Pod: get", "code"));
        assert!(!of("Node: get", "spec") && !of("Node: get", "spec.taints"));
        let bookmark = "ConfigMap: watch from now as a table";
        assert!(of(bookmark, "[2].object.rows[0].cells[1]"));
        assert!(!of(bookmark, "[1].object.rows[0].cells[1]"));
        assert!(!of("Node: replace", "") && !of("Node: replace", "code"));
        assert!(of("path: no such group", "") && !of("path: no such group", "code"));
    }

    #[test]
    fn what_is_null_is_not_what_is_not_there() {
        let answer = |body: Value| Answer { code: 200, body };
        let one = answer(json!({"a": null, "b": {"c": 1}}));
        assert_eq!(between(&one, &one), []);
        let found = between(&one, &answer(json!({"b": {"c": null}, "d": null})));
        let found: Vec<(&str, (&Value, &Value))> =
            found.iter().map(|(path, (a, b))| (path.as_str(), (a, b))).collect();
        let (none, null, one) = (&json!(ABSENT), &Value::Null, &json!(1));
        assert_eq!(found, [("a", (null, none)), ("b.c", (one, null)), ("d", (none, null))]);
    }

    #[test]
    fn an_excuse_is_for_two_values_and_not_for_any_two() {
        let of = |case: &str, ours: Value, theirs: Value| {
            let (case, path, said) = (case.to_owned(), "code".to_owned(), (ours, theirs));
            excuse(&Difference { case, request: String::new(), path, said }).is_some()
        };
        let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
        let tainted = |case: &str, real: Value| {
            let (case, path) = (case.to_owned(), "spec.taints".to_owned());
            let said = (json!(ABSENT), real);
            excuse(&Difference { case, request: String::new(), path, said }).is_some()
        };
        assert!(tainted("Node: get", json!([taint])) && !tainted("Pod: get", json!([taint])));
        assert!(!tainted("Node: get", json!([taint, taint])));
        assert!(of("Widget: create another kind", json!(400), json!(422)));
        assert!(!of("Widget: create another kind", json!(201), json!(422)));
        assert!(!of("Pod: create another kind", json!(400), json!(422)));
        assert!(!of("Pod: create at an object's path", json!(405), json!(201)));
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
