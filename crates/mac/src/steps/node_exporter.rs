//! Figures of the host for people who watch it, on its tailnet address. Comes last: what it fails
//! to do leaves the agent alone.

use super::{Applied, Cause, Host, State, launchd, paths};
use crate::{Owner, Payload, plist};

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
    if launchd::pid(host, plist::NODE_EXPORTER_JOB).await?.is_none() {
        return Ok(State::Differs("the node exporter does not run"));
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let Some(binary) = &host.desired.fleet().node_exporter else { return Ok(Applied::Done) };
    if !is_installed(host, binary).await? {
        host.receive(paths::NODE_EXPORTER, binary, 0o755).await?;
        for (path, text, mode) in files() {
            host.write(path, text, Owner::root(), mode).await?;
        }
    }
    // Its job is taken in before the stamp says that all of it is new.
    launchd::reload(host, plist::NODE_EXPORTER_JOB, paths::NODE_EXPORTER_PLIST).await?;
    let stamp = format!("{}\n", binary.sha256());
    host.write(paths::NODE_EXPORTER_STAMP, stamp, Owner::root(), 0o644).await?;
    Ok(Applied::Done)
}

fn files() -> [(&'static str, String, u32); 2] {
    [
        (paths::NODE_EXPORTER_WRAPPER, WRAPPER.to_owned(), 0o755),
        (paths::NODE_EXPORTER_PLIST, plist::node_exporter(), 0o644),
    ]
}

async fn is_installed(host: &Host<'_>, binary: &Payload) -> Result<bool, Cause> {
    let stamp = host.read(paths::NODE_EXPORTER_STAMP).await?.unwrap_or_default();
    if stamp.trim_ascii_end() != binary.sha256().as_bytes() {
        return Ok(false);
    }
    for (path, text, mode) in files() {
        if !host.is_file(path, text.as_bytes(), &Owner::root(), mode).await? {
            return Ok(false);
        }
    }
    Ok(true)
}
