//! A host's name at Scaleway is the only mark that we can put on it. Each name is in one class, and
//! each class has a next owner.

use std::fmt;

use crate::ids::{ClusterId, CrUid, ServerId};

const CLAIMING: &str = "tuist-claim-pending-";
const RELEASING: &str = "tuist-release-pending-";
const QUARANTINED: &str = "tuist-quarantine-";

/// Who wrote a marker: a cluster, for one object (or, by the sweep, for one server).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Marker {
    /// The cluster that wrote it.
    pub cluster: ClusterId,
    /// The object that it was written for.
    pub uid: CrUid,
}

impl Marker {
    fn parse(rest: &str) -> Option<Self> {
        let (cluster, uid) = rest.split_once('-')?;
        Some(Self { cluster: cluster.parse().ok()?, uid: CrUid::from_digits(uid).ok()? })
    }
}

impl fmt::Display for Marker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.cluster, self.uid.digits())
    }
}

/// What a host's name means.
///
/// Reading is total: every text is in exactly one class. Pool and claimed names are free text, so
/// [`NameClass::read`] is told the pool's prefix, and who holds a claimed name is for the caller to
/// know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NameClass {
    /// In the pool: wiped, and anybody's who asks.
    Pool,
    /// On its way from the pool to an object.
    Claiming(Marker),
    /// On its way from an object to the pool: not adoptable before its wipe was accepted.
    Releasing(Marker),
    /// A marker in an older form, a bare UUID: nobody can tell whose.
    OldMarker,
    /// Set aside for a person.
    Quarantined,
    /// Any other name: an object's, or a stranger's.
    Other(String),
}

impl NameClass {
    /// Reads a name. An empty `pool_prefix` matches nothing: never everything.
    #[must_use]
    pub fn read(name: &str, pool_prefix: &str) -> Self {
        let marker = |prefix: &str| name.strip_prefix(prefix).map(Marker::parse);
        if let Some(parsed) = marker(CLAIMING) {
            return parsed.map_or(Self::OldMarker, Self::Claiming);
        }
        if let Some(parsed) = marker(RELEASING) {
            return parsed.map_or(Self::OldMarker, Self::Releasing);
        }
        if name.starts_with(QUARANTINED) {
            return Self::Quarantined;
        }
        if !pool_prefix.is_empty() && name.starts_with(pool_prefix) {
            return Self::Pool;
        }
        Self::Other(name.to_owned())
    }

    /// The name of a host on its way to the object in `marker`.
    #[must_use]
    pub fn claiming(marker: &Marker) -> String {
        format!("{CLAIMING}{marker}")
    }

    /// The name of a host on its way from the object in `marker` to the pool.
    #[must_use]
    pub fn releasing(marker: &Marker) -> String {
        format!("{RELEASING}{marker}")
    }

    /// Whether this is anybody's claiming name, of whichever cluster or version.
    #[must_use]
    pub fn is_claiming(name: &str) -> bool {
        name.starts_with(CLAIMING)
    }

    /// The name of a host that is back in the pool.
    #[must_use]
    pub fn pool(pool_prefix: &str, server: &ServerId) -> String {
        assert!(!pool_prefix.is_empty(), "a pool name needs a prefix");
        format!("{pool_prefix}{server}")
    }

    /// The name of a host that is set aside.
    #[must_use]
    pub fn quarantined(server: &ServerId) -> String {
        format!("{QUARANTINED}{server}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marker() -> Marker {
        Marker {
            cluster: "0badcafe".parse().unwrap(),
            uid: "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap(),
        }
    }

    #[test]
    fn markers_read_back_as_they_were_written() {
        let m = marker();
        assert_eq!(
            NameClass::claiming(&m),
            "tuist-claim-pending-0badcafe-5fb0ab062ab74ef58bb89f1c9f8f1c3e"
        );
        assert_eq!(NameClass::read(&NameClass::claiming(&m), "p-"), NameClass::Claiming(m.clone()));
        assert_eq!(NameClass::read(&NameClass::releasing(&m), "p-"), NameClass::Releasing(m));
        let server = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap();
        assert_eq!(NameClass::read(&NameClass::quarantined(&server), "p-"), NameClass::Quarantined);
    }

    #[test]
    fn every_name_has_its_class() {
        for (name, class) in [
            ("tuist-pool-1", NameClass::Pool),
            (
                "tuist-claim-pending-5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
                NameClass::OldMarker, // LH13: the system before us wrote a bare UUID
            ),
            ("tuist-release-pending-", NameClass::OldMarker),
            ("tuist-quarantine-x", NameClass::Quarantined),
            ("fleet-abcde", NameClass::Other("fleet-abcde".into())),
            ("", NameClass::Other(String::new())),
        ] {
            assert_eq!(NameClass::read(name, "tuist-pool-"), class, "{name}");
        }
    }

    #[test]
    fn an_empty_prefix_makes_no_host_a_pool_host() {
        // S6: never scan with an empty prefix.
        assert_eq!(NameClass::read("anything", ""), NameClass::Other("anything".into()));
    }

    #[test]
    fn a_pool_prefix_that_covers_our_markers_does_not_turn_them_into_pool_hosts() {
        let name = NameClass::releasing(&marker());
        assert_eq!(NameClass::read(&name, "tuist-"), NameClass::Releasing(marker()));
    }

    proptest! {
        #[test]
        fn reading_is_total(name in ".{0,70}", prefix in ".{0,8}") {
            let _ = NameClass::read(&name, &prefix);
        }
    }
}
