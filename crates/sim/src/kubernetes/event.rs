//! The two vocabularies for Events: `events.k8s.io/v1` speaks newer words about the same objects.

use serde_json::{Map, Value};

/// Newer word, older word.
const WORDS: [(&str, &str); 7] = [
    ("regarding", "involvedObject"),
    ("note", "message"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
];

/// From `events.k8s.io/v1` to `v1`, in which Events are stored.
pub(crate) fn to_core(event: Value) -> Value {
    rename(event, "v1", |word| WORDS.iter().find(|(newer, _)| *newer == word).map(|pair| pair.1))
}

/// From `v1` to `events.k8s.io/v1`.
pub(crate) fn from_core(event: Value) -> Value {
    let older = |word: &str| WORDS.iter().find(|(_, older)| *older == word).map(|pair| pair.0);
    rename(event, "events.k8s.io/v1", older)
}

fn rename(event: Value, api_version: &str, word: impl Fn(&str) -> Option<&'static str>) -> Value {
    let Value::Object(fields) = event else { return event };
    let renamed: Map<String, Value> = fields
        .into_iter()
        .map(|(key, value)| match word(&key) {
            Some(other) => (other.to_owned(), value),
            None if key == "apiVersion" => (key, Value::from(api_version)),
            None => (key, value),
        })
        .collect();
    Value::Object(renamed)
}
