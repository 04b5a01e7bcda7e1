//! Errors by meaning, whatever their shape on the wire.

mod wire;

use std::fmt;

use http::{Response, StatusCode};
use jiff::Timestamp;

use crate::call::Operation;
use crate::server::ServerStatus;
use crate::transport::TransportError;

pub(crate) use wire::from_answer;

/// What an error means. Its text is for people; this is what code decides by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// 404: there is no such thing.
    NotFound,
    /// 403: not allowed. **A deleted server answers this too**, and so does a key whose rights are
    /// still spreading: it says nothing about whether the server exists.
    Permission,
    /// 409: busy with something else; which state it is in.
    TransientState {
        /// The state that has to pass first.
        state: ServerStatus,
    },
    /// 412: not yet; for a deletion, the earliest time if the answer named one.
    Precondition {
        /// When the licensing floor ends.
        deletable_at: Option<Timestamp>,
    },
    /// 423: locked by Scaleway.
    Locked,
    /// 503 with a type: no such server to be had now.
    OutOfStock,
    /// 403 with a type: the project may not have more.
    Quota,
    /// 401: the secret key is not accepted.
    Authentication,
    /// 429: too many calls.
    RateLimited {
        /// When to come back, if the answer said so.
        reset: Option<Timestamp>,
    },
    /// 400: what we sent is not acceptable.
    InvalidArgument,
    /// 409 with a type: it is there already.
    AlreadyExists,
    /// 410: what we named has expired.
    Expired,
    /// No answer to a request that was, or may have been, sent; or a write that a gateway, or a
    /// broken answer, leaves in doubt. It may have happened: look again.
    Unknown,
    /// Never sent: it has not happened.
    Unreachable,
    /// Anything else.
    Other,
}

impl ErrorKind {
    /// Every name that metrics carry.
    pub const LABELS: &[&str] = &[
        "not_found",
        "permission",
        "transient_state",
        "precondition",
        "locked",
        "out_of_stock",
        "quota",
        "authentication",
        "rate_limited",
        "invalid_argument",
        "already_exists",
        "expired",
        "unknown",
        "unreachable",
        "other",
    ];

    /// The name that metrics carry.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Permission => "permission",
            Self::TransientState { .. } => "transient_state",
            Self::Precondition { .. } => "precondition",
            Self::Locked => "locked",
            Self::OutOfStock => "out_of_stock",
            Self::Quota => "quota",
            Self::Authentication => "authentication",
            Self::RateLimited { .. } => "rate_limited",
            Self::InvalidArgument => "invalid_argument",
            Self::AlreadyExists => "already_exists",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
            Self::Unreachable => "unreachable",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TransientState { state } => write!(f, "in a transient state ({state})"),
            Self::Precondition { deletable_at: Some(at) } => write!(f, "not before {at}"),
            Self::RateLimited { reset: Some(at) } => write!(f, "rate limited until {at}"),
            Self::Unknown => f.write_str("outcome unknown"),
            other => f.write_str(&other.label().replace('_', " ")),
        }
    }
}

/// What to do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// Look again at once.
    Now,
    /// Try again, less and less often.
    BackOff,
    /// The same call cannot succeed before something else changes.
    WaitForChange,
    /// The same call will never succeed.
    Never,
}

/// A call that did not end well: what was tried, what the answer means, and how to find it in
/// Scaleway's logs. No part of it holds a secret.
#[derive(Debug, thiserror::Error)]
pub struct Error {
    /// What it means.
    pub kind: ErrorKind,
    /// What was tried.
    pub operation: Operation,
    /// The status of the answer, if there was one.
    pub status: Option<StatusCode>,
    /// Scaleway's id of the request, if there was an answer.
    pub request_id: Option<String>,
    message: String,
    /// The answer had a type: it is Scaleway's own.
    typed: bool,
    #[source]
    source: Option<TransportError>,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, operation: Operation, message: impl Into<String>) -> Self {
        Self {
            kind,
            operation,
            status: None,
            request_id: None,
            message: message.into(),
            typed: false,
            source: None,
        }
    }

    pub(crate) fn from_transport(operation: Operation, source: TransportError) -> Self {
        let kind = match source {
            TransportError::NotSent(_) => ErrorKind::Unreachable,
            TransportError::Lost(_) => ErrorKind::Unknown,
        };
        Self { source: Some(source), ..Self::new(kind, operation, "") }
    }

    pub(crate) fn with_answer<T>(self, answer: &Response<T>) -> Self {
        let request_id = wire::request_id(answer.headers());
        Self { status: Some(answer.status()), request_id, ..self }
    }

    /// Whether Scaleway itself said what it means. Else its status alone was read, and a proxy in
    /// between may have made that up.
    #[must_use]
    pub fn is_typed(&self) -> bool {
        self.typed
    }

    /// What to do about it.
    #[must_use]
    pub fn class(&self) -> Retry {
        match self.kind {
            // A lost connection is usually one that had idled for too long: the next one works.
            ErrorKind::Unknown if self.status.is_none() => Retry::Now,
            ErrorKind::Unknown | ErrorKind::Unreachable | ErrorKind::RateLimited { .. } => {
                Retry::BackOff
            }
            ErrorKind::Permission
            | ErrorKind::TransientState { .. }
            | ErrorKind::Precondition { .. }
            | ErrorKind::Locked
            | ErrorKind::OutOfStock
            | ErrorKind::Quota
            | ErrorKind::Authentication => Retry::WaitForChange,
            ErrorKind::NotFound
            | ErrorKind::InvalidArgument
            | ErrorKind::AlreadyExists
            | ErrorKind::Expired => Retry::Never,
            ErrorKind::Other => self.class_by_status(),
        }
    }

    fn class_by_status(&self) -> Retry {
        match self.status {
            Some(StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::CONFLICT) => {
                Retry::BackOff
            }
            Some(status) if status.is_client_error() || status.is_redirection() => Retry::Never,
            Some(_) | None => Retry::BackOff,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.operation, self.kind)?;
        if !self.message.is_empty() {
            write!(f, ": {}", self.message)?;
        }
        match (self.status, &self.request_id) {
            (Some(status), Some(id)) => write!(f, " (HTTP {}, request {id})", status.as_u16()),
            (Some(status), None) => write!(f, " (HTTP {})", status.as_u16()),
            (None, _) => Ok(()),
        }
    }
}
