//! The shell in the cluster: provider and runner pools.
