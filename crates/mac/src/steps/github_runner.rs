//! A GitHub Actions runner on the host itself, for hosts that build images. Comes last: what it
//! fails to do leaves the agent alone.

use std::time::Duration;

use secrecy::ExposeSecret;
use tokio::time::{Instant, sleep};

use super::{Applied, Cause, Host, State, launchd, paths, scripts};
use crate::{Command, GithubRunner, Owner, Privilege};

/// A release is a hundred megabytes.
const INSTALL_TIMEOUT: Duration = Duration::from_mins(12);

/// The stamp from before a registration until the runner runs: whatever is registered meanwhile may
/// have other labels, and is not the original's.
const UNFINISHED: &str = "unfinished\n";

/// Where builds keep what they made, for every shell.
pub(crate) const ZSHENV_LINE: &str = "export TUIST_MIX_BUILD_ROOT=/opt/tuist-build-cache";

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let Some(wanted) = &host.desired.host().github_runner else { return Ok(State::Converged) };
    let user = Owner::staff(host.user);
    for path in [paths::RUNNER, paths::BUILD_CACHE] {
        if !host.has_attributes(path, &user, 0o755).await? {
            return Ok(State::Differs("a builder's folders are missing or another's"));
        }
    }
    if !has_line(host.read(paths::ZSHENV).await?.as_deref().unwrap_or_default()) {
        return Ok(State::Differs("shells do not know where builds keep what they made"));
    }
    if !is_registered(host).await? {
        return Ok(State::Differs("the runner is not registered"));
    }
    if !stamp_fits(host, wanted).await? {
        return Ok(State::Differs("the runner is registered elsewhere, or with other labels"));
    }
    if launchd::pid_of(host, &target(host, wanted).await?).await?.is_none() {
        return Ok(State::Differs("the runner does not run"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let Some(wanted) = &host.desired.host().github_runner else { return Ok(Applied::Done) };
    let user = host.user.as_str();
    host.run(Command::script(scripts::BUILDER_FOLDERS, &[user], Privilege::Root)).await?;
    let zshenv = host.read(paths::ZSHENV).await?.unwrap_or_default();
    if !has_line(&zshenv) {
        host.write(paths::ZSHENV, with_line(&zshenv), Owner::root(), 0o644).await?;
    }
    let registered = is_registered(host).await?;
    let fits = stamp_fits(host, wanted).await?;
    if registered && !fits {
        if host.finds(Command::user(&["pgrep", "-f", scripts::JOB_PATTERN])).await? {
            return Ok(Applied::Postponed("the runner has a job"));
        }
        host.write(paths::RUNNER_STAMP, UNFINISHED, Owner::root(), 0o644).await?;
        forget(host, wanted).await?;
    } else if !registered {
        host.write(paths::RUNNER_STAMP, UNFINISHED, Owner::root(), 0o644).await?;
    }
    install(host, wanted).await?;
    run(host, wanted).await?;
    // What the original registered stays without a stamp: nobody knows its labels.
    if !registered || !fits {
        host.write(paths::RUNNER_STAMP, wanted.registered_as(), Owner::root(), 0o644).await?;
    }
    Ok(Applied::Done)
}

async fn forget(host: &Host<'_>, wanted: &GithubRunner) -> Result<(), Cause> {
    let domain = domain(host).await?;
    host.run(Command::script(scripts::FORGET_RUNNER, &[&domain], Privilege::User)).await?;
    // A job that is still leaving cannot be loaded again.
    let deadline = Instant::now() + launchd::LEAVES_WITHIN;
    while is_loaded(host, wanted).await? && Instant::now() < deadline {
        sleep(launchd::POLL_EVERY).await;
    }
    Ok(())
}

/// Makes the runner run, if it does not, and stay.
async fn run(host: &Host<'_>, wanted: &GithubRunner) -> Result<(), Cause> {
    let target = target(host, wanted).await?;
    if launchd::pid_of(host, &target).await?.is_some() {
        return Ok(());
    }
    if is_loaded(host, wanted).await? {
        // Its status says little; the new process says all.
        host.ask(Command::root(&["launchctl", "kickstart", "-k", &target])).await?;
    } else {
        let path = paths::runner_plist(host.user, &job(host, wanted));
        let domain = domain(host).await?;
        host.run(Command::root(&["launchctl", "bootstrap", &domain, &path])).await?;
    }
    if launchd::is_new_and_stays(host, &target, None).await? {
        return Ok(());
    }
    Err(Cause::NotVerified("the runner does not stay up: see its log on the host".to_owned()))
}

/// The token travels on stdin, and reaches GitHub's program by its environment.
async fn install(host: &Host<'_>, wanted: &GithubRunner) -> Result<(), Cause> {
    let name = host.desired.host().node_name.as_str();
    let job = job(host, wanted);
    let arguments = [wanted.version(), wanted.url(), name, wanted.labels(), &job];
    let install = Command::script(scripts::INSTALL_RUNNER, &arguments, Privilege::User);
    let token = format!("{}\n", wanted.token().expose_secret());
    host.run(install.stdin(token).timeout(INSTALL_TIMEOUT)).await?;
    Ok(())
}

/// Both files, as GitHub's own programs look for them. They are not read: one is a credential.
async fn is_registered(host: &Host<'_>) -> Result<bool, Cause> {
    for path in [paths::RUNNER_REGISTERED, paths::RUNNER_CREDENTIALS] {
        if !host.ask(Command::root(&["stat", "-f", "%Su:%Sg %Lp", path])).await?.success() {
            return Ok(false);
        }
    }
    Ok(true)
}

/// A host that the original registered has no stamp, and is left as it is.
async fn stamp_fits(host: &Host<'_>, wanted: &GithubRunner) -> Result<bool, Cause> {
    let stamp = host.read(paths::RUNNER_STAMP).await?;
    Ok(stamp.is_none_or(|found| found == wanted.registered_as()))
}

async fn is_loaded(host: &Host<'_>, wanted: &GithubRunner) -> Result<bool, Cause> {
    let target = target(host, wanted).await?;
    Ok(host.ask(Command::root(&["launchctl", "print", &target])).await?.success())
}

async fn target(host: &Host<'_>, wanted: &GithubRunner) -> Result<String, Cause> {
    Ok(format!("{}/{}", domain(host).await?, job(host, wanted)))
}

fn job(host: &Host<'_>, wanted: &GithubRunner) -> String {
    wanted.job(&host.desired.host().node_name)
}

/// The runner lives in the user's graphical session, as a person's programs do.
async fn domain(host: &Host<'_>) -> Result<String, Cause> {
    let uid = host.run(Command::user(&["id", "-u", host.user.as_str()])).await?;
    Ok(format!("gui/{}", uid.text().trim()))
}

fn has_line(text: &[u8]) -> bool {
    String::from_utf8_lossy(text).lines().any(|line| line.trim() == ZSHENV_LINE)
}

/// What was there stays, a torn last line included.
fn with_line(text: &[u8]) -> Vec<u8> {
    let mut text = text.to_vec();
    if !text.is_empty() && !text.ends_with(b"\n") {
        text.push(b'\n');
    }
    text.extend_from_slice(ZSHENV_LINE.as_bytes());
    text.push(b'\n');
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whatever_a_shells_file_says_stays_and_the_line_is_there_once(
            text in proptest::collection::vec(any::<u8>(), 0..80)
        ) {
            prop_assume!(!has_line(&text));
            let with = with_line(&text);
            prop_assert!(with.starts_with(&text) && has_line(&with));
        }
    }
}
