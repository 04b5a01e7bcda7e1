//! Decisions: pure functions from what was observed to the one thing to do next.

pub mod node;
pub mod pod;
