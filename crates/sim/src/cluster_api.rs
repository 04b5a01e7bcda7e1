//! Small stand-ins for what runs in a real cluster beside us: Cluster API's own manager, the
//! scheduler, and the parts of the controller-manager that notice dead Nodes and keep Deployments.
//!
//! # Flow
//! Each is a future that never ends and is stopped by dropping it. It watches, and at most once a
//! period it lists what there is, decides purely, and writes through [`kube::Client`] alone; any
//! turn may be the first.
//!
//! # Guarantees
//! - Objects appear, change owners and go in the order of Cluster API 1.14, contract v1beta2.
//! - A turn that finds everything as it should be writes nothing.
//! - Waiting is `tokio::time`; the time of day is told by a [`Clock`].
//!
//! [`Clock`]: applecart_api::clock::Clock
//!
//! # Caveats
//! - One infrastructure provider: ours. Nothing of bootstrap providers, `ClusterClass`,
//!   `MachinePool` or `MachineHealthCheck`.
//! - A Node is bound to its Machine without a kubeconfig Secret and `ControlPlaneInitialized`.
//! - A label or annotation that is taken out of a template stays on the objects that have it.

mod action;
mod cluster;
mod core;
mod crds;
mod deployment;
mod kind;
mod machine;
mod manifests;
mod node_lifecycle;
mod pace;
mod scheduler;
mod schemas;
mod set;
mod taints;
mod workloads;
mod world;

pub use self::core::core;
pub use crds::crds;
pub use manifests::Manifests;
pub use node_lifecycle::{NodePace, node_lifecycle};
pub use scheduler::scheduler;
pub use workloads::workloads;
