//! What stands around a host in Kubernetes, and what it can be installed with. Reads only.

use applecart_api::condition::is_true;
use applecart_api::credential::is_told;
use applecart_api::ids::Zone;
use applecart_api::keys::{annotation, finalizer, label, owned};
use applecart_core::machine::{
    Bootstrap, Bound, Credentials, Guest, HostRead, HostState, Image, Images, Name, Node, Observed,
    Release, is_due, is_postponed, needs_name, wants_drain,
};
use applecart_scaleway::Os;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node as StoredNode, NodeCondition, Pod, Secret};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use secrecy::{ExposeSecret, SecretString};

use super::binding::said;
use super::{Turn, fleet, names};
use crate::calls::{self, ReadError};
use crate::provider::leftovers::{Left, exactly, exactly_of};
use crate::provider::memory::Kit;
use crate::provider::{Context, config};

/// The Node, its Pods, the identity and the Secrets, as far as this stage looks at them.
pub async fn read(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    turn.seen.images = images(context, turn).await;
    if needs_name(context.clock.now(), &turn.seen, &context.settings.limits) {
        turn.seen.name = names::holder(context, turn).await?;
    }
    let object = &turn.seen.object;
    let parting = object.deleting_since.is_some() || is_parting(&turn.seen);
    let claimed = matches!(
        &turn.seen.bound,
        Bound::To { host: HostRead::Seen(host), .. } if host.name == object.name
    );
    if !parting && !claimed {
        return Ok(());
    }
    let name = object.name.clone();
    let settled = is_true(&object.status.conditions, "Bootstrapped");
    let working = turn.seen.bootstrap != Bootstrap::None;
    let there = node(&context.client, &name);
    turn.seen.node = context.memory.nodes.get(&name, &turn.reading, there).await?;
    let draining = turn.seen.node.as_ref().is_some_and(|node| node.draining.is_some());
    let draining = draining || is_postponed(&turn.seen.object.status);
    if parting || draining || (!settled && !working && turn.seen.node.is_some()) {
        turn.seen.guests = guests(&context.client, &name).await?;
    }
    if is_to_be_emptied(&turn.seen) {
        turn.seen.builder = config::builder(context, turn).await;
    }
    let now = context.clock.now();
    turn.seen.may_drain = wants_drain(now, &turn.seen, &context.settings.limits)
        && context.drains.is_its_turn(&context.store, &turn.object, now);
    let due = is_due(context.clock.now(), &turn.seen, &context.settings.limits);
    // Without a provider ID, that comes before all that needs them.
    let named = turn.seen.object.provider_id.is_some();
    if parting || (named && !working && (!settled || due)) {
        secrets(context, turn).await?;
    }
    Ok(())
}

/// Whether what runs on a Mac that somebody hears of decides when it goes.
fn is_to_be_emptied(seen: &Observed) -> bool {
    let kept = matches!(
        &seen.bound,
        Bound::To { lease, host: HostRead::Seen(host), .. }
            if lease.releasing_at.is_none() && host.name == seen.object.name
    );
    seen.object.deleting_since.is_some() && kept && seen.node.is_some()
}

/// Whether a living object's host is leaving it, or has left.
fn is_parting(seen: &Observed) -> bool {
    match &seen.bound {
        Bound::To { host: HostRead::Gone, .. } => true,
        Bound::To { lease, .. } => lease.releasing_at.is_some(),
        Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => false,
    }
}

/// What a host can be installed with, if that is what comes next.
async fn images(context: &Context, turn: &Turn) -> Images {
    let seen = &turn.seen;
    let server_type = match &seen.bound {
        Bound::To { host: HostRead::Seen(host), .. }
            if seen.release_of(host) == Release::Marked && host.state == HostState::Ready =>
        {
            &host.server_type
        }
        Bound::Unbound(_) if seen.object.ordered.is_some_and(|order| order.unsent) => {
            &seen.object.server_type
        }
        Bound::To { .. } | Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => {
            return Images::NotRead;
        }
    };
    images_of(&context.scaleway, &turn.zone, server_type).await
}

/// The images that Scaleway offers for a type.
pub async fn images_of(
    scaleway: &applecart_scaleway::Client,
    zone: &Zone,
    server_type: &str,
) -> Images {
    let image = |os: &Os| Image {
        id: os.id.to_string(),
        name: os.name.clone(),
        family: os.family.clone(),
        version: os.version.clone(),
        beta: os.is_beta,
    };
    match scaleway.list_os(zone, Some(server_type)).await {
        Ok(list) => Images::Listed(list.iter().map(image).collect()),
        Err(error) => Images::Failed(said(&error)),
    }
}

/// The Node of this name.
pub async fn node(client: &Client, name: &str) -> Result<Option<Node>, ReadError> {
    let nodes: Api<StoredNode> = Api::all(client.clone());
    let Some(node) = calls::read("its Node", nodes.get_opt(name)).await? else { return Ok(None) };
    Ok(Some(Node {
        uid: node.uid().unwrap_or_default(),
        provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
        cordoned: node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)),
        draining: noted(&node, annotation::DRAINING),
        drained: noted(&node, annotation::DRAINED),
        ready: is_node_ready(&node),
        silent_since: silent_since(&node),
    }))
}

/// A time that we noted on a Node; what is no time was long ago.
fn noted(node: &StoredNode, annotation: &str) -> Option<Timestamp> {
    let time = node.annotations().get(annotation)?;
    Some(time.parse().unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Since when a Node's agent has not said that it is well.
pub fn silent_since(node: &StoredNode) -> Option<Timestamp> {
    let ready = ready_condition(node)?;
    ready.last_transition_time.as_ref().filter(|_| ready.status != "True").map(|time| time.0)
}

fn ready_condition(node: &StoredNode) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether a Node's agent says that it is well.
pub fn is_node_ready(node: &StoredNode) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "True")
}

/// The Pods that are bound to a Node.
pub async fn guests(client: &Client, node: &str) -> Result<Vec<Guest>, ReadError> {
    let pods: Api<Pod> = Api::all(client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = calls::read("the Node's Pods", pods.list(&here)).await?;
    Ok(pods.items.iter().map(guest).collect())
}

/// A job claimed it, and it has not ended.
pub fn is_busy(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let claimed = pod.labels().get(label::RUNNER_POOL_OWNER).is_some_and(|owner| !owner.is_empty());
    claimed && !ended
}

fn guest(pod: &Pod) -> Guest {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    Guest {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        version: pod.resource_version().unwrap_or_default(),
        runner: pod.labels().contains_key(label::RUNNER_POOL),
        busy: is_busy(pod),
        deleting,
        forced: deleting && pod.metadata.deletion_grace_period_seconds.unwrap_or(0) == 0,
        agent_finalizer: pod.finalizers().iter().any(|f| f == finalizer::POD_VM),
    }
}

async fn secrets(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    let left = Left {
        client: &context.client,
        namespace: &context.settings.namespace,
        machine: &turn.seen.object.name,
    };
    let read = async {
        let account = async {
            let account = names::account(context, turn).await?;
            Ok(account.map(|account| exactly_of(&account)))
        };
        // In order, so that a simulated run can be repeated.
        let ((identity, token), stored) =
            tokio::try_join!(biased; left.identity(account), left.credentials())?;
        let token = token.is_some_and(|secret| value(&secret, "token").is_some());
        let password = stored.as_ref().and_then(|secret| value(secret, owned::PASSWORD));
        Ok(Some(Kit { identity, token, stored: stored.as_ref().map(exactly), password }))
    };
    let kit = context.memory.kits.get(left.machine, &turn.reading, Box::pin(read)).await?;
    let mut kit = kit.unwrap_or_default();
    // What goes with an object is its own: a namesake's is not, though it has the same name (LH14).
    if turn.seen.object.deleting_since.is_some()
        && (!kit.identity.is_empty() || kit.password.is_some())
        && matches!(names::holder(context, turn).await?, Name::Other(_))
    {
        kit = Kit::default();
    }
    let used = context.bootstraps.password_of(&turn.seen.object.uid);
    let is_other = |used: &SecretString| {
        kit.password.as_ref().is_some_and(|now| now.expose_secret() != used.expose_secret())
    };
    turn.seen.credentials = Credentials {
        fleet_key: context.fleet_keys.of(&fleet(&turn.object)),
        stored: kit.stored,
        password: kit.password.is_some(),
        renewed: used.as_ref().is_some_and(is_other),
        token: kit.token,
    };
    turn.seen.identity = kit.identity;
    Ok(())
}

/// What a Secret has under `name`: empty is the same as absent, and so is the marker that older
/// versions stored for a password that they were not told (P19).
fn value(secret: &Secret, name: &str) -> Option<SecretString> {
    // Not text: told when it is used, with what to do about it.
    let value = String::from_utf8_lossy(&secret.data.as_ref()?.get(name)?.0);
    is_told(&value).then(|| SecretString::from(value.into_owned()))
}
