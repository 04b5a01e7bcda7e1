//! Decisions: pure functions from what was observed to the one thing to do next.
//!
//! Each room is a pipeline: `observed` (what was read, parsed once), `decide` (all choices),
//! `action` (every effect as data), `status` (what we tell people). No I/O, no clock, no
//! randomness.

pub mod cluster;
pub mod control_plane;
pub mod egress;
pub mod fleet_key;
pub mod leader;
pub mod machine;
pub mod node;
mod outcome;
pub mod pod;
pub mod runner_pool;
pub mod spread;
pub mod sweep;
mod trouble;

pub use outcome::Outcome;
pub use trouble::{Streak, Trouble};
