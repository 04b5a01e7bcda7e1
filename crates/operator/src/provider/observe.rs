//! Reads the world into one [`Observed`]. Reads only; what a stage does not need is not read.

mod binding;
mod names;
mod surroundings;

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::cluster_api::{Cluster, GROUP, Machine};
use applecart_api::ids::{CrUid, ProviderId, ServerId, Zone};
use applecart_api::keys::{annotation, finalizer, label};
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineSpec};
use applecart_core::machine::{
    Bound, Builder, Candidates, Credentials, Host, HostRead, Images, Name, Object, Observed,
    Ordered, OwnerNote, Pause, Reboot,
};
use futures::TryFutureExt;
use jiff::Timestamp;
use kube::{Api, ResourceExt};
use secrecy::SecretString;
use tokio::time::Instant;

use super::memory::{Reading, key, next, slim};
use super::reads::Read;
use super::{Context, leases, perform};
use crate::calls::{self, ReadError};

pub use binding::host;
pub use surroundings::{guests, images_of, is_busy, is_node_ready, node, silent_since};

/// What a turn read: what is decided from, and what only an effect needs.
pub struct Turn {
    /// What is decided from.
    pub seen: Observed,
    /// The object itself.
    pub object: ScalewayAppleSiliconMachine,
    /// Its zone.
    pub zone: Zone,
    /// Version that the Node is to report: the object's own, else its Machine's.
    pub version: Option<String>,
    /// How it reads.
    pub reading: Reading,
    /// When this turn read the host from Scaleway, or listed all of them anew, if it did.
    pub read_at: Option<Timestamp>,
    /// How old what is known of the host is, if it was not read in this turn.
    pub remembered: Option<Duration>,
    /// When the hosts to choose from were listed, if they were.
    pub listed_at: Option<Instant>,
    /// User and password that the read of the host carried.
    pub login: Option<(String, SecretString)>,
}

/// Reads everything that this turn may depend on; `None` if the object, last `watched` as this, is
/// gone.
pub async fn observe(
    context: &Context,
    watched: &ScalewayAppleSiliconMachine,
    reading: Reading,
) -> Result<Option<Turn>, ReadError> {
    let Some(object) = object(context, watched, &reading).await? else { return Ok(None) };
    let uid: CrUid = parse("the object's UID", &object.uid().unwrap_or_default())?;
    let owners = owners(context, &object, &reading).await?;
    let observed = facts(context, &object, uid.clone(), &owners);
    let zone = observed.zone.clone();
    let asked = object.spec.kubelet_version.clone().filter(|version| !version.is_empty());
    let version = asked.or_else(|| owners.machine.and_then(|machine| machine.spec.version));
    let pause = context.settings.limits.look;
    let (stored, now) = (&observed.status, context.clock.now());
    let contested_until = context.tellings.contested_until(uid.as_str(), stored, pause, now);
    perform::hear(context, &object, &uid, stored).await;
    let mut turn = Turn {
        seen: Observed {
            object: observed,
            cluster: context.cluster.clone(),
            bound: Bound::NotRead(None),
            images: Images::NotRead,
            credentials: Credentials::default(),
            identity: BTreeMap::new(),
            name: Name::NotRead,
            node: None,
            guests: vec![],
            builder: Builder::None,
            may_drain: false,
            bootstrap: context.bootstraps.of(&uid),
            upkeep: context.bootstraps.upkeep_of(&uid),
            reboot: Reboot::default(),
            run_of: context.bootstraps.run_of(&uid),
            trouble: context.troubles.of(uid.as_str()),
            contested_until,
        },
        object,
        zone,
        version,
        reading,
        read_at: None,
        remembered: None,
        listed_at: None,
        login: None,
    };
    match look(&turn.seen) {
        Look::AtNothing => {}
        Look::AtLease => {
            turn.seen.bound = Bound::NotRead(binding::held_lease(context, &turn).await?);
        }
        Look::Outside => {
            binding::bind(context, &mut turn).await?;
            surroundings::read(context, &mut turn).await?;
            let known = |server| context.reboots.of(&uid, server, turn.seen.failures());
            turn.seen.reboot = turn.server().map(known).unwrap_or_default();
        }
    }
    Ok(Some(turn))
}

async fn object(
    context: &Context,
    watched: &ScalewayAppleSiliconMachine,
    reading: &Reading,
) -> Result<Option<ScalewayAppleSiliconMachine>, ReadError> {
    if let Some(known) = context.memory.objects.recall(watched, reading) {
        return Ok(Some(known));
    }
    let namespace = watched.namespace().unwrap_or_default();
    let machines: Api<ScalewayAppleSiliconMachine> =
        Api::namespaced(context.client.clone(), &namespace);
    let began = next();
    let object = calls::read("the object", machines.get_opt(&watched.name_any())).await?;
    if let Some(object) = &object {
        context.memory.objects.read(object, began);
    }
    Ok(object)
}

/// Reads the host anew, and what stands around it, in a turn that remembered it.
pub async fn read_afresh(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    let Bound::To { server, lease, .. } = turn.seen.bound.clone() else { return Ok(()) };
    binding::read_host(context, turn, server, lease).await;
    let seen = &mut turn.seen;
    (seen.node, seen.guests, seen.identity) = (None, vec![], BTreeMap::new());
    (seen.credentials, seen.builder) = (Credentials::default(), Builder::None);
    surroundings::read(context, turn).await
}

/// How far a turn looks.
enum Look {
    /// Nothing is to be done.
    AtNothing,
    /// Nothing outside may be called, but our Lease may have to be told.
    AtLease,
    /// At everything.
    Outside,
}

fn look(seen: &Observed) -> Look {
    let object = &seen.object;
    let nameless = object.status.server_id.is_none() && object.provider_id.is_none();
    // G17: what was ordered and may have arrived unseen is looked for.
    let ordered = object.ordered.is_some();
    if object.deleting_since.is_some() {
        if !object.finalizer {
            Look::AtNothing
        } else if object.deleted_for_move || (object.paused.is_some() && nameless && !ordered) {
            Look::AtLease
        } else {
            Look::Outside
        }
    } else if !object.owned_by_machine {
        Look::AtNothing
    } else if object.paused.is_some() {
        Look::AtLease
    } else if !object.finalizer || object.waiting_for.is_some() {
        Look::AtNothing
    } else {
        Look::Outside
    }
}

fn parse<T: std::str::FromStr>(what: &'static str, text: &str) -> Result<T, ReadError>
where
    T::Err: std::fmt::Display,
{
    text.parse().map_err(|error: T::Err| malformed(what, &error))
}

fn malformed(what: &'static str, error: &dyn std::fmt::Display) -> ReadError {
    ReadError::Malformed { what, why: error.to_string() }
}

/// The Machine and the Cluster that the object belongs to, as far as they exist.
struct Owners {
    machine: Option<Machine>,
    cluster: Option<Cluster>,
    cluster_name: Option<String>,
}

async fn owners(
    context: &Context,
    object: &ScalewayAppleSiliconMachine,
    reading: &Reading,
) -> Result<Owners, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let cluster_name = object.labels().get(label::CLUSTER_NAME).cloned();
    let machine = async {
        let Some(name) = machine_owner(object) else { return Ok(None) };
        let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
        let read = calls::read("its Machine", machines.get_opt(name)).map_ok(|m| m.map(slim));
        context.memory.machines.get(&key(&namespace, name), reading, read).await
    };
    let cluster = async {
        let Some(name) = &cluster_name else { return Ok(None) };
        let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
        let read = calls::read("its Cluster", clusters.get_opt(name)).map_ok(|c| c.map(slim));
        context.memory.clusters.get(&key(&namespace, name), reading, read).await
    };
    // In order, so that a simulated run can be repeated.
    let (machine, cluster) = tokio::try_join!(biased; machine, cluster)?;
    Ok(Owners { machine, cluster, cluster_name })
}

/// The Machine that owns the object, by name.
pub fn machine_owner(object: &ScalewayAppleSiliconMachine) -> Option<&str> {
    let is_machine = |api_version: &str, kind: &str| {
        kind == "Machine" && api_version.split('/').next() == Some(GROUP)
    };
    let owners = object.owner_references();
    owners.iter().find(|o| is_machine(&o.api_version, &o.kind)).map(|owner| owner.name.as_str())
}

/// What of the spec cannot be understood is told and waited for, and never in the way of a
/// deletion.
fn facts(
    context: &Context,
    object: &ScalewayAppleSiliconMachine,
    uid: CrUid,
    owners: &Owners,
) -> Object {
    let has = |name: &str| object.annotations().contains_key(name);
    let cluster_paused = owners.cluster.as_ref().is_some_and(|c| c.spec.paused == Some(true));
    let paused = if cluster_paused {
        Some(Pause::Cluster)
    } else {
        has(annotation::PAUSED).then_some(Pause::Annotation)
    };
    let given = object.spec.adopt_pool_prefix.clone().filter(|prefix| !prefix.is_empty());
    let mut complaint = None;
    let text = object.spec.provider_id.as_deref().filter(|text| !text.is_empty());
    let provider_id = text.and_then(|text| match text.parse::<ProviderId>() {
        Ok(id) => Some(id),
        Err(error) => {
            complaint = Some(format!("a spec.providerID that can be read: {error}"));
            None
        }
    });
    let zone = object.spec.zone().unwrap_or_else(|error| {
        complaint = Some(format!("a spec.zone that can be read: {error}"));
        let known = provider_id.as_ref().map(|id| id.zone.clone());
        known.unwrap_or_else(ScalewayAppleSiliconMachineSpec::default_zone)
    });
    let policy = object.annotations().get(annotation::RELEASE_POLICY);
    let (name, namespace) = (object.name_any(), object.namespace().unwrap_or_default());
    Object {
        note: OwnerNote {
            owner: Some(leases::holder(&namespace, &name, &uid)),
            pool: given.clone(),
            builder: object.spec.gh_actions_runner.is_some(),
        },
        name,
        ordered: ordered(context, object, &uid),
        uid,
        created_at: object.metadata.creation_timestamp.as_ref().map(|time| time.0),
        generation: object.metadata.generation,
        finalizer: object.finalizers().iter().any(|f| f == finalizer::MACHINE),
        deleting_since: object.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        deleted_for_move: has(annotation::DELETE_FOR_MOVE),
        owned_by_machine: machine_owner(object).is_some(),
        machine_is_bound: owners.machine.as_ref().is_some_and(|machine| {
            machine.spec.provider_id.as_ref().is_some_and(|id| !id.is_empty())
        }),
        move_is_blocked: has(annotation::BLOCK_MOVE),
        terminate: policy.is_some_and(|policy| policy == annotation::TERMINATE),
        update: has(annotation::UPDATE),
        auto_order: object.spec.auto_order == Some(true),
        paused,
        waiting_for: complaint.or_else(|| waiting_for(owners)),
        drain_timeout: drain_timeout(context, owners.machine.as_ref()),
        pool_prefix: given.or_else(|| context.settings.default_pool_prefix.clone()),
        zone,
        server_type: object.spec.server_type().to_owned(),
        os: object.spec.os_pin(),
        provider_id,
        status: object.status.clone().unwrap_or_default(),
    }
}

/// The order that is noted on the object. A time that nobody can read is long ago.
fn ordered(
    context: &Context,
    object: &ScalewayAppleSiliconMachine,
    uid: &CrUid,
) -> Option<Ordered> {
    let text = object.annotations().get(annotation::ORDERED_AT)?;
    let at = text.parse().unwrap_or(Timestamp::UNIX_EPOCH);
    Some(Ordered { at, unsent: context.orders.is_unsent(uid, at, context.clock.now()) })
}

fn waiting_for(owners: &Owners) -> Option<String> {
    let Some(name) = &owners.cluster_name else {
        return Some(format!("the label {}", label::CLUSTER_NAME));
    };
    let Some(cluster) = &owners.cluster else { return Some(format!("Cluster {name} to exist")) };
    let provisioned = cluster
        .status
        .as_ref()
        .is_some_and(|status| status.initialization.infrastructure_provisioned);
    if !provisioned {
        return Some(format!("the infrastructure of Cluster {name}"));
    }
    let Some(machine) = &owners.machine else { return Some("its Machine to exist".to_owned()) };
    let secret = machine.spec.bootstrap.data_secret_name.as_ref();
    secret.is_none().then(|| "its Machine's bootstrap data Secret".to_owned())
}

fn drain_timeout(context: &Context, machine: Option<&Machine>) -> Option<Duration> {
    let asked = machine
        .and_then(|machine| machine.spec.deletion.as_ref())
        .and_then(|deletion| deletion.node_drain_timeout_seconds);
    match asked {
        None => Some(context.settings.drain_timeout),
        Some(0) => None,
        Some(seconds) => Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0))),
    }
}

/// An error with its causes, in one line.
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

/// The name of the fleet whose SSH key the object's Mac knows.
pub fn fleet(object: &ScalewayAppleSiliconMachine) -> String {
    let own = || format!("{}-{}", object.namespace().unwrap_or_default(), object.name_any());
    object.spec.fleet_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(own)
}

impl Turn {
    /// The version of the Lease that this turn read.
    pub fn lease_version(&self) -> Option<&str> {
        match &self.seen.bound {
            Bound::To { lease, .. } | Bound::NotRead(Some((_, lease))) => lease.version.as_deref(),
            Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => None,
        }
    }

    /// The host that the object has.
    pub fn server(&self) -> Option<&ServerId> {
        match &self.seen.bound {
            Bound::To { server, .. } => Some(server),
            Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => None,
        }
    }

    /// A host as it was listed, for an object that has none yet. A list tells no password.
    pub fn listed(&self, server: &ServerId) -> Option<Read> {
        let Bound::Unbound(Candidates::Listed(candidates)) = &self.seen.bound else { return None };
        let candidate = candidates.iter().find(|candidate| candidate.host.id == *server)?;
        Some(Read { at: self.listed_at?, host: candidate.host.clone(), login: None })
    }

    /// The host, as this turn knows it.
    pub fn host(&self) -> Option<&Host> {
        match &self.seen.bound {
            Bound::To { host: HostRead::Seen(host), .. } => Some(host),
            Bound::To { .. } | Bound::Unbound(_) | Bound::Several(_) | Bound::NotRead(_) => None,
        }
    }
}
