//! A Kubernetes API server in memory, for tests, sweeps and the demo.
//!
//! # Flow
//! A request is read ([`Identity`], path, query) → passes the [`Gate`] → is performed at once on
//! plain JSON under one lock → the built-in controllers (garbage collection, namespaces, tokens,
//! definitions, budgets) act, still within the request → is shown as the client wants it: whole,
//! metadata, or a table.
//!
//! # Guarantees
//! - The same requests in the same order, with the same seed and clock, give the same answers.
//! - One version counter for all objects; a watch misses nothing, or says 410.
//! - A request does work in proportion to what it asks for, not to what is stored.
//!
//! # Assumptions
//! - Every request is authenticated; roles are checked only where somebody asked for that.
//! - Owners of fields (`managedFields`) are kept, and not shown.
//! - The built-in controllers are never late.

mod action;
mod admission;
mod aftermath;
mod apply;
mod auth;
mod authorize;
mod budget;
mod builtin;
mod builtin_columns;
mod column;
mod discovery;
mod document;
mod escalation;
mod event;
mod format;
mod gate;
mod jsonpath;
mod kind;
mod list;
mod naming;
mod node_rights;
mod openapi;
mod patch;
mod pod;
pub(crate) mod quantity;
mod refusal;
mod registry;
mod removal;
mod request;
mod respond;
mod review;
mod rules;
mod scale;
mod schema;
mod selector;
mod serve;
mod server;
mod signing;
mod state;
mod store;
mod tls;
mod view;
mod watch;
mod workload;
mod write;

pub use auth::Identity;
pub use gate::{Call, Delivery, Gate, Verb, Verdict};
pub use refusal::Refusal;
pub use registry::Registry;
pub use schema::SchemaError;
pub use serve::ServeError;
pub use server::{ApiServer, Setup};
pub use state::EVENT_LIFE;
pub use store::HISTORY_AGE;
pub use tls::{Authority, AuthorityError};
