//! Performs one [`Action`]. One effect, and no choice left to make.

use applecart_api::ids::{ServerId, Zone};
use applecart_api::keys::lease as key;
use applecart_core::Outcome;
use applecart_core::machine::Guest;
use applecart_core::sweep::Action;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use serde_json::{Value, json};

use super::Sweep;
use super::observe::{Turn, all_leases};
use crate::calls;
use crate::provider::{leases, outcome_of, reinstall};

/// Performs `action` and says how it ended.
pub async fn perform(sweep: &Sweep, turn: &Turn, action: &Action) -> Outcome {
    let server = &turn.seen.server;
    match (action, &turn.zone) {
        (Action::TakeLease { used }, Some(zone)) => {
            take_lease(sweep, turn, (zone, server), *used).await
        }
        (Action::DeleteLease, _) => delete_lease(sweep, turn, server).await,
        (Action::FreeLease, _) => {
            let change = json!({
                "metadata": {
                    "labels": {key::HOLDER: Value::Null},
                    "annotations": {key::MARKED_AT: Value::Null},
                },
                "spec": {"holderIdentity": Value::Null},
            });
            patch_lease(sweep, turn, server, change).await
        }
        (Action::NoteWiped, _) => {
            let now = sweep.clock.now().to_string();
            let mut facts = unasked();
            facts[key::WIPED_AT] = json!(now);
            facts[key::UNWIPED] = json!("false");
            patch_lease(sweep, turn, server, json!({"metadata": {"annotations": facts}})).await
        }
        (Action::NoteAsked { times }, _) => {
            let now = sweep.clock.now().to_string();
            let facts = json!({key::WIPE_ASKED_AT: now, key::WIPE_ASKS: times.to_string()});
            patch_lease(sweep, turn, server, json!({"metadata": {"annotations": facts}})).await
        }
        (Action::Cordon { node, uid }, _) => cordon(sweep, node, uid).await,
        (Action::DeleteGuest(guest), _) => delete_guest(sweep, guest).await,
        (Action::Rename { to }, Some(zone)) => {
            outcome_of(sweep.scaleway.rename(zone, server, to).await)
        }
        (Action::RequestWipe { image }, Some(zone)) => {
            reinstall(&sweep.scaleway, zone, server, image.as_deref()).await
        }
        (Action::TakeLease { .. } | Action::Rename { .. } | Action::RequestWipe { .. }, None) => {
            unreachable!("a host is not touched without having been read in its zone")
        }
    }
}

async fn delete_lease(sweep: &Sweep, turn: &Turn, server: &ServerId) -> Outcome {
    let resource_version = turn.seen.lease.lease.version.clone();
    let preconditions = Preconditions { uid: None, resource_version };
    let how = DeleteParams::default().preconditions(preconditions);
    calls::delete(all_leases(sweep).delete(&key::name(server), &how)).await
}

async fn take_lease(
    sweep: &Sweep,
    turn: &Turn,
    (zone, server): (&Zone, &ServerId),
    used: bool,
) -> Outcome {
    let us = format!("sweep/{server}");
    let uid = server.as_str().parse().expect("a server id has the form of a UID");
    let version = turn.seen.lease.lease.version.as_deref();
    let mut lease = leases::taken((zone, server), &us, &uid, version, sweep.clock.now());
    if used {
        lease["metadata"]["annotations"][key::UNWIPED] = json!("true");
    }
    let api = all_leases(sweep);
    if version.is_some() {
        leases::note(&mut lease, unasked());
        let patch = Patch::Merge(&lease);
        return calls::write(api.patch(&key::name(server), &PatchParams::default(), &patch)).await;
    }
    match serde_json::from_value(lease) {
        Ok(lease) => calls::write(api.create(&PostParams::default(), &lease)).await,
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

/// No wipe is waited for.
fn unasked() -> Value {
    json!({key::WIPE_ASKED_AT: null, key::WIPE_ASKS: null})
}

async fn cordon(sweep: &Sweep, node: &str, uid: &str) -> Outcome {
    let nodes: Api<Node> = Api::all(sweep.client.clone());
    let change = json!({"metadata": {"uid": uid}, "spec": {"unschedulable": true}});
    let (how, patch) = (PatchParams::default(), Patch::Merge(&change));
    calls::write(nodes.patch(node, &how, &patch)).await
}

/// Whoever claims it for a job changes it, and then it stays.
async fn delete_guest(sweep: &Sweep, guest: &Guest) -> Outcome {
    let pods: Api<Pod> = Api::namespaced(sweep.client.clone(), &guest.namespace);
    let (uid, resource_version) = (Some(guest.uid.clone()), Some(guest.version.clone()));
    let how = DeleteParams::default().preconditions(Preconditions { uid, resource_version });
    calls::delete(pods.delete(&guest.name, &how)).await
}

/// Patches the Lease at the version that was read, so only while nothing of it changed.
async fn patch_lease(sweep: &Sweep, turn: &Turn, server: &ServerId, mut change: Value) -> Outcome {
    change["metadata"]["resourceVersion"] = json!(turn.seen.lease.lease.version);
    let patch = Patch::Merge(&change);
    let name = key::name(server);
    calls::write(all_leases(sweep).patch(&name, &PatchParams::default(), &patch)).await
}
