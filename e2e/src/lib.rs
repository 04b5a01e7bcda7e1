//! Black-box tests on a real Kubernetes and a real Cluster API.
//!
//! # The ground
//! [`ControlPlane::start`] gives etcd, kube-apiserver, kube-controller-manager and kube-scheduler
//! on free loopback ports; [`ClusterApi::start`] adds Cluster API's own manager to it.
//!
//! ```no_run
//! # async fn story() -> anyhow::Result<()> {
//! use applecart_e2e::{Binaries, ClusterApi, ControlPlane, Process, wait};
//! use std::process::Command;
//!
//! let binaries = Binaries::obtain().await?;            // from the cache, built if need be
//! let mut plane = ControlPlane::start(&binaries).await?;
//! let client = plane.client();                         // kube::Client, may do everything
//! let _manager = ClusterApi::start(&mut plane).await?; // its CRDs, webhooks and process
//!
//! // A program of ours, under a ServiceAccount with the rights that RBAC gives it.
//! let kubeconfig = plane.kubeconfig_of_service_account("tuist", "provider").await?;
//! let mut command = Command::new("target/debug/applecart");
//! command.arg("provider").env("KUBECONFIG", kubeconfig);
//! let mut provider = Process::start("provider", &command, plane.folder())?; // guarded, logged
//! provider.must_live()?;
//! provider.kill()?;                                    // as kill -9; `terminate` asks first
//! # Ok(()) }
//! ```
//!
//! Everything that is started is a [`Process`]: it ends when its handle is dropped and when this
//! process dies, however it dies (see [`guard`]). Only a program that gives `guard` to
//! [`guard::run`] can start them: scenarios run in this package's own binary.
//!
//! # Scenarios
//! A scenario is an async function from a [`Ground`] to a `Result`, in a file under `scenarios/`,
//! with a row in [`scenarios::ALL`]. The runner gives all of them one control plane; each takes a
//! namespace of its own ([`Ground::namespace`]) or starts a control plane of its own.

pub mod audit;
pub mod bench;
pub mod binaries;
pub mod canaries;
pub mod certificates;
pub mod cluster_api;
pub mod conformance;
pub mod control_plane;
pub mod folder;
pub mod ground;
pub mod guard;
pub mod installation;
pub mod kubeconfig;
pub mod objects;
pub mod ports;
pub mod process;
pub mod recording;
pub mod runner;
pub mod scenarios;
pub mod wait;

pub use audit::Audit;
pub use binaries::Binaries;
pub use canaries::Canaries;
pub use cluster_api::ClusterApi;
pub use control_plane::ControlPlane;
pub use ground::Ground;
pub use process::Process;
