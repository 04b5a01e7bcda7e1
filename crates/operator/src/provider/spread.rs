//! Fleet spread: the shell of `core::spread`. One Deployment, looked at now and again.

use std::sync::Arc;

use applecart_core::spread::{self, Decision, FLEET_HASH, Observed};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Context;
use super::observe::chain;
use crate::calls::{self, ReadError};
use crate::effects::Effect;

/// Which Deployment is rolled when other Macs are Ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spread {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub deployment: String,
}

/// Looks until dropped; ends at once if there is no Deployment to look at.
pub async fn run(context: Arc<Context>) {
    let Some(spread) = &context.settings.spread else { return };
    loop {
        if let Err(error) = turn(&context, spread).await {
            tracing::warn!(deployment = spread.deployment, error = chain(&error), "fleet spread");
        }
        // Nothing about it is urgent: a roll takes minutes.
        tokio::time::sleep(context.settings.limits.look * 3).await;
    }
}

async fn turn(context: &Context, spread: &Spread) -> Result<(), ReadError> {
    let deployments: Api<Deployment> = Api::namespaced(context.client.clone(), &spread.namespace);
    let get = deployments.get_opt(&spread.deployment);
    let deployment = calls::read("the Deployment of --fleet-spread-deployment", get).await?;
    let nodes: Api<Node> = Api::all(context.client.clone());
    let nodes = calls::read("Nodes", nodes.list(&ListParams::default())).await?;
    let version = deployment.as_ref().and_then(ResourceExt::resource_version);
    let seen = Observed {
        deployment: deployment.as_ref().map(observed),
        nodes: nodes.items.into_iter().map(node).collect(),
    };
    let Decision { roll: Some(hash), reason } = spread::decide(&seen) else { return Ok(()) };
    // At the version that was read: somebody else's roll is not cut short.
    let change = json!({
        "metadata": {"resourceVersion": version},
        "spec": {"template": {"metadata": {"annotations": {FLEET_HASH: hash}}}},
    });
    let effect = Effect {
        controller: "fleet-spread",
        object: &spread.deployment,
        word: "roll",
        detail: hash,
        reason: &reason,
    };
    let patch = Patch::Merge(&change);
    let how = PatchParams::default();
    let patch = calls::write(deployments.patch(&spread.deployment, &how, &patch));
    context.effects.perform(&effect, patch).await;
    Ok(())
}

fn observed(deployment: &Deployment) -> spread::Deployment {
    let spec = deployment.spec.clone().unwrap_or_default();
    let status = deployment.status.clone().unwrap_or_default();
    let template = spec.template.metadata.unwrap_or_default();
    let generation = deployment.metadata.generation.unwrap_or_default();
    spread::Deployment {
        hash: template.annotations.unwrap_or_default().remove(FLEET_HASH),
        node_selector: spec.template.spec.and_then(|pod| pod.node_selector).unwrap_or_default(),
        generation: (generation, status.observed_generation.unwrap_or_default()),
        wanted: spec.replicas.unwrap_or(1),
        updated: status.updated_replicas.unwrap_or_default(),
        total: status.replicas.unwrap_or_default(),
        available: status.available_replicas.unwrap_or_default(),
        unavailable: status.unavailable_replicas.unwrap_or_default(),
    }
}

fn node(node: Node) -> spread::Node {
    let conditions = node.status.unwrap_or_default().conditions.unwrap_or_default();
    spread::Node {
        name: node.metadata.name.unwrap_or_default(),
        labels: node.metadata.labels.unwrap_or_default(),
        ready: conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"),
        deleting: node.metadata.deletion_timestamp.is_some(),
    }
}
