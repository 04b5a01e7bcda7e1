//! Which objects are gone, as their watch tells it: also those that were taken away without a turn
//! of ours, as by a person who removes their finalizers. What runs for such a one must end.

use std::collections::BTreeMap;

use applecart_api::machine::ScalewayAppleSiliconMachine;
use kube::ResourceExt;
use kube::runtime::watcher::Event;

/// The objects that a watch told of, by UID.
#[derive(Debug, Default)]
pub struct Departures {
    there: BTreeMap<String, Who>,
    /// Those of a list that is not complete yet.
    listed: BTreeMap<String, Who>,
}

/// Which object was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Who {
    pub uid: String,
    pub namespace: String,
    pub name: String,
}

impl Who {
    pub fn of(object: &ScalewayAppleSiliconMachine) -> Self {
        Self {
            uid: object.uid().unwrap_or_default(),
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl Departures {
    /// Takes in what the watch tells; the objects that are gone since.
    pub fn after(&mut self, event: &Event<ScalewayAppleSiliconMachine>) -> Vec<Who> {
        match event {
            Event::Apply(object) => {
                let who = Who::of(object);
                self.there.insert(who.uid.clone(), who);
                vec![]
            }
            Event::Delete(object) => self.there.remove(&Who::of(object).uid).into_iter().collect(),
            Event::Init => {
                self.listed.clear();
                vec![]
            }
            Event::InitApply(object) => {
                let who = Who::of(object);
                self.listed.insert(who.uid.clone(), who);
                vec![]
            }
            Event::InitDone => {
                let before = std::mem::replace(&mut self.there, std::mem::take(&mut self.listed));
                before.into_values().filter(|who| !self.there.contains_key(&who.uid)).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str) -> ScalewayAppleSiliconMachine {
        let object = json!({
            "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
            "kind": "ScalewayAppleSiliconMachine",
            "metadata": {"name": name, "namespace": "macs", "uid": format!("uid-{name}")},
            "spec": {"type": "M2-L", "zone": "fr-par-1", "os": "macos-tahoe"},
        });
        serde_json::from_value(object).expect("an object")
    }

    #[test]
    fn an_object_is_gone_when_it_was_deleted_or_a_later_list_lacks_it() {
        let mut departures = Departures::default();
        let mut after = |event| {
            let gone = departures.after(&event);
            gone.into_iter().map(|who| who.name).collect::<Vec<_>>()
        };
        let none: [&str; 0] = [];
        assert_eq!(after(Event::Init), none);
        assert_eq!(after(Event::InitApply(object("a"))), none);
        assert_eq!(after(Event::InitApply(object("b"))), none);
        assert_eq!(after(Event::InitDone), none);
        assert_eq!(after(Event::Apply(object("c"))), none);
        assert_eq!(after(Event::Delete(object("b"))), ["b"]);
        assert_eq!(after(Event::Delete(object("b"))), none);
        assert_eq!(after(Event::Init), none, "nothing follows from half a list");
        assert_eq!(after(Event::InitApply(object("c"))), none);
        assert_eq!(after(Event::InitDone), ["a"]);
    }
}
