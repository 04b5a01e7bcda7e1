//! Every effect of the sweep, as data. The shell performs one and looks again.

use super::reason::Reason;
use crate::machine::Guest;

/// One effect on the host that was just read, or on its Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take the host's Lease, if it is still at the version that was read.
    TakeLease {
        /// It may carry somebody's work, and counts as unwiped.
        used: bool,
    },
    /// Give up our Lease, or free that of a holder who is gone, at the version that was read.
    FreeLease,
    /// Delete the Lease of a host that is gone, at the version that was read.
    DeleteLease,
    /// Note in our Lease that a wipe was seen to run.
    NoteWiped,
    /// Rename the host, which was just read under another name.
    Rename {
        /// Its name from now on.
        to: String,
    },
    /// Keep new Pods from the host's Node.
    Cordon {
        /// The Node's name.
        node: String,
        /// Its UID.
        uid: String,
    },
    /// Delete a Pod on it that no job claimed, if it is still as it was read.
    DeleteGuest(Guest),
    /// Note in our Lease that the host is asked to be wiped, which follows.
    NoteAsked {
        /// How often, with this time.
        times: u32,
    },
    /// Ask for the host to be wiped. Asking twice is harmless.
    RequestWipe {
        /// The image that it gets; Scaleway's default for its type if `None`.
        image: Option<String>,
    },
}

impl Action {
    /// Whether it changes a host or what runs there, so is sent soon after an uncached read of it,
    /// or not at all.
    #[must_use]
    pub fn changes_host(&self) -> bool {
        match self {
            Self::Rename { .. }
            | Self::Cordon { .. }
            | Self::DeleteGuest(_)
            | Self::RequestWipe { .. } => true,
            Self::TakeLease { .. }
            | Self::FreeLease
            | Self::DeleteLease
            | Self::NoteWiped
            | Self::NoteAsked { .. } => false,
        }
    }

    /// Its name in metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::TakeLease { .. } => "take_lease",
            Self::FreeLease => "free_lease",
            Self::DeleteLease => "delete_lease",
            Self::NoteWiped => "note_wiped",
            Self::Rename { .. } => "rename",
            Self::Cordon { .. } => "cordon",
            Self::DeleteGuest(_) => "delete_guest",
            Self::NoteAsked { .. } => "note_asked",
            Self::RequestWipe { .. } => "request_wipe",
        }
    }

    /// The name in metrics of what removes a thing that an object left.
    pub const CLEAN_UP: &'static str = "clean_up";

    /// Each name in metrics.
    pub const WORDS: [&'static str; 10] = [
        "take_lease",
        "free_lease",
        "delete_lease",
        "note_wiped",
        "rename",
        "cordon",
        "delete_guest",
        "note_asked",
        "request_wipe",
        Self::CLEAN_UP,
    ];
}

impl std::fmt::Display for Action {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TakeLease { .. } => f.write_str("take the host's Lease"),
            Self::FreeLease => f.write_str("free the host's Lease"),
            Self::DeleteLease => f.write_str("delete the host's Lease"),
            Self::NoteWiped => f.write_str("note the wipe in the host's Lease"),
            Self::Rename { to } => write!(f, "rename the host to {to}"),
            Self::Cordon { .. } => f.write_str("cordon the Node"),
            Self::DeleteGuest(_) => f.write_str("delete an idle Pod"),
            Self::NoteAsked { .. } => f.write_str("note the request in the host's Lease"),
            Self::RequestWipe { .. } => f.write_str("request the wipe"),
        }
    }
}

/// One turn's answer for one host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The one effect to perform now, if any.
    pub action: Option<Action>,
    /// Why, for people.
    pub reason: Reason,
}
