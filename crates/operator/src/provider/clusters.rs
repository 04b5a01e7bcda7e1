//! The infrastructure of Clusters: the shell of `core::cluster`.

use std::sync::Arc;

use applecart_api::cluster::ScalewayAppleSiliconCluster;
use applecart_api::cluster_api::{Cluster, GROUP};
use applecart_api::condition::is_true;
use applecart_api::keys::{annotation, label, of_cluster};
use applecart_core::Outcome;
use applecart_core::cluster::{Access, Action, Observed, Owner, Stored, complaint, decide};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::controller::Action as Wake;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tracing::Instrument;

use super::observe::chain;
use super::perform::mark_control_plane;
use super::{Context, config, objects};
use crate::calls::{self, ReadError};
use crate::effects::Effect;

/// Somebody else keeps the object; it is left byte for byte alone.
pub const MANAGED_BY: &str = "cluster.x-k8s.io/managed-by";

/// What a turn read: what is decided from, and what only an effect needs.
struct Turn {
    seen: Observed,
    object: ScalewayAppleSiliconCluster,
    cluster: Option<Cluster>,
    kubeconfig: Option<Kubeconfig>,
}

/// The kubeconfig that a Cluster should have.
struct Kubeconfig {
    text: SecretString,
    /// Version of the Secret that is to be updated.
    version: Option<String>,
}

/// Runs all Clusters' infrastructure until dropped.
pub async fn run(context: Arc<Context>) {
    let all = context.watched::<ScalewayAppleSiliconCluster>();
    Controller::new(all, watcher::Config::default())
        .watches(context.watched::<Cluster>(), watcher::Config::default(), |cluster| {
            let infrastructure = cluster.spec.infrastructure_ref.clone();
            let ours = infrastructure.filter(|r| r.kind == "ScalewayAppleSiliconCluster");
            let namespace = cluster.namespace().unwrap_or_default();
            ours.map(|reference| ObjectRef::new(&reference.name).within(&namespace))
        })
        .run(numbered, |object, error, context| failed(&object, error, &context), context)
        .for_each(|_| future::ready(()))
        .await;
}

fn failed(object: &ScalewayAppleSiliconCluster, error: &ReadError, context: &Context) -> Wake {
    context.metrics.count_unread("cluster");
    tracing::warn!(object = %object.name_any(), error = chain(error), "turn");
    Wake::requeue(context.settings.limits.look)
}

fn numbered(
    object: Arc<ScalewayAppleSiliconCluster>,
    context: Arc<Context>,
) -> impl Future<Output = Result<Wake, ReadError>> {
    let span = context.effects.turn("cluster", &object.name_any());
    turn(object, context).instrument(span)
}

async fn turn(
    object: Arc<ScalewayAppleSiliconCluster>,
    context: Arc<Context>,
) -> Result<Wake, ReadError> {
    let limits = &context.settings.limits;
    let Some(turn) = observe(&context, &object).await? else {
        context.troubles.clear(&trouble_key(&object));
        return Ok(Wake::requeue(limits.look));
    };
    let Some(action) = decide(context.clock.now(), &turn.seen) else {
        let waits = matches!(turn.seen.access, Access::NoToken(_) | Access::Denied(_))
            || turn.seen.access.unwritten().is_some();
        return Ok(Wake::requeue(if waits { limits.look } else { limits.keep }));
    };
    let effect = Effect {
        controller: "cluster",
        object: &object.name_any(),
        word: action.describe(),
        detail: String::new(),
        reason: &"Cluster API waits for it",
    };
    let performed = perform(&context, &turn, &action);
    let Some(outcome) = context.effects.perform(&effect, performed).await else {
        return Ok(Wake::requeue(limits.keep));
    };
    if outcome == Outcome::Done {
        tell(&context, &turn, &action).await;
    }
    if action.writes_secret() {
        let (key, now) = (trouble_key(&turn.object), context.clock.now());
        let again = context.troubles.settle(&key, action.describe(), &outcome, false, now);
        return Ok(Wake::requeue(again));
    }
    Ok(match outcome {
        Outcome::Done => Wake::requeue(std::time::Duration::ZERO),
        Outcome::Refused | Outcome::Unknown | Outcome::Failed(_) => Wake::requeue(limits.look),
    })
}

/// Its Secrets' troubles: those hold up nothing else.
fn trouble_key(object: &ScalewayAppleSiliconCluster) -> String {
    format!("{}/secrets", object.uid().unwrap_or_default())
}

/// Save, then tell: an Event for what a person has to mend.
async fn tell(context: &Context, turn: &Turn, action: &Action) {
    let Action::WriteStatus(status) = action else { return };
    let Some((reason, message)) = complaint(&turn.seen.status, status) else { return };
    let about = turn.object.object_ref(&());
    context.events.publish(&about, reason, message.to_owned(), true).await;
}

async fn observe(
    context: &Context,
    object: &ScalewayAppleSiliconCluster,
) -> Result<Option<Turn>, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let api: Api<ScalewayAppleSiliconCluster> = Api::namespaced(context.client.clone(), &namespace);
    let read = calls::read("the object", api.get_opt(&object.name_any())).await?;
    let Some(object) = read else { return Ok(None) };
    let cluster = match owner(object.owner_references()) {
        Some(name) => {
            let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
            calls::read("its Cluster", clusters.get_opt(name)).await?
        }
        None => None,
    };
    let (access, kubeconfig) = match &cluster {
        Some(cluster) => access(context, cluster).await?,
        None => (Access::NotOurs, None),
    };
    let seen = Observed {
        generation: object.metadata.generation,
        status: object.status.clone().unwrap_or_default(),
        managed_elsewhere: object.annotations().contains_key(MANAGED_BY),
        paused: object.annotations().contains_key(annotation::PAUSED)
            || cluster.as_ref().is_some_and(|cluster| cluster.spec.paused == Some(true)),
        owner: cluster.as_ref().map(facts),
        access,
        trouble: context.troubles.of(&trouble_key(&object)),
    };
    Ok(Some(Turn { seen, object, cluster, kubeconfig }))
}

fn facts(cluster: &Cluster) -> Owner {
    let status = cluster.status.as_ref();
    Owner {
        control_plane_initialized: status
            .is_some_and(|status| is_true(&status.conditions, "ControlPlaneInitialized")),
        control_plane_object: cluster.spec.control_plane_ref.is_some(),
        deleting: cluster.metadata.deletion_timestamp.is_some(),
    }
}

/// The Cluster among an object's owners.
pub fn owner(owners: &[OwnerReference]) -> Option<&str> {
    let is_cluster =
        |o: &&OwnerReference| o.kind == "Cluster" && o.api_version.split('/').next() == Some(GROUP);
    owners.iter().find(is_cluster).map(|owner| owner.name.as_str())
}

/// How Cluster API gets to the Nodes, and the kubeconfig that it should have.
async fn access(
    context: &Context,
    cluster: &Cluster,
) -> Result<(Access, Option<Kubeconfig>), ReadError> {
    let Some(name) = &context.settings.remote_token else { return Ok((Access::NotOurs, None)) };
    let own = &context.settings.namespace;
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), own);
    let given = calls::read("Cluster API's token", secrets.get_opt(name)).await?;
    let data = given.and_then(|secret| secret.data).unwrap_or_default();
    let data = data.into_iter().map(|(key, value)| (key, value.0)).collect();
    let (Ok(ca), Ok(token)) = (config::field(&data, "ca.crt"), config::field(&data, "token"))
    else {
        let why = format!("Secret {own}/{name} has no token and CA yet");
        return Ok((Access::NoToken(why), None));
    };
    let wanted = objects::Kubeconfig {
        context: "applecart",
        user: "cluster-api",
        url: &context.settings.api_server_url,
        ca_base64: &STANDARD.encode(ca),
        token: &SecretString::from(token),
    }
    .text();
    let secrets = cluster_secrets(context, cluster);
    let namespace = cluster.namespace().unwrap_or_default();
    let cluster = cluster.name_any();
    let name = of_cluster::kubeconfig(&cluster);
    let stored = calls::read("the Cluster's kubeconfig", secrets.get_opt(&name)).await;
    let name = of_cluster::bootstrap_data(&cluster);
    let data = calls::read("the Cluster's bootstrap data", secrets.get_opt(&name)).await;
    let denied = [stored.as_ref().err(), data.as_ref().err()];
    if denied.into_iter().flatten().any(ReadError::is_denied) {
        let why = format!(
            "the provider may not get Secrets in namespace {namespace}: add it to the chart's \
             clusterNamespaces"
        );
        return Ok((Access::Denied(why), None));
    }
    let (stored, data) = (stored?, data?);
    let version = stored.as_ref().and_then(ResourceExt::resource_version);
    let kubeconfig = stored.map_or(Stored::Absent, |secret| compare(&secret, &wanted));
    let access = Access::Ours { kubeconfig, bootstrap_data: data.is_some() };
    Ok((access, Some(Kubeconfig { text: wanted, version })))
}

fn compare(stored: &Secret, wanted: &SecretString) -> Stored {
    let ours = stored.labels().get(label::MANAGED_BY);
    if ours.is_none_or(|by| by != label::MANAGED_BY_PROVIDER) {
        return Stored::Others;
    }
    let value = stored.data.as_ref().and_then(|data| data.get(of_cluster::VALUE));
    if value.is_some_and(|value| value.0 == wanted.expose_secret().as_bytes()) {
        Stored::Current
    } else {
        Stored::Stale
    }
}

fn cluster_secrets(context: &Context, cluster: &Cluster) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &cluster.namespace().unwrap_or_default())
}

async fn perform(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    let Some(cluster) = &turn.cluster else { return Outcome::Refused };
    let name = cluster.name_any();
    let nothing = SecretString::default();
    match action {
        Action::WriteStatus(status) => {
            let object = &turn.object;
            let namespace = object.namespace().unwrap_or_default();
            let api: Api<ScalewayAppleSiliconCluster> =
                Api::namespaced(context.client.clone(), &namespace);
            let version = object.resource_version();
            let change = json!({"metadata": {"resourceVersion": version}, "status": status});
            let patch = Patch::Merge(&change);
            let name = object.name_any();
            calls::write(api.patch_status(&name, &PatchParams::default(), &patch)).await
        }
        Action::CreateKubeconfig => {
            let Some(Kubeconfig { text, .. }) = &turn.kubeconfig else { return Outcome::Refused };
            let secret = objects::of_cluster(&name, &of_cluster::kubeconfig(&name), text);
            create(context, cluster, secret).await
        }
        Action::UpdateKubeconfig => {
            let Some(Kubeconfig { text, version }) = &turn.kubeconfig else {
                return Outcome::Refused;
            };
            let change = json!({
                "metadata": {"resourceVersion": version},
                "stringData": {of_cluster::VALUE: text.expose_secret()},
            });
            let patch = Patch::Merge(&change);
            let secrets = cluster_secrets(context, cluster);
            let name = of_cluster::kubeconfig(&name);
            calls::write(secrets.patch(&name, &PatchParams::default(), &patch)).await
        }
        Action::CreateBootstrapData => {
            let secret = objects::of_cluster(&name, &of_cluster::bootstrap_data(&name), &nothing);
            create(context, cluster, secret).await
        }
        Action::MarkControlPlane => mark_control_plane(context, cluster).await,
    }
}

/// Creates a Secret of the Cluster, which goes with it.
async fn create(context: &Context, cluster: &Cluster, mut secret: Value) -> Outcome {
    secret["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "cluster.x-k8s.io/v1beta2",
        "kind": "Cluster",
        "name": cluster.name_any(),
        "uid": cluster.uid(),
    }]);
    match serde_json::from_value(secret) {
        Ok(secret) => {
            let secrets = cluster_secrets(context, cluster);
            calls::create(secrets.create(&PostParams::default(), &secret)).await
        }
        Err(error) => Outcome::Failed(error.to_string()),
    }
}
