//! Scaleway's Apple silicon API as Rust types: client, typed errors, sealed credentials.
