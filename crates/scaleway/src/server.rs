//! A host as Scaleway describes it.

use std::convert::Infallible;
use std::fmt;
use std::net::IpAddr;

use applecart_api::ids::{ServerId, Zone};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Deserialize, Deserializer};

use crate::catalogue::Os;
use crate::credentials;
use crate::ids::ProjectId;

/// What a host is doing.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerStatus {
    /// Scaleway does not know.
    UnknownStatus,
    /// Being delivered.
    Starting,
    /// Up, as far as Scaleway can tell.
    Ready,
    /// Broken.
    Error,
    /// In a power cycle.
    Rebooting,
    /// Being changed.
    Updating,
    /// About to be locked by Scaleway.
    Locking,
    /// Locked by Scaleway.
    Locked,
    /// About to be unlocked.
    Unlocking,
    /// Being wiped and installed anew.
    Reinstalling,
    /// Busy with something that has no name.
    Busy,
    /// A state that this client does not know.
    Other(String),
}

impl ServerStatus {
    /// The state as Scaleway spells it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::UnknownStatus => "unknown_status",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Error => "error",
            Self::Rebooting => "rebooting",
            Self::Updating => "updating",
            Self::Locking => "locking",
            Self::Locked => "locked",
            Self::Unlocking => "unlocking",
            Self::Reinstalling => "reinstalling",
            Self::Busy => "busy",
            Self::Other(text) => text,
        }
    }

    /// Passes by itself. A state that we do not know counts as one: it is waited for, not acted on.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Starting
            | Self::Rebooting
            | Self::Updating
            | Self::Locking
            | Self::Unlocking
            | Self::Reinstalling
            | Self::Busy
            | Self::Other(_) => true,
            Self::UnknownStatus | Self::Ready | Self::Error | Self::Locked => false,
        }
    }
}

impl From<&str> for ServerStatus {
    fn from(text: &str) -> Self {
        match text {
            "" | "unknown_status" => Self::UnknownStatus,
            "starting" => Self::Starting,
            "ready" => Self::Ready,
            "error" => Self::Error,
            "rebooting" => Self::Rebooting,
            "updating" => Self::Updating,
            "locking" => Self::Locking,
            "locked" => Self::Locked,
            "unlocking" => Self::Unlocking,
            "reinstalling" => Self::Reinstalling,
            "busy" => Self::Busy,
            other => Self::Other(other.to_owned()),
        }
    }
}

impl std::str::FromStr for ServerStatus {
    type Err = Infallible;
    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(text.into())
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One host.
#[derive(Clone, Debug)]
pub struct Server {
    /// Which host.
    pub id: ServerId,
    /// Its name: anybody may change it, the last one wins.
    pub name: String,
    /// Its kind, such as `M4-M`.
    pub server_type: String,
    /// Where it stands.
    pub zone: Zone,
    /// Whose it is.
    pub project_id: ProjectId,
    /// What it is doing.
    pub status: ServerStatus,
    /// Handed over once; never goes back, not even while it is installed anew.
    pub delivered: bool,
    /// Goes at `deletable_at`.
    pub deletion_scheduled: bool,
    /// The system that was installed first, not necessarily the present one.
    pub os: Option<Os>,
    /// Its address, if it has one yet.
    pub ip: Option<IpAddr>,
    /// Whom to log in as, if told.
    pub ssh_username: Option<String>,
    /// The password for log-in and `sudo`. `None` when sealed or empty, and in every answer but
    /// that of [`crate::Client::server`].
    pub password: Option<SecretString>,
    /// When it was ordered.
    pub created_at: Option<Timestamp>,
    /// When it last changed.
    pub updated_at: Option<Timestamp>,
    /// The end of the licensing floor: not deletable before.
    pub deletable_at: Option<Timestamp>,
}

/// Whether an answer may carry credentials.
#[derive(Clone, Copy)]
pub(crate) enum Credentials {
    Fresh,
    Never,
}

impl Server {
    pub(crate) fn from_wire(wire: Wire, credentials: Credentials) -> Self {
        let password = match credentials {
            Credentials::Fresh => credentials::password(&wire.sudo_password, &wire.vnc_url),
            Credentials::Never => None,
        };
        Self {
            id: wire.id,
            name: wire.name,
            server_type: wire.r#type,
            zone: wire.zone,
            project_id: wire.project_id,
            status: wire.status.as_str().into(),
            delivered: wire.delivered,
            deletion_scheduled: wire.deletion_scheduled,
            os: wire.os,
            ip: wire.ip.parse().ok(),
            ssh_username: Some(wire.ssh_username).filter(|name| !name.is_empty()),
            password,
            created_at: wire.created_at,
            updated_at: wire.updated_at,
            deletable_at: wire.deletable_at,
        }
    }
}

/// The fields that we read. What decides over a host must be there; the rest may be missing.
#[derive(Deserialize)]
pub(crate) struct Wire {
    pub id: ServerId,
    name: String,
    r#type: String,
    zone: Zone,
    project_id: ProjectId,
    status: String,
    delivered: bool,
    #[serde(default)]
    deletion_scheduled: bool,
    os: Option<Os>,
    #[serde(default, deserialize_with = "null_is_empty")]
    ip: String,
    #[serde(default, deserialize_with = "null_is_empty")]
    ssh_username: String,
    #[serde(default, deserialize_with = "null_is_empty_secret")]
    sudo_password: SecretString,
    #[serde(default, deserialize_with = "null_is_empty_secret")]
    vnc_url: SecretString,
    created_at: Option<Timestamp>,
    updated_at: Option<Timestamp>,
    deletable_at: Option<Timestamp>,
}

fn null_is_empty<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

fn null_is_empty_secret<'de, D: Deserializer<'de>>(from: D) -> Result<SecretString, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}
