//! Scaleway's Apple silicon API as Rust types: client, typed errors, sealed credentials.
//!
//! # Guarantees
//! - A process has at most [`CONCURRENT_CALLS`] calls under way, whatever number of clients it has.
//! - A write is sent at most once. Reads are repeated a few times, with jitter, while that helps.
//! - Every call ends: it has a time-out, waits for its turn only so long, and answers are bounded.
//! - An error says what it means ([`ErrorKind`]) and what to do next ([`Retry`]). A write that may
//!   or may not have happened is [`ErrorKind::Unknown`], never a failure.
//! - A list is whole: what was there from the first page to the last is in it, once.
//! - A password comes out of [`Client::server`] alone, and never as a placeholder.
//!
//! # Assumptions
//! - Lists are in order of creation, so that what is created while we list comes last.
//! - The clock and the generator of jitter are the caller's: same input, same behaviour.

mod call;
mod catalogue;
mod client;
mod credentials;
mod error;
mod ids;
mod limit;
mod pages;
mod profile;
mod server;
mod servers;
mod ssh_keys;
mod transport;

pub use call::{CallReport, OnCall, Operation};
pub use catalogue::{Os, ServerType, Stock, SupportedServerType};
pub use client::{CALL_TIMEOUT, Client, Config, WRITE_PATIENCE};
pub use error::{Error, ErrorKind, Retry};
pub use ids::{OsId, ProjectId, SshKeyId, TextIdError};
pub use limit::{CONCURRENT_CALLS, Limit};
pub use pages::LIST_TIMEOUT;
pub use profile::{DEFAULT_API_URL, Profile, ProfileError};
pub use server::{Server, ServerStatus};
pub use servers::Order;
pub use ssh_keys::SshKey;
pub use transport::{Transport, TransportError, http_service};
