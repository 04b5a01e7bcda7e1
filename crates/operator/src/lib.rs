//! The shell in the cluster: it observes, lets `core` decide, and performs one effect a turn.

mod calls;
mod events;
pub mod leader;
pub mod provider;
pub mod runner_pools;
mod troubles;
