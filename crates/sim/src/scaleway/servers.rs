//! The operations on servers, images and kinds, as the real service answers them.

use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{ProjectId, ServerStatus};
use jiff::{Timestamp, ToSpan, tz::TimeZone};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{Answer, Performed};
use super::catalogue::{self, Image};
use super::host::{Commitment, Host, Phase, Vpc};
use super::route::{Query, body};
use super::seeded::ORGANIZATION;
use super::settings::{Accepts, Gone, Shown};
use super::state::{NewHost, State};

/// The longest name, where names are restricted.
const NAME_MAX: usize = 63;

/// The commitment that is renewed by itself.
const MONTHLY: &str = "renewed_monthly";

#[derive(Deserialize)]
struct CreateBody {
    #[serde(default)]
    name: String,
    project_id: ProjectId,
    r#type: String,
    os_id: Option<String>,
    #[serde(default)]
    enable_vpc: bool,
    /// A bare word here; an object in an update.
    #[serde(default)]
    commitment_type: String,
    #[serde(default)]
    public_bandwidth_bps: u64,
    #[serde(default)]
    enable_kext: bool,
    applied_runner_configurations: Option<Value>,
    /// Of a batch.
    #[serde(default)]
    requests: Vec<BatchItem>,
}

#[derive(Deserialize)]
struct BatchItem {
    name: String,
}

#[derive(Deserialize)]
struct UpdateBody {
    name: Option<String>,
    schedule_deletion: Option<bool>,
    enable_vpc: Option<bool>,
    commitment_type: Option<CommitmentBody>,
    public_bandwidth_bps: Option<u64>,
    applied_runner_configurations: Option<Value>,
}

#[derive(Deserialize)]
struct CommitmentBody {
    commitment_type: String,
}

#[derive(Deserialize)]
struct ReinstallBody {
    os_id: Option<String>,
    #[serde(default)]
    enable_kext: bool,
}

impl State {
    pub(super) fn list_servers(&self, zone: &Zone, query: &Query) -> Performed {
        let foreign = |name, own: &str| query.get(name).is_some_and(|value| value != own);
        if foreign("project_id", self.settings.project.as_str())
            || foreign("organization_id", ORGANIZATION)
        {
            return Err(Answer::denied("read", "server"));
        }
        let ours = |host: &&Host| host.zone == *zone && host.project == self.settings.project;
        let mut hosts: Vec<&Host> =
            self.order.iter().map(|id| &self.hosts[id]).filter(ours).collect();
        match query.get("order_by").unwrap_or("created_at_asc") {
            "created_at_asc" => {}
            "created_at_desc" => hosts.reverse(),
            _ => return Err(Answer::invalid("order_by", "constraint", "unknown order")),
        }
        let shown = self.settings.unsure.list_credentials;
        let page = query.page(&self.settings)?.of(&hosts);
        let page: Vec<Value> = page.iter().map(|host| host.to_json(self.seeded(), shown)).collect();
        Ok(Answer::ok(&json!({"servers": page, "total_count": hosts.len()})))
    }

    pub(super) fn get_server(&self, zone: &Zone, id: &ServerId) -> Performed {
        Ok(self.answer(self.find(zone, id, "read")?, self.settings.unsure.get_credentials))
    }

    pub(super) fn create_server(&mut self, zone: &Zone, bytes: &[u8]) -> Performed {
        let wanted: CreateBody = body(bytes)?;
        let id = self.create(zone, &wanted, &[&wanted.name])?.remove(0);
        Ok(self.answer(&self.hosts[&id], Shown::Sealed))
    }

    pub(super) fn batch_create(&mut self, zone: &Zone, bytes: &[u8]) -> Performed {
        let wanted: CreateBody = body(bytes)?;
        let names: Vec<&str> = wanted.requests.iter().map(|item| item.name.as_str()).collect();
        let ids = self.create(zone, &wanted, &names)?;
        let json = |id| self.hosts[id].to_json(self.seeded(), Shown::Sealed);
        let servers: Vec<Value> = ids.iter().map(json).collect();
        Ok(Answer::ok(&json!({"servers": servers})))
    }

    /// All of them or none.
    fn create(
        &mut self,
        zone: &Zone,
        wanted: &CreateBody,
        names: &[&str],
    ) -> Result<Vec<ServerId>, Answer> {
        if wanted.project_id != self.settings.project {
            return Err(Answer::denied("write", "server"));
        }
        let kind = catalogue::kinds_in(zone.as_str()).find(|kind| kind.name == wanted.r#type);
        let kind =
            kind.ok_or_else(|| Answer::invalid("type", "constraint", "not offered in this zone"))?;
        no_runners(wanted.applied_runner_configurations.as_ref())?;
        let bandwidth = bandwidth(kind, wanted.public_bandwidth_bps)?;
        let is_monthly = is_monthly(kind, &wanted.commitment_type)?;
        let default = self.default_image(kind.name).map(|image| image.id.clone());
        let image = self.wanted_image(wanted.os_id.as_deref(), kind.name)?.clone();
        self.check_batch(names)?;
        self.check_room(zone, kind.name, names.len())?;
        let durations = self.settings.durations;
        let is_default = default.as_ref() == Some(&image.id);
        let takes = if is_default { durations.starting } else { durations.starting_other_os };
        let until = self.later(takes);
        let vpc = if wanted.enable_vpc {
            Vpc::Updating { enabled: true, until }
        } else {
            Vpc::Steady { enabled: false }
        };
        let now = self.now;
        let ids = names.iter().map(|name| {
            let id = self.order(NewHost {
                name: (*name).to_owned(),
                server_type: kind.name.to_owned(),
                zone: zone.clone(),
                project: wanted.project_id.clone(),
                image: image.clone(),
                phase: Phase::Passing(ServerStatus::Starting, until),
                vpc,
                bandwidth,
                kext_enabled: wanted.enable_kext,
                created_at: now,
            });
            if is_monthly {
                commit(self.hosts.get_mut(&id).expect("just ordered"), MONTHLY, now)?;
            }
            Ok(id)
        });
        ids.collect()
    }

    /// Whether servers of these names can be made at once.
    fn check_batch(&self, names: &[&str]) -> Result<(), Answer> {
        let unique = self.settings.unsure.duplicate_names == Accepts::No;
        for (number, name) in names.iter().enumerate() {
            self.check_name(name, None)?;
            if unique && names[..number].contains(name) {
                return Err(Answer::invalid("requests", "constraint", "one name twice"));
            }
        }
        Ok(())
    }

    /// Whether so many more may be had; takes them from the stock.
    fn check_room(&mut self, zone: &Zone, kind: &str, more: usize) -> Result<(), Answer> {
        let project = &self.settings.project;
        let same = |host: &&Host| {
            host.server_type == kind && host.zone == *zone && host.project == *project
        };
        let current = self.hosts.values().filter(same).count();
        if let Some(quota) = self.settings.quotas.get(kind)
            && current + more > *quota
        {
            let resource = format!("apple_silicon_{}", kind.to_lowercase().replace('-', "_"));
            return Err(Answer::quota(&resource, *quota, current));
        }
        let left = self.stock(zone, kind).checked_sub(more);
        let left = left.ok_or_else(|| Answer::out_of_stock("server"))?;
        self.stock.insert((zone.clone(), kind.to_owned()), left);
        Ok(())
    }

    fn wanted_image(&self, id: Option<&str>, kind: &str) -> Result<&Image, Answer> {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return self.default_image(kind).ok_or_else(|| Answer::not_found("os", ""));
        };
        let image = self.image(id).ok_or_else(|| Answer::not_found("os", id))?;
        if image.runs_on(kind) {
            Ok(image)
        } else {
            Err(Answer::invalid("os_id", "constraint", "not available for this server type"))
        }
    }

    fn check_name(&self, name: &str, own: Option<&ServerId>) -> Result<(), Answer> {
        let unsure = self.settings.unsure;
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
        let is_plain = !name.is_empty() && name.len() <= NAME_MAX && name.chars().all(fits);
        if unsure.free_names == Accepts::No && !is_plain {
            return Err(Answer::invalid("name", "format", "letters, digits, dash, dot; up to 63"));
        }
        if unsure.duplicate_names == Accepts::Yes {
            return Ok(());
        }
        let project = &self.settings.project;
        let taken =
            |host: &&Host| host.name == name && host.project == *project && Some(&host.id) != own;
        match self.hosts.values().find(taken) {
            Some(host) => Err(Answer::already_exists("server", host.id.as_str())),
            None => Ok(()),
        }
    }

    pub(super) fn update_server(&mut self, zone: &Zone, id: &ServerId, bytes: &[u8]) -> Performed {
        let change: UpdateBody = body(bytes)?;
        self.changeable(zone, id, "write", self.settings.unsure.update_while_transient)?;
        if let Some(name) = &change.name {
            self.check_name(name, Some(id))?;
        }
        no_runners(change.applied_runner_configurations.as_ref())?;
        let kind = catalogue::kind_of(&self.hosts[id].server_type).expect("one of ours");
        let wanted = change.public_bandwidth_bps.map(|wanted| bandwidth(kind, wanted));
        let wanted = wanted.transpose()?;
        let now = self.now;
        let until = self.later(self.settings.durations.vpc_updating);
        let host = self.hosts.get_mut(id).expect("found above");
        if let Some(commitment) = &change.commitment_type {
            commit(host, &commitment.commitment_type, now)?;
        }
        host.name = change.name.unwrap_or_else(|| host.name.clone());
        host.deletion_scheduled = change.schedule_deletion.unwrap_or(host.deletion_scheduled);
        host.bandwidth = wanted.unwrap_or(host.bandwidth);
        if let Some(enabled) = change.enable_vpc {
            host.vpc = Vpc::Updating { enabled, until };
        }
        Ok(self.changed_answer(id, Shown::Sealed))
    }

    pub(super) fn delete_server(&mut self, zone: &Zone, id: &ServerId) -> Performed {
        self.changeable(zone, id, "delete", self.settings.unsure.delete_while_transient)?;
        let deletable_at = self.hosts[id].deletable_at;
        if self.now < deletable_at {
            return Err(Answer::too_early(deletable_at));
        }
        self.remove(id);
        Ok(Answer::no_content())
    }

    pub(super) fn reboot_server(&mut self, zone: &Zone, id: &ServerId) -> Performed {
        self.changeable(zone, id, "write", self.settings.unsure.reboot_while_transient)?;
        let until = self.later(self.settings.durations.rebooting);
        self.hosts.get_mut(id).expect("found above").reboot(until);
        Ok(self.changed_answer(id, Shown::Sealed))
    }

    pub(super) fn reinstall_server(
        &mut self,
        zone: &Zone,
        id: &ServerId,
        bytes: &[u8],
    ) -> Performed {
        let wanted: ReinstallBody = body(bytes)?;
        let unsure = self.settings.unsure;
        self.changeable(zone, id, "write", unsure.reinstall_while_transient)?;
        let host = &self.hosts[id];
        let image = self.wanted_image(wanted.os_id.as_deref(), &host.server_type)?.clone();
        if image.is_linux() != host.image.is_linux() {
            return Err(Answer::invalid("os_id", "constraint", "macOS stays macOS"));
        }
        let until = self.later(self.settings.durations.reinstalling);
        let host = self.hosts.get_mut(id).expect("found above");
        host.wipe(until, unsure.new_password);
        host.kext_enabled = wanted.enable_kext;
        if unsure.os_follows_reinstall == Accepts::Yes {
            host.image = image;
        }
        Ok(self.changed_answer(id, unsure.reinstall_credentials))
    }

    pub(super) fn list_os(&self, query: &Query) -> Performed {
        let images: Vec<&Image> = self
            .images
            .iter()
            .filter(|image| query.get("server_type").is_none_or(|kind| image.runs_on(kind)))
            .filter(|image| query.get("name").is_none_or(|name| image.name.starts_with(name)))
            .collect();
        let page = query.page(&self.settings)?.of(&images);
        let page: Vec<Value> = page.iter().map(|image| image.to_json()).collect();
        Ok(Answer::ok(&json!({"os": page, "total_count": images.len()})))
    }

    pub(super) fn get_os(&self, id: &str) -> Performed {
        let image = self.image(id).ok_or_else(|| Answer::not_found("os", id))?;
        Ok(Answer::ok(&image.to_json()))
    }

    pub(super) fn list_server_types(&self, zone: &Zone) -> Answer {
        let kinds: Vec<Value> =
            catalogue::kinds_in(zone.as_str()).map(|kind| self.kind_json(zone, *kind)).collect();
        Answer::ok(&json!({"server_types": kinds}))
    }

    pub(super) fn get_server_type(&self, zone: &Zone, name: &str) -> Performed {
        let kind = catalogue::kinds_in(zone.as_str()).find(|kind| kind.name == name);
        let kind = kind.ok_or_else(|| Answer::not_found("server_type", name))?;
        Ok(Answer::ok(&self.kind_json(zone, *kind)))
    }

    fn kind_json(&self, zone: &Zone, kind: catalogue::Kind) -> Value {
        kind.to_json(self.stock_word(zone, kind.name), self.default_image(kind.name))
    }

    fn find(&self, zone: &Zone, id: &ServerId, action: &str) -> Result<&Host, Answer> {
        if self.gone.contains(id) {
            return Err(match self.settings.unsure.gone {
                Gone::Permission => Answer::denied(action, "server"),
                Gone::NotFound => Answer::not_found("server", id.as_str()),
            });
        }
        match self.hosts.get(id).filter(|host| host.zone == *zone) {
            None => Err(Answer::not_found("server", id.as_str())),
            Some(host) if host.project != self.settings.project => {
                Err(Answer::denied(action, "server"))
            }
            Some(host) => Ok(host),
        }
    }

    /// Finds a host and refuses to change it while it is locked, or busy and that matters.
    fn changeable(
        &self,
        zone: &Zone,
        id: &ServerId,
        action: &str,
        while_transient: Accepts,
    ) -> Result<(), Answer> {
        let status = self.find(zone, id, action)?.status();
        if *status == ServerStatus::Locked {
            return Err(Answer::locked(id.as_str()));
        }
        if status.is_transient() && while_transient == Accepts::No {
            return Err(Answer::transient(id.as_str(), status.as_str()));
        }
        Ok(())
    }

    fn changed_answer(&mut self, id: &ServerId, shown: Shown) -> Answer {
        self.hosts.get_mut(id).expect("just changed").updated_at = self.now;
        self.changed(id);
        self.answer(&self.hosts[id], shown)
    }

    fn answer(&self, host: &Host, shown: Shown) -> Answer {
        Answer::ok(&host.to_json(self.seeded(), shown))
    }
}

/// The bandwidth of a kind, if it has the one that is wanted.
fn bandwidth(kind: &catalogue::Kind, wanted: u64) -> Result<u64, Answer> {
    let refused = || Answer::invalid("public_bandwidth_bps", "constraint", "not of this type");
    kind.bandwidth(wanted).ok_or_else(refused)
}

/// Whether a new server is committed to for a month, not for its kind's shortest time. A customer
/// cannot do without that.
fn is_monthly(kind: &catalogue::Kind, commitment: &str) -> Result<bool, Answer> {
    match commitment {
        "" | "duration_24h" => Ok(false),
        MONTHLY => Ok(true),
        "none" if !kind.has_floor() => Ok(false),
        _ => Err(Answer::invalid("commitment_type", "constraint", "duration_24h, renewed_monthly")),
    }
}

/// Runners are not simulated, so that none can be applied to a server.
fn no_runners(wanted: Option<&Value>) -> Result<(), Answer> {
    let ids = wanted.and_then(|wanted| wanted["runner_configuration_ids"].as_array());
    match ids {
        Some(ids) if !ids.is_empty() => Err(Answer::not_found("runner_configuration", "")),
        _ => Ok(()),
    }
}

/// A month from now, or no renewal after it. There is no way back to a day.
fn commit(host: &mut Host, kind: &str, now: Timestamp) -> Result<(), Answer> {
    match (kind, host.commitment) {
        (MONTHLY, _) => {
            let month = now.to_zoned(TimeZone::UTC).saturating_add(1.month());
            host.commitment = Commitment::Monthly { cancelled: false };
            host.deletable_at = month.timestamp();
            Ok(())
        }
        ("none", Commitment::Monthly { .. }) => {
            host.commitment = Commitment::Monthly { cancelled: true };
            Ok(())
        }
        _ => Err(Answer::invalid("commitment_type", "constraint", "not from this commitment")),
    }
}
