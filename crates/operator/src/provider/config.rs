//! What a Mac shall be, put together from Secrets and settings. Reads only.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::keys::{label, owned};
use applecart_api::machine::GhActionsRunner;
use applecart_core::Outcome;
use applecart_core::machine::{Builder, Upkept};
use applecart_mac::{GithubRunner, HostConfig, HostKey, Password, PerHost, Target, UserName};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::reflector::ObjectRef;
use kube::{Api, ResourceExt};
use secrecy::SecretString;

use super::bootstraps::{self, Order, Place};
use super::github::App;
use super::observe::{Turn, chain, fleet};
use super::work::Work;
use super::{Context, objects};
use crate::calls::{self, ReadError};

/// SHA-256 in base64, without padding.
const FINGERPRINT_CHARS: usize = 43;

/// Longest wait for what GitHub says of a runner: a deletion does not wait for it.
const ASK_GITHUB_WITHIN: Duration = Duration::from_secs(5);

/// Begins the bootstrap of the object's Mac beside the loop.
pub async fn start(context: &Context, turn: &Turn) -> Outcome {
    match Box::pin(prepare(context, turn)).await {
        Ok(prepared) => begin(context, turn, false, |place| {
            Box::pin(Work::new(context, turn, prepared, place).run())
        }),
        Err(error) => Outcome::Failed(chain(&error)),
    }
}

/// Begins the same steps with the same configuration (P12) on a Mac that was bootstrapped. What
/// they need and cannot be had is how they end: the Mac itself is well.
pub async fn start_upkeep(context: &Context, turn: &Turn) -> Outcome {
    match Box::pin(prepare(context, turn)).await {
        Ok(prepared) => begin(context, turn, true, |place| {
            Box::pin(Work::new(context, turn, prepared, place).run())
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
        Ok(prepared) => Some(prepared.config.fingerprint().to_string()),
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

/// All that a run needs.
pub(super) struct Prepared {
    /// Where the host is.
    pub target: Target,
    /// What it shall be.
    pub config: HostConfig,
    /// The Secret that its password and pin were read from.
    pub secret: Stored,
}

/// One Secret, at one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stored {
    /// Its name, which the Secret of the Machine's next host will have too.
    pub name: String,
    /// Its UID, which no other has.
    pub uid: String,
    /// Its version.
    pub version: String,
}

impl Stored {
    /// A Secret as it was read.
    pub fn of(secret: &Secret) -> Self {
        Self {
            name: secret.name_any(),
            uid: secret.uid().unwrap_or_default(),
            version: secret.resource_version().unwrap_or_default(),
        }
    }
}

async fn prepare(context: &Context, turn: &Turn) -> Result<Prepared, ReadError> {
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), &context.settings.namespace);
    let name = &turn.seen.object.name;
    let fleet = fleet(&turn.object);
    let key = value(&secrets, &owned::fleet_key(&fleet), "the fleet's SSH key").await?;
    let host = owned::credentials(name);
    let host = calls::read("the host's password", secrets.get(&host)).await?;
    let (secret, host) = (Stored::of(&host), fields(&host));
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
        pinned: pin(&host, &secret.name)?,
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
    Ok(Prepared { target, config, secret })
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
    const VERSION: &str = "spec.ghActionsRunner.ghRunnerVersion is missing: name a release that \
                           GitHub still takes";
    let said = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let version = said(&wanted.gh_runner_version).ok_or_else(|| malformed(WHAT, &VERSION))?;
    let (app, org) = github_app(context, turn, wanted).await?;
    let labels = said(&wanted.gh_runner_labels);
    let labels = labels.unwrap_or_else(|| GhActionsRunner::DEFAULT_LABELS.to_owned());
    let token = context.github.registration_token(&app, &org).await;
    let token = token.map_err(|error| malformed(WHAT, &chain(&error)))?;
    GithubRunner::new(&context.github.server(), &org, &labels, &version, token)
        .map_err(|error| malformed("the host's runner", &error))
}

/// The app that registers runners, and whose they are.
async fn github_app(
    context: &Context,
    turn: &Turn,
    wanted: &GhActionsRunner,
) -> Result<(App, String), ReadError> {
    const ADVICE: &str = "spec.ghActionsRunner.ghAppSecretName is missing: name a Secret with \
                          app-id, installation-id and private-key";
    let said = |field: &Option<String>| field.clone().filter(|text| !text.is_empty());
    let name = said(&wanted.gh_app_secret_name);
    let name = name.ok_or_else(|| malformed("the runner's registration token", &ADVICE))?;
    let namespace = turn.object.metadata.namespace.as_deref().unwrap_or_default();
    let secrets: Api<Secret> = Api::namespaced(context.client.clone(), namespace);
    let secret = value(&secrets, &name, "the GitHub app's Secret").await?;
    let app = App {
        id: field(&secret, "app-id")?.trim().to_owned(),
        installation: field(&secret, "installation-id")?.trim().to_owned(),
        key: SecretString::from(field(&secret, "private-key")?),
    };
    let org = said(&wanted.gh_org).unwrap_or_else(|| GhActionsRunner::DEFAULT_ORG.to_owned());
    Ok((app, org))
}

/// What the Mac's own runner does, if the object asks for one.
pub async fn builder(context: &Context, turn: &Turn) -> Builder {
    let Some(wanted) = &turn.object.spec.gh_actions_runner else { return Builder::None };
    let read = async {
        let (app, org) = github_app(context, turn, wanted).await.map_err(|error| chain(&error))?;
        let name = &turn.seen.object.name;
        context.github.is_busy(&app, &org, name).await.map_err(|error| chain(&error))
    };
    let told = match within(read).await {
        Ok(None) => Builder::None,
        Ok(Some(false)) => Builder::Idle,
        Ok(Some(true)) => Builder::Busy,
        Err(error) => {
            tracing::warn!(error, "nobody can tell whether the Mac's own runner has a job");
            return context.builders.untold(&turn.seen.object.uid);
        }
    };
    context.builders.told(&turn.seen.object.uid, &told);
    told
}

/// Removes the Mac's own runner before it gets another job.
pub async fn end_builder(context: &Context, turn: &Turn) -> Outcome {
    match end_runner(context, turn).await {
        Ok(()) => Outcome::Done,
        Err(error) => Outcome::Failed(error),
    }
}

/// C5: the runner of a host that is wiped or gone cannot come back. Nobody waits for GitHub: what
/// fails is told, and GitHub forgets a runner by itself that was offline for two weeks.
pub async fn remove_runner(context: &Context, turn: &Turn) {
    if let Err(error) = end_runner(context, turn).await {
        tracing::warn!(error, "the GitHub runner of a host that was wiped is still registered");
    }
}

async fn end_runner(context: &Context, turn: &Turn) -> Result<(), String> {
    let Some(wanted) = &turn.object.spec.gh_actions_runner else { return Ok(()) };
    let remove = async {
        let (app, org) = github_app(context, turn, wanted).await.map_err(|error| chain(&error))?;
        let name = &turn.seen.object.name;
        context.github.remove_runner(&app, &org, name).await.map_err(|error| chain(&error))
    };
    within(remove).await
}

/// What comes of asking GitHub, unless that takes too long.
async fn within<T>(asked: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    let answered = tokio::time::timeout(ASK_GITHUB_WITHIN, asked).await;
    answered.unwrap_or_else(|_| Err("GitHub takes too long".to_owned()))
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
pub(super) fn pin(
    data: &BTreeMap<String, Vec<u8>>,
    secret: &str,
) -> Result<Option<HostKey>, ReadError> {
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
