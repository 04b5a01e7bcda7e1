//! The whole simulated account: hosts, keys, stock. No I/O; the time is read once per call.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Weak;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{ProjectId, ServerStatus};
use jiff::{SignedDuration, Timestamp};

use super::answer::Answer;
use super::catalogue::{self, Image};
use super::host::{Commitment, Host, Phase, Vpc};
use super::keys::Key;
use super::levers::{HostSpec, Rule};
use super::route::Asked;
use super::seeded::{self, Seeded};
use super::settings::Settings;

/// How many of each kind there are until a lever says otherwise.
const STOCK: usize = 100;

/// More than this of a kind is plenty.
const LOW_STOCK: usize = 2;

pub(super) struct State {
    pub settings: Settings,
    /// The time of what happens now, to the microsecond as on the wire.
    pub now: Timestamp,
    clock: Clock,
    /// How far this world is ahead of its clock.
    pub ahead: SignedDuration,
    pub hosts: BTreeMap<ServerId, Host>,
    /// In order of creation, as lists are.
    pub order: Vec<ServerId>,
    pub gone: BTreeSet<ServerId>,
    pub keys: Vec<Key>,
    pub images: Vec<Image>,
    pub stock: BTreeMap<(Zone, String), usize>,
    pub rules: Vec<Rule>,
    pub calls: BTreeMap<&'static str, u64>,
    pub requests: u64,
    /// SSH keys that were ever made.
    pub keys_made: u64,
    in_flight: BTreeMap<u64, InFlight>,
    landed: BTreeMap<u64, Answer>,
    ordered: u32,
    /// Nothing happens by itself before then.
    next_due: Option<Timestamp>,
}

impl State {
    pub(super) fn new(settings: Settings, clock: Clock) -> Self {
        Self {
            settings,
            now: microseconds(clock.now()),
            clock,
            ahead: SignedDuration::ZERO,
            hosts: BTreeMap::new(),
            order: Vec::new(),
            gone: BTreeSet::new(),
            keys: Vec::new(),
            images: catalogue::images(),
            stock: BTreeMap::new(),
            rules: Vec::new(),
            calls: BTreeMap::new(),
            requests: 0,
            keys_made: 0,
            in_flight: BTreeMap::new(),
            landed: BTreeMap::new(),
            ordered: 0,
            next_due: None,
        }
    }

    pub(super) fn seeded(&self) -> Seeded {
        Seeded(self.settings.seed)
    }

    /// Lets everything happen that has come due since the last look.
    pub(super) fn settle(&mut self) {
        let clock = self.clock.now().saturating_add(self.ahead).expect("a duration fits");
        let now = microseconds(clock).max(self.now);
        while let Some(ticket) = self.next_in_flight(now) {
            self.land(ticket);
        }
        self.settle_hosts(now);
    }

    fn settle_hosts(&mut self, now: Timestamp) {
        self.now = now;
        if self.next_due.is_none_or(|due| now < due) {
            return;
        }
        let new_password = self.settings.unsure.new_password;
        for host in self.hosts.values_mut() {
            host.settle(now, new_password);
        }
        let is_over = |host: &&Host| host.deletion_scheduled && host.deletable_at <= now;
        let over: Vec<ServerId> =
            self.hosts.values().filter(is_over).map(|host| host.id.clone()).collect();
        for id in over {
            self.remove(&id);
        }
        self.next_due = self.hosts.values().filter_map(Host::due).min();
    }

    /// Takes a call on its way that arrives this much later, and tells its ticket. `waits` is held
    /// for as long as somebody wants the answer.
    pub(super) fn delay(&mut self, asked: Asked, delay: Duration, waits: Weak<()>) -> u64 {
        let ticket = asked.number;
        let due = self.later(delay);
        self.in_flight.insert(ticket, InFlight { due, asked, waits });
        ticket
    }

    fn next_in_flight(&self, now: Timestamp) -> Option<u64> {
        let due = self.in_flight.iter().filter(|(_, call)| call.due <= now);
        due.min_by_key(|(ticket, call)| (call.due, **ticket)).map(|(ticket, _)| *ticket)
    }

    /// A delayed call arrives, if it has not yet.
    fn land(&mut self, ticket: u64) {
        let Some(call) = self.in_flight.remove(&ticket) else { return };
        self.settle_hosts(call.due.max(self.now));
        let answer = self.perform(&call.asked);
        if call.waits.strong_count() > 0 {
            self.landed.insert(ticket, answer);
        }
    }

    /// The answer to a delayed call whose time has come.
    pub(super) fn collect(&mut self, ticket: u64) -> Answer {
        self.land(ticket);
        self.landed.remove(&ticket).expect("it has landed, and its caller waits")
    }

    /// This much later.
    pub(super) fn later(&self, duration: Duration) -> Timestamp {
        self.now.saturating_add(duration).expect("a duration fits")
    }

    /// A host has changed: it may come due earlier than all others.
    pub(super) fn changed(&mut self, id: &ServerId) {
        let due = self.hosts.get(id).and_then(Host::due);
        self.next_due = [self.next_due, due].into_iter().flatten().min();
    }

    pub(super) fn remove(&mut self, id: &ServerId) {
        if self.hosts.remove(id).is_some() {
            self.order.retain(|other| other != id);
            self.gone.insert(id.clone());
        }
    }

    pub(super) fn image(&self, id: &str) -> Option<&Image> {
        self.images.iter().find(|image| image.id == id)
    }

    fn images_for(&self, kind: &str) -> impl Iterator<Item = &Image> {
        self.images.iter().filter(move |image| image.runs_on(kind))
    }

    /// What a kind is installed with unless told otherwise, if that is still offered; else the
    /// first image that runs on it.
    pub(super) fn default_image(&self, kind: &str) -> Option<&Image> {
        let default = catalogue::kind_of(kind).map(|kind| kind.default_image);
        let by_name = |image: &&Image| Some(image.name) == default;
        let any = || self.images_for(kind).next();
        self.images.iter().find(by_name).or_else(any)
    }

    pub(super) fn stock(&self, zone: &Zone, kind: &str) -> usize {
        self.stock.get(&(zone.clone(), kind.to_owned())).copied().unwrap_or(STOCK)
    }

    pub(super) fn stock_word(&self, zone: &Zone, kind: &str) -> &'static str {
        match self.stock(zone, kind) {
            0 => "no_stock",
            1..=LOW_STOCK => "low_stock",
            _ => "high_stock",
        }
    }

    /// A host that is being delivered.
    pub(super) fn order(&mut self, order: NewHost) -> ServerId {
        // Nothing in a list is older than what was there before it.
        let newest = self.order.last().map_or(order.created_at, |id| self.hosts[id].created_at);
        let created_at = order.created_at.max(newest);
        let number = self.ordered;
        self.ordered += 1;
        let id: ServerId = self.seeded().uuid("server", number).parse().expect("a UUID");
        let kind = catalogue::kind_of(&order.server_type);
        let has_floor = kind.is_none_or(catalogue::Kind::has_floor);
        let floor = if has_floor { self.settings.durations.floor } else { Duration::ZERO };
        let host = Host {
            id: id.clone(),
            name: order.name,
            server_type: order.server_type,
            project: order.project,
            zone: order.zone,
            image: order.image,
            ip: seeded::address(self.settings.first_address, number),
            delivered: order.phase == Phase::Steady(ServerStatus::Ready),
            phase: order.phase,
            deletion_scheduled: false,
            commitment: if has_floor { Commitment::Day } else { Commitment::None },
            vpc: order.vpc,
            bandwidth: order.bandwidth,
            kext_enabled: order.kext_enabled,
            created_at,
            updated_at: self.now,
            deletable_at: created_at.saturating_add(floor).expect("a duration fits"),
            wipes: 0,
            power_cycles: 0,
            password_wipe: 0,
        };
        self.hosts.insert(id.clone(), host);
        self.order.push(id.clone());
        self.changed(&id);
        id
    }

    /// A host that somebody ordered before, by other means than this API.
    pub(super) fn pre_order(&mut self, spec: &HostSpec) -> Result<ServerId, String> {
        let (kind, image) = self.check_order(spec)?;
        let created_at = SignedDuration::try_from(spec.ordered_ago)
            .ok()
            .and_then(|age| self.now.checked_sub(age).ok())
            .ok_or("ordered_seconds_ago: longer ago than there are dates")?;
        Ok(self.order(NewHost {
            name: spec.name.clone(),
            server_type: spec.server_type.clone(),
            zone: spec.zone.clone(),
            project: spec.project.clone().unwrap_or_else(|| self.settings.project.clone()),
            image,
            phase: Phase::Steady(ServerStatus::Ready),
            vpc: Vpc::Steady { enabled: false },
            bandwidth: kind.bandwidth(0).expect("every kind has a default"),
            kext_enabled: false,
            created_at,
        }))
    }

    /// The kind and the image of a host to be, or why there can be no such host.
    pub(super) fn check_order(
        &self,
        spec: &HostSpec,
    ) -> Result<(&'static catalogue::Kind, Image), String> {
        let kind = catalogue::known(&spec.server_type)?;
        let image = match &spec.os {
            Some(name) => self.images_for(kind.name).find(|image| image.name == name),
            None => self.default_image(kind.name),
        };
        let image = image.cloned().ok_or_else(|| {
            let offered: Vec<&str> = self.images_for(kind.name).map(|image| image.name).collect();
            let offered = offered.join(", ");
            format!("os: no such image for {}; there are {offered}", kind.name)
        })?;
        Ok((kind, image))
    }
}

/// A delayed call. It arrives when it is due, whether or not its caller still waits.
struct InFlight {
    due: Timestamp,
    asked: Asked,
    waits: Weak<()>,
}

fn microseconds(time: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(time.as_microsecond()).expect("a time is a time")
}

/// A host to be.
pub(super) struct NewHost {
    pub name: String,
    pub server_type: String,
    pub zone: Zone,
    pub project: ProjectId,
    pub image: Image,
    pub phase: Phase,
    pub vpc: Vpc,
    pub bandwidth: u64,
    pub kext_enabled: bool,
    pub created_at: Timestamp,
}
