//! What an operator may tune.

use std::time::Duration;

/// Times and counts that an operator may tune. Each time is a wait, none is a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longer than any rename can be on its way; 0 where a pool belongs to one cluster alone.
    pub claim_settle: Duration,
    /// How long a host keeps its releasing name, at least: longer than any rename that was decided
    /// before that, be it by another leader, can be on its way. One that lands later gives a host
    /// of the pool a name that nobody looks after.
    pub release_settle: Duration,
    /// First wait after a failed bootstrap; it doubles.
    pub retry: Duration,
    /// Longest wait after a failed bootstrap.
    pub retry_cap: Duration,
    /// How often something that is on its way is looked at.
    pub look: Duration,
    /// How long what was read of a host counts, for what changes nothing at Scaleway.
    pub remember: Duration,
    /// How often a Mac that is well is looked at.
    pub keep: Duration,
    /// How often the steps run again on a Mac that is well.
    pub upkeep: Duration,
    /// How long a Mac may be out of date because of its VMs before it takes no new ones, and for
    /// how long it takes none then; 0 is never.
    pub drain: Duration,
    /// How long a Node may be missing or unwell before the steps run again.
    pub node_missing: Duration,
    /// How long idle Pods may take to go before the Mac is wiped all the same.
    pub empty: Duration,
    /// How long an agent may be silent before its Mac is not waited for any more.
    pub silent: Duration,
    /// How long a host may refuse to be wiped, deleted or used before it is given up.
    pub patience: Duration,
    /// How long the last thing that may help is tried before the Machine goes without it: a rename
    /// that Scaleway refuses, or a wipe that it grants and nobody sees.
    pub insist: Duration,
    /// Longer than a reboot takes: one that may have been granted is not asked for again before.
    pub reboot: Duration,
    /// Longer than any order can be on its way: none is repeated before that.
    pub order: Duration,
    /// What is done about a host whose bootstrap fails again and again.
    pub tiers: Tiers,
}

/// After how many failures each tier of recovery begins; 0 switches it off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tiers {
    /// Failed bootstraps in a row until the host is rebooted, once.
    pub reboot_after: u32,
    /// Failed bootstraps in a row until the host is wiped and exchanged for another.
    pub max_attempts: u32,
    /// Failed updates in a row until a Mac that runs is left alone for longer.
    pub max_updates: u32,
    /// Owners in a row that a host may fail until it is set aside for a person.
    pub quarantine_after: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            claim_settle: Duration::from_secs(15),
            // A read is followed for ten seconds, a call waits for two and lasts ten.
            release_settle: Duration::from_secs(25),
            retry: Duration::from_mins(1),
            retry_cap: Duration::from_mins(10),
            look: Duration::from_secs(10),
            remember: Duration::from_mins(1),
            keep: Duration::from_mins(5),
            upkeep: Duration::from_mins(15),
            drain: Duration::from_hours(1),
            node_missing: Duration::from_mins(2),
            empty: Duration::from_mins(5),
            silent: Duration::from_mins(5),
            patience: Duration::from_mins(30),
            insist: Duration::from_mins(1),
            reboot: Duration::from_mins(5),
            order: Duration::from_mins(10),
            tiers: Tiers { reboot_after: 3, max_attempts: 8, max_updates: 5, quarantine_after: 3 },
        }
    }
}

impl Limits {
    /// All waits, `speed` times shorter.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        Self {
            claim_settle: self.claim_settle.div_f64(speed),
            release_settle: self.release_settle.div_f64(speed),
            retry: self.retry.div_f64(speed),
            retry_cap: self.retry_cap.div_f64(speed),
            look: self.look.div_f64(speed),
            remember: self.remember.div_f64(speed),
            keep: self.keep.div_f64(speed),
            upkeep: self.upkeep.div_f64(speed),
            drain: self.drain.div_f64(speed),
            node_missing: self.node_missing.div_f64(speed),
            empty: self.empty.div_f64(speed),
            silent: self.silent.div_f64(speed),
            patience: self.patience.div_f64(speed),
            insist: self.insist.div_f64(speed),
            reboot: self.reboot.div_f64(speed),
            order: self.order.div_f64(speed),
            tiers: self.tiers,
        }
    }
}

impl Limits {
    /// How old a read of a host of the pool may be when that is marked because of it: a mark that
    /// lands later than the wait for others' is one that nobody waited for. A fifth of that wait is
    /// left for the read; the rest is what a rename takes at most, to be sent and to arrive.
    #[must_use]
    pub fn mark_within(&self) -> Option<Duration> {
        (!self.claim_settle.is_zero()).then_some(self.claim_settle / 5)
    }
}

impl Tiers {
    /// Whether so many `failures` reach a tier that begins at `tier`.
    #[must_use]
    pub fn reached(tier: u32, failures: u32) -> bool {
        tier > 0 && failures >= tier
    }
}
