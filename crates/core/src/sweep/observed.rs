//! What was read, parsed once. The shell fills it in; nothing here reads.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::ids::{ClusterId, CrUid, ServerId, Zone};
use applecart_api::name_class::NameClass;
use jiff::Timestamp;

use super::class::{Class, Names, classify};
use super::leftovers::Belongings;
use crate::machine::{Guest, Host, HostRead, Images, Lease, LeaseHolder, Node};

/// What an operator allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// How long two sightings of a host must be apart.
    pub interval: Duration,
    /// Pool that hosts go back to whose Lease names none.
    pub pool_prefix: Option<String>,
    /// Names under which orphans may be returned; without one they are only reported.
    pub claim_prefix: Option<String>,
    /// Wipes that one cycle may begin.
    pub max_per_cycle: usize,
    /// The share of orphans, in percent of orphans and live objects, above which none is returned.
    pub max_share_percent: u8,
    /// Owners in a row that could not use a host, after which it is set aside; 0 never does.
    pub quarantine_after: u32,
    /// How long a host may be asked in vain to be wiped before it is set aside.
    pub patience: Duration,
}

impl Policy {
    /// So often a wipe is asked for before that was in vain.
    pub const ASKS: u32 = 6;

    /// How long one ask may take to show, and idle Pods to go.
    pub(super) fn pause(&self) -> Duration {
        self.patience / Self::ASKS
    }
}

/// Everything there is, at one time.
#[derive(Clone, Debug)]
pub struct Inventory {
    /// This cluster's mark in names.
    pub cluster: ClusterId,
    /// The hosts of each zone.
    pub zones: BTreeMap<Zone, ZoneRead>,
    /// The Leases of hosts, read before the objects that may hold them.
    pub leases: BTreeMap<ServerId, HostLease>,
    /// What else there is in Kubernetes, by the name of the object that it belongs to.
    pub belongings: BTreeMap<String, Belongings>,
    /// All objects that may own a host, read last.
    pub owners: Owners,
}

impl Inventory {
    /// By what names are read: the pools of the policy, of all live objects and of all Leases.
    #[must_use]
    pub fn names(&self, policy: &Policy) -> Names {
        Names::new(&self.cluster, policy, &self.owners, self.leases.values())
    }
}

/// The hosts of a zone.
#[derive(Clone, Debug)]
pub enum ZoneRead {
    /// All of them.
    Listed(Vec<Listed>),
    /// They could not be listed, and nothing follows from that.
    Failed(String),
}

impl ZoneRead {
    /// Its hosts; none if they could not be listed.
    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        let listed = match self {
            Self::Listed(hosts) => hosts.as_slice(),
            Self::Failed(_) => &[],
        };
        listed.iter().map(|listed| &listed.host)
    }
}

/// One host of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The host.
    pub host: Host,
    /// When Scaleway last changed anything of it.
    pub changed_at: Option<Timestamp>,
}

/// A host's Lease, from the point of view of the sweep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLease {
    /// The Lease; [`LeaseHolder::Us`] is the sweep.
    pub lease: Lease,
    /// Where the host stands, if the Lease says so.
    pub zone: Option<Zone>,
    /// Its object was moved to another cluster, and the host with it.
    pub moved: bool,
    /// It is set aside, although its name does not say so.
    pub quarantined: bool,
    /// When it was last taken.
    pub taken_at: Option<Timestamp>,
    /// The wipe that the sweep asked for, if nobody has seen it run yet.
    pub asked: Option<Asked>,
}

/// How often a wipe was asked for in vain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How often.
    pub times: u32,
    /// When it last was.
    pub at: Timestamp,
}

impl HostLease {
    /// The Lease of a host that nobody ever held.
    #[must_use]
    pub fn free() -> Self {
        Self {
            lease: Lease::free(),
            zone: None,
            moved: false,
            quarantined: false,
            taken_at: None,
            asked: None,
        }
    }

    /// The holder, unless it is nobody or the sweep.
    #[must_use]
    pub fn holder(&self) -> Option<&str> {
        match &self.lease.holder {
            LeaseHolder::Other(holder) => Some(holder),
            LeaseHolder::Nobody | LeaseHolder::Us => None,
        }
    }
}

/// An object that may own a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Its namespace.
    pub namespace: String,
    /// Its name: the name of its claimed host, too.
    pub name: String,
    /// Its UID, in markers and in Leases.
    pub uid: String,
    /// The hosts that its status and its spec name.
    pub servers: BTreeSet<ServerId>,
    /// The pool that it takes from and returns to, if it names one.
    pub pool_prefix: Option<String>,
}

impl Owner {
    /// How people call it.
    #[must_use]
    pub fn display(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

/// All objects that may own a host, in all namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    all: Vec<Owner>,
    by_name: BTreeMap<String, Vec<usize>>,
    by_server: BTreeMap<ServerId, Vec<usize>>,
    by_uid: BTreeMap<String, usize>,
}

impl Owners {
    /// These and no others.
    #[must_use]
    pub fn new(all: Vec<Owner>) -> Self {
        let mut owners = Self { all, ..Self::default() };
        for (index, owner) in owners.all.iter().enumerate() {
            owners.by_name.entry(owner.name.clone()).or_default().push(index);
            owners.by_uid.insert(owner.uid.clone(), index);
            for server in &owner.servers {
                owners.by_server.entry(server.clone()).or_default().push(index);
            }
        }
        owners
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Each of them.
    pub fn all(&self) -> impl Iterator<Item = &Owner> {
        self.all.iter()
    }

    /// All that name the host in status or spec.
    pub fn by_server(&self, server: &ServerId) -> impl Iterator<Item = &Owner> {
        self.by_server.get(server).into_iter().flatten().map(|index| &self.all[*index])
    }

    /// All of this name.
    pub fn by_name(&self, name: &str) -> impl Iterator<Item = &Owner> {
        self.by_name.get(name).into_iter().flatten().map(|index| &self.all[*index])
    }

    /// Whether an object with this UID lives.
    #[must_use]
    pub fn lives(&self, uid: &str) -> bool {
        self.by_uid.contains_key(uid)
    }

    /// Whether the object that holds a Lease lives: `namespace/name/uid`.
    #[must_use]
    pub fn holder_lives(&self, holder: &str) -> bool {
        self.lives(holder.rsplit('/').next().unwrap_or(holder))
    }

    /// Whether the holder of a host's Lease lives and has another host: it names one or more in
    /// status or spec, and not this one, which carries neither its name nor its marker. One that
    /// names none may be about to claim this very host.
    #[must_use]
    pub fn is_spare(&self, holder: &str, server: &ServerId, host: Option<&Host>) -> bool {
        let uid = holder.rsplit('/').next().unwrap_or(holder);
        let Some(owner) = self.by_uid.get(uid).map(|index| &self.all[*index]) else { return false };
        let marked = |host: &Host| match NameClass::read(&host.name, "") {
            NameClass::Claiming(marker) | NameClass::Releasing(marker) => {
                marker.uid.as_str() == owner.uid
            }
            NameClass::Other(name) => name == owner.name,
            NameClass::Pool | NameClass::OldMarker | NameClass::Quarantined => false,
        };
        let elsewhere = !owner.servers.is_empty() && !owner.servers.contains(server);
        elsewhere && !host.is_some_and(marked)
    }

    /// Whether a host was left by an object that is gone: nobody wiped it, or took it, since. A
    /// namesake that has no host of its own does not have this one (LH14).
    fn is_left_to(&self, owner: &Owner, lease: Option<&HostLease>) -> bool {
        let Some(lease) = lease.filter(|lease| lease.holder().is_none()) else { return false };
        let gone = lease.lease.note.uid().is_some_and(|uid| !self.lives(uid));
        lease.lease.unwiped && gone && owner.servers.is_empty()
    }

    /// The object that owns the host: by its name, by its id, or by the marker that it carries.
    #[must_use]
    pub fn of(&self, host: &Host, lease: Option<&HostLease>) -> Option<&Owner> {
        let of_uid = |uid: &CrUid| self.by_uid.get(uid.as_str()).map(|index| &self.all[*index]);
        // Whatever the pools are: neither a marker nor an object's name depends on them.
        let by_marker = match NameClass::read(&host.name, "") {
            // Whoever has another host has no use for this one: its rename landed late (V2).
            NameClass::Claiming(marker) | NameClass::Releasing(marker) => {
                let has_no_other =
                    |owner: &&Owner| owner.servers.is_empty() || owner.servers.contains(&host.id);
                of_uid(&marker.uid).filter(has_no_other)
            }
            NameClass::Pool
            | NameClass::OldMarker
            | NameClass::Quarantined
            | NameClass::Other(_) => None,
        };
        let by_name = || self.by_name(&host.name).find(|owner| !self.is_left_to(owner, lease));
        by_marker.or_else(by_name).or_else(|| self.by_server(&host.id).next())
    }
}

/// A job that runs on a host, as far as Kubernetes knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its Pod, as `namespace/name`.
    pub pod: String,
    /// Since when the host's agent has not said that it is well.
    pub silent_since: Option<Timestamp>,
}

/// A host's Node, and what runs there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mac {
    /// The Node's name.
    pub name: String,
    /// The Node.
    pub node: Node,
    /// The Pods that are bound to it.
    pub guests: Vec<Guest>,
}

/// One host, read afresh for one decision.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its id.
    pub server: ServerId,
    /// The host.
    pub host: HostRead,
    /// Its Lease.
    pub lease: HostLease,
    /// All objects that may own a host.
    pub owners: Owners,
    /// By what names are read.
    pub names: Names,
    /// A job on the Node of the host's name.
    pub job: Option<Job>,
    /// The Node that says it is this host; read only when that is about to be wiped.
    pub mac: Option<Mac>,
    /// The turn right before this one noted that the host is asked to be wiped.
    pub asking: bool,
    /// What the host can be wiped to; read only when it is about to be.
    pub images: Images,
}

impl Seen {
    /// Whether a host of this name is in a pool.
    #[must_use]
    pub fn is_pool_name(&self, name: &str) -> bool {
        self.names.is_pool(name)
    }

    /// The pool that the host goes back to: its last owner's, else the one of the policy.
    #[must_use]
    pub fn pool_prefix<'a>(&'a self, policy: &'a Policy) -> Option<&'a str> {
        // S6: an empty prefix would be every host's.
        let given = |prefix: &&str| !prefix.is_empty();
        let own = self.lease.lease.note.pool.as_deref().filter(given);
        own.or_else(|| policy.pool_prefix.as_deref().filter(given))
    }

    /// The class of a host of this name.
    #[must_use]
    pub fn class(&self, host: &Host) -> Class {
        classify(host, self.owner_of(host).is_some(), Some(&self.lease), &self.names)
    }

    /// The object that owns it.
    #[must_use]
    pub fn owner_of(&self, host: &Host) -> Option<&Owner> {
        self.owners.of(host, Some(&self.lease))
    }
}
