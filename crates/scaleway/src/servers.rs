//! The operations on hosts.

use applecart_api::ids::{ServerId, Zone};
use serde::Serialize;

use crate::call::Operation;
use crate::catalogue::zone_path;
use crate::client::{Client, Request};
use crate::error::Error;
use crate::ids::{OsId, ProjectId};
use crate::pages::Listed;
use crate::server::{Credentials, Server, Wire};

/// A host to order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// The name that it is created under.
    pub name: String,
    /// Its kind, such as `M4-M`.
    pub server_type: String,
    /// What it is installed with; the kind's default if `None`.
    pub os: Option<OsId>,
}

#[derive(Serialize)]
struct CreateBody<'a> {
    name: &'a str,
    project_id: &'a ProjectId,
    r#type: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    os_id: Option<&'a OsId>,
    enable_vpc: bool,
    public_bandwidth_bps: u64,
    enable_kext: bool,
}

#[derive(Serialize)]
struct ReinstallBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    os_id: Option<&'a OsId>,
    enable_kext: bool,
}

#[derive(Serialize)]
struct RenameBody<'a> {
    name: &'a str,
}

#[derive(Serialize)]
struct ScheduleBody {
    schedule_deletion: bool,
}

#[derive(Serialize)]
struct Empty {}

impl Listed for Wire {
    fn id(&self) -> &str {
        self.id.as_str()
    }
}

impl Client {
    /// All hosts of the project in a zone: whole, or an error.
    pub async fn list_servers(&self, zone: &Zone) -> Result<Vec<Server>, Error> {
        let request = Request::get(Operation::ListServers, zone_path(zone, "servers"))
            .query("order_by", "created_at_asc")
            .query("project_id", self.project().as_str());
        let servers: Vec<Wire> = self.all_pages(&request).await?;
        let bare = |wire| Server::from_wire(wire, Credentials::Never);
        Ok(servers.into_iter().map(bare).collect())
    }

    /// One host, read now. The only answer that carries its password.
    pub async fn server(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        let request = Request::get(Operation::GetServer, server_path(zone, id, ""));
        let wire = self.read(&request).await?;
        Ok(Server::from_wire(wire, Credentials::Fresh))
    }

    /// Orders a host. It costs money from now on, and for at least a day.
    pub async fn create(&self, zone: &Zone, order: &Order) -> Result<Server, Error> {
        let body = CreateBody {
            name: &order.name,
            project_id: self.project(),
            r#type: &order.server_type,
            os_id: order.os.as_ref(),
            enable_vpc: false,
            public_bandwidth_bps: 0,
            enable_kext: false,
        };
        let path = zone_path(zone, "servers");
        self.change(&Request::post(Operation::CreateServer, path, &body)).await
    }

    /// Gives a host another name, whatever it is called now: the last rename wins.
    pub async fn rename(&self, zone: &Zone, id: &ServerId, name: &str) -> Result<Server, Error> {
        let path = server_path(zone, id, "");
        self.change(&Request::patch(Operation::RenameServer, path, &RenameBody { name })).await
    }

    /// Lets Scaleway delete a host as soon as its licensing floor ends.
    pub async fn schedule_deletion(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        let path = server_path(zone, id, "");
        let body = ScheduleBody { schedule_deletion: true };
        self.change(&Request::patch(Operation::ScheduleDeletion, path, &body)).await
    }

    /// Deletes a host. [`crate::ErrorKind::Precondition`] inside the licensing floor.
    pub async fn delete(&self, zone: &Zone, id: &ServerId) -> Result<(), Error> {
        let path = server_path(zone, id, "");
        self.remove(&Request::delete(Operation::DeleteServer, path)).await
    }

    /// Cycles a host's power.
    pub async fn reboot(&self, zone: &Zone, id: &ServerId) -> Result<Server, Error> {
        let path = server_path(zone, id, "/reboot");
        self.change(&Request::post(Operation::RebootServer, path, &Empty {})).await
    }

    /// Wipes a host and installs it anew, with its kind's default system if `os` is `None`.
    pub async fn reinstall(
        &self,
        zone: &Zone,
        id: &ServerId,
        os: Option<&OsId>,
    ) -> Result<Server, Error> {
        let path = server_path(zone, id, "/reinstall");
        let body = ReinstallBody { os_id: os, enable_kext: false };
        self.change(&Request::post(Operation::ReinstallServer, path, &body)).await
    }

    async fn change(&self, request: &Request) -> Result<Server, Error> {
        let wire = self.write(request).await?;
        Ok(Server::from_wire(wire, Credentials::Never))
    }
}

fn server_path(zone: &Zone, id: &ServerId, rest: &str) -> String {
    zone_path(zone, &format!("servers/{id}{rest}"))
}
