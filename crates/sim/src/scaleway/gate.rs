//! What every call passes: it may be let through, failed, delayed, or never be answered.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use serde::{Deserialize, Serialize};

use super::answer::Answer;

macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident = $label:literal, $read:literal;)*) => {
        /// One operation of the API, by Scaleway's own name for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Operation {
            $($(#[$doc])* $name,)*
        }

        impl Operation {
            /// Every operation that is simulated.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Its name in rules and counts.
            #[must_use]
            pub fn label(self) -> &'static str {
                match self { $(Self::$name => $label,)* }
            }

            /// Changes nothing.
            #[must_use]
            pub fn is_read(self) -> bool {
                match self { $(Self::$name => $read,)* }
            }
        }
    };
}

operations! {
    /// All servers of a zone.
    ListServers = "list_servers", true;
    /// One server, with its credentials.
    GetServer = "get_server", true;
    /// A new server.
    CreateServer = "create_server", false;
    /// Several new servers, all or none.
    BatchCreateServers = "batch_create_servers", false;
    /// A rename, a scheduled deletion, another commitment or network.
    UpdateServer = "update_server", false;
    /// A deletion.
    DeleteServer = "delete_server", false;
    /// A power cycle.
    RebootServer = "reboot_server", false;
    /// A wipe.
    ReinstallServer = "reinstall_server", false;
    /// All images.
    ListOs = "list_os", true;
    /// One image.
    GetOs = "get_os", true;
    /// All kinds of servers.
    ListServerTypes = "list_server_types", true;
    /// One kind of server.
    GetServerType = "get_server_type", true;
    /// All SSH keys.
    ListSshKeys = "list_ssh_keys", true;
    /// One SSH key.
    GetSshKey = "get_ssh_key", true;
    /// A new SSH key.
    CreateSshKey = "create_ssh_key", false;
    /// Another name for an SSH key, or switching it off.
    UpdateSshKey = "update_ssh_key", false;
    /// An SSH key goes.
    DeleteSshKey = "delete_ssh_key", false;
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Operation {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|operation| operation.label() == text);
        found.copied().ok_or_else(|| format!("there is no operation {text:?}"))
    }
}

/// A call on its way in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What is asked.
    pub operation: Operation,
    /// In which zone; SSH keys have none.
    pub zone: Option<Zone>,
    /// Of which server, if of one.
    pub server: Option<ServerId>,
}

/// What becomes of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// It is performed and answered.
    #[default]
    Pass,
    /// It arrives this much later, and is performed then even if the caller has given up.
    Delay(Duration),
    /// It is not performed; this is the answer.
    FailBefore(Answer),
    /// The caller cannot connect: not performed.
    Unreachable,
    /// Not performed; the connection breaks.
    LoseBefore,
    /// Performed; the connection breaks before the answer.
    LoseAfter,
    /// Not performed, never answered.
    HangBefore,
    /// Performed, never answered.
    HangAfter,
}

/// Judges every call. It is performed, if at all, right after the verdict, without a pause between.
pub trait Gate: Send + Sync {
    /// What becomes of this call.
    fn judge(&self, call: &Call) -> Verdict;
}

/// Lets everything through.
#[derive(Clone, Copy, Debug, Default)]
pub struct Open;

impl Gate for Open {
    fn judge(&self, _: &Call) -> Verdict {
        Verdict::Pass
    }
}
