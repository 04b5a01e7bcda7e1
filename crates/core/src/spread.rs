//! Fleet spread: a Deployment whose Pods run on Macs is rolled when the set of Ready Macs changes,
//! because Kubernetes moves no Pod to a Mac that came later. No I/O.
//!
//! # Guarantees
//! - A Deployment that is in the middle of a roll is left alone: no roll is cut short by the next.
//! - The same Macs give the same hash, by the formula of running fleets: taking over rolls nothing.

use std::collections::BTreeMap;
use std::fmt;

use sha2::{Digest, Sha256};

/// Annotation of the Pod template that names the set of Macs.
pub const FLEET_HASH: &str = "tuist.dev/fleet-hash";

/// How much of the digest is kept.
const HEX_DIGITS: usize = 16;

/// Labels of a Node by which it is a Mac of ours.
const MAC: [(&str, &str); 2] = [("kubernetes.io/os", "darwin"), ("tuist.dev/runtime", "tart")];

/// Everything that one decision may depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The Deployment, unless it does not exist.
    pub deployment: Option<Deployment>,
    /// All Nodes.
    pub nodes: Vec<Node>,
}

/// The Deployment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Deployment {
    /// The set of Macs that its template names.
    pub hash: Option<String>,
    /// Where its Pods may run.
    pub node_selector: BTreeMap<String, String>,
    /// The generation of its spec, and the one that its controller has seen.
    pub generation: (i64, i64),
    /// How many Pods it shall have.
    pub wanted: i32,
    /// Pods of the newest template.
    pub updated: i32,
    /// Pods of any template.
    pub total: i32,
    /// Pods that are available.
    pub available: i32,
    /// Pods that are not available.
    pub unavailable: i32,
}

impl Deployment {
    /// Its last roll came to its end.
    fn is_settled(&self) -> bool {
        let (wanted, seen) = self.generation;
        let complete = [self.updated, self.total, self.available].iter().all(|n| *n == self.wanted);
        seen >= wanted && complete && self.unavailable == 0
    }
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its condition `Ready` is `True`.
    pub ready: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// Why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// There is no such Deployment.
    Absent,
    /// Its template names the Macs that there are.
    Spread,
    /// A roll is on its way.
    Rolling,
    /// The set of Ready Macs changed; how many there are.
    Changed(usize),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent => f.write_str("there is no such Deployment"),
            Self::Spread => f.write_str("its Pods were placed among the Macs that are Ready"),
            Self::Rolling => f.write_str("waiting for its roll to end"),
            Self::Changed(macs) => write!(f, "other Macs are Ready now, {macs} in all"),
        }
    }
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The set that its template shall name, if that is another one.
    pub roll: Option<String>,
    /// Why.
    pub reason: Reason,
}

/// Decides.
#[must_use]
pub fn decide(seen: &Observed) -> Decision {
    let rest = |reason| Decision { roll: None, reason };
    let Some(deployment) = &seen.deployment else { return rest(Reason::Absent) };
    let macs = macs(seen, deployment);
    let hash = hash(&macs);
    if deployment.hash.as_ref() == Some(&hash) {
        return rest(Reason::Spread);
    }
    if !deployment.is_settled() {
        return rest(Reason::Rolling);
    }
    Decision { roll: Some(hash), reason: Reason::Changed(macs.len()) }
}

/// The Ready Macs that the Deployment's Pods may run on, in order. A cordoned one counts: it is
/// there again in a moment.
fn macs<'a>(seen: &'a Observed, deployment: &Deployment) -> Vec<&'a str> {
    let has = |node: &Node, key: &str, value: &str| {
        node.labels.get(key).is_some_and(|found| found == value)
    };
    let fits = |node: &&Node| {
        node.ready
            && !node.deleting
            && MAC.iter().all(|(key, value)| has(node, key, value))
            && deployment.node_selector.iter().all(|(key, value)| has(node, key, value))
    };
    let mut names: Vec<&str> =
        seen.nodes.iter().filter(fits).map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn hash(names: &[&str]) -> String {
    let digest = Sha256::digest(names.join(","));
    let mut text = format!("{digest:x}");
    text.truncate(HEX_DIGITS);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> Node {
        let labels = MAC.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        Node { name: name.into(), labels, ready: true, deleting: false }
    }

    fn settled() -> Deployment {
        let generation = (3, 3);
        let (wanted, updated, total, available, unavailable) = (2, 2, 2, 2, 0);
        Deployment {
            generation,
            wanted,
            updated,
            total,
            available,
            unavailable,
            ..Deployment::default()
        }
    }

    fn seen(deployment: Deployment, nodes: Vec<Node>) -> Observed {
        Observed { deployment: Some(deployment), nodes }
    }

    #[test]
    fn the_hash_is_the_one_that_running_fleets_carry() {
        assert_eq!(hash(&[]), "e3b0c44298fc1c14");
        // printf 'mac-a,mac-b' | sha256sum
        assert_eq!(hash(&["mac-a", "mac-b"]), "83859c1441536766");
    }

    #[test]
    fn another_set_of_ready_macs_rolls_the_deployment_once() {
        // P3
        let nodes = || vec![node("mac-b"), node("mac-a")];
        let first = decide(&seen(settled(), nodes()));
        assert_eq!(first.reason, Reason::Changed(2));
        let rolled = Deployment { hash: first.roll.clone(), ..settled() };
        assert_eq!(decide(&seen(rolled.clone(), nodes())).reason, Reason::Spread);
        let reversed = nodes().into_iter().rev().collect();
        assert_eq!(decide(&seen(rolled.clone(), reversed)).roll, None, "their order is no matter");
        let fewer = decide(&seen(rolled, vec![node("mac-a")]));
        assert!(fewer.roll.is_some() && fewer.roll != first.roll);
    }

    #[test]
    fn what_is_no_ready_mac_of_the_deployments_does_not_count() {
        // P3, P18
        let rolled = decide(&seen(settled(), vec![node("mac-a")])).roll;
        let selector: BTreeMap<_, _> = [("tuist.dev/fleet".to_owned(), "ci".to_owned())].into();
        let mut ours = node("mac-a");
        ours.labels.extend(selector.clone());
        let deployment = Deployment { hash: rolled, node_selector: selector, ..settled() };
        let linux = Node { labels: BTreeMap::new(), ..node("linux") };
        for other in [
            Node { ready: false, ..node("mac-b") },
            Node { deleting: true, ..node("mac-b") },
            node("of-another-fleet"),
            linux,
        ] {
            let told = decide(&seen(deployment.clone(), vec![ours.clone(), other.clone()]));
            assert_eq!(told.reason, Reason::Spread, "{other:?}");
        }
    }

    #[test]
    fn a_roll_that_is_on_its_way_is_never_cut_short() {
        // P4
        for busy in [
            Deployment { generation: (4, 3), ..settled() },
            Deployment { updated: 1, ..settled() },
            Deployment { total: 3, ..settled() },
            Deployment { available: 1, ..settled() },
            Deployment { unavailable: 1, ..settled() },
        ] {
            let told = decide(&seen(busy.clone(), vec![node("mac-a")]));
            assert_eq!((told.roll, told.reason), (None, Reason::Rolling), "{busy:?}");
        }
        assert_eq!(decide(&Observed { deployment: None, nodes: vec![] }).reason, Reason::Absent);
        for reason in [Reason::Absent, Reason::Spread, Reason::Rolling, Reason::Changed(2)] {
            assert!(!reason.to_string().is_empty());
        }
    }
}
