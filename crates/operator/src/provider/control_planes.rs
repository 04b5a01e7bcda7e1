//! Control planes that are there already: the shell of `core::control_plane`.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::control_plane::ExistingControlPlane;
use applecart_core::Outcome;
use applecart_core::control_plane::{Observed, decide};
use futures::{StreamExt, future};
use kube::api::{Patch, PatchParams};
use kube::runtime::controller::Action as Wake;
use kube::runtime::{Controller, watcher};
use kube::{Api, ResourceExt};
use serde_json::json;
use tracing::Instrument;

use super::Context;
use super::clusters::{MANAGED_BY, owner};
use super::observe::chain;
use crate::calls::{self, ReadError};
use crate::effects::Effect;

/// Runs all control planes until dropped.
pub async fn run(context: Arc<Context>) {
    let all = context.watched::<ExistingControlPlane>();
    Controller::new(all, watcher::Config::default())
        .run(numbered, |object, error, context| failed(&object, error, &context), context)
        .for_each(|_| future::ready(()))
        .await;
}

fn failed(object: &ExistingControlPlane, error: &ReadError, context: &Context) -> Wake {
    context.metrics.count_unread("control-plane");
    tracing::warn!(object = %object.name_any(), error = chain(error), "turn");
    Wake::requeue(context.settings.limits.look)
}

fn numbered(
    object: Arc<ExistingControlPlane>,
    context: Arc<Context>,
) -> impl Future<Output = Result<Wake, ReadError>> {
    let span = context.effects.turn("control-plane", &object.name_any());
    turn(object, context).instrument(span)
}

async fn turn(object: Arc<ExistingControlPlane>, context: Arc<Context>) -> Result<Wake, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ExistingControlPlane> = Api::namespaced(context.client.clone(), &namespace);
    let read = calls::read("the object", api.get_opt(&object.name_any())).await?;
    let limits = &context.settings.limits;
    let Some(object) = read else { return Ok(Wake::requeue(limits.look)) };
    let seen = Observed {
        generation: object.metadata.generation,
        status: object.status.clone().unwrap_or_default(),
        managed_elsewhere: object.annotations().contains_key(MANAGED_BY),
        owned: owner(object.owner_references()).is_some(),
    };
    let Some(status) = decide(context.clock.now(), &seen) else {
        return Ok(Wake::requeue(limits.keep));
    };
    let version = object.resource_version();
    let change = json!({"metadata": {"resourceVersion": version}, "status": status});
    let (patch, how) = (Patch::Merge(&change), PatchParams::default());
    let name = object.name_any();
    let performed = calls::write(api.patch_status(&name, &how, &patch));
    let effect = Effect {
        controller: "control-plane",
        object: &name,
        word: "write the status",
        detail: String::new(),
        reason: &"Cluster API waits for it",
    };
    let Some(outcome) = context.effects.perform(&effect, performed).await else {
        return Ok(Wake::requeue(limits.keep));
    };
    Ok(match outcome {
        Outcome::Done => Wake::requeue(Duration::ZERO),
        Outcome::Refused | Outcome::Unknown | Outcome::Failed(_) => Wake::requeue(limits.look),
    })
}
