//! Answers as they look on the wire: bodies, errors, headers.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// An answer, before the headers that all answers have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The type of the body.
    #[serde(default = "json_type")]
    pub content_type: String,
    /// Seconds until the caller should come back, as a header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<String>,
    /// The body.
    #[serde(default)]
    pub body: String,
    /// One of the service's own errors, which it sends as its settings say; any other answer goes
    /// out as it is.
    #[serde(skip)]
    pub(super) is_typed: bool,
}

fn json_type() -> String {
    "application/json".to_owned()
}

/// A time as the service writes it: always six digits of a second.
pub(super) fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

/// What an operation ends with.
pub(super) type Performed = Result<Answer, Answer>;

impl Answer {
    /// A JSON body.
    #[must_use]
    pub fn json(status: u16, body: &Value) -> Self {
        Self::raw(status, &json_type(), &body.to_string())
    }

    /// Any type of body, as it is.
    #[must_use]
    pub fn raw(status: u16, content_type: &str, body: &str) -> Self {
        let (content_type, body) = (content_type.to_owned(), body.to_owned());
        Self { status, content_type, retry_after: None, body, is_typed: false }
    }

    /// 200, as for everything but deletions.
    #[must_use]
    pub fn ok(body: &Value) -> Self {
        Self::json(200, body)
    }

    /// 204: JSON by its header, but empty.
    #[must_use]
    pub fn no_content() -> Self {
        Self::raw(204, &json_type(), "")
    }

    /// A gateway's words instead of the service's.
    #[must_use]
    pub fn html(status: u16) -> Self {
        Self::raw(status, "text/html", &format!("<html><body><h1>{status}</h1></body></html>"))
    }

    /// A status and nothing else.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self::raw(status, "text/plain", "")
    }

    /// The types of error that [`Answer::error`] knows.
    pub const ERRORS: &[&str] = &[
        "already_exists",
        "conflict",
        "denied_authentication",
        "expired",
        "invalid_arguments",
        "locked",
        "not_found",
        "out_of_stock",
        "permissions_denied",
        "precondition_failed",
        "quotas_exceeded",
        "resource_expired",
        "too_many_requests",
        "transient_state",
    ];

    /// One of the service's typed errors, with plausible fields, by its `type`.
    #[must_use]
    pub fn error(kind: &str) -> Option<Self> {
        let id = "00000000-0000-4000-8000-000000000000";
        let answer = match kind {
            "invalid_arguments" => Self::invalid("name", "format", "not like this"),
            "denied_authentication" => Self::denied_authentication("expired"),
            "permissions_denied" => Self::denied("read", "server"),
            "quotas_exceeded" => Self::quota("apple_silicon_m4_m", 2, 2),
            "not_found" => Self::not_found("server", id),
            "transient_state" => Self::transient(id, "starting"),
            "resource_expired" | "expired" => Self::typed(
                410,
                kind,
                "resource is expired",
                json!({"resource": "server", "resource_id": id,
                       "expired_since": "2026-01-02T03:04:05.000000Z"}),
            ),
            "precondition_failed" => {
                Self::too_early("2026-03-06T08:25:47.808092Z".parse().expect("a time"))
            }
            "locked" => Self::locked(id),
            "out_of_stock" => Self::out_of_stock("server"),
            "too_many_requests" => Self::too_many_requests(2),
            "already_exists" => Self::already_exists("server", id),
            "conflict" => Self::typed(409, kind, "conflict", json!({})),
            _ => return None,
        };
        Some(answer)
    }

    fn typed(status: u16, kind: &str, message: &str, extra: Value) -> Self {
        let mut body = extra;
        body["type"] = kind.into();
        body["message"] = message.into();
        Self { is_typed: true, ..Self::json(status, &body) }
    }

    pub(super) fn invalid(argument: &str, reason: &str, help: &str) -> Self {
        let detail = json!({"argument_name": argument, "reason": reason, "help_message": help});
        let extra = json!({"details": [detail]});
        Self::typed(400, "invalid_arguments", "invalid argument(s)", extra)
    }

    pub(super) fn denied_authentication(reason: &str) -> Self {
        let extra = json!({"method": "api_key", "reason": reason});
        Self::typed(401, "denied_authentication", "authentication is denied", extra)
    }

    pub(super) fn denied(action: &str, resource: &str) -> Self {
        let extra = json!({"details": [{"action": action, "resource": resource}]});
        Self::typed(403, "permissions_denied", "insufficient permissions", extra)
    }

    pub(super) fn quota(resource: &str, quota: usize, current: usize) -> Self {
        let detail = json!({"resource": resource, "quota": quota, "current": current});
        let extra = json!({"details": [detail]});
        Self::typed(403, "quotas_exceeded", "quota(s) exceeded", extra)
    }

    pub(super) fn not_found(resource: &str, id: &str) -> Self {
        let extra = json!({"resource": resource, "resource_id": id});
        Self::typed(404, "not_found", "resource is not found", extra)
    }

    pub(super) fn transient(id: &str, state: &str) -> Self {
        let extra = json!({"resource": "server", "resource_id": id, "current_state": state});
        Self::typed(409, "transient_state", "resource is in a transient state", extra)
    }

    pub(super) fn already_exists(resource: &str, id: &str) -> Self {
        let extra = json!({"resource": resource, "resource_id": id,
                           "help_message": "it is there already"});
        Self::typed(409, "already_exists", "resource already exists", extra)
    }

    /// The licensing floor. The date is in the form that Go prints a time in.
    pub(super) fn too_early(deletable_at: Timestamp) -> Self {
        let date = deletable_at.strftime("%Y-%m-%d %H:%M:%S%.f +0000 UTC");
        let help = format!("this server cannot be deleted before {date}");
        let extra = json!({"precondition": "unknown_precondition", "help_message": help});
        Self::typed(412, "precondition_failed", "precondition is not respected", extra)
    }

    pub(super) fn locked(id: &str) -> Self {
        let extra = json!({"resource": "server", "resource_id": id});
        Self::typed(423, "locked", "resource is locked", extra)
    }

    pub(super) fn out_of_stock(resource: &str) -> Self {
        let extra = json!({"resource": resource});
        Self::typed(503, "out_of_stock", "resource is out of stock", extra)
    }

    /// Too many calls, with the seconds until the limit is lifted. The date is added when it goes.
    #[must_use]
    pub fn too_many_requests(reset_seconds: u32) -> Self {
        let extra = json!({"help_message": "slow down", "reset_seconds": reset_seconds,
                           "limit": {"quota": 100, "window_seconds": 60}});
        Self::typed(429, "too_many_requests", "too many requests", extra)
    }

    /// The whole answer. The gateway escapes `<`, `>` and `&` inside JSON.
    pub(super) fn into_response(self, request_id: &str, zone: &str) -> Response<Bytes> {
        let body = if self.content_type.starts_with("application/json") {
            escape(&self.body)
        } else {
            self.body
        };
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let headers = response.headers_mut();
        common_headers(headers, zone);
        text_header(headers, header::CONTENT_TYPE, &self.content_type);
        text_header(headers, header::HeaderName::from_static("x-request-id"), request_id);
        if let Some(after) = &self.retry_after {
            text_header(headers, header::RETRY_AFTER, after);
        }
        response
    }
}

fn common_headers(headers: &mut HeaderMap, zone: &str) {
    text_header(headers, header::SERVER, &format!("Scaleway API Gateway ({zone};edge01)"));
    for (name, value) in [
        (header::STRICT_TRANSPORT_SECURITY, "max-age=63072000"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
}

fn text_header(headers: &mut HeaderMap, name: header::HeaderName, value: &str) {
    // A lever may carry any text; what cannot be a header is left out.
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

/// In JSON these characters occur inside strings only, so that replacing them is safe.
fn escape(json: &str) -> String {
    json.replace('<', "\\u003c").replace('>', "\\u003e").replace('&', "\\u0026")
}
