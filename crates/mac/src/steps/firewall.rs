//! What VMs may not reach: rules in an anchor of ours, attached to the main ruleset, live.

use std::time::Duration;

use super::{Applied, Cause, Host, State, paths, scripts};
use crate::{Command, Owner, Privilege, pf, plist};

/// A few loads, each of which may meet another pfctl a few times.
const LOAD_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !differing(host).await?.is_empty() {
        return Ok(State::Differs("a firewall file is not as it should be"));
    }
    let live = live(host).await?;
    if !live.is_attached() {
        return Ok(State::Differs("the live main ruleset does not use the VM rules"));
    }
    if live.decides_before().is_some() {
        return Ok(State::Differs("a rule of another's decides before the VM rules"));
    }
    if !is_loaded(host, &live, pf::ANCHOR).await? {
        return Ok(State::Differs("the live VM rules are not the ones in the file"));
    }
    if !is_enabled(host).await? {
        return Ok(State::Differs("the firewall is off"));
    }
    if !stale_tables(host).await?.is_empty() {
        return Ok(State::Differs("an older version's tables are in the main ruleset"));
    }
    if !live.rules_of(pf::STAND_IN).is_empty() {
        return Ok(State::Differs("what stood in for the VM rules is still there"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    for (path, content) in differing(host).await? {
        host.write(path, content, Owner::root(), 0o644).await?;
    }
    let now = live(host).await?;
    let attached = now.is_attached();
    let in_main = now.decides_before().is_some_and(|by| by.anchor.is_none());
    // A load brings back what the file itself says: that is not ours to remove.
    let foreign = in_main && !file_decides_before(host).await?;
    if (!attached || foreign) && !cuts_off(host).await? {
        load(host, "main", &now).await?;
    } else if !attached && now.evaluates_stand_in() {
        return stand_in(host, &now).await;
    } else if !attached {
        // Nobody evaluates anything: there is nothing to lose but what is translated, and stays.
        load(host, "filter", &now).await?;
    } else if !is_loaded(host, &now, pf::ANCHOR).await? || !stale_tables(host).await?.is_empty() {
        load(host, "anchor", &now).await?;
    }
    enable(host).await?;
    let then = live(host).await?;
    if let Some(by) = then.decides_before() {
        return Err(Cause::NotVerified(open(by)));
    }
    if then.is_attached() && !then.rules_of(pf::STAND_IN).is_empty() {
        host.run(pfctl(&["-a", pf::STAND_IN, "-F", "all"])).await?;
    }
    Ok(Applied::Done)
}

/// Holds VMs back at once where a load of the main ruleset has to wait for them (V17, S22).
async fn stand_in(host: &Host<'_>, live: &pf::Live) -> Result<Applied, Cause> {
    if !is_loaded(host, live, pf::STAND_IN).await? {
        load(host, "stand-in", live).await?;
    }
    enable(host).await?;
    // Nothing else reads it back: what is postponed is not checked again.
    let then = self::live(host).await?;
    if let Some(by) = then.decides_before_stand_in() {
        return Err(Cause::NotVerified(open(by)));
    }
    if !then.evaluates_stand_in() || !is_loaded(host, &then, pf::STAND_IN).await? {
        let what = "the VM rules are not live below Apple's anchor, and VMs are not held back";
        return Err(Cause::NotVerified(what.to_owned()));
    }
    if !is_enabled(host).await? {
        return Err(Cause::NotVerified("the firewall is off".to_owned()));
    }
    Ok(Applied::Postponed(
        "loading the main ruleset would cut running VMs off; the VM rules are live below Apple's \
         anchor until then",
    ))
}

/// What to do about a rule that leaves ours unread.
fn open(by: pf::Decides<'_>) -> String {
    let place = by.anchor.map_or_else(|| paths::PF_CONF.to_owned(), |at| format!("anchor {at}"));
    format!(
        "a rule of another's decides before the VM rules, and they hold nothing back: `{}`; take \
         it out of {place}, or its `quick`",
        by.rule
    )
}

/// Whether a load of the main ruleset would cost running VMs their network: it drops the address
/// translation that macOS added for them. Where that is gone already, nothing is lost, and an open
/// host is closed (V17).
async fn cuts_off(host: &Host<'_>) -> Result<bool, Cause> {
    if !host.runs_vms().await? {
        return Ok(false);
    }
    let shown = host.run(pfctl(&["-s", "nat"])).await?.text();
    let file = host.read(paths::PF_CONF).await?.unwrap_or_default();
    Ok(pf::loses_translation(&shown, &String::from_utf8_lossy(&file)))
}

/// An anchor is emptied under what stands in for it alone: the load after that may meet another
/// pfctl again, and the next run comes when its back-off ends (S22).
async fn load(host: &Host<'_>, what: &str, live: &pf::Live) -> Result<(), Cause> {
    let may = if what != "stand-in" && live.evaluates_stand_in() { "empty" } else { "keep" };
    let load = Command::script(scripts::LOAD_FIREWALL, &[what, may], Privilege::Root);
    host.run(load.timeout(LOAD_TIMEOUT)).await?;
    Ok(())
}

/// Every file that is not as it shall be, in the order in which they may be written.
async fn differing(host: &Host<'_>) -> Result<Vec<(&'static str, String)>, Cause> {
    let owner = Owner::root();
    let existing = host.read(paths::PF_CONF).await?.unwrap_or_default();
    let main = pf::with_block(&String::from_utf8_lossy(&existing));
    let mut differing = Vec::new();
    if !host.is_file(paths::PF_ANCHOR, pf::ANCHOR_RULES.as_bytes(), &owner, 0o644).await? {
        differing.push((paths::PF_ANCHOR, pf::ANCHOR_RULES.to_owned()));
    }
    if existing != main || !host.has_attributes(paths::PF_CONF, &owner, 0o644).await? {
        differing.push((paths::PF_CONF, main));
    }
    let job = plist::firewall();
    if !host.is_file(paths::PF_PLIST, job.as_bytes(), &owner, 0o644).await? {
        differing.push((paths::PF_PLIST, job));
    }
    Ok(differing)
}

/// What the kernel has, not what was last written.
async fn live(host: &Host<'_>) -> Result<pf::Live, Cause> {
    let show = Command::script(scripts::SHOW_RULES, &[], Privilege::Root);
    Ok(pf::Live::read(&host.run(show).await?.text()))
}

async fn file_decides_before(host: &Host<'_>) -> Result<bool, Cause> {
    let file = host.read(paths::PF_CONF).await?.unwrap_or_default();
    Ok(pf::decides_in(&String::from_utf8_lossy(&file)).is_some())
}

/// Whether an anchor has our rules, and our tables with all that is in them.
async fn is_loaded(host: &Host<'_>, live: &pf::Live, anchor: &str) -> Result<bool, Cause> {
    if !pf::are_live(&live.rules_of(anchor)) {
        return Ok(false);
    }
    for (table, addresses) in pf::TABLES {
        let show = pfctl(&["-a", anchor, "-t", table, "-T", "show"]);
        let shown = host.ask(show).await?.text();
        let mut shown: Vec<&str> = shown.split_whitespace().collect();
        shown.sort_unstable();
        if shown != addresses {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Our tables in the main ruleset, where none of them belongs.
async fn stale_tables(host: &Host<'_>) -> Result<Vec<&'static str>, Cause> {
    let shown = host.run(pfctl(&["-s", "Tables"])).await?.text();
    let there = |name: &&str| shown.lines().any(|line| line.trim() == *name);
    Ok(pf::TABLES.iter().map(|(name, _)| *name).filter(there).collect())
}

/// Every -E takes a reference that nobody returns: only when it is needed.
async fn enable(host: &Host<'_>) -> Result<(), Cause> {
    if !is_enabled(host).await? {
        host.run(pfctl(&["-E"])).await?;
    }
    Ok(())
}

async fn is_enabled(host: &Host<'_>) -> Result<bool, Cause> {
    let info = host.run(pfctl(&["-s", "info"])).await?.text();
    Ok(info.lines().any(|line| line.starts_with("Status: Enabled")))
}

fn pfctl(arguments: &[&str]) -> Command {
    let argv: Vec<&str> = ["pfctl"].into_iter().chain(arguments.iter().copied()).collect();
    Command::root(&argv)
}
