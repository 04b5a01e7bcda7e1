//! From an answer to its meaning. The `type` in the body decides; without one, the status does.

use http::{HeaderMap, Response, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Error, ErrorKind};
use crate::call::Operation;

/// The most that an error repeats of Scaleway's own words, in characters.
const MESSAGE_MAX: usize = 300;

/// A reset further away than this is taken as this: no answer stops a process for longer.
const RESET_MAX: SignedDuration = SignedDuration::from_mins(5);

/// An error's JSON. Each field is read by itself: one that is not as expected hides no other.
struct Body(Value);

impl Body {
    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name)?.as_str()
    }
}

/// The error in an answer that is not a success.
pub(crate) fn from_answer(
    operation: Operation,
    answer: &Response<bytes::Bytes>,
    now: Timestamp,
) -> Error {
    // A body that does not parse (HTML, nothing, a proxy's words) leaves the status to decide.
    let body = Body(serde_json::from_slice(answer.body()).unwrap_or_default());
    let typed = by_type(&body, answer.headers(), now);
    let is_typed = typed.is_some();
    let kind = typed.unwrap_or_else(|| by_status(operation, answer, &body, now));
    let error = Error::new(kind, operation, words(&body)).with_answer(answer);
    Error { typed: is_typed, ..error }
}

/// Scaleway's id of the request, if it fits on a line.
pub(super) fn request_id(headers: &HeaderMap) -> Option<String> {
    let id = headers.get("x-request-id")?.to_str().ok()?;
    Some(id.chars().take(MESSAGE_MAX).collect())
}

fn by_type(body: &Body, headers: &HeaderMap, now: Timestamp) -> Option<ErrorKind> {
    let kind = match body.text("type")? {
        "not_found" | "unknown_resource" => ErrorKind::NotFound,
        "permissions_denied" => ErrorKind::Permission,
        "transient_state" => ErrorKind::TransientState {
            state: body.text("current_state").unwrap_or_default().into(),
        },
        "precondition_failed" => ErrorKind::Precondition { deletable_at: floor(body) },
        "locked" => ErrorKind::Locked,
        "out_of_stock" => ErrorKind::OutOfStock,
        "quotas_exceeded" => ErrorKind::Quota,
        "denied_authentication" => ErrorKind::Authentication,
        "too_many_requests" => ErrorKind::RateLimited { reset: reset(body, headers, now) },
        "invalid_arguments" => ErrorKind::InvalidArgument,
        "already_exists" => ErrorKind::AlreadyExists,
        "resource_expired" | "expired" => ErrorKind::Expired,
        // The older APIs' one type for two things: fields that are wrong, or a quota.
        "invalid_request_error" if body.0.get("fields").is_some() => ErrorKind::InvalidArgument,
        "invalid_request_error"
            if body.text("message").is_some_and(|text| text.contains("Quota exceeded")) =>
        {
            ErrorKind::Quota
        }
        _ => return None,
    };
    Some(kind)
}

fn by_status(
    operation: Operation,
    answer: &Response<bytes::Bytes>,
    body: &Body,
    now: Timestamp,
) -> ErrorKind {
    match answer.status() {
        StatusCode::BAD_REQUEST => ErrorKind::InvalidArgument,
        StatusCode::UNAUTHORIZED => ErrorKind::Authentication,
        StatusCode::FORBIDDEN => ErrorKind::Permission,
        StatusCode::NOT_FOUND => ErrorKind::NotFound,
        StatusCode::GONE => ErrorKind::Expired,
        StatusCode::PRECONDITION_FAILED => ErrorKind::Precondition { deletable_at: None },
        StatusCode::LOCKED => ErrorKind::Locked,
        StatusCode::TOO_MANY_REQUESTS => {
            ErrorKind::RateLimited { reset: reset(body, answer.headers(), now) }
        }
        // A gateway that gave up does not know whether the service behind it had begun.
        status if status.is_server_error() && !operation.is_read() => ErrorKind::Unknown,
        _ => ErrorKind::Other,
    }
}

/// The date in "this server cannot be deleted before 2026-03-06 08:25:47.808092 +0000 UTC": Go's
/// way to print a time, whose fraction goes when it is zero.
fn floor(body: &Body) -> Option<Timestamp> {
    let (_, date) = body.text("help_message")?.split_once(" before ")?;
    let date = date.trim().trim_end_matches(" UTC");
    Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", date).ok()
}

/// When to come back: from the body, else from `Retry-After` (seconds or a date).
fn reset(body: &Body, headers: &HeaderMap, now: Timestamp) -> Option<Timestamp> {
    let after = |seconds: f64| {
        let wait = SignedDuration::try_from_secs_f64(seconds.max(0.0)).ok()?;
        now.checked_add(wait.min(RESET_MAX)).ok()
    };
    let retry_after = || headers.get(header::RETRY_AFTER)?.to_str().ok();
    let seconds = body.0.get("reset_seconds").and_then(Value::as_f64);
    let at = seconds
        .and_then(after)
        .or_else(|| body.text("reset_at")?.parse().ok())
        .or_else(|| after(retry_after()?.trim().parse().ok()?))
        .or_else(|| {
            let date = retry_after()?.trim().trim_end_matches("GMT");
            Timestamp::strptime("%a, %d %b %Y %H:%M:%S %z", format!("{date}+0000")).ok()
        })?;
    Some(at.clamp(now, now.saturating_add(RESET_MAX).expect("a duration of minutes")))
}

/// What the body says, on one line.
fn words(body: &Body) -> String {
    let mut parts: Vec<String> = ["message", "help_message"]
        .iter()
        .filter_map(|name| body.text(name))
        .map(Into::into)
        .collect();
    parts.extend(body.text("resource").map(|resource| format!("resource {resource}")));
    for detail in body.0.get("details").and_then(Value::as_array).into_iter().flatten() {
        let names = ["argument_name", "reason", "action", "resource", "help_message"];
        let texts = names.iter().filter_map(|name| detail.get(name)?.as_str());
        parts.push(texts.collect::<Vec<_>>().join(" "));
    }
    let printable = |c: &char| !c.is_control();
    parts.join("; ").chars().filter(printable).take(MESSAGE_MAX).collect()
}
