//! What a Pod's VM is called at Tart. No I/O.

use std::fmt;

use sha2::{Digest, Sha256};

use super::observed::PodId;

/// Tart and macOS take longer names, but a VM's name is also used as a host name label.
const LONGEST: usize = 63;

/// The name of a VM on one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VmName(String);

impl VmName {
    /// A name as Tart lists it, anybody's.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self(name.into())
    }

    /// The name of a new Pod's VM: it ends in the Pod's UID, so that no two Pods ever share a disk,
    /// not even two of the same name (LH11).
    #[must_use]
    pub fn of(pod: &PodId) -> Self {
        let uid = if pod.uid.len() <= 36 { pod.uid.clone() } else { hex(&pod.uid, 32) };
        let head: String = pod.name.chars().take(LONGEST - 1 - uid.len()).collect();
        let name = format!("{head}-{uid}");
        assert!(name.len() <= LONGEST, "{name} is too long for a VM's name");
        Self(name)
    }

    /// The name that the system before us gave to this Pod's VM: without the UID.
    #[must_use]
    pub fn original(pod: &PodId) -> Self {
        let whole = format!("{}-{}", pod.namespace, pod.name);
        if whole.len() <= LONGEST {
            return Self(whole);
        }
        let head: String = whole.chars().take(54).collect();
        Self(format!("{head}-{}", hex(&format!("{}/{}", pod.namespace, pod.name), 8)))
    }

    /// The name as Tart spells it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// `tart://<name>`: how the Pod's status names its VM.
    #[must_use]
    pub fn container_id(&self) -> String {
        format!("tart://{}", self.0)
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(text: &str, digits: usize) -> String {
    let mut all = format!("{:x}", Sha256::digest(text));
    all.truncate(digits);
    all
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pod(namespace: &str, name: &str, uid: &str) -> PodId {
        PodId { namespace: namespace.into(), name: name.into(), uid: uid.into() }
    }

    const UID: &str = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";

    #[test]
    fn a_new_name_carries_the_uid_and_as_much_of_the_pod_as_fits() {
        let name = VmName::of(&pod("ci", "runner-0", UID));
        assert_eq!(name.as_str(), format!("runner-0-{UID}"));
        let long = VmName::of(&pod("ci", &"x".repeat(253), UID));
        assert_eq!(long.as_str(), format!("{}-{UID}", "x".repeat(26)));
    }

    #[test]
    fn the_original_form_is_namespace_and_pod_cut_with_a_digest() {
        assert_eq!(VmName::original(&pod("ci", "runner-0", UID)).as_str(), "ci-runner-0");
        let long = VmName::original(&pod("tuist-runners", &"r".repeat(60), UID));
        assert_eq!(long.as_str().len(), 63);
        assert!(long.as_str().starts_with("tuist-runners-rrr"));
    }

    proptest! {
        #[test]
        fn every_pod_has_a_name_that_fits(
            name in "[a-z0-9.-]{1,253}", namespace in "[a-z0-9-]{1,63}", uid in ".{1,80}",
        ) {
            let id = pod(&namespace, &name, &uid);
            prop_assert!(VmName::of(&id).as_str().len() <= LONGEST);
            prop_assert!(VmName::original(&id).as_str().len() <= LONGEST);
        }

        #[test]
        fn two_uids_never_share_a_vm(
            a in "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name in "[a-z-]{1,60}",
        ) {
            prop_assume!(a != UID);
            prop_assert_ne!(VmName::of(&pod("n", &name, &a)), VmName::of(&pod("n", &name, UID)));
        }
    }
}
