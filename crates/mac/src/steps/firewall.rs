//! What VMs may not reach: rules in an anchor of ours, attached to the main ruleset, live.

use super::{Applied, Cause, Host, State, paths};
use crate::{Command, Owner, pf, plist};

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    for (path, content) in files(host).await? {
        if !host.is_file(path, content.as_bytes(), &Owner::root(), 0o644).await? {
            return Ok(State::Differs("a firewall file is not as it should be"));
        }
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
    for (path, content) in files(host).await? {
        if !host.is_file(path, content.as_bytes(), &Owner::root(), 0o644).await? {
            host.write(path, content, Owner::root(), 0o644).await?;
        }
    }
    // Parsing does not prove that a load will succeed; it finds errors before anything changes.
    host.run(pfctl(&["-n", "-f", paths::PF_CONF])).await?;
    if is_attached(host).await? {
        if !is_loaded(host).await? {
            host.run(pfctl(&["-a", pf::ANCHOR, "-f", paths::PF_ANCHOR])).await?;
        }
    } else if host.runs_vms().await? {
        // Loading the main ruleset drops the address translation that macOS added for VMs.
        return Ok(Applied::Postponed("loading the main ruleset would cut running VMs off"));
    } else {
        host.run(pfctl(&["-f", paths::PF_CONF])).await?;
    }
    // Older versions had tables of ours there, which outlive their rules.
    for table in stale_tables(host).await? {
        host.run(pfctl(&["-t", table, "-T", "kill"])).await?;
    }
    // Every -E takes a reference that nobody returns: only when it is needed.
    if !is_enabled(host).await? {
        host.run(pfctl(&["-E"])).await?;
    }
    Ok(Applied::Done)
}

/// Every file of the step as it shall be.
async fn files(host: &Host<'_>) -> Result<[(&'static str, String); 3], Cause> {
    let existing = host.read(paths::PF_CONF).await?.unwrap_or_default();
    let main = pf::with_block(&String::from_utf8_lossy(&existing));
    Ok([
        (paths::PF_ANCHOR, pf::ANCHOR_RULES.to_owned()),
        (paths::PF_CONF, main),
        (paths::PF_PLIST, plist::firewall()),
    ])
}

async fn is_attached(host: &Host<'_>) -> Result<bool, Cause> {
    let rules = host.run(pfctl(&["-s", "rules"])).await?.text();
    let point = format!("anchor \"{}\"", pf::ANCHOR);
    Ok(rules.lines().any(|line| line.trim() == point || line.starts_with(&format!("{point} "))))
}

/// Compares what the kernel has, not what was last written.
async fn is_loaded(host: &Host<'_>) -> Result<bool, Cause> {
    let output = host.ask(pfctl(&["-a", pf::ANCHOR, "-s", "rules"])).await?;
    let rules = output.text();
    let has = |rule: &&str| rules.lines().any(|line| line.starts_with(rule));
    if rules.lines().count() != pf::rule_count() || !pf::BLOCK_RULES.iter().all(has) {
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
