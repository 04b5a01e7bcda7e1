//! Root without a password, for everything after it.

use sha2::{Digest, Sha256};

use super::{Account, Applied, Cause, State, paths, scripts};
use crate::config::hex;
use crate::{Command, Owner, Privilege};

/// Bytes of a password's digest that mark its tries: tells passwords apart, gives none away.
const MARK_BYTES: usize = 4;

pub(super) async fn check(account: &Account<'_>) -> Result<State, Cause> {
    if !works(account).await? {
        return Ok(State::Differs("sudo asks for a password"));
    }
    let user = account.user;
    // Older versions could leave other lines here, the password among them; never shown.
    let found = account.read(&paths::sudoers(user)).await?;
    let rule = format!("{user} ALL=(ALL) NOPASSWD: ALL");
    if found.is_none_or(|text| text.trim_ascii_end() != rule.as_bytes()) {
        return Ok(State::Differs("the sudo rule is missing or is not the one line it should be"));
    }
    if !account.has_attributes(&paths::sudoers(user), &Owner::root(), 0o440).await? {
        return Ok(State::Differs("the sudo rule has another owner or mode"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(account: &Account<'_>) -> Result<Applied, Cause> {
    let user = account.user.as_str();
    if works(account).await? {
        let install = Command::script(scripts::INSTALL_SUDOERS, &[user], Privilege::Root);
        account.run(install).await?;
        return Ok(Applied::Done);
    }
    count_try(account).await?;
    let line = format!("{}\n", account.password.expose());
    let install = Command::script(scripts::INSTALL_SUDOERS, &[user], Privilege::RootByPassword);
    let output = account.ask(install.stdin(line)).await?;
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

async fn works(account: &Account<'_>) -> Result<bool, Cause> {
    Ok(account.ask(Command::root(&["true"])).await?.success())
}

/// Counts the try on the host itself, before it is made: a crash cannot forget it, a reboot does,
/// and so does macOS.
async fn count_try(account: &Account<'_>) -> Result<(), Cause> {
    let digest = Sha256::digest(account.password.expose());
    let mark = format!("{}\n", hex(&digest[..MARK_BYTES]));
    let count = Command::script(scripts::COUNT_TRY, &[], Privilege::User).stdin(mark);
    let output = account.ask(count.clone()).await?;
    match output.status {
        0 => Ok(()),
        scripts::STATUS_TRIES_USED_UP => Err(Cause::PasswordRefused),
        _ => Err(super::failed(&count, &output)),
    }
}
