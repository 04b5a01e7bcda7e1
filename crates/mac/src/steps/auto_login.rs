//! A graphical session that survives a reboot: VMs start in no other.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Applied, Cause, Host, State, paths, pending};
use crate::{Command, Owner, kcpassword};

/// Where loginwindow keeps its settings.
const LOGINWINDOW: &str = "/Library/Preferences/com.apple.loginwindow";

/// loginwindow as a launchd job.
const LOGINWINDOW_JOB: &str = "system/com.apple.loginwindow";

/// How long a session may take to appear: seconds on an idle host, more on one that just booted.
const SESSION_WITHIN: Duration = Duration::from_mins(1);

/// Time between two looks.
const POLL_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let password = host.desired.host().password.expose();
    // Any padding will do: what counts is the password that macOS reads.
    if on_disk(host).await?.as_deref() != Some(password) {
        return Ok(State::Differs("the auto-login password is not the host's"));
    }
    if !host.has_attributes(paths::KCPASSWORD, &Owner::root(), 0o600).await? {
        return Ok(State::Differs("others can read the auto-login password"));
    }
    if !has_user(host).await? {
        return Ok(State::Differs("nobody is logged in automatically"));
    }
    if pending::read(host, paths::LOGIN_PENDING).await?.is_some() {
        return Ok(State::Differs("the auto-login password was never proven by a login"));
    }
    if !has_session(host).await? {
        return Ok(State::Differs("there is no graphical session"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let desired = host.desired.host();
    let password = desired.password.expose();
    let attributes = host.has_attributes(paths::KCPASSWORD, &Owner::root(), 0o600).await?;
    if !attributes || on_disk(host).await?.as_deref() != Some(password) {
        pending::mark(host, paths::LOGIN_PENDING, "login").await?;
        let file = kcpassword::encode(password);
        host.write(paths::KCPASSWORD, file, Owner::root(), 0o600).await?;
    }
    if !has_user(host).await? {
        let user = desired.user.as_str();
        let write = ["defaults", "write", LOGINWINDOW, "autoLoginUser", "-string", user];
        host.run(Command::root(&write)).await?;
    }
    if has_session(host).await? && host.runs_vms().await? {
        return Ok(Applied::Postponed(
            "a login that proves the new password would end running VMs",
        ));
    }
    log_in(host).await?;
    // macOS replaces a password that it does not accept, and says nothing.
    if on_disk(host).await?.as_deref() == Some(kcpassword::SEALED) {
        return Err(Cause::AutoLoginSealed);
    }
    if !has_session(host).await? {
        return Err(Cause::NotVerified("no graphical session came up"));
    }
    pending::clear(host, paths::LOGIN_PENDING).await?;
    Ok(Applied::Done)
}

/// Makes loginwindow log the user in, whether it runs, is dead, or may not be restarted.
async fn log_in(host: &Host<'_>) -> Result<(), Cause> {
    // Each of these fails in a state in which another works; what counts is the session.
    for kick in [
        vec!["launchctl", "kickstart", "-k", LOGINWINDOW_JOB],
        vec!["killall", "-HUP", "loginwindow"],
        vec!["launchctl", "kickstart", LOGINWINDOW_JOB],
    ] {
        if host.ask(Command::root(&kick)).await?.success() {
            break;
        }
    }
    let deadline = Instant::now() + SESSION_WITHIN;
    while !has_session(host).await? && Instant::now() < deadline {
        if on_disk(host).await?.as_deref() == Some(kcpassword::SEALED) {
            break;
        }
        sleep(POLL_EVERY).await;
    }
    Ok(())
}

/// The password in the file on the host, if there is one that can be read.
async fn on_disk(host: &Host<'_>) -> Result<Option<String>, Cause> {
    let file = host.read(paths::KCPASSWORD).await?;
    Ok(file.and_then(|file| kcpassword::decode(&file)))
}

async fn has_user(host: &Host<'_>) -> Result<bool, Cause> {
    let read = Command::root(&["defaults", "read", LOGINWINDOW, "autoLoginUser"]);
    let output = host.ask(read).await?;
    Ok(output.success() && output.text().trim() == host.desired.host().user.as_str())
}

async fn has_session(host: &Host<'_>) -> Result<bool, Cause> {
    let user = host.desired.host().user.as_str();
    let uid = host.run(Command::user(&["id", "-u", user])).await?;
    let domain = format!("gui/{}", uid.text().trim());
    let output = host.ask(Command::root(&["launchctl", "print", &domain])).await?;
    Ok(output.success() && output.text().lines().any(|line| line.trim() == "session = Aqua"))
}
