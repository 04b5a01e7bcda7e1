//! The shell in the cluster: it observes, lets `core` decide, and performs one effect a turn.

mod calls;
mod effects;
mod events;
pub mod leader;
pub mod metrics;
pub mod provider;
pub mod runner_pools;
pub mod sweep;
mod tellings;
mod troubles;
