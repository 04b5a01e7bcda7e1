//! What one cycle remembers of those before it. Losing it costs one interval, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::ids::ServerId;
use jiff::Timestamp;

use super::class::Class;
use super::reason::Reason;

/// What one cycle remembers of those before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Strays by name: since when each was one.
    strays: BTreeMap<ServerId, (String, Timestamp)>,
    /// Leases whose holder is gone: since when each was.
    dead_holders: BTreeMap<ServerId, (String, Timestamp)>,
    /// Leases whose holder has another host: since when each was.
    spares: BTreeMap<ServerId, (String, Timestamp)>,
    /// Objects that are gone and left something: since when each is.
    abandoned: BTreeMap<String, Timestamp>,
    /// Leases whose hosts are missing from their zones: since when each is.
    vanished: BTreeMap<ServerId, Timestamp>,
    /// Strays, and when it last was their turn.
    turns: BTreeMap<ServerId, Timestamp>,
    /// Hosts that could not be read, which ended a cycle, and when each last did.
    unread: BTreeMap<ServerId, Timestamp>,
    /// Since when each host is in its class.
    classes: BTreeMap<ServerId, (Class, Timestamp)>,
    /// How many objects there were, and when, in the last few intervals.
    objects: Vec<(Timestamp, usize)>,
}

/// Intervals for which a number of objects is remembered: who lost many has that long to notice.
const REMEMBERED: u32 = 8;

impl Memory {
    /// It was the host's turn, which ended for this reason. Who owns hosts is no host's fault.
    pub fn had_turn(&mut self, server: &ServerId, reason: &Reason, now: Timestamp) {
        if matches!(reason, Reason::OwnersUnreadable(_)) {
            return;
        }
        self.turns.insert(server.clone(), now);
        if reason.ends_cycle() {
            self.unread.insert(server.clone(), now);
        } else {
            self.unread.remove(server);
        }
    }
}

/// What is seen in this cycle: it becomes the memory of the next one.
pub(super) struct Sightings<'a> {
    before: &'a Memory,
    pub(super) now: Timestamp,
    interval: Duration,
    pub(super) after: Memory,
}

impl<'a> Sightings<'a> {
    pub(super) fn new(before: &'a Memory, now: Timestamp, interval: Duration) -> Self {
        let mut after = Memory::default();
        let recent = |at: Timestamp| age(now, at) < interval * REMEMBERED;
        let unread = before.unread.iter().filter(|(_, at)| recent(**at));
        after.unread.extend(unread.map(|(server, at)| (server.clone(), *at)));
        Self { before, now, interval, after }
    }

    /// Whether the host was a stray under this name a full interval ago, too.
    pub(super) fn stray(&mut self, server: &ServerId, name: &str) -> bool {
        let since = known(&self.before.strays, server, name).unwrap_or(self.now);
        self.after.strays.insert(server.clone(), (name.to_owned(), since));
        self.keep_turn(server);
        self.is_full(since)
    }

    /// When it last was the stray's turn.
    pub(super) fn turn(&self, server: &ServerId) -> Option<Timestamp> {
        self.before.turns.get(server).copied()
    }

    fn keep_turn(&mut self, server: &ServerId) {
        let at = self.turn(server).map(|at| (server.clone(), at));
        self.after.turns.extend(at);
    }

    /// When the host last could not be read, and ended a cycle.
    pub(super) fn unread(&self, server: &ServerId) -> Option<Timestamp> {
        self.after.unread.get(server).copied()
    }

    /// Whether this holder was gone a full interval ago, too.
    pub(super) fn dead_holder(&mut self, server: &ServerId, holder: &str) -> bool {
        let since = known(&self.before.dead_holders, server, holder).unwrap_or(self.now);
        self.after.dead_holders.insert(server.clone(), (holder.to_owned(), since));
        self.is_full(since)
    }

    /// Whether this holder had another host a full interval ago, too.
    pub(super) fn spare(&mut self, server: &ServerId, holder: &str) -> bool {
        let since = known(&self.before.spares, server, holder).unwrap_or(self.now);
        self.after.spares.insert(server.clone(), (holder.to_owned(), since));
        self.is_full(since)
    }

    /// Nobody could say which host the holder has, or has not.
    pub(super) fn keep_spare(&mut self, server: &ServerId) {
        let seen = self.before.spares.get(server).map(|seen| (server.clone(), seen.clone()));
        self.after.spares.extend(seen);
        self.keep_vanished(server);
    }

    /// Whether the object was gone a full interval ago, too.
    pub(super) fn abandoned(&mut self, machine: &str) -> bool {
        let since = self.before.abandoned.get(machine).copied().unwrap_or(self.now);
        self.after.abandoned.insert(machine.to_owned(), since);
        self.is_full(since)
    }

    /// Whether the host was missing a full interval ago, too.
    pub(super) fn vanished(&mut self, server: &ServerId) -> bool {
        let since = self.before.vanished.get(server).copied().unwrap_or(self.now);
        self.after.vanished.insert(server.clone(), since);
        self.is_full(since)
    }

    /// Nobody could say whether the host is missing.
    pub(super) fn keep_vanished(&mut self, server: &ServerId) {
        let since = self.before.vanished.get(server).map(|since| (server.clone(), *since));
        self.after.vanished.extend(since);
    }

    /// Nobody could say what is still needed.
    pub(super) fn keep_abandoned(&mut self) {
        self.after.abandoned.clone_from(&self.before.abandoned);
    }

    /// How long the host has been in its class; at first, as long as nothing of it changed.
    pub(super) fn in_class(
        &mut self,
        server: &ServerId,
        class: Class,
        changed_at: Option<Timestamp>,
    ) -> Duration {
        let before = self.before.classes.get(server).filter(|(was, _)| *was == class);
        let since = match (before, self.before.classes.contains_key(server)) {
            (Some((_, since)), _) => *since,
            (None, true) => self.now,
            (None, false) => changed_at.unwrap_or(self.now),
        };
        self.after.classes.insert(server.clone(), (class, since));
        age(self.now, since)
    }

    /// The most objects that there were in the last few intervals, `now` included.
    pub(super) fn most_objects(&mut self, objects: usize) -> usize {
        let recent = |at: Timestamp| age(self.now, at) < self.interval * REMEMBERED;
        self.after.objects = self.before.objects.clone();
        self.after.objects.retain(|(at, _)| recent(*at));
        self.after.objects.push((self.now, objects));
        self.after.objects.iter().map(|(_, objects)| *objects).max().unwrap_or(objects)
    }

    /// A host of a zone that could not be listed is neither seen nor gone.
    pub(super) fn keep_unlisted(&mut self, listed: impl Fn(&ServerId) -> bool) {
        let before = self.before;
        for (server, seen) in before.strays.iter().filter(|(server, _)| !listed(server)) {
            self.after.strays.insert(server.clone(), seen.clone());
            self.keep_turn(server);
        }
        for (server, seen) in before.classes.iter().filter(|(server, _)| !listed(server)) {
            self.after.classes.insert(server.clone(), *seen);
        }
    }

    fn is_full(&self, since: Timestamp) -> bool {
        since < self.now && age(self.now, since) >= self.interval
    }
}

fn known(
    of: &BTreeMap<ServerId, (String, Timestamp)>,
    server: &ServerId,
    text: &str,
) -> Option<Timestamp> {
    of.get(server).filter(|(was, _)| was == text).map(|(_, since)| *since)
}

/// How long ago something was; nothing is in the future.
pub(super) fn age(now: Timestamp, since: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(since)).unwrap_or_default()
}
