//! launchd jobs of ours: what runs, and taking a job out and in again.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Account, Cause, Host};
use crate::Command;

/// How long a job may take to leave.
pub(super) const LEAVES_WITHIN: Duration = Duration::from_secs(20);

/// Time between two looks.
pub(super) const POLL_EVERY: Duration = Duration::from_secs(1);

/// How long a new process may take to appear; launchd delays one that just ended by ten seconds.
const APPEARS_WITHIN: Duration = Duration::from_secs(20);

/// How long it must stay: a crash loop shows another PID after that.
const SETTLES_AFTER: Duration = Duration::from_secs(5);

/// How often launchd is asked to take a job: it refuses while the old one is still leaving.
const BOOTSTRAP_TRIES: usize = 5;

/// Restarts a job with the definition that launchd has.
pub(super) async fn kick(host: &Host<'_>, label: &str) -> Result<(), Cause> {
    // Its status says little; the new process says all.
    host.ask(launchctl(&["kickstart", "-k", &target(label)])).await?;
    Ok(())
}

/// Takes a job out and puts it in again, with its definition as it is on disk now.
pub(super) async fn reload(host: &Host<'_>, label: &str, plist: &str) -> Result<(), Cause> {
    host.ask(launchctl(&["bootout", &target(label)])).await?;
    let deadline = Instant::now() + LEAVES_WITHIN;
    while is_known(host, label).await? && Instant::now() < deadline {
        sleep(POLL_EVERY).await;
    }
    host.ask(launchctl(&["enable", &target(label)])).await?;
    let bootstrap = launchctl(&["bootstrap", "system", plist]);
    let mut output = host.ask(bootstrap.clone()).await?;
    for _ in 1..BOOTSTRAP_TRIES {
        if output.success() {
            return Ok(());
        }
        sleep(POLL_EVERY).await;
        output = host.ask(bootstrap.clone()).await?;
    }
    if output.success() { Ok(()) } else { Err(super::failed(&bootstrap, &output)) }
}

/// Whether launchd has such a job, with a process or without.
pub(super) async fn is_known(host: &Host<'_>, label: &str) -> Result<bool, Cause> {
    Ok(host.ask(launchctl(&["print", &target(label)])).await?.success())
}

/// The process of a job of the system's, if it has one.
pub(super) async fn pid(account: &Account<'_>, label: &str) -> Result<Option<u32>, Cause> {
    pid_of(account, &target(label)).await
}

/// The process of a job in any domain, if it has one.
pub(super) async fn pid_of(account: &Account<'_>, target: &str) -> Result<Option<u32>, Cause> {
    let output = account.ask(launchctl(&["print", target])).await?;
    if !output.success() {
        return Ok(None);
    }
    let text = output.text();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("pid = "));
    Ok(line.and_then(|pid| pid.parse().ok()))
}

/// Whether a job gets another process than `before`, and keeps it.
pub(super) async fn is_new_and_stays(
    host: &Host<'_>,
    target: &str,
    before: Option<u32>,
) -> Result<bool, Cause> {
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        let now = pid_of(host, target).await?;
        if now.is_some() && now != before {
            sleep(SETTLES_AFTER).await;
            return Ok(pid_of(host, target).await? == now);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(POLL_EVERY).await;
    }
}

/// A job of the system's, as launchd calls it.
pub(super) fn target(label: &str) -> String {
    format!("system/{label}")
}

fn launchctl(arguments: &[&str]) -> Command {
    let argv: Vec<&str> = ["launchctl"].into_iter().chain(arguments.iter().copied()).collect();
    Command::root(&argv)
}
