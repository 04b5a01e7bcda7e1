//! How often each password was tried since the host's boot: macOS locks accounts.

use sha2::{Digest, Sha256};

use super::{Account, Cause, scripts};
use crate::config::hex;
use crate::{Command, Privilege, Script};

/// Bytes of a password's digest that mark its tries: tells passwords apart, gives none away.
const MARK_BYTES: usize = 4;

/// Counts a try on the host itself, before it is made: a crash cannot forget it, a reboot does, and
/// so does macOS.
pub(super) async fn count(account: &Account<'_>, password: &str) -> Result<(), Cause> {
    let count = with_mark(scripts::COUNT_TRY, password);
    let output = account.ask(count.clone()).await?;
    match output.status {
        0 => Ok(()),
        scripts::STATUS_TRIES_USED_UP => Err(Cause::PasswordRefused),
        _ => Err(super::failed(&count, &output)),
    }
}

/// Forgets the tries of a password that macOS took: it is no guess any more.
pub(super) async fn forget(account: &Account<'_>, password: &str) -> Result<(), Cause> {
    account.run(with_mark(scripts::FORGET_TRIES, password)).await?;
    Ok(())
}

fn with_mark(script: Script, password: &str) -> Command {
    let digest = Sha256::digest(password);
    let mark = format!("{}\n", hex(&digest[..MARK_BYTES]));
    Command::script(script, &[], Privilege::User).stdin(mark)
}
