//! A graphical session that survives a reboot: VMs start in no other.

use std::time::Duration;

use applecart_api::credential::is_told;
use bytes::Bytes;
use tokio::time::{Instant, sleep};

use super::{Account, Applied, Cause, State, launchd, paths, pending, tries};
use crate::{Command, Owner, kcpassword};

/// Where loginwindow keeps its settings.
const SETTINGS: &str = "/Library/Preferences/com.apple.loginwindow";

/// loginwindow as a launchd job.
const LOGINWINDOW: &str = "com.apple.loginwindow";

/// How long loginwindow may take to end the old session and start anew after a kick.
const RESTARTS_WITHIN: Duration = Duration::from_secs(15);

/// How long a session may take to appear: seconds on an idle account, more on one that just booted.
const SESSION_WITHIN: Duration = Duration::from_mins(1);

/// How long a session must be seen to stay: the one of before the kick outlives its loginwindow for
/// a moment, and macOS replaces a refused password a moment later still.
const SETTLES_WITHIN: Duration = Duration::from_secs(10);

/// Time between two looks.
const POLL_EVERY: Duration = Duration::from_secs(2);

/// What is pending before it is known which loginwindow has yet to be replaced.
const LOGIN: &str = "login";

pub(super) async fn check(account: &Account<'_>) -> Result<State, Cause> {
    let password = account.password.expose();
    // Any padding will do: what counts is the password that macOS reads.
    if on_disk(account).await?.as_deref() != Some(password) {
        return Ok(State::Differs("the auto-login password on the host is not the given one"));
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
    let old = account.read(paths::KCPASSWORD).await?;
    let same = old.as_deref().and_then(kcpassword::decode);
    let same = same.as_deref() == Some(account.password.expose());
    let busy = has_session(account).await? && account.runs_vms().await?;
    if busy && !same {
        // Nothing is written: the next boot must log in with a password that is known to work.
        return Ok(Applied::Postponed(
            "a login that proves the new password would end running VMs",
        ));
    }
    if same {
        keep_private(account, old.clone()).await?;
        if !has_user(account).await? {
            set_user(account).await?;
        }
        if is_proven(account).await? {
            accepted(account).await?;
            return Ok(Applied::Done);
        }
        if busy {
            return Ok(Applied::Postponed(
                "a login that proves the password would end running VMs",
            ));
        }
    }
    match tries::count(account, account.password.expose()).await {
        Err(Cause::PasswordRefused) => {
            restore(account).await?;
            return Err(Cause::PasswordRefused);
        }
        counted => counted?,
    }
    if !same {
        keep_proven(account, old).await?;
        pending::mark(account, paths::LOGIN_PENDING, LOGIN).await?;
        let file = kcpassword::encode(account.password.expose());
        account.write(paths::KCPASSWORD, file, Owner::root(), 0o600).await?;
        if !has_user(account).await? {
            set_user(account).await?;
        }
    }
    prove(account).await?;
    Ok(Applied::Done)
}

/// Proves the password on the account by a login, or puts back the one that worked before it.
async fn prove(account: &Account<'_>) -> Result<(), Cause> {
    let refused = match log_in(account).await {
        Ok(Login::Session) => return accepted(account).await,
        Ok(Login::Sealed) => Cause::AutoLoginSealed,
        Ok(Login::Nobody) => Cause::NotVerified("no graphical session came up".to_owned()),
        Err(cause @ (Cause::Failed { .. } | Cause::NotVerified(_))) => cause,
        Err(cause) => return Err(cause),
    };
    restore(account).await?;
    Err(refused)
}

/// macOS took the password: its tries, the one before it and the mark go, the mark last.
async fn accepted(account: &Account<'_>) -> Result<(), Cause> {
    tries::forget(account, account.password.expose()).await?;
    account.run(Command::root(&["rm", "-f", paths::KCPASSWORD_PROVEN])).await?;
    pending::clear(account, paths::LOGIN_PENDING).await
}

/// Closes the file to others, and leaves what is in it alone.
async fn keep_private(account: &Account<'_>, file: Option<Bytes>) -> Result<(), Cause> {
    if account.has_attributes(paths::KCPASSWORD, &Owner::root(), 0o600).await? {
        return Ok(());
    }
    let file = file.unwrap_or_default();
    account.write(paths::KCPASSWORD, file, Owner::root(), 0o600).await
}

/// Keeps the file that the session here was made with: a mistyped password must not cost it.
async fn keep_proven(account: &Account<'_>, old: Option<Bytes>) -> Result<(), Cause> {
    let Some(old) = old else { return Ok(()) };
    let is_password = kcpassword::decode(&old).is_some_and(|old| is_told(&old));
    if !is_password || !has_user(account).await? || !is_proven(account).await? {
        return Ok(());
    }
    account.write(paths::KCPASSWORD_PROVEN, old, Owner::root(), 0o600).await
}

/// Puts the file back that worked before, if there is one, and logs in with it.
async fn restore(account: &Account<'_>) -> Result<(), Cause> {
    let Some(proven) = account.read(paths::KCPASSWORD_PROVEN).await? else { return Ok(()) };
    let Some(password) = kcpassword::decode(&proven) else { return Ok(()) };
    tries::count(account, &password).await?;
    account.write(paths::KCPASSWORD, proven, Owner::root(), 0o600).await?;
    let login = log_in(account).await?;
    if login == Login::Session {
        tries::forget(account, &password).await?;
    }
    // Worked or not: nothing better is left to put back.
    account.run(Command::root(&["rm", "-f", paths::KCPASSWORD_PROVEN])).await?;
    pending::clear(account, paths::LOGIN_PENDING).await
}

/// Whether a login has shown that macOS takes what is in the file.
async fn is_proven(account: &Account<'_>) -> Result<bool, Cause> {
    if !has_session(account).await? {
        return Ok(false);
    }
    let Some(mark) = pending::read(account, paths::LOGIN_PENDING).await? else { return Ok(true) };
    // The loginwindow of before the change is still there, or nobody knows which one that was.
    let Ok(before) = mark.trim().parse::<u32>() else { return Ok(false) };
    let pid = loginwindow(account).await?.filter(|pid| *pid != before);
    let Some(pid) = pid else { return Ok(false) };
    let (domain, file) = (domain(account).await?, on_disk(account).await?);
    settles(account, &domain, pid, file.as_deref()).await
}

/// Whether the session that shows now is still there after a while, by the same loginwindow and
/// with the same password in the file.
async fn settles(
    account: &Account<'_>,
    domain: &str,
    pid: u32,
    file: Option<&str>,
) -> Result<bool, Cause> {
    sleep(SETTLES_WITHIN).await;
    Ok(file != Some(kcpassword::SEALED)
        && on_disk(account).await?.as_deref() == file
        && loginwindow(account).await? == Some(pid)
        && is_session(account, domain).await?)
}

/// How a login ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Login {
    /// A new session is there.
    Session,
    /// macOS replaced a password that it does not accept, and said nothing.
    Sealed,
    /// Neither.
    Nobody,
}

/// Makes loginwindow log the user in, whether it runs, is dead, or may not be restarted.
///
/// The session of before the kick lives on for a moment, so only one of a new loginwindow counts.
async fn log_in(account: &Account<'_>) -> Result<Login, Cause> {
    let before = loginwindow(account).await?;
    let mark = before.map_or_else(|| "0".to_owned(), |pid| pid.to_string());
    pending::mark(account, paths::LOGIN_PENDING, &mark).await?;
    let target = format!("system/{LOGINWINDOW}");
    let (mut refused, mut kicked) = (None, false);
    // Each of these fails in a state in which another works, and an exit status proves nothing.
    for kick in [
        vec!["launchctl", "kickstart", "-k", &target],
        vec!["killall", "-HUP", "loginwindow"],
        vec!["launchctl", "kickstart", &target],
    ] {
        let kick = Command::root(&kick);
        let output = account.ask(kick.clone()).await?;
        if !output.success() {
            refused = Some(super::failed(&kick, &output));
            continue;
        }
        kicked = true;
        // A new loginwindow has tried the password: another kick would be another try.
        if let Some(pid) = restarts(account, before).await? {
            return session(account, pid).await;
        }
    }
    match refused {
        Some(refused) if !kicked => Err(refused),
        _ => Err(Cause::NotVerified("the login window did not restart".to_owned())),
    }
}

/// The process of loginwindow, if there is one. launchd may keep it to itself.
async fn loginwindow(account: &Account<'_>) -> Result<Option<u32>, Cause> {
    if let Some(pid) = launchd::pid(account, LOGINWINDOW).await? {
        return Ok(Some(pid));
    }
    let look = Command::root(&["pgrep", "-x", "loginwindow"]);
    let output = account.ask(look.clone()).await?;
    match output.status {
        0 => Ok(output.text().lines().next().and_then(|pid| pid.trim().parse().ok())),
        1 if output.stderr.is_empty() => Ok(None),
        _ => Err(super::failed(&look, &output)),
    }
}

/// Waits for another loginwindow than `before`.
async fn restarts(account: &Account<'_>, before: Option<u32>) -> Result<Option<u32>, Cause> {
    let deadline = Instant::now() + RESTARTS_WITHIN;
    loop {
        let pid = loginwindow(account).await?;
        if pid.is_some() && pid != before {
            return Ok(pid);
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        sleep(POLL_EVERY).await;
    }
}

/// Waits for what a new loginwindow makes of the password.
async fn session(account: &Account<'_>, pid: u32) -> Result<Login, Cause> {
    let deadline = Instant::now() + SESSION_WITHIN;
    let domain = domain(account).await?;
    loop {
        let file = on_disk(account).await?;
        if file.as_deref() == Some(kcpassword::SEALED) {
            return Ok(Login::Sealed);
        }
        let shows = is_session(account, &domain).await?;
        if shows && settles(account, &domain, pid, file.as_deref()).await? {
            return Ok(Login::Session);
        }
        if Instant::now() >= deadline {
            return Ok(Login::Nobody);
        }
        sleep(POLL_EVERY).await;
    }
}

/// The password in the file on the account, if there is one that can be read.
async fn on_disk(account: &Account<'_>) -> Result<Option<String>, Cause> {
    let file = account.read(paths::KCPASSWORD).await?;
    Ok(file.and_then(|file| kcpassword::decode(&file)))
}

async fn has_user(account: &Account<'_>) -> Result<bool, Cause> {
    let read = Command::root(&["defaults", "read", SETTINGS, "autoLoginUser"]);
    let output = account.ask(read).await?;
    Ok(output.success() && output.text().trim() == account.user.as_str())
}

/// Names the user to log in. Whether that works is for a login to show.
async fn set_user(account: &Account<'_>) -> Result<(), Cause> {
    pending::mark(account, paths::LOGIN_PENDING, LOGIN).await?;
    let user = account.user.as_str();
    let write = ["defaults", "write", SETTINGS, "autoLoginUser", "-string", user];
    account.run(Command::root(&write)).await?;
    Ok(())
}

async fn has_session(account: &Account<'_>) -> Result<bool, Cause> {
    is_session(account, &domain(account).await?).await
}

/// What launchd calls the user's session.
async fn domain(account: &Account<'_>) -> Result<String, Cause> {
    let uid = account.run(Command::user(&["id", "-u", account.user.as_str()])).await?;
    Ok(format!("gui/{}", uid.text().trim()))
}

async fn is_session(account: &Account<'_>, domain: &str) -> Result<bool, Cause> {
    let output = account.ask(Command::root(&["launchctl", "print", domain])).await?;
    Ok(output.success() && output.text().lines().any(|line| line.trim() == "session = Aqua"))
}
