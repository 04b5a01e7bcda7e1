//! What can be had: operating-system images and kinds of servers.

use applecart_api::ids::Zone;
use serde::Deserialize;

use crate::call::Operation;
use crate::client::{Client, Request};
use crate::error::Error;
use crate::ids::OsId;
use crate::pages::Listed;

/// An operating-system image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Os {
    /// Which image.
    pub id: OsId,
    /// Its name, such as `macos-sequoia-15.6`.
    pub name: String,
    /// The same for people, such as `macOS Sequoia 15.6`.
    #[serde(default)]
    pub label: String,
    /// Its family, such as `Sequoia`.
    #[serde(default)]
    pub family: String,
    /// Its version, such as `15.6.1`.
    #[serde(default)]
    pub version: String,
    /// The Xcode in it, or `None` in so many letters.
    #[serde(default)]
    pub xcode_version: String,
    /// Not released yet.
    #[serde(default)]
    pub is_beta: bool,
    /// Where it runs. Empty on the image inside a server.
    #[serde(default)]
    pub supported_server_types: Vec<SupportedServerType>,
}

/// A kind of server that an image runs on.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct SupportedServerType {
    /// The kind.
    pub server_type: String,
    /// Delivered in minutes; otherwise in about an hour.
    #[serde(default)]
    pub fast_delivery_available: bool,
}

/// How many of a kind are to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stock {
    /// None.
    NoStock,
    /// A few.
    LowStock,
    /// Many.
    HighStock,
    /// Not told, or told in a word that we do not know.
    #[serde(other)]
    UnknownStock,
}

/// A kind of server.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ServerType {
    /// Its name, such as `M4-M`.
    pub name: String,
    /// How many are to be had.
    pub stock: Stock,
    /// What it is installed with unless told otherwise.
    pub default_os: Option<Os>,
}

impl Listed for Os {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

#[derive(Deserialize)]
struct ServerTypes {
    server_types: Vec<ServerType>,
}

impl Client {
    /// The images that run on a kind of server, or on any.
    pub async fn list_os(&self, zone: &Zone, server_type: Option<&str>) -> Result<Vec<Os>, Error> {
        let mut request = Request::get(Operation::ListOs, zone_path(zone, "os"));
        if let Some(server_type) = server_type {
            request = request.query("server_type", server_type);
        }
        self.all_pages(&request).await
    }

    /// The kinds of servers of a zone, with their stock.
    pub async fn list_server_types(&self, zone: &Zone) -> Result<Vec<ServerType>, Error> {
        let path = zone_path(zone, "server-types");
        let types: ServerTypes = self.read(&Request::get(Operation::ListServerTypes, path)).await?;
        Ok(types.server_types)
    }
}

/// A path of the Apple silicon API in a zone.
pub(crate) fn zone_path(zone: &Zone, rest: &str) -> String {
    format!("/apple-silicon/v1alpha1/zones/{zone}/{rest}")
}
