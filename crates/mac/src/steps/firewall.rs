//! What VMs may not reach: rules in an anchor of ours, attached to the main ruleset, live.

use std::time::Duration;

use super::{Applied, Cause, Host, State, paths, scripts};
use crate::{Command, Owner, Privilege, pf, plist};

/// Two loads, each of which may meet another pfctl a few times.
const LOAD_TIMEOUT: Duration = Duration::from_secs(90);

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !differing(host).await?.is_empty() {
        return Ok(State::Differs("a firewall file is not as it should be"));
    }
    let main = main_rules(host).await?;
    if !pf::is_attached(&main) {
        return Ok(State::Differs("the live main ruleset does not use the VM rules"));
    }
    if pf::decides_before(&main).is_some() {
        return Ok(State::Differs("a rule of another's decides before the VM rules"));
    }
    if !is_loaded(host).await? {
        return Ok(State::Differs("the live VM rules are not the ones in the file"));
    }
    if !is_enabled(host).await? {
        return Ok(State::Differs("the firewall is off"));
    }
    if !stale_tables(host).await?.is_empty() {
        return Ok(State::Differs("an older version's tables are in the main ruleset"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    for (path, content) in differing(host).await? {
        host.write(path, content, Owner::root(), 0o644).await?;
    }
    let main = main_rules(host).await?;
    let attached = pf::is_attached(&main);
    // A load brings back what the file itself says: that is not ours to remove.
    let foreign = pf::decides_before(&main).is_some() && !file_decides_before(host).await?;
    if (!attached || foreign) && !cuts_off(host).await? {
        load(host, "main").await?;
    } else if !attached {
        return Ok(Applied::Postponed("loading the main ruleset would cut running VMs off"));
    } else if !is_loaded(host).await? || !stale_tables(host).await?.is_empty() {
        load(host, "anchor").await?;
    }
    // Every -E takes a reference that nobody returns: only when it is needed.
    if !is_enabled(host).await? {
        host.run(pfctl(&["-E"])).await?;
    }
    match pf::decides_before(&main_rules(host).await?) {
        Some(rule) => Err(Cause::NotVerified(format!(
            "a rule of another's decides before the VM rules, and they hold nothing back: \
             `{rule}`; take it out of {}, or its `quick`",
            paths::PF_CONF
        ))),
        None => Ok(Applied::Done),
    }
}

/// Whether a load of the main ruleset would cost running VMs their network: it drops the address
/// translation that macOS added for them. Where that is gone already, nothing is lost, and an open
/// host is closed (V17).
async fn cuts_off(host: &Host<'_>) -> Result<bool, Cause> {
    if !host.runs_vms().await? {
        return Ok(false);
    }
    let shown = host.run(pfctl(&["-s", "nat"])).await?.text();
    Ok(shown.lines().any(|line| line.trim_start().starts_with("nat")))
}

async fn load(host: &Host<'_>, what: &str) -> Result<(), Cause> {
    let load = Command::script(scripts::LOAD_FIREWALL, &[what], Privilege::Root);
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

/// The live main ruleset, as pfctl prints it.
async fn main_rules(host: &Host<'_>) -> Result<String, Cause> {
    Ok(host.run(pfctl(&["-s", "rules"])).await?.text())
}

async fn file_decides_before(host: &Host<'_>) -> Result<bool, Cause> {
    let file = host.read(paths::PF_CONF).await?.unwrap_or_default();
    Ok(pf::decides_before(&String::from_utf8_lossy(&file)).is_some())
}

/// Compares what the kernel has, not what was last written.
async fn is_loaded(host: &Host<'_>) -> Result<bool, Cause> {
    let output = host.ask(pfctl(&["-a", pf::ANCHOR, "-s", "rules"])).await?;
    if !pf::are_live(&output.text()) {
        return Ok(false);
    }
    for (table, addresses) in pf::TABLES {
        let show = pfctl(&["-a", pf::ANCHOR, "-t", table, "-T", "show"]);
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

async fn is_enabled(host: &Host<'_>) -> Result<bool, Cause> {
    let info = host.run(pfctl(&["-s", "info"])).await?.text();
    Ok(info.lines().any(|line| line.starts_with("Status: Enabled")))
}

fn pfctl(arguments: &[&str]) -> Command {
    let argv: Vec<&str> = ["pfctl"].into_iter().chain(arguments.iter().copied()).collect();
    Command::root(&argv)
}
