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
    if !is_attached(host).await? {
        return Ok(State::Differs("the live main ruleset does not use the VM rules"));
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
    if !is_attached(host).await? {
        // Loading the main ruleset drops the address translation that macOS added for VMs.
        if host.runs_vms().await? {
            return Ok(Applied::Postponed("loading the main ruleset would cut running VMs off"));
        }
        load(host, "main").await?;
    } else if !is_loaded(host).await? || !stale_tables(host).await?.is_empty() {
        load(host, "anchor").await?;
    }
    // Every -E takes a reference that nobody returns: only when it is needed.
    if !is_enabled(host).await? {
        host.run(pfctl(&["-E"])).await?;
    }
    Ok(Applied::Done)
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

async fn is_attached(host: &Host<'_>) -> Result<bool, Cause> {
    let rules = host.run(pfctl(&["-s", "rules"])).await?.text();
    let point = format!("anchor \"{}\"", pf::ANCHOR);
    Ok(rules.lines().any(|line| line.trim() == point || line.starts_with(&format!("{point} "))))
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
