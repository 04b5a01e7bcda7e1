//! One simulated host: what it is doing, and how it looks on the wire. Time is an argument.

use std::net::Ipv4Addr;

use applecart_api::credential::SEALED;
use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{ProjectId, ServerStatus};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::answer::time;
use super::catalogue::Image;
use super::seeded::{ORGANIZATION, Seeded};
use super::settings::{NewPassword, Shown};

/// What a host is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// This, until somebody changes it.
    Steady(ServerStatus),
    /// This, and then ready.
    Passing(ServerStatus, Timestamp),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Commitment {
    Day,
    Monthly { cancelled: bool },
    None,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vpc {
    Steady { enabled: bool },
    Updating { enabled: bool, until: Timestamp },
}

/// One host.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub id: ServerId,
    pub name: String,
    pub server_type: String,
    pub project: ProjectId,
    pub zone: Zone,
    /// What is told of the system: see `Unsure::os_follows_reinstall`.
    pub image: Image,
    pub ip: Ipv4Addr,
    pub phase: Phase,
    pub delivered: bool,
    pub deletion_scheduled: bool,
    pub commitment: Commitment,
    pub vpc: Vpc,
    pub bandwidth: u64,
    pub kext_enabled: bool,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    pub deletable_at: Timestamp,
    /// How often it was wiped. Others read it to know that a Mac starts afresh.
    pub wipes: u64,
    /// How often its power was cut. A wipe cuts it too.
    pub power_cycles: u64,
    /// The wipe that the present password is from.
    pub password_wipe: u64,
}

impl Host {
    pub(super) fn status(&self) -> &ServerStatus {
        match &self.phase {
            Phase::Steady(status) | Phase::Passing(status, _) => status,
        }
    }

    /// When something happens by itself next.
    pub(super) fn due(&self) -> Option<Timestamp> {
        let phase = match self.phase {
            Phase::Passing(_, until) => Some(until),
            Phase::Steady(_) => None,
        };
        let vpc = match self.vpc {
            Vpc::Updating { until, .. } => Some(until),
            Vpc::Steady { .. } => None,
        };
        let deletion = self.deletion_scheduled.then_some(self.deletable_at);
        [phase, vpc, deletion].into_iter().flatten().min()
    }

    /// Everything that has happened by itself until `now`, but for a deletion.
    pub(super) fn settle(&mut self, now: Timestamp, new_password: NewPassword) {
        if let Phase::Passing(_, until) = self.phase
            && until <= now
        {
            self.phase = Phase::Steady(ServerStatus::Ready);
            self.delivered = true;
            self.updated_at = self.updated_at.max(until);
            if new_password == NewPassword::WhenReady {
                self.password_wipe = self.wipes;
            }
        }
        if let Vpc::Updating { enabled, until } = self.vpc
            && until <= now
        {
            self.vpc = Vpc::Steady { enabled };
            self.updated_at = self.updated_at.max(until);
        }
    }

    /// Its disk is emptied and its power cut.
    pub(super) fn wipe(&mut self, until: Timestamp, new_password: NewPassword) {
        self.wipes += 1;
        self.power_cycles += 1;
        self.phase = Phase::Passing(ServerStatus::Reinstalling, until);
        if new_password == NewPassword::AtOnce {
            self.password_wipe = self.wipes;
        }
    }

    /// Its power is cut.
    pub(super) fn reboot(&mut self, until: Timestamp) {
        self.power_cycles += 1;
        self.phase = Phase::Passing(ServerStatus::Rebooting, until);
    }

    pub(super) fn password(&self, seeded: Seeded) -> String {
        seeded.password(&self.id, self.password_wipe)
    }

    /// The password that a wipe has written to the disk, which the API may not tell yet.
    pub(super) fn password_on_disk(&self, seeded: Seeded, new_password: NewPassword) -> String {
        match new_password {
            NewPassword::WhenReady | NewPassword::AtOnce => seeded.password(&self.id, self.wipes),
            NewPassword::Never => self.password(seeded),
        }
    }

    pub(super) fn to_json(&self, seeded: Seeded, shown: Shown) -> Value {
        let vnc_url = |password: &str| format!("vnc://{USER}:{password}@{}:{VNC_PORT}", self.ip);
        let (sudo_password, vnc_url) = match shown {
            Shown::Sealed => (SEALED.to_owned(), SEALED.to_owned()),
            Shown::Empty => (String::new(), String::new()),
            Shown::Plain => {
                let password = self.password(seeded);
                let url = vnc_url(&password);
                (password, url)
            }
            Shown::VncOnly => (String::new(), vnc_url(&self.password(seeded))),
        };
        json!({
            "id": self.id, "type": self.server_type, "name": self.name,
            "project_id": self.project, "organization_id": ORGANIZATION,
            "ip": self.ip, "vnc_url": vnc_url, "ssh_username": USER,
            "sudo_password": sudo_password, "vnc_port": VNC_PORT,
            "os": self.image.inside_server(), "status": self.status().as_str(),
            "created_at": time(self.created_at), "updated_at": time(self.updated_at),
            "deletable_at": time(self.deletable_at),
            "deletion_scheduled": self.deletion_scheduled,
            "zone": self.zone, "delivered": self.delivered, "vpc_status": self.vpc_status(),
            "commitment": self.commitment_json(), "public_bandwidth_bps": self.bandwidth,
            "runner_configuration": null, "tags": [], "applied_runner_configuration_ids": [],
            "kext_enabled": self.kext_enabled,
        })
    }

    fn vpc_status(&self) -> &'static str {
        match self.vpc {
            Vpc::Updating { .. } => "vpc_updating",
            Vpc::Steady { enabled: true } => "vpc_enabled",
            Vpc::Steady { enabled: false } => "vpc_disabled",
        }
    }

    fn commitment_json(&self) -> Value {
        match self.commitment {
            Commitment::Day => json!({"type": "duration_24h", "cancelled": false}),
            Commitment::Monthly { cancelled } => {
                json!({"type": "renewed_monthly", "cancelled": cancelled})
            }
            Commitment::None => json!({"type": "none", "cancelled": false}),
        }
    }
}

/// Whom one logs in as, on every kind.
pub(super) const USER: &str = "m1";

/// Where its screen is shared, as observed.
const VNC_PORT: u16 = 59_010;
