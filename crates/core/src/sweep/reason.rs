//! Why the sweep does what it does: one word for metrics, one sentence for people (O1).

use std::fmt;

use applecart_api::ids::Zone;

/// Why the sweep acts on a host, or does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A marker of this cluster whose object is gone is being finished.
    Finishing,
    /// An orphan is being returned.
    Returning,
    /// The host is wiped and in the pool.
    Returned,
    /// A person wipes a host that nobody holds.
    WipedByHand,
    /// The Lease's holder is gone.
    HolderGone(String),
    /// The Lease's holder has another host.
    Spare(String),
    /// The Lease's host is gone for good.
    Vanished,
    /// The cluster that the host was moved to has returned it.
    ReturnedElsewhere,
    /// An object is gone, and what it left is being removed.
    CleaningUp,
    /// So many wipes were asked for, and none was seen to run: the host is set aside.
    SetAside(u32),
    /// The host is busy with itself, and waited for.
    Waiting(String),
    /// The objects that own hosts could not be read.
    OwnersUnreadable(String),
    /// A zone could not be listed.
    ZoneUnreadable(Zone, String),
    /// A zone's list shows none of the hosts that Leases name there: how many those are.
    ZoneDoubted(Zone, usize),
    /// The host could not be read right before the effect.
    HostUnreadable(String),
    /// The images to wipe to could not be listed.
    ImagesUnreadable(String),
    /// Outside of the claim-name prefix, or there is none: such orphans are only reported.
    ReportOnly,
    /// A builder's jobs run on the Mac itself, and only its object could ask GitHub for them.
    Builder,
    /// No pool to return to.
    NoPool,
    /// Seen for the first time, or not for a full interval.
    FirstSighting,
    /// There is not one object: more likely a mistake than the truth.
    NothingOwned,
    /// More orphans than an accident explains.
    TooManyOrphans {
        /// Orphans.
        orphans: usize,
        /// Live objects.
        objects: usize,
    },
    /// More objects went at once than an operator takes away.
    ObjectsVanished {
        /// The most objects of the last few intervals.
        most: usize,
        /// Live objects.
        objects: usize,
    },
    /// So many were begun in this cycle already.
    LimitReached(usize),
    /// A live object owns the host now.
    Owned(String),
    /// Somebody holds the host's Lease.
    HeldByOther(String),
    /// Its object was moved to another cluster.
    Moved,
    /// The host has a name that is not ours to change.
    NotOurs(String),
    /// The Lease has another holder by now, or the same lives.
    HolderLives,
    /// A job runs on the host.
    Busy(String),
    /// The host is locked or broken.
    CannotWipe(String),
    /// The host does not exist any more.
    Gone,
    /// No list has the host, and yet it exists.
    StillThere,
    /// The ownership read was too old when its effect was due.
    ReadTooOld,
}

impl Reason {
    /// Its name in metrics.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Finishing => "finishing",
            Self::Returning => "returning",
            Self::Returned => "returned",
            Self::WipedByHand => "wiped_by_hand",
            Self::HolderGone(_) => "holder_gone",
            Self::Spare(_) => "spare",
            Self::Vanished => "vanished",
            Self::ReturnedElsewhere => "returned_elsewhere",
            Self::CleaningUp => "cleaning_up",
            Self::SetAside(_) => "set_aside",
            Self::Waiting(_) => "waiting",
            Self::OwnersUnreadable(_) => "owners_unreadable",
            Self::ZoneUnreadable(..) => "zone_unreadable",
            Self::ZoneDoubted(..) => "zone_doubted",
            Self::HostUnreadable(_) => "host_unreadable",
            Self::ImagesUnreadable(_) => "images_unreadable",
            Self::ReportOnly => "report_only",
            Self::Builder => "builder",
            Self::NoPool => "no_pool",
            Self::FirstSighting => "first_sighting",
            Self::NothingOwned => "nothing_owned",
            Self::TooManyOrphans { .. } => "too_many_orphans",
            Self::ObjectsVanished { .. } => "objects_vanished",
            Self::LimitReached(_) => "limit_reached",
            Self::Owned(_) => "owned",
            Self::HeldByOther(_) => "held_by_other",
            Self::Moved => "moved",
            Self::NotOurs(_) => "not_ours",
            Self::HolderLives => "holder_lives",
            Self::Busy(_) => "busy",
            Self::CannotWipe(_) => "cannot_wipe",
            Self::Gone => "gone",
            Self::StillThere => "still_there",
            Self::ReadTooOld => "read_too_old",
        }
    }

    /// Every word that says that something was not done, for metrics that exist from the start.
    pub const REFUSALS: [&'static str; 23] = [
        "owners_unreadable",
        "zone_unreadable",
        "zone_doubted",
        "host_unreadable",
        "images_unreadable",
        "report_only",
        "builder",
        "no_pool",
        "first_sighting",
        "nothing_owned",
        "too_many_orphans",
        "objects_vanished",
        "limit_reached",
        "owned",
        "held_by_other",
        "moved",
        "not_ours",
        "holder_lives",
        "busy",
        "cannot_wipe",
        "gone",
        "still_there",
        "read_too_old",
    ];

    /// Whether it says that something was not done.
    #[must_use]
    pub fn is_refusal(&self) -> bool {
        Self::REFUSALS.contains(&self.word())
    }

    /// Whether ownership cannot be told: then nothing more is done in this cycle (S7).
    #[must_use]
    pub fn ends_cycle(&self) -> bool {
        matches!(self, Self::OwnersUnreadable(_) | Self::HostUnreadable(_))
    }

    /// Whether the host is on its way back, and worth another look soon.
    #[must_use]
    pub fn is_under_way(&self) -> bool {
        matches!(
            self,
            Self::Finishing | Self::Returning | Self::Waiting(_) | Self::ImagesUnreadable(_)
        )
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Finishing => write!(f, "its object is gone: finishing what was left half done"),
            Self::Returning => write!(f, "nobody owns it: returning it to the pool"),
            Self::Returned => write!(f, "wiped and in the pool"),
            Self::WipedByHand => write!(f, "somebody wipes it, and nobody holds it"),
            Self::HolderGone(holder) => write!(f, "its Lease's holder is gone: {holder}"),
            Self::Spare(holder) => write!(f, "its Lease's holder has another host: {holder}"),
            Self::Vanished => write!(f, "its host does not exist at Scaleway any more"),
            Self::ReturnedElsewhere => {
                write!(f, "it was moved to another cluster, which has returned it")
            }
            Self::CleaningUp => write!(f, "its object is gone: removing what it left"),
            Self::SetAside(asks) => {
                write!(f, "asked {asks} times to be wiped, and never seen to be")
            }
            Self::Waiting(state) => write!(f, "waiting for the host, which is {state}"),
            Self::OwnersUnreadable(why) => write!(f, "cannot tell who owns hosts: {why}"),
            Self::ZoneUnreadable(zone, why) => write!(f, "cannot list zone {zone}: {why}"),
            Self::ZoneDoubted(zone, hosts) => write!(
                f,
                "zone {zone} shows none of the {hosts} hosts there that Leases name, so none is \
                 believed to be gone: is the API key of another project? If they are gone, delete \
                 their Leases (host-…)"
            ),
            Self::HostUnreadable(why) => write!(f, "cannot read the host: {why}"),
            Self::ImagesUnreadable(why) => write!(f, "cannot list the images to wipe to: {why}"),
            Self::ReportOnly => {
                write!(f, "reported only: --orphan-reclaim-claim-name-prefix does not cover it")
            }
            Self::Builder => write!(
                f,
                "it was a builder, and maybe GitHub has a job on it: when it has none, wipe it and \
                 give it a pool's name by hand"
            ),
            Self::NoPool => write!(
                f,
                "no pool to return it to: its Lease names none; set --default-adopt-pool-prefix"
            ),
            Self::FirstSighting => write!(f, "not seen for a full interval yet"),
            Self::NothingOwned => write!(f, "there is not one object that could own a host"),
            Self::ObjectsVanished { most, objects } => {
                write!(
                    f,
                    "{objects} objects are left of {most}: are objects missing? If not, wait for \
                     eight intervals, or return the hosts by hand"
                )
            }
            Self::TooManyOrphans { orphans, objects } => {
                write!(
                    f,
                    "{orphans} orphans beside {objects} objects: are objects missing? If not, \
                     raise --orphan-reclaim-max-share"
                )
            }
            Self::LimitReached(most) => write!(f, "no more than {most} in a cycle"),
            Self::Owned(owner) => write!(f, "{owner} owns it"),
            Self::HeldByOther(holder) => write!(f, "its Lease is held by {holder}"),
            Self::Moved => write!(f, "its object was moved to another cluster"),
            Self::NotOurs(name) => write!(f, "it is called {name:?}, which is not ours"),
            Self::HolderLives => write!(f, "its Lease's holder lives"),
            Self::Busy(pod) => write!(f, "the job in Pod {pod} runs on it"),
            Self::CannotWipe(state) => write!(f, "it cannot be wiped while it is {state}"),
            Self::Gone => write!(f, "it does not exist at Scaleway any more"),
            Self::StillThere => {
                write!(f, "it exists at Scaleway, although its zone's list lacks it")
            }
            Self::ReadTooOld => write!(f, "the read of its owner was too old"),
        }
    }
}
