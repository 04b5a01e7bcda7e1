//! Which names and labels an object may have. No I/O.

use serde_json::{Value, json};

use super::kind::Kind;
use super::refusal::Fault;

/// The longest name, in bytes: that of a DNS subdomain.
const NAME_BYTES: usize = 253;
/// The longest label, in bytes: that of a DNS label.
const LABEL_BYTES: usize = 63;

/// What is wrong with a new object's name, if anything.
pub(crate) fn check_name(kind: &Kind, name: &str) -> Option<Fault> {
    let fault = |why: &str| Some(Fault::invalid("metadata.name", &json!(name), why));
    if kind.group == "rbac.authorization.k8s.io" {
        let bad = name == "." || name == ".." || name.contains(['/', '%']);
        return if bad { fault("may not contain '/' or '%'") } else { None };
    }
    let label = matches!(&*kind.key, "namespaces" | "services");
    let (most, words) = if label {
        (
            LABEL_BYTES,
            "a lowercase RFC 1123 label must consist of lower case alphanumeric \
          characters or '-', and must start and end with an alphanumeric character",
        )
    } else {
        (
            NAME_BYTES,
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric \
          characters, '-' or '.', and must start and end with an alphanumeric character",
        )
    };
    if name.len() > most {
        return fault(&format!("must be no more than {most} bytes"));
    }
    let parts: Vec<&str> = if label { vec![name] } else { name.split('.').collect() };
    if parts.iter().all(|part| is_dns_label(part)) { None } else { fault(words) }
}

/// What is wrong with a name that is a DNS label, and stands in `field`.
pub(crate) fn check_label_name(field: &str, name: &str) -> Option<Fault> {
    let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or \
               '-', and must start and end with an alphanumeric character";
    let fits = name.len() <= LABEL_BYTES && is_dns_label(name);
    (!fits).then(|| Fault::invalid(field, &json!(name), why))
}

fn is_dns_label(part: &str) -> bool {
    let alphanumeric = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    bytes.first().is_some_and(alphanumeric)
        && bytes.last().is_some_and(alphanumeric)
        && bytes.iter().all(|b| alphanumeric(b) || *b == b'-')
}

/// What is wrong with an object's metadata.
pub(crate) fn check_metadata(metadata: &Value) -> Vec<Fault> {
    let mut faults = check_labels(&metadata["labels"]);
    let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start \
               and end with an alphanumeric character";
    for key in metadata["annotations"].as_object().into_iter().flatten().map(|(key, _)| key) {
        if !is_qualified(&key.to_lowercase()) {
            faults.push(Fault::invalid("metadata.annotations", &json!(key), why));
        }
    }
    for name in metadata["finalizers"].as_array().into_iter().flatten() {
        if !name.as_str().is_some_and(is_qualified) {
            faults.push(Fault::invalid("metadata.finalizers", name, why));
        }
    }
    for owner in metadata["ownerReferences"].as_array().into_iter().flatten() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                let field = format!("metadata.ownerReferences.{field}");
                faults.push(Fault::invalid(field, &json!(""), "must not be empty"));
            }
        }
    }
    faults
}

/// A name that may have a DNS name before it.
fn is_qualified(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(p, name)| (Some(p), name));
    prefix.is_none_or(|prefix| prefix.split('.').all(is_dns_label))
        && !name.is_empty()
        && is_label(name)
}

/// What is wrong with an object's labels.
pub(crate) fn check_labels(labels: &Value) -> Vec<Fault> {
    let labels = labels.as_object().into_iter().flatten();
    labels.filter_map(|(key, value)| check_label(key, value.as_str()?)).collect()
}

fn check_label(key: &str, value: &str) -> Option<Fault> {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(p, name)| (Some(p), name));
    let prefixed = prefix.is_none_or(|prefix| prefix.split('.').all(is_dns_label));
    if !prefixed || name.is_empty() || !is_label(name) {
        let why = "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and \
                   must start and end with an alphanumeric character";
        return Some(Fault::invalid("metadata.labels", &json!(key), why));
    }
    if !is_label(value) {
        let why = if value.len() > LABEL_BYTES {
            "must be no more than 63 bytes"
        } else {
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
             or '.', and must start and end with an alphanumeric character"
        };
        return Some(Fault::invalid("metadata.labels", &json!(value), why));
    }
    None
}

/// Empty, or letters and digits with `-`, `_`, `.` between.
fn is_label(text: &str) -> bool {
    let bytes = text.as_bytes();
    let inner = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    bytes.len() <= LABEL_BYTES
        && bytes.iter().all(inner)
        && bytes.first().is_none_or(u8::is_ascii_alphanumeric)
        && bytes.last().is_none_or(u8::is_ascii_alphanumeric)
}

#[cfg(test)]
mod tests {
    use super::super::builtin::BUILT_IN;
    use super::*;

    #[test]
    fn names_are_dns_names_and_labels_are_short() {
        let kind = |key: &str| BUILT_IN.iter().find(|kind| &*kind.key == key).unwrap().clone();
        for (resource, name, good) in [
            ("pods", "a.b-c", true),
            ("pods", "A", false),
            ("pods", "a_b", false),
            ("pods", "a..b", false),
            ("pods", "-a", false),
            ("namespaces", "a.b", false),
            ("clusterroles.rbac.authorization.k8s.io", "system:Node", true),
        ] {
            assert_eq!(check_name(&kind(resource), name).is_none(), good, "{resource} {name}");
        }
        let long = "x".repeat(64);
        for (key, value, good) in [
            ("tuist.dev/fleet", "a", true),
            ("k", "", true),
            ("k", long.as_str(), false),
            ("k", "a b", false),
            ("UPPER.dev/x", "a", false),
            ("x/", "a", false),
        ] {
            assert_eq!(check_labels(&json!({key: value})).is_empty(), good, "{key}={value}");
        }
    }
}
