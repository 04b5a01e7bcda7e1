//! What people do by hand, behind every controller's back. Oracles look here, because no controller
//! has to answer for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applecart_api::ids::ServerId;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{NAMESPACE, World};

/// What people did. Clones are the same hands.
#[derive(Clone, Debug, Default)]
pub struct Hands(Arc<Mutex<Deeds>>);

#[derive(Debug, Default)]
struct Deeds {
    names: BTreeMap<ServerId, String>,
    deleted: BTreeSet<ServerId>,
    forgotten: BTreeSet<String>,
    pauses: Vec<Pause>,
}

/// For how long nobody was to call outside for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    /// The host whose object, or its Cluster, was paused.
    pub host: ServerId,
    /// When the pause was told.
    pub from: Timestamp,
    /// When it was over, if it was.
    pub until: Option<Timestamp>,
}

impl Hands {
    fn deeds(&self) -> MutexGuard<'_, Deeds> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name that a host was last given by hand.
    #[must_use]
    pub fn name(&self, host: &ServerId) -> Option<String> {
        self.deeds().names.get(host).cloned()
    }

    /// Whether a host was deleted by hand.
    #[must_use]
    pub fn deleted(&self, host: &ServerId) -> bool {
        self.deeds().deleted.contains(host)
    }

    /// Whether the status of the object with this UID was wiped by hand.
    #[must_use]
    pub fn forgot(&self, uid: &str) -> bool {
        self.deeds().forgotten.contains(uid)
    }

    /// Every pause that a person wanted and was told of.
    #[must_use]
    pub fn pauses(&self) -> Vec<Pause> {
        self.deeds().pauses.clone()
    }
}

impl World {
    /// A person renames a host.
    pub fn rename_by_hand(&self, host: &ServerId, name: &str) {
        self.sight.hands.deeds().names.insert(host.clone(), name.to_owned());
        self.scaleway().rename_host(host, name);
    }

    /// A person deletes a host.
    pub fn delete_by_hand(&self, host: &ServerId) {
        self.sight.hands.deeds().deleted.insert(host.clone());
        self.scaleway().delete_host(host);
    }

    /// A person paused the object that has this host, and was told so.
    pub fn pause_told(&self, host: &ServerId) {
        let pause = Pause { host: host.clone(), from: self.settings.clock.now(), until: None };
        self.sight.hands.deeds().pauses.push(pause);
    }

    /// A person is about to end the pause of a host's object, or to delete it.
    pub fn pause_ends(&self, host: &ServerId) {
        let now = self.settings.clock.now();
        let mut deeds = self.sight.hands.deeds();
        for pause in deeds.pauses.iter_mut().filter(|pause| pause.host == *host) {
            pause.until.get_or_insert(now);
        }
    }

    /// All status of an object is lost, as when it is restored from what was written down.
    pub async fn forget_status(&self, object: &ScalewayAppleSiliconMachine) -> kube::Result<()> {
        self.sight.hands.deeds().forgotten.insert(object.uid().unwrap_or_default());
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(self.client(), NAMESPACE);
        let (name, how) = (object.name_any(), PatchParams::default());
        let nothing = Patch::Merge(json!({"status": null}));
        api.patch_status(&name, &how, &nothing).await.map(drop)
    }
}
