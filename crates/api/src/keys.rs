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
    /// Held while a host is on its way to or from an object: `clusterctl move` waits for it.
    pub const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";
    /// `terminate`: delete the host instead of returning it to the pool.
    pub const RELEASE_POLICY: &str = "tuist.dev/release-policy";
    /// The value of [`RELEASE_POLICY`] that does so.
    pub const TERMINATE: &str = "terminate";
    /// When a host was last ordered for the object. Written before the order is sent.
    pub const ORDERED_AT: &str = "applecart.dev/ordered-at";
    /// On an object, with any value: its Mac, which was taken over, is brought up to date at once.
    pub const UPDATE: &str = "applecart.dev/update";
    /// On a Node that the provider keeps cordoned, so that an update can come: since when.
    pub const DRAINING: &str = "applecart.dev/draining";
    /// On a Node that was emptied in vain: when that was given up.
    pub const DRAINED: &str = "applecart.dev/drained";
    /// On the account of a Mac's agent: the object that has its name, as `namespace/name/uid`.
    pub const OWNER: &str = "applecart.dev/owner";
    /// On the Pod template of a Deployment that spreads over the Macs.
    pub const FLEET_HASH: &str = "tuist.dev/fleet-hash";
}

/// The taint that keeps everything but Macs' own Pods off a Mac.
pub const TAINT_MACOS: &str = "tuist.dev/macos";

/// The taints that Kubernetes puts on a Node whose agent is not well, or is silent.
pub const TAINTS_SILENT: [&str; 2] =
    ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The Lease that the provider's leader holds; the system before us holds the same one.
pub const LEADER_LEASE: &str = "scaleway-applesilicon.infrastructure.cluster.x-k8s.io";

/// The launchd job of the agent on a Mac.
pub const AGENT_JOB: &str = "dev.tuist.tart-kubelet";

/// The Lease of a host: who holds it, and what is known of it whoever holds it.
pub mod lease {
    use crate::ids::ServerId;

    /// Label on every host's Lease.
    pub const HOST: &str = "applecart.dev/host";
    /// Label with the UID of the object that holds the host.
    pub const HOLDER: &str = "applecart.dev/holder";
    /// Annotation: the zone that the host stands in.
    pub const ZONE: &str = "applecart.dev/zone";
    /// Annotation: the pool that its last owner's spec names, to which it goes back whoever returns
    /// it.
    pub const POOL: &str = "applecart.dev/pool";
    /// Annotation: its last owner, as `namespace/name/uid`. Until the host is wiped, its disk is
    /// that one's, and no namesake takes it over.
    pub const LAST_OWNER: &str = "applecart.dev/last-owner";
    /// Annotation: its last owner made it a builder, whose jobs run on the Mac itself, where
    /// Kubernetes does not see them.
    pub const BUILDER: &str = "applecart.dev/builder";
    /// Annotation: when the host was seen under its holder's claiming name.
    pub const MARKED_AT: &str = "applecart.dev/marked-at";
    /// Annotation: when a wipe was last seen to run.
    pub const WIPED_AT: &str = "applecart.dev/wiped-at";
    /// Annotation: `"true"` from the claim until the next wipe is seen to run.
    pub const UNWIPED: &str = "applecart.dev/unwiped";
    /// Annotation: when the sweep last asked for a wipe that nobody has seen to run yet; written
    /// before it does.
    pub const WIPE_ASKED_AT: &str = "applecart.dev/wipe-asked-at";
    /// Annotation: how often it did.
    pub const WIPE_ASKS: &str = "applecart.dev/wipe-asks";
    /// Annotation: when the host was seen under its holder's releasing name.
    pub const RELEASING_AT: &str = "applecart.dev/releasing-at";
    /// Annotation: when its deletion was first asked for; written before it is.
    pub const DELETE_REQUESTED_AT: &str = "applecart.dev/delete-requested-at";
    /// Annotation: `"true"` while its holder is moved to another cluster, or may be: its Cluster is
    /// paused. Such a host is nobody's to return, whatever became of the holder.
    pub const MOVED: &str = "applecart.dev/moved";
    /// Annotation: `"true"` if the host should be set aside, and Scaleway would not rename it.
    pub const QUARANTINED: &str = "applecart.dev/quarantined";
    /// Annotation: how many owners in a row gave the host up because its bootstrap failed.
    pub const OWNERS_FAILED: &str = "applecart.dev/owners-failed";

    /// The Lease's name.
    #[must_use]
    pub fn name(server: &ServerId) -> String {
        format!("host-{server}")
    }
}

/// Names of the Secrets that Cluster API wants of a Cluster.
pub mod of_cluster {
    /// Type of both.
    pub const TYPE: &str = "cluster.x-k8s.io/secret";
    /// Key of the only value in each.
    pub const VALUE: &str = "value";

    /// Secret with the kubeconfig by which Cluster API reaches the Nodes.
    #[must_use]
    pub fn kubeconfig(cluster: &str) -> String {
        format!("{cluster}-kubeconfig")
    }

    /// Secret for `bootstrap.dataSecretName` of Machines: a Mac needs it to exist, not to say
    /// anything.
    #[must_use]
    pub fn bootstrap_data(cluster: &str) -> String {
        format!("{cluster}-noop-bootstrap")
    }
}

/// Names of the objects that belong to one machine, and the keys in its Secrets.
pub mod owned {
    /// Secret with the host's password and pinned key.
    #[must_use]
    pub fn credentials(machine: &str) -> String {
        format!("{machine}-bootstrap")
    }

    /// Secret with the SSH key that a fleet shares.
    #[must_use]
    pub fn fleet_key(fleet: &str) -> String {
        format!("{fleet}-ssh")
    }

    /// `ServiceAccount` and `ClusterRoleBinding` of the agent.
    #[must_use]
    pub fn agent(machine: &str) -> String {
        format!("tart-kubelet-{machine}")
    }

    /// Secret with the agent's token.
    #[must_use]
    pub fn agent_token(machine: &str) -> String {
        format!("tart-kubelet-{machine}-token")
    }

    /// Key of the password in the credentials Secret.
    pub const PASSWORD: &str = "sudo-password";
    /// Key of the user name in the credentials Secret.
    pub const USER: &str = "ssh-username";
    /// Key of the pinned host key in the credentials Secret.
    pub const HOST_KEY: &str = "host-fingerprint";
    /// Key of the private key in the fleet's Secret.
    pub const PRIVATE_KEY: &str = "id_ed25519";
    /// Key of the public key in the fleet's Secret.
    pub const PUBLIC_KEY: &str = "id_ed25519.pub";
    /// Annotation of the fleet's Secret: under which id its key is registered at Scaleway.
    pub const SSH_KEY_ID: &str = "scaleway.tuist.dev/ssh-key-id";
}
