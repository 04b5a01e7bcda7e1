//! The one door that every request passes: where a sweep counts, refuses and loses answers, and
//! where a crash happens.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use serde_json::Value;

use super::auth::Identity;
use super::refusal::Refusal;

/// What a request wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verb {
    /// Read one object.
    Get,
    /// Read many.
    List,
    /// Follow changes.
    Watch,
    /// Create one.
    Create,
    /// Replace one.
    Update,
    /// Change one.
    Patch,
    /// Delete one.
    Delete,
    /// Delete many.
    DeleteCollection,
}

impl Verb {
    /// Whether it can change anything.
    #[must_use]
    pub fn mutates(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        })
    }
}

/// One request for objects, as the gate sees it.
#[derive(Clone, Debug)]
pub struct Call {
    /// Its number: no two calls of a server have the same.
    pub number: u64,
    /// Who asks.
    pub who: Identity,
    /// What for.
    pub verb: Verb,
    /// `pods`, `machines.cluster.x-k8s.io`.
    pub resource: String,
    /// The namespace in the path, if any.
    pub namespace: Option<String>,
    /// The name in the path; for a create the name in the body, if it has one.
    pub name: Option<String>,
    /// `status`, `scale`, `eviction` …
    pub subresource: Option<String>,
    /// Whether the write names the version or the uid that it is meant for.
    pub conditional: bool,
    /// What is written, as it was sent; empty for a read.
    pub body: Bytes,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.verb, self.resource)?;
        if let Some(subresource) = &self.subresource {
            write!(f, "/{subresource}")?;
        }
        match (&self.namespace, &self.name) {
            (Some(namespace), Some(name)) => write!(f, " {namespace}/{name}"),
            (Some(namespace), None) => write!(f, " {namespace}"),
            (None, Some(name)) => write!(f, " {name}"),
            (None, None) => Ok(()),
        }
    }
}

/// What becomes of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// It is performed and answered.
    Pass,
    /// It is not performed, and answered with this.
    FailBefore(Refusal),
    /// It is not performed, and no answer ever comes.
    HangBefore,
    /// It is performed, and no answer ever comes.
    HangAfter,
    /// It is answered at once with a time-out of the server's own, and performed this much later.
    Late(Duration),
    /// A read that does not see what happened within this time. A write is performed as ever.
    Stale(Duration),
}

/// What becomes of one event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// It arrives.
    Pass,
    /// It never arrives; the watch ends with a 410 when its time is up, so that a client lists
    /// again.
    Drop,
    /// It arrives twice.
    Twice,
    /// Nothing arrives for so long; then only what came of it all.
    Coalesce(Duration),
    /// The connection ends before it.
    Cut,
    /// The server says that the history is gone (410) instead of it.
    Gone,
}

/// Decides what becomes of each call. Reads pass it too; [`Verb::mutates`] tells them apart.
pub trait Gate: Send + Sync {
    /// Called once for each request, before it is performed. May take its time.
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict>;

    /// Called once for each request that was performed or refused, with the answer's HTTP code; for
    /// one that is late when it lands, with what it came to then. No lock is held.
    fn answered(&self, _: &Call, _code: u16) {}

    /// Whether the server is away for whoever made this call: what was held up does not arrive.
    fn is_away(&self, _: &Call) -> bool {
        false
    }

    /// Called once for each event of a watch, before it is delivered.
    fn deliver(&self, _: &Call, _event: &str, _object: &Value) -> Delivery {
        Delivery::Pass
    }
}
