//! The world, simulated: Scaleway, Macs, Tart, Kubernetes; clock, faults, oracles.

pub mod kubernetes;
pub mod tart;
