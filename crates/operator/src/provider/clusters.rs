//! The infrastructure of Clusters: the shell of `core::cluster`.

use std::sync::Arc;

use applecart_api::cluster::ScalewayAppleSiliconCluster;
use applecart_api::cluster_api::{Cluster, GROUP};
use applecart_api::condition::is_true;
use applecart_core::Outcome;
use applecart_core::cluster::{Action, Observed, Owner, decide};
use futures::{StreamExt, future};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action as Wake;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Context;
use super::observe::chain;
use super::perform::mark_control_plane;
use crate::calls::{self, ReadError};

/// Somebody else keeps the object; it is left byte for byte alone.
const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";

/// Runs all Clusters' infrastructure until dropped.
pub async fn run(context: Arc<Context>) {
    let client = context.client.clone();
    let all: Api<ScalewayAppleSiliconCluster> = Api::all(client.clone());
    Controller::new(all, watcher::Config::default())
        .watches(Api::<Cluster>::all(client), watcher::Config::default(), |cluster| {
            let infrastructure = cluster.spec.infrastructure_ref.clone();
            let ours = infrastructure.filter(|r| r.kind == "ScalewayAppleSiliconCluster");
            let namespace = cluster.namespace().unwrap_or_default();
            ours.map(|reference| ObjectRef::new(&reference.name).within(&namespace))
        })
        .run(turn, |object, error, context| failed(&object, error, &context), context)
        .for_each(|_| future::ready(()))
        .await;
}

fn failed(object: &ScalewayAppleSiliconCluster, error: &ReadError, context: &Context) -> Wake {
    tracing::warn!(object = %object.name_any(), error = chain(error), "turn");
    Wake::requeue(context.settings.limits.look)
}

async fn turn(
    object: Arc<ScalewayAppleSiliconCluster>,
    context: Arc<Context>,
) -> Result<Wake, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ScalewayAppleSiliconCluster> = Api::namespaced(context.client.clone(), &namespace);
    let read = calls::read("the object", api.get_opt(&object.name_any())).await?;
    let Some(object) = read else { return Ok(Wake::await_change()) };
    let owner = owner(&context, &object).await?;
    let seen = Observed {
        generation: object.metadata.generation,
        status: object.status.clone().unwrap_or_default(),
        managed_elsewhere: object.annotations().contains_key(MANAGED_BY),
        owner: owner.as_ref().map(|cluster| Owner {
            control_plane_initialized: cluster
                .status
                .as_ref()
                .is_some_and(|status| is_true(&status.conditions, "ControlPlaneInitialized")),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
        }),
    };
    let limits = &context.settings.limits;
    let Some(action) = decide(context.clock.now(), &seen) else {
        return Ok(Wake::requeue(limits.keep));
    };
    let outcome = match (&action, &owner) {
        (Action::WriteStatus(status), _) => {
            let version = object.resource_version();
            let change = json!({"metadata": {"resourceVersion": version}, "status": status});
            let patch = Patch::Merge(&change);
            let name = object.name_any();
            calls::write(api.patch_status(&name, &PatchParams::default(), &patch)).await
        }
        (Action::MarkControlPlane, Some(cluster)) => mark_control_plane(&context, cluster).await,
        (Action::MarkControlPlane, None) => Outcome::Refused,
    };
    tracing::info!(object = %object.name_any(), action = action.describe(), ?outcome, "turn");
    Ok(match outcome {
        Outcome::Done => Wake::requeue(std::time::Duration::ZERO),
        Outcome::Refused | Outcome::Unknown | Outcome::Failed(_) => Wake::requeue(limits.look),
    })
}

async fn owner(
    context: &Context,
    object: &ScalewayAppleSiliconCluster,
) -> Result<Option<Cluster>, ReadError> {
    let is_cluster = |api_version: &str, kind: &str| {
        kind == "Cluster" && api_version.split('/').next() == Some(GROUP)
    };
    let owners = object.owner_references();
    let Some(owner) = owners.iter().find(|o| is_cluster(&o.api_version, &o.kind)) else {
        return Ok(None);
    };
    let namespace = object.namespace().unwrap_or_default();
    let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
    calls::read("its Cluster", clusters.get_opt(&owner.name)).await
}
