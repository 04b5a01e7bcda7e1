//! What a Mac shall be, put together from Secrets and settings; and the bootstrap that makes it so.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::{label, owned};
use applecart_api::machine::GhActionsRunner;
use applecart_core::Outcome;
use applecart_core::machine::Upkept;
use applecart_mac::{
    Dial, GithubRunner, HostConfig, HostKey, Next, Password, PerHost, Target, UserName, bootstrap,
    wait_for_ssh,
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

use super::bootstraps::{self, Order, Place};
use super::github::App;
use super::observe::{Turn, chain, fleet};
use super::{Context, objects};
use crate::calls::{self, ReadError};

/// How often an API server that does not answer is asked to keep a host key, as a part of the
/// patience for the host.
const TRIES: u32 = 30;

/// SHA-256 in base64, without padding.
const FINGERPRINT_CHARS: usize = 43;

/// Begins the bootstrap of the object's Mac beside the loop.
pub async fn start(context: &Context, turn: &Turn) -> Outcome {
    match Box::pin(prepare(context, turn)).await {
        Ok((target, config)) => begin(context, turn, false, |place| {
            Box::pin(Work::new(context, turn, target, config, place).run())
        }),
        Err(error) => Outcome::Failed(chain(&error)),
    }
}

/// Begins the same steps with the same configuration (P12) on a Mac that was bootstrapped. What
/// they need and cannot be had is how they end: the Mac itself is well.
pub async fn start_upkeep(context: &Context, turn: &Turn) -> Outcome {
    match Box::pin(prepare(context, turn)).await {
        Ok((target, config)) => begin(context, turn, true, |place| {
            Box::pin(Work::new(context, turn, target, config, place).run())
        }),
        Err(error) => {
            let said = Upkept::Failed(chain(&error));
            begin(context, turn, true, |_| Box::pin(std::future::ready(said)))
        }
    }
}

/// Says what a Mac that was taken over shall be. Nobody goes there.
pub async fn compare(context: &Context, turn: &Turn) -> Outcome {
    let stamp = match Box::pin(prepare(context, turn)).await {
        Ok((_, config)) => Some(config.fingerprint().to_string()),
        Err(error) => {
            let error = chain(&error);
            tracing::info!(error, "what a Mac that was taken over shall be cannot be told");
            None
        }
    };
    let said = Upkept::TakenOver(stamp);
    begin(context, turn, true, |_| Box::pin(std::future::ready(said)))
}

fn begin(
    context: &Context,
    turn: &Turn,
    upkeep: bool,
    work: impl FnOnce(Place) -> bootstraps::Work,
) -> Outcome {
    let object = &turn.seen.object;
    let Some(host) = turn.host().cloned() else { return Outcome::Refused };
    let key = ObjectRef::from_obj(&turn.object);
    let (uid, generation) = (object.uid.clone(), object.generation);
    let order = Order { uid, key, generation, host, upkeep };
    if context.bootstraps.start(order, work) { Outcome::Done } else { Outcome::Refused }
}

async fn prepare(context: &Context, turn: &Turn) -> Result<(Target, HostConfig), ReadError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &turn.seen.object.name;
    let fleet = fleet(&turn.object);
    let key = value(&secrets, &owned::fleet_key(&fleet), "the fleet's SSH key").await?;
    let host = value(&secrets, &owned::credentials(name), "the host's password").await?;
    let token = value(&secrets, &owned::agent_token(name), "the agent's token").await?;
    let password = SecretString::from(field(&host, owned::PASSWORD)?);
    let user: UserName = field(&host, owned::USER)?
        .parse()
        .map_err(|error| malformed("the host's user name", &error))?;
    let target = Target {
        address: turn.host().and_then(|host| host.address.clone()).unwrap_or_default(),
        port: context.settings.ssh_port,
        user: user.clone(),
        key: SecretString::from(field(&key, owned::PRIVATE_KEY)?),
        pinned: pin(&host, &owned::credentials(name))?,
    };
    let ca = STANDARD.encode(field(&token, "ca.crt")?);
    let token = SecretString::from(field(&token, "token")?);
    let tailscale_key = match &context.settings.tailscale_key_secret {
        Some(name) => Some(tailscale_key(&secrets, name).await?),
        None => None,
    };
    let github_runner = match &turn.object.spec.gh_actions_runner {
        Some(wanted) => Some(github_runner(context, turn, wanted).await?),
        None => None,
    };
    let url = &context.settings.api_server_url;
    let per_host = PerHost {
        node_name: name.clone(),
        user,
        password: Password::new(password.clone())
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
        tailscale_key,
        github_runner,
    };
    let config = HostConfig::new(context.settings.fleet.clone(), per_host)
        .map_err(|error| malformed("the host's configuration", &error))?;
    context.bootstraps.uses(&turn.seen.object.uid, &password);
    Ok((target, config))
}

/// The key by which Macs join the tailnet. One that is named and not there yet is waited for (P11).
async fn tailscale_key(secrets: &Api<Secret>, name: &str) -> Result<SecretString, ReadError> {
    let secret = value(secrets, name, "the tailnet's key").await?;
    Ok(SecretString::from(field(&secret, "auth-key")?.trim().to_owned()))
}

/// The runner of a host that builds images, with a token that registers it.
async fn github_runner(
    context: &Context,
    turn: &Turn,
    wanted: &GhActionsRunner,
) -> Result<GithubRunner, ReadError> {
    const WHAT: &str = "the runner's registration token";
    const ADVICE: &str = "spec.ghActionsRunner.ghAppSecretName is missing: name a Secret with \
                          app-id, installation-id and private-key";
    const VERSION: &str = "spec.ghActionsRunner.ghRunnerVersion is missing: name a release that \
                           GitHub still takes";
    let said = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let name = said(&wanted.gh_app_secret_name).ok_or_else(|| malformed(WHAT, &ADVICE))?;
    let version = said(&wanted.gh_runner_version).ok_or_else(|| malformed(WHAT, &VERSION))?;
    let namespace = turn.object.metadata.namespace.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let secret = value(&secrets, &name, "the GitHub app's Secret").await?;
    let app = App {
        id: field(&secret, "app-id")?.trim().to_owned(),
        installation: field(&secret, "installation-id")?.trim().to_owned(),
        key: SecretString::from(field(&secret, "private-key")?),
    };
    let org = said(&wanted.gh_org).unwrap_or_else(|| GhActionsRunner::DEFAULT_ORG.to_owned());
    let labels = said(&wanted.gh_runner_labels);
    let labels = labels.unwrap_or_else(|| GhActionsRunner::DEFAULT_LABELS.to_owned());
    let token = context.github.registration_token(&app, &org).await;
    let token = token.map_err(|error| malformed(WHAT, &chain(&error)))?;
    GithubRunner::new(&context.github.server(), &org, &labels, &version, token)
        .map_err(|error| malformed("the host's runner", &error))
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
    Ok(fields(&secret))
}

/// All values of a Secret, by name.
pub(super) fn fields(secret: &Secret) -> BTreeMap<String, Vec<u8>> {
    let data = secret.data.iter().flatten();
    data.map(|(key, value)| (key.clone(), value.0.clone())).collect()
}

pub(super) fn field(
    data: &BTreeMap<String, Vec<u8>>,
    name: &'static str,
) -> Result<String, ReadError> {
    let bytes = data.get(name).filter(|bytes| !bytes.is_empty());
    let bytes = bytes.ok_or_else(|| malformed(name, &"no such key in the Secret"))?;
    String::from_utf8(bytes.clone()).map_err(|_| malformed(name, &"not text"))
}

/// The host key of first contact, if there was one.
///
/// A pin that is there and cannot be read is not the same as none: whoever could spoil it would
/// make us trust any host (S17).
fn pin(data: &BTreeMap<String, Vec<u8>>, secret: &str) -> Result<Option<HostKey>, ReadError> {
    // As with a password, empty is missing: whoever may write it could as well remove it.
    let given = data.get(owned::HOST_KEY).filter(|bytes| !bytes.trim_ascii().is_empty());
    let Some(bytes) = given else { return Ok(None) };
    let text = String::from_utf8_lossy(bytes);
    let key = text.trim().strip_prefix("SHA256:");
    let is_digest = |key: &str| {
        let plain = |c: char| c.is_ascii_alphanumeric() || "+/".contains(c);
        key.len() == FINGERPRINT_CHARS && key.chars().all(plain)
    };
    if key.is_some_and(is_digest) {
        return Ok(Some(HostKey(text.trim().to_owned())));
    }
    let key = owned::HOST_KEY;
    let why = format!(
        "{key} of Secret {secret} is no fingerprint such as `SHA256:…` that `ssh-keygen -lf` \
         prints: put the host's own there, or remove {key} to trust the host as it is now"
    );
    Err(ReadError::Malformed { what: "the pinned host key", why })
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
    fn new(
        context: &Context,
        turn: &Turn,
        target: Target,
        config: HostConfig,
        place: Place,
    ) -> Self {
        Self {
            dial: context.dial.clone(),
            secrets: Api::namespaced(context.client.clone(), &context.settings.namespace),
            secret: owned::credentials(&turn.seen.object.name),
            patience: context.settings.ssh_patience,
            target,
            config,
            place,
        }
    }

    async fn run(self) -> Upkept {
        self.try_run().await.unwrap_or_else(Upkept::Failed)
    }

    async fn try_run(self) -> Result<Upkept, String> {
        let session = wait_for_ssh(&*self.dial, &self.target, self.patience).await;
        let session = session.map_err(|error| chain(&error))?;
        if self.target.pinned.is_none() {
            self.keep_host_key(&session.host_key).await?;
        }
        let progress = |step: applecart_mac::Progress| {
            self.place.advance((step.name.to_owned(), step.index, step.total));
        };
        let report = match bootstrap(&*session.mac, &self.config, &progress).await {
            Ok(report) => report,
            Err(error) if error.next() == Next::NewPassword => {
                return Ok(Upkept::PasswordRefused(chain(&error)));
            }
            Err(error) => return Err(chain(&error)),
        };
        Ok(match (report.postponed(), report.failed()) {
            (Some(what), _) => Upkept::Postponed(what),
            (None, Some(what)) => Upkept::Incomplete(what),
            (None, None) => Upkept::Current {
                stamp: self.config.fingerprint().to_string(),
                awaits_boot: report.awaits_boot(),
            },
        })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_pin_that_is_not_there_is_no_pin() {
        // S10, S17
        let pinned = |value: &[u8]| {
            pin(&BTreeMap::from([(owned::HOST_KEY.to_owned(), value.to_vec())]), "mac-1-bootstrap")
        };
        assert_eq!(pin(&BTreeMap::new(), "mac-1-bootstrap").unwrap(), None);
        let good = format!("SHA256:{}", "aB3+/".repeat(9).split_at(FINGERPRINT_CHARS).0);
        assert_eq!(pinned(good.as_bytes()).unwrap(), Some(HostKey(good.clone())));
        assert_eq!(pinned(format!("{good}\n").as_bytes()).unwrap(), Some(HostKey(good)));
        assert_eq!(pinned(b" \n").unwrap(), None);
        for bad in [&b"x"[..], b"\xff\xfe", b"SHA256:short", b"ssh-ed25519 AAAA"] {
            let error = chain(&pinned(bad).unwrap_err());
            assert!(
                error.contains("mac-1-bootstrap") && error.contains(owned::HOST_KEY),
                "{error}"
            );
        }
    }
}
