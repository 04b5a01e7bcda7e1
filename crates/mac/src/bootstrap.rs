//! All steps in their order: from whatever a host is to what it shall be.

use std::fmt;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::command::excerpt;
use crate::steps::{
    Account, AccountStep, Applied, Cause, Host, State, Step, StepError, explained, scripts,
};
use crate::{Command, HostConfig, Mac, MacError, Password, PerHost, Privilege, UserName};

/// Where a bootstrap is: told before each step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The step's number, from 1.
    pub index: usize,
    /// How many there are.
    pub total: usize,
    /// Its name, for people.
    pub name: &'static str,
}

impl Progress {
    /// The first thing of a [`bootstrap`], before there is a Mac to bootstrap: a host that answers
    /// ([`wait_for_ssh`](crate::wait_for_ssh)).
    #[must_use]
    pub fn waiting_for_ssh(desired: &HostConfig) -> Self {
        Self { index: 1, total: 1 + desired.steps().len(), name: "wait for SSH" }
    }
}

/// How a step ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was as desired: nothing was written.
    Unchanged,
    /// It is as desired now, and was read back.
    Changed,
    /// It is not as desired, because of running VMs; why.
    Postponed(&'static str),
    /// It failed, and the host is a node without it ([`Step::is_optional`]); why.
    Failed(String),
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Unchanged => "unchanged",
            Self::Changed => "changed",
            Self::Postponed(_) => "postponed",
            Self::Failed(_) => "failed",
        })
    }
}

/// One step's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Which step.
    pub step: Step,
    /// How it ended.
    pub done: Done,
    /// What of it counts from the next boot on, if anything.
    pub awaits_boot: Option<&'static str>,
    /// How long it took.
    pub took: Duration,
}

impl fmt::Display for StepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} in {} ms", self.step, self.done, self.took.as_millis())
    }
}

/// A bootstrap's end, step by step. Prints as one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Every step, in order.
    pub steps: Vec<StepReport>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let steps: Vec<String> = self.steps.iter().map(ToString::to_string).collect();
        f.write_str(&steps.join(", "))
    }
}

impl Report {
    /// Whether the host is all that it shall be. Only then is its fingerprint its configuration's.
    #[must_use]
    pub fn converged(&self) -> bool {
        self.steps.iter().all(|step| matches!(step.done, Done::Unchanged | Done::Changed))
    }

    /// What waits until no VM runs, for people.
    #[must_use]
    pub fn postponed(&self) -> Option<String> {
        let why = |step: &StepReport| match &step.done {
            Done::Postponed(why) => Some(format!("{}: {why}", step.step)),
            Done::Unchanged | Done::Changed | Done::Failed(_) => None,
        };
        joined(self.steps.iter().filter_map(why))
    }

    /// What failed and is no part of being a node, for people.
    #[must_use]
    pub fn failed(&self) -> Option<String> {
        let why = |step: &StepReport| match &step.done {
            Done::Failed(why) => Some(format!("{}: {why}", step.step)),
            Done::Unchanged | Done::Changed | Done::Postponed(_) => None,
        };
        joined(self.steps.iter().filter_map(why))
    }

    /// What counts from the next boot on, for people.
    #[must_use]
    pub fn awaits_boot(&self) -> Option<String> {
        joined(self.steps.iter().filter_map(|step| step.awaits_boot.map(str::to_owned)))
    }

    /// How many steps had anything to do, for people.
    #[must_use]
    pub fn changes(&self) -> String {
        let changed = self.steps.iter().filter(|step| step.done == Done::Changed).count();
        format!("{changed} of {} steps changed", self.steps.len())
    }

    /// Whether anything was written.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.steps.iter().any(|step| step.done != Done::Unchanged)
    }
}

fn joined(parts: impl Iterator<Item = String>) -> Option<String> {
    let parts: Vec<String> = parts.collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

/// Makes a host what it shall be. First bootstrap and update are this one function.
///
/// # Guarantees
/// - A host that is as desired is read, not written.
/// - Cut off anywhere, and run again, it converges.
/// - An error names its step and holds no secret.
/// - A step that is no part of being a node fails alone (B22): it is reported, the rest goes on.
pub async fn bootstrap<M: Mac + ?Sized>(
    mac: &M,
    desired: &HostConfig,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Report, StepError> {
    let PerHost { user, password, .. } = desired.host();
    let host = Host { account: Account { mac: &mac, user, password }, desired };
    end_leftovers(&host.account).await?;
    let steps = desired.steps();
    let ssh = Progress::waiting_for_ssh(desired);
    let mut run = Run { steps: Vec::new(), before: ssh.index, total: ssh.total, progress };
    let secrets = desired.secrets();
    for step in steps {
        run.step(step, &secrets, converge(step, &host)).await?;
    }
    Ok(Report { steps: run.steps })
}

/// Makes a host one that can be bootstrapped: root without a password, and a graphical session that
/// survives a reboot. The same steps as in a [`bootstrap`], for a person to take by hand.
pub async fn prepare<M: Mac + ?Sized>(
    mac: &M,
    user: &UserName,
    password: &Password,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Report, StepError> {
    let account = Account { mac: &mac, user, password };
    end_leftovers(&account).await?;
    let total = AccountStep::ALL.len();
    let mut run = Run { steps: Vec::new(), before: 0, total, progress };
    for step in AccountStep::ALL {
        run.step(step.step(), &password.forms(), converge_account(step, &account)).await?;
    }
    Ok(Report { steps: run.steps })
}

/// What [`prepare`] would change, step by step; reads alone. Without passwordless sudo, nothing
/// more can be read than that.
pub async fn inspect<M: Mac + ?Sized>(
    mac: &M,
    user: &UserName,
    password: &Password,
) -> Result<Vec<(Step, Option<&'static str>)>, StepError> {
    let account = Account { mac: &mac, user, password };
    let mut found = Vec::new();
    for step in AccountStep::ALL {
        let state = step.check(&account).await;
        let failed = |cause| StepError {
            step: step.step(),
            cause: scrubbed(cause, &password.forms()),
            took: Duration::ZERO,
            earlier: Vec::new(),
        };
        match state.map_err(failed)? {
            State::Converged | State::AwaitsBoot(_) => found.push((step.step(), None)),
            State::Differs(what) => {
                found.push((step.step(), Some(what)));
                break;
            }
        }
    }
    Ok(found)
}

/// A run, step by step.
struct Run<'a> {
    steps: Vec<StepReport>,
    /// How many came before the first of them.
    before: usize,
    total: usize,
    progress: &'a (dyn Fn(Progress) + Send + Sync),
}

impl Run<'_> {
    async fn step(
        &mut self,
        step: Step,
        secrets: &[String],
        work: impl Future<Output = Result<Ended, Cause>>,
    ) -> Result<(), StepError> {
        let index = self.before + self.steps.len() + 1;
        (self.progress)(Progress { index, total: self.total, name: step.name() });
        let started = Instant::now();
        let done = timeout(step.timeout(), work).await;
        let done = done.unwrap_or(Err(Cause::TimedOut(step.timeout())));
        let took = started.elapsed();
        match done {
            Ok((done, awaits_boot)) => {
                self.steps.push(StepReport { step, done, awaits_boot, took });
            }
            Err(cause) if step.is_optional() => {
                let done = Done::Failed(explained(&scrubbed(cause, secrets)));
                self.steps.push(StepReport { step, done, awaits_boot: None, took });
            }
            Err(cause) => {
                let earlier = std::mem::take(&mut self.steps);
                let cause = scrubbed(cause, secrets);
                return Err(StepError { step, cause, took, earlier });
            }
        }
        Ok(())
    }
}

/// Ends what an earlier run left working on the host (LH18); a run does not begin beside it.
async fn end_leftovers(account: &Account<'_>) -> Result<(), StepError> {
    let end = Command::script(scripts::END_LEFTOVERS, &[], Privilege::User);
    account.run(end).await.map(drop).map_err(|cause| StepError {
        step: Step::Sudo,
        cause: scrubbed(cause, &account.password.forms()),
        took: Duration::ZERO,
        earlier: Vec::new(),
    })
}

/// How a step ended, and what of it counts from the next boot on.
type Ended = (Done, Option<&'static str>);

async fn converge(step: Step, host: &Host<'_>) -> Result<Ended, Cause> {
    match step.check(host).await? {
        State::Converged => return Ok((Done::Unchanged, None)),
        State::AwaitsBoot(what) => return Ok((Done::Unchanged, Some(what))),
        State::Differs(_) => {}
    }
    match step.apply(host).await? {
        Applied::Postponed(why) => Ok((Done::Postponed(why), None)),
        Applied::Done => verified(&step.check(host).await?),
    }
}

async fn converge_account(step: AccountStep, account: &Account<'_>) -> Result<Ended, Cause> {
    if step.check(account).await? == State::Converged {
        return Ok((Done::Unchanged, None));
    }
    match step.apply(account).await? {
        Applied::Postponed(why) => Ok((Done::Postponed(why), None)),
        Applied::Done => verified(&step.check(account).await?),
    }
}

fn verified(state: &State) -> Result<Ended, Cause> {
    match state {
        State::Converged => Ok((Done::Changed, None)),
        State::AwaitsBoot(what) => Ok((Done::Changed, Some(what))),
        State::Differs(what) => Err(Cause::NotVerified((*what).to_owned())),
    }
}

/// What a host prints is its own; should it repeat a secret of ours, nobody gets to see it.
fn scrubbed(cause: Cause, secrets: &[String]) -> Cause {
    let scrub = |text: String| excerpt(&text, secrets);
    match cause {
        Cause::Failed { doing, status, stderr } => {
            Cause::Failed { doing, status, stderr: scrub(stderr) }
        }
        Cause::Mac(MacError::Refused { doing, status, stderr }) => {
            Cause::Mac(MacError::Refused { doing, status, stderr: scrub(stderr) })
        }
        Cause::NotVerified(what) => Cause::NotVerified(scrub(what)),
        cause @ (Cause::Mac(_)
        | Cause::PasswordRefused
        | Cause::AutoLoginSealed
        | Cause::TimedOut(_)) => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::desired;

    #[test]
    fn a_run_is_told_in_one_line_with_each_steps_end_and_time() {
        let step = |step, done, millis| {
            let took = Duration::from_millis(millis);
            StepReport { step, done, awaits_boot: None, took }
        };
        let steps = [
            step(Step::Sudo, Done::Unchanged, 12),
            step(Step::AutoLogin, Done::Changed, 4034),
            step(Step::Tart, Done::Postponed("VMs run"), 3),
            step(Step::Tailscale, Done::Failed("no".into()), 60_000),
        ];
        let report = Report { steps: steps[..2].to_vec() };
        let line = "passwordless sudo: unchanged in 12 ms, auto-login: changed in 4034 ms";
        assert_eq!(report.to_string(), line);
        assert_eq!(report.changes(), "1 of 2 steps changed");
        let last = Report { steps: steps[2..].to_vec() };
        let line = "Tart: postponed in 3 ms, Tailscale: failed in 60000 ms";
        assert_eq!(last.to_string(), line);
        let took = Duration::from_millis(7);
        let (step, cause) = (Step::Firewall, Cause::NotVerified("pf is off".into()));
        let error = StepError { step, cause, took, earlier: vec![steps[0].clone()] };
        let line = "passwordless sudo: unchanged in 12 ms, egress firewall: failed in 7 ms";
        assert_eq!(error.steps().to_string(), line);
    }

    #[test]
    fn a_secret_that_a_host_repeats_is_not_shown() {
        // LH4
        let desired = desired();
        for secret in desired.secrets() {
            let stderr = format!("sh: bad word {secret}!");
            let cause = Cause::Failed { doing: "x".into(), status: 1, stderr };
            let shown = format!("{:?}", scrubbed(cause, &desired.secrets()));
            assert!(!shown.contains(&secret) && shown.contains("<hidden>"), "{shown}");
        }
    }
}
