//! One run of the steps on a Mac: connects, pins the host's key, goes through all steps, and tells
//! how each one ended.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::owned;
use applecart_core::Outcome;
use applecart_core::machine::Upkept;
use applecart_mac::{
    Dial, HostConfig, HostKey, Next, Progress, Report, Session, StepError, Target, bootstrap,
    wait_for_ssh,
};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use super::bootstraps::Place;
use super::config::{Prepared, Stored, fields, pin};
use super::observe::{Turn, chain};
use crate::calls;

/// How often an API server that does not answer is asked to keep a host key, as a part of the
/// patience for the host.
const TRIES: u32 = 30;

/// One run.
pub(super) struct Work {
    machine: String,
    dial: Arc<dyn Dial>,
    secrets: Api<Secret>,
    secret: Stored,
    patience: Duration,
    target: Target,
    config: HostConfig,
    place: Place,
}

impl Work {
    /// A run for the turn's object that begins when it is polled.
    pub fn new(context: &Context, turn: &Turn, prepared: Prepared, place: Place) -> Self {
        let Prepared { target, config, secret } = prepared;
        Self {
            machine: turn.seen.object.name.clone(),
            dial: context.dial.clone(),
            secrets: Api::namespaced(context.client.clone(), &context.settings.namespace),
            secret,
            patience: context.settings.ssh_patience,
            target,
            config,
            place,
        }
    }

    /// Runs to its end.
    pub async fn run(self) -> Upkept {
        let began = Instant::now();
        let first = Progress::waiting_for_ssh(&self.config);
        self.advance(first);
        let connected = self.connect().await;
        let waited = began.elapsed();
        let session = match connected {
            Ok(session) => session,
            Err(said) => {
                let step = first.name;
                self.log(began, &format!("{step}: failed in {} ms", waited.as_millis()));
                return Upkept::Failed(format!("step {step} failed: {said}"));
            }
        };
        let advance = |step: Progress| self.advance(step);
        let ended = bootstrap(&*session.mac, &self.config, &advance).await;
        let steps = match &ended {
            Ok(report) => report.to_string(),
            Err(error) => error.steps().to_string(),
        };
        self.log(began, &format!("{}: done in {} ms, {steps}", first.name, waited.as_millis()));
        self.upkept(ended, began)
    }

    fn advance(&self, step: Progress) {
        self.place.advance((step.name.to_owned(), step.index, step.total));
    }

    /// One line for each run. Of a failure it says where; why is in the turn that records it.
    fn log(&self, began: Instant, steps: &str) {
        let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        tracing::info!(machine = self.machine, took_ms, steps, "went through the steps");
    }

    fn upkept(&self, ended: Result<Report, StepError>, began: Instant) -> Upkept {
        let report = match ended {
            Ok(report) => report,
            Err(error) if error.next() == Next::NewPassword => {
                return Upkept::PasswordRefused(chain(&error));
            }
            Err(error) => return Upkept::Failed(chain(&error)),
        };
        match (report.postponed(), report.failed()) {
            (Some(what), _) => Upkept::Postponed(what),
            (None, Some(what)) => Upkept::Incomplete(what),
            (None, None) => Upkept::Current {
                stamp: self.config.fingerprint().to_string(),
                awaits_boot: report.awaits_boot(),
                did: format!("{} in {} s", report.changes(), began.elapsed().as_secs()),
            },
        }
    }

    /// A connection to the host, whose key is pinned before anything is sent.
    async fn connect(&self) -> Result<Session, String> {
        let session = wait_for_ssh(&*self.dial, &self.target, self.patience).await;
        let session = session.map_err(|error| chain(&error))?;
        if self.target.pinned.is_none() {
            let kept = self.keep_host_key(&session.host_key).await;
            kept.map_err(|why| format!("could not keep the host key: {why}"))?;
        }
        Ok(session)
    }

    /// Pins the key of first contact in the Secret that was read for this run, and in no other: its
    /// name is the Machine's, and the next host's Secret has it too (S17). An API server that does
    /// not answer is no fault of the host, so it is asked again while there is patience.
    async fn keep_host_key(&self, key: &HostKey) -> Result<(), String> {
        let give_up = Instant::now() + self.patience;
        let mut version = self.secret.version.clone();
        let how = PatchParams::default();
        loop {
            let change = json!({
                "metadata": {"resourceVersion": version},
                "stringData": {owned::HOST_KEY: key.to_string()},
            });
            let patch = Patch::Merge(&change);
            let outcome = calls::write(self.secrets.patch(&self.secret.name, &how, &patch)).await;
            match outcome {
                Outcome::Done => return Ok(()),
                _ if Instant::now() >= give_up => return Err(format!("{outcome:?}")),
                Outcome::Refused => match self.version_without_pin(key).await? {
                    Some(now) => version = now,
                    None => return Ok(()),
                },
                Outcome::Unknown => tokio::time::sleep(self.patience / TRIES).await,
                Outcome::Failed(_) | Outcome::TooEarly(_) => return Err(format!("{outcome:?}")),
            }
        }
    }

    /// Why a pin was refused: the version of the Secret if it only changed otherwise, nothing if
    /// `key` is its pin by now.
    async fn version_without_pin(&self, key: &HostKey) -> Result<Option<String>, String> {
        let name = &self.secret.name;
        let read = calls::read("its Secret", self.secrets.get_opt(name)).await;
        let read = read.map_err(|error| chain(&error))?;
        let secret = read.ok_or_else(|| format!("Secret {name} was deleted meanwhile"))?;
        let now = Stored::of(&secret);
        if now.uid != self.secret.uid {
            return Err(format!("Secret {name} is of another host by now"));
        }
        match pin(&fields(&secret), name).map_err(|error| chain(&error))? {
            None => Ok(Some(now.version)),
            Some(pinned) if pinned == *key => Ok(None),
            Some(pinned) => {
                Err(format!("another key is pinned by now: {pinned}, and the host showed {key}"))
            }
        }
    }
}
