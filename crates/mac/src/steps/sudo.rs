//! Root without a password, for everything after it.

use super::{Account, Applied, Cause, State, paths, scripts, tries};
use crate::{Command, Owner, Privilege};

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
    tries::count(account, account.password.expose()).await?;
    let line = format!("{}\n", account.password.expose());
    let install = Command::script(scripts::INSTALL_SUDOERS, &[user], Privilege::RootByPassword);
    let output = account.ask(install.stdin(line)).await?;
    if output.success() {
        tries::forget(account, account.password.expose()).await?;
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
