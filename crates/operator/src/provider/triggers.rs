//! What wakes a Machine: its own object, its owners, its Node, and its bootstrap.

use std::collections::BTreeMap;
use std::sync::Arc;

use applecart_api::cluster_api::{Cluster, Machine};
use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, future};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::controller::{Action as Wake, Config};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, watcher as watch};
use kube::{Api, ResourceExt};

use super::observe::is_node_ready;
use super::turn::turn;
use super::{Context, jobs};
use crate::calls::ReadError;
use crate::provider::observe::chain;

/// Turns at once: each mostly waits for an answer, and none waits for a Mac.
const CONCURRENT_TURNS: u16 = 32;

/// Runs all Machines until dropped.
pub async fn machines(context: Arc<Context>, woken: BoxStream<'static, jobs::Key>) {
    let client = context.client.clone();
    let everything = watcher::Config::default();
    let all: Api<ScalewayAppleSiliconMachine> = Api::all(client.clone());
    let controller = Controller::new(all, everything.clone())
        .with_config(Config::default().concurrency(CONCURRENT_TURNS));
    let by_node = controller.store();
    let by_cluster = controller.store();
    controller
        .watches(Api::<Machine>::all(client.clone()), everything.clone(), |machine| {
            let namespace = machine.namespace().unwrap_or_default();
            [ObjectRef::new(&machine.name_any()).within(&namespace)]
        })
        .watches(Api::<Cluster>::all(client.clone()), everything, move |cluster| {
            of_cluster(&by_cluster, &cluster)
        })
        .watches_stream(changed_nodes(client), move |node| named(&by_node, &node.name_any()))
        .reconcile_on(woken)
        .run(turn, failed, context)
        .for_each(|_| future::ready(()))
        .await;
}

/// Something could not be read: nothing follows from that but another look.
fn failed(
    object: Arc<ScalewayAppleSiliconMachine>,
    error: &ReadError,
    context: Arc<Context>,
) -> Wake {
    tracing::warn!(object = %object.name_any(), error = chain(error), "turn");
    Wake::requeue(context.settings.limits.look)
}

fn of_cluster(
    store: &Store<ScalewayAppleSiliconMachine>,
    cluster: &Cluster,
) -> Vec<ObjectRef<ScalewayAppleSiliconMachine>> {
    let (name, namespace) = (cluster.name_any(), cluster.namespace());
    let belongs = |object: &Arc<ScalewayAppleSiliconMachine>| {
        object.namespace() == namespace && object.labels().get(label::CLUSTER_NAME) == Some(&name)
    };
    refs(store, belongs)
}

fn named(
    store: &Store<ScalewayAppleSiliconMachine>,
    name: &str,
) -> Vec<ObjectRef<ScalewayAppleSiliconMachine>> {
    refs(store, |object| object.name_any() == name)
}

fn refs(
    store: &Store<ScalewayAppleSiliconMachine>,
    which: impl Fn(&Arc<ScalewayAppleSiliconMachine>) -> bool,
) -> Vec<ObjectRef<ScalewayAppleSiliconMachine>> {
    let mut found: Vec<_> = store.state().into_iter().filter(which).collect();
    found.sort_by_key(|object| (object.namespace(), object.name_any()));
    found.iter().map(|object| ObjectRef::from_obj(&**object)).collect()
}

/// Nodes that came, went, or changed in what we look at: heartbeats wake nobody.
fn changed_nodes(
    client: kube::Client,
) -> impl Stream<Item = Result<Node, watcher::Error>> + Send + 'static {
    let nodes = watch(Api::<Node>::all(client), watcher::Config::default()).default_backoff();
    let mut last: BTreeMap<String, (bool, bool)> = BTreeMap::new();
    nodes.filter_map(move |event| future::ready(news(&mut last, event)))
}

fn news(
    last: &mut BTreeMap<String, (bool, bool)>,
    event: Result<Event<Node>, watcher::Error>,
) -> Option<Result<Node, watcher::Error>> {
    match event {
        Ok(Event::Apply(node) | Event::InitApply(node)) => {
            let cordoned = node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true));
            let facts = (is_node_ready(&node), cordoned);
            let before = last.insert(node.name_any(), facts);
            (before != Some(facts)).then_some(Ok(node))
        }
        Ok(Event::Delete(node)) => {
            last.remove(&node.name_any());
            Some(Ok(node))
        }
        Ok(Event::Init | Event::InitDone) => None,
        Err(error) => Some(Err(error)),
    }
}
