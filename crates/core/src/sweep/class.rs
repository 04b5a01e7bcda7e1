//! Which class a host is in. Total: every host is in exactly one (C1).

use std::collections::BTreeSet;

use applecart_api::ids::ClusterId;
use applecart_api::name_class::NameClass;

use super::observed::{HostLease, Owners, Policy};
use crate::machine::Host;

/// What a host is to us. Each class has somebody who moves its hosts on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Free: adoption takes it.
    Pool,
    /// On its way to an object of this cluster.
    Claiming,
    /// An object's.
    Claimed,
    /// On its way back, wiped or to be wiped.
    Releasing,
    /// Nobody's, under a name that objects of this cluster have.
    Orphan,
    /// Scaleway deletes it.
    Retiring,
    /// Set aside for a person.
    Quarantined,
    /// Nobody's here.
    Foreign,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 8] = [
        Self::Pool,
        Self::Claiming,
        Self::Claimed,
        Self::Releasing,
        Self::Orphan,
        Self::Retiring,
        Self::Quarantined,
        Self::Foreign,
    ];

    /// Its name in metrics and logs.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Pool => "pool",
            Self::Claiming => "claiming",
            Self::Claimed => "claimed",
            Self::Releasing => "releasing",
            Self::Orphan => "orphan",
            Self::Retiring => "retiring",
            Self::Quarantined => "quarantined",
            Self::Foreign => "foreign",
        }
    }
}

/// By what names are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    cluster: ClusterId,
    pools: BTreeSet<String>,
    claim_prefix: Option<String>,
}

impl Names {
    /// Pools are those of the policy, of every live object, and of these Leases: the pool of
    /// objects that are all gone is one all the same.
    #[must_use]
    pub fn new<'a>(
        cluster: &ClusterId,
        policy: &Policy,
        owners: &Owners,
        leases: impl IntoIterator<Item = &'a HostLease>,
    ) -> Self {
        let named = owners.all().filter_map(|owner| owner.pool_prefix.clone());
        let noted = leases.into_iter().filter_map(|lease| lease.lease.note.pool.clone());
        let named = named.chain(noted);
        // S6: an empty prefix would match every host there is.
        let given = |prefix: &String| !prefix.is_empty();
        Self {
            cluster: cluster.clone(),
            pools: named.chain(policy.pool_prefix.clone()).filter(given).collect(),
            claim_prefix: policy.claim_prefix.clone().filter(given),
        }
    }

    /// This cluster's mark in names.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    fn read(&self, name: &str) -> NameClass {
        let of = |prefix: &String| NameClass::read(name, prefix);
        let pool = self.pools.iter().map(of).find(|class| *class == NameClass::Pool);
        pool.unwrap_or_else(|| NameClass::read(name, ""))
    }

    pub(super) fn is_pool(&self, name: &str) -> bool {
        self.read(name) == NameClass::Pool
    }

    /// Whether a host of this name that no object owns is a stray, as the system before us counted
    /// them: all but those of the pool, and those under anybody's claiming name.
    pub(super) fn is_stray(&self, name: &str) -> bool {
        !self.is_pool(name) && !NameClass::is_claiming(name)
    }

    fn is_claim(&self, name: &str) -> bool {
        self.claim_prefix.as_ref().is_some_and(|prefix| name.starts_with(prefix))
    }

    /// Whether an operator allows that an orphan of this name is returned.
    pub(super) fn may_return(&self, name: &str) -> bool {
        match NameClass::read(name, "") {
            NameClass::OldMarker => self.claim_prefix.is_some(),
            NameClass::Other(name) => self.is_claim(&name),
            NameClass::Pool
            | NameClass::Claiming(_)
            | NameClass::Releasing(_)
            | NameClass::Quarantined => false,
        }
    }
}

/// Whether a host still bears the name of its last owner, and its disk.
fn is_left(name: &str, lease: Option<&HostLease>) -> bool {
    lease.is_some_and(|lease| lease.lease.unwiped && lease.lease.note.name() == Some(name))
}

/// The class of a host; `owned` if a live object owns it by name, id or marker.
#[must_use]
pub fn classify(host: &Host, owned: bool, lease: Option<&HostLease>, names: &Names) -> Class {
    if host.retiring {
        return Class::Retiring;
    }
    if !owned && lease.is_some_and(|lease| lease.quarantined) {
        return Class::Quarantined;
    }
    match names.read(&host.name) {
        NameClass::Pool => Class::Pool,
        NameClass::Claiming(marker) if marker.cluster == names.cluster => Class::Claiming,
        NameClass::Releasing(marker) if marker.cluster == names.cluster => Class::Releasing,
        NameClass::Quarantined => Class::Quarantined,
        NameClass::OldMarker | NameClass::Other(_) if owned => Class::Claimed,
        NameClass::OldMarker => Class::Orphan,
        NameClass::Other(name) if names.is_claim(&name) || is_left(&name, lease) => Class::Orphan,
        NameClass::Claiming(_) | NameClass::Releasing(_) | NameClass::Other(_) => Class::Foreign,
    }
}
