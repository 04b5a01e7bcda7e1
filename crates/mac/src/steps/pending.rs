//! Marks on the host for work that a crash must not lose: written before, removed after.

use super::{Account, Cause};
use crate::{Command, Owner};

/// Marks `path` with `what`, unless it says so already.
pub(super) async fn mark(account: &Account<'_>, path: &str, what: &str) -> Result<(), Cause> {
    if read(account, path).await?.as_deref() == Some(what) {
        return Ok(());
    }
    account.write(path, what.to_owned(), Owner::root(), 0o644).await
}

/// What is pending, if anything.
pub(super) async fn read(account: &Account<'_>, path: &str) -> Result<Option<String>, Cause> {
    let found = account.read(path).await?;
    Ok(found.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
}

/// Says that the work is done and was seen to work.
pub(super) async fn clear(account: &Account<'_>, path: &str) -> Result<(), Cause> {
    account.run(Command::root(&["rm", "-f", path])).await?;
    Ok(())
}
