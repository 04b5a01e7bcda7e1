//! Tart: a bundle unpacked beside the old one and swapped in, never under a running VM.

use std::time::Duration;

use super::{Applied, Cause, Host, State, paths, scripts};
use crate::{Command, Owner, Privilege};

/// Tart as a command: it finds its bundle only when started from inside it.
pub(crate) const WRAPPER: &str = "#!/bin/sh
exec /usr/local/lib/tart.app/Contents/MacOS/tart \"$@\"
";

/// Tens of megabytes over a slow uplink.
const UNPACK_TIMEOUT: Duration = Duration::from_mins(10);

/// The stamp from before a bundle is swapped in until all is done: without it, one of the right
/// version would pass for that of an older system, whatever archive it is from.
const UNFINISHED: &str = "unfinished\n";

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    if !has_wrapper(host).await? {
        return Ok(State::Differs("there is no `tart` command"));
    }
    if !has_bundle(host).await? {
        return Ok(State::Differs("Tart is missing or another version"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let archive = &host.desired.fleet().tart.archive;
    if !has_bundle(host).await? {
        // Asked before the upload, and by the script again before the swap.
        if host.runs_vms().await? {
            return Ok(Applied::Postponed("Tart is not replaced under running VMs"));
        }
        host.write(paths::TART_STAMP, UNFINISHED, Owner::root(), 0o644).await?;
        let unpack = Command::script(scripts::UNPACK_TART, &[archive.sha256()], Privilege::Root);
        let unpack = unpack.payload(archive).timeout(UNPACK_TIMEOUT);
        let output = host.ask(unpack.clone()).await?;
        match output.status {
            0 => {}
            scripts::STATUS_VMS_RUNNING => {
                return Ok(Applied::Postponed("Tart is not replaced under running VMs"));
            }
            _ => return Err(super::failed(&unpack, &output)),
        }
        host.write(paths::TART_STAMP, stamp(host), Owner::root(), 0o644).await?;
    }
    if !has_wrapper(host).await? {
        host.write(paths::TART, WRAPPER, Owner::root(), 0o755).await?;
    }
    Ok(Applied::Done)
}

/// Whether the bundle is from our archive; without a stamp (it was put there by an older system)
/// its version decides.
async fn has_bundle(host: &Host<'_>) -> Result<bool, Cause> {
    let stamped = host.read(paths::TART_STAMP).await?;
    if stamped.is_some_and(|found| found != stamp(host)) {
        return Ok(false);
    }
    let program = format!("{}/Contents/MacOS/tart", paths::TART_APP);
    let output = host.ask(Command::user(&[&program, "--version"])).await?;
    Ok(output.success() && output.text().trim() == host.desired.fleet().tart.version)
}

fn stamp(host: &Host<'_>) -> String {
    format!("{}\n", host.desired.fleet().tart.archive.sha256())
}

/// Any wrapper that starts the bundle's own program will do.
async fn has_wrapper(host: &Host<'_>) -> Result<bool, Cause> {
    let found = host.read(paths::TART).await?.unwrap_or_default();
    let program = format!("{}/Contents/MacOS/tart", paths::TART_APP);
    let starts = String::from_utf8_lossy(&found).contains(&program);
    Ok(starts && host.has_attributes(paths::TART, &Owner::root(), 0o755).await?)
}
