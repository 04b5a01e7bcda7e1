//! One look at everything: what is reported, and what is due.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use jiff::Timestamp;

use super::class::{Class, Names, classify};
use super::leftovers::{self, CleanUp};
use super::memory::{Memory, Sightings, age};
use super::observed::{HostLease, Inventory, Listed, Policy, ZoneRead};
use super::reason::Reason;
use super::report::{Report, StuckHost, ZoneReport, duplicates};
use crate::machine::{Host, HostState, Lease, LeaseHolder};

/// How long a host of the pool may be busy with itself before it is named: a wipe takes less than
/// an hour.
const PATIENCE_WITH_POOL: Duration = Duration::from_hours(3);

/// So many percent of all objects may go within the time that their number is remembered for.
const SHRINKS_PERCENT: usize = 20;

/// Something that is due, to be decided on a fresh read of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// A Lease whose holder is gone.
    FreeLease(ServerId),
    /// A Lease whose holder has another host.
    SpareLease {
        /// Where the Lease's host stands, or stood.
        zone: Zone,
        /// Which host.
        server: ServerId,
        /// Two complete lists of its zone lack it.
        missing: bool,
    },
    /// A host that is on its way back, or is to be.
    Host {
        /// Where it stands.
        zone: Zone,
        /// Which host.
        server: ServerId,
    },
    /// The Lease of a host that is missing from its zone, or back from another cluster.
    DropLease {
        /// Where it stands, or stood.
        zone: Zone,
        /// Which host.
        server: ServerId,
    },
}

impl Task {
    /// The host.
    #[must_use]
    pub fn server(&self) -> &ServerId {
        match self {
            Self::FreeLease(server)
            | Self::SpareLease { server, .. }
            | Self::Host { server, .. }
            | Self::DropLease { server, .. } => server,
        }
    }
}

/// What one look at everything tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// What is told.
    pub report: Report,
    /// What is due, in this order.
    pub tasks: Vec<Task>,
    /// What objects that are gone left behind, and nobody needs.
    pub clean_ups: Vec<CleanUp>,
    /// What is not done, of which host, and why.
    pub refusals: Vec<(Option<ServerId>, Reason)>,
    /// What the next look remembers.
    pub memory: Memory,
}

/// Looks at everything once.
#[must_use]
pub fn survey(now: Timestamp, all: &Inventory, policy: &Policy, memory: &Memory) -> Survey {
    let mut look = Look {
        all,
        policy,
        names: all.names(policy),
        sightings: Sightings::new(memory, now, policy.interval),
        started: vec![],
        fresh: vec![],
        orphans: vec![],
        orphan_count: 0,
        refusals: vec![],
    };
    let mut report = Report { duplicates: duplicates(all), ..Report::default() };
    let mut listed = BTreeSet::new();
    let mut whole = true;
    for (zone, read) in &all.zones {
        match read {
            ZoneRead::Failed(why) => {
                whole = false;
                look.refusals.push((None, Reason::ZoneUnreadable(zone.clone(), why.clone())));
            }
            ZoneRead::Listed(hosts) => {
                listed.extend(hosts.iter().map(|listed| listed.host.id.clone()));
                report.zones.insert(zone.clone(), look.zone(zone, hosts));
            }
        }
    }
    let doubted = leftovers::doubted(all);
    for (zone, hosts) in &doubted {
        look.refusals.push((None, Reason::ZoneDoubted(zone.clone(), *hosts)));
    }
    let clean_ups = if whole {
        leftovers::abandoned(all, &look.names, &doubted, &mut look.sightings)
    } else {
        look.sightings.keep_unlisted(|server| listed.contains(server));
        look.sightings.keep_abandoned();
        vec![]
    };
    let mut tasks = look.dead_holders();
    tasks.append(&mut look.spares(&doubted));
    tasks.append(&mut look.due());
    tasks.append(&mut leftovers::vanished(all, &look.names, &doubted, &mut look.sightings));
    // One that cannot be read ends the cycle: those behind it shall have had their turn by then.
    tasks.sort_by_key(|task| look.sightings.unread(task.server()));
    let Look { sightings, refusals, .. } = look;
    Survey { report, tasks, clean_ups, refusals, memory: sightings.after }
}

struct Look<'a> {
    all: &'a Inventory,
    policy: &'a Policy,
    names: Names,
    sightings: Sightings<'a>,
    /// Hosts that the sweep already holds, or whose wipe was seen to run.
    started: Vec<Task>,
    /// Stale markers that it would take.
    fresh: Vec<Task>,
    /// Orphans that it would take.
    orphans: Vec<Task>,
    orphan_count: usize,
    refusals: Vec<(Option<ServerId>, Reason)>,
}

impl Look<'_> {
    fn zone(&mut self, zone: &Zone, hosts: &[Listed]) -> ZoneReport {
        let mut report = ZoneReport::new();
        for Listed { host, changed_at } in hosts {
            let lease = self.all.leases.get(&host.id);
            let owned = self.all.owners.of(host, lease).is_some();
            let class = classify(host, owned, lease, &self.names);
            let in_class = self.sightings.in_class(&host.id, class, *changed_at);
            report.count(class, in_class);
            match class {
                Class::Pool => {
                    let unchanged = changed_at.map(|at| age(self.sightings.now, at));
                    let since = unchanged.unwrap_or(in_class);
                    report.stuck.extend(stuck(host, since).or_else(|| unfit(host, lease, since)));
                }
                Class::Claiming
                | Class::Claimed
                | Class::Releasing
                | Class::Orphan
                | Class::Retiring
                | Class::Quarantined
                | Class::Foreign => {}
            }
            if !owned && self.names.is_stray(&host.name) {
                report.note_unowned(host, class);
            }
            self.sort(zone, host, class, owned);
        }
        report
    }

    /// What is due for a host, as far as a list tells.
    fn sort(&mut self, zone: &Zone, host: &Host, class: Class, owned: bool) {
        let free = HostLease::free();
        let lease = self.all.leases.get(&host.id).unwrap_or(&free);
        let task = Task::Host { zone: zone.clone(), server: host.id.clone() };
        let ours = lease.lease.holder == LeaseHolder::Us;
        let stray = !owned && matches!(class, Class::Claiming | Class::Releasing | Class::Orphan);
        let orphan = stray && class == Class::Orphan;
        let may_go = !lease.moved && self.names.may_return(&host.name);
        self.orphan_count += usize::from(orphan && may_go);
        if !owned && is_wiped_by_hand(host, class, lease) {
            self.started.push(task);
            return;
        }
        if !stray {
            // Nothing of it is ours to change any more but the Lease.
            self.started.extend(ours.then_some(task));
            return;
        }
        let seen_twice = self.sightings.stray(&host.id, &host.name);
        if ours {
            // Its Lease was taken when its turn had come: it is under way.
            self.started.push(task);
        } else if lease.moved {
            self.refuse(host, Reason::Moved);
        } else if orphan && !may_go {
            self.refuse(host, Reason::ReportOnly);
        } else if orphan && lease.lease.note.builder {
            self.refuse(host, Reason::Builder);
        } else if !seen_twice {
            self.refuse(host, Reason::FirstSighting);
        } else if class == Class::Orphan {
            self.orphans.push(task);
        } else if class == Class::Releasing && lease.lease.is_wiped() {
            // Nothing but its name is left to change, however many of them there are.
            self.started.push(task);
        } else {
            self.fresh.push(task);
        }
    }

    fn refuse(&mut self, host: &Host, reason: Reason) {
        self.refusals.push((Some(host.id.clone()), reason));
    }

    /// Leases whose holders were gone a full interval ago, too.
    fn dead_holders(&mut self) -> Vec<Task> {
        let mut due = vec![];
        for (server, lease) in &self.all.leases {
            let Some(holder) = lease.holder() else { continue };
            if lease.moved || self.all.owners.holder_lives(holder) {
                continue;
            }
            if self.sightings.dead_holder(server, holder) {
                due.push(Task::FreeLease(server.clone()));
            }
        }
        due
    }

    /// Leases whose holders had another host a full interval ago, too: a Lease that was taken late,
    /// when its taker had given up to hear of it, is nobody's use (P1).
    fn spares(&mut self, doubted: &BTreeMap<Zone, usize>) -> Vec<Task> {
        let mut due = vec![];
        for (server, lease) in &self.all.leases {
            let (Some(holder), Some(zone)) = (lease.holder(), &lease.zone) else { continue };
            let Some(ZoneRead::Listed(hosts)) = self.all.zones.get(zone) else {
                self.sightings.keep_spare(server);
                continue;
            };
            let host = hosts.iter().map(|listed| &listed.host).find(|host| host.id == *server);
            if lease.moved || !self.all.owners.is_spare(holder, server, host) {
                continue;
            }
            let missing = host.is_none();
            if missing && doubted.contains_key(zone) {
                self.sightings.keep_spare(server);
                continue;
            }
            // Both are asked each time: what was not seen in one look begins anew.
            let (spare, gone) =
                (self.sightings.spare(server, holder), missing && self.sightings.vanished(server));
            if spare && missing == gone {
                due.push(Task::SpareLease { zone: zone.clone(), server: server.clone(), missing });
            }
        }
        due
    }

    /// What is under way comes first; then as many as a cycle may begin.
    fn due(&mut self) -> Vec<Task> {
        let mut tasks = std::mem::take(&mut self.started);
        let mut begin = std::mem::take(&mut self.fresh);
        let mut orphans = std::mem::take(&mut self.orphans);
        // Those that had a turn and are here again cannot go, and shall not keep others from it.
        for group in [&mut begin, &mut orphans] {
            group.sort_by_key(|task| self.sightings.turn(task.server()));
        }
        match self.distrust() {
            Some(reason) => {
                let each = orphans.iter().map(|task| (Some(task.server().clone()), reason.clone()));
                self.refusals.extend(each);
            }
            None => begin.extend(orphans),
        }
        let most = self.policy.max_per_cycle;
        for left in begin.split_off(begin.len().min(most)) {
            self.refusals.push((Some(left.server().clone()), Reason::LimitReached(most)));
        }
        tasks.append(&mut begin);
        tasks
    }

    /// Why no orphan is believed to be one (S7, LH15): a list of objects that lacks most of them
    /// makes owned hosts look like orphans.
    fn distrust(&mut self) -> Option<Reason> {
        let (orphans, objects) = (self.orphan_count, self.all.owners.len());
        let most = self.sightings.most_objects(objects);
        if objects == 0 {
            return Some(Reason::NothingOwned);
        }
        // A few may go at any time; many at once were more likely lost than scaled down.
        let few = self.policy.max_per_cycle.max(most * SHRINKS_PERCENT / 100);
        if most - objects > few {
            return Some(Reason::ObjectsVanished { most, objects });
        }
        let share = usize::from(self.policy.max_share_percent);
        let many = orphans * 100 > share * (orphans + objects);
        many.then_some(Reason::TooManyOrphans { orphans, objects })
    }
}

/// Whether a person wipes a host that nobody holds and nobody would adopt: that it was wiped is
/// noted, so that it is as good as any when it is back in the pool.
pub(super) fn is_wiped_by_hand(host: &Host, class: Class, lease: &HostLease) -> bool {
    let Lease { holder, unwiped, version, .. } = &lease.lease;
    let unused = matches!(class, Class::Pool | Class::Quarantined);
    let unfit = *unwiped || lease.lease.awaits_deletion();
    let free = *holder == LeaseHolder::Nobody && version.is_some();
    unused && unfit && free && !lease.moved && host.state == HostState::Reinstalling
}

/// A host of the pool that is well, and that its Lease keeps from being adopted.
fn unfit(host: &Host, lease: Option<&HostLease>, since: Duration) -> Option<StuckHost> {
    let lease = &lease.filter(|lease| lease.lease.holder == LeaseHolder::Nobody)?.lease;
    let state = if lease.unwiped {
        "not wiped since its last owner"
    } else if lease.awaits_deletion() {
        "about to be deleted, says its Lease"
    } else {
        return None;
    };
    let (server, name, state) = (host.id.clone(), host.name.clone(), state.to_owned());
    (host.state == HostState::Ready).then_some(StuckHost { server, name, state, since })
}

/// A host of the pool that nobody can adopt, and not for a passing reason.
fn stuck(host: &Host, since: Duration) -> Option<StuckHost> {
    let state = match &host.state {
        HostState::Ready if host.delivered => return None,
        HostState::Ready => "not delivered".to_owned(),
        HostState::Reinstalling => "reinstalling".to_owned(),
        HostState::Rebooting => "rebooting".to_owned(),
        HostState::Changing(state) => state.clone(),
        HostState::Stuck(state) => {
            let state = state.clone();
            return Some(StuckHost {
                server: host.id.clone(),
                name: host.name.clone(),
                state,
                since,
            });
        }
    };
    let named = since >= PATIENCE_WITH_POOL;
    named.then(|| StuckHost { server: host.id.clone(), name: host.name.clone(), state, since })
}
