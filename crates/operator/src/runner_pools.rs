//! Runner pools: keeps warm, single-use CI runners. The shell of `core::runner_pool`.
//!
//! Runners are listed from the API server each turn, never taken from a cache: a Pod that was just
//! created counts at once (R12).

mod silences;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::keys::{finalizer, label};
use applecart_api::runner_pool::{RunnerPool, RunnerPoolSpec, RunnerPoolStatus};
use applecart_core::Outcome;
use applecart_core::runner_pool::{
    Account, AccountState, Action, Decision, Limits, Observed, Pool, Reason, Runner, RunnerState,
    account, decide, pod, suffix,
};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt, future};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
    Preconditions,
};
use kube::core::DeserializeGuard;
use kube::runtime::controller::{Action as Wake, Config};
use kube::runtime::{Controller, watcher};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};

use self::silences::Silences;
use crate::calls::{self, ReadError};
use crate::events::Events;
use crate::provider::chain;
use crate::tellings::Tellings;
use crate::troubles::Troubles;

/// Pools that take a turn at once.
const CONCURRENT_TURNS: u16 = 16;

/// The runner-pool controller and all that it talks to.
pub struct RunnerPools {
    /// The cluster that it runs in.
    pub client: kube::Client,
    /// The namespace whose pools are kept; all of them if `None`.
    pub namespace: Option<String>,
    /// What time it is.
    pub clock: Clock,
    /// Where a runner asks for its job.
    pub dispatch_url: String,
    /// Waits of a pool.
    pub limits: Limits,
}

struct Context {
    client: kube::Client,
    clock: Clock,
    dispatch_url: String,
    limits: Limits,
    events: Events,
    troubles: Troubles,
    tellings: Tellings,
    /// Runners whose account was made here and whose Pod was not yet; lost in a crash, and then
    /// their accounts go.
    begun: Mutex<BTreeSet<String>>,
    silences: Silences,
}

impl Context {
    fn begun(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A pool as the watch has it. One that cannot be read must not blind us to all others (S15); a
/// turn needs its name alone.
type Watched = DeserializeGuard<RunnerPool>;

/// What a turn read.
struct Turn {
    seen: Observed,
    pool: RunnerPool,
    namespace: String,
}

impl RunnerPools {
    /// Runs until dropped. Boxed, so that it is compiled here.
    #[must_use]
    pub fn run(self) -> BoxFuture<'static, ()> {
        self.start().boxed()
    }

    async fn start(self) {
        let client = self.client.clone();
        let context = Arc::new(Context {
            events: Events::new(self.client.clone(), "runnerpool-controller", self.clock.clone()),
            client: self.client,
            clock: self.clock,
            dispatch_url: self.dispatch_url,
            troubles: Troubles::new(self.limits.look),
            limits: self.limits,
            tellings: Tellings::default(),
            begun: Mutex::default(),
            silences: Silences::default(),
        });
        let runners = watcher::Config::default().labels(label::RUNNER_POOL);
        let (pools, pods): (Api<Watched>, Api<Pod>) = match &self.namespace {
            Some(namespace) => {
                (Api::namespaced(client.clone(), namespace), Api::namespaced(client, namespace))
            }
            None => (Api::all(client.clone()), Api::all(client)),
        };
        Controller::new(pools, watcher::Config::default())
            .with_config(Config::default().concurrency(CONCURRENT_TURNS))
            .owns(pods, runners)
            .run(turn, |pool, error, context| failed(&pool, error, &context), context)
            .for_each(|_| future::ready(()))
            .await;
    }
}

fn failed(pool: &Watched, error: &ReadError, context: &Context) -> Wake {
    tracing::warn!(pool = %pool.name_any(), error = chain(error), "turn");
    Wake::requeue(context.limits.look)
}

async fn turn(pool: Arc<Watched>, context: Arc<Context>) -> Result<Wake, ReadError> {
    let Some(turn) = observe(&context, &pool).await? else {
        let uid = pool.uid().unwrap_or_default();
        context.troubles.clear(&uid);
        context.tellings.forget(&uid);
        context.silences.forget(&uid);
        // Gone, or a read behind the times: then nothing else would ever bring us back.
        return Ok(Wake::requeue(context.limits.look));
    };
    let decision = decide(context.clock.now(), &turn.seen, &context.limits);
    let Some(action) = &decision.action else {
        return Ok(decision.wake.map_or_else(Wake::await_change, Wake::requeue));
    };
    let outcome = perform(&context, &turn, action).await;
    let reason = &decision.reason;
    let pool = &turn.seen.pool.name;
    tracing::info!(%pool, action = action.describe(), ?outcome, %reason, "turn");
    let uid = turn.pool.uid().unwrap_or_default();
    let now = context.clock.now();
    let told = matches!(action, Action::WriteStatus(_));
    let again = context.troubles.settle(&uid, action.describe(), &outcome, told, now);
    if outcome == Outcome::Done {
        if let Action::WriteStatus(status) = action {
            context.tellings.told(&uid, status, now);
        }
        tell(&context, &turn, action, &decision).await;
    }
    Ok(Wake::requeue(again))
}

async fn tell(context: &Context, turn: &Turn, action: &Action, decision: &Decision) {
    let Action::WriteStatus(status) = action else { return };
    if status.last_reason == turn.seen.pool.status.last_reason {
        return;
    }
    let about = turn.pool.object_ref(&());
    let warning = matches!(decision.reason, Reason::Trouble(_) | Reason::Unreadable(_));
    let text = decision.reason.to_string();
    context.events.publish(&about, decision.reason.word(), text, warning).await;
}

/// A pool as it is stored. One whose spec is missing or cannot be read still has runners and a
/// finalizer: it comes back with an empty spec, and with what is wrong.
fn parse(stored: &DynamicObject) -> Result<(RunnerPool, Option<String>), serde_json::Error> {
    let mut value = serde_json::to_value(stored)?;
    match serde_json::from_value(value.clone()) {
        Ok(pool) => Ok((pool, None)),
        Err(error) => {
            value["spec"] = serde_json::to_value(RunnerPoolSpec::default())?;
            Ok((serde_json::from_value(value)?, Some(error.to_string())))
        }
    }
}

async fn observe(context: &Context, pool: &Watched) -> Result<Option<Turn>, ReadError> {
    let namespace = pool.namespace().unwrap_or_default();
    let stored = pools(context, &namespace);
    let read = calls::read("the pool", stored.get_opt(&pool.name_any())).await?;
    let Some(stored) = read else { return Ok(None) };
    let malformed = |error: serde_json::Error| ReadError::Malformed {
        what: "the pool",
        why: error.to_string(),
    };
    let (pool, unreadable) = parse(&stored).map_err(malformed)?;
    let name = pool.name_any();
    let members = ListParams::default().labels(&format!("{}={name}", label::RUNNER_POOL));
    let pods: Api<Pod> = Api::namespaced(context.client.clone(), &namespace);
    let pods = calls::read("its runners", pods.list(&members)).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(context.client.clone(), &namespace);
    let accounts = calls::read("its ServiceAccounts", accounts.list(&members)).await?;
    let mut runners: Vec<Runner> = pods.items.iter().map(runner).collect();
    let uid = pool.uid().unwrap_or_default();
    let unheard =
        silences::unheard(&context.client, &pool.spec.fleet_selector, &pods.items).await?;
    context.silences.note(&uid, &unheard, &mut runners, context.clock.now());
    runners.sort_by(|a, b| a.name.cmp(&b.name));
    let mut accounts: Vec<Account> = observe_accounts(context, &accounts.items, &runners);
    accounts.sort_by(|a, b| a.name.cmp(&b.name));
    let names = runners.iter().map(|runner| &runner.name);
    let taken = names.chain(accounts.iter().map(|account| &account.name)).map(String::as_str);
    let fresh = suffix(&uid, &pool.resource_version().unwrap_or_default(), &taken.collect());
    let status = pool.status.clone().unwrap_or_default();
    let (pause, now) = (context.limits.look, context.clock.now());
    let seen = Observed {
        contested_until: context.tellings.contested_until(&uid, &status, pause, now),
        pool: Pool {
            name: name.clone(),
            generation: pool.metadata.generation,
            finalizer: pool.finalizers().iter().any(|f| f == finalizer::RUNNER_POOL),
            deleting: pool.metadata.deletion_timestamp.is_some(),
            spec: pool.spec.clone(),
            unreadable,
            status,
        },
        runners,
        accounts,
        fresh_name: format!("{name}-runner-{fresh}"),
        trouble: context.troubles.of(&uid),
    };
    Ok(Some(Turn { seen, pool, namespace }))
}

fn runner(pod: &Pod) -> Runner {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let claimed = pod.labels().get(label::RUNNER_POOL_OWNER).is_some_and(|owner| !owner.is_empty());
    let state = match phase {
        Some("Succeeded" | "Failed") => RunnerState::Ended,
        _ if claimed => RunnerState::Busy,
        Some("Running") => RunnerState::Idle,
        _ => RunnerState::Starting,
    };
    let container = pod.spec.as_ref().and_then(|spec| spec.containers.first());
    Runner {
        name: pod.name_any(),
        uid: pod.uid().unwrap_or_default(),
        version: pod.resource_version().unwrap_or_default(),
        state,
        image: container.and_then(|container| container.image.clone()).unwrap_or_default(),
        deleting: pod.metadata.deletion_timestamp.is_some(),
        silent_since: None,
    }
}

/// What becomes of accounts that have no Pod.
fn observe_accounts(
    context: &Context,
    accounts: &[ServiceAccount],
    runners: &[Runner],
) -> Vec<Account> {
    let mut begun = context.begun();
    // Two leaders may begin the same one.
    begun.retain(|name| !runners.iter().any(|runner| runner.name == *name));
    let now = context.clock.now();
    let is_young = |account: &ServiceAccount| {
        let created = account.creation_timestamp();
        created.is_some_and(|created| is_young(created.0, now, context.limits.keep))
    };
    let state = |account: &ServiceAccount| match begun.contains(&account.name_any()) {
        true => AccountState::Begun,
        false if is_young(account) => AccountState::Young,
        false => AccountState::Left,
    };
    let read = |account: &ServiceAccount| Account {
        name: account.name_any(),
        uid: account.uid().unwrap_or_default(),
        state: state(account),
    };
    accounts.iter().map(read).collect()
}

/// Whether another leader may be about to use it. The API server's clock may be ahead of ours.
fn is_young(created: Timestamp, now: Timestamp, keep: Duration) -> bool {
    now.duration_since(created).unsigned_abs() < keep
}

async fn perform(context: &Context, turn: &Turn, action: &Action) -> Outcome {
    let client = context.client.clone();
    let pods: Api<Pod> = Api::namespaced(client.clone(), &turn.namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(client, &turn.namespace);
    let create = PostParams::default();
    let pool = &turn.seen.pool;
    match action {
        Action::AddFinalizer => set_finalizer(context, turn, true).await,
        Action::RemoveFinalizer => set_finalizer(context, turn, false).await,
        Action::WriteStatus(status) => write_status(context, turn, status).await,
        Action::CreateAccount(name) => {
            let account = account(name, &pool.name, &owner(&turn.pool));
            context.begun().insert(name.clone());
            calls::create(accounts.create(&create, &account)).await
        }
        Action::CreatePod(name) => {
            let owner = owner(&turn.pool);
            let pod = pod(name, &pool.name, &pool.spec, &context.dispatch_url, &owner);
            let outcome = calls::create(pods.create(&create, &pod)).await;
            if outcome == Outcome::Done {
                context.begun().remove(name);
            }
            outcome
        }
        Action::DeletePod { name, uid, version } => {
            let preconditions =
                Preconditions { uid: Some(uid.clone()), resource_version: Some(version.clone()) };
            let how = DeleteParams::default().preconditions(preconditions);
            calls::delete(pods.delete(name, &how)).await
        }
        Action::DeleteAccount { name, uid } => {
            context.begun().remove(name);
            // Another leader may have made its Pod since they were listed.
            match calls::read("the account's Pod", pods.get_opt(name)).await {
                Ok(None) => {}
                Ok(Some(_)) => return Outcome::Refused,
                Err(error) => return Outcome::Failed(chain(&error)),
            }
            let preconditions = Preconditions { uid: Some(uid.clone()), resource_version: None };
            let how = DeleteParams::default().preconditions(preconditions);
            calls::delete(accounts.delete(name, &how)).await
        }
    }
}

fn owner(pool: &RunnerPool) -> OwnerReference {
    pool.controller_owner_ref(&()).unwrap_or_default()
}

/// Pools as they are stored: an answer that holds one without a spec is an answer.
fn pools(context: &Context, namespace: &str) -> Api<DynamicObject> {
    let kind = ApiResource::erase::<RunnerPool>(&());
    Api::namespaced_with(context.client.clone(), namespace, &kind)
}

fn pin(turn: &Turn, change: &mut Value) {
    change["metadata"]["uid"] = json!(turn.pool.uid());
    change["metadata"]["resourceVersion"] = json!(turn.pool.resource_version());
}

async fn set_finalizer(context: &Context, turn: &Turn, present: bool) -> Outcome {
    let others = turn.pool.finalizers().iter().filter(|f| *f != finalizer::RUNNER_POOL);
    let mut list: Vec<String> = others.cloned().collect();
    if present {
        list.push(finalizer::RUNNER_POOL.to_owned());
    }
    let mut change = json!({"metadata": {"finalizers": list}});
    pin(turn, &mut change);
    let patch = Patch::Merge(&change);
    let name = &turn.seen.pool.name;
    calls::write(pools(context, &turn.namespace).patch(name, &PatchParams::default(), &patch)).await
}

async fn write_status(context: &Context, turn: &Turn, status: &RunnerPoolStatus) -> Outcome {
    let mut change = json!({"status": status});
    pin(turn, &mut change);
    let patch = Patch::Merge(&change);
    let name = &turn.seen.pool.name;
    calls::write(pools(context, &turn.namespace).patch_status(
        name,
        &PatchParams::default(),
        &patch,
    ))
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_young_for_a_minute_whichever_clock_is_ahead() {
        let (created, keep) =
            (Timestamp::from_second(1000).expect("a time"), Limits::default().keep);
        for (second, young) in [(995, true), (1059, true), (1060, false), (900, false)] {
            let now = Timestamp::from_second(second).expect("a time");
            assert_eq!(is_young(created, now, keep), young, "{second}");
        }
    }
}
