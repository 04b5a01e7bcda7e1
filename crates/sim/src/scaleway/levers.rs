//! Levers: what a test or a person can do to this world behind the API's back.

use std::net::IpAddr;
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{OsId, ProjectId, ServerStatus, SshKeyId};
use jiff::SignedDuration;
use secrecy::SecretString;
use serde_json::{Value, json};

use super::Scaleway;
use super::gate::{Call, Operation, Verdict};
use super::host::{Host, Phase, USER};
use super::settings::Unsure;
use super::state::State;

/// A host to put into the account, delivered and ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSpec {
    /// Its name.
    pub name: String,
    /// Its kind.
    pub server_type: String,
    /// Where it stands.
    pub zone: Zone,
    /// The name of its image; the kind's default if `None`.
    pub os: Option<String>,
    /// Whose it is; the secret key's project if `None`.
    pub project: Option<ProjectId>,
    /// How long ago it was ordered. Never before one that is there already: lists are in order of
    /// creation, and this one comes last.
    pub ordered_ago: Duration,
}

impl HostSpec {
    /// An M2-L in fr-par-1, two days old.
    #[must_use]
    pub fn named(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            server_type: "M2-L".to_owned(),
            zone: "fr-par-1".parse().expect("a zone"),
            os: None,
            project: None,
            ordered_ago: Duration::from_hours(48),
        }
    }
}

/// A host as an onlooker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostView {
    /// Which host.
    pub id: ServerId,
    /// Its name now.
    pub name: String,
    /// Its kind.
    pub server_type: String,
    /// Where it stands.
    pub zone: Zone,
    /// What it is doing.
    pub status: ServerStatus,
    /// Whether it goes when its floor ends.
    pub deletion_scheduled: bool,
    /// How often it was wiped.
    pub generation: u64,
    /// How often its power was cut, wipes included.
    pub power_cycles: u64,
    /// Its address.
    pub ip: IpAddr,
}

impl HostView {
    pub(super) fn of(host: &Host) -> Self {
        Self {
            id: host.id.clone(),
            name: host.name.clone(),
            server_type: host.server_type.clone(),
            zone: host.zone.clone(),
            status: host.status().clone(),
            deletion_scheduled: host.deletion_scheduled,
            generation: host.wipes,
            power_cycles: host.power_cycles,
            ip: host.ip.into(),
        }
    }
}

/// What it takes to be the Mac at a host's address.
#[derive(Clone, Debug)]
pub struct MacSecrets {
    /// Whom one logs in as.
    pub username: String,
    /// The password that the disk has now: the API may still tell an older one.
    pub password: SecretString,
    /// The seed of its host key.
    pub host_key: [u8; 32],
}

/// What becomes of the n-th call that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    pub(super) operation: Option<Operation>,
    pub(super) server: Option<ServerId>,
    /// The first matching call that it applies to, from 1.
    pub(super) nth: u64,
    /// To how many from there; `None` for all.
    pub(super) times: Option<u64>,
    pub(super) verdict: Verdict,
    /// How many calls have matched so far.
    pub(super) seen: u64,
}

impl Rule {
    /// The next call of this operation.
    #[must_use]
    pub fn next(operation: Operation, verdict: Verdict) -> Self {
        Self { operation: Some(operation), ..Self::any(verdict) }
    }

    /// The next call of any operation.
    #[must_use]
    pub fn any(verdict: Verdict) -> Self {
        Self { operation: None, server: None, nth: 1, times: Some(1), verdict, seen: 0 }
    }

    /// Only calls on this server.
    #[must_use]
    pub fn on(self, server: &ServerId) -> Self {
        Self { server: Some(server.clone()), ..self }
    }

    /// Not the next call, but the n-th from now.
    #[must_use]
    pub fn nth(self, nth: u64) -> Self {
        Self { nth, ..self }
    }

    /// Not one call, but so many in a row.
    #[must_use]
    pub fn times(self, times: u64) -> Self {
        Self { times: Some(times), ..self }
    }

    /// All calls from there on.
    #[must_use]
    pub fn for_ever(self) -> Self {
        Self { times: None, ..self }
    }

    fn judge(&mut self, call: &Call) -> Option<Verdict> {
        let operation = self.operation.is_none_or(|operation| operation == call.operation);
        let server = self.server.is_none() || self.server == call.server;
        if !(operation && server) {
            return None;
        }
        self.seen += 1;
        let over = self.times.map(|times| self.nth.saturating_add(times));
        let applies = self.nth <= self.seen && over.is_none_or(|over| self.seen < over);
        applies.then(|| self.verdict.clone())
    }

    fn is_spent(&self) -> bool {
        self.times.is_some_and(|times| self.seen + 1 >= self.nth.saturating_add(times))
    }
}

impl State {
    /// What the rules make of a call: all that match count it, the first that applies decides.
    pub(super) fn judge(&mut self, call: &Call) -> Option<Verdict> {
        let verdicts: Vec<Verdict> =
            self.rules.iter_mut().filter_map(|rule| rule.judge(call)).collect();
        self.rules.retain(|rule| !rule.is_spent());
        verdicts.into_iter().next()
    }

    /// Changes a host behind the API's back, if it is there.
    pub(super) fn change(&mut self, id: &ServerId, act: impl FnOnce(&mut Host)) -> Option<()> {
        let host = self.hosts.get_mut(id)?;
        act(host);
        host.updated_at = self.now;
        Some(())
    }
}

impl Scaleway {
    /// Puts a host into the account, delivered and ready.
    ///
    /// # Panics
    /// If there is no such kind or image.
    #[allow(clippy::must_use_candidate, reason = "the host is the point, its id may not be")]
    pub fn order_host(&self, spec: &HostSpec) -> ServerId {
        self.try_order(spec).expect("a host that can be ordered")
    }

    /// Says why there can be no such host, if so.
    pub fn could_order(&self, spec: &HostSpec) -> Result<(), String> {
        self.with(|state| state.check_order(spec).map(drop))
    }

    /// Puts a host into the account, or says why there can be no such host.
    pub fn try_order(&self, spec: &HostSpec) -> Result<ServerId, String> {
        self.with(|state| state.pre_order(spec))
    }

    /// All hosts, in order of creation.
    #[must_use]
    pub fn hosts(&self) -> Vec<HostView> {
        self.with(|state| state.order.iter().map(|id| HostView::of(&state.hosts[id])).collect())
    }

    /// One host, if it is there.
    #[must_use]
    pub fn host(&self, id: &ServerId) -> Option<HostView> {
        self.with(|state| state.hosts.get(id).map(HostView::of))
    }

    /// How often a host was wiped; 0 if there is none.
    #[must_use]
    pub fn wipes(&self, id: &ServerId) -> u64 {
        self.with(|state| state.hosts.get(id).map_or(0, |host| host.wipes))
    }

    /// The project's public keys that Macs are given now.
    #[must_use]
    pub fn public_keys(&self) -> Vec<String> {
        self.with(|state| {
            let given = state.keys.iter().filter(|key| !key.disabled);
            given.map(|key| key.public.clone()).collect()
        })
    }

    /// What the Mac at a host's address knows.
    #[must_use]
    pub fn mac_secrets(&self, id: &ServerId) -> Option<MacSecrets> {
        self.with(|state| {
            let (host, seeded) = (state.hosts.get(id)?, state.seeded());
            Some(MacSecrets {
                username: USER.to_owned(),
                password: host.password_on_disk(seeded, state.settings.unsure.new_password).into(),
                host_key: seeded.host_key(id, host.wipes),
            })
        })
    }

    /// Every password that the Mac of a host had, one for each wipe, and has, which is the last.
    #[must_use]
    pub fn passwords(&self, id: &ServerId) -> Vec<String> {
        self.with(|state| {
            let (seeded, wipes) = (state.seeded(), state.hosts.get(id).map(|host| host.wipes));
            let every = wipes.into_iter().flat_map(|last| 0..=last);
            every.map(|wipe| seeded.password(id, wipe)).collect()
        })
    }

    /// What it takes to be every Mac, for `applecart sim macs`.
    pub(super) fn macs(&self) -> Value {
        self.with(|state| {
            let mac = |id: &ServerId| {
                let (host, seeded) = (&state.hosts[id], state.seeded());
                let new_password = state.settings.unsure.new_password;
                json!({
                    "id": id, "name": host.name, "ip": host.ip, "status": host.status().as_str(),
                    "wipes": host.wipes, "power_cycles": host.power_cycles,
                    "password": host.password_on_disk(seeded, new_password),
                    "host_key": seeded.host_key(id, host.wipes),
                })
            };
            let keys = state.keys.iter().filter(|key| !key.disabled).map(|key| &key.public);
            json!({
                "macs": state.order.iter().map(mac).collect::<Vec<_>>(),
                "keys": keys.collect::<Vec<_>>(),
            })
        })
    }

    /// Renames a host, as a person in the web console would.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn rename_host(&self, id: &ServerId, name: &str) {
        let renamed = self.with(|state| state.change(id, |host| name.clone_into(&mut host.name)));
        renamed.expect("a host to rename");
    }

    /// Deletes a host, whatever its floor, if it is there.
    pub fn delete_host(&self, id: &ServerId) {
        self.with(|state| state.remove(id));
    }

    /// Puts a host into a state until something else changes it.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn set_status(&self, id: &ServerId, status: ServerStatus) {
        let phase = Phase::Steady(status);
        let changed = self.with(|state| state.change(id, |host| host.phase = phase));
        changed.expect("a host to change");
    }

    /// Answers the questions that the facts leave open like this, from now on.
    pub fn set_unsure(&self, unsure: Unsure) {
        self.with(|state| state.settings.unsure = unsure);
    }

    /// Says how long a host may not be deleted yet.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn set_floor(&self, id: &ServerId, left: Duration) {
        let left = SignedDuration::try_from(left).unwrap_or(SignedDuration::MAX);
        self.with(|state| {
            let deletable_at = state.now.saturating_add(left).expect("a duration fits");
            state.change(id, |host| host.deletable_at = deletable_at)
        })
        .expect("a host to change");
    }

    /// Says how many of a kind are left in a zone.
    pub fn set_stock(&self, zone: &Zone, server_type: &str, left: usize) {
        self.with(|state| state.stock.insert((zone.clone(), server_type.to_owned()), left));
    }

    /// Takes an image out of the catalogue, if it is in it.
    pub fn withdraw_image(&self, id: &OsId) {
        self.with(|state| state.images.retain(|image| image.id != id.as_str()));
    }

    /// Disables an SSH key of the project, or enables it again, as a person in the console would.
    ///
    /// # Panics
    /// If there is no such key.
    pub fn disable_key(&self, id: &SshKeyId, disabled: bool) {
        let change = json!({"disabled": disabled}).to_string();
        let changed = self.with(|state| state.update_key(id.as_str(), change.as_bytes()).is_ok());
        assert!(changed, "a key to change");
    }

    /// Makes something of the n-th matching call.
    pub fn add_rule(&self, rule: Rule) {
        self.with(|state| state.rules.push(rule));
    }

    /// The rules that still can apply.
    #[must_use]
    pub fn rules(&self) -> Vec<Rule> {
        self.with(|state| state.rules.clone())
    }

    /// Forgets all rules.
    pub fn clear_rules(&self) {
        self.with(|state| state.rules.clear());
    }

    /// Moves this world ahead of its clock.
    pub fn advance(&self, by: Duration) {
        let by = SignedDuration::try_from(by).unwrap_or(SignedDuration::MAX);
        self.with(|state| state.ahead = state.ahead.saturating_add(by));
        self.with(|_| ());
    }

    /// How often each operation was asked for.
    #[must_use]
    pub fn calls(&self) -> std::collections::BTreeMap<&'static str, u64> {
        self.with(|state| state.calls.clone())
    }
}
