//! A turn that ended before anything was decided, because Kubernetes denies what it reads: that
//! lasts until a person sees to it, so the object says so. Whatever else could not be read may pass
//! with the next look, and is in the log alone.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use applecart_api::keys::finalizer;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::Outcome;
use applecart_core::machine::{Action, Reason};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::Context;
use super::observe::machine_owner;
use super::turn::effect;
use crate::calls::{self, ReadError};

/// Turns in a row that are denied something before that is told: one may be a role in the making.
const SEVERAL: u32 = 3;

/// How many turns of each object in a row were denied something, by uid.
#[derive(Debug, Default)]
pub struct Unread(Mutex<BTreeMap<String, u32>>);

impl Unread {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one; whether it is to be told.
    fn count(&self, uid: &str) -> bool {
        let mut table = self.table();
        let count = table.entry(uid.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count >= SEVERAL
    }

    /// All was read, or the object is gone.
    pub fn forget(&self, uid: &str) {
        self.table().remove(uid);
    }
}

/// What was true when we last looked stays told; only why we do not look is new (S10). The same
/// sentence each time, so nothing is written twice, and our own write wakes us to nothing (LH25).
pub async fn tell(context: &Context, object: &ScalewayAppleSiliconMachine, error: &ReadError) {
    let finalizer = object.finalizers().iter().any(|f| f == finalizer::MACHINE);
    let leaves = object.metadata.deletion_timestamp.is_some();
    // Nothing is written before a Machine owns the object.
    let ours = finalizer && (leaves || machine_owner(object).is_some());
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    if !error.is_denied() || !ours || !context.unread.count(&uid) {
        return;
    }
    let why = format!("{}: Kubernetes denies the provider that, see its ClusterRole", error.what());
    let reason = Reason::CannotRead(why);
    let mut status = object.status.clone().unwrap_or_default();
    if status.last_reason.as_deref() == Some(&reason.to_string()) {
        return;
    }
    status.last_reason = Some(reason.to_string());
    let change = json!({
        "metadata": {"uid": object.uid(), "resourceVersion": object.resource_version()},
        "status": {"lastReason": status.last_reason},
    });
    let machines: Api<ScalewayAppleSiliconMachine> =
        Api::namespaced(context.client.clone(), &object.namespace().unwrap_or_default());
    let written = async {
        let patch = Patch::Merge(&change);
        calls::write(machines.patch_status(&name, &PatchParams::default(), &patch)).await
    };
    let action = Action::WriteStatus(Box::new(status.clone()));
    let told = context.effects.perform(&effect(&name, &action, &reason), written).await;
    if told == Some(Outcome::Done) {
        context.memory.objects.forget(&uid);
        context.tellings.told(&uid, &status, context.clock.now());
    }
}
