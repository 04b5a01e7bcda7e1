//! All choices of a pool. Pure: same input, same answer; time comes in as an argument.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;

use super::action::Action;
use super::observed::{Account, AccountState, Observed, Runner, RunnerState};
use super::status::status;

/// Times that an operator may tune.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How often a pool at rest is looked at.
    pub keep: Duration,
    /// How often a pool that waits for something is looked at.
    pub look: Duration,
    /// How long nobody may hear of a Mac before its runners without a job are replaced: as long as
    /// Kubernetes leaves any Pod there.
    pub silent: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            keep: Duration::from_mins(1),
            look: Duration::from_secs(10),
            silent: Duration::from_mins(5),
        }
    }
}

impl Limits {
    /// All of them, `speed` times shorter.
    #[must_use]
    pub fn scaled(self, speed: f64) -> Self {
        Self {
            keep: self.keep.div_f64(speed),
            look: self.look.div_f64(speed),
            silent: self.silent.div_f64(speed),
        }
    }
}

/// One turn's answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// The one effect to perform now, if any.
    pub action: Option<Action>,
    /// Look again no later than this, event or not.
    pub wake: Option<Duration>,
    /// Why, for people.
    pub reason: Reason,
}

/// Why a pool does what it does. Shown to people as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The pool's spec cannot be read.
    Unreadable(String),
    /// The pool is for another operating system.
    NotDarwin,
    /// The last effect failed.
    Trouble(String),
    /// Fewer runners than asked for.
    Growing,
    /// More runners than asked for.
    Shrinking,
    /// More runners than asked for, and all of them busy.
    WaitingForJobs(usize),
    /// A runner ended and makes room.
    Reaping,
    /// Idle runners get a new image, one after another.
    Rolling(usize),
    /// Nobody hears of the Macs of so many runners: idle ones are replaced in time.
    Silent(usize),
    /// All runners are there; so many still start.
    Starting(usize),
    /// As asked for.
    Warm,
    /// The pool is deleted; idle runners go.
    Draining,
    /// The pool is deleted, and nothing is left.
    Drained,
}

impl Reason {
    /// One CamelCase word, for conditions and Events.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "SpecUnreadable",
            Self::NotDarwin => "NotDarwin",
            Self::Trouble(_) => "EffectFailed",
            Self::Growing => "Growing",
            Self::Shrinking => "Shrinking",
            Self::WaitingForJobs(_) => "WaitingForJobs",
            Self::Reaping => "Reaping",
            Self::Rolling(_) => "Rolling",
            Self::Silent(_) => "MacsSilent",
            Self::Starting(_) => "Starting",
            Self::Warm => "Warm",
            Self::Draining => "Draining",
            Self::Drained => "Drained",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(why) => write!(f, "spec cannot be read: {why}; write it anew"),
            Self::NotDarwin => write!(f, "only pools with spec.os darwin are kept here"),
            Self::Trouble(message) => write!(f, "could not {message}"),
            Self::Growing => write!(f, "creating runners"),
            Self::Shrinking => write!(f, "deleting idle runners"),
            Self::WaitingForJobs(1) => write!(f, "waiting for 1 running job to end"),
            Self::WaitingForJobs(busy) => write!(f, "waiting for {busy} running jobs to end"),
            Self::Reaping => write!(f, "replacing a runner that ended"),
            Self::Rolling(stale) => write!(f, "old image still on {stale} of its runners"),
            Self::Silent(1) => write!(f, "nobody hears of the Mac of 1 runner"),
            Self::Silent(silent) => write!(f, "nobody hears of the Macs of {silent} runners"),
            Self::Starting(1) => write!(f, "1 runner is starting"),
            Self::Starting(starting) => write!(f, "{starting} runners are starting"),
            Self::Warm => write!(f, "as asked for"),
            Self::Draining => write!(f, "deleted: idle runners go"),
            Self::Drained => write!(f, "deleted: no runner is left"),
        }
    }
}

/// Decides one turn. Deletion is looked at first.
#[must_use]
pub fn decide(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let decision = match held_up(now, seen) {
        Some(held) => held,
        None if seen.pool.deleting => drain(seen, limits),
        None => keep(now, seen, limits),
    };
    not_before_due(now, seen, tell_first(now, seen, decision))
}

/// What failed is not tried again before its time, if it goes before everything else (LH21).
fn not_before_due(now: Timestamp, seen: &Observed, decision: Decision) -> Decision {
    let held = |action: &Action| seen.trouble.as_ref()?.holds(action.describe(), now);
    match decision.action.as_ref().and_then(held) {
        Some(wait) => Decision { action: None, wake: Some(wait), ..decision },
        None => decision,
    }
}

fn held_up(now: Timestamp, seen: &Observed) -> Option<Decision> {
    let trouble = seen.trouble.as_ref()?;
    Some(wait(Reason::Trouble(trouble.message.clone()), trouble.due_in(now)?))
}

fn keep(now: Timestamp, seen: &Observed, limits: &Limits) -> Decision {
    let pool = &seen.pool;
    if let Some(why) = &pool.unreadable {
        return wait(Reason::Unreadable(why.clone()), limits.keep);
    }
    if !pool.is_darwin() {
        return wait(Reason::NotDarwin, limits.keep);
    }
    if !pool.finalizer {
        return act(Action::AddFinalizer, Reason::Growing);
    }
    if let Some(decision) = reap(seen) {
        return decision;
    }
    let alive: Vec<&Runner> = seen.runners.iter().filter(|runner| runner.is_alive()).collect();
    if let Some(account) = spare_account(seen, AccountState::Left) {
        return act(delete_account(account), Reason::Reaping);
    }
    if let Some(decision) = replace_silent(now, &alive, limits) {
        return decision;
    }
    if alive.len() < pool.replicas() {
        return grow(seen, limits);
    }
    if let Some(account) = spare_account(seen, AccountState::Begun) {
        return act(delete_account(account), Reason::Shrinking);
    }
    if alive.len() > pool.replicas() {
        return shrink(&alive, limits);
    }
    roll(now, seen, &alive, limits)
}

/// A runner whose Mac is silent for long gets no job, and would be waited for until its Machine
/// goes. One with a job may still do it (S37): its place is its own until then.
fn replace_silent(now: Timestamp, alive: &[&Runner], limits: &Limits) -> Option<Decision> {
    let useless = |runner: &&&Runner| {
        runner.state != RunnerState::Busy && runner.is_silent_for(limits.silent, now)
    };
    let runner = alive.iter().find(useless)?;
    Some(act(delete(runner), Reason::Silent(silent(alive))))
}

fn silent(alive: &[&Runner]) -> usize {
    alive.iter().filter(|runner| runner.silent_since.is_some()).count()
}

/// A runner that ended goes: its Pod, then (as a spare account) its `ServiceAccount`.
fn reap(seen: &Observed) -> Option<Decision> {
    let ended = |runner: &&Runner| runner.state == RunnerState::Ended && !runner.deleting;
    let runner = seen.runners.iter().find(ended)?;
    Some(act(delete(runner), Reason::Reaping))
}

fn grow(seen: &Observed, limits: &Limits) -> Decision {
    match spare_account(seen, AccountState::Begun) {
        Some(account) => act(Action::CreatePod(account.name.clone()), Reason::Growing),
        // Whoever made it makes its Pod, too, or is gone.
        None if spare_account(seen, AccountState::Young).is_some() => {
            wait(Reason::Growing, limits.look)
        }
        None => act(Action::CreateAccount(seen.fresh_name.clone()), Reason::Growing),
    }
}

/// An account that no Pod of the pool uses, not even a leaving one.
fn spare_account(seen: &Observed, state: AccountState) -> Option<&Account> {
    let used = |name: &str| seen.runners.iter().any(|runner| runner.name == name);
    seen.accounts.iter().find(|a| a.state == state && !used(&a.name))
}

/// Runners on silent Macs go before those that never ran, these before idle ones; busy ones never.
fn shrink(alive: &[&Runner], limits: &Limits) -> Decision {
    let first = |state| alive.iter().find(|runner| runner.state == state);
    let of_no_use =
        |runner: &&&Runner| runner.silent_since.is_some() && runner.state != RunnerState::Busy;
    let useless = alive.iter().find(of_no_use);
    let next = useless.or_else(|| first(RunnerState::Starting));
    match next.or_else(|| first(RunnerState::Idle)) {
        Some(runner) => act(delete(runner), Reason::Shrinking),
        None => wait(Reason::WaitingForJobs(alive.len()), limits.look),
    }
}

/// R8, S39: one stale runner at a time, and only while none before it is still leaving and no
/// replacement is still starting. One on a Mac that is silent for long may leave for ever: nobody
/// waits for that.
fn roll(now: Timestamp, seen: &Observed, alive: &[&Runner], limits: &Limits) -> Decision {
    let image = &seen.pool.spec.image;
    let stale: Vec<&&Runner> = alive.iter().filter(|runner| runner.image != *image).collect();
    let starting = alive.iter().filter(|runner| runner.state == RunnerState::Starting).count();
    let on_its_way = |runner: &Runner| match runner.state {
        RunnerState::Starting if runner.image == *image => !runner.deleting,
        RunnerState::Starting | RunnerState::Idle | RunnerState::Busy => {
            runner.deleting && runner.image != *image
        }
        RunnerState::Ended => false,
    };
    let is_heard_of = |runner: &&Runner| !runner.is_silent_for(limits.silent, now);
    let under_way = seen.runners.iter().filter(is_heard_of).any(on_its_way);
    let next = stale.iter().find(|runner| runner.state != RunnerState::Busy);
    match next {
        Some(runner) if !under_way => act(delete(runner), Reason::Rolling(stale.len())),
        _ if !stale.is_empty() => wait(Reason::Rolling(stale.len()), limits.look),
        _ if silent(alive) > 0 => wait(Reason::Silent(silent(alive)), limits.look),
        _ if starting > 0 => wait(Reason::Starting(starting), limits.look),
        _ => wait(Reason::Warm, limits.keep),
    }
}

/// R3: a deleted pool waits for its last job.
fn drain(seen: &Observed, limits: &Limits) -> Decision {
    if !seen.pool.finalizer {
        return Decision { action: None, wake: None, reason: Reason::Drained };
    }
    let going = |runner: &&Runner| !runner.deleting && runner.state != RunnerState::Busy;
    if let Some(runner) = seen.runners.iter().find(going) {
        return act(delete(runner), Reason::Draining);
    }
    let spare = |state| spare_account(seen, state);
    if let Some(account) = spare(AccountState::Left).or_else(|| spare(AccountState::Begun)) {
        return act(delete_account(account), Reason::Draining);
    }
    if seen.runners.is_empty() && spare(AccountState::Young).is_none() {
        return act(Action::RemoveFinalizer, Reason::Drained);
    }
    let busy = seen.runners.iter().filter(|runner| runner.state == RunnerState::Busy).count();
    let reason = if busy > 0 { Reason::WaitingForJobs(busy) } else { Reason::Draining };
    wait(reason, limits.look)
}

fn tell_first(now: Timestamp, seen: &Observed, decision: Decision) -> Decision {
    let edge = matches!(decision.action, Some(Action::AddFinalizer | Action::RemoveFinalizer));
    if edge || (seen.pool.deleting && !seen.pool.finalizer) {
        return decision;
    }
    let wanted = status(now, seen, &decision);
    if wanted == seen.pool.status {
        return decision;
    }
    // Two leaders that each tell at once what the other just replaced would do nothing else (LH25).
    if let Some(until) = seen.contested_until.filter(|until| now < *until) {
        let wait = Duration::try_from(until.duration_since(now)).unwrap_or_default();
        return Decision { action: None, wake: Some(wait), ..decision };
    }
    Decision { action: Some(Action::WriteStatus(Box::new(wanted))), ..decision }
}

fn delete(runner: &Runner) -> Action {
    Action::DeletePod {
        name: runner.name.clone(),
        uid: runner.uid.clone(),
        version: runner.version.clone(),
    }
}

fn delete_account(account: &Account) -> Action {
    Action::DeleteAccount { name: account.name.clone(), uid: account.uid.clone() }
}

fn act(action: Action, reason: Reason) -> Decision {
    Decision { action: Some(action), wake: None, reason }
}

fn wait(reason: Reason, wake: Duration) -> Decision {
    Decision { action: None, wake: Some(wake), reason }
}

#[cfg(test)]
mod tests {
    use applecart_api::runner_pool::{RunnerPoolSpec, RunnerPoolStatus};

    use super::super::observed::Pool;
    use super::*;
    use crate::Trouble;

    fn now() -> Timestamp {
        Timestamp::from_second(1_800_000_000).unwrap()
    }

    fn pool(replicas: i64, runners: Vec<Runner>) -> Observed {
        let spec = RunnerPoolSpec {
            image: "new".into(),
            replicas: Some(replicas),
            ..RunnerPoolSpec::default()
        };
        let left = |runner: &Runner| account(&runner.name, AccountState::Left);
        let accounts = runners.iter().map(left).collect();
        Observed {
            pool: Pool {
                name: "pool".into(),
                generation: Some(1),
                finalizer: true,
                deleting: false,
                spec,
                unreadable: None,
                status: RunnerPoolStatus::default(),
            },
            runners,
            accounts,
            fresh_name: "pool-runner-00000001".into(),
            contested_until: None,
            trouble: None,
        }
    }

    fn account(name: &str, state: AccountState) -> Account {
        Account { name: name.into(), uid: format!("{name}-uid"), state }
    }

    fn runner(name: &str, state: RunnerState) -> Runner {
        Runner {
            name: name.into(),
            uid: format!("{name}-uid"),
            version: "5".into(),
            state,
            image: "new".into(),
            deleting: false,
            silent_since: None,
        }
    }

    /// On a Mac that nobody has heard of for so many seconds.
    fn unheard(seconds: u64, runner: Runner) -> Runner {
        let since = now() - Duration::from_secs(seconds);
        Runner { silent_since: Some(since), ..runner }
    }

    fn with(mut seen: Observed, change: impl FnOnce(&mut Observed)) -> Observed {
        change(&mut seen);
        seen
    }

    fn stale(runner: Runner) -> Runner {
        Runner { image: "old".into(), ..runner }
    }

    /// Decides as if the status had been told already.
    fn effect(seen: &Observed) -> Decision {
        let limits = Limits::default();
        let told = status(now(), seen, &decide(now(), seen, &limits));
        decide(now(), &with(seen.clone(), |seen| seen.pool.status = told), &limits)
    }

    type Row = (&'static str, Observed, Option<Action>, Reason);

    fn living_rows() -> Vec<Row> {
        use RunnerState::{Busy, Ended, Idle, Starting};
        let (a, b, c) = (runner("a", Idle), runner("b", Busy), runner("c", Starting));
        let retry_at = now() + Duration::from_secs(1);
        let trouble = Trouble {
            tried: "try",
            message: "x".into(),
            at: now(),
            retry_at,
            too_early: false,
            streaks: vec![],
        };
        vec![
            (
                "without a spec (S15)",
                with(pool(0, vec![a.clone()]), |s| s.pool.unreadable = Some("no spec".into())),
                None,
                Reason::Unreadable("no spec".into()),
            ),
            (
                "linux",
                with(pool(1, vec![]), |s| s.pool.spec.os = Some("linux".into())),
                None,
                Reason::NotDarwin,
            ),
            (
                "trouble",
                with(pool(1, vec![]), |s| s.trouble = Some(trouble)),
                None,
                Reason::Trouble("x".into()),
            ),
            (
                "new",
                with(pool(1, vec![]), |s| s.pool.finalizer = false),
                Some(Action::AddFinalizer),
                Reason::Growing,
            ),
            (
                "empty",
                pool(1, vec![]),
                Some(Action::CreateAccount("pool-runner-00000001".into())),
                Reason::Growing,
            ),
            (
                "a Pod create failed: its account is used again (LH9)",
                with(pool(1, vec![]), |s| s.accounts = vec![account("begun", AccountState::Begun)]),
                Some(Action::CreatePod("begun".into())),
                Reason::Growing,
            ),
            (
                "a runner left its account behind: its name is not used again",
                with(pool(1, vec![]), |s| s.accounts = vec![account("left", AccountState::Left)]),
                Some(delete_account(&account("left", AccountState::Left))),
                Reason::Reaping,
            ),
            (
                "another process may be about to use it (G7)",
                with(pool(1, vec![]), |s| s.accounts = vec![account("young", AccountState::Young)]),
                None,
                Reason::Growing,
            ),
            (
                "begun, and not wanted any more",
                with(pool(0, vec![]), |s| s.accounts = vec![account("begun", AccountState::Begun)]),
                Some(delete_account(&account("begun", AccountState::Begun))),
                Reason::Shrinking,
            ),
            (
                "an account is left over",
                with(pool(1, vec![a.clone()]), |s| {
                    s.accounts.push(account("left", AccountState::Left));
                }),
                Some(delete_account(&account("left", AccountState::Left))),
                Reason::Reaping,
            ),
            (
                "ended",
                pool(1, vec![runner("e", Ended)]),
                Some(delete(&runner("e", Ended))),
                Reason::Reaping,
            ),
            ("warm", pool(2, vec![a.clone(), b.clone()]), None, Reason::Warm),
            ("starting", pool(1, vec![c.clone()]), None, Reason::Starting(1)),
            ("too many", pool(1, vec![a.clone(), c.clone()]), Some(delete(&c)), Reason::Shrinking),
            (
                "too many, one busy",
                pool(1, vec![b.clone(), a.clone()]),
                Some(delete(&a)),
                Reason::Shrinking,
            ),
            ("too many, all busy", pool(0, vec![b.clone()]), None, Reason::WaitingForJobs(1)),
        ]
    }

    fn rolling_rows() -> Vec<Row> {
        use RunnerState::{Busy, Idle, Starting};
        let (a, b, c) = (runner("a", Idle), runner("b", Busy), runner("c", Starting));
        vec![
            (
                "old image",
                pool(2, vec![stale(a.clone()), b.clone()]),
                Some(delete(&stale(a.clone()))),
                Reason::Rolling(1),
            ),
            ("old image, busy", pool(1, vec![stale(b)]), None, Reason::Rolling(1)),
            (
                "old image, the one before still leaving (S39)",
                pool(
                    2,
                    vec![
                        Runner { deleting: true, ..stale(runner("z", Idle)) },
                        stale(a.clone()),
                        runner("d", Idle),
                    ],
                ),
                None,
                Reason::Rolling(1),
            ),
            (
                "old image, replacement starting",
                pool(2, vec![stale(a), c]),
                None,
                Reason::Rolling(1),
            ),
        ]
    }

    fn silent_rows() -> Vec<Row> {
        use RunnerState::{Busy, Ended, Idle, Starting};
        let (a, b, c) = (runner("a", Idle), runner("b", Busy), runner("c", Starting));
        let leaving = |runner| Runner { deleting: true, ..unheard(300, stale(runner)) };
        let idle = |seconds| unheard(seconds, a.clone());
        let row = |name, runners, gone: Option<&Runner>, reason| {
            (name, pool(2, runners), gone.map(delete), reason)
        };
        vec![
            row("silent", vec![idle(299), b.clone()], None, Reason::Silent(1)),
            row("for long", vec![idle(300), b.clone()], Some(&a), Reason::Silent(1)),
            row(
                "for long, before it ever ran",
                vec![b.clone(), unheard(300, c.clone())],
                Some(&c),
                Reason::Silent(1),
            ),
            row(
                "for days, at work (S37)",
                vec![a.clone(), unheard(200_000, b.clone())],
                None,
                Reason::Silent(1),
            ),
            row(
                "both for long, one at work",
                vec![unheard(300, b.clone()), idle(300)],
                Some(&a),
                Reason::Silent(2),
            ),
            row(
                "ended on a Mac that is silent since",
                vec![unheard(300, runner("e", Ended)), a.clone()],
                Some(&runner("e", Ended)),
                Reason::Reaping,
            ),
            row(
                "too many, one silent a moment",
                vec![c.clone(), idle(1), b.clone()],
                Some(&a),
                Reason::Shrinking,
            ),
            row(
                "too many, the silent one at work (S37)",
                vec![unheard(300, b), a.clone(), runner("d", Idle)],
                Some(&a),
                Reason::Shrinking,
            ),
            row(
                "old image, the one before on a Mac that is dead (S39)",
                vec![leaving(runner("z", Idle)), stale(a.clone()), runner("d", Idle)],
                Some(&stale(a.clone())),
                Reason::Rolling(1),
            ),
            row(
                "old image, the one before on a Mac that is silent a moment (S39)",
                vec![
                    Runner { silent_since: Some(now()), ..leaving(runner("z", Idle)) },
                    stale(a.clone()),
                    runner("d", Idle),
                ],
                None,
                Reason::Rolling(1),
            ),
        ]
    }

    fn draining_rows() -> Vec<Row> {
        use RunnerState::{Busy, Ended, Idle};
        let draining = |runners| with(pool(2, runners), |s| s.pool.deleting = true);
        let leaving = Runner { deleting: true, ..runner("a", Idle) };
        vec![
            (
                "idle",
                draining(vec![runner("a", Idle)]),
                Some(delete(&runner("a", Idle))),
                Reason::Draining,
            ),
            (
                "ended",
                draining(vec![runner("e", Ended)]),
                Some(delete(&runner("e", Ended))),
                Reason::Draining,
            ),
            ("busy", draining(vec![runner("b", Busy)]), None, Reason::WaitingForJobs(1)),
            ("leaving", draining(vec![leaving]), None, Reason::Draining),
            (
                "account left",
                with(draining(vec![]), |s| s.accounts = vec![account("left", AccountState::Left)]),
                Some(delete_account(&account("left", AccountState::Left))),
                Reason::Draining,
            ),
            (
                "another process may be about to use it (G7)",
                with(draining(vec![]), |s| {
                    s.accounts = vec![account("young", AccountState::Young)];
                }),
                None,
                Reason::Draining,
            ),
            ("nothing left", draining(vec![]), Some(Action::RemoveFinalizer), Reason::Drained),
            (
                "nothing left, and no spec (S15)",
                with(draining(vec![]), |s| s.pool.unreadable = Some("no spec".into())),
                Some(Action::RemoveFinalizer),
                Reason::Drained,
            ),
        ]
    }

    #[test]
    fn each_state_leads_to_its_one_effect_for_its_reason() {
        // LH9
        let rows = [living_rows(), rolling_rows(), silent_rows(), draining_rows()];
        for (name, seen, action, reason) in rows.into_iter().flatten() {
            let decision = effect(&seen);
            assert_eq!(decision.reason, reason, "{name}");
            assert_eq!(decision.action, action, "{name}");
            assert!(decision.wake.is_some() || decision.action.is_some(), "{name} sleeps for ever");
            assert!(!decision.reason.to_string().is_empty());
        }
    }

    #[test]
    fn a_status_that_another_leader_replaced_is_told_again_after_a_while() {
        // G7, LH25
        let seen = pool(1, vec![runner("a", RunnerState::Idle)]);
        let until = now() + Duration::from_secs(7);
        let contested = with(seen, |seen| seen.contested_until = Some(until));
        let decision = decide(now(), &contested, &Limits::default());
        assert_eq!((decision.action, decision.wake), (None, Some(Duration::from_secs(7))));
        let later = decide(until, &contested, &Limits::default());
        assert!(matches!(later.action, Some(Action::WriteStatus(_))));
    }

    #[test]
    fn a_busy_runner_is_never_deleted_whatever_else_is_true() {
        // S37, R3, R5.
        let for_ever = Some(Timestamp::UNIX_EPOCH);
        let kinds = [("new", None), ("old", None), ("new", for_ever), ("old", for_ever)];
        for replicas in [0, 1, 5] {
            for deleting in [false, true] {
                for (image, silent_since) in kinds {
                    let busy = runner("b", RunnerState::Busy);
                    let busy = Runner { image: image.into(), silent_since, ..busy };
                    let seen = with(pool(replicas, vec![busy]), |s| s.pool.deleting = deleting);
                    assert!(!matches!(effect(&seen).action, Some(Action::DeletePod { .. })));
                }
            }
        }
    }

    #[test]
    fn a_pool_at_rest_writes_nothing() {
        // LH25: each write woke the writer.
        let seen = pool(1, vec![runner("a", RunnerState::Idle)]);
        let Some(Action::WriteStatus(told)) = decide(now(), &seen, &Limits::default()).action
        else {
            panic!("the first status is not told");
        };
        let rest = with(seen, |seen| seen.pool.status = *told);
        let later = now() + Duration::from_hours(24);
        assert_eq!(decide(later, &rest, &Limits::default()).action, None);
    }
}
