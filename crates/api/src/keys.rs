//! Every label, annotation, finalizer, Secret key and file name that others can see, in one place.
//!
//! Names with `tuist.dev` were chosen by the system that Applecart takes over from; a running fleet
//! carries them, so they stay.

/// Finalizers.
pub mod finalizer {
    /// On a `ScalewayAppleSiliconMachine`: its host goes back before the object does.
    pub const MACHINE: &str = "scalewayapplesilicon.cluster.x-k8s.io/finalizer";
    /// On a Pod: its VM is deleted before the object is.
    pub const POD_VM: &str = "tart-kubelet.tuist.dev/vm-cleanup";
    /// On a `RunnerPool`: its last job ends before the object does.
    pub const RUNNER_POOL: &str = "tuist.dev/runner-pool-drain";
}

/// Labels.
pub mod label {
    /// Which fleet a Node, Machine or Secret belongs to.
    pub const FLEET: &str = "tuist.dev/fleet";
    /// On Nodes: what runs Pods there.
    pub const RUNTIME: &str = "tuist.dev/runtime";
    /// The value of [`RUNTIME`] on a Mac.
    pub const RUNTIME_TART: &str = "tart";
    /// On a runner Pod: `"true"`.
    pub const RUNNER: &str = "tuist.dev/runner";
    /// On a runner Pod: the pool that keeps it.
    pub const RUNNER_POOL: &str = "tuist.dev/runner-pool";
    /// On a runner Pod: present and non-empty once a job claimed it.
    pub const RUNNER_POOL_OWNER: &str = "tuist.dev/runner-pool-owner";
    /// Who manages a Secret of ours.
    pub const MANAGED_BY: &str = "tuist.dev/managed-by";
    /// The value of [`MANAGED_BY`].
    pub const MANAGED_BY_PROVIDER: &str = "capi-scaleway-applesilicon";
    /// Which machine a Secret belongs to.
    pub const MACHINE: &str = "tuist.dev/machine";
    /// Which Cluster an object belongs to; Cluster API's own.
    pub const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";
}

/// Annotations.
pub mod annotation {
    /// Cluster API's pause, with any value, also "false".
    pub const PAUSED: &str = "cluster.x-k8s.io/paused";
    /// Set by `clusterctl move` on what it is about to delete: the host moves on, untouched.
    pub const DELETE_FOR_MOVE: &str = "clusterctl.cluster.x-k8s.io/delete-for-move";
    /// `terminate`: delete the host instead of returning it to the pool.
    pub const RELEASE_POLICY: &str = "tuist.dev/release-policy";
    /// On the Pod template of a Deployment that spreads over the Macs.
    pub const FLEET_HASH: &str = "tuist.dev/fleet-hash";
}

/// The taint that keeps everything but Macs' own Pods off a Mac.
pub const TAINT_MACOS: &str = "tuist.dev/macos";

/// The Lease that the provider's leader holds; the system before us holds the same one.
pub const LEADER_LEASE: &str = "scaleway-applesilicon.infrastructure.cluster.x-k8s.io";

/// The launchd job of the agent on a Mac.
pub const AGENT_JOB: &str = "dev.tuist.tart-kubelet";
