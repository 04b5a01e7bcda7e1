//! The host's three names, all the Node's.

use super::{Applied, Cause, Host, State};
use crate::Command;

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    for (kind, name) in names(host) {
        if current(host, kind).await?.as_deref() != Some(name.as_str()) {
            return Ok(State::Differs("the host has another name"));
        }
    }
    Ok(State::Converged)
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    for (kind, name) in names(host) {
        if current(host, kind).await?.as_deref() != Some(name.as_str()) {
            host.run(Command::root(&["scutil", "--set", kind, &name])).await?;
        }
    }
    Ok(Applied::Done)
}

fn names(host: &Host<'_>) -> [(&'static str, String); 3] {
    let name = host.desired.host().node_name.clone();
    // A local host name is one DNS label: it has no dots.
    let local = name.replace('.', "-");
    [("HostName", name.clone()), ("LocalHostName", local), ("ComputerName", name)]
}

async fn current(host: &Host<'_>, kind: &str) -> Result<Option<String>, Cause> {
    let output = host.ask(Command::root(&["scutil", "--get", kind])).await?;
    Ok(output.success().then(|| output.text().trim().to_owned()))
}
