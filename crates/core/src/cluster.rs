//! The infrastructure of a Cluster: nothing is built for it, but Cluster API waits to be told so.
//! No I/O here.
//!
//! # Guarantees
//! - Nothing is written before a Cluster owns the object, nor if somebody else manages it, nor
//!   while it is paused.
//! - A Cluster without a control-plane object is told that its control plane is initialised, or no
//!   Machine would ever become available (P5, LH23).
//! - A kubeconfig that somebody else wrote is left alone; one that we may not look at holds up
//!   nothing else.

use applecart_api::cluster::ScalewayAppleSiliconClusterStatus;
use applecart_api::condition::{Condition, Says, set};
use applecart_api::machine::Initialization;
use jiff::Timestamp;

use crate::Trouble;

/// The condition that tells whether Cluster API can reach the Nodes.
const KUBECONFIG: &str = "KubeconfigAvailable";

/// Everything that one decision may depend on.
#[derive(Clone, Debug)]
pub struct Observed {
    /// Generation of the spec.
    pub generation: Option<i64>,
    /// Status as stored.
    pub status: ScalewayAppleSiliconClusterStatus,
    /// Annotated as managed by somebody else.
    pub managed_elsewhere: bool,
    /// Its Cluster, or an annotation on it, pauses it.
    pub paused: bool,
    /// The Cluster that owns the object, if one does and exists.
    pub owner: Option<Owner>,
    /// How Cluster API gets to the Nodes.
    pub access: Access,
    /// The last write of its Secrets, if that failed.
    pub trouble: Option<Trouble>,
}

/// The Cluster that owns the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// It is said to have a control plane.
    pub control_plane_initialized: bool,
    /// An object of its own speaks for its control plane.
    pub control_plane_object: bool,
    /// It is being deleted.
    pub deleting: bool,
}

/// How Cluster API gets to the Nodes, which are in the cluster that we run in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// Somebody else sees to it: no token was named.
    NotOurs,
    /// The token is not there yet; why, in words.
    NoToken(String),
    /// We should see to it, and cannot; why, in words.
    Denied(String),
    /// We see to it.
    Ours {
        /// The Secret with the kubeconfig.
        kubeconfig: Stored,
        /// The empty Secret that Machines name as their start-up data is there.
        bootstrap_data: bool,
    },
}

impl Access {
    /// The next Secret that we should write and have not written.
    #[must_use]
    pub fn unwritten(&self) -> Option<Action> {
        let Self::Ours { kubeconfig, bootstrap_data } = self else { return None };
        match kubeconfig {
            Stored::Absent => Some(Action::CreateKubeconfig),
            Stored::Stale => Some(Action::UpdateKubeconfig),
            Stored::Current | Stored::Others => {
                (!bootstrap_data).then_some(Action::CreateBootstrapData)
            }
        }
    }
}

/// A Secret that we may have written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stored {
    /// It is not there.
    Absent,
    /// Ours, but with another address or token.
    Stale,
    /// Ours, and right.
    Current,
    /// Somebody else wrote it.
    Others,
}

/// One effect.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Store the status, if the object is still at the version that was read.
    WriteStatus(Box<ScalewayAppleSiliconClusterStatus>),
    /// Write the kubeconfig with which Cluster API reaches the Nodes, for the first time.
    CreateKubeconfig,
    /// Write it again: address or token changed.
    UpdateKubeconfig,
    /// Create the empty Secret that Machines name as their start-up data.
    CreateBootstrapData,
    /// Say on the Cluster that its control plane, the cluster we run in, is there.
    MarkControlPlane,
}

impl Action {
    /// Whether it writes a Secret of the Cluster: what the provider may not be allowed to.
    #[must_use]
    pub fn writes_secret(&self) -> bool {
        match self {
            Self::CreateKubeconfig | Self::UpdateKubeconfig | Self::CreateBootstrapData => true,
            Self::WriteStatus(_) | Self::MarkControlPlane => false,
        }
    }

    /// What the effect is, for messages about it.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::WriteStatus(_) => "write the status",
            Self::CreateKubeconfig => "create the Cluster's kubeconfig Secret",
            Self::UpdateKubeconfig => "update the Cluster's kubeconfig Secret",
            Self::CreateBootstrapData => "create the Cluster's bootstrap data Secret",
            Self::MarkControlPlane => "mark the Cluster's control plane as initialised",
        }
    }
}

/// Decides one turn: the effect, if any.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed) -> Option<Action> {
    let owner = seen.owner.filter(|owner| !owner.deleting)?;
    if seen.managed_elsewhere || seen.paused {
        return None;
    }
    let wanted = status(now, seen);
    if wanted != seen.status {
        return Some(Action::WriteStatus(Box::new(wanted)));
    }
    let held_up = seen.trouble.as_ref().is_some_and(|trouble| trouble.due_in(now).is_some());
    if let Some(action) = seen.access.unwritten().filter(|_| !held_up) {
        return Some(action);
    }
    let marked = owner.control_plane_initialized || owner.control_plane_object;
    (!marked).then_some(Action::MarkControlPlane)
}

fn status(now: Timestamp, seen: &Observed) -> ScalewayAppleSiliconClusterStatus {
    let mut status = seen.status.clone();
    status.ready = Some(true);
    status.initialization = Some(Initialization { provisioned: Some(true) });
    status.observed_generation = seen.generation;
    let says = Says { type_: "Ready", status: "True", reason: "Ready", message: String::new() };
    set(&mut status.conditions, says, seen.generation, now);
    let trouble = seen.trouble.as_ref().filter(|_| seen.access.unwritten().is_some());
    let (holds, reason, message) = match &seen.access {
        Access::NotOurs => {
            status.conditions.retain(|condition| condition.type_ != KUBECONFIG);
            return status;
        }
        Access::NoToken(why) => ("False", "WaitingForToken", why.clone()),
        Access::Denied(why) => ("False", "Denied", why.clone()),
        Access::Ours { kubeconfig, .. } => match (trouble, kubeconfig) {
            (Some(trouble), _) => {
                ("False", "WriteFailed", format!("could not {}", trouble.message))
            }
            (None, Stored::Absent | Stored::Stale) => ("False", "Writing", String::new()),
            (None, Stored::Current) => ("True", "Available", String::new()),
            (None, Stored::Others) => ("True", "GivenByOthers", String::new()),
        },
    };
    let says = Says { type_: KUBECONFIG, status: holds, reason, message };
    set(&mut status.conditions, says, seen.generation, now);
    status
}

/// What a person has to mend, if `after` says it and `before` did not: the reason and the words.
#[must_use]
pub fn complaint<'a>(
    before: &ScalewayAppleSiliconClusterStatus,
    after: &'a ScalewayAppleSiliconClusterStatus,
) -> Option<(&'a str, &'a str)> {
    let found = after.conditions.iter().find(|condition| condition.type_ == KUBECONFIG)?;
    let reason = found.reason.as_deref().filter(|r| matches!(*r, "Denied" | "WriteFailed"))?;
    let known = |old: &Condition| old.type_ == KUBECONFIG && old.reason == found.reason;
    let news = !before.conditions.iter().any(known);
    news.then(|| (reason, found.message.as_deref().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn owned() -> Observed {
        let owner = Owner {
            control_plane_initialized: false,
            control_plane_object: false,
            deleting: false,
        };
        Observed {
            generation: Some(1),
            status: ScalewayAppleSiliconClusterStatus::default(),
            managed_elsewhere: false,
            paused: false,
            owner: Some(owner),
            access: Access::NotOurs,
            trouble: None,
        }
    }

    /// The next effect that is not about the status, with the status told in between.
    fn next(seen: &mut Observed) -> Option<Action> {
        match decide(now(), seen) {
            Some(Action::WriteStatus(told)) => {
                seen.status = *told;
                decide(now(), seen)
            }
            other => other,
        }
    }

    #[test]
    fn the_status_comes_first_then_the_control_plane_then_rest() {
        let mut seen = owned();
        let Some(Action::WriteStatus(told)) = decide(now(), &seen) else { panic!("no status") };
        assert_eq!(told.initialization.unwrap().provisioned, Some(true));
        assert_eq!(next(&mut seen), Some(Action::MarkControlPlane));
        seen.owner.as_mut().unwrap().control_plane_initialized = true;
        assert_eq!(next(&mut seen), None);
    }

    #[test]
    fn a_control_plane_object_speaks_for_itself() {
        let mut seen = owned();
        seen.owner.as_mut().unwrap().control_plane_object = true;
        assert_eq!(next(&mut seen), None);
    }

    #[test]
    fn cluster_api_gets_its_way_to_the_nodes_and_others_secrets_stay() {
        let mut seen = owned();
        seen.owner.as_mut().unwrap().control_plane_initialized = true;
        let ours = |kubeconfig, bootstrap_data| Access::Ours { kubeconfig, bootstrap_data };
        for (access, expected) in [
            (Access::NoToken("no Secret".into()), None),
            (Access::Denied("forbidden".into()), None),
            (ours(Stored::Absent, true), Some(Action::CreateKubeconfig)),
            (ours(Stored::Stale, true), Some(Action::UpdateKubeconfig)),
            (ours(Stored::Current, false), Some(Action::CreateBootstrapData)),
            (ours(Stored::Others, true), None),
            (ours(Stored::Current, true), None),
        ] {
            seen.access = access.clone();
            assert_eq!(next(&mut seen), expected, "{access:?}");
        }
    }

    #[test]
    fn a_missing_token_is_told() {
        let mut seen = owned();
        seen.access = Access::NoToken("Secret default/remote does not exist".into());
        next(&mut seen);
        let told = seen.status.conditions.iter().find(|c| c.type_ == KUBECONFIG).unwrap();
        assert_eq!(
            (told.status.as_str(), told.reason.as_deref()),
            ("False", Some("WaitingForToken"))
        );
    }

    #[test]
    fn a_refused_write_is_told_once_and_holds_up_nothing_else() {
        let mut seen = owned();
        seen.access = Access::Ours { kubeconfig: Stored::Absent, bootstrap_data: false };
        assert_eq!(next(&mut seen), Some(Action::CreateKubeconfig));
        let message = "create the Cluster's kubeconfig Secret: secrets is forbidden".to_owned();
        let retry_at = now() + Duration::from_secs(10);
        let tried = "create the Cluster's kubeconfig Secret";
        let (at, too_early, streaks) = (now(), false, vec![]);
        seen.trouble = Some(Trouble { tried, message, at, retry_at, too_early, streaks });
        let before = seen.status.clone();
        assert_eq!(next(&mut seen), Some(Action::MarkControlPlane));
        let words = "could not create the Cluster's kubeconfig Secret: secrets is forbidden";
        assert_eq!(complaint(&before, &seen.status), Some(("WriteFailed", words)));
        assert_eq!(complaint(&seen.status, &seen.status), None);
        seen.owner.as_mut().unwrap().control_plane_initialized = true;
        assert_eq!(next(&mut seen), None);
        assert_eq!(decide(retry_at, &seen), Some(Action::CreateKubeconfig));
    }

    #[test]
    fn a_denied_read_is_a_complaint_too() {
        let mut seen = owned();
        seen.access = Access::Denied("the provider may not get Secrets in x".into());
        let before = seen.status.clone();
        next(&mut seen);
        let words = "the provider may not get Secrets in x";
        assert_eq!(complaint(&before, &seen.status), Some(("Denied", words)));
    }

    #[test]
    fn an_object_that_is_not_ours_is_left_byte_for_byte_alone() {
        let nobodys = Observed { owner: None, ..owned() };
        let managed = Observed { managed_elsewhere: true, ..owned() };
        let paused = Observed { paused: true, ..owned() };
        let mut dying = owned();
        dying.owner.as_mut().unwrap().deleting = true;
        for seen in [nobodys, managed, paused, dying] {
            assert_eq!(decide(now(), &seen), None);
        }
    }
}
