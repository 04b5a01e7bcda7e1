//! Performs one [`Action`]. One effect, and no choice left to make.

use applecart_api::cluster_api::Cluster;
use applecart_api::ids::{CrUid, ProviderId, ServerId, Zone};
use applecart_api::keys::{annotation, finalizer, lease as key, owned};
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineStatus};
use applecart_core::Outcome;
use applecart_core::machine::{Action, Exactly, Identity, Reason, Reboot};
use applecart_scaleway::{ErrorKind, Order, OsId};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::leftovers::{Left, exactly};
use super::memory::slim;
use super::observe::{Turn, chain};
use super::{Context, config, leases, objects};
use crate::calls;

/// Performs `action` and says how it ended.
pub async fn perform(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    match action {
        Action::AddFinalizer { block_move } => add_finalizer(context, turn, *block_move).await,
        Action::RemoveFinalizer => patch(context, turn, finalizers(turn, None)).await,
        Action::WriteStatus(status) => write_status(context, turn, status).await,
        Action::RecordBootstrap(status) => record_bootstrap(context, turn, status).await,
        Action::SetProviderId(id) => set_provider_id(context, turn, id.as_ref()).await,
        Action::BlockMove(block) => {
            let value = block.then_some("true");
            annotate(context, turn, json!({annotation::BLOCK_MOVE: value})).await
        }
        Action::TakeName { version } => take_name(context, turn, version.as_deref()).await,
        Action::TakeLease { server, version, used } => {
            take_lease(context, turn, server, version.as_deref(), *used).await
        }
        Action::NoteMarked(server)
        | Action::NoteReleasing { server, .. }
        | Action::NoteWiped(server)
        | Action::NoteDelete(server)
        | Action::NoteQuarantined(server)
        | Action::NoteOwner(server)
        | Action::NoteHealthy(server)
        | Action::NoteMoving { server, .. } => {
            // Before it is noted: whoever dies in between comes here again. And not between the
            // read of a host and its deletion: GitHub may take longer than that counts.
            if matches!(action, Action::NoteWiped(_) | Action::NoteDelete(_)) {
                config::remove_runner(context, turn).await;
            }
            note(context, turn, server, facts(turn, action, context.clock.now())).await
        }
        Action::ClearLease(server) | Action::ReturnLease(server) | Action::LeaveLease(server) => {
            clear_lease(context, turn, server, facts(turn, action, context.clock.now())).await
        }
        Action::Rename { server, to, .. } => {
            outcome_of(context.scaleway.rename(&turn.zone, server, to).await)
        }
        Action::RequestWipe { server, image } => {
            reinstall(&context.scaleway, &turn.zone, server, image.as_deref()).await
        }
        Action::Reboot(server) => reboot(context, turn, server).await,
        Action::DeleteServer(server) => delete_server(context, turn, server).await,
        Action::ScheduleDeletion(server) => {
            outcome_of(context.scaleway.schedule_deletion(&turn.zone, server).await)
        }
        Action::NoteOrder => note_order(context, turn).await,
        Action::Create { name, server_type, image } => {
            order(context, turn, name, server_type, image.as_deref()).await
        }
        Action::StoreCredentials(_) | Action::CreateIdentity(_) => {
            equip(context, turn, action).await
        }
        Action::StartBootstrap(_) => config::start(context, turn).await,
        Action::StartUpkeep(_) => config::start_upkeep(context, turn).await,
        Action::Compare(_) => config::compare(context, turn).await,
        Action::StopBootstrap => {
            context.bootstraps.stop(&turn.seen.object.uid);
            Outcome::Done
        }
        Action::RemoveRunner
        | Action::Cordon { .. }
        | Action::Drain { .. }
        | Action::Uncordon { .. }
        | Action::DeleteCredentials(_)
        | Action::DeleteIdentity { .. }
        | Action::DeleteGuest { .. }
        | Action::FreeGuest { .. }
        | Action::DeleteNode { .. } => clear_out(context, turn, action).await,
    }
}

/// Makes one thing that a Mac's agent or its bootstrap needs, and remembers it if it is known to be
/// there.
async fn equip(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    let (kits, name) = (&context.memory.kits, &turn.seen.object.name);
    let (outcome, now) = match action {
        Action::CreateIdentity(part) => create_identity(context, turn, *part).await,
        _ => store_credentials(context, turn).await,
    };
    if let Action::CreateIdentity(Identity::ServiceAccount) = action {
        context.memory.accounts.forget(name);
    }
    let Some(exactly) = now else {
        kits.forget(name);
        return outcome;
    };
    kits.amend(name, |kit| {
        if let Action::CreateIdentity(part) = action {
            kit.identity.insert(*part, exactly);
        } else {
            kit.stored = Some(exactly);
            kit.password = turn.login.as_ref().map(|(_, password)| password.clone());
        }
    });
    outcome
}

/// Takes one thing away that stands around a host, or keeps it for others no more.
async fn clear_out(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    let machine = &turn.seen.object.name;
    context.memory.nodes.forget(machine);
    context.memory.kits.forget(machine);
    context.memory.accounts.forget(machine);
    if let Some(change) = of_node(action, context.clock.now()) {
        return change_node(context, machine, &change).await;
    }
    if *action == Action::RemoveRunner {
        return config::end_builder(context, turn).await;
    }
    let namespace = &context.settings.namespace;
    Left { client: &context.client, namespace, machine }.remove(action).await
}

async fn record_bootstrap(
    context: &Context,
    turn: &Turn,
    status: &ScalewayAppleSiliconMachineStatus,
) -> Outcome {
    let (uid, outcome) = (&turn.seen.object.uid, write_status(context, turn, status).await);
    if outcome == Outcome::Done {
        context.bootstraps.stop(uid);
        forget_reboots(context, uid, status);
    }
    outcome
}

/// Before a turn decides: what the turn before recorded, it may have to learn from the object; and
/// the Event of that is still to come.
pub async fn hear(
    context: &Context,
    object: &ScalewayAppleSiliconMachine,
    uid: &CrUid,
    status: &ScalewayAppleSiliconMachineStatus,
) {
    let Some(told) = context.bootstraps.was_told(uid, status.into()) else { return };
    forget_reboots(context, uid, status);
    if let Some(reason) = &told.news {
        publish(context, object, reason).await;
    }
}

/// Tells of what was stored.
pub async fn publish(context: &Context, about: &ScalewayAppleSiliconMachine, reason: &Reason) {
    let (about, text) = (about.object_ref(&()), reason.to_string());
    context.events.publish(&about, reason.word(), text, reason.is_warning()).await;
}

/// A host that was bootstrapped is rebooted anew, should it ever fail as often again.
fn forget_reboots(context: &Context, uid: &CrUid, told: &ScalewayAppleSiliconMachineStatus) {
    if told.bootstrap_attempts.unwrap_or(0) == 0 {
        context.reboots.forget(uid);
    }
}

async fn set_provider_id(context: &Context, turn: &Turn, id: Option<&ProviderId>) -> Outcome {
    let id = id.map(ToString::to_string);
    patch(context, turn, json!({"spec": {"providerID": id}})).await
}

/// What a note adds to what is known of a host.
fn facts(turn: &Turn, action: &Action, now: Timestamp) -> Value {
    let now = now.to_string();
    match action {
        Action::NoteMarked(_) => json!({key::MARKED_AT: now, key::UNWIPED: "true"}),
        Action::NoteReleasing { owners_failed, .. } => {
            let mut facts = leases::noted(&turn.seen.object.note);
            facts[key::RELEASING_AT] = json!(now);
            facts[key::OWNERS_FAILED] = json!(owners_failed.to_string());
            facts
        }
        Action::NoteWiped(_) => json!({key::WIPED_AT: now, key::UNWIPED: "false"}),
        Action::NoteDelete(_) => json!({key::DELETE_REQUESTED_AT: now}),
        Action::NoteQuarantined(_) => json!({key::QUARANTINED: "true"}),
        Action::NoteOwner(_) => leases::noted(&turn.seen.object.note),
        Action::NoteHealthy(_) => json!({key::OWNERS_FAILED: Value::Null}),
        Action::NoteMoving { moving, .. } => json!({key::MOVED: moving.then_some("true")}),
        Action::ReturnLease(_) => json!({key::UNWIPED: "false"}),
        Action::LeaveLease(_) => json!({key::MOVED: "true"}),
        _ => json!({}),
    }
}

async fn reboot(context: &Context, turn: &Turn, server: &ServerId) -> Outcome {
    let outcome = outcome_of(context.scaleway.reboot(&turn.zone, server).await);
    let reboot = match outcome {
        Outcome::Done => Reboot::Granted,
        Outcome::Unknown => Reboot::Unanswered(context.clock.now()),
        Outcome::Refused | Outcome::TooEarly(_) | Outcome::Failed(_) => Reboot::NotGranted,
    };
    context.reboots.note(&turn.seen.object.uid, server, turn.seen.failures(), reboot);
    outcome
}

async fn delete_server(context: &Context, turn: &Turn, server: &ServerId) -> Outcome {
    match context.scaleway.delete(&turn.zone, server).await {
        Err(error) if matches!(error.kind, ErrorKind::Precondition { .. }) => {
            Outcome::TooEarly(chain(&error))
        }
        result => outcome_of(result),
    }
}

fn machines(context: &Context, turn: &Turn) -> Api<ScalewayAppleSiliconMachine> {
    let namespace = turn.object.namespace().unwrap_or_default();
    Api::namespaced(context.client.clone(), &namespace)
}

fn secrets(context: &Context) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// Patches the object, if it is still the one, at the version, that was read.
async fn patch(context: &Context, turn: &Turn, mut change: Value) -> Outcome {
    pin(turn, &mut change);
    let patch = Patch::Merge(&change);
    let name = &turn.seen.object.name;
    let (machines, how) = (machines(context, turn), PatchParams::default());
    wrote(context, turn, calls::written(machines.patch(name, &how, &patch)).await)
}

/// Remembers how the object is after a write, if that is known.
fn wrote(
    context: &Context,
    turn: &Turn,
    (outcome, now): (Outcome, Option<ScalewayAppleSiliconMachine>),
) -> Outcome {
    match now {
        Some(now) => context.memory.objects.wrote(&now),
        None => context.memory.objects.forget(turn.seen.object.uid.as_str()),
    }
    outcome
}

async fn annotate(context: &Context, turn: &Turn, annotations: Value) -> Outcome {
    patch(context, turn, json!({"metadata": {"annotations": annotations}})).await
}

async fn note_order(context: &Context, turn: &Turn) -> Outcome {
    let now = context.clock.now();
    let outcome = annotate(context, turn, json!({annotation::ORDERED_AT: now.to_string()})).await;
    if outcome == Outcome::Done {
        context.orders.note(&turn.seen.object.uid, now);
    }
    outcome
}

async fn order(
    context: &Context,
    turn: &Turn,
    name: &str,
    server_type: &str,
    image: Option<&str>,
) -> Outcome {
    if !context.orders.send(&turn.seen.object.uid) {
        return Outcome::Refused;
    }
    let os = match image.map(str::parse::<OsId>).transpose() {
        Ok(os) => os,
        Err(error) => return Outcome::Failed(error.to_string()),
    };
    let order = Order { name: name.to_owned(), server_type: server_type.to_owned(), os };
    outcome_of(context.scaleway.create(&turn.zone, &order).await)
}

fn pin(turn: &Turn, change: &mut Value) {
    change["metadata"]["uid"] = json!(turn.object.uid());
    change["metadata"]["resourceVersion"] = json!(turn.object.resource_version());
}

async fn add_finalizer(context: &Context, turn: &Turn, block_move: bool) -> Outcome {
    let mut change = finalizers(turn, Some(finalizer::MACHINE));
    if block_move {
        change["metadata"]["annotations"] = json!({annotation::BLOCK_MOVE: "true"});
    }
    patch(context, turn, change).await
}

/// The finalizers of others, and perhaps ours.
fn finalizers(turn: &Turn, ours: Option<&str>) -> Value {
    let all = turn.object.finalizers().iter().map(String::as_str);
    let list: Vec<&str> = all.filter(|f| *f != finalizer::MACHINE).chain(ours).collect();
    json!({"metadata": {"finalizers": list}})
}

async fn write_status(
    context: &Context,
    turn: &Turn,
    status: &ScalewayAppleSiliconMachineStatus,
) -> Outcome {
    // A merge patch leaves alone what it does not name, so what is gone is named as null.
    let mut wanted = serde_json::to_value(status).expect("a status is JSON");
    let stored = serde_json::to_value(&turn.seen.object.status).expect("a status is JSON");
    for key in stored.as_object().into_iter().flat_map(|fields| fields.keys()) {
        if wanted.get(key).is_none() {
            wanted[key] = Value::Null;
        }
    }
    let mut change = json!({"status": wanted});
    pin(turn, &mut change);
    let patch = Patch::Merge(&change);
    let name = &turn.seen.object.name;
    let (machines, how) = (machines(context, turn), PatchParams::default());
    wrote(context, turn, calls::written(machines.patch_status(name, &how, &patch)).await)
}

fn host_leases(context: &Context) -> Api<Lease> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// The object, as it signs what it has.
fn us(turn: &Turn) -> String {
    let (namespace, object) = (turn.object.namespace().unwrap_or_default(), &turn.seen.object);
    leases::holder(&namespace, &object.name, &object.uid)
}

/// Signs the account of the agent of this name: a new one, or one at the version that was read.
async fn take_name(context: &Context, turn: &Turn, version: Option<&str>) -> Outcome {
    let (name, us) = (&turn.seen.object.name, us(turn));
    let accounts: Api<ServiceAccount> =
        Api::namespaced(context.client.clone(), &context.settings.namespace);
    let (outcome, now) = if let Some(version) = version {
        let signed = json!({"metadata": {
            "resourceVersion": version, "annotations": {annotation::OWNER: us},
        }});
        let (how, patch) = (PatchParams::default(), Patch::Merge(&signed));
        calls::written(accounts.patch(&owned::agent(name), &how, &patch)).await
    } else {
        let account = objects::identity(Identity::ServiceAccount, name, &us, &context.settings);
        match serde_json::from_value(account) {
            Ok(account) => calls::written(accounts.create(&PostParams::default(), &account)).await,
            Err(error) => (Outcome::Failed(error.to_string()), None),
        }
    };
    context.memory.kits.forget(name);
    context.memory.accounts.wrote(name, now.map(|account| slim(account).metadata));
    outcome
}

async fn take_lease(
    context: &Context,
    turn: &Turn,
    server: &ServerId,
    version: Option<&str>,
    used: bool,
) -> Outcome {
    context.zones.choose(&turn.zone, server).await;
    let object = &turn.seen.object;
    let now = context.clock.now();
    let mut lease = leases::taken((&turn.zone, server), &us(turn), &object.uid, version, now);
    leases::note(&mut lease, leases::noted(&object.note));
    if used {
        lease["metadata"]["annotations"][key::UNWIPED] = json!("true");
    }
    let api = host_leases(context);
    let (outcome, now) = if version.is_some() {
        let patch = Patch::Merge(&lease);
        calls::written(api.patch(&key::name(server), &PatchParams::default(), &patch)).await
    } else {
        match serde_json::from_value(lease) {
            Ok(lease) => calls::written(api.create(&PostParams::default(), &lease)).await,
            Err(error) => (Outcome::Failed(error.to_string()), None),
        }
    };
    // Refused, somebody else has it, and whoever chooses from this list chooses another.
    if !matches!(outcome, Outcome::Done | Outcome::Refused) {
        context.zones.give_back(&turn.zone, server).await;
    }
    let held = now.is_some().then(|| server.clone());
    context.memory.held.wrote(object.uid.as_str(), held);
    context.memory.leases.wrote(server.as_str(), now.map(slim));
    outcome
}

/// Patches our Lease at the version that was read, so only while we still hold it.
async fn patch_lease(
    context: &Context,
    turn: &Turn,
    server: &ServerId,
    mut change: Value,
) -> Outcome {
    change["metadata"]["resourceVersion"] = json!(turn.lease_version());
    let patch = Patch::Merge(&change);
    let (leases, name, how) = (host_leases(context), key::name(server), PatchParams::default());
    let (outcome, now) = calls::written(leases.patch(&name, &how, &patch)).await;
    context.memory.leases.wrote(server.as_str(), now.map(slim));
    outcome
}

async fn note(context: &Context, turn: &Turn, server: &ServerId, annotations: Value) -> Outcome {
    patch_lease(context, turn, server, json!({"metadata": {"annotations": annotations}})).await
}

async fn clear_lease(
    context: &Context,
    turn: &Turn,
    server: &ServerId,
    mut facts: Value,
) -> Outcome {
    context.memory.held.forget(turn.seen.object.uid.as_str());
    facts[key::MARKED_AT] = Value::Null;
    facts[key::RELEASING_AT] = Value::Null;
    let change = json!({
        "metadata": {"labels": {key::HOLDER: Value::Null}, "annotations": facts},
        "spec": {"holderIdentity": Value::Null},
    });
    let outcome = patch_lease(context, turn, server, change).await;
    if outcome == Outcome::Done {
        // Should it come back, its failures are counted anew.
        context.reboots.forget(&turn.seen.object.uid);
    }
    outcome
}

/// A host that is not there is read as gone next turn; no answer leaves it open.
pub fn outcome_of<T>(result: Result<T, applecart_scaleway::Error>) -> Outcome {
    match result {
        Ok(_) => Outcome::Done,
        Err(error) => match error.kind {
            ErrorKind::Unknown => Outcome::Unknown,
            ErrorKind::NotFound => Outcome::Refused,
            _ => Outcome::Failed(chain(&error)),
        },
    }
}

/// Asks for a wipe.
pub async fn reinstall(
    scaleway: &applecart_scaleway::Client,
    zone: &Zone,
    server: &ServerId,
    image: Option<&str>,
) -> Outcome {
    match image.map(str::parse::<OsId>).transpose() {
        Ok(image) => outcome_of(scaleway.reinstall(zone, server, image.as_ref()).await),
        Err(error) => Outcome::Failed(error.to_string()),
    }
}

async fn store_credentials(context: &Context, turn: &Turn) -> (Outcome, Option<Exactly>) {
    let Some((user, password)) = &turn.login else { return (Outcome::Refused, None) };
    let name = &turn.seen.object.name;
    let secret = objects::credentials(name, user, password);
    let how = PatchParams::apply("applecart").force();
    let patch = Patch::Apply(&secret);
    let (secrets, name) = (secrets(context), owned::credentials(name));
    let (outcome, now) = calls::written(secrets.patch(&name, &how, &patch)).await;
    (outcome, now.as_ref().map(exactly))
}

async fn create_identity(
    context: &Context,
    turn: &Turn,
    part: Identity,
) -> (Outcome, Option<Exactly>) {
    let name = &turn.seen.object.name;
    let document = objects::identity(part, name, &us(turn), &context.settings);
    let namespace = &context.settings.namespace;
    let client = context.client.clone();
    match part {
        Identity::ServiceAccount => {
            create::<ServiceAccount>(Api::namespaced(client, namespace), document).await
        }
        Identity::Binding => create::<ClusterRoleBinding>(Api::all(client), document).await,
        Identity::Token => create::<Secret>(Api::namespaced(client, namespace), document).await,
    }
}

/// Creates something, and says what is there now, if that is known.
async fn create<K>(api: Api<K>, document: Value) -> (Outcome, Option<Exactly>)
where
    K: kube::Resource + Clone + DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    match serde_json::from_value::<K>(document) {
        Ok(object) => {
            let (outcome, now) = calls::created(api.create(&PostParams::default(), &object)).await;
            (outcome, now.as_ref().map(exactly))
        }
        Err(error) => (Outcome::Failed(error.to_string()), None),
    }
}

/// What becomes of a Node that takes no new Pods, or takes them again.
fn of_node(action: &Action, now: Timestamp) -> Option<Value> {
    let now = now.to_string();
    let (uid, cordoned, notes) = match action {
        Action::Cordon { uid } => (uid, Some(true), json!({})),
        Action::Drain { uid } => (uid, Some(true), json!({annotation::DRAINING: now})),
        Action::Uncordon { uid, came } => {
            let given_up = (!came).then_some(now);
            (uid, None, json!({annotation::DRAINING: null, annotation::DRAINED: given_up}))
        }
        _ => return None,
    };
    let metadata = json!({"uid": uid, "annotations": notes});
    Some(json!({"metadata": metadata, "spec": {"unschedulable": cordoned}}))
}

async fn change_node(context: &Context, name: &str, change: &Value) -> Outcome {
    let nodes: Api<Node> = Api::all(context.client.clone());
    calls::write(nodes.patch(name, &PatchParams::default(), &Patch::Merge(change))).await
}

/// Says on a Cluster that its control plane is there, in the form that Cluster API 1.14 reads.
pub async fn mark_control_plane(context: &Context, cluster: &Cluster) -> Outcome {
    let namespace = cluster.namespace().unwrap_or_default();
    let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
    let mut conditions = cluster.status.clone().unwrap_or_default().conditions;
    let says = applecart_api::condition::Says {
        type_: "ControlPlaneInitialized",
        status: "True",
        reason: "ManagedElsewhere",
        message: "the Macs join the cluster that manages them".to_owned(),
    };
    let generation = cluster.metadata.generation;
    applecart_api::condition::set(&mut conditions, says, generation, context.clock.now());
    let change = json!({
        "metadata": {"resourceVersion": cluster.resource_version()},
        "status": {"conditions": conditions},
    });
    let name = cluster.name_any();
    let patch = Patch::Merge(&change);
    calls::write(clusters.patch_status(&name, &PatchParams::default(), &patch)).await
}
