//! Nouns: the custom resources, names, labels and ids that Applecart speaks. No async, no I/O.

pub mod clock;
pub mod cluster;
pub mod cluster_api;
pub mod condition;
pub mod control_plane;
mod crds;
pub mod credential;
pub mod ids;
pub mod keys;
pub mod machine;
pub mod name_class;
pub mod os_pin;
pub mod runner_pool;

pub use crds::crds;
