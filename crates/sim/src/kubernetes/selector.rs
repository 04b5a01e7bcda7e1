//! Label and field selectors, as clients write them in a query.

use serde_json::Value;

use super::refusal::Refusal;

/// Which objects a list or watch asks for. The default asks for all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<FieldTerm>,
}

#[derive(Clone, Debug, PartialEq)]
enum Requirement {
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
    Exists(String),
    Absent(String),
}

#[derive(Clone, Debug)]
struct FieldTerm {
    pointer: String,
    value: String,
    equal: bool,
}

/// The fields that a selector may name. Custom resources know the first two alone.
const FIELDS: [&str; 19] = [
    "metadata.name",
    "metadata.namespace",
    "spec.nodeName",
    "spec.unschedulable",
    "spec.serviceAccountName",
    "spec.signerName",
    "status.phase",
    "status.podIP",
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];

impl Selector {
    /// Reads both selectors of a query; an unreadable one is a bad request.
    pub fn parse(labels: &str, fields: &str) -> Result<Self, Refusal> {
        Ok(Self { labels: parse_labels(labels)?, fields: parse_fields(fields)? })
    }

    /// Selects by a `metav1.LabelSelector` object.
    pub fn from_object(selector: &Value) -> Self {
        let mut labels = Vec::new();
        for (key, value) in selector["matchLabels"].as_object().into_iter().flatten() {
            labels.push(Requirement::In(key.clone(), vec![text(value).to_owned()]));
        }
        for term in selector["matchExpressions"].as_array().into_iter().flatten() {
            let key = text(&term["key"]).to_owned();
            let values = term["values"].as_array().into_iter().flatten();
            let values = values.map(|value| text(value).to_owned()).collect();
            labels.push(match text(&term["operator"]) {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                _ => Requirement::Absent(key),
            });
        }
        Self { labels, fields: Vec::new() }
    }

    /// The one name that it can match, if it says so.
    pub fn only_name(&self) -> Option<&str> {
        let named = |term: &&FieldTerm| term.equal && term.pointer == "/metadata/name";
        self.fields.iter().find(named).map(|term| term.value.as_str())
    }

    /// Whether it asks for nothing but objects whose `field` is `value`.
    pub fn demands(&self, field: &str, value: &str) -> bool {
        let pointer = format!("/{}", field.replace('.', "/"));
        self.fields.iter().any(|term| term.equal && term.pointer == pointer && term.value == value)
    }

    /// Whether it asks for all.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub fn matches(&self, object: &Value) -> bool {
        self.labels.iter().all(|requirement| requirement.holds(&object["metadata"]["labels"]))
            && self.fields.iter().all(|term| term.holds(object))
    }
}

impl Requirement {
    fn key(&self) -> &str {
        match self {
            Self::In(key, _) | Self::NotIn(key, _) | Self::Exists(key) | Self::Absent(key) => key,
        }
    }

    fn holds(&self, labels: &Value) -> bool {
        match self {
            Self::In(key, values) => labels[key].as_str().is_some_and(|label| has(values, label)),
            Self::NotIn(key, values) => {
                labels[key].as_str().is_none_or(|label| !has(values, label))
            }
            Self::Exists(key) => labels.get(key).is_some(),
            Self::Absent(key) => labels.get(key).is_none(),
        }
    }
}

impl FieldTerm {
    fn holds(&self, object: &Value) -> bool {
        let value = match object.pointer(&self.pointer) {
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(value) => text(value).to_owned(),
            None if self.pointer == "/spec/unschedulable" => "false".to_owned(),
            None => String::new(),
        };
        (value == self.value) == self.equal
    }
}

fn has(values: &[String], wanted: &str) -> bool {
    values.iter().any(|value| value == wanted)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn parse_fields(selector: &str) -> Result<Vec<FieldTerm>, Refusal> {
    selector.split(',').filter(|term| !term.is_empty()).map(parse_field).collect()
}

fn parse_field(term: &str) -> Result<FieldTerm, Refusal> {
    let (field, value, equal) = if let Some((field, value)) = term.split_once("!=") {
        (field, value, false)
    } else if let Some((field, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        (field, value, true)
    } else {
        let message = format!("invalid selector: '{term}'; can't understand '{term}'");
        return Err(Refusal::bad_request(message));
    };
    if !FIELDS.contains(&field) {
        return Err(Refusal::bad_request(format!("field label not supported: {field}")));
    }
    let pointer = match field {
        "source" => "/source/component".to_owned(),
        field => format!("/{}", field.replace('.', "/")),
    };
    Ok(FieldTerm { pointer, value: value.to_owned(), equal })
}

fn parse_labels(selector: &str) -> Result<Vec<Requirement>, Refusal> {
    let mut rest = selector.trim();
    let mut requirements = Vec::new();
    while !rest.is_empty() {
        let end = term_end(rest);
        let term = rest[..end].trim();
        rest = rest[end..].trim_start_matches(',').trim();
        if !term.is_empty() {
            let requirement = parse_label(term)?;
            if requirement.key().is_empty() {
                let message = format!("unable to parse requirement: found '{term}', expected: key");
                return Err(Refusal::bad_request(message));
            }
            requirements.push(requirement);
        }
    }
    Ok(requirements)
}

/// Where the first term ends: at a comma that is not between parentheses.
fn term_end(text: &str) -> usize {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn parse_label(term: &str) -> Result<Requirement, Refusal> {
    if let Some((head, values)) = term.split_once('(') {
        let values = values.trim_end().strip_suffix(')').unwrap_or(values);
        let values = values.split(',').map(|value| value.trim().to_owned()).collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(Requirement::In(key.to_owned(), values)),
            (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(key.to_owned(), values)),
            _ => Err(unreadable(term)),
        };
    }
    let pair = |key: &str, value: &str| (key.trim().to_owned(), vec![value.trim().to_owned()]);
    if let Some((key, value)) = term.split_once("!=") {
        let (key, values) = pair(key, value);
        return Ok(Requirement::NotIn(key, values));
    }
    if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
        let (key, values) = pair(key, value);
        return Ok(Requirement::In(key, values));
    }
    if let Some(key) = term.strip_prefix('!') {
        return Ok(Requirement::Absent(key.trim().to_owned()));
    }
    if term.contains(char::is_whitespace) {
        return Err(unreadable(term));
    }
    Ok(Requirement::Exists(term.to_owned()))
}

fn unreadable(term: &str) -> Refusal {
    Refusal::bad_request(format!("unable to parse requirement: {term:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn label_selectors_select_by_equality_and_by_sets() {
        let object = json!({"metadata": {"labels": {"app": "web", "tier": "front"}}});
        for (selector, selected) in [
            ("", true),
            ("app=web", true),
            ("app == web,tier=front", true),
            ("app=db", false),
            ("app!=db", true),
            ("absent!=x", true),
            ("app in (db, web),tier notin (back)", true),
            ("app in (db)", false),
            ("absent notin (x)", true),
            ("app", true),
            ("!app", false),
            ("!absent", true),
        ] {
            let parsed = Selector::parse(selector, "").unwrap();
            assert_eq!(parsed.matches(&object), selected, "{selector}");
        }
        assert!(Selector::parse("app near (web)", "").is_err());
    }

    #[test]
    fn field_selectors_select_by_known_fields_alone() {
        let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "mac"}, "status": {}});
        for (selector, selected) in [
            ("metadata.name=p", true),
            ("spec.nodeName==mac,status.phase!=Failed", true),
            ("spec.nodeName=", false),
            ("status.phase=Running", false),
        ] {
            let parsed = Selector::parse("", selector).unwrap();
            assert_eq!(parsed.matches(&pod), selected, "{selector}");
        }
        assert!(Selector::parse("", "spec.containers=x").is_err());
        assert_eq!(Selector::parse("", "metadata.name=p").unwrap().only_name(), Some("p"));
    }
}
