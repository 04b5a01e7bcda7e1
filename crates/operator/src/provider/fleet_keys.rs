//! The SSH keys of fleets: the shell of `core::fleet_key`. One task, one fleet after the other: no
//! two turns ever race for a key.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::keys::{label, owned};
use applecart_core::Outcome;
use applecart_core::fleet_key::{
    Action, Decision, FleetKey, Key, Observed, Registered, Stored, decide,
};
use applecart_mac::{KeyPair, public_key};
use applecart_scaleway::ErrorKind;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use secrecy::{ExposeSecret, SecretString};
use serde_json::json;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::observe::chain;
use super::{Context, config};
use crate::calls::{self, ReadError};
use crate::effects::Effect;

/// Effects of one visit to a fleet, at most: Secret, registration and note, with one to spare.
const EFFECTS: usize = 4;

/// What is known of the keys of the fleets whose Machines asked.
#[derive(Default)]
pub struct FleetKeys {
    table: Mutex<BTreeMap<String, Entry>>,
    asked: Notify,
}

struct Entry {
    state: FleetKey,
    /// What is known is good until then.
    until: Instant,
    /// When somebody last wanted to know.
    asked: Instant,
}

impl FleetKeys {
    fn table(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known of a fleet's key. Whoever asks has it seen to.
    pub fn of(&self, fleet: &str) -> FleetKey {
        let asked = Instant::now();
        let mut table = self.table();
        match table.get_mut(fleet) {
            Some(entry) if entry.state != FleetKey::Ready || entry.until > asked => {
                entry.asked = asked;
                entry.state.clone()
            }
            Some(_) | None => {
                let entry = Entry { state: FleetKey::NotLooked, until: asked, asked };
                table.insert(fleet.to_owned(), entry);
                self.asked.notify_one();
                FleetKey::NotLooked
            }
        }
    }

    /// The fleets to look at now, and when the next one is. What is well, and what nobody asked
    /// about for so long, is forgotten.
    fn due(&self, forgotten: Duration) -> (Vec<String>, Option<Instant>) {
        let now = Instant::now();
        let mut table = self.table();
        table.retain(|_, entry| entry.until > now || entry.asked + forgotten > now);
        table.retain(|_, entry| entry.until > now || entry.state != FleetKey::Ready);
        let waiting = table.iter().filter(|(_, entry)| entry.state != FleetKey::Ready);
        let (due, later): (Vec<_>, Vec<_>) = waiting.partition(|(_, entry)| entry.until <= now);
        let next = later.iter().map(|(_, entry)| entry.until).min();
        (due.into_iter().map(|(fleet, _)| fleet.clone()).collect(), next)
    }

    fn set(&self, fleet: &str, state: FleetKey, until: Instant) {
        if let Some(entry) = self.table().get_mut(fleet) {
            entry.state = state;
            entry.until = until;
        }
    }
}

/// Sees to fleets' keys until dropped.
pub async fn run(context: Arc<Context>) {
    let limits = context.settings.limits;
    loop {
        let (due, next) = context.fleet_keys.due(limits.keep);
        for fleet in &due {
            let state = visit(&context, fleet).await.unwrap_or_else(|error| {
                tracing::warn!(fleet, error = chain(&error), "the fleet's SSH key");
                FleetKey::Waiting(chain(&error))
            });
            let again = if state == FleetKey::Ready { limits.keep } else { limits.look };
            context.fleet_keys.set(fleet, state, Instant::now() + again);
        }
        if !due.is_empty() {
            continue;
        }
        tokio::select! {
            biased;
            () = context.fleet_keys.asked.notified() => {}
            () = sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
}

/// Looks, decides and acts until there is nothing more to do.
async fn visit(context: &Context, fleet: &str) -> Result<FleetKey, ReadError> {
    let mut under_other_name = false;
    for _ in 0..EFFECTS {
        let (seen, secret) = observe(context, fleet, under_other_name).await?;
        let action = match decide(&seen) {
            Decision::Rest => return Ok(FleetKey::Ready),
            Decision::Wait(why) => return Ok(FleetKey::Waiting(why)),
            Decision::Do(action) => action,
        };
        let effect = Effect {
            controller: "fleet-key",
            object: fleet,
            word: action.describe(),
            detail: String::new(),
            reason: &"its Macs are reached by this key",
        };
        let performed = perform(context, fleet, secret.as_ref(), &action);
        let Some(outcome) = context.effects.perform(&effect, performed).await else {
            return Ok(FleetKey::Waiting("this provider only observes".to_owned()));
        };
        match outcome {
            // The project has this very key already, and refuses to have it twice.
            Outcome::Refused if matches!(action, Action::Register(_)) => under_other_name = true,
            Outcome::Done | Outcome::Refused => {}
            Outcome::Failed(said) | Outcome::TooEarly(said) => {
                return Ok(FleetKey::Waiting(format!("could not {}: {said}", action.describe())));
            }
            Outcome::Unknown => {
                let why = format!("no answer to: {}", action.describe());
                return Ok(FleetKey::Waiting(why));
            }
        }
    }
    Ok(FleetKey::Waiting("it changes while it is looked at".to_owned()))
}

fn secrets(context: &Context) -> Api<Secret> {
    Api::namespaced(context.client.clone(), &context.settings.namespace)
}

async fn observe(
    context: &Context,
    fleet: &str,
    under_other_name: bool,
) -> Result<(Observed, Option<Secret>), ReadError> {
    let name = owned::fleet_key(fleet);
    let secret = calls::read("the fleet's SSH key", secrets(context).get_opt(&name)).await?;
    let stored = secret.as_ref().map_or(Stored::Absent, |secret| stored(secret, &name));
    let registered = match &stored {
        Stored::Absent | Stored::Unusable(_) => Registered::NotRead,
        Stored::There { .. } if under_other_name => {
            Registered::UnderOtherName(keys(context.scaleway.all_ssh_keys().await)?)
        }
        Stored::There { .. } => Registered::Listed(keys(context.scaleway.ssh_keys(fleet).await)?),
    };
    Ok((Observed { stored, registered }, secret))
}

fn keys(
    read: Result<Vec<applecart_scaleway::SshKey>, applecart_scaleway::Error>,
) -> Result<Vec<Key>, ReadError> {
    let what = "the project's SSH keys";
    let read = read.map_err(|error| ReadError::Malformed { what, why: chain(&error) })?;
    let key = |key: applecart_scaleway::SshKey| Key {
        id: key.id.to_string(),
        public: key.public_key,
        disabled: key.disabled,
    };
    Ok(read.into_iter().map(key).collect())
}

/// What a Secret holds. Its public half is the private one's: nothing else is believed.
fn stored(secret: &Secret, name: &str) -> Stored {
    let unusable = |why: String| Stored::Unusable(format!("Secret {name}: {why}"));
    let private = match config::field(&config::fields(secret), owned::PRIVATE_KEY) {
        Ok(private) => SecretString::from(private),
        Err(error) => return unusable(chain(&error)),
    };
    match public_key(&private) {
        Ok(public) => {
            Stored::There { public, noted: secret.annotations().get(owned::SSH_KEY_ID).cloned() }
        }
        Err(error) => unusable(chain(&error)),
    }
}

async fn perform(
    context: &Context,
    fleet: &str,
    secret: Option<&Secret>,
    action: &Action,
) -> Outcome {
    match action {
        Action::CreateSecret => create_secret(context, fleet).await,
        Action::Register(public) => match context.scaleway.create_ssh_key(fleet, public).await {
            Ok(_) => Outcome::Done,
            Err(error) => match error.kind {
                ErrorKind::AlreadyExists => Outcome::Refused,
                ErrorKind::Unknown => Outcome::Unknown,
                _ => Outcome::Failed(chain(&error)),
            },
        },
        Action::Note(id) => {
            let version = secret.and_then(ResourceExt::resource_version);
            let change = json!({"metadata": {
                "resourceVersion": version, "annotations": {owned::SSH_KEY_ID: id},
            }});
            let (name, how) = (owned::fleet_key(fleet), PatchParams::default());
            let patch = Patch::Merge(&change);
            calls::write(secrets(context).patch(&name, &how, &patch)).await
        }
    }
}

/// Creating has one winner, whoever else tries; the loser's key is never seen anywhere.
async fn create_secret(context: &Context, fleet: &str) -> Outcome {
    let pair = match KeyPair::generate(&format!("tuist-capi-{fleet}")) {
        Ok(pair) => pair,
        Err(error) => return Outcome::Failed(chain(&error)),
    };
    let secret = serde_json::from_value(json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": owned::fleet_key(fleet),
            "labels": {label::MANAGED_BY: label::MANAGED_BY_PROVIDER, label::FLEET: fleet},
        },
        "stringData": {
            owned::PRIVATE_KEY: pair.private.expose_secret(),
            owned::PUBLIC_KEY: format!("{}\n", pair.public),
        },
    }));
    match secret {
        Ok(secret) => calls::write(secrets(context).create(&PostParams::default(), &secret)).await,
        // What does not fit may quote what it got.
        Err(_) => Outcome::Failed("the Secret cannot be written".to_owned()),
    }
}
