//! How two answers differ, and which differences are known. `docs/simulated-kubernetes.md` lists
//! the same reasons for people; a test holds the two together.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::Difference;
use super::play::Answer;

/// A known difference: where, and why it stays.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// A part of the case's name; empty for all.
    pub case: &'static str,
    /// The beginning of the path in the answer.
    pub path: &'static str,
    /// Why the simulated server answers otherwise.
    pub reason: &'static str,
    /// Whether it depends on how fast the real one's controllers are.
    pub sometimes: bool,
}

/// A difference that is always there.
const ALWAYS: Known = Known { case: "", path: "", reason: "", sometimes: false };

/// Every difference that stays.
pub const KNOWN: &[Known] = &[
    Known {
        case: "",
        path: "message",
        reason: "the words of a refusal: people read them, programs read its code and reason",
        ..ALWAYS
    },
    Known {
        case: "",
        path: "details",
        reason: "how a refusal is explained beside its code and reason",
        ..ALWAYS
    },
    Known {
        case: "bad version",
        path: "reason",
        reason: "the real server's own failure (500) has no reason; ours always has one",
        ..ALWAYS
    },
    Known {
        case: "with a version",
        path: "reason",
        reason: "the real server's own failure (500) has no reason; ours always has one",
        ..ALWAYS
    },
    Known {
        case: "delete and orphan",
        path: "",
        reason: "ours is never late: the garbage collector acts within the request",
        ..ALWAYS
    },
    Known {
        case: "Node",
        path: "spec.taints",
        reason: "no Node is tainted at its birth: our scheduler looks at Ready itself",
        ..ALWAYS
    },
    Known { case: "Node", path: "items", reason: "the same three, in lists of Nodes", ..ALWAYS },
    Known {
        case: "Node",
        path: "status",
        reason: "an empty status is not filled with empty fields",
        ..ALWAYS
    },
    Known {
        case: "Node",
        path: "metadata.annotations",
        reason: "the real controller-manager annotates each Node with a lease's time",
        sometimes: true,
    },
    Known {
        case: "Node: replace",
        path: "",
        reason: "the real controller-manager writes to a new Node, and its version moves on",
        sometimes: true,
    },
    Known {
        case: "Pod",
        path: "status.conditions",
        reason: "the real scheduler says that no Node fits",
        sometimes: true,
    },
    Known {
        case: "Pod",
        path: "metadata.resourceVersion",
        reason: "deleted while the real scheduler writes to it, a Pod has no version in the answer",
        sometimes: true,
    },
    Known {
        case: "create at an object's path",
        path: "code",
        reason: "the real server creates custom resources there, by accident",
        ..ALWAYS
    },
    Known {
        case: "create another kind",
        path: "code",
        reason: "one refusal for all kinds; for custom resources the real server has another code",
        ..ALWAYS
    },
    Known {
        case: "Secret: apply against another owner",
        path: "",
        reason: "owners of a Secret's stringData are those of its data",
        ..ALWAYS
    },
    Known {
        case: "under a budget",
        path: "",
        reason: "a budget's numbers are worked out when somebody evicts, not by a controller",
        sometimes: true,
    },
    Known {
        case: "Node: merge at the version",
        path: "",
        reason: "the real controller-manager writes to a new Node, and its version moves on",
        sometimes: true,
    },
    Known {
        case: "Node: delete by version",
        path: "",
        reason: "the real controller-manager writes to a new Node, and its version moves on",
        sometimes: true,
    },
    Known {
        case: "list at any version",
        path: "items",
        reason: "the real server may answer from a cache that is a moment behind",
        sometimes: true,
    },
    Known {
        case: "path: no such group",
        path: "",
        reason: "the real server's page for a path of nobody is plain text",
        ..ALWAYS
    },
    Known {
        case: "token",
        path: "metadata.uid",
        reason: "a token request is no object of its own, and has no uid",
        ..ALWAYS
    },
];

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
        difference.case.contains(known.case) && difference.path.starts_with(known.path)
    })
}
