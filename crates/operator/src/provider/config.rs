//! What a Mac shall be, put together from Secrets and settings; and the bootstrap that makes it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::{label, owned};
use applecart_core::Outcome;
use applecart_mac::{
    Dial, HostConfig, HostKey, MacError, Password, PerHost, Session, Target, UserName, bootstrap,
};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::ObjectRef;
use secrecy::SecretString;
use serde_json::json;
use tokio::time::Instant;

use super::bootstraps::Place;
use super::observe::{Turn, chain, fleet};
use super::{Context, objects};
use crate::calls::{self, ReadError};

/// How often a host that does not answer SSH yet is tried, as a part of the patience for it.
const TRIES: u32 = 30;

/// Begins the bootstrap of the object's Mac beside the loop.
pub async fn start(context: &Context, turn: &Turn) -> Outcome {
    let (target, config) = match prepare(context, turn).await {
        Ok(prepared) => prepared,
        Err(error) => return Outcome::Failed(chain(&error)),
    };
    let object = &turn.seen.object;
    let Some(host) = turn.host().cloned() else { return Outcome::Refused };
    let secrets = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let secret = owned::credentials(&object.name);
    let (dial, patience) = (context.dial.clone(), context.settings.ssh_patience);
    let key = ObjectRef::from_obj(&turn.object);
    context.bootstraps.start(&object.uid, key, host, |place| {
        Box::pin(Work { dial, secrets, secret, patience, target, config, place }.run())
    });
    Outcome::Done
}

async fn prepare(context: &Context, turn: &Turn) -> Result<(Target, HostConfig), ReadError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &turn.seen.object.name;
    let fleet = fleet(&turn.object);
    let key = value(&secrets, &owned::fleet_key(&fleet), "the fleet's SSH key").await?;
    let host = value(&secrets, &owned::credentials(name), "the host's password").await?;
    let token = value(&secrets, &owned::agent_token(name), "the agent's token").await?;
    let user: UserName = field(&host, owned::USER)?
        .parse()
        .map_err(|error| malformed("the host's user name", &error))?;
    let target = Target {
        address: turn.host().and_then(|host| host.address.clone()).unwrap_or_default(),
        port: context.settings.ssh_port,
        user: user.clone(),
        key: SecretString::from(field(&key, owned::PRIVATE_KEY)?),
        pinned: field(&host, owned::HOST_KEY).ok().map(HostKey),
    };
    let ca = STANDARD.encode(field(&token, "ca.crt")?);
    let token = SecretString::from(field(&token, "token")?);
    let url = &context.settings.api_server_url;
    let per_host = PerHost {
        node_name: name.clone(),
        user,
        password: Password::new(SecretString::from(field(&host, owned::PASSWORD)?))
            .map_err(|error| malformed("the host's password", &error))?,
        provider_id: turn.seen.object.provider_id.clone(),
        labels: turn
            .object
            .spec
            .fleet_name
            .iter()
            .map(|fleet| label_of(fleet))
            .collect::<BTreeMap<_, _>>(),
        cpu: size(turn.object.spec.host_cpu, context.settings.host_cpu),
        memory_mb: size(turn.object.spec.host_memory_mb, context.settings.host_memory_mb),
        max_pods: context.settings.max_pods,
        kubelet_version: turn.version.clone(),
        kubeconfig: objects::Kubeconfig {
            context: "tart-kubelet",
            user: &owned::agent(name),
            url,
            ca_base64: &ca,
            token: &token,
        }
        .text(),
    };
    let config = HostConfig::new(context.settings.fleet.clone(), per_host)
        .map_err(|error| malformed("the host's configuration", &error))?;
    Ok((target, config))
}

fn label_of(fleet: &str) -> (String, String) {
    (label::FLEET.to_owned(), fleet.to_owned())
}

fn size(asked: Option<i64>, usual: u32) -> u32 {
    asked.and_then(|n| u32::try_from(n).ok()).filter(|n| *n > 0).unwrap_or(usual)
}

fn malformed(what: &'static str, error: &dyn std::fmt::Display) -> ReadError {
    ReadError::Malformed { what, why: error.to_string() }
}

pub(super) async fn value(
    secrets: &Api<Secret>,
    name: &str,
    what: &'static str,
) -> Result<BTreeMap<String, Vec<u8>>, ReadError> {
    let secret = calls::read(what, secrets.get(name)).await?;
    Ok(secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect())
}

pub(super) fn field(
    data: &BTreeMap<String, Vec<u8>>,
    name: &'static str,
) -> Result<String, ReadError> {
    let bytes = data.get(name).filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| malformed(name, &"no such key in the Secret"))?;
    String::from_utf8(bytes.clone()).map_err(|_| malformed(name, &"not text"))
}

/// One bootstrap.
struct Work {
    dial: Arc<dyn Dial>,
    secrets: Api<Secret>,
    secret: String,
    patience: Duration,
    target: Target,
    config: HostConfig,
    place: Place,
}

impl Work {
    async fn run(self) -> Result<String, String> {
        let session = self.connect().await.map_err(|error| chain(&error))?;
        if self.target.pinned.is_none() {
            self.keep_host_key(&session.host_key).await?;
        }
        let progress = |step: applecart_mac::Progress| {
            self.place.advance((step.name.to_owned(), step.index, step.total));
        };
        let report = bootstrap(&*session.mac, &self.config, &progress).await;
        let report = report.map_err(|error| chain(&error))?;
        if report.converged() {
            Ok(self.config.fingerprint().to_string())
        } else {
            Err("postponed while VMs run".to_owned())
        }
    }

    /// Dials until the host answers, or patience ends. Only silence is waited out.
    async fn connect(&self) -> Result<Session, MacError> {
        let give_up = Instant::now() + self.patience;
        loop {
            match self.dial.dial(&self.target).await {
                Err(MacError::Unreachable { .. }) if Instant::now() < give_up => {
                    tokio::time::sleep(self.patience / TRIES).await;
                }
                other => return other,
            }
        }
    }

    /// Pins the key of first contact, before anything is sent to the host. An API server that does
    /// not answer is no fault of the host, so it is asked again while there is patience.
    async fn keep_host_key(&self, key: &HostKey) -> Result<(), String> {
        let give_up = Instant::now() + self.patience;
        let change = json!({"stringData": {owned::HOST_KEY: key.to_string()}});
        let patch = Patch::Merge(&change);
        let how = PatchParams::default();
        loop {
            match calls::write(self.secrets.patch(&self.secret, &how, &patch)).await {
                Outcome::Done => return Ok(()),
                Outcome::Unknown if Instant::now() < give_up => {
                    tokio::time::sleep(self.patience / TRIES).await;
                }
                outcome => return Err(format!("could not keep the host key: {outcome:?}")),
            }
        }
    }
}
