//! A control plane that is there already: Cluster API waits to be told so. No I/O here.
//!
//! # Guarantees
//! - Nothing is written before a Cluster owns the object, nor if somebody else manages it.
//! - Who reads the object has reached the API server that it speaks of, so it is available.

use applecart_api::condition::{Says, set};
use applecart_api::control_plane::{ControlPlaneInitialization, ExistingControlPlaneStatus};
use jiff::Timestamp;

/// Everything that one decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Status as stored.
    pub status: ExistingControlPlaneStatus,
    /// Annotated as managed by somebody else.
    pub managed_elsewhere: bool,
    /// A Cluster owns the object.
    pub owned: bool,
}

/// Decides one turn: the status to store, if it is another than the stored one.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed) -> Option<ExistingControlPlaneStatus> {
    if !seen.owned || seen.managed_elsewhere {
        return None;
    }
    let mut status = seen.status.clone();
    let initialized = ControlPlaneInitialization { control_plane_initialized: Some(true) };
    status.initialization = Some(initialized);
    status.external_managed_control_plane = Some(true);
    status.initialized = Some(true);
    status.ready = Some(true);
    status.observed_generation = seen.generation;
    for type_ in ["Available", "Ready"] {
        let message = "the Macs join the cluster that manages them".to_owned();
        let says = Says { type_, status: "True", reason: "Available", message };
        set(&mut status.conditions, says, seen.generation, now);
    }
    (status != seen.status).then_some(status)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn owned() -> Observed {
        let status = ExistingControlPlaneStatus::default();
        Observed { generation: Some(1), status, managed_elsewhere: false, owned: true }
    }

    #[test]
    fn it_is_told_once_in_both_contracts() {
        let told = decide(now(), &owned()).expect("told");
        assert_eq!(told.external_managed_control_plane, Some(true));
        assert_eq!(told.initialized, Some(true));
        let initialization = told.initialization.clone().expect("there");
        assert_eq!(initialization.control_plane_initialized, Some(true));
        assert_eq!(decide(now(), &Observed { status: told, ..owned() }), None);
    }

    #[test]
    fn nobodys_and_others_objects_are_left_alone() {
        assert_eq!(decide(now(), &Observed { owned: false, ..owned() }), None);
        assert_eq!(decide(now(), &Observed { managed_elsewhere: true, ..owned() }), None);
    }
}
