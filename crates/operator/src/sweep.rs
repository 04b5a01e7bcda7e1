//! The sweep: the shell of `core::sweep`. It runs beside the Machines, as part of the provider, and
//! so only while that leads.
//!
//! # Flow
//! Every interval, one look at everything (`observe::inventory`), from which `core` makes a report
//! and tasks. Each task then takes turns of its own: the host, its Lease and all objects are read
//! afresh (`observe::host`), `core` decides, one effect is performed. What is under way is looked
//! at again within the same interval; nothing new is begun there.
//!
//! # Guarantees
//! - One effect at a time, and no other host's before this one's turn is over.
//! - What changes a host is sent within ten seconds of the read that allows it, or not at all.
//! - A read of ownership that fails ends the cycle, and so does that of a host, whose turn comes
//!   last in the next one.

mod leftovers;
mod observe;
mod perform;
mod tell;

use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::{ClusterId, Zone};
use applecart_core::Outcome;
use applecart_core::sweep::{Action, Memory, Policy, Reason, Task, decide, survey};
use tokio::time::Instant;
use tracing::Instrument;

use crate::effects::{Effect, Effects};
use crate::metrics::Metrics;

/// How old an ownership read may be when a host is renamed or wiped because of it.
const FRESH: Duration = Duration::from_secs(10);

/// Turns that one host takes in a row: a whole return is nine, and one for each Pod on it.
const TURNS_PER_HOST: usize = 16;

/// The sweep's name in logs and metrics.
const CONTROLLER: &str = "sweep";

/// What an operator chooses.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Zones that are swept besides those of live objects.
    pub zones: Vec<Zone>,
    /// What may be done. An interval of 0 switches the sweep off.
    pub policy: Policy,
    /// How often a host that is on its way back is looked at.
    pub look: Duration,
}

impl Settings {
    /// All waits, `speed` times shorter.
    #[must_use]
    pub(crate) fn scaled(self, speed: f64) -> Self {
        let interval = self.policy.interval.div_f64(speed);
        let patience = self.policy.patience.div_f64(speed);
        let policy = Policy { interval, patience, ..self.policy };
        Self { policy, look: self.look.div_f64(speed), ..self }
    }
}

/// The sweep and all that it talks to.
pub(crate) struct Sweep {
    /// The cluster that it runs in.
    pub client: kube::Client,
    /// Where the hosts are.
    pub scaleway: applecart_scaleway::Client,
    /// What time it is.
    pub clock: Clock,
    /// This cluster's mark in names.
    pub cluster: ClusterId,
    /// Namespace of the hosts' Leases.
    pub namespace: String,
    /// What an operator chose.
    pub settings: Settings,
    /// Through which effects go.
    pub effects: Arc<Effects>,
    /// What is told to Prometheus.
    pub metrics: Metrics,
}

impl Sweep {
    /// Runs until dropped.
    pub async fn run(self) {
        let interval = self.settings.policy.interval;
        if interval.is_zero() {
            tracing::info!("no sweep: --orphan-reclaim-interval is 0");
            return;
        }
        let mut memory = Memory::default();
        loop {
            let next = Instant::now() + interval;
            let span = self.effects.turn(CONTROLLER, "cycle");
            let mut under_way = self.cycle(&mut memory).instrument(span).await;
            while !under_way.is_empty() && Instant::now() + self.settings.look < next {
                tokio::time::sleep(self.settings.look).await;
                under_way = self.work(under_way, &mut memory).await;
            }
            tokio::time::sleep_until(next).await;
        }
    }

    /// Looks at everything and does what is due; what is left under way.
    async fn cycle(&self, memory: &mut Memory) -> Vec<Task> {
        let now = self.clock.now();
        let inventory = match observe::inventory(self).await {
            Ok(inventory) => inventory,
            Err(reason) => {
                self.refuse(None, &reason);
                self.metrics.count_cycle("refused");
                return vec![];
            }
        };
        let survey = survey(now, &inventory, &self.settings.policy, memory);
        *memory = survey.memory;
        self.tell(&inventory, &survey.report);
        for (server, reason) in &survey.refusals {
            self.refuse(server.as_ref(), reason);
        }
        for task in &survey.clean_ups {
            if let Err(reason) = self.clean_up(task).await {
                end_cycle(&reason);
                return vec![];
            }
        }
        self.work(survey.tasks, memory).await
    }

    /// Gives each task its turns; those that are left under way.
    async fn work(&self, tasks: Vec<Task>, memory: &mut Memory) -> Vec<Task> {
        let mut under_way = vec![];
        for task in tasks {
            let reason = self.host(&task).await;
            memory.had_turn(task.server(), &reason, self.clock.now());
            if reason.ends_cycle() {
                end_cycle(&reason);
                break;
            }
            if reason.is_under_way() {
                under_way.push(task);
            }
        }
        under_way
    }

    /// Takes turns with one host while there is something to do; why there is no more.
    async fn host(&self, task: &Task) -> Reason {
        let mut last = (Reason::Returned, Next::Turn);
        for _ in 0..TURNS_PER_HOST {
            let span = self.effects.turn(CONTROLLER, task.server().as_str());
            last = Box::pin(self.turn(task, last.1 == Next::Ask)).instrument(span).await;
            if last.1 == Next::Look {
                break;
            }
        }
        last.0
    }

    /// One turn: why it ended as it did, and what may follow it.
    async fn turn(&self, task: &Task, asking: bool) -> (Reason, Next) {
        let read_at = self.clock.now();
        let turn = match observe::host(self, task, asking).await {
            Ok(turn) => turn,
            Err(reason) => {
                self.refuse(Some(task.server()), &reason);
                return (reason, Next::Look);
            }
        };
        let decision = decide(self.clock.now(), task, &turn.seen, &self.settings.policy);
        if decision.reason.is_refusal() {
            self.refuse(Some(task.server()), &decision.reason);
        }
        let Some(action) = decision.action else { return (decision.reason, Next::Look) };
        let age = self.clock.now().duration_since(read_at);
        if action.changes_host() && !Duration::try_from(age).is_ok_and(|age| age < FRESH) {
            self.refuse(Some(task.server()), &Reason::ReadTooOld);
            return (Reason::ReadTooOld, Next::Look);
        }
        let effect = Effect {
            controller: CONTROLLER,
            object: task.server().as_str(),
            word: action.word(),
            detail: action.to_string(),
            reason: &decision.reason,
        };
        let performed = perform::perform(self, &turn, &action);
        match self.effects.perform(&effect, performed).await {
            Some(Outcome::Done) => {
                if is_return(&action, &turn) {
                    self.metrics.count_returned();
                }
                (decision.reason, Next::after(&action))
            }
            // Not done, or nobody knows: the next look at it is soon enough.
            Some(_) | None => (decision.reason, Next::Look),
        }
    }
}

/// What follows a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Another turn, at once.
    Turn,
    /// The same, with what was noted right now: asking for the wipe.
    Ask,
    /// Nothing until the next look.
    Look,
}

impl Next {
    /// A host that was asked to be wiped shows that a while later.
    fn after(action: &Action) -> Self {
        match action {
            Action::RequestWipe { .. } => Self::Look,
            Action::NoteAsked { .. } => Self::Ask,
            Action::TakeLease { .. }
            | Action::FreeLease
            | Action::DeleteLease
            | Action::NoteWiped
            | Action::Rename { .. }
            | Action::Cordon { .. }
            | Action::DeleteGuest(_) => Self::Turn,
        }
    }
}

fn end_cycle(reason: &Reason) {
    tracing::warn!(%reason, "nothing more is done in this cycle");
}

/// Whether the effect put a host back into the pool.
fn is_return(action: &Action, turn: &observe::Turn) -> bool {
    match action {
        Action::Rename { to } => turn.seen.is_pool_name(to),
        Action::TakeLease { .. }
        | Action::FreeLease
        | Action::DeleteLease
        | Action::NoteWiped
        | Action::NoteAsked { .. }
        | Action::Cordon { .. }
        | Action::DeleteGuest(_)
        | Action::RequestWipe { .. } => false,
    }
}
