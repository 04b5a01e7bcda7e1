//! The shape in which the service's own errors go out, where nobody knows which one it is.

use std::time::Duration;

use serde_json::{Value, json};

use super::answer::{self, Answer};
use super::settings::{ExistsStatus, Message, RateLimitReset};
use super::state::State;

/// The types of error whose `message` is known.
const RECORDED: &[&str] = &[
    "invalid_arguments",
    "permissions_denied",
    "not_found",
    "transient_state",
    "precondition_failed",
    "conflict",
];

impl State {
    /// An answer as it goes out now. What a rule spells out in full stays as it is.
    pub(super) fn shaped(&self, answer: Answer) -> Answer {
        if !answer.is_typed {
            return answer;
        }
        let unsure = self.settings.unsure;
        let mut body: Value = serde_json::from_str(&answer.body).expect("our own errors are JSON");
        let kind = body["type"].as_str().unwrap_or_default().to_owned();
        if unsure.unrecorded_message == Message::Empty && !RECORDED.contains(&kind.as_str()) {
            body["message"] = "".into();
        }
        match kind.as_str() {
            "too_many_requests" => self.rate_limited(body),
            "already_exists" if unsure.already_exists_status == ExistsStatus::BadRequest => {
                Answer::json(400, &body)
            }
            _ => Answer::json(answer.status, &body),
        }
    }

    fn rate_limited(&self, mut body: Value) -> Answer {
        let seconds = body["reset_seconds"].as_u64().unwrap_or_default();
        let reset = self.settings.unsure.rate_limit_reset;
        if reset == RateLimitReset::Body {
            let at = self.later(Duration::from_secs(seconds));
            body["reset_at"] = json!(answer::time(at));
            return Answer::json(429, &body);
        }
        if let Some(fields) = body.as_object_mut() {
            fields.remove("reset_seconds");
        }
        let retry_after = (reset == RateLimitReset::Header).then(|| seconds.to_string());
        match reset {
            RateLimitReset::Html => Answer::html(429),
            _ => Answer { retry_after, ..Answer::json(429, &body) },
        }
    }
}
