//! Egress: the shell of `core::egress`. All Services of the fleet, looked at now and again.

use std::collections::BTreeMap;
use std::sync::Arc;

use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::Outcome;
use applecart_core::egress::{self, Action, Observed, Tailnet};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::Context;
use super::observe::chain;
use crate::calls::{self, ReadError};
use crate::effects::Effect;

/// Where Services for Macs are kept, and what they say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Egress {
    /// Their namespace: that of Tailscale's operator.
    pub namespace: String,
    /// What they say.
    pub tailnet: Tailnet,
}

/// Looks until dropped; ends at once if there are no such Services.
pub async fn run(context: Arc<Context>) {
    let Some(wanted) = &context.settings.egress else { return };
    loop {
        if let Err(error) = turn(&context, wanted).await {
            tracing::warn!(namespace = wanted.namespace, error = chain(&error), "egress Services");
        }
        tokio::time::sleep(context.settings.limits.look * 3).await;
    }
}

/// One list of each, whatever the size of the fleet.
async fn turn(context: &Context, wanted: &Egress) -> Result<(), ReadError> {
    let services: Api<Service> = Api::namespaced(context.client.clone(), &wanted.namespace);
    let all = ListParams::default();
    // Services first: one whose Machine is in neither list was made for a Machine that is gone.
    let found = calls::read("egress Services", services.list(&all)).await?;
    // Those of every namespace, whichever this provider looks after: a Service of another
    // provider's Machine is not that of a Machine that is gone.
    let machines: Api<ScalewayAppleSiliconMachine> = Api::all(context.client.clone());
    let machines = calls::read("Machines", machines.list(&all)).await?;
    let mut seen = Observed::default();
    for machine in machines.items {
        let bound = machine.status.as_ref().is_some_and(|status| status.server_id.is_some());
        let stays = bound && machine.metadata.deletion_timestamp.is_none();
        let name = machine.metadata.name.unwrap_or_default();
        *seen.machines.entry(name).or_default() |= stays;
    }
    let mut stored = BTreeMap::new();
    for service in found.items {
        let (name, meta) = (service.metadata.name.clone(), &service.metadata);
        let (uid, resource_version) = (meta.uid.clone(), meta.resource_version.clone());
        stored.insert(name.unwrap_or_default(), Preconditions { uid, resource_version });
        seen.services.insert(service.metadata.name.clone().unwrap_or_default(), observed(service));
    }
    for action in egress::decide(&seen, &wanted.tailnet) {
        let object = format!("{}/{}", wanted.namespace, action.machine());
        let effect = Effect {
            controller: "egress",
            object: &object,
            word: action.word(),
            detail: String::new(),
            reason: &action,
        };
        let read = stored.get(action.machine()).cloned().unwrap_or_default();
        context.effects.perform(&effect, perform(&services, wanted, &action, read)).await;
    }
    Ok(())
}

/// `read` is the Service as it was looked at.
async fn perform(
    services: &Api<Service>,
    wanted: &Egress,
    action: &Action,
    read: Preconditions,
) -> Outcome {
    let name = action.machine();
    match action {
        Action::Create(_) => {
            let mut object = says(name, &wanted.tailnet);
            object["metadata"]["name"] = json!(name);
            object["spec"]["type"] = json!("ExternalName");
            // Only at birth: where it leads is the other operator's to say.
            let placeholder = format!("placeholder.{}.svc.cluster.local", wanted.namespace);
            object["spec"]["externalName"] = json!(placeholder);
            match serde_json::from_value(object) {
                Ok(service) => {
                    let how = PostParams::default();
                    calls::create(services.create(&how, &service)).await
                }
                Err(error) => Outcome::Failed(error.to_string()),
            }
        }
        Action::Mend(_) => {
            let change = says(name, &wanted.tailnet);
            let how = PatchParams::default();
            calls::write(services.patch(name, &how, &Patch::Merge(&change))).await
        }
        Action::Delete(_) => {
            let how = DeleteParams::default().preconditions(read);
            calls::delete(services.delete(name, &how)).await
        }
    }
}

/// What is ours of a Service.
fn says(machine: &str, tailnet: &Tailnet) -> Value {
    let wanted = egress::Service::of(machine, tailnet);
    let port = |(name, port): (&String, &i32)| {
        let target = port;
        json!({"name": name, "port": port, "targetPort": target, "protocol": "TCP"})
    };
    let ports: Vec<Value> = wanted.ports.iter().map(port).collect();
    json!({
        "metadata": {"labels": wanted.labels, "annotations": wanted.annotations},
        "spec": {"ports": ports},
    })
}

fn observed(service: Service) -> egress::Service {
    let ports = service.spec.and_then(|spec| spec.ports).unwrap_or_default();
    let ports: BTreeMap<String, i32> =
        ports.into_iter().map(|port| (port.name.unwrap_or_default(), port.port)).collect();
    egress::Service {
        labels: service.metadata.labels.unwrap_or_default(),
        annotations: service.metadata.annotations.unwrap_or_default(),
        ports,
    }
}
