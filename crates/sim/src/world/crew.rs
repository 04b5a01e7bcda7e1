//! The providers' processes: which of them run, and how they are installed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use applecart_operator::metrics::Metrics;
use applecart_operator::provider::Provider;
use tokio::sync::watch;

use super::{NAMESPACE, World};
use crate::faults::{GatedDial, Process};
use crate::kubernetes::Identity;

/// How the provider is installed: what an upgrade may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Install {
    /// Whether objects that name no pool return their hosts to the one there is.
    pub default_pool: bool,
    /// Names under which orphans are returned; without one they are only reported.
    pub claim_prefix: Option<&'static str>,
    /// How long two sightings of an orphan must be apart.
    pub sweep_interval: Duration,
    /// The agent that it brings, as a file's content.
    pub agent: &'static str,
    /// The version of Tart that it brings.
    pub tart: &'static str,
}

impl Default for Install {
    /// As a chart installs it: orphans are reported, what was left half done is finished.
    fn default() -> Self {
        Self {
            default_pool: true,
            claim_prefix: None,
            sweep_interval: Duration::from_mins(15),
            agent: "simulated tart-kubelet",
            tart: "2.32.1",
        }
    }
}

/// What the providers are told to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Crew {
    install: Install,
    stopped: BTreeSet<Process>,
}

impl Crew {
    pub(super) fn new() -> watch::Sender<Self> {
        watch::Sender::new(Self::default())
    }
}

impl World {
    /// Installs the provider anew: each of its processes ends, and another starts in its place.
    pub fn install(&self, install: Install) {
        self.crew.send_modify(|crew| crew.install = install);
    }

    /// Ends a provider's process for good, until it is started.
    pub fn stop(&self, process: &Process) {
        self.crew.send_modify(|crew| {
            crew.stopped.insert(process.clone());
        });
    }

    /// Starts a provider's process that was stopped.
    pub fn start_again(&self, process: &Process) {
        self.crew.send_modify(|crew| {
            crew.stopped.remove(process);
        });
    }

    /// A provider's process, started again whenever it crashes.
    pub(super) async fn provider(&self, process: Process, account: &str) {
        let (network, faults) = (&self.network, &self.settings.faults);
        let dial = Arc::new(GatedDial::new(network.clone(), process.clone(), faults.clone()));
        let mut crew = self.crew.subscribe();
        loop {
            let runs = |crew: &Crew| !crew.stopped.contains(&process);
            let install = match crew.wait_for(runs).await {
                Ok(crew) => crew.install.clone(),
                // Nobody can start it any more.
                Err(_) => return,
            };
            let provider = Provider {
                client: self.api().client(Identity::service_account(NAMESPACE, account)),
                scaleway: self.provider_scaleway(&process),
                github: self.provider_github(&process),
                dial: dial.clone(),
                clock: self.process_clock(),
                metrics: Metrics::new(self.process_clock()),
                settings: (self.tune)(self.settings.provider(&install)),
            };
            let replaced = async {
                // What is borrowed of it must not be held while others run.
                let _ = crew.wait_for(|crew| !runs(crew) || crew.install != install).await;
            };
            tokio::select! {
                biased;
                () = self.crashed(&process) => {}
                () = replaced => {}
                ended = provider.run() => {
                    tracing::error!(?ended, "the provider ended; it is started again");
                    tokio::time::sleep(self.settings.period()).await;
                }
            }
        }
    }
}
