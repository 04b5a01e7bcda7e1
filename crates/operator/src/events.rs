//! Events: told after the status that they speak of is stored, and never in the way.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use applecart_api::clock::Clock;
use applecart_core::Outcome;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Api;
use kube::api::PostParams;

use crate::calls;

/// Publishes Events under one controller's name.
#[derive(Clone)]
pub struct Events {
    client: kube::Client,
    controller: &'static str,
    clock: Clock,
    told: Arc<AtomicU64>,
}

impl Events {
    /// Events that come from `controller`.
    pub fn new(client: kube::Client, controller: &'static str, clock: Clock) -> Self {
        Self { client, controller, clock, told: Arc::default() }
    }

    /// Tells what happened to `about`. A failure is logged and changes nothing.
    pub async fn publish(&self, about: &ObjectReference, word: &str, text: String, warning: bool) {
        let now = self.clock.now();
        let namespace = about.namespace.as_deref().unwrap_or("default");
        let number = self.told.fetch_add(1, Ordering::Relaxed);
        let name =
            format!("{}.{:x}.{number}", about.name.as_deref().unwrap_or("event"), now.as_second());
        let time = Time(now);
        let event = Event {
            metadata: ObjectMeta { name: Some(name), ..ObjectMeta::default() },
            involved_object: about.clone(),
            reason: Some(word.to_owned()),
            message: Some(text),
            type_: Some(if warning { "Warning" } else { "Normal" }.to_owned()),
            source: Some(EventSource { component: Some(self.controller.into()), host: None }),
            reporting_component: Some(self.controller.to_owned()),
            first_timestamp: Some(time.clone()),
            last_timestamp: Some(time),
            count: Some(1),
            ..Event::default()
        };
        let events: Api<Event> = Api::namespaced(self.client.clone(), namespace);
        match calls::write(events.create(&PostParams::default(), &event)).await {
            Outcome::Done => {}
            outcome @ (Outcome::Refused
            | Outcome::Failed(_)
            | Outcome::TooEarly(_)
            | Outcome::Unknown) => {
                tracing::warn!(?outcome, word, "could not publish an Event");
            }
        }
    }
}
