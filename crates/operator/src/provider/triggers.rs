//! What wakes a Machine: its own object, its owners, its Node, and its bootstrap.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::cluster_api::{Cluster, Machine};
use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, future, stream};
use k8s_openapi::api::core::v1::Node;
use kube::runtime::controller::{Action as Wake, Config};
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{Controller, WatchStreamExt, watcher as watch};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::Instrument;

use super::departures::Departures;
use super::memory::key;
use super::observe::{chain, is_node_ready};
use super::rests::Due;
use super::turn::{forget, turn};
use super::{Context, bootstraps, unread};
use crate::calls::ReadError;

/// Turns that a Machine takes in a row while each leads to the next at once: more than any claim
/// has. Whoever never rests leaves room for others then.
const IN_A_ROW: usize = 32;

/// Objects that a watch begins with, at once: as Kubernetes tells them, they are large.
const PAGE: u32 = 100;

/// Runs all Machines until dropped.
pub async fn machines(
    context: Arc<Context>,
    store: Writer<ScalewayAppleSiliconMachine>,
    moved_on: BoxStream<'static, bootstraps::Key>,
) {
    let everything = watcher::Config::default().page_size(PAGE);
    let all = context.watched::<ScalewayAppleSiliconMachine>();
    let slim = |object: &mut ScalewayAppleSiliconMachine| object.managed_fields_mut().clear();
    let told = watch(all, everything.clone()).default_backoff();
    let told = told.modify(slim).inspect(forget_the_gone(&context));
    let told = told.reflect(store).applied_objects();
    let controller = Controller::for_stream(told, context.store.clone())
        .trigger_backoff(NoWait)
        .with_config(Config::default().concurrency(context.settings.concurrent_turns));
    context.metrics.watch(context.store.clone());
    let (machines, clusters) = (context.clone(), context.clone());
    let (nodes, steps) = (context.clone(), context.clone());
    controller
        .watches_stream(changes(context.watched(), &everything), move |machine: Machine| {
            let (namespace, name) = (machine.namespace().unwrap_or_default(), machine.name_any());
            machines.memory.machines.forget(&key(&namespace, &name));
            woken(&machines, vec![ObjectRef::new(&name).within(&namespace)])
        })
        .watches_stream(changes(context.watched(), &everything), move |cluster: Cluster| {
            let namespace = cluster.namespace().unwrap_or_default();
            clusters.memory.clusters.forget(&key(&namespace, &cluster.name_any()));
            woken(&clusters, of_cluster(&clusters.store, &cluster))
        })
        .reconcile_on(of_nodes(nodes))
        .reconcile_on(moved_on.flat_map(move |object| stream::iter(woken(&steps, vec![object]))))
        .run(turns, |object, error, context| failed(&object, error, &context), context)
        .for_each(|_| future::ready(()))
        .await;
}

/// Every watch waits by itself when it fails: if all did together, the end of a bootstrap was heard
/// of only minutes after an API server that was gone is back.
struct NoWait;

impl Iterator for NoWait {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(Duration::ZERO)
    }
}

impl Backoff for NoWait {
    fn reset(&mut self) {}
}

/// What comes, changes and goes.
fn changes<K>(
    all: Api<K>,
    which: &watcher::Config,
) -> impl Stream<Item = Result<K, watcher::Error>> + Send + 'static
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    watch(all, which.clone()).default_backoff().touched_objects()
}

/// Ends what runs for objects that are gone: nobody takes turns for those.
fn forget_the_gone(
    context: &Arc<Context>,
) -> impl FnMut(&Result<Event<ScalewayAppleSiliconMachine>, watcher::Error>) + Send + 'static {
    let (context, mut departures) = (context.clone(), Departures::default());
    move |told| {
        let gone = told.as_ref().map(|event| departures.after(event)).unwrap_or_default();
        for who in &gone {
            forget(&context, who);
        }
    }
}

/// One turn after another, until nothing more is to be done at once: with many Machines at work,
/// whoever went to the end of the queue after each effect would have to read everything anew.
async fn turns(
    mut object: Arc<ScalewayAppleSiliconMachine>,
    context: Arc<Context>,
) -> Result<Wake, ReadError> {
    let reference = ObjectRef::from_obj(&*object);
    let key = key(&object.namespace().unwrap_or_default(), &object.name_any());
    if let Some(due) = context.rests.until(&key)
        && context.memory.objects.knows(&object)
    {
        return Ok(wake(due));
    }
    context.rests.begin(&key);
    for _ in 0..IN_A_ROW {
        let next = numbered(object.clone(), context.clone()).await;
        match &next {
            Ok(_) => context.unread.forget(&object.uid().unwrap_or_default()),
            Err(error) => unread::tell(&context, &object, error).await,
        }
        let next = next?;
        if next != Some(Duration::ZERO) {
            let due = Due::after(next);
            context.rests.rest(&key, due);
            return Ok(wake(due));
        }
        // What the watch shows by now counts, not what began this.
        object = context.store.get(&reference).unwrap_or(object);
    }
    Ok(Wake::requeue(Duration::ZERO))
}

fn wake(due: Due) -> Wake {
    match due {
        Due::At(due) => Wake::requeue(due.saturating_duration_since(Instant::now())),
        Due::OnNews => Wake::await_change(),
    }
}

/// Everything that these tell is new.
fn woken(
    context: &Context,
    objects: Vec<ObjectRef<ScalewayAppleSiliconMachine>>,
) -> Vec<ObjectRef<ScalewayAppleSiliconMachine>> {
    for object in &objects {
        context.rests.wake(&key(object.namespace.as_deref().unwrap_or_default(), &object.name));
    }
    objects
}

fn numbered(
    object: Arc<ScalewayAppleSiliconMachine>,
    context: Arc<Context>,
) -> impl Future<Output = Result<Option<Duration>, ReadError>> {
    let span = context.effects.turn("machine", &object.name_any());
    turn(object, context).instrument(span)
}

/// Something could not be read: nothing follows from that but another look.
fn failed(object: &ScalewayAppleSiliconMachine, error: &ReadError, context: &Context) -> Wake {
    context.metrics.count_unread("machine");
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

/// Objects whose Node came, went, or changed in what we look at: heartbeats wake nobody.
fn of_nodes(
    context: Arc<Context>,
) -> impl Stream<Item = ObjectRef<ScalewayAppleSiliconMachine>> + Send + 'static {
    let all = Api::<Node>::all(context.client.clone());
    let nodes = watch(all, watcher::Config::default()).default_backoff();
    let mut last = Known::default();
    nodes.flat_map(move |event| {
        if let Ok(Event::Apply(node) | Event::InitApply(node) | Event::Delete(node)) = &event {
            context.memory.nodes.forget(&node.name_any());
        }
        if let Ok(event) = &event {
            context.drains.watch(event);
        }
        let changed = news(&mut last, event);
        let objects = changed.iter().flat_map(|node| named(&context.store, node)).collect();
        stream::iter(woken(&context, objects))
    })
}

/// What is known of Nodes: whether each is ready, and whether it is cordoned.
#[derive(Default)]
struct Known {
    nodes: BTreeMap<String, (bool, bool)>,
    /// Those that a list, which is not complete yet, has shown so far.
    listed: BTreeMap<String, (bool, bool)>,
}

/// The names of the Nodes that an event tells something new about.
fn news(known: &mut Known, event: Result<Event<Node>, watcher::Error>) -> Vec<String> {
    let facts = |node: &Node| {
        let cordoned = node.spec.as_ref().is_some_and(|s| s.unschedulable == Some(true));
        (is_node_ready(node), cordoned)
    };
    match event {
        Ok(Event::Apply(node)) => {
            let (name, facts) = (node.name_any(), facts(&node));
            let before = known.nodes.insert(name.clone(), facts);
            if before == Some(facts) { vec![] } else { vec![name] }
        }
        Ok(Event::InitApply(node)) => {
            let (name, facts) = (node.name_any(), facts(&node));
            known.listed.insert(name.clone(), facts);
            if known.nodes.get(&name) == Some(&facts) { vec![] } else { vec![name] }
        }
        Ok(Event::Delete(node)) => {
            known.nodes.remove(&node.name_any());
            vec![node.name_any()]
        }
        Ok(Event::Init) => {
            known.listed.clear();
            vec![]
        }
        // A deletion that the watch missed is seen by what a list lacks.
        Ok(Event::InitDone) => {
            let before = std::mem::replace(&mut known.nodes, std::mem::take(&mut known.listed));
            before.into_keys().filter(|name| !known.nodes.contains_key(name)).collect()
        }
        Err(error) => {
            tracing::warn!(error = chain(&error), "could not watch Nodes; trying again");
            vec![]
        }
    }
}
