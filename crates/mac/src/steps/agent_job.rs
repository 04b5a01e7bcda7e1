//! The agent's launchd job: restarted only for a change, and done only when a new process stays.

use std::time::Duration;

use applecart_api::keys::AGENT_JOB;
use tokio::time::{Instant, sleep};

use super::{Applied, Cause, Host, State, paths, pending, scripts};
use crate::{Command, Owner, Privilege};

/// What is pending: the process must be replaced, or the job's definition as well.
const RESTART: &str = "restart";
const RELOAD: &str = "reload";

/// How long a new process may take to appear; launchd delays one that just ended by ten seconds.
const APPEARS_WITHIN: Duration = Duration::from_secs(20);

/// How long it must stay: a crash loop shows another PID after that.
const SETTLES_AFTER: Duration = Duration::from_secs(5);

/// Time between two looks.
const POLL_EVERY: Duration = Duration::from_secs(1);

/// How often launchd is asked to take a job: it refuses while the old one is still leaving.
const BOOTSTRAP_TRIES: usize = 5;

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !has_folders(host).await? {
        return Ok(State::Differs("the agent's folders are missing or not its own"));
    }
    if !has_definition(host).await? {
        return Ok(State::Differs("the agent's job is missing or another"));
    }
    if pending::read(host, paths::AGENT_PENDING).await?.is_some() {
        return Ok(State::Differs("the agent was not restarted after a change"));
    }
    if pid(host).await?.is_none() {
        return Ok(State::Differs("the agent does not run"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let user = host.desired.host().user.as_str();
    if !has_folders(host).await? {
        let make = Command::script(scripts::AGENT_FOLDERS, &[user], Privilege::Root);
        host.run(make).await?;
    }
    if !has_definition(host).await? {
        pending::mark(host, paths::AGENT_PENDING, RELOAD).await?;
        let plist = host.desired.agent_plist();
        host.write(paths::AGENT_PLIST, plist, Owner::root(), 0o644).await?;
    }
    let before = pid(host).await?;
    // launchd keeps the definition that it loaded: only an unchanged one is restarted in place.
    let pending = pending::read(host, paths::AGENT_PENDING).await?;
    let in_place = before.is_some() && pending.is_none_or(|what| what == RESTART);
    if in_place {
        kick(host).await?;
    } else {
        reload(host).await?;
    }
    if !is_new_and_stays(host, before).await? {
        kick(host).await?;
        if !is_new_and_stays(host, before).await? {
            return Err(Cause::NotVerified("the agent does not stay up: see its log on the host"));
        }
    }
    pending::clear(host, paths::AGENT_PENDING).await?;
    Ok(Applied::Done)
}

/// Notes, before the change, that the running agent will be out of date.
pub(super) async fn will_need_restart(host: &Host<'_>) -> Result<(), Cause> {
    if pending::read(host, paths::AGENT_PENDING).await?.is_some() {
        return Ok(());
    }
    pending::mark(host, paths::AGENT_PENDING, RESTART).await
}

async fn has_folders(host: &Host<'_>) -> Result<bool, Cause> {
    let owner = Owner::staff(&host.desired.host().user);
    for (path, mode) in
        [(paths::VM_LOGS, 0o755), (paths::VM_USER_DATA, 0o755), (paths::AGENT_LOG, 0o644)]
    {
        if !host.has_attributes(path, &owner, mode).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn has_definition(host: &Host<'_>) -> Result<bool, Cause> {
    let plist = host.desired.agent_plist();
    host.is_file(paths::AGENT_PLIST, plist.as_bytes(), &Owner::root(), 0o644).await
}

async fn kick(host: &Host<'_>) -> Result<(), Cause> {
    // Its status says little; the new process says all.
    host.ask(launchctl(&["kickstart", "-k", &target()])).await?;
    Ok(())
}

/// Takes the job out and puts it in again, with its definition as it is on disk now.
async fn reload(host: &Host<'_>) -> Result<(), Cause> {
    host.ask(launchctl(&["bootout", &target()])).await?;
    let deadline = Instant::now() + APPEARS_WITHIN;
    while is_known(host).await? && Instant::now() < deadline {
        sleep(POLL_EVERY).await;
    }
    host.ask(launchctl(&["enable", &target()])).await?;
    let bootstrap = launchctl(&["bootstrap", "system", paths::AGENT_PLIST]);
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

async fn is_known(host: &Host<'_>) -> Result<bool, Cause> {
    Ok(host.ask(launchctl(&["print", &target()])).await?.success())
}

async fn is_new_and_stays(host: &Host<'_>, before: Option<u32>) -> Result<bool, Cause> {
    let deadline = Instant::now() + APPEARS_WITHIN;
    loop {
        let now = pid(host).await?;
        if now.is_some() && now != before {
            sleep(SETTLES_AFTER).await;
            return Ok(pid(host).await? == now);
        }
        if Instant::now() >= deadline {
            return Ok(false);
        }
        sleep(POLL_EVERY).await;
    }
}

async fn pid(host: &Host<'_>) -> Result<Option<u32>, Cause> {
    let output = host.ask(launchctl(&["print", &target()])).await?;
    if !output.success() {
        return Ok(None);
    }
    let text = output.text();
    let line = text.lines().find_map(|line| line.trim().strip_prefix("pid = "));
    Ok(line.and_then(|pid| pid.parse().ok()))
}

fn target() -> String {
    format!("system/{AGENT_JOB}")
}

fn launchctl(arguments: &[&str]) -> Command {
    let argv: Vec<&str> = ["launchctl"].into_iter().chain(arguments.iter().copied()).collect();
    Command::root(&argv)
}
