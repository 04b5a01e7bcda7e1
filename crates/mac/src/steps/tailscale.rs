//! The tailnet, for hosts of a fleet that has one: the daemon, and a join that proved itself.

use std::time::Duration;

use secrecy::ExposeSecret;

use super::{Applied, Cause, Host, State, launchd, paths, scripts};
use crate::config::Tailscale;
use crate::{Command, Owner, Privilege, plist};

/// The daemon may take half a minute to listen, and as long again to get an address.
const JOIN_TIMEOUT: Duration = Duration::from_mins(3);

/// Tens of megabytes over a slow uplink.
const UNPACK_TIMEOUT: Duration = Duration::from_mins(10);

/// The stamp from before any change until the host has joined: whatever is there meanwhile is
/// neither what it was, nor what it shall be, nor that of the system before us.
const UNFINISHED: &str = "unfinished\n";

/// A host that the original put into its tailnet has no stamp, and is left as it is.
pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let Some(wanted) = &host.desired.fleet().tailscale else { return Ok(State::Converged) };
    let stamp = host.read(paths::TAILSCALE_STAMP).await?;
    if stamp.is_some_and(|found| found != stamp_of(wanted)) {
        return Ok(State::Differs("Tailscale is of another version, or has other tags"));
    }
    if !has_programs(host).await? {
        return Ok(State::Differs("Tailscale is missing"));
    }
    if !has_definition(host).await? {
        return Ok(State::Differs("the job of Tailscale's daemon is missing or another"));
    }
    if !has_address(host).await? {
        return Ok(State::Differs("the host has no address in the tailnet"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let Some(wanted) = &host.desired.fleet().tailscale else { return Ok(Applied::Done) };
    let stamp = host.read(paths::TAILSCALE_STAMP).await?.unwrap_or_default();
    let stamp = String::from_utf8_lossy(&stamp).into_owned();
    let installed = stamp.split_whitespace().next() == Some(wanted.archive.sha256())
        && has_programs(host).await?;
    let defined = has_definition(host).await?;
    if stamp != stamp_of(wanted) || !installed || !defined {
        host.write(paths::TAILSCALE_STAMP, UNFINISHED, Owner::root(), 0o644).await?;
    }
    if !installed {
        let arguments = [wanted.archive.sha256()];
        let unpack = Command::script(scripts::UNPACK_TAILSCALE, &arguments, Privilege::Root);
        host.run(unpack.payload(&wanted.archive).timeout(UNPACK_TIMEOUT)).await?;
    }
    if !defined {
        let text = plist::tailscaled();
        host.write(paths::TAILSCALE_PLIST, text, Owner::root(), 0o644).await?;
    }
    let runs = launchd::pid(host, plist::TAILSCALE_JOB).await?.is_some();
    if !installed || !defined || !runs {
        launchd::reload(host, plist::TAILSCALE_JOB, paths::TAILSCALE_PLIST).await?;
    }
    if stamp != stamp_of(wanted) || !has_address(host).await? {
        join(host, wanted).await?;
    }
    host.write(paths::TAILSCALE_STAMP, stamp_of(wanted), Owner::root(), 0o644).await?;
    Ok(Applied::Done)
}

/// The key travels on stdin, and is on the host while it joins alone.
async fn join(host: &Host<'_>, wanted: &Tailscale) -> Result<(), Cause> {
    let own = host.desired.host();
    let key = own.tailscale_key.as_ref().map_or("", ExposeSecret::expose_secret);
    let arguments = [own.node_name.as_str(), &wanted.tags.join(",")];
    let join = Command::script(scripts::JOIN_TAILNET, &arguments, Privilege::Root);
    host.run(join.stdin(format!("{key}\n")).timeout(JOIN_TIMEOUT)).await?;
    Ok(())
}

fn stamp_of(wanted: &Tailscale) -> String {
    format!("{} {}\n", wanted.archive.sha256(), wanted.tags.join(","))
}

/// Both, for a daemon that still runs may have lost its program.
async fn has_programs(host: &Host<'_>) -> Result<bool, Cause> {
    for path in [paths::TAILSCALE, paths::TAILSCALED] {
        if !host.has_attributes(path, &Owner::root(), 0o755).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

async fn has_definition(host: &Host<'_>) -> Result<bool, Cause> {
    let text = plist::tailscaled();
    host.is_file(paths::TAILSCALE_PLIST, text.as_bytes(), &Owner::root(), 0o644).await
}

async fn has_address(host: &Host<'_>) -> Result<bool, Cause> {
    let socket = format!("--socket={}", paths::TAILSCALE_SOCKET);
    let ask = Command::root(&[paths::TAILSCALE, &socket, "ip", "-4"]);
    let output = host.ask(ask).await?;
    Ok(output.success() && output.text().starts_with("100."))
}
