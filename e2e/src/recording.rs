//! Every version of some objects, as a watch tells them: what was once written cannot be taken
//! back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use kube::Client;
use kube::api::{DynamicObject, WatchEvent, WatchParams};
use serde_json::Value;
use tokio::task::JoinSet;

use crate::objects;

/// Longest life of one watch; the next one goes on where it ended.
const WATCH_SECONDS: u32 = 280;

/// Between two attempts to watch.
const PAUSE: Duration = Duration::from_millis(200);

/// Versions of objects, oldest first. Dropped, it listens no more.
pub struct Recording {
    versions: Arc<Mutex<Vec<Value>>>,
    _listening: JoinSet<()>,
}

impl Recording {
    /// Listens to every object of this one's kind and namespace from now on.
    pub async fn start(client: &Client, like: &Value) -> Result<Self> {
        let api = objects::api(client, like)?;
        let now = api.list(&kube::api::ListParams::default()).await.context("could not list")?;
        let mut version = now.metadata.resource_version.unwrap_or_default();
        let versions: Arc<Mutex<Vec<Value>>> = Arc::default();
        let kept = versions.clone();
        let mut listening = JoinSet::new();
        listening.spawn(async move {
            loop {
                let how = WatchParams::default().timeout(WATCH_SECONDS);
                // An API server that is away is asked again, but not in a hot loop.
                let Ok(events) = api.watch(&how, &version).await else {
                    tokio::time::sleep(PAUSE).await;
                    continue;
                };
                let mut events = events.boxed();
                while let Ok(Some(event)) = events.try_next().await {
                    let seen: DynamicObject = match event {
                        WatchEvent::Added(object)
                        | WatchEvent::Modified(object)
                        | WatchEvent::Deleted(object) => object,
                        WatchEvent::Bookmark(_) => continue,
                        WatchEvent::Error(_) => {
                            tokio::time::sleep(PAUSE).await;
                            break;
                        }
                    };
                    version = seen.metadata.resource_version.clone().unwrap_or(version);
                    let value = serde_json::to_value(&seen).expect("it came as JSON");
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push(value);
                }
            }
        });
        Ok(Self { versions, _listening: listening })
    }

    /// Everything so far.
    #[must_use]
    pub fn versions(&self) -> Vec<Value> {
        self.versions.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Everything so far of one object.
    #[must_use]
    pub fn of(&self, name: &str) -> Vec<Value> {
        let mut versions = self.versions();
        versions.retain(|version| version["metadata"]["name"] == name);
        versions
    }
}
