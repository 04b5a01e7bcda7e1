//! A graphical session that survives a reboot: VMs start in no other.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Account, Applied, Cause, State, paths, pending};
use crate::{Command, Owner, kcpassword};

/// Where loginwindow keeps its settings.
const LOGINWINDOW: &str = "/Library/Preferences/com.apple.loginwindow";

/// loginwindow as a launchd job.
const LOGINWINDOW_JOB: &str = "system/com.apple.loginwindow";

/// How long a session may take to appear: seconds on an idle account, more on one that just booted.
const SESSION_WITHIN: Duration = Duration::from_mins(1);

/// Time between two looks.
const POLL_EVERY: Duration = Duration::from_secs(2);

pub(super) async fn check(account: &Account<'_>) -> Result<State, Cause> {
    let password = account.password.expose();
    // Any padding will do: what counts is the password that macOS reads.
    if on_disk(account).await?.as_deref() != Some(password) {
        return Ok(State::Differs("the auto-login password is not the host's"));
    }
    if !account.has_attributes(paths::KCPASSWORD, &Owner::root(), 0o600).await? {
        return Ok(State::Differs("others can read the auto-login password"));
    }
    if !has_user(account).await? {
        return Ok(State::Differs("nobody is logged in automatically"));
    }
    if pending::read(account, paths::LOGIN_PENDING).await?.is_some() {
        return Ok(State::Differs("the auto-login password was never proven by a login"));
    }
    if !has_session(account).await? {
        return Ok(State::Differs("there is no graphical session"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(account: &Account<'_>) -> Result<Applied, Cause> {
    let password = account.password.expose();
    let attributes = account.has_attributes(paths::KCPASSWORD, &Owner::root(), 0o600).await?;
    if !attributes || on_disk(account).await?.as_deref() != Some(password) {
        pending::mark(account, paths::LOGIN_PENDING, "login").await?;
        let file = kcpassword::encode(password);
        account.write(paths::KCPASSWORD, file, Owner::root(), 0o600).await?;
    }
    if !has_user(account).await? {
        let user = account.user.as_str();
        let write = ["defaults", "write", LOGINWINDOW, "autoLoginUser", "-string", user];
        account.run(Command::root(&write)).await?;
    }
    if has_session(account).await? && account.runs_vms().await? {
        return Ok(Applied::Postponed(
            "a login that proves the new password would end running VMs",
        ));
    }
    log_in(account).await?;
    // macOS replaces a password that it does not accept, and says nothing.
    if on_disk(account).await?.as_deref() == Some(kcpassword::SEALED) {
        return Err(Cause::AutoLoginSealed);
    }
    if !has_session(account).await? {
        return Err(Cause::NotVerified("no graphical session came up"));
    }
    pending::clear(account, paths::LOGIN_PENDING).await?;
    Ok(Applied::Done)
}

/// Makes loginwindow log the user in, whether it runs, is dead, or may not be restarted.
async fn log_in(account: &Account<'_>) -> Result<(), Cause> {
    // Each of these fails in a state in which another works; what counts is the session.
    for kick in [
        vec!["launchctl", "kickstart", "-k", LOGINWINDOW_JOB],
        vec!["killall", "-HUP", "loginwindow"],
        vec!["launchctl", "kickstart", LOGINWINDOW_JOB],
    ] {
        if account.ask(Command::root(&kick)).await?.success() {
            break;
        }
    }
    let deadline = Instant::now() + SESSION_WITHIN;
    while !has_session(account).await? && Instant::now() < deadline {
        if on_disk(account).await?.as_deref() == Some(kcpassword::SEALED) {
            break;
        }
        sleep(POLL_EVERY).await;
    }
    Ok(())
}

/// The password in the file on the account, if there is one that can be read.
async fn on_disk(account: &Account<'_>) -> Result<Option<String>, Cause> {
    let file = account.read(paths::KCPASSWORD).await?;
    Ok(file.and_then(|file| kcpassword::decode(&file)))
}

async fn has_user(account: &Account<'_>) -> Result<bool, Cause> {
    let read = Command::root(&["defaults", "read", LOGINWINDOW, "autoLoginUser"]);
    let output = account.ask(read).await?;
    Ok(output.success() && output.text().trim() == account.user.as_str())
}

async fn has_session(account: &Account<'_>) -> Result<bool, Cause> {
    let user = account.user.as_str();
    let uid = account.run(Command::user(&["id", "-u", user])).await?;
    let domain = format!("gui/{}", uid.text().trim());
    let output = account.ask(Command::root(&["launchctl", "print", &domain])).await?;
    Ok(output.success() && output.text().lines().any(|line| line.trim() == "session = Aqua"))
}
