//! The API server's audit log: who called what, how it was answered, and what was sent.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use crate::ControlPlane;

/// Answers that mean a defect of whoever called: a right that the chart does not give, or a body
/// that the API server cannot take. Absence (404), conflict (409) and an outdated watch (410) are
/// part of life.
const DEFECTS: [u64; 6] = [400, 403, 405, 406, 415, 422];
/// The same call for the same object in ten seconds: a look a second, and one for each of the
/// dozens of effects that claims and releases have, three Macs at once, leave room below this.
const MOST_REPEATS: usize = 200;
/// The same for a call that changes something.
const MOST_REPEATED_WRITES: usize = 40;

/// What is on record: every call, and what controllers sent to most kinds. Bodies of Secrets are
/// never on record.
#[must_use]
pub fn policy() -> Value {
    let kinds = ["infrastructure.cluster.x-k8s.io", "controlplane.cluster.x-k8s.io", "tuist.dev"];
    let mut resources: Vec<Value> = kinds.iter().map(|group| json!({"group": group})).collect();
    resources.push(json!({
        "group": "cluster.x-k8s.io", "resources": ["clusters", "clusters/status"],
    }));
    // Where a secret could slip in.
    let plain =
        ["configmaps", "events", "nodes", "nodes/status", "pods", "pods/status", "serviceaccounts"];
    resources.push(json!({"group": "", "resources": plain}));
    for group in ["coordination.k8s.io", "events.k8s.io", "rbac.authorization.k8s.io"] {
        resources.push(json!({"group": group}));
    }
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            {
                "level": "Request", "verbs": ["create", "update", "patch"],
                "userGroups": ["system:serviceaccounts"], "resources": resources,
            },
            {"level": "Metadata"},
        ],
    })
}

/// Calls of some users, oldest first.
pub struct Audit(Vec<Value>);

impl Audit {
    /// The calls so far of users whose names begin with `user`.
    pub fn read(plane: &ControlPlane, user: &str) -> Result<Self> {
        let path = plane.audit_log();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("could not read {}", path.display()))?;
        let calls = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        Ok(Self(
            calls.filter(|call| text_of(&call["user"]["username"]).starts_with(user)).collect(),
        ))
    }

    /// The calls themselves.
    #[must_use]
    pub fn calls(&self) -> &[Value] {
        &self.0
    }

    /// How many calls there were of each verb on each resource.
    #[must_use]
    pub fn by_kind(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for call in &self.0 {
            let about = &call["objectRef"];
            let subresource = match text_of(&about["subresource"]) {
                "" => String::new(),
                subresource => format!("/{subresource}"),
            };
            let verb = text_of(&call["verb"]);
            let kind = format!("{verb} {}{subresource}", text_of(&about["resource"]));
            *counts.entry(kind).or_default() += 1;
        }
        counts
    }

    /// Who called.
    #[must_use]
    pub fn callers(&self) -> BTreeSet<&str> {
        self.0.iter().map(|call| text_of(&call["user"]["username"])).collect()
    }

    /// An error with every call whose answer means a defect of its caller.
    pub fn none_is_a_defect(&self) -> Result<()> {
        let mut refused: BTreeMap<String, usize> = BTreeMap::new();
        for call in &self.0 {
            let code = code(call);
            if DEFECTS.contains(&code) {
                *refused.entry(format!("{code} {}", what(call))).or_default() += 1;
            }
        }
        ensure!(refused.is_empty(), "refused: {refused:#?}");
        Ok(())
    }

    /// An error if somebody makes the same call without end.
    pub fn nobody_spins(&self) -> Result<()> {
        let mut repeated: BTreeMap<(String, String), (bool, usize)> = BTreeMap::new();
        for call in &self.0 {
            // Up to the tens of seconds: `2026-11-16T03:16:3`.
            let when = text_of(&call["requestReceivedTimestamp"]).chars().take(18).collect();
            let reads = matches!(text_of(&call["verb"]), "get" | "list" | "watch");
            repeated.entry((when, what(call))).or_insert((reads, 0)).1 += 1;
        }
        ensure!(!repeated.is_empty(), "no calls");
        for ((when, what), (reads, count)) in repeated {
            let most = if reads { MOST_REPEATS } else { MOST_REPEATED_WRITES };
            ensure!(
                count <= most,
                "a hot loop: {count} times within ten seconds of {when}: {what}"
            );
        }
        Ok(())
    }

    /// Nulls that were sent and could be stored: any in a whole object, and those inside a list of
    /// a patch. A null that a patch has for a key removes the key. Also how many bodies were read.
    #[must_use]
    pub fn nulls_sent(&self) -> (Vec<String>, usize) {
        let mut found = Vec::new();
        let mut bodies = 0;
        for call in self.0.iter().filter(|call| call["requestObject"].is_object()) {
            bodies += 1;
            let stored = call["verb"] != "patch";
            let mut here = Vec::new();
            nulls(&call["requestObject"], "", stored, &mut here);
            // The API server writes down what it understood, and this is how it writes no time.
            let of_server = |path: &String| path == ".eventTime" && is_event(call);
            here.retain(|path| !of_server(path));
            found.extend(here.into_iter().map(|path| format!("{}: {path}", what(call))));
        }
        (found, bodies)
    }
}

fn is_event(call: &Value) -> bool {
    call["objectRef"]["resource"] == "events"
}

/// How a call was answered.
#[must_use]
pub fn code(call: &Value) -> u64 {
    call["responseStatus"]["code"].as_u64().unwrap_or_default()
}

/// One call in words.
#[must_use]
pub fn what(call: &Value) -> String {
    let on = &call["objectRef"];
    format!(
        "{}: {} {}/{} {}",
        text_of(&call["user"]["username"]),
        text_of(&call["verb"]),
        text_of(&on["resource"]),
        text_of(&on["subresource"]),
        text_of(&on["name"])
    )
}

fn text_of(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Where nulls are that would be stored: everywhere if `stored`, else from the first list on.
pub fn nulls(value: &Value, path: &str, stored: bool, found: &mut Vec<String>) {
    match value {
        Value::Null if stored => found.push(path.to_owned()),
        Value::Array(items) => {
            for item in items {
                nulls(item, &format!("{path}[]"), true, found);
            }
        }
        Value::Object(fields) => {
            for (key, inner) in fields {
                nulls(inner, &format!("{path}.{key}"), stored, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(verb: &str, code: u64, body: &Value) -> Value {
        json!({
            "verb": verb, "user": {"username": "u"}, "responseStatus": {"code": code},
            "objectRef": {"resource": "r", "name": "n"}, "requestObject": body,
            "requestReceivedTimestamp": "2026-11-16T03:16:31.000000Z",
        })
    }

    #[test]
    fn a_null_that_removes_a_key_is_none_and_one_in_a_list_or_a_whole_object_is() {
        let patch = json!({"status": {"gone": null, "conditions": [{"message": null}]}});
        let audit = Audit(vec![call("patch", 200, &patch), call("create", 201, &patch)]);
        let (found, bodies) = audit.nulls_sent();
        assert_eq!(bodies, 2);
        assert_eq!(
            found,
            [
                "u: patch r/ n: .status.conditions[].message",
                "u: create r/ n: .status.conditions[].message",
                "u: create r/ n: .status.gone"
            ]
        );
    }

    #[test]
    fn refusals_that_mean_a_defect_are_told_and_conflicts_are_not() {
        for code in [200, 404, 409, 410] {
            assert!(Audit(vec![call("patch", code, &json!({}))]).none_is_a_defect().is_ok());
        }
        for code in [400, 403, 405, 415, 422] {
            let error =
                Audit(vec![call("patch", code, &json!({}))]).none_is_a_defect().unwrap_err();
            assert!(error.to_string().contains(&format!("{code} u: patch r/ n")), "{error}");
        }
    }

    #[test]
    fn a_call_that_is_made_again_and_again_is_a_hot_loop() {
        let calls = |verb: &str, count| Audit(vec![call(verb, 200, &Value::Null); count]);
        assert!(calls("get", MOST_REPEATS).nobody_spins().is_ok());
        assert!(calls("get", MOST_REPEATS + 1).nobody_spins().is_err());
        assert!(calls("patch", MOST_REPEATED_WRITES + 1).nobody_spins().is_err());
        assert!(Audit(Vec::new()).nobody_spins().is_err(), "nothing on record shows nothing");
    }
}
