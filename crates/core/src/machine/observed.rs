//! What was read this turn, parsed once. The shell fills it in; nothing here reads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::ids::{ClusterId, CrUid, ProviderId, ServerId, Zone};
use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use applecart_api::name_class::{Marker, NameClass};
use applecart_api::os_pin::OsPin;
use jiff::Timestamp;

use super::action::{Exactly, Identity};
use super::upkeep::Upkeep;
use crate::Trouble;
use crate::fleet_key::FleetKey;

/// Everything that one decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The object itself, read this turn.
    pub object: Object,
    /// This cluster's mark in names.
    pub cluster: ClusterId,
    /// The host that the object has, or the hosts that it may take.
    pub bound: Bound,
    /// What the host can be wiped to; read only when it is about to be.
    pub images: Images,
    /// What the host is to be bootstrapped with.
    pub credentials: Credentials,
    /// The parts of the Node's identity that are there.
    pub identity: BTreeMap<Identity, Exactly>,
    /// Who has the object's name; read only when that is about to matter.
    pub name: Name,
    /// The Node of the object's name, if it is registered.
    pub node: Option<Node>,
    /// Pods bound to that Node.
    pub guests: Vec<Guest>,
    /// The Mac's own runner at GitHub, read only before it is emptied.
    pub builder: Builder,
    /// Its Mac may be emptied for an update: no other of its fleet is, or is about to be.
    pub may_drain: bool,
    /// The bootstrap that runs beside this loop.
    pub bootstrap: Bootstrap,
    /// The same steps, on a Mac that was bootstrapped.
    pub upkeep: Upkeep,
    /// What this process knows of the reboot that so many failures call for.
    pub reboot: Reboot,
    /// The generation of the spec that the bootstrap or the upkeep is for, if there is one.
    pub run_of: Option<i64>,
    /// The last effect that failed, if that was the last thing that happened.
    pub trouble: Option<Trouble>,
    /// Somebody else just replaced the status that we told: ours is not told again before this.
    pub contested_until: Option<Timestamp>,
}

/// The object, and what its owners allow.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "facts, each seen on its own")]
pub struct Object {
    /// Name: of the object, the Machine, the Node, and the claimed host.
    pub name: String,
    /// Never used twice, unlike the name.
    pub uid: CrUid,
    /// When it was created.
    pub created_at: Option<Timestamp>,
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Our finalizer is on it.
    pub finalizer: bool,
    /// Since when it is being deleted.
    pub deleting_since: Option<Timestamp>,
    /// `clusterctl move` is deleting it: its host lives on elsewhere.
    pub deleted_for_move: bool,
    /// A Machine owns it.
    pub owned_by_machine: bool,
    /// Its Machine was told that it is provisioned, and so is bound to its Node for good.
    pub machine_is_bound: bool,
    /// `clusterctl move` is kept waiting.
    pub move_is_blocked: bool,
    /// A person wants its host deleted with it.
    pub terminate: bool,
    /// A person wants its Mac to be brought up to date, whoever made it a Node.
    pub update: bool,
    /// It asks for a host of its own, not one of the pool.
    pub auto_order: bool,
    /// The last order of a host for it.
    pub ordered: Option<Ordered>,
    /// Why nothing may be touched, if so.
    pub paused: Option<Pause>,
    /// What its Cluster and Machine have not done yet, in words; empty if they have.
    pub waiting_for: Option<String>,
    /// How long a running job may hold up a deletion; `None` is for ever.
    pub drain_timeout: Option<std::time::Duration>,
    /// What it says of itself in its host's Lease.
    pub note: OwnerNote,
    /// Pool that it adopts from and returns to; `None` if neither spec nor flag names one.
    pub pool_prefix: Option<String>,
    /// Zone to look in.
    pub zone: Zone,
    /// Server type to match.
    pub server_type: String,
    /// OS to match.
    pub os: OsPin,
    /// Provider ID that the spec carries.
    pub provider_id: Option<ProviderId>,
    /// Status as stored.
    pub status: ScalewayAppleSiliconMachineStatus,
}

/// An order of a host, noted on the object before it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ordered {
    /// When it was noted.
    pub at: Timestamp,
    /// It was noted by this process a moment ago, and certainly not sent yet.
    pub unsent: bool,
}

/// Why nothing may be touched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// `Cluster.spec.paused`.
    Cluster,
    /// The annotation on the object itself.
    Annotation,
}

/// Which host the object has.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant, reason = "one value a turn")]
pub enum Bound {
    /// None yet: these are the hosts to choose from.
    Unbound(Candidates),
    /// This one, by Lease, status, provider ID or name.
    To {
        /// The host's id.
        server: ServerId,
        /// Its Lease.
        lease: Lease,
        /// The host, read this turn.
        host: HostRead,
    },
    /// All of these carry its name, and nothing says which one is its own (P1).
    Several(Vec<ServerId>),
    /// Nobody looked at hosts, because nothing outside may be touched or needs to be. The Lease
    /// that it holds, if that was looked for and there is one.
    NotRead(Option<(ServerId, Lease)>),
}

/// The zone's hosts, as one list told them.
#[derive(Clone, Debug)]
pub enum Candidates {
    /// Hosts whose name makes them ours or the pool's, in order of id.
    Listed(Vec<Arc<Candidate>>),
    /// The list could not be had.
    Failed(String),
    /// Scaleway knows no such zone: nothing of ours can be there.
    NoZone(String),
}

/// One host of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The host as listed.
    pub host: Host,
    /// Its Lease.
    pub lease: Lease,
}

/// A host's Lease: the one atomic thing there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// Who holds the host.
    pub holder: LeaseHolder,
    /// Version to write against; `None` if the Lease does not exist yet.
    pub version: Option<String>,
    /// When the host was seen under our claiming name.
    pub marked_at: Option<Timestamp>,
    /// When a wipe was last seen to run, since the last owner.
    pub wiped_at: Option<Timestamp>,
    /// The host had an owner after its last accepted wipe.
    pub unwiped: bool,
    /// When the host was seen under its holder's releasing name.
    pub releasing_at: Option<Timestamp>,
    /// When its deletion was first asked for.
    pub delete_requested_at: Option<Timestamp>,
    /// Its holder is on its way to another cluster, or may be.
    pub moved: bool,
    /// It is set aside, although its name does not say so.
    pub quarantined: bool,
    /// How many owners in a row gave it up because its bootstrap failed.
    pub owners_failed: u32,
    /// What the last owner said of itself.
    pub note: OwnerNote,
}

/// What an owner says of itself in its host's Lease, for whoever has to deal with the host once it
/// is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerNote {
    /// Which object, as `namespace/name/uid`; `None` in a Lease that is older than these notes.
    pub owner: Option<String>,
    /// The pool that its spec names. What a flag says is not noted: it may say otherwise later.
    pub pool: Option<String>,
    /// The Mac is a builder: its jobs are not in Kubernetes.
    pub builder: bool,
}

impl OwnerNote {
    /// The owner's UID.
    #[must_use]
    pub fn uid(&self) -> Option<&str> {
        self.owner.as_deref()?.rsplit('/').next()
    }

    /// The owner's name: that of its host, too.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.owner.as_deref()?.rsplit('/').nth(1)
    }
}

impl Lease {
    /// The Lease of a host that nobody ever held.
    #[must_use]
    pub fn free() -> Self {
        Self {
            holder: LeaseHolder::Nobody,
            version: None,
            marked_at: None,
            wiped_at: None,
            unwiped: false,
            releasing_at: None,
            delete_requested_at: None,
            moved: false,
            quarantined: false,
            owners_failed: 0,
            note: OwnerNote::default(),
        }
    }

    /// A wipe was seen to run, and nobody had the host since.
    #[must_use]
    pub fn is_wiped(&self) -> bool {
        self.wiped_at.is_some() && !self.unwiped
    }

    /// Its deletion was asked for, and nobody wiped it since for another owner.
    #[must_use]
    pub fn awaits_deletion(&self) -> bool {
        let wiped_since = |asked: Timestamp| self.wiped_at.is_some_and(|wiped| asked < wiped);
        self.delete_requested_at.is_some_and(|asked| !wiped_since(asked))
    }
}

/// Who holds a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaseHolder {
    /// Nobody.
    Nobody,
    /// This object.
    Us,
    /// Another object, named for people.
    Other(String),
}

/// What a read of the host said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostRead {
    /// It is there.
    Seen(Host),
    /// Scaleway does not know it any more.
    Gone,
    /// It could not be read.
    Failed(String),
}

/// A host at Scaleway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its id.
    pub id: ServerId,
    /// Its name.
    pub name: String,
    /// What it is doing.
    pub state: HostState,
    /// Delivered to us.
    pub delivered: bool,
    /// Scheduled for deletion.
    pub retiring: bool,
    /// Server type.
    pub server_type: String,
    /// OS name and family.
    pub os: Option<(String, String)>,
    /// Where it answers.
    pub address: Option<String>,
    /// The read carried a usable password.
    pub has_password: bool,
    /// When Scaleway last changed anything of it; a rename does.
    pub changed_at: Option<Timestamp>,
}

impl Host {
    /// What its name means to an object of this pool.
    #[must_use]
    pub fn class(&self, pool_prefix: Option<&str>) -> NameClass {
        NameClass::read(&self.name, pool_prefix.unwrap_or_default())
    }
}

/// What a host is doing, as far as we care.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostState {
    /// Up.
    Ready,
    /// Being wiped.
    Reinstalling,
    /// In a power cycle.
    Rebooting,
    /// Between two states; ask again later.
    Changing(String),
    /// Broken, locked or unheard of: only a person helps.
    Stuck(String),
}

/// The images that Scaleway offers for the host's type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// Nobody looked.
    NotRead,
    /// These.
    Listed(Vec<Image>),
    /// The list could not be had.
    Failed(String),
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Scaleway's id of it.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its family.
    pub family: String,
    /// Its version.
    pub version: String,
    /// Not released yet.
    pub beta: bool,
}

/// What a bootstrap needs besides the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    /// The fleet's SSH key, stored and registered.
    pub fleet_key: FleetKey,
    /// There is a Secret for the host's password and key, whatever it holds.
    pub stored: Option<Exactly>,
    /// It holds a password that can be used.
    pub password: bool,
    /// It is another one than the last bootstrap of this process used.
    pub renewed: bool,
    /// The token of the Node's identity is filled in.
    pub token: bool,
}

/// Who has a name. The Node, the agent's account and the Secrets of a Mac are called after its
/// Machine, so of all Machines of one name, whatever their namespaces, one has a host at a time:
/// the one that the agent's account is signed by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// Nobody looked.
    NotRead,
    /// Nobody who lives. The version of an account that is there all the same.
    Free(Option<String>),
    /// This object.
    Ours,
    /// Another object that lives, named for people.
    Other(String),
}

/// A registered Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its UID, for a delete that means this one.
    pub uid: String,
    /// Provider ID that it carries.
    pub provider_id: Option<String>,
    /// It takes no new Pods.
    pub cordoned: bool,
    /// Since when we keep it cordoned, so that an update can come.
    pub draining: Option<Timestamp>,
    /// When that was given up last.
    pub drained: Option<Timestamp>,
    /// Its agent says that it is well.
    pub ready: bool,
    /// Since when its agent has not said so.
    pub silent_since: Option<Timestamp>,
}

/// A Pod on the Mac.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "facts, each seen on its own")]
pub struct Guest {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// UID and version that a delete must still meet.
    pub uid: String,
    /// See `uid`.
    pub version: String,
    /// A pool's runner: another takes its place.
    pub runner: bool,
    /// A job claimed it, and it has not ended.
    pub busy: bool,
    /// Being deleted.
    pub deleting: bool,
    /// Being deleted without grace: only finalizers keep it.
    pub forced: bool,
    /// The agent's finalizer is on it.
    pub agent_finalizer: bool,
}

/// The bootstrap that runs beside the loop, in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Bootstrap {
    /// None runs.
    None,
    /// One runs.
    Running {
        /// Step name, number from 1, and count; `None` before the first.
        step: Option<(String, usize, usize)>,
        /// When that step began.
        since: Timestamp,
    },
    /// It ended well.
    Succeeded {
        /// Fingerprint of what it applied.
        stamp: String,
        /// What counts from the next boot on, if anything.
        awaits_boot: Option<String>,
        /// What there was to do, for people.
        did: String,
    },
    /// All that makes the host a Node is done; something beside it failed, and said this.
    Incomplete(String),
    /// Something that makes the host a Node waits until no VM runs there; what.
    Postponed(String),
    /// It failed, and said this.
    Failed(String),
    /// macOS refused the password, and said this: the same one is not tried a third time.
    PasswordRefused(String),
}

/// A reboot that was asked for, after as many failures as there are now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reboot {
    /// Nobody asked, or Scaleway refused it.
    #[default]
    NotGranted,
    /// It was asked for at this time, and nobody heard what came of that.
    Unanswered(Timestamp),
    /// Scaleway granted it.
    Granted,
}

/// Where a host that we hold is on its way back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Release {
    /// Under our own name, claimed or claiming.
    NotBegun,
    /// Under our releasing name.
    Marked,
    /// Under a pool name.
    InPool,
    /// Set aside for a person.
    Quarantined,
    /// Under a name that is not ours.
    NotOurs,
}

/// How far the clocks of Scaleway and Kubernetes may be apart.
const CLOCKS_APART: Duration = Duration::from_mins(1);

impl Observed {
    /// Why a host that has our name, and that nothing else says is ours, is not: neither a claim
    /// nor a take-over comes to such a one (LH14).
    #[must_use]
    pub fn stranger(&self, host: &Host, lease: &Lease) -> Option<String> {
        let object = &self.object;
        let known = object.status.server_id.is_some() || object.provider_id.is_some();
        if known || host.name != object.name {
            return None;
        }
        let (id, is, wanted) = (&host.id, &host.server_type, &object.server_type);
        let older = match (host.changed_at, object.created_at) {
            (Some(changed), Some(created)) => changed + CLOCKS_APART < created,
            (None, _) | (_, None) => false,
        };
        let uid = lease.note.uid().filter(|uid| lease.unwiped && *uid != object.uid.as_str());
        if is != wanted {
            Some(format!("host {id} bears it, and is of type {is}, not {wanted}"))
        } else if let (Some(_), Some(owner)) = (uid, &lease.note.owner) {
            Some(format!("host {id} bears it, and was not wiped since {owner} had it"))
        } else if older {
            Some(format!("host {id} bears it, and did so before this Machine was created"))
        } else {
            None
        }
    }

    /// LH1: the system before us gave a host its pool name first, and asked for its wipe then. Of
    /// one that the object still names, and that no Lease keeps from being adopted, nobody knows
    /// whether it came to that.
    #[must_use]
    pub fn is_half_released(&self, host: &Host, lease: &Lease) -> bool {
        let known = self.object.status.server_id.is_some() || self.object.provider_id.is_some();
        known && lease.version.is_none() && self.release_of(host) == Release::InPool
    }

    /// The marker of this object.
    #[must_use]
    pub fn marker(&self) -> Marker {
        Marker { cluster: self.cluster.clone(), uid: self.object.uid.clone() }
    }

    /// Where `host` is on its way back to the pool.
    #[must_use]
    pub fn release_of(&self, host: &Host) -> Release {
        match host.class(self.object.pool_prefix.as_deref()) {
            NameClass::Releasing(marker) if marker == self.marker() => Release::Marked,
            NameClass::Claiming(marker) if marker == self.marker() => Release::NotBegun,
            NameClass::Other(name) if name == self.object.name => Release::NotBegun,
            NameClass::Pool => Release::InPool,
            NameClass::Quarantined => Release::Quarantined,
            NameClass::Claiming(_)
            | NameClass::Releasing(_)
            | NameClass::OldMarker
            | NameClass::Other(_) => Release::NotOurs,
        }
    }

    /// The Machine was told of this host: it is bound to it for good.
    #[must_use]
    pub fn is_provisioned(&self) -> bool {
        let told = self.object.status.initialization.and_then(|init| init.provisioned);
        told == Some(true) || self.object.machine_is_bound
    }

    /// How often in a row the bootstrap of this host failed.
    #[must_use]
    pub fn failures(&self) -> u32 {
        u32::try_from(self.object.status.bootstrap_attempts.unwrap_or(0)).unwrap_or(0)
    }
}

/// A Mac's own runner at GitHub, whose jobs run on the Mac itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Builder {
    /// None is registered, or nobody asked.
    #[default]
    None,
    /// It waits for a job.
    Idle,
    /// It has a job.
    Busy,
    /// GitHub does not tell.
    Unknown {
        /// When it told last, it waited for a job, or there was none.
        was_idle: bool,
    },
}
