//! Conditions: what is true of an object, since when, and why.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One condition, in the shape of `metav1.Condition`.
///
/// Only `type` and `status` are required, and `severity` is kept, so that conditions written by the
/// system before us stay valid and come back as they were.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What the condition is about, in CamelCase.
    #[serde(rename = "type")]
    pub type_: String,
    /// Whether it holds: True, False or Unknown.
    pub status: String,
    /// How bad False is, in conditions of the older shape: Error, Warning or Info.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<String>,
    /// Why, in one CamelCase word that programs can compare.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// When the status last changed; a new message alone does not move it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub last_transition_time: Option<Timestamp>,
    /// The generation of the object that this was said about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// What a condition shall say now; when it changed is for [`set`] to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Says {
    /// The condition's type.
    pub type_: &'static str,
    /// True, False or Unknown.
    pub status: &'static str,
    /// One CamelCase word.
    pub reason: &'static str,
    /// A sentence for people; may be empty.
    pub message: String,
}

/// Puts what `says` tells into `conditions`, which stay sorted by type. Each type is there once:
/// old objects may have one twice, which no API server would take back (S15).
///
/// The time moves only with the status: health checks count from it.
pub fn set(conditions: &mut Vec<Condition>, says: Says, generation: Option<i64>, now: Timestamp) {
    let now = Timestamp::from_second(now.as_second()).expect("a time that was a time");
    let old = conditions.iter().find(|c| c.type_ == says.type_);
    let since =
        old.filter(|c| c.status == says.status).and_then(|c| c.last_transition_time).unwrap_or(now);
    let new = Condition {
        type_: says.type_.to_owned(),
        status: says.status.to_owned(),
        severity: None,
        reason: Some(says.reason.to_owned()),
        message: (!says.message.is_empty()).then_some(says.message),
        last_transition_time: Some(since),
        observed_generation: generation,
    };
    conditions.retain(|c| c.type_ != new.type_);
    conditions.push(new);
    conditions.sort_by(|a, b| a.type_.cmp(&b.type_));
    conditions.dedup_by(|later, first| later.type_ == first.type_);
}

/// Whether the condition of this type is there and True.
#[must_use]
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    conditions.iter().any(|c| c.type_ == type_ && c.status == "True")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn says(status: &'static str, message: &str) -> Says {
        Says { type_: "Ready", status, reason: "Because", message: message.into() }
    }

    #[test]
    fn the_time_moves_with_the_status_and_not_with_the_message() {
        let mut conditions = vec![];
        let at = |s| Timestamp::from_second(s).unwrap();
        set(&mut conditions, says("False", "one"), Some(1), at(10));
        set(&mut conditions, says("False", "two"), Some(2), at(20));
        assert_eq!(conditions[0].last_transition_time, Some(at(10)));
        assert_eq!(conditions[0].message.as_deref(), Some("two"));
        set(&mut conditions, says("True", ""), Some(2), at(30));
        assert_eq!(conditions[0].last_transition_time, Some(at(30)));
        assert_eq!(conditions[0].message, None);
        assert_eq!(conditions.len(), 1);
    }

    #[test]
    fn what_an_old_object_says_twice_is_said_once() {
        // S15: conditions were a plain list once, and are a map by type now.
        let old = |type_: &str, status: &str| -> Condition {
            serde_json::from_value(serde_json::json!({"type": type_, "status": status})).unwrap()
        };
        let mut conditions = vec![old("Other", "True"), old("Ready", "True"), old("Other", "No")];
        set(&mut conditions, says("False", ""), None, Timestamp::UNIX_EPOCH);
        let types: Vec<&str> = conditions.iter().map(|c| c.type_.as_str()).collect();
        assert_eq!(types, ["Other", "Ready"]);
    }

    #[test]
    fn a_condition_of_the_older_shape_reads_and_writes_back_unchanged() {
        let old = serde_json::json!({
            "type": "Bootstrapped", "status": "False", "severity": "Warning",
            "reason": "BootstrapFailed", "lastTransitionTime": "2026-05-19T10:11:12Z"
        });
        let read: Condition = serde_json::from_value(old.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), old);
    }
}
