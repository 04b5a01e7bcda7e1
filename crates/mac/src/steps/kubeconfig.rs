//! The agent's way into the cluster: readable by the agent's user alone.

use secrecy::ExposeSecret;

use super::{Applied, Cause, Host, State, agent_job, paths};
use crate::Owner;

pub(super) async fn check(host: &Host<'_>) -> Result<State, Cause> {
    let desired = host.desired.host();
    let content = desired.kubeconfig.expose_secret().as_bytes();
    let owner = Owner::staff(&desired.user);
    if host.is_file(paths::KUBECONFIG, content, &owner, 0o600).await? {
        Ok(State::Converged)
    } else {
        Ok(State::Differs("the kubeconfig is missing, another, or readable by others"))
    }
}

pub(super) async fn apply(host: &Host<'_>) -> Result<Applied, Cause> {
    let desired = host.desired.host();
    let content = desired.kubeconfig.expose_secret().to_owned();
    agent_job::will_need_restart(host).await?;
    host.write(paths::KUBECONFIG, content, Owner::staff(&desired.user), 0o600).await?;
    Ok(Applied::Done)
}
