//! Root without a password, for everything after it.

use sha2::{Digest, Sha256};

use super::{Applied, Cause, Host, State, paths, scripts};
use crate::config::hex;
use crate::{Command, Owner, Privilege};

/// Bytes of a password's digest that mark its tries: tells passwords apart, gives none away.
const MARK_BYTES: usize = 4;

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !works(host).await? {
        return Ok(State::Differs("sudo asks for a password"));
    }
    let user = &host.desired.host().user;
    // Older versions could leave other lines here, the password among them; never shown.
    let found = host.read(&paths::sudoers(user)).await?;
    let rule = format!("{user} ALL=(ALL) NOPASSWD: ALL");
    if found.is_none_or(|text| text.trim_ascii_end() != rule.as_bytes()) {
        return Ok(State::Differs("the sudo rule is missing or is not the one line it should be"));
    }
    if !host.has_attributes(&paths::sudoers(user), &Owner::root(), 0o440).await? {
        return Ok(State::Differs("the sudo rule has another owner or mode"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let user = host.desired.host().user.as_str();
    if works(host).await? {
        let install = Command::script(scripts::INSTALL_SUDOERS, &[user], Privilege::Root);
        host.run(install).await?;
        return Ok(Applied::Done);
    }
    count_try(host).await?;
    let line = format!("{}\n", host.desired.host().password.expose());
    let install = Command::script(scripts::INSTALL_SUDOERS, &[user], Privilege::RootByPassword);
    let output = host.ask(install.stdin(line)).await?;
    if output.success() {
        return Ok(Applied::Done);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = ["incorrect password", "Sorry, try again", "no password was provided"];
    if refused.iter().any(|text| said.contains(text)) {
        return Err(Cause::PasswordRefused);
    }
    // What sudo prints here may quote a line of a broken rules file: not repeated.
    let doing = "installing the sudo rule".to_owned();
    Err(Cause::Failed { doing, status: output.status, stderr: "see `sudo -v` on the host".into() })
}

async fn works(host: &Host<'_>) -> Result<bool, Cause> {
    Ok(host.ask(Command::root(&["true"])).await?.success())
}

/// Counts the try on the host itself, before it is made: a crash cannot forget it, a reboot does,
/// and so does macOS.
async fn count_try(host: &Host<'_>) -> Result<(), Cause> {
    let digest = Sha256::digest(host.desired.host().password.expose());
    let mark = format!("{}\n", hex(&digest[..MARK_BYTES]));
    let count = Command::script(scripts::COUNT_TRY, &[], Privilege::User).stdin(mark);
    let output = host.ask(count.clone()).await?;
    match output.status {
        0 => Ok(()),
        scripts::STATUS_TRIES_USED_UP => Err(Cause::PasswordRefused),
        _ => Err(super::failed(&count, &output)),
    }
}
