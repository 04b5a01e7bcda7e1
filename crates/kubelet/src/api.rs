//! Calls to the API server, each with a time-out, each with an answer that may be unknown.

use std::time::Duration;

use applecart_core::pod::Outcome;

/// How long one call may take: longer than an API server's slowest honest write, shorter than what
/// would cost the Node its Lease.
const CALL: Duration = Duration::from_secs(15);

/// How a call ended.
pub(crate) enum Answer<T> {
    /// The API server said yes.
    Yes(T),
    /// There is no such object.
    NotFound,
    /// The precondition did not hold.
    Conflict,
    /// The API server said no.
    No(String),
    /// Nobody answered, or not in time.
    Silence(String),
}

/// Makes one call.
pub(crate) async fn call<T>(call: impl Future<Output = kube::Result<T>>) -> Answer<T> {
    match tokio::time::timeout(CALL, call).await {
        Err(_) => Answer::Silence(format!("no answer within {} s", CALL.as_secs())),
        Ok(Ok(value)) => Answer::Yes(value),
        Ok(Err(kube::Error::Api(status))) => match status.code {
            404 => Answer::NotFound,
            409 => Answer::Conflict,
            code => Answer::No(format!("{code} {}: {}", status.reason, status.message)),
        },
        Ok(Err(error)) => Answer::Silence(chain(&error)),
    }
}

impl<T> Answer<T> {
    /// What became of a write. An object that is gone or has changed is looked at again.
    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Yes(_) => Outcome::Done,
            Self::NotFound | Self::Conflict => Outcome::Refused,
            Self::No(message) => Outcome::Failed(message),
            Self::Silence(message) => Outcome::Unknown(message),
        }
    }
}

/// An error and all its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let more = error.to_string();
        // Some errors repeat their cause in their own text.
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = error.source();
    }
    text
}
