//! Figures of the host for people who watch it, on its tailnet address. Comes last: what it fails
//! to do leaves the agent alone.

use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::{Applied, Cause, Host, State, launchd, paths, scripts};
use crate::{Command, Owner, Payload, plist};

/// The stamp from before the first change until all of it is there: whatever is there meanwhile is
/// neither ours nor that of the system before us.
const UNFINISHED: &str = "unfinished\n";

/// How long the exporter may take to come out of its wrapper, which waits ten seconds for an
/// address.
const EXPORTS_WITHIN: Duration = Duration::from_secs(12);

/// Starts the exporter on the tailnet's address, once there is one. Nobody else can reach it.
pub(crate) const WRAPPER: &str = r#"#!/bin/sh
for try in 1 2 3 4 5; do
  address=$(/usr/local/bin/tailscale --socket=/var/run/tailscaled.socket ip -4 2>/dev/null)
  if [ -n "$address" ]; then
    exec /usr/local/bin/node_exporter --web.listen-address="$address:9100" \
      --collector.disable-defaults --collector.cpu --collector.diskstats \
      --collector.filesystem --collector.loadavg --collector.meminfo --collector.netdev \
      --collector.os --collector.time --collector.uname
  fi
  sleep 2
done
echo "no address in the tailnet" >&2
exit 1
"#;

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let Some(binary) = &host.desired.fleet().node_exporter else { return Ok(State::Converged) };
    if !is_installed(host, binary).await? {
        return Ok(State::Differs("the node exporter is missing or another"));
    }
    if launchd::pid(host, plist::NODE_EXPORTER_JOB).await?.is_none() || !exports(host).await? {
        return Ok(State::Differs("the node exporter does not run: it needs a tailnet's address"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let Some(binary) = &host.desired.fleet().node_exporter else { return Ok(Applied::Done) };
    let installed = is_installed(host, binary).await?;
    if !installed {
        host.write(paths::NODE_EXPORTER_STAMP, UNFINISHED, Owner::root(), 0o644).await?;
        host.receive(paths::NODE_EXPORTER, binary, 0o755).await?;
        for (path, text, mode) in files() {
            host.write(path, text, Owner::root(), mode).await?;
        }
    }
    // Its job is taken in before the stamp says that all of it is new.
    let before = launchd::pid(host, plist::NODE_EXPORTER_JOB).await?;
    launchd::reload(host, plist::NODE_EXPORTER_JOB, paths::NODE_EXPORTER_PLIST).await?;
    let target = launchd::target(plist::NODE_EXPORTER_JOB);
    if !launchd::is_new_and_stays(host, &target, before).await? {
        let gone = "the node exporter does not stay up: see its log on the host";
        return Err(Cause::NotVerified(gone.to_owned()));
    }
    let deadline = Instant::now() + EXPORTS_WITHIN;
    while !exports(host).await? && Instant::now() < deadline {
        sleep(launchd::POLL_EVERY).await;
    }
    if !installed {
        let stamp = format!("{}\n", binary.sha256());
        host.write(paths::NODE_EXPORTER_STAMP, stamp, Owner::root(), 0o644).await?;
    }
    Ok(Applied::Done)
}

/// Whether the exporter itself runs: its job has a process while its wrapper waits, too.
async fn exports(host: &Host<'_>) -> Result<bool, Cause> {
    host.finds(Command::root(&["pgrep", "-f", scripts::EXPORTER_PATTERN])).await
}

fn files() -> [(&'static str, String, u32); 2] {
    [
        (paths::NODE_EXPORTER_WRAPPER, WRAPPER.to_owned(), 0o755),
        (paths::NODE_EXPORTER_PLIST, plist::node_exporter(), 0o644),
    ]
}

async fn is_installed(host: &Host<'_>, binary: &Payload) -> Result<bool, Cause> {
    let Some(stamp) = host.read(paths::NODE_EXPORTER_STAMP).await? else {
        return is_the_originals(host).await;
    };
    if stamp.trim_ascii_end() != binary.sha256().as_bytes() || !is_whole(host, binary).await? {
        return Ok(false);
    }
    for (path, text, mode) in files() {
        if !host.is_file(path, text.as_bytes(), &Owner::root(), mode).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether the binary is the one that was installed.
async fn is_whole(host: &Host<'_>, binary: &Payload) -> Result<bool, Cause> {
    let ask = Command::root(&["shasum", "-a", "256", paths::NODE_EXPORTER]);
    let found = host.ask(ask).await?;
    let same = found.success() && found.text().starts_with(binary.sha256());
    Ok(same && host.has_attributes(paths::NODE_EXPORTER, &Owner::root(), 0o755).await?)
}

/// A host of the system before us has no stamp, and is left as it is: any wrapper that starts the
/// exporter will do.
async fn is_the_originals(host: &Host<'_>) -> Result<bool, Cause> {
    let wrapper = host.read(paths::NODE_EXPORTER_WRAPPER).await?.unwrap_or_default();
    if !String::from_utf8_lossy(&wrapper).contains(paths::NODE_EXPORTER) {
        return Ok(false);
    }
    for path in [paths::NODE_EXPORTER, paths::NODE_EXPORTER_WRAPPER] {
        if !host.has_attributes(path, &Owner::root(), 0o755).await? {
            return Ok(false);
        }
    }
    let job = plist::node_exporter();
    host.is_file(paths::NODE_EXPORTER_PLIST, job.as_bytes(), &Owner::root(), 0o644).await
}
