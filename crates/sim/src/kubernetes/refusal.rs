//! Every answer that is not a success, as the `Status` object that clients know.

use serde_json::{Value, json};

use super::kind::Kind;

/// A request that was refused: its HTTP code and everything that its `Status` body says.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The HTTP status code.
    pub code: u16,
    /// The machine-readable reason, `NotFound` for example; empty where there is none.
    pub reason: &'static str,
    /// The sentence that people read.
    pub message: String,
    /// The `details` of the `Status`, or null.
    pub details: Value,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Fault {
    /// The path of the field, `spec.replicas`.
    pub field: String,
    /// The cause's reason, `FieldValueInvalid` for example.
    pub reason: &'static str,
    /// What is wrong, without the field.
    pub message: String,
}

impl Fault {
    pub fn invalid(field: impl Into<String>, value: &Value, why: &str) -> Self {
        let message = format!("Invalid value: {value}: {why}");
        Self { field: field.into(), reason: "FieldValueInvalid", message }
    }

    pub fn required(field: impl Into<String>, why: &str) -> Self {
        let message = match why {
            "" => "Required value".to_owned(),
            why => format!("Required value: {why}"),
        };
        Self { field: field.into(), reason: "FieldValueRequired", message }
    }

    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        let message = format!("Duplicate value: {value}");
        Self { field: field.into(), reason: "FieldValueDuplicate", message }
    }

    pub fn unsupported(field: impl Into<String>, value: &Value, choices: &[&str]) -> Self {
        let choices: Vec<String> = choices.iter().map(|choice| format!("{choice:?}")).collect();
        let choices = choices.join(", ");
        let message = format!("Unsupported value: {value}: supported values: {choices}");
        Self { field: field.into(), reason: "FieldValueNotSupported", message }
    }

    pub fn forbidden(field: impl Into<String>, why: &str) -> Self {
        let message = format!("Forbidden: {why}");
        Self { field: field.into(), reason: "FieldValueForbidden", message }
    }
}

impl Refusal {
    /// A refusal without details.
    #[must_use]
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null }
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    pub(crate) fn no_such_path() -> Self {
        let message = "the server could not find the requested resource";
        Self { details: json!({}), ..Self::new(404, "NotFound", message) }
    }

    pub(crate) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self { details: json!({}), ..Self::new(405, "MethodNotAllowed", message) }
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> Self {
        Self {
            details: details(kind, name),
            ..Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.key))
        }
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self {
            details: details(kind, name),
            ..Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.key))
        }
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.key);
        Self { details: details(kind, name), ..Self::new(409, "Conflict", message) }
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version \
                   and try again";
        Self::conflict(kind, name, why)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.key);
        Self { details: details(kind, name), ..Self::new(403, "Forbidden", message) }
    }

    /// What a Pod that runs as a VM on a Mac does not have. One that does not run yet says so, as
    /// with any agent.
    pub(crate) fn no_stream(kind: &Kind, pod: &Value, what: &str) -> Self {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        let container = pod["spec"]["containers"][0]["name"].as_str().unwrap_or_default();
        if pod["status"]["phase"] == "Pending" {
            let why = "ContainerCreating";
            let message =
                format!("container {container:?} in pod {name:?} is waiting to start: {why}");
            return Self::bad_request(message);
        }
        let message = format!(
            "the agent on a Mac serves no {what}: what a guest writes stays in it, and a runner's \
             job has its log at its CI server"
        );
        Self { details: details(kind, name), ..Self::new(501, "NotImplemented", message) }
    }

    /// The 422 of an object with `faults`.
    pub(crate) fn invalid(kind: &Kind, name: &str, faults: &[Fault]) -> Self {
        let full = if kind.group.is_empty() {
            kind.name.clone()
        } else {
            format!("{}.{}", kind.name, kind.group)
        };
        let told: Vec<String> =
            faults.iter().map(|fault| format!("{}: {}", fault.field, fault.message)).collect();
        let told = match &told[..] {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = faults
            .iter()
            .map(|f| json!({"reason": f.reason, "message": f.message, "field": f.field}))
            .collect();
        let mut details = json!({"kind": kind.name, "causes": causes});
        if !name.is_empty() {
            details["name"] = json!(name);
        }
        if !kind.group.is_empty() {
            details["group"] = json!(kind.group);
        }
        let message = format!("{full} \"{name}\" is invalid: {told}");
        Self { details, ..Self::new(422, "Invalid", message) }
    }

    /// The 410 of a resource version that is no longer in the history.
    pub(crate) fn expired(wanted: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {wanted} ({oldest})");
        Self::new(410, "Expired", message)
    }

    /// The 504 of a request that takes longer than the server lets one.
    pub(crate) fn timeout() -> Self {
        let message = "Timeout: request did not complete within the allotted timeout";
        Self { details: json!({}), ..Self::new(504, "Timeout", message) }
    }

    /// The 503 of whoever stands before a server that is away.
    pub(crate) fn away() -> Self {
        Self::new(503, "ServiceUnavailable", "the simulated API server is gone")
    }

    pub(crate) fn unsupported_media(message: impl Into<String>) -> Self {
        Self { details: json!({}), ..Self::new(415, "UnsupportedMediaType", message) }
    }

    /// The 500 of a value that the storage cannot read. It has no reason.
    pub(crate) fn unreadable(message: impl Into<String>) -> Self {
        let message = message.into();
        let details = json!({"causes": [{"message": message.clone()}]});
        let message = format!("Internal error occurred: {message}");
        Self { details, ..Self::new(500, "", message) }
    }

    /// The `Status` object.
    #[must_use]
    pub fn body(&self) -> Value {
        let mut body = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            body["reason"] = json!(self.reason);
        }
        if !self.details.is_null() {
            body["details"] = self.details.clone();
        }
        body
    }
}

/// The details that name one object.
pub(crate) fn details(kind: &Kind, name: &str) -> Value {
    let mut details = json!({"kind": kind.plural});
    if !name.is_empty() {
        details["name"] = json!(name);
    }
    if !kind.group.is_empty() {
        details["group"] = json!(kind.group);
    }
    details
}
