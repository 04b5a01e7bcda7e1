//! What is called, and what the caller's metrics hear of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// One operation of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Operation {
    /// All servers of a zone.
    ListServers,
    /// One server, with its credentials.
    GetServer,
    /// A new server.
    CreateServer,
    /// Another name for a server.
    RenameServer,
    /// Deletion as soon as it is allowed.
    ScheduleDeletion,
    /// Deletion at once.
    DeleteServer,
    /// A power cycle.
    RebootServer,
    /// A wipe and a new installation.
    ReinstallServer,
    /// The operating-system images of a zone.
    ListOs,
    /// The kinds of servers of a zone.
    ListServerTypes,
    /// The project's SSH keys of one name.
    ListSshKeys,
    /// A new SSH key.
    CreateSshKey,
    /// An SSH key goes.
    DeleteSshKey,
}

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 13] = [
        Self::ListServers,
        Self::GetServer,
        Self::CreateServer,
        Self::RenameServer,
        Self::ScheduleDeletion,
        Self::DeleteServer,
        Self::RebootServer,
        Self::ReinstallServer,
        Self::ListOs,
        Self::ListServerTypes,
        Self::ListSshKeys,
        Self::CreateSshKey,
        Self::DeleteSshKey,
    ];

    /// Changes nothing, so that it may be repeated.
    #[must_use]
    pub fn is_read(self) -> bool {
        match self {
            Self::ListServers
            | Self::GetServer
            | Self::ListOs
            | Self::ListServerTypes
            | Self::ListSshKeys => true,
            Self::CreateServer
            | Self::RenameServer
            | Self::ScheduleDeletion
            | Self::DeleteServer
            | Self::RebootServer
            | Self::ReinstallServer
            | Self::CreateSshKey
            | Self::DeleteSshKey => false,
        }
    }

    /// The name that metrics carry.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::ListServers => "list_servers",
            Self::GetServer => "get_server",
            Self::CreateServer => "create_server",
            Self::RenameServer => "rename_server",
            Self::ScheduleDeletion => "schedule_deletion",
            Self::DeleteServer => "delete_server",
            Self::RebootServer => "reboot_server",
            Self::ReinstallServer => "reinstall_server",
            Self::ListOs => "list_os",
            Self::ListServerTypes => "list_server_types",
            Self::ListSshKeys => "list_ssh_keys",
            Self::CreateSshKey => "create_ssh_key",
            Self::DeleteSshKey => "delete_ssh_key",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.label().replace('_', " "))
    }
}

/// One request and how it ended: each attempt of a read and each page of a list is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallReport {
    /// What was asked.
    pub operation: Operation,
    /// `ok`, or the error's label ([`crate::ErrorKind::label`]).
    pub outcome: &'static str,
    /// From asking for a turn to the answer, or to giving up.
    pub latency: Duration,
}

/// Told of every request, from within the call: it must not block.
pub type OnCall = Arc<dyn Fn(&CallReport) + Send + Sync>;

impl CallReport {
    pub(crate) fn new<T>(
        operation: Operation,
        result: &Result<T, Error>,
        latency: Duration,
    ) -> Self {
        let outcome = result.as_ref().map_or_else(|error| error.kind.label(), |_| "ok");
        Self { operation, outcome, latency }
    }
}
