//! The simulated API server, asked by the real `kube` client and runtime under a paused clock.

#[path = "kubernetes_in_process/accounts.rs"]
mod accounts;
#[path = "kubernetes_in_process/applying.rs"]
mod applying;
#[path = "kubernetes_in_process/deletion.rs"]
mod deletion;
#[path = "kubernetes_in_process/fixture.rs"]
mod fixture;
#[path = "kubernetes_in_process/gate.rs"]
mod gate;
#[path = "kubernetes_in_process/nodes.rs"]
mod nodes;
#[path = "kubernetes_in_process/objects.rs"]
mod objects;
#[path = "kubernetes_in_process/watching.rs"]
mod watching;
