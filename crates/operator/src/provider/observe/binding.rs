//! Which host an object has, and what Scaleway says of it. Reads only.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use applecart_api::ids::{ServerId, Zone};
use applecart_api::keys::lease as key;
use applecart_api::name_class::NameClass;
use applecart_core::machine::{
    Bound, Candidate, Candidates, Host, HostRead, HostState, Lease, LeaseHolder, Observed, Release,
};
use applecart_scaleway::{ErrorKind, Server, ServerStatus};
use futures::TryFutureExt;
use k8s_openapi::api::coordination::v1::Lease as StoredLease;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::{Turn, chain, names};
use crate::calls::{self, ReadError};
use crate::provider::memory::slim;
use crate::provider::reads::Read;
use crate::provider::zones::{Absence, Age, Apart, Snapshot, Unlisted};
use crate::provider::{Context, leases};

/// Leases that are read at once.
const PAGE: u32 = 250;

/// Finds the object's host: by Lease, then status, then provider ID, then name (LH2).
pub async fn bind(context: &Context, turn: &mut Turn) -> Result<(), ReadError> {
    if let Some((server, lease)) = held_lease(context, turn).await? {
        return read_bound(context, turn, server, lease).await;
    }
    let object = &turn.seen.object;
    if let Some(server) = known_server(&turn.seen) {
        let lease = lease_of(context, turn, &server).await?.unwrap_or_else(Lease::free);
        return read_bound(context, turn, server, lease).await;
    }
    // An order is sent only if a list that was begun after it was noted does not show it.
    let ordering = object.ordered.is_some_and(|order| order.unsent);
    let age = if ordering { Age::New } else { Age::Fresh };
    turn.read_at = ordering.then(|| context.clock.now());
    let candidates = match list(context, &turn.zone, age).await {
        Ok(snapshot) => {
            turn.listed_at = Some(snapshot.taken_at());
            snapshot.candidates()
        }
        Err(Unlisted { why, no_zone }) => {
            let failed = if no_zone { Candidates::NoZone(why) } else { Candidates::Failed(why) };
            turn.seen.bound = Bound::Unbound(failed);
            return Ok(());
        }
    };
    // Another leader took it for the object since this turn looked for Leases (G7).
    let us = turn.seen.object.uid.as_str();
    let is_us = |holder: &LeaseHolder| matches!(holder, LeaseHolder::Other(h) if h.ends_with(us));
    let leased = candidates.iter().find(|candidate| is_us(&candidate.lease.holder));
    if let Some(server) = leased.map(|leased| leased.host.id.clone())
        && let Some(lease) = lease_of(context, turn, &server).await?
        && lease.holder == LeaseHolder::Us
    {
        context.memory.held.forget(us);
        return read_bound(context, turn, server, lease).await;
    }
    let ours = named_ours(&turn.seen, &candidates);
    if let [Candidate { host, lease }] = ours[..] {
        let (server, mut lease) = (host.id.clone(), lease.clone());
        // Whoever names it has more of a claim than a name (LH14).
        if lease.holder == LeaseHolder::Nobody && host.name == turn.seen.object.name {
            let namesakes = names::namesakes(context, turn).await?;
            let owner = namesakes.iter().find(|other| names::servers(other).contains(&server));
            lease.holder = owner
                .map_or(LeaseHolder::Nobody, |owner| LeaseHolder::Other(names::display(owner)));
        }
        return read_bound(context, turn, server, lease).await;
    }
    turn.seen.bound = if ours.is_empty() {
        Bound::Unbound(Candidates::Listed(candidates))
    } else {
        Bound::Several(ours.iter().map(|candidate| candidate.host.id.clone()).collect())
    };
    Ok(())
}

fn all_leases(context: &Context) -> Api<StoredLease> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

/// The Lease that the object holds. Between two, its status decides, then its provider ID, then how
/// far a claim got, then which was taken first: one may have been taken late, after nobody heard of
/// it (P1), or by another leader. Whoever takes a Lease looks once more for others before it marks
/// the host, so the later one of two leaders sees the earlier one's, and leaves its own (G7).
pub async fn held_lease(
    context: &Context,
    turn: &Turn,
) -> Result<Option<(ServerId, Lease)>, ReadError> {
    let uid = &turn.seen.object.uid;
    // Its status is right nearly always, and one Lease is far less to look for than all.
    let recalls = turn.reading.may_recall();
    let taken = || context.memory.held.known(uid.as_str()).filter(|_| recalls);
    let known = known_server(&turn.seen);
    if let Some(server) = known.clone().or_else(taken) {
        match lease_of(context, turn, &server).await? {
            Some(lease) if lease.holder == LeaseHolder::Us => return Ok(Some((server, lease))),
            // It is free: the host that the object names is its own, whatever else it holds.
            Some(Lease { holder: LeaseHolder::Nobody, .. }) | None if known.is_some() => {
                return Ok(None);
            }
            Some(_) | None => {}
        }
    }
    let search = async {
        let ours = ListParams::default().labels(&format!("{}={uid}", key::HOLDER));
        let held = calls::read("Leases held", all_leases(context).list(&ours)).await?;
        let is_ours =
            |lease: &&StoredLease| leases::read(lease, Some(uid)).holder == LeaseHolder::Us;
        let held: Vec<(ServerId, &StoredLease)> = held
            .items
            .iter()
            .filter(is_ours)
            .filter_map(|lease| Some((leases::server(lease)?, lease)))
            .collect();
        let own = held.into_iter().max_by_key(|(server, lease)| {
            let facts = leases::read(lease, Some(uid));
            let marked = facts.marked_at.is_some() || facts.releasing_at.is_some();
            // Versions of an API server grow with every write.
            let version = facts.version.and_then(|version| version.parse::<u64>().ok());
            (marked, Reverse((version, server.clone())))
        });
        Ok(own.map(|(server, lease)| {
            context.memory.leases.wrote(server.as_str(), Some(slim(lease.clone())));
            server
        }))
    };
    let last = context.memory.held.known(uid.as_str());
    let found = context.memory.held.get(uid.as_str(), &turn.reading, Box::pin(search)).await?;
    // A list behind the times lacks what we have just taken.
    let Some(server) = found.or(last) else { return Ok(None) };
    let lease = lease_of(context, turn, &server).await?;
    let Some(lease) = lease.filter(|lease| lease.holder == LeaseHolder::Us) else {
        return Ok(None);
    };
    context.memory.held.wrote(uid.as_str(), Some(server.clone()));
    Ok(Some((server, lease)))
}

/// The host that the status names, else the provider ID. An id that cannot be read was lost: the
/// host is found otherwise.
fn known_server(seen: &Observed) -> Option<ServerId> {
    let stored = seen.object.status.server_id.as_deref().and_then(|id| id.parse().ok());
    stored.or_else(|| seen.object.provider_id.as_ref().map(|id| id.server.clone()))
}

async fn lease_of(
    context: &Context,
    turn: &Turn,
    server: &ServerId,
) -> Result<Option<Lease>, ReadError> {
    let (all, name) = (all_leases(context), key::name(server));
    let read = calls::read("the host's Lease", all.get_opt(&name)).map_ok(|l| l.map(slim));
    let known = context.memory.leases.known(server.as_str());
    let lease = context.memory.leases.get(server.as_str(), &turn.reading, read).await?;
    // Nobody deletes the Lease of a host that is there: a read behind the times is not believed.
    if lease.is_none() && known.is_some() {
        context.memory.leases.forget(server.as_str());
        let why = "it was there a moment ago, and now it is not".to_owned();
        return Err(ReadError::Malformed { what: "the host's Lease", why });
    }
    Ok(lease.map(|lease| leases::read(&lease, Some(&turn.seen.object.uid))))
}

/// Hosts that carry our name or our marker, whatever became of their Lease; but for one that a
/// living object gave up, and that was set aside because it takes no other name.
fn named_ours<'a>(seen: &Observed, candidates: &'a [Arc<Candidate>]) -> Vec<&'a Candidate> {
    let marker = seen.marker();
    let names =
        [seen.object.name.clone(), NameClass::claiming(&marker), NameClass::releasing(&marker)];
    let living = seen.object.deleting_since.is_none();
    let given_up = |candidate: &Candidate| {
        let Candidate { host, lease } = candidate;
        living && lease.quarantined && seen.release_of(host) == Release::Marked
    };
    let candidates = candidates.iter().map(|candidate| &**candidate);
    let ours = candidates.filter(|candidate| names.contains(&candidate.host.name));
    ours.filter(|candidate| !given_up(candidate)).collect()
}

async fn list(context: &Context, zone: &Zone, age: Age) -> Result<Snapshot, Unlisted> {
    let failed = |error: applecart_scaleway::Error| {
        let no_zone = error.kind == ErrorKind::NotFound && error.is_typed();
        Unlisted { why: said(&error), no_zone }
    };
    let whole = async {
        let servers = context.scaleway.list_servers(zone).await.map_err(failed)?;
        let leases = every_lease(context).await;
        let mut leases = leases.map_err(|e| Unlisted { why: chain(&e), no_zone: false })?;
        let hosts: Vec<Host> = servers.iter().map(host).collect();
        for (server, owner) in half_released(context, &hosts) {
            let holder = LeaseHolder::Other(owner);
            leases.entry(server).or_insert_with(|| Lease { holder, ..Lease::free() });
        }
        Ok::<_, Unlisted>(Snapshot::new(hosts, leases))
    };
    context.zones.get(zone, age, whole).await
}

/// LH1: hosts that objects still name, although these bear other names by now, and who. Until their
/// Leases say so, none of them is free.
fn half_released(context: &Context, hosts: &[Host]) -> Vec<(ServerId, String)> {
    let listed: BTreeMap<&ServerId, &str> =
        hosts.iter().map(|host| (&host.id, host.name.as_str())).collect();
    let mut found = vec![];
    for object in context.store.state() {
        let renamed = |server: &ServerId| {
            listed.get(server).is_some_and(|name| {
                let is_plain = matches!(NameClass::read(name, ""), NameClass::Other(_));
                is_plain && *name != object.name_any()
            })
        };
        let servers = names::servers(&object).into_iter().filter(renamed);
        found.extend(servers.map(|server| (server, names::display(&object))));
    }
    found
}

/// What all Leases of hosts say, page by page: as Kubernetes tells them, they are large.
async fn every_lease(context: &Context) -> Result<BTreeMap<ServerId, Lease>, ReadError> {
    let all = all_leases(context);
    let mut every = ListParams::default().labels(key::HOST).limit(PAGE);
    let mut leases = BTreeMap::new();
    loop {
        let page = calls::read("the hosts' Leases", all.list(&every)).await?;
        leases.extend(leases::by_server(&page.items));
        match page.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => every = every.continue_token(&token),
            None => return Ok(leases),
        }
    }
}

/// What Scaleway said, in words that are the same each time: a status that carries a request's id
/// or a time would be written anew for each of them, and each write would wake us (LH25).
pub fn said(error: &applecart_scaleway::Error) -> String {
    tracing::warn!(error = chain(error), "Scaleway");
    match error.status {
        Some(status) => format!("{}: HTTP {}", error.operation, status.as_u16()),
        None => format!("{}: {}", error.operation, error.kind.label()),
    }
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
    if let Some(read) = context.reads.of(&server).filter(|_| living) {
        turn.remembered = Some(read.at.elapsed());
        turn.login = read.login;
        turn.seen.bound = Bound::To { server, lease, host: HostRead::Seen(read.host) };
        return Ok(());
    }
    read_host(context, turn, server, lease).await;
    Ok(())
}

/// Reads the host from Scaleway, whatever is remembered of it.
pub async fn read_host(context: &Context, turn: &mut Turn, server: ServerId, lease: Lease) {
    // Before the call: what it tells is at least as new.
    turn.read_at = Some(context.clock.now());
    turn.remembered = None;
    turn.login = None;
    let at = Instant::now();
    // What cannot be read now is not told as if it could.
    context.reads.forget(&server);
    let host = match context.scaleway.server(&turn.zone, &server).await {
        Ok(read) => {
            context.zones.is_there(&server).await;
            let user = read.ssh_username.clone().unwrap_or_else(|| "m1".to_owned());
            turn.login = read.password.clone().map(|password| (user, password));
            let host = host(&read);
            context.reads.note(Read { at, host: host.clone(), login: turn.login.clone() });
            HostRead::Seen(host)
        }
        Err(error) if error.kind == ErrorKind::NotFound && error.is_typed() => HostRead::Gone,
        // A proxy says 404 as well, and knows of no host.
        Err(error) if matches!(error.kind, ErrorKind::Permission | ErrorKind::NotFound) => {
            let awaited = lease.awaits_deletion();
            absent(context, &turn.zone, &server, said(&error), awaited).await
        }
        Err(error) => HostRead::Failed(said(&error)),
    };
    turn.seen.bound = Bound::To { server, lease, host };
}

/// A deleted host answers 403, and so does a key without rights: gone means also absent from two
/// complete lists, taken at different times; lists that show none of ours are far apart (S10),
/// unless we asked for its deletion ourselves.
async fn absent(
    context: &Context,
    zone: &Zone,
    server: &ServerId,
    said: String,
    awaited: bool,
) -> HostRead {
    let limits = &context.settings.limits;
    let strange = if awaited { limits.look } else { limits.patience };
    let apart = Apart { usual: limits.look, strange };
    match list(context, zone, Age::Fresh).await {
        Err(Unlisted { why, .. }) => HostRead::Failed(why),
        Ok(snapshot) => match context.zones.look_for(server, &snapshot, apart).await {
            Absence::Listed => HostRead::Failed(said),
            Absence::Once => HostRead::Failed(format!("{said}; one list does not show it either")),
            Absence::Twice => HostRead::Gone,
        },
    }
}

/// A host as Scaleway told it.
pub fn host(server: &Server) -> Host {
    Host {
        id: server.id.clone(),
        name: server.name.clone(),
        state: match &server.status {
            ServerStatus::Ready => HostState::Ready,
            ServerStatus::Reinstalling => HostState::Reinstalling,
            ServerStatus::Rebooting => HostState::Rebooting,
            status if status.is_transient() => HostState::Changing(status.to_string()),
            status => HostState::Stuck(status.to_string()),
        },
        delivered: server.delivered,
        retiring: server.deletion_scheduled,
        server_type: server.server_type.clone(),
        os: server.os.as_ref().map(|os| (os.name.clone(), os.family.clone())),
        address: server.ip.map(|ip| ip.to_string()),
        has_password: server.password.is_some(),
        changed_at: server.updated_at.or(server.created_at),
    }
}
