//! The agent's launchd job: restarted only for a change, and done only when a new process stays.

use applecart_api::keys::AGENT_JOB;

use super::{Applied, Cause, Host, State, launchd, paths, pending, scripts};
use crate::{Command, Owner, Privilege};

/// What is pending: the process must be replaced, or the job's definition as well.
const RESTART: &str = "restart";
const RELOAD: &str = "reload";

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
    if launchd::pid(host, AGENT_JOB).await?.is_none() {
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
    let target = launchd::target(AGENT_JOB);
    let before = launchd::pid(host, AGENT_JOB).await?;
    let pending = pending::read(host, paths::AGENT_PENDING).await?;
    if before.is_some() && pending.is_none() {
        // Its folders are all that differed, and it looks there anew each time.
        return Ok(Applied::Done);
    }
    // launchd keeps the definition that it loaded: only an unchanged one is restarted in place.
    let in_place = before.is_some() && pending.is_none_or(|what| what == RESTART);
    if in_place {
        launchd::kick(host, AGENT_JOB).await?;
    } else {
        launchd::reload(host, AGENT_JOB, paths::AGENT_PLIST).await?;
    }
    if !launchd::is_new_and_stays(host, &target, before).await? {
        // launchd may have taken a job in and lost it: there is nothing to kick then.
        if launchd::is_known(host, AGENT_JOB).await? {
            launchd::kick(host, AGENT_JOB).await?;
        } else {
            launchd::reload(host, AGENT_JOB, paths::AGENT_PLIST).await?;
        }
        if !launchd::is_new_and_stays(host, &target, before).await? {
            return Err(Cause::NotVerified(trouble(host, before).await?.to_owned()));
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

/// What launchd made of a job that has no new process that stays.
async fn trouble(host: &Host<'_>, before: Option<u32>) -> Result<&'static str, Cause> {
    if !launchd::is_known(host, AGENT_JOB).await? {
        return Ok("launchd has lost the agent's job");
    }
    let now = launchd::pid(host, AGENT_JOB).await?;
    Ok(if now.is_some() && now == before {
        "launchd did not restart the agent: it is the process of before"
    } else {
        "the agent does not stay up: see its log on the host"
    })
}
