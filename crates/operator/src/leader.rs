//! Leader election: the shell of `core::leader`. Old and new providers hold the same Lease, so that
//! they never act together.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use applecart_api::clock::Clock;
use applecart_core::Outcome;
use applecart_core::leader::{Decision, GOOD_FOR, LOOK_EVERY, Observed, RENEW_WITHIN, decide};
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::calls::{self, ReadError};
use crate::provider::chain;

/// One candidate for a Lease.
pub struct Election {
    leases: Api<Lease>,
    name: &'static str,
    us: String,
    clock: Clock,
    /// Version of the Lease as last seen, and since when, by a clock that nobody sets.
    last: Option<(String, Instant)>,
    pulse: Pulse,
}

/// When an election was last heard of, for whoever asks how its process is. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<Mutex<Beat>>);

/// What was heard of an election, by a clock that nobody sets.
#[derive(Clone, Debug, Default)]
pub struct Beat {
    /// When a look at the Lease last ended, however it ended.
    pub looked: Option<Instant>,
    /// When the API server last told what the Lease is.
    pub answered: Option<Instant>,
    /// When the Lease was last renewed by us, if we hold it.
    pub renewed: Option<Instant>,
    /// Who else holds it.
    pub holder: Option<String>,
}

impl Pulse {
    /// What was heard last.
    #[must_use]
    pub fn beat(&self) -> Beat {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Asks the API server again and again, for a process that runs without an election.
    pub async fn listen(&self, client: &kube::Client) -> Infallible {
        loop {
            let answer = calls::read("its version", client.apiserver_version()).await;
            let now = Instant::now();
            self.note(|beat| {
                beat.looked = Some(now);
                beat.answered = answer.is_ok().then_some(now).or(beat.answered);
            });
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn note(&self, note: impl FnOnce(&mut Beat)) {
        note(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// How one attempt to renew ended.
enum Renewal {
    Done,
    Unknown,
    Lost(String),
}

impl Election {
    /// A candidate called `us` for the Lease `name` in `namespace`.
    #[must_use]
    pub fn new(
        client: kube::Client,
        namespace: &str,
        name: &'static str,
        us: String,
        clock: Clock,
    ) -> Self {
        Self {
            leases: Api::namespaced(client, namespace),
            name,
            us,
            clock,
            last: None,
            pulse: Pulse::default(),
        }
    }

    /// When it was last heard of; stays current while it runs.
    #[must_use]
    pub fn pulse(&self) -> Pulse {
        self.pulse.clone()
    }

    /// Waits until the Lease is ours, and says since when at the latest. `stand_by` is told of each
    /// other holder once.
    pub async fn win(&mut self, stand_by: impl Fn(&str)) -> Instant {
        let mut told = None;
        loop {
            let began = Instant::now();
            match self.look().await {
                Ok((Decision::StandBy(holder), _)) => {
                    if told.as_deref() != Some(&*holder) {
                        stand_by(&holder);
                        told = Some(holder);
                    }
                }
                Ok((decision @ (Decision::Take | Decision::Renew), lease)) => {
                    if self.write(&decision, lease.as_ref()).await == Outcome::Done {
                        self.pulse.note(|beat| beat.renewed = Some(began));
                        return began;
                    }
                }
                Err(error) => {
                    tracing::warn!(error = chain(&error), "could not read the leader's Lease");
                }
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Renews until the Lease is lost, and says why. Whoever acts as leader has to be dropped then.
    ///
    /// `since` is what [`Election::win`] said. However long a call hangs, this ends in time: the
    /// wait for it is cut off when the Lease could be another's soon.
    pub async fn keep(&mut self, since: Instant) -> String {
        let mut renewed_at = since;
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let began = Instant::now();
            match tokio::time::timeout_at(renewed_at + RENEW_WITHIN, self.renew()).await {
                Ok(Renewal::Done) => {
                    renewed_at = began;
                    self.pulse.note(|beat| beat.renewed = Some(began));
                }
                Ok(Renewal::Lost(why)) => return why,
                Ok(Renewal::Unknown) if renewed_at.elapsed() < RENEW_WITHIN => {}
                Ok(Renewal::Unknown) | Err(_) => {
                    return "it could not be renewed in time".to_owned();
                }
            }
        }
    }

    async fn renew(&mut self) -> Renewal {
        match self.look().await {
            Ok((Decision::StandBy(holder), _)) => Renewal::Lost(format!("{holder} holds it now")),
            Ok((Decision::Take, _)) => Renewal::Lost("somebody took it away".to_owned()),
            Ok((Decision::Renew, lease)) => {
                match self.write(&Decision::Renew, lease.as_ref()).await {
                    Outcome::Done => Renewal::Done,
                    Outcome::Refused
                    | Outcome::Failed(_)
                    | Outcome::TooEarly(_)
                    | Outcome::Unknown => Renewal::Unknown,
                }
            }
            Err(error) => {
                tracing::warn!(error = chain(&error), "could not read the leader's Lease");
                Renewal::Unknown
            }
        }
    }

    /// Gives the Lease up, so that a successor need not wait for it to run out.
    pub async fn resign(&mut self) {
        if let Ok((Decision::Renew, Some(lease))) = self.look().await {
            let change = json!({
                "metadata": {"resourceVersion": lease.resource_version()},
                "spec": {"holderIdentity": ""},
            });
            let patch = Patch::Merge(&change);
            let how = PatchParams::default();
            // Whatever becomes of it: it runs out by itself.
            let _ = calls::write(self.leases.patch(self.name, &how, &patch)).await;
        }
    }

    async fn look(&mut self) -> Result<(Decision, Option<Lease>), ReadError> {
        let read = calls::read("the leader's Lease", self.leases.get_opt(self.name)).await;
        let now = Instant::now();
        self.pulse.note(|beat| beat.looked = Some(now));
        let read = read?;
        let version = read.as_ref().and_then(ResourceExt::resource_version).unwrap_or_default();
        let unchanged_since = match &self.last {
            Some((last, since)) if *last == version => *since,
            _ => now,
        };
        self.last = Some((version, unchanged_since));
        let spec = read.as_ref().and_then(|lease| lease.spec.as_ref());
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let good_for = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        let seen = Observed {
            holder: spec.and_then(|spec| spec.holder_identity.clone()),
            good_for: good_for.map_or(GOOD_FOR, std::time::Duration::from_secs),
            unchanged_for: now - unchanged_since,
        };
        let decision = decide(&self.us, &seen);
        self.pulse.note(|beat| {
            beat.answered = Some(now);
            beat.holder = match &decision {
                Decision::StandBy(holder) => Some(holder.clone()),
                Decision::Take | Decision::Renew => None,
            };
        });
        Ok((decision, read))
    }

    /// Takes or renews, if the Lease is still as it was read.
    async fn write(&self, decision: &Decision, read: Option<&Lease>) -> Outcome {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string();
        let mut spec = json!({"renewTime": now});
        if *decision == Decision::Take {
            let before = read.and_then(|lease| lease.spec.as_ref()?.lease_transitions).unwrap_or(0);
            spec = json!({
                "holderIdentity": self.us,
                "leaseDurationSeconds": GOOD_FOR.as_secs(),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": before + i32::from(read.is_some()),
            });
        }
        let mut lease: Value = json!({"metadata": {"name": self.name}, "spec": spec});
        let Some(read) = read else {
            return match serde_json::from_value(lease) {
                Ok(lease) => calls::write(self.leases.create(&PostParams::default(), &lease)).await,
                Err(error) => Outcome::Failed(error.to_string()),
            };
        };
        lease["metadata"] = json!({"resourceVersion": read.resource_version()});
        let patch = Patch::Merge(&lease);
        calls::write(self.leases.patch(self.name, &PatchParams::default(), &patch)).await
    }
}
