//! The infrastructure of a Cluster: nothing is built for it, but Cluster API waits to be told so.
//! No I/O here.
//!
//! # Guarantees
//! - Nothing is written before a Cluster owns the object, nor if somebody else manages it.
//! - A Cluster without a control-plane object is told that its control plane is initialised, or no
//!   Machine would ever become available (P5, LH23).

use applecart_api::cluster::ScalewayAppleSiliconClusterStatus;
use applecart_api::condition::{Says, set};
use applecart_api::machine::Initialization;
use jiff::Timestamp;

/// Everything that one decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Status as stored.
    pub status: ScalewayAppleSiliconClusterStatus,
    /// Annotated as managed by somebody else.
    pub managed_elsewhere: bool,
    /// The Cluster that owns the object, if one does and exists.
    pub owner: Option<Owner>,
}

/// The Cluster that owns the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// It is said to have a control plane.
    pub control_plane_initialized: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Store the status, if the object is still at the version that was read.
    WriteStatus(Box<ScalewayAppleSiliconClusterStatus>),
    /// Say on the Cluster that its control plane, the cluster we run in, is there.
    MarkControlPlane,
}

impl Action {
    /// What the effect is, for messages about it.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::WriteStatus(_) => "write the status",
            Self::MarkControlPlane => "mark the Cluster's control plane as initialised",
        }
    }
}

/// Decides one turn: the effect, if any.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed) -> Option<Action> {
    let owner = seen.owner.filter(|owner| !owner.deleting)?;
    if seen.managed_elsewhere {
        return None;
    }
    let wanted = status(now, seen);
    if wanted != seen.status {
        return Some(Action::WriteStatus(Box::new(wanted)));
    }
    (!owner.control_plane_initialized).then_some(Action::MarkControlPlane)
}

fn status(now: Timestamp, seen: &Observed) -> ScalewayAppleSiliconClusterStatus {
    let mut status = seen.status.clone();
    status.ready = Some(true);
    status.initialization = Some(Initialization { provisioned: Some(true) });
    status.observed_generation = seen.generation;
    let says = Says { type_: "Ready", status: "True", reason: "Ready", message: String::new() };
    set(&mut status.conditions, says, seen.generation, now);
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn owned() -> Observed {
        let owner = Owner { control_plane_initialized: false, deleting: false };
        Observed {
            generation: Some(1),
            status: ScalewayAppleSiliconClusterStatus::default(),
            managed_elsewhere: false,
            owner: Some(owner),
        }
    }

    #[test]
    fn the_status_comes_first_then_the_control_plane_then_rest() {
        let mut seen = owned();
        let Some(Action::WriteStatus(told)) = decide(now(), &seen) else { panic!("no status") };
        assert_eq!(told.initialization.unwrap().provisioned, Some(true));
        seen.status = *told;
        assert_eq!(decide(now(), &seen), Some(Action::MarkControlPlane));
        seen.owner.as_mut().unwrap().control_plane_initialized = true;
        assert_eq!(decide(now(), &seen), None);
    }

    #[test]
    fn an_object_that_is_not_ours_is_left_byte_for_byte_alone() {
        let nobodys = Observed { owner: None, ..owned() };
        let managed = Observed { managed_elsewhere: true, ..owned() };
        let mut dying = owned();
        dying.owner.as_mut().unwrap().deleting = true;
        for seen in [nobodys, managed, dying] {
            assert_eq!(decide(now(), &seen), None);
        }
    }
}
