//! Every effect of the sweep, as data. The shell performs one and looks again.

use super::reason::Reason;

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
    /// Ask for the host to be wiped. Asking twice is harmless.
    RequestWipe {
        /// The image that it gets; Scaleway's default for its type if `None`.
        image: Option<String>,
    },
}

impl Action {
    /// Whether it changes a host, so is sent soon after an uncached read of it, or not at all.
    #[must_use]
    pub fn changes_host(&self) -> bool {
        match self {
            Self::Rename { .. } | Self::RequestWipe { .. } => true,
            Self::TakeLease { .. } | Self::FreeLease | Self::DeleteLease | Self::NoteWiped => false,
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
            Self::RequestWipe { .. } => "request_wipe",
        }
    }

    /// The name in metrics of what removes a thing that an object left.
    pub const CLEAN_UP: &'static str = "clean_up";

    /// Each name in metrics.
    pub const WORDS: [&'static str; 7] = [
        "take_lease",
        "free_lease",
        "delete_lease",
        "note_wiped",
        "rename",
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
