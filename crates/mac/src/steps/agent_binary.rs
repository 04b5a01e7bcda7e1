//! The agent's binary: checked and signed beside the old one, then renamed over it. Writing into a
//! running binary would keep its old signature in the kernel's cache, and get the agent killed.

use std::time::Duration;

use super::{Applied, Cause, Host, State, agent_job, paths};
use crate::{Command, Owner};

/// Signing reads the whole binary.
const SIGN_TIMEOUT: Duration = Duration::from_mins(2);

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let stamp = host.read(paths::AGENT_STAMP).await?.unwrap_or_default();
    let stamp = String::from_utf8_lossy(&stamp).into_owned();
    let Some((payload, signed)) = stamp.trim().split_once(' ') else {
        return Ok(State::Differs("there is no agent of ours"));
    };
    if payload != host.desired.fleet().agent.sha256() {
        return Ok(State::Differs("the agent is another version"));
    }
    if checksum(host, paths::AGENT).await?.as_deref() != Some(signed) {
        return Ok(State::Differs("the agent's binary is not the one that was installed"));
    }
    if !host.has_attributes(paths::AGENT, &Owner::root(), 0o755).await? {
        return Ok(State::Differs("the agent's binary has another owner or mode"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let payload = &host.desired.fleet().agent;
    let staged = paths::AGENT_STAGED;
    host.receive(staged, payload, 0o755).await?;
    let sign = ["codesign", "--force", "--sign", "-", staged];
    host.run(Command::root(&sign).timeout(SIGN_TIMEOUT)).await?;
    let verify = ["codesign", "--verify", staged];
    host.run(Command::root(&verify).timeout(SIGN_TIMEOUT)).await?;
    let Some(signed) = checksum(host, staged).await? else {
        let gone = "the agent's binary is gone after signing";
        return Err(Cause::NotVerified(gone.to_owned()));
    };
    agent_job::will_need_restart(host).await?;
    host.run(Command::root(&["mv", "-f", staged, paths::AGENT])).await?;
    let stamp = format!("{} {signed}\n", payload.sha256());
    host.write(paths::AGENT_STAMP, stamp, Owner::root(), 0o644).await?;
    Ok(Applied::Done)
}

/// A file's SHA-256; `None` if there is no such file.
async fn checksum(host: &Host<'_>, path: &str) -> Result<Option<String>, Cause> {
    let output = host.ask(Command::root(&["shasum", "-a", "256", path])).await?;
    let text = output.text();
    let sum = text.split_whitespace().next().map(str::to_owned);
    Ok(sum.filter(|_| output.success()))
}
