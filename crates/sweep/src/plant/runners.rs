//! Bugs of whoever keeps runners.

use applecart_api::keys::{annotation, label};
use applecart_api::runner_pool::RunnerPool;
use applecart_core::pod::{PodId, VmName};
use applecart_sim::faults::RUNNER_POOLS;
use applecart_sim::kubernetes::Identity;
use applecart_sim::world::{NAMESPACE, POOL, World};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Bug, provider};

/// The first runner that there is.
async fn runner(pods: &Api<Pod>) -> Option<Pod> {
    let runners = ListParams::default().labels(label::RUNNER_POOL);
    pods.list(&runners).await.ok()?.items.into_iter().next()
}

pub async fn add_runner(world: &World) -> bool {
    let pods: Api<Pod> = Api::namespaced(provider(world), NAMESPACE);
    let Some(runner) = runner(&pods).await else { return false };
    let mut another = Pod { spec: runner.spec.clone(), ..Pod::default() };
    another.metadata.name = Some("one-more".to_owned());
    another.metadata.labels.clone_from(&runner.metadata.labels);
    another.metadata.owner_references.clone_from(&runner.metadata.owner_references);
    pods.create(&PostParams::default(), &another).await.is_ok()
}

pub async fn take_account(world: &World) -> bool {
    let pods: Api<Pod> = Api::namespaced(provider(world), NAMESPACE);
    let Some(runner) = runner(&pods).await else { return false };
    let accounts: Api<ServiceAccount> = Api::namespaced(provider(world), NAMESPACE);
    accounts.delete(&runner.name_any(), &DeleteParams::default()).await.is_ok()
}

pub async fn take_busy(world: &World, bug: Bug) -> bool {
    let pods: Api<Pod> = Api::namespaced(provider(world), NAMESPACE);
    let busy = ListParams::default().labels(label::RUNNER_POOL_OWNER);
    let Ok(busy) = pods.list(&busy).await else { return false };
    let runs = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let Some(pod) = busy.items.iter().find(runs) else { return false };
    let name = pod.name_any();
    if bug == Bug::BusyDeleted {
        return pods.delete(&name, &DeleteParams::default()).await.is_ok();
    }
    let freed = json!({"metadata": {"finalizers": null}});
    let freed = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&freed)).await.is_ok();
    freed && pods.delete(&name, &DeleteParams::default().grace_period(0)).await.is_ok()
}

/// Says that a job failed, as soon as its guest has ended.
pub async fn fail_job(world: &World) -> bool {
    let pods: Api<Pod> = Api::namespaced(provider(world), NAMESPACE);
    let busy = ListParams::default().labels(label::RUNNER_POOL_OWNER);
    let Ok(busy) = pods.list(&busy).await else { return false };
    let Some(pod) = busy.items.first() else { return false };
    let id = PodId {
        namespace: NAMESPACE.to_owned(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
    };
    if !world.sight().tarts().any(|(_, tart)| tart.has_halted(&VmName::of(&id))) {
        return false;
    }
    let failed = Patch::Merge(json!({"status": {"phase": "Failed"}}));
    pods.patch_status(&id.name, &PatchParams::default(), &failed).await.is_ok()
}

pub async fn make_account(world: &World) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(provider(world), NAMESPACE);
    let account = json!({"metadata": {"name": "nobody", "labels": {label::RUNNER_POOL: "macos"}}});
    let Ok(account) = serde_json::from_value::<ServiceAccount>(account) else { return false };
    accounts.create(&PostParams::default(), &account).await.is_ok()
}

/// Takes all runners of an old image away, as soon as there are two.
pub async fn roll_at_once(world: &World) -> bool {
    let account = Identity::service_account(NAMESPACE, RUNNER_POOLS);
    let client = world.api().client(Identity::stand_in(account.user));
    let pools: Api<RunnerPool> = Api::namespaced(client.clone(), NAMESPACE);
    let pods: Api<Pod> = Api::namespaced(client, NAMESPACE);
    let runners = ListParams::default().labels(label::RUNNER_POOL);
    let (Ok(pool), Ok(listed)) = (pools.get(POOL).await, pods.list(&runners).await) else {
        return false;
    };
    let image = |pod: &Pod| pod.spec.as_ref()?.containers.first()?.image.clone();
    let is_stale = |pod: &&Pod| {
        image(pod).as_deref() != Some(&pool.spec.image) && pod.metadata.deletion_timestamp.is_none()
    };
    let stale: Vec<&Pod> = listed.items.iter().filter(is_stale).collect();
    if stale.len() < 2 {
        return false;
    }
    for pod in &stale {
        let _ = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
    }
    true
}

/// Registers a runner for which there is no Machine.
pub fn register(world: &World) -> bool {
    world.github().register("tuist", "nobody");
    true
}

pub async fn empty_all(world: &World) -> bool {
    let nodes: Api<Node> = Api::all(provider(world));
    let change = json!({"metadata": {"annotations": {annotation::DRAINING: "now"}}});
    let Ok(listed) = nodes.list(&ListParams::default()).await else { return false };
    for node in &listed.items {
        let patch = Patch::Merge(&change);
        if nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await.is_err() {
            return false;
        }
    }
    listed.items.len() > 1
}
