//! What a cycle saw, in the log and in metrics.

use std::collections::BTreeMap;

use applecart_api::ids::{ServerId, Zone};
use applecart_core::sweep::{Inventory, Reason, Report, ZoneRead, ZoneReport};

use super::Sweep;

impl Sweep {
    /// Says what is not done, and why (O1).
    pub(super) fn refuse(&self, server: Option<&ServerId>, reason: &Reason) {
        self.metrics.count_refusal(reason);
        let host = server.map(ServerId::as_str).unwrap_or_default();
        tracing::info!(host, word = reason.word(), %reason, "the sweep leaves it alone");
    }

    /// Says what there is.
    pub(super) fn tell(&self, inventory: &Inventory, report: &Report) {
        let is_listed = |read: &ZoneRead| matches!(read, ZoneRead::Listed(_));
        let zones: BTreeMap<Zone, bool> =
            inventory.zones.iter().map(|(zone, read)| (zone.clone(), is_listed(read))).collect();
        self.metrics.set_hosts(&zones, report);
        let whole = zones.values().all(|listed| *listed);
        self.metrics.count_cycle(if whole { "complete" } else { "partial" });
        for (zone, report) in &report.zones {
            tell_zone(zone, report);
        }
        for duplicate in &report.duplicates {
            tracing::warn!(%duplicate, "not one to one: named and left alone");
        }
    }
}

fn tell_zone(zone: &Zone, report: &ZoneReport) {
    let counts: Vec<String> = report
        .classes
        .iter()
        .filter(|(_, of_class)| of_class.count > 0)
        .map(|(class, of_class)| format!("{} {}", of_class.count, class.word()))
        .collect();
    tracing::info!(%zone, hosts = counts.join(", "), "swept");
    for unowned in &report.unowned {
        let (host, name, class) = (&unowned.server, &unowned.name, unowned.class.word());
        tracing::warn!(%zone, %host, name, class, "nobody here owns it");
    }
    for stuck in &report.stuck {
        let (host, name, state) = (&stuck.server, &stuck.name, &stuck.state);
        let hours = stuck.since.as_secs() / 3600;
        tracing::warn!(%zone, %host, name, state, hours, "in the pool, and nobody can adopt it");
    }
}
