//! Decisions: pure functions from what was observed to the one thing to do next.
