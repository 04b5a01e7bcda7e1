//! Reads the world into one [`Observed`]. Reads only; what a stage does not need is not read.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::cluster_api::{Cluster, GROUP, Machine};
use applecart_api::condition::is_true;
use applecart_api::ids::{CrUid, ProviderId, ServerId, Zone};
use applecart_api::keys::{annotation, finalizer, label, lease as key, owned};
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineSpec};
use applecart_api::name_class::{Marker, NameClass};
use applecart_core::machine::{
    Bootstrap, Bound, Candidate, Candidates, Credentials, Guest, Host, HostRead, HostState,
    Identity, Image, Images, Lease, Node, Object, Observed, Pause, Release, is_due,
};
use applecart_scaleway::{ErrorKind, Os, SEALED, Server, ServerStatus};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease as StoredLease;
use k8s_openapi::api::core::v1::{Node as StoredNode, NodeCondition, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use secrecy::SecretString;

use super::{Context, leases, zones::Snapshot};
use crate::calls::{self, ReadError};

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
    /// When this turn read the host from Scaleway, if it did.
    pub read_at: Option<Timestamp>,
    /// User and password that this turn's read of the host carried.
    pub login: Option<(String, SecretString)>,
}

/// Reads everything that this turn may depend on; `None` if the object is gone.
pub async fn observe(
    context: &Context,
    namespace: &str,
    name: &str,
) -> Result<Option<Turn>, ReadError> {
    let machines: Api<ScalewayAppleSiliconMachine> =
        Api::namespaced(context.client.clone(), namespace);
    let Some(object) = calls::read("the object", machines.get_opt(name)).await? else {
        return Ok(None);
    };
    let uid: CrUid = parse("the object's UID", &object.uid().unwrap_or_default())?;
    let owners = owners(context, &object).await?;
    let observed = facts(context, &object, uid.clone(), &owners);
    let zone = observed.zone.clone();
    let asked = object.spec.kubelet_version.clone().filter(|version| !version.is_empty());
    let version = asked.or_else(|| owners.machine.and_then(|machine| machine.spec.version));
    let mut turn = Turn {
        seen: Observed {
            object: observed,
            cluster: context.cluster.clone(),
            bound: Bound::NotRead,
            images: Images::NotRead,
            credentials: Credentials::default(),
            identity: vec![],
            node: None,
            guests: vec![],
            bootstrap: context.bootstraps.of(&uid),
            upkeep: context.bootstraps.upkeep_of(&uid),
            trouble: context.troubles.of(uid.as_str()),
        },
        object,
        zone,
        version,
        read_at: None,
        login: None,
    };
    if is_quiet(&turn.seen) {
        return Ok(Some(turn));
    }
    bind(context, &mut turn).await?;
    surroundings(context, &mut turn).await?;
    Ok(Some(turn))
}

/// Whether nothing outside may be read, or needs to be.
fn is_quiet(seen: &Observed) -> bool {
    let object = &seen.object;
    if object.deleting_since.is_some() {
        let nameless = object.status.server_id.is_none() && object.provider_id.is_none();
        return !object.finalizer
            || object.deleted_for_move
            || (object.paused.is_some() && nameless);
    }
    !object.owned_by_machine
        || object.paused.is_some()
        || !object.finalizer
        || object.waiting_for.is_some()
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
) -> Result<Owners, ReadError> {
    let namespace = object.namespace().unwrap_or_default();
    let machine = match machine_owner(object) {
        Some(name) => {
            let machines: Api<Machine> = Api::namespaced(context.client.clone(), &namespace);
            calls::read("its Machine", machines.get_opt(name)).await?
        }
        None => None,
    };
    let cluster_name = object.labels().get(label::CLUSTER_NAME).cloned();
    let cluster = match &cluster_name {
        Some(name) => {
            let clusters: Api<Cluster> = Api::namespaced(context.client.clone(), &namespace);
            calls::read("its Cluster", clusters.get_opt(name)).await?
        }
        None => None,
    };
    Ok(Owners { machine, cluster, cluster_name })
}

fn machine_owner(object: &ScalewayAppleSiliconMachine) -> Option<&str> {
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
    Object {
        name: object.name_any(),
        uid,
        generation: object.metadata.generation,
        finalizer: object.finalizers().iter().any(|f| f == finalizer::MACHINE),
        deleting_since: object.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        deleted_for_move: has(annotation::DELETE_FOR_MOVE),
        owned_by_machine: machine_owner(object).is_some(),
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

/// Finds the object's host: by Lease, then status, then provider ID, then name (LH2).
async fn bind(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    let uid = turn.seen.object.uid.clone();
    if let Some((server, lease)) = held_lease(context, turn).await? {
        return read_bound(context, turn, server, lease).await;
    }
    let object = &turn.seen.object;
    let stored = object.status.server_id.as_deref().filter(|id| !id.is_empty());
    // A status that cannot be read is one that was lost: the host is found by other ways.
    let stored = stored.and_then(|id| id.parse::<ServerId>().ok());
    let known = stored.or_else(|| object.provider_id.as_ref().map(|id| id.server.clone()));
    if let Some(server) = known {
        let (all, name) = (all_leases(context), key::name(&server));
        let lease = calls::read("the host's Lease", all.get_opt(&name)).await?;
        let lease = lease.map_or_else(Lease::free, |lease| leases::read(&lease, Some(&uid)));
        return read_bound(context, turn, server, lease).await;
    }
    match list(context, &turn.zone).await {
        Err(why) => turn.seen.bound = Bound::Unbound(Candidates::Failed(why)),
        Ok(candidates) => match named_ours(&turn.seen, &candidates) {
            Some(Candidate { host, lease }) => {
                let (server, lease) = (host.id.clone(), lease.clone());
                return read_bound(context, turn, server, lease).await;
            }
            None => turn.seen.bound = Bound::Unbound(Candidates::Listed(candidates)),
        },
    }
    Ok(())
}

fn all_leases(context: &Context) -> Api<StoredLease> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

async fn held_lease(
    context: &Context,
    turn: &Turn,
) -> Result<Option<(ServerId, Lease)>, ReadError> {
    let uid = &turn.seen.object.uid;
    let ours = ListParams::default().labels(&format!("{}={uid}", key::HOLDER));
    let held = calls::read("Leases held", all_leases(context).list(&ours)).await?;
    let mut held: Vec<(ServerId, Lease)> = held
        .items
        .iter()
        .filter_map(|l| Some((leases::server(l)?, leases::read(l, Some(uid)))))
        .collect();
    let preferred = turn.seen.object.status.server_id.as_deref();
    held.sort_by_key(|(server, _)| Some(server.as_str()) != preferred);
    Ok(held.into_iter().next())
}

/// A host that carries our name or our marker, whatever became of its Lease.
fn named_ours<'a>(seen: &Observed, candidates: &'a [Candidate]) -> Option<&'a Candidate> {
    let marker = Marker { cluster: seen.cluster.clone(), uid: seen.object.uid.clone() };
    let names =
        [seen.object.name.clone(), NameClass::claiming(&marker), NameClass::releasing(&marker)];
    candidates.iter().find(|candidate| names.contains(&candidate.host.name))
}

async fn list(context: &Context, zone: &Zone) -> Result<Vec<Candidate>, String> {
    let whole = async {
        let servers = context.scaleway.list_servers(zone).await.map_err(|e| chain(&e))?;
        let every = ListParams::default().labels(key::HOST);
        let stored = calls::read("the hosts' Leases", all_leases(context).list(&every)).await;
        let stored = stored.map_err(|e| chain(&e))?;
        let mut hosts: Vec<Host> = servers.iter().map(host).collect();
        hosts.sort_by(|a, b| a.id.cmp(&b.id));
        Ok::<_, String>(Snapshot::new(hosts, leases::by_server(&stored.items)))
    };
    context.zones.get(zone, whole).await
}

async fn read_bound(
    context: &Context,
    turn: &mut Turn,
    server: ServerId,
    lease: Lease,
) -> Result<(), ReadError> {
    let living = turn.seen.object.deleting_since.is_none();
    let running = context.bootstraps.host(&turn.seen.object.uid).filter(|host| host.id == server);
    if let Some(host) = running.filter(|_| living) {
        turn.seen.bound = Bound::To { server, lease, host: HostRead::Seen(host) };
        return Ok(());
    }
    // Before the call: what it tells is at least as new.
    turn.read_at = Some(context.clock.now());
    let host = match context.scaleway.server(&turn.zone, &server).await {
        Ok(read) => {
            let user = read.ssh_username.clone().unwrap_or_else(|| "m1".to_owned());
            turn.login = read.password.clone().map(|password| (user, password));
            HostRead::Seen(host(&read))
        }
        Err(error) if error.kind == ErrorKind::NotFound => HostRead::Gone,
        Err(error) if error.kind == ErrorKind::Permission => {
            absent(context, &turn.zone, &server, chain(&error)).await
        }
        Err(error) => HostRead::Failed(chain(&error)),
    };
    turn.seen.bound = Bound::To { server, lease, host };
    Ok(())
}

/// A deleted host answers 403, and so does a key without rights: gone means also absent from two
/// complete lists (S10).
async fn absent(context: &Context, zone: &Zone, server: &ServerId, said: String) -> HostRead {
    for _ in 0..2 {
        match context.scaleway.list_servers(zone).await {
            Ok(servers) if servers.iter().all(|listed| listed.id != *server) => {}
            Ok(_) => return HostRead::Failed(said),
            Err(error) => return HostRead::Failed(chain(&error)),
        }
    }
    HostRead::Gone
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

/// A host as Scaleway told it.
pub fn host(server: &Server) -> Host {
    Host {
        id: server.id.clone(),
        name: server.name.clone(),
        state: match &server.status {
            ServerStatus::Ready => HostState::Ready,
            ServerStatus::Reinstalling => HostState::Reinstalling,
            status if status.is_transient() => HostState::Changing(status.to_string()),
            status => HostState::Stuck(status.to_string()),
        },
        delivered: server.delivered,
        retiring: server.deletion_scheduled,
        server_type: server.server_type.clone(),
        os: server.os.as_ref().map(|os| (os.name.clone(), os.family.clone())),
        address: server.ip.map(|ip| ip.to_string()),
        has_password: server.password.is_some(),
    }
}

/// The Node, its Pods, the identity and the Secrets, as far as this stage looks at them.
async fn surroundings(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    let object = &turn.seen.object;
    let deleting = object.deleting_since.is_some();
    let claimed = matches!(
        &turn.seen.bound,
        Bound::To { host: HostRead::Seen(host), .. } if host.name == object.name
    );
    if !deleting && !claimed {
        return Ok(());
    }
    let name = object.name.clone();
    turn.seen.node = node(context, &name).await?;
    if deleting {
        turn.seen.guests = guests(context, &name).await?;
        turn.seen.images = images(context, turn).await;
    }
    let settled = is_true(&turn.seen.object.status.conditions, "Bootstrapped");
    let idle = turn.seen.bootstrap == Bootstrap::None;
    let due = is_due(context.clock.now(), &turn.seen, &context.settings.limits);
    if deleting || (idle && (!settled || due)) {
        secrets(context, turn).await?;
    }
    Ok(())
}

/// What the host can be wiped to, if that is what comes next.
async fn images(context: &Context, turn: &Turn) -> Images {
    let Bound::To { host: HostRead::Seen(host), .. } = &turn.seen.bound else {
        return Images::NotRead;
    };
    if turn.seen.release_of(host) != Release::Marked || host.state != HostState::Ready {
        return Images::NotRead;
    }
    images_of(&context.scaleway, &turn.zone, &host.server_type).await
}

/// The images that Scaleway offers for a type.
pub async fn images_of(
    scaleway: &applecart_scaleway::Client,
    zone: &Zone,
    server_type: &str,
) -> Images {
    let image = |os: &Os| Image {
        id: os.id.to_string(),
        name: os.name.clone(),
        family: os.family.clone(),
        version: os.version.clone(),
        beta: os.is_beta,
    };
    match scaleway.list_os(zone, Some(server_type)).await {
        Ok(list) => Images::Listed(list.iter().map(image).collect()),
        Err(error) => Images::Failed(chain(&error)),
    }
}

async fn node(context: &Context, name: &str) -> Result<Option<Node>, ReadError> {
    let nodes: Api<StoredNode> = Api::all(context.client.clone());
    let Some(node) = calls::read("its Node", nodes.get_opt(name)).await? else { return Ok(None) };
    Ok(Some(Node {
        uid: node.uid().unwrap_or_default(),
        provider_id: node.spec.as_ref().and_then(|spec| spec.provider_id.clone()),
        cordoned: node.spec.as_ref().is_some_and(|spec| spec.unschedulable == Some(true)),
        ready: is_node_ready(&node),
        silent_since: silent_since(&node),
    }))
}

/// Since when a Node's agent has not said that it is well.
pub fn silent_since(node: &StoredNode) -> Option<Timestamp> {
    let ready = ready_condition(node)?;
    ready.last_transition_time.as_ref().filter(|_| ready.status != "True").map(|time| time.0)
}

fn ready_condition(node: &StoredNode) -> Option<&NodeCondition> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")
}

/// Whether a Node's agent says that it is well.
pub fn is_node_ready(node: &StoredNode) -> bool {
    ready_condition(node).is_some_and(|ready| ready.status == "True")
}

async fn guests(context: &Context, node: &str) -> Result<Vec<Guest>, ReadError> {
    let pods: Api<Pod> = Api::all(context.client.clone());
    let here = ListParams::default().fields(&format!("spec.nodeName={node}"));
    let pods = calls::read("the Node's Pods", pods.list(&here)).await?;
    Ok(pods.items.iter().map(guest).collect())
}

/// A job claimed it, and it has not ended.
pub fn is_busy(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let claimed = pod.labels().get(label::RUNNER_POOL_OWNER).is_some_and(|owner| !owner.is_empty());
    claimed && !ended
}

fn guest(pod: &Pod) -> Guest {
    let deleting = pod.metadata.deletion_timestamp.is_some();
    Guest {
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        version: pod.resource_version().unwrap_or_default(),
        busy: is_busy(pod),
        deleting,
        forced: deleting && pod.metadata.deletion_grace_period_seconds.unwrap_or(0) == 0,
        agent_finalizer: pod.finalizers().iter().any(|f| f == finalizer::POD_VM),
    }
}

async fn secrets(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    let namespace = &context.settings.namespace;
    let all: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(context.client.clone(), namespace);
    let bindings: Api<ClusterRoleBinding> = Api::all(context.client.clone());
    let name = turn.seen.object.name.clone();
    let agent = owned::agent(&name);
    let token = calls::read("its token", all.get_opt(&owned::agent_token(&name))).await?;
    let account = calls::read("its ServiceAccount", accounts.get_opt(&agent)).await?;
    let binding = calls::read("its ClusterRoleBinding", bindings.get_opt(&agent)).await?;
    let present = BTreeMap::from([
        (Identity::ServiceAccount, account.is_some()),
        (Identity::Binding, binding.is_some()),
        (Identity::Token, token.is_some()),
    ]);
    turn.seen.identity = present.into_iter().filter_map(|(part, is)| is.then_some(part)).collect();
    let stored = calls::read("its password", all.get_opt(&owned::credentials(&name))).await?;
    turn.seen.credentials = Credentials {
        fleet_key: context.fleet_keys.of(&fleet(&turn.object)),
        password: stored.is_some_and(|secret| has(&secret, owned::PASSWORD)),
        token: token.is_some_and(|secret| has(&secret, "token")),
    };
    Ok(())
}

/// The name of the fleet whose SSH key the object's Mac knows.
pub fn fleet(object: &ScalewayAppleSiliconMachine) -> String {
    let own = || format!("{}-{}", object.namespace().unwrap_or_default(), object.name_any());
    object.spec.fleet_name.clone().filter(|name| !name.is_empty()).unwrap_or_else(own)
}

/// Whether a Secret has a value under `name`: empty is the same as absent, and so is the marker
/// that older versions stored for a password that they were not told (P19).
fn has(secret: &Secret, name: &str) -> bool {
    let value = secret.data.as_ref().and_then(|data| data.get(name));
    value.is_some_and(|value| !value.0.is_empty() && value.0 != SEALED.as_bytes())
}

impl Turn {
    /// The version of the Lease that this turn read.
    pub fn lease_version(&self) -> Option<&str> {
        match &self.seen.bound {
            Bound::To { lease, .. } => lease.version.as_deref(),
            Bound::Unbound(_) | Bound::NotRead => None,
        }
    }

    /// The host, as this turn read it.
    pub fn host(&self) -> Option<&Host> {
        match &self.seen.bound {
            Bound::To { host: HostRead::Seen(host), .. } => Some(host),
            Bound::To { .. } | Bound::Unbound(_) | Bound::NotRead => None,
        }
    }
}
