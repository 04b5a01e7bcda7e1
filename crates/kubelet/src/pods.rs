//! Which Pods there are: one worker for each, so that none waits for another (K11).
//!
//! A watch tells of Pods at once; a list every now and then tells of those whose event was lost.
//! Both only wake workers: what a worker acts on it reads itself.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::pin;

use applecart_core::pod::PodId;
use futures::stream::{self, FuturesUnordered, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::api::{Answer, call};
use crate::pod::{self, Hint};
use crate::vm::Vm;

/// News about Pods.
enum News {
    /// This Pod was seen.
    One(Box<Pod>),
    /// These are all Pods that there are.
    All(Vec<Pod>),
}

pub(crate) async fn run<V: Vm>(agent: &Agent<V>) -> Infallible {
    let mut news = pin!(stream::select(watched(agent), listed(agent)));
    let mut workers = FuturesUnordered::new();
    let mut hints: BTreeMap<PodId, watch::Sender<Hint>> = BTreeMap::new();
    loop {
        let news = tokio::select! {
            biased;
            Some(ended) = workers.next(), if !workers.is_empty() => {
                hints.remove(&ended);
                continue;
            }
            Some(news) = news.next() => news,
        };
        let seen = match news {
            News::One(pod) => vec![*pod],
            News::All(pods) => {
                // A Pod that is not in the list is gone, and its worker may not have heard of it.
                for hint in hints.values() {
                    hint.send_modify(|hint| hint.pokes += 1);
                }
                pods
            }
        };
        for pod in seen {
            let Some(id) = id(&pod) else { continue };
            let deleting = pod.metadata.deletion_timestamp.is_some();
            let hint = hints.entry(id.clone()).or_insert_with(|| {
                let (sender, receiver) = watch::channel(Hint::default());
                workers.push(pod::live(agent, id, receiver));
                sender
            });
            hint.send_modify(|hint| {
                hint.pokes += 1;
                hint.deleting |= deleting;
            });
        }
    }
}

fn watched<V: Vm>(agent: &Agent<V>) -> impl Stream<Item = News> {
    let pods = Api::<Pod>::all(agent.client.clone());
    let events = watcher(pods, watcher::Config::default().fields(&selector(agent)));
    events.default_backoff().filter_map(async |event| match event {
        Ok(
            watcher::Event::Apply(pod)
            | watcher::Event::InitApply(pod)
            | watcher::Event::Delete(pod),
        ) => Some(News::One(Box::new(pod))),
        Ok(watcher::Event::Init | watcher::Event::InitDone) => None,
        Err(error) => {
            tracing::warn!(%error, "watching Pods");
            None
        }
    })
}

fn listed<V: Vm>(agent: &Agent<V>) -> impl Stream<Item = News> {
    let pods = Api::<Pod>::all(agent.client.clone());
    let params = ListParams::default().fields(&selector(agent));
    stream::unfold((), move |()| {
        let (pods, params) = (pods.clone(), params.clone());
        async move {
            tokio::time::sleep(agent.config.timing.resync).await;
            Some((call(pods.list(&params)).await, ()))
        }
    })
    .filter_map(async |answer| match answer {
        Answer::Yes(list) => Some(News::All(list.items)),
        // The watch says it already, and its complaint is in the log.
        Answer::NotFound | Answer::Conflict | Answer::No(_) | Answer::Silence(_) => None,
    })
}

fn selector<V>(agent: &Agent<V>) -> String {
    format!("spec.nodeName={}", agent.config.node_name())
}

fn id(pod: &Pod) -> Option<PodId> {
    Some(PodId { namespace: pod.namespace()?, name: pod.name_any(), uid: pod.uid()? })
}
