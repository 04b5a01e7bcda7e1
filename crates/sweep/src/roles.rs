//! What the chart lets each process do, as Helm would render it: the processes of a sweep may do
//! that and nothing else.

use std::sync::LazyLock;

use applecart_sim::faults::{PROVIDER, RUNNER_POOLS, SECOND_PROVIDER, SECOND_RUNNER_POOLS};
use applecart_sim::world::{AGENT_ROLE, NAMESPACE};
use serde_json::Value;

/// Templates with roles in them.
const TEMPLATES: [&str; 3] = [
    include_str!("../../../chart/templates/provider-rbac.yaml"),
    include_str!("../../../chart/templates/agent-rbac.yaml"),
    include_str!("../../../chart/templates/runner-pools.yaml"),
];

/// What the expressions in those templates come to in a world.
const VALUES: &[(&str, &str)] = &[
    (r#"include "applecart.provider" ."#, PROVIDER),
    (r#"printf "%s-runners-controller" (include "applecart.full" .)"#, RUNNER_POOLS),
    (r#"printf "%s-tart-kubelet" (include "applecart.full" .)"#, AGENT_ROLE),
    (r#"printf "system:serviceaccounts:%s" .Release.Namespace"#, "system:serviceaccounts:default"),
    (r#"include "applecart.full" ."#, "applecart"),
    (".Release.Namespace", NAMESPACE),
    (".Values.runnersFleet.namespace", NAMESPACE),
    // In a loop over namespaces: there is one.
    (".", NAMESPACE),
];

/// What a world has although the chart leaves it out by default.
const ON: &[&str] = &[".Values.runnersFleet.enabled"];

/// What the chart says when nobody says otherwise, as in a world.
fn defaults() -> &'static Value {
    static DEFAULTS: LazyLock<Value> = LazyLock::new(|| {
        let text = include_str!("../../../chart/values.yaml");
        serde_saphyr::from_str(text).expect("the chart's values are YAML")
    });
    &DEFAULTS
}

/// The chart's roles and who has them.
pub fn roles() -> &'static [Value] {
    static ROLES: LazyLock<Vec<Value>> =
        LazyLock::new(|| TEMPLATES.iter().flat_map(|template| rendered(template)).collect());
    &ROLES
}

/// The roles and bindings of a template.
fn rendered(template: &str) -> Vec<Value> {
    let mut known: Vec<(String, String)> = vec![];
    let mut documents = vec![String::new()];
    let mut blocks = vec![Block { is_on: true, dot: &Value::Null }];
    for line in template.lines() {
        let trimmed = line.trim();
        let control = trimmed.strip_prefix("{{-").map(|rest| rest.trim_end_matches("}}").trim());
        if enter_or_leave(&mut blocks, control.unwrap_or_default())
            || !blocks.last().is_some_and(|block| block.is_on)
        {
            continue;
        }
        if trimmed == "---" {
            documents.push(String::new());
        } else if let Some(control) = control {
            if let Some((variable, expression)) = control.split_once(" := ")
                && let Some(value) = value(expression, &known)
            {
                known.push((variable.to_owned(), value));
            }
        } else if let Some(document) = documents.last_mut() {
            document.push_str(&fill_in(line, &known));
            document.push('\n');
        }
    }
    let is_role = |text: &&String| text.contains("apiVersion: rbac.authorization.k8s.io/v1\n");
    let mut objects: Vec<Value> = documents
        .iter()
        .filter(is_role)
        .map(|text| serde_saphyr::from_str(text).unwrap_or_else(|e| panic!("{e} in\n{text}")))
        .collect();
    objects.iter_mut().for_each(give_to_second);
    objects
}

/// A part of a template that is there on some condition.
struct Block {
    is_on: bool,
    /// What paths in it begin at.
    dot: &'static Value,
}

/// Whether a line begins or ends a block.
fn enter_or_leave(blocks: &mut Vec<Block>, control: &str) -> bool {
    let Some(around) = blocks.last() else { panic!("an end without a beginning") };
    let (word, expression) = control.split_once(' ').unwrap_or((control, ""));
    let said = found(expression, around.dot);
    let dot = match word {
        "end" => {
            blocks.pop();
            return true;
        }
        "if" => around.dot,
        "with" => said.unwrap_or(&Value::Null),
        "range" => &Value::Null,
        "else" => panic!("teach this what `else` is"),
        _ => return false,
    };
    let is_on = around.is_on && (ON.contains(&expression) || said.is_none_or(is_something));
    blocks.push(Block { is_on, dot });
    true
}

/// The value at a path; `None` for what is no path, and is there in a world.
fn found(expression: &str, dot: &'static Value) -> Option<&'static Value> {
    let (from, path) = match expression.strip_prefix(".Values.") {
        Some(path) => (defaults(), path),
        None => (dot, expression.strip_prefix('.')?),
    };
    let is_path = !path.contains(|c: char| c.is_whitespace());
    is_path.then(|| path.split('.').fold(from, |value, field| &value[field]))
}

/// What Helm takes for true.
fn is_something(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(yes) => *yes,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

/// What an expression comes to. A later variable hides an earlier one of its name.
fn value(expression: &str, known: &[(String, String)]) -> Option<String> {
    if let Some(plain) = expression.strip_suffix("| quote") {
        return value(plain.trim(), known).map(|value| format!("\"{value}\""));
    }
    if let Some((_, fixed)) = VALUES.iter().find(|(text, _)| *text == expression) {
        return Some((*fixed).to_owned());
    }
    if let Some((_, value)) = known.iter().rev().find(|(name, _)| name == expression) {
        return Some(value.clone());
    }
    let (format, argument) = expression.strip_prefix("printf \"")?.split_once("\" ")?;
    value(argument.trim(), known).map(|argument| format.replace("%s", &argument))
}

/// The line with its expressions replaced. One that is not known stays, and no YAML is read from it
/// that a role could be made of.
fn fill_in(line: &str, known: &[(String, String)]) -> String {
    let mut filled = String::new();
    let mut rest = line;
    while let Some((before, after)) = rest.split_once("{{") {
        let Some((expression, after)) = after.split_once("}}") else { break };
        filled.push_str(before);
        match value(expression.trim(), known) {
            Some(value) => filled.push_str(&value),
            // Labels of the chart are nobody's business here.
            None if expression.contains("applecart.labels") => filled.push_str("{}"),
            None => {
                filled.push_str("\"unknown: ");
                filled.push_str(&expression.replace('"', "'"));
                filled.push('"');
            }
        }
        rest = after;
    }
    filled + rest
}

/// Two providers of one cluster have one account, and so have the runner pools of two clusters;
/// here they have two, to be told apart.
fn give_to_second(object: &mut Value) {
    let Some(subjects) = object["subjects"].as_array_mut() else { return };
    for (first, second) in [(PROVIDER, SECOND_PROVIDER), (RUNNER_POOLS, SECOND_RUNNER_POOLS)] {
        let is_first = |subject: &&Value| subject["name"] == first;
        if let Some(mut another) = subjects.iter().find(is_first).cloned() {
            another["name"] = second.into();
            subjects.push(another);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_has_a_role_for_what_a_world_does_without() {
        let names: Vec<&str> =
            roles().iter().filter_map(|role| role["metadata"]["name"].as_str()).collect();
        for of in ["fleet-spread", "tailscale-egress", "clusters"] {
            assert!(!names.contains(&format!("{PROVIDER}-{of}").as_str()), "{of} in {names:?}");
        }
        assert!(names.contains(&format!("{PROVIDER}-cluster-info").as_str()), "{names:?}");
    }

    #[test]
    fn a_block_is_left_out_with_all_that_is_in_it() {
        let role = |name: &str| {
            format!("---\napiVersion: rbac.authorization.k8s.io/v1\nmetadata: {{name: {name}}}\n")
        };
        let all = ["before", "left", "below", "with", "kept", "after"].map(role);
        let [before, left, below, with, kept, after] = &all;
        let template = format!(
            "{before}{{{{- if .Values.macosFleet.enabled }}}}\n{left}\
             {{{{- with .Values.image }}}}\n{below}{{{{- end }}}}\n{{{{- end }}}}\n\
             {{{{- with .Values.macosFleet.tailscaleEgress }}}}\n{with}\
             {{{{- if .enabled }}}}\n{left}{{{{- end }}}}\n{{{{- end }}}}\n\
             {{{{- if .Values.runnersFleet.enabled }}}}\n{kept}{{{{- end }}}}\n{after}"
        );
        let names: Vec<Value> =
            rendered(&template).iter().map(|role| role["metadata"]["name"].clone()).collect();
        assert_eq!(names, ["before", "with", "kept", "after"]);
    }

    #[test]
    fn every_role_of_the_chart_is_understood() {
        let text = serde_json::to_string_pretty(roles()).unwrap();
        assert!(!text.contains("unknown: "), "teach VALUES what this is: {text}");
        for (kind, name) in [
            ("ClusterRole", PROVIDER),
            ("ClusterRole", AGENT_ROLE),
            ("Role", RUNNER_POOLS),
            ("RoleBinding", RUNNER_POOLS),
        ] {
            let there = |role: &Value| role["kind"] == kind && role["metadata"]["name"] == name;
            assert!(roles().iter().any(there), "no {kind} {name} in {text}");
        }
    }
}
