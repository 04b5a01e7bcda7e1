//! Every effect that a Machine can have, as data. The shell performs one and looks again.

use applecart_api::ids::{ProviderId, ServerId};
use applecart_api::machine::ScalewayAppleSiliconMachineStatus;
use applecart_api::name_class::NameClass;

/// One effect, with the precondition under which it is safe inside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Put our finalizer on the object, before the first call outside.
    AddFinalizer {
        /// In the same write, keep `clusterctl move` waiting: a claim can begin at once.
        block_move: bool,
    },
    /// Take our finalizer off: nothing outside is left.
    RemoveFinalizer,
    /// Store the status, if the object is still at the version that was read.
    WriteStatus(Box<ScalewayAppleSiliconMachineStatus>),
    /// Store the status that tells how a bootstrap ended; then that is forgotten.
    RecordBootstrap(Box<ScalewayAppleSiliconMachineStatus>),
    /// Write the provider ID into the spec, or take it out again.
    SetProviderId(Option<ProviderId>),
    /// Keep `clusterctl move` waiting, or let it come.
    BlockMove(bool),
    /// Sign the account of the agent of this name, so that no other object of the name takes a
    /// host: the one that is still at this version (`None`: one that does not exist).
    TakeName {
        /// Version that was read.
        version: Option<String>,
    },
    /// Take the host's Lease, if it is still at this version (`None`: does not exist).
    TakeLease {
        /// The host.
        server: ServerId,
        /// Version that was read.
        version: Option<String>,
        /// The host is not in the pool: it may carry somebody's work, and counts as unwiped.
        used: bool,
    },
    /// Note in our Lease that the host was seen under our claiming name.
    NoteMarked(ServerId),
    /// Note in our Lease that the host was seen under our releasing name.
    NoteReleasing {
        /// The host.
        server: ServerId,
        /// How many owners in a row gave it up by now.
        owners_failed: u32,
    },
    /// Note in our Lease that a wipe was seen to run.
    NoteWiped(ServerId),
    /// Note in our Lease that the deletion of the host is about to be asked for.
    NoteDelete(ServerId),
    /// Note in our Lease that the host is to be set aside, although it cannot be renamed.
    NoteQuarantined(ServerId),
    /// Note in our Lease who we are, for whoever has to deal with the host once we are gone.
    NoteOwner(ServerId),
    /// Note in our Lease that the host served an owner well.
    NoteHealthy(ServerId),
    /// Note in our Lease whether we may be on our way to another cluster.
    NoteMoving {
        /// The host.
        server: ServerId,
        /// Whether we may.
        moving: bool,
    },
    /// Give our Lease up.
    ClearLease(ServerId),
    /// Give our Lease up on a host that never got our name: nothing of us was on it, and it is as
    /// good as before we took it.
    ReturnLease(ServerId),
    /// Give our Lease up, because we live on in another cluster with our host.
    LeaveLease(ServerId),
    /// Rename the host, which was just read under the name `was`.
    Rename {
        /// The host.
        server: ServerId,
        /// Its name in this turn's read.
        was: String,
        /// Its name from now on.
        to: String,
    },
    /// Ask for the host to be wiped. Asking twice is harmless.
    RequestWipe {
        /// The host.
        server: ServerId,
        /// The image that it gets; Scaleway's default for its type if `None`.
        image: Option<String>,
    },
    /// Cycle the host's power, once, to recover it.
    Reboot(ServerId),
    /// Delete the host.
    DeleteServer(ServerId),
    /// Let Scaleway delete the host when its licensing floor ends.
    ScheduleDeletion(ServerId),
    /// Note on the object that a host is about to be ordered for it.
    NoteOrder,
    /// Order a host.
    Create {
        /// The name that it gets: our claiming name, by which it is found again.
        name: String,
        /// Its type.
        server_type: String,
        /// The image that it gets; Scaleway's default for its type if `None`.
        image: Option<String>,
    },
    /// Store the password that this turn's read of the host carried.
    StoreCredentials(ServerId),
    /// Forget the password and the host key of a host that is being wiped: this Secret.
    DeleteCredentials(Exactly),
    /// Make one part of the Node's identity.
    CreateIdentity(Identity),
    /// Remove one part of the Node's identity.
    DeleteIdentity {
        /// Which.
        part: Identity,
        /// As it was read: another object of the name may have signed it since (LH14).
        exactly: Exactly,
    },
    /// Begin a bootstrap beside this loop.
    StartBootstrap(ServerId),
    /// Begin the same steps beside this loop, on a Mac that was bootstrapped.
    StartUpkeep(ServerId),
    /// Compare what a Mac that was taken over shall be with what it should have been at that time.
    /// Nobody goes to the Mac.
    Compare(ServerId),
    /// End the bootstrap that runs beside this loop.
    StopBootstrap,
    /// Remove the Mac's own runner at GitHub, so that no job comes to it any more; GitHub refuses
    /// that while it has one.
    RemoveRunner,
    /// Let no new Pod come to the Node.
    Cordon {
        /// UID that the Node must still have.
        uid: String,
    },
    /// Let no new Pod come to the Node until an update came, and say so on it.
    Drain {
        /// UID that the Node must still have.
        uid: String,
    },
    /// Let Pods come again to a Node that we cordoned for an update.
    Uncordon {
        /// UID that the Node must still have.
        uid: String,
        /// The update came; else the Node says that it was tried.
        came: bool,
    },
    /// Delete a Pod that no job claimed, or whose Mac is wiped, if it is still as it was read.
    DeleteGuest {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID that it must still have.
        uid: String,
        /// Version that it must still have: a claim in between changes it.
        version: String,
        /// Without grace: nobody is left to stop it.
        force: bool,
    },
    /// Take the agent's finalizer off a Pod whose Mac is wiped, so that it can go.
    FreeGuest {
        /// Namespace.
        namespace: String,
        /// Name.
        name: String,
        /// UID that it must still have.
        uid: String,
    },
    /// Delete the Node of a Mac that is wiped.
    DeleteNode {
        /// UID that it must still have.
        uid: String,
    },
}

impl Action {
    /// What a rename is called in messages.
    pub const RENAME: &str = "rename the host";
    /// What a power cycle is called.
    pub const REBOOT: &str = "reboot the host";
    /// What a wipe is called.
    pub const WIPE: &str = "request the wipe";
    /// What is tried to empty a Mac for an update, and after it.
    pub const DRAIN: [&str; 3] =
        ["cordon the Node for an update", "uncordon the Node", "delete an idle Pod"];
    /// What a deletion is called, at once or later.
    pub const DELETE: [&str; 2] = ["delete the host", "schedule the deletion of the host"];

    /// Whether it changes a host, or adds one: then it is sent soon after an uncached read, or not
    /// at all.
    #[must_use]
    pub fn changes_host(&self) -> bool {
        matches!(
            self,
            Self::Rename { .. }
                | Self::RequestWipe { .. }
                | Self::Reboot(_)
                | Self::DeleteServer(_)
                | Self::ScheduleDeletion(_)
                | Self::Create { .. }
        )
    }

    /// Whether it takes a host of the pool, which others may take by a name of theirs meanwhile.
    #[must_use]
    pub fn marks_host(&self) -> bool {
        let claiming = |to: &str| matches!(NameClass::read(to, ""), NameClass::Claiming(_));
        matches!(self, Self::Rename { to, .. } if claiming(to))
    }

    /// Whether it may follow from what Scaleway said of the host a while ago: it changes nothing at
    /// Scaleway and gives up nothing, so a host that has moved on since costs a look alone.
    #[must_use]
    pub fn may_follow_a_remembered_read(&self) -> bool {
        match self {
            Self::WriteStatus(_)
            | Self::RecordBootstrap(_)
            | Self::SetProviderId(Some(_))
            | Self::BlockMove(_)
            | Self::TakeName { .. }
            | Self::NoteMarked(_)
            | Self::NoteOwner(_)
            | Self::NoteHealthy(_)
            | Self::StoreCredentials(_)
            | Self::CreateIdentity(_)
            | Self::StartBootstrap(_)
            | Self::StopBootstrap => true,
            Self::AddFinalizer { .. }
            | Self::RemoveFinalizer
            | Self::SetProviderId(None)
            | Self::TakeLease { .. }
            | Self::NoteReleasing { .. }
            | Self::NoteWiped(_)
            | Self::NoteDelete(_)
            | Self::NoteQuarantined(_)
            | Self::NoteMoving { .. }
            | Self::ClearLease(_)
            | Self::ReturnLease(_)
            | Self::LeaveLease(_)
            | Self::Rename { .. }
            | Self::RequestWipe { .. }
            | Self::Reboot(_)
            | Self::DeleteServer(_)
            | Self::ScheduleDeletion(_)
            | Self::NoteOrder
            | Self::Create { .. }
            | Self::DeleteCredentials(_)
            | Self::DeleteIdentity { .. }
            | Self::StartUpkeep(_)
            | Self::Compare(_)
            | Self::RemoveRunner
            | Self::Cordon { .. }
            | Self::Drain { .. }
            | Self::Uncordon { .. }
            | Self::DeleteGuest { .. }
            | Self::FreeGuest { .. }
            | Self::DeleteNode { .. } => false,
        }
    }

    /// What the effect is, for messages about it.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::AddFinalizer { .. } => "add the finalizer",
            Self::RemoveFinalizer => "remove the finalizer",
            Self::WriteStatus(_) | Self::RecordBootstrap(_) => "write the status",
            Self::SetProviderId(_) => "write the provider ID",
            Self::BlockMove(true) => "keep clusterctl move waiting",
            Self::BlockMove(false) => "let clusterctl move come",
            Self::TakeName { .. } => "sign the agent's account",
            Self::TakeLease { .. } => "take the host's Lease",
            Self::NoteMarked(_)
            | Self::NoteReleasing { .. }
            | Self::NoteWiped(_)
            | Self::NoteDelete(_)
            | Self::NoteQuarantined(_)
            | Self::NoteOwner(_)
            | Self::NoteHealthy(_)
            | Self::NoteMoving { .. } => "note in the host's Lease",
            Self::ClearLease(_) | Self::ReturnLease(_) | Self::LeaveLease(_) => {
                "give up the host's Lease"
            }
            Self::Rename { .. } => Self::RENAME,
            Self::RequestWipe { .. } => Self::WIPE,
            Self::Reboot(_) => Self::REBOOT,
            Self::DeleteServer(_) => Self::DELETE[0],
            Self::ScheduleDeletion(_) => Self::DELETE[1],
            Self::NoteOrder => "note the order",
            Self::Create { .. } => "order a host",
            Self::StoreCredentials(_) => "store the host's password",
            Self::DeleteCredentials(_) => "delete the host's password",
            Self::CreateIdentity(_) => "create the Node's identity",
            Self::DeleteIdentity { .. } => "delete the Node's identity",
            Self::StartBootstrap(_) => "begin the bootstrap",
            Self::StartUpkeep(_) => "begin the upkeep",
            Self::Compare(_) => "compare the Mac's configuration with that of its take-over",
            Self::StopBootstrap => "end the bootstrap",
            Self::RemoveRunner => "remove the Mac's own runner",
            Self::Cordon { .. } => "cordon the Node",
            Self::Drain { .. } => Self::DRAIN[0],
            Self::Uncordon { .. } => Self::DRAIN[1],
            Self::DeleteGuest { .. } => Self::DRAIN[2],
            Self::FreeGuest { .. } => "free a Pod",
            Self::DeleteNode { .. } => "delete the Node",
        }
    }
}

/// Something that is stored, as it was read: whoever removes it names both, so that nothing else of
/// its name goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exactly {
    /// UID that it must still have.
    pub uid: String,
    /// Version that it must still have.
    pub version: String,
}

/// The parts of a Node's identity, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identity {
    /// The `ServiceAccount` that the agent is.
    ServiceAccount,
    /// What it may do.
    Binding,
    /// The Secret that Kubernetes fills with its token.
    Token,
}

impl Identity {
    /// All parts, in the order in which they are made.
    pub const ALL: [Self; 3] = [Self::ServiceAccount, Self::Binding, Self::Token];
}
