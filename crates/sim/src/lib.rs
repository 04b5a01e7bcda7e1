//! The world, simulated: Scaleway, Macs, Tart, Kubernetes; clock, faults, oracles.

pub mod cluster_api;
pub mod faults;
pub mod github;
pub mod kubernetes;
pub mod mac;
pub mod macs;
pub mod oracle;
pub mod scaleway;
pub mod tart;
pub mod world;
