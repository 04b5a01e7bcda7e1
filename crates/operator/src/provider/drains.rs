//! Whose Mac is emptied for an update: one of a fleet at a time. In memory: two leaders, or a new
//! one, may empty one more.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use applecart_api::keys::annotation;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use kube::runtime::reflector::Store;
use kube::runtime::watcher::Event;

use super::observe::fleet;

/// Longer than it takes until a Node that was cordoned is watched as such.
const RESERVED: Duration = Duration::from_secs(30);

/// The Macs that are emptied, and those that are about to be.
#[derive(Debug, Default)]
pub struct Drains(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// Nodes that say so.
    nodes: BTreeSet<String>,
    /// Those of a list that is not complete yet.
    listed: BTreeSet<String>,
    /// Of each fleet, whose turn it is, until when it has to be taken.
    next: BTreeMap<String, (String, Timestamp)>,
}

impl Drains {
    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the watch of Nodes tells.
    pub fn watch(&self, event: &Event<Node>) {
        match event {
            Event::Apply(node) if is_draining(node) => {
                self.lock().nodes.insert(node.name_any());
            }
            Event::Apply(node) | Event::Delete(node) => {
                self.lock().nodes.remove(&node.name_any());
            }
            Event::Init => self.lock().listed.clear(),
            Event::InitApply(node) if is_draining(node) => {
                self.lock().listed.insert(node.name_any());
            }
            Event::InitApply(_) => {}
            Event::InitDone => {
                let mut state = self.lock();
                state.nodes = std::mem::take(&mut state.listed);
            }
        }
    }

    /// Whether this one may be emptied now; if so, no other of its fleet may for a moment.
    pub fn is_its_turn(
        &self,
        all: &Store<ScalewayAppleSiliconMachine>,
        object: &ScalewayAppleSiliconMachine,
        now: Timestamp,
    ) -> bool {
        let (name, own) = (object.name_any(), fleet(object));
        let mut state = self.lock();
        let empties = |other: &ScalewayAppleSiliconMachine| {
            let other_name = other.name_any();
            other_name != name && fleet(other) == own && state.nodes.contains(&other_name)
        };
        if all.state().iter().any(|other| empties(other)) {
            return false;
        }
        let taken = state.next.get(&own).is_some_and(|(next, until)| *next != name && now < *until);
        if !taken {
            state.next.insert(own, (name, now + RESERVED));
        }
        !taken
    }
}

fn is_draining(node: &Node) -> bool {
    node.annotations().contains_key(annotation::DRAINING)
}

#[cfg(test)]
mod tests {
    use kube::runtime::reflector::store::Writer;
    use serde_json::json;

    use super::*;

    fn mac(name: &str, fleet: &str) -> ScalewayAppleSiliconMachine {
        let mac = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ScalewayAppleSiliconMachine",
            "metadata": {"name": name, "namespace": "macs"},
            "spec": {"fleetName": fleet, "type": "M2-L", "zone": "fr-par-1", "os": "macos-tahoe"},
        });
        serde_json::from_value(mac).expect("an object")
    }

    fn node(name: &str, draining: bool) -> Node {
        let notes = if draining { json!({annotation::DRAINING: "now"}) } else { json!({}) };
        let node = json!({"metadata": {"name": name, "annotations": notes}});
        serde_json::from_value(node).expect("a Node")
    }

    #[test]
    fn one_mac_of_a_fleet_is_emptied_at_a_time() {
        let mut writer = Writer::default();
        let (a, b, c) = (mac("a", "x"), mac("b", "x"), mac("c", "y"));
        for object in [&a, &b, &c] {
            writer.apply_watcher_event(&Event::Apply(object.clone()));
        }
        let (all, drains) = (writer.as_reader(), Drains::default());
        let at = |second| Timestamp::from_second(second).expect("a time");
        let turn = |object, second| drains.is_its_turn(&all, object, at(second));
        assert!(turn(&a, 0) && turn(&a, 1), "it may ask again");
        assert!(!turn(&b, 2), "a is about to be");
        assert!(turn(&c, 2), "another fleet");
        drains.watch(&Event::Apply(node("a", true)));
        assert!(!turn(&b, 500), "a is emptied");
        drains.watch(&Event::Apply(node("a", false)));
        assert!(turn(&b, 501));
        assert!(!turn(&a, 502), "b is about to be");
        assert!(turn(&a, 531), "b did not take its turn");
        drains.watch(&Event::Apply(node("b", true)));
        drains.watch(&Event::Init);
        assert!(!turn(&a, 600), "the list is not complete");
        drains.watch(&Event::InitApply(node("b", true)));
        drains.watch(&Event::InitDone);
        assert!(!turn(&a, 600), "it is emptied still");
        drains.watch(&Event::Init);
        drains.watch(&Event::InitApply(node("b", false)));
        drains.watch(&Event::InitDone);
        assert!(turn(&a, 600));
        drains.watch(&Event::Apply(node("b", true)));
        drains.watch(&Event::Delete(node("b", true)));
        assert!(turn(&a, 601));
    }
}
