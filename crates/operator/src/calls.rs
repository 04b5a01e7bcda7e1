//! One Kubernetes call: bounded in time, and its end read by what it means.

use std::time::Duration;

use applecart_core::Outcome;

/// Longest wait for one answer of the API server. Past it, the effect may have happened.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The API server said no, or said nothing that we understand.
    #[error("could not read {what}")]
    Kubernetes {
        /// What was read.
        what: &'static str,
        /// What was said.
        #[source]
        source: Box<kube::Error>,
    },
    /// No answer in time.
    #[error("could not read {what}: no answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut {
        /// What was read.
        what: &'static str,
    },
    /// What was read cannot be what it should be.
    #[error("could not read {what}: {why}")]
    Malformed {
        /// What was read.
        what: &'static str,
        /// What is wrong with it, and what to do.
        why: String,
    },
}

impl ReadError {
    /// What was to be read.
    pub fn what(&self) -> &'static str {
        match self {
            Self::Kubernetes { what, .. }
            | Self::TimedOut { what }
            | Self::Malformed { what, .. } => what,
        }
    }

    /// Whether the API server said that we may not.
    pub fn is_denied(&self) -> bool {
        match self {
            Self::Kubernetes { source, .. } => {
                matches!(&**source, kube::Error::Api(status) if status.code == 403)
            }
            Self::TimedOut { .. } | Self::Malformed { .. } => false,
        }
    }
}

/// Reads, within the time limit.
pub async fn read<T>(
    what: &'static str,
    call: impl Future<Output = kube::Result<T>>,
) -> Result<T, ReadError> {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(ReadError::Kubernetes { what, source: Box::new(source) }),
        Err(_) => Err(ReadError::TimedOut { what }),
    }
}

/// Writes, within the time limit, and says how it ended.
pub async fn write<T>(call: impl Future<Output = kube::Result<T>>) -> Outcome {
    written(call).await.0
}

/// Writes, and says how it ended and what is there now, if that is known.
pub async fn written<T>(call: impl Future<Output = kube::Result<T>>) -> (Outcome, Option<T>) {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Ok(now)) => (Outcome::Done, Some(now)),
        Ok(Err(error)) => (outcome(&error), None),
        Err(_) => (Outcome::Unknown, None),
    }
}

/// Creates: what is there already is there.
pub async fn create<T>(call: impl Future<Output = kube::Result<T>>) -> Outcome {
    created(call).await.0
}

/// Creates, and says what is there now, if that is known.
pub async fn created<T>(call: impl Future<Output = kube::Result<T>>) -> (Outcome, Option<T>) {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Err(kube::Error::Api(status))) if status.is_already_exists() => (Outcome::Done, None),
        Ok(Ok(now)) => (Outcome::Done, Some(now)),
        Ok(Err(error)) => (outcome(&error), None),
        Err(_) => (Outcome::Unknown, None),
    }
}

/// Deletes: what is gone already is gone; a precondition that does not hold any more is refused.
pub async fn delete<T>(call: impl Future<Output = kube::Result<T>>) -> Outcome {
    match tokio::time::timeout(CALL_TIMEOUT, call).await {
        Ok(Err(kube::Error::Api(status))) if status.code == 404 => Outcome::Done,
        Ok(Ok(_)) => Outcome::Done,
        Ok(Err(error)) => outcome(&error),
        Err(_) => Outcome::Unknown,
    }
}

/// A conflict or an absence means that the world is not as it was read: look again. An answer of
/// the server's own failure, or none, leaves open whether the effect happened.
fn outcome(error: &kube::Error) -> Outcome {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409) => Outcome::Refused,
        kube::Error::Api(status) if (400..500).contains(&status.code) => {
            Outcome::Failed(status.message.clone())
        }
        _ => Outcome::Unknown,
    }
}
