//! Reads for the sweep, never from a cache. Reads only.

use std::collections::{BTreeMap, BTreeSet};

use applecart_api::ids::{ProviderId, ServerId, Zone};
use applecart_api::keys::{label, lease as key};
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::machine::{HostRead, HostState, Images};
use applecart_core::sweep::{
    Asked, Class, HostLease, Inventory, Job, Listed, Mac, Names, Owner, Owners, Reason, Seen, Task,
    ZoneRead,
};
use applecart_scaleway::{ErrorKind, Server};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, ResourceExt};

use super::{Sweep, leftovers};
use crate::calls::{self, ReadError};
use crate::provider::{self, chain, leases};

/// What a turn read: what is decided from, and what only an effect needs.
pub struct Turn {
    /// What is decided from.
    pub seen: Seen,
    /// Where the host stands; a Lease alone does not tell.
    pub zone: Option<Zone>,
}

/// Reads everything. Objects come last: whoever held a host or a Lease by then existed before.
pub async fn inventory(sweep: &Sweep) -> Result<Inventory, Reason> {
    let every = ListParams::default().labels(key::HOST);
    let stored = calls::read("the hosts' Leases", all_leases(sweep).list(&every)).await;
    let stored = stored.map_err(|error| unreadable(&error))?;
    let by_server = |lease: &Lease| Some((leases::server(lease)?, host_lease(lease)?));
    let leases: BTreeMap<_, _> = stored.items.iter().filter_map(by_server).collect();
    let mut zones: BTreeSet<Zone> = sweep.settings.zones.iter().cloned().collect();
    // The host of the last object that was there stands in its zone all the same.
    zones.extend(leases.values().filter_map(|lease| lease.zone.clone()));
    zones.extend(objects(sweep).await?.iter().filter_map(|object| object.spec.zone().ok()));
    let mut read = BTreeMap::new();
    for zone in zones {
        let hosts = match sweep.scaleway.list_servers(&zone).await {
            Ok(servers) => ZoneRead::Listed(listed(&servers)),
            Err(error) => ZoneRead::Failed(chain(&error)),
        };
        read.insert(zone, hosts);
    }
    let belongings = leftovers::belongings(sweep).await.map_err(|error| unreadable(&error))?;
    let owners = owners(sweep).await?;
    Ok(Inventory { cluster: sweep.cluster.clone(), zones: read, leases, belongings, owners })
}

/// Reads one host, its Lease and, last, who may own it. `asking`: the last turn noted that it is
/// asked to be wiped.
pub async fn host(sweep: &Sweep, task: &Task, asking: bool) -> Result<Turn, Reason> {
    let server = task.server().clone();
    let (all, name) = (all_leases(sweep), key::name(&server));
    let stored = calls::read("the host's Lease", all.get_opt(&name)).await;
    let stored = stored.map_err(|error| unreadable(&error))?;
    let lease = stored.as_ref().and_then(host_lease).unwrap_or_else(HostLease::free);
    let zone = match task {
        Task::Host { zone, .. } | Task::SpareLease { zone, .. } | Task::DropLease { zone, .. } => {
            Some(zone.clone())
        }
        Task::FreeLease(_) => None,
    };
    let host = match (&zone, task) {
        (Some(zone), Task::DropLease { .. } | Task::SpareLease { missing: true, .. }) => {
            read_missing(sweep, zone, &server).await
        }
        (Some(zone), _) => read_host(sweep, zone, &server).await,
        (None, _) => HostRead::Gone,
    };
    let owners = owners(sweep).await?;
    let names = Names::new(&sweep.cluster, &sweep.settings.policy, &owners, [&lease]);
    let images = Images::NotRead;
    let (job, mac) = (None, None);
    let mut seen = Seen { server, host, lease, owners, names, job, mac, asking, images };
    if let (HostRead::Seen(host), Some(zone)) = (seen.host.clone(), &zone) {
        match seen.class(&host) {
            Class::Orphan => {
                let job = self::job(sweep, &host.name).await;
                seen.job = job.map_err(|error| unreadable(&error))?;
            }
            Class::Releasing if host.state == HostState::Ready => {
                seen.images = provider::images_of(&sweep.scaleway, zone, &host.server_type).await;
                let mac = self::mac(sweep, &host.id).await;
                seen.mac = mac.map_err(|error| unreadable(&error))?;
            }
            Class::Pool
            | Class::Claiming
            | Class::Claimed
            | Class::Releasing
            | Class::Retiring
            | Class::Quarantined
            | Class::Foreign => {}
        }
    }
    Ok(Turn { seen, zone })
}

/// Why nobody can tell who owns what.
pub fn unreadable(error: &ReadError) -> Reason {
    Reason::OwnersUnreadable(chain(error))
}

/// The Leases of hosts.
pub fn all_leases(sweep: &Sweep) -> Api<Lease> {
    Api::namespaced(sweep.client.clone(), &sweep.namespace)
}

fn host_lease(stored: &Lease) -> Option<HostLease> {
    let sweep = leases::server(stored)?.as_str().parse().ok()?;
    let says = |key: &str| stored.annotations().get(key).is_some_and(|text| text == "true");
    Some(HostLease {
        lease: leases::read(stored, Some(&sweep)),
        zone: leases::zone(stored),
        moved: says(key::MOVED),
        quarantined: says(key::QUARANTINED),
        taken_at: stored.spec.as_ref().and_then(|spec| Some(spec.acquire_time.as_ref()?.0)),
        asked: asked(stored),
    })
}

fn asked(stored: &Lease) -> Option<Asked> {
    let annotation = |key: &str| stored.annotations().get(key);
    let at = annotation(key::WIPE_ASKED_AT)?.parse().ok()?;
    let times = annotation(key::WIPE_ASKS).and_then(|text| text.parse().ok());
    Some(Asked { times: times.unwrap_or_default(), at })
}

/// All objects of all namespaces, whichever of them this provider looks after.
async fn objects(sweep: &Sweep) -> Result<Vec<ScalewayAppleSiliconMachine>, Reason> {
    let all: Api<ScalewayAppleSiliconMachine> = Api::all(sweep.client.clone());
    let list = calls::read("all objects", all.list(&ListParams::default())).await;
    list.map(|list| list.items).map_err(|error| unreadable(&error))
}

/// All objects that may own a host.
pub async fn owners(sweep: &Sweep) -> Result<Owners, Reason> {
    Ok(Owners::new(objects(sweep).await?.iter().map(owner).collect()))
}

fn owner(object: &ScalewayAppleSiliconMachine) -> Owner {
    let status = object.status.as_ref().and_then(|status| status.server_id.as_deref());
    let status = status.and_then(|id| id.parse::<ServerId>().ok());
    let spec = object.spec.provider_id.as_deref().and_then(|id| id.parse::<ProviderId>().ok());
    Owner {
        namespace: object.namespace().unwrap_or_default(),
        name: object.name_any(),
        uid: object.uid().unwrap_or_default(),
        servers: status.into_iter().chain(spec.map(|id| id.server)).collect(),
        pool_prefix: object.spec.adopt_pool_prefix.clone().filter(|prefix| !prefix.is_empty()),
    }
}

fn listed(servers: &[Server]) -> Vec<Listed> {
    let listed = |server: &Server| Listed {
        host: provider::host(server),
        changed_at: server.updated_at.or(server.created_at),
    };
    let mut hosts: Vec<Listed> = servers.iter().map(listed).collect();
    hosts.sort_by(|a, b| a.host.id.cmp(&b.host.id));
    hosts
}

/// Only a 404 says that a host is gone; it was in a complete list a moment ago (S10).
async fn read_host(sweep: &Sweep, zone: &Zone, server: &ServerId) -> HostRead {
    match sweep.scaleway.server(zone, server).await {
        Ok(read) => HostRead::Seen(provider::host(&read)),
        Err(error) if error.kind == ErrorKind::NotFound && error.is_typed() => HostRead::Gone,
        Err(error) => HostRead::Failed(chain(&error)),
    }
}

/// A host that two complete lists of its zone lack is gone if Scaleway says 404, or 403.
async fn read_missing(sweep: &Sweep, zone: &Zone, server: &ServerId) -> HostRead {
    match sweep.scaleway.server(zone, server).await {
        Err(error) if error.kind == ErrorKind::Permission => HostRead::Gone,
        Err(error) if error.kind == ErrorKind::NotFound && error.is_typed() => HostRead::Gone,
        Ok(read) => HostRead::Seen(provider::host(&read)),
        Err(error) => HostRead::Failed(chain(&error)),
    }
}

/// The Node of this host, whatever that is called, and what runs there.
async fn mac(sweep: &Sweep, server: &ServerId) -> Result<Option<Mac>, ReadError> {
    let nodes: Api<Node> = Api::all(sweep.client.clone());
    let macs = format!("{}={}", label::RUNTIME, label::RUNTIME_TART);
    let every = ListParams::default().labels(&macs);
    let nodes = calls::read("the Macs' Nodes", nodes.list(&every)).await?;
    let of_host = |node: &&Node| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        id.and_then(|id| id.parse::<ProviderId>().ok()).is_some_and(|id| id.server == *server)
    };
    let Some(name) = nodes.iter().find(of_host).map(ResourceExt::name_any) else { return Ok(None) };
    // The Node before its Pods: once it is cordoned, none comes that they lack.
    let Some(node) = provider::node(&sweep.client, &name).await? else { return Ok(None) };
    let guests = provider::guests(&sweep.client, &name).await?;
    Ok(Some(Mac { name, node, guests }))
}

/// A job that runs on the Node of this name.
async fn job(sweep: &Sweep, node: &str) -> Result<Option<Job>, ReadError> {
    let pods: Api<Pod> = Api::all(sweep.client.clone());
    let claimed = ListParams::default()
        .fields(&format!("spec.nodeName={node}"))
        .labels(label::RUNNER_POOL_OWNER);
    let pods = calls::read("the Node's Pods", pods.list(&claimed)).await?;
    let Some(pod) = pods.items.iter().find(|pod| provider::is_busy(pod)) else { return Ok(None) };
    let nodes: Api<Node> = Api::all(sweep.client.clone());
    let node = calls::read("its Node", nodes.get_opt(node)).await?;
    let pod = format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any());
    Ok(node.map(|node| Job { pod, silent_since: provider::silent_since(&node) }))
}
