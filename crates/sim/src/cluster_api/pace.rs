//! When to look again: after a change, or when asked to; at most once a period.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::FutureExt;
use futures::stream::{BoxStream, SelectAll, StreamExt};
use kube::api::DynamicObject;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, ResourceExt};
use serde_json::Value;

/// Look again after so many periods, whatever the watches say: the net under a missed event. With
/// a period of a second, the ten minutes of the real one.
const RESYNC_PERIODS: u32 = 600;

/// Tells a stand-in when its next turn is.
pub(super) struct Pace {
    period: Duration,
    changes: SelectAll<BoxStream<'static, ()>>,
}

impl Pace {
    /// Turns no closer than `period`, for changes of what these list.
    pub fn new(period: Duration, watched: impl IntoIterator<Item = Api<DynamicObject>>) -> Self {
        Self { period, changes: watched.into_iter().map(changes).collect() }
    }

    /// Waits for the next turn; no longer than `wake`, if that is given.
    pub async fn next(&mut self, wake: Option<Duration>) {
        tokio::time::sleep(self.period).await;
        let longest = wake.unwrap_or(self.period * RESYNC_PERIODS).saturating_sub(self.period);
        tokio::select! {
            biased;
            _ = self.changes.next() => {}
            () = tokio::time::sleep(longest) => {}
        }
        // One turn answers all changes that were waiting.
        while self.changes.next().now_or_never().flatten().is_some() {}
    }
}

fn changes(api: Api<DynamicObject>) -> BoxStream<'static, ()> {
    let mut known = Known::default();
    watch(api, watcher::Config::default())
        .default_backoff()
        .filter_map(move |event| {
            let told = match event {
                Ok(event) => known.is_news(event).then_some(()),
                Err(error) => {
                    tracing::debug!(%error, "a watch broke and starts again");
                    None
                }
            };
            std::future::ready(told)
        })
        .boxed()
}

/// What a watch told of each object, by uid.
#[derive(Default)]
struct Known(BTreeMap<String, DynamicObject>);

impl Known {
    /// Whether an event says more than that somebody lives.
    fn is_news(&mut self, event: Event<DynamicObject>) -> bool {
        match event {
            Event::Apply(object) => {
                let uid = object.uid().unwrap_or_default();
                let facts = without_heartbeats(object);
                let same = self.0.get(&uid) == Some(&facts);
                self.0.insert(uid, facts);
                !same
            }
            Event::Delete(object) => {
                self.0.remove(&object.uid().unwrap_or_default());
                true
            }
            // What went since the last list is never told.
            Event::Init => {
                self.0.clear();
                false
            }
            Event::InitApply(_) => false,
            Event::InitDone => true,
        }
    }
}

/// The object without what an agent writes only to say that it lives.
fn without_heartbeats(mut object: DynamicObject) -> DynamicObject {
    object.metadata.resource_version = None;
    object.metadata.managed_fields = None;
    let conditions = object.data.pointer_mut("/status/conditions").and_then(Value::as_array_mut);
    for condition in conditions.into_iter().flatten() {
        if let Some(fields) = condition.as_object_mut() {
            fields.remove("lastHeartbeatTime");
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node(uid: &str, beat: &str) -> DynamicObject {
        let beat = json!({"type": "Ready", "status": "True", "lastHeartbeatTime": beat});
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"uid": uid},
            "status": {"conditions": [beat]}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn a_heartbeat_is_no_news_and_who_went_unseen_is_forgotten() {
        let mut known = Known::default();
        assert!(known.is_news(Event::Apply(node("a", "1"))));
        assert!(!known.is_news(Event::Apply(node("a", "2"))));
        assert!(known.is_news(Event::Apply(node("b", "1"))));
        // The watch broke, and one of them went meanwhile.
        assert!(!known.is_news(Event::Init));
        assert!(!known.is_news(Event::InitApply(node("b", "1"))));
        assert!(known.is_news(Event::InitDone));
        known.is_news(Event::Apply(node("b", "1")));
        assert!(known.0.keys().eq(["b"]));
        assert!(known.is_news(Event::Delete(node("b", "1"))) && known.0.is_empty());
    }
}
