//! Performs one effect of a Pod's turn. No choices here.

use applecart_core::pod::{Action, Outcome, PodId};
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use serde_json::{Value, json};

use super::share;
use crate::agent::Agent;
use crate::api::{call, chain};
use crate::vm::{Vm, VmError};

pub(super) async fn perform<V: Vm>(agent: &Agent<V>, id: &PodId, action: &Action) -> Outcome {
    let pods = Api::<Pod>::namespaced(agent.client.clone(), &id.namespace);
    match action {
        Action::SetFinalizers { version, finalizers } => {
            let metadata = json!({"resourceVersion": version, "finalizers": finalizers});
            write(&pods, id, json!({"metadata": metadata})).await
        }
        Action::PublishStatus { version, status } => {
            let metadata = json!({"resourceVersion": version});
            write(&pods, id, json!({"metadata": metadata, "status": merge(status)})).await
        }
        Action::DeletePod { uid } => {
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid: Some(uid.clone()), ..Default::default() }),
                ..DeleteParams::default()
            };
            call(pods.delete(&id.name, &params)).await.outcome()
        }
        Action::CreateVm(vm, template) => outcome(agent.vm.create(vm, template).await),
        Action::StartVm(vm, template) => match share::gather(agent, id, template).await {
            Ok(share) => outcome(agent.vm.start(vm, share).await),
            Err(missing) => missing,
        },
        Action::RemoveVm(vm) => outcome(agent.vm.remove(vm).await),
    }
}

/// Through `status`, metadata too: a Node's own identity may not patch its Pods otherwise.
async fn write(pods: &Api<Pod>, id: &PodId, body: Value) -> Outcome {
    let params = PatchParams::default();
    call(pods.patch_status(&id.name, &params, &Patch::Merge(body))).await.outcome()
}

/// The status as a merge patch: what it does not say, it takes away.
fn merge(status: &PodStatus) -> Value {
    let mut body = json!({"reason": null, "message": null});
    let said = serde_json::to_value(status).expect("a status is JSON");
    if let (Some(body), Value::Object(said)) = (body.as_object_mut(), said) {
        body.extend(said);
    }
    body
}

fn outcome(result: Result<(), VmError>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(error @ VmError::Unknown { .. }) => Outcome::Unknown(chain(&error)),
        Err(error @ (VmError::Failed { .. } | VmError::Host { .. })) => {
            Outcome::Failed(chain(&error))
        }
    }
}
