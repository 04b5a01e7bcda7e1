//! All steps in their order: from whatever a host is to what it shall be.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::steps::{Applied, Cause, Host, State, Step, StepError};
use crate::{HostConfig, Mac, MacError};

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

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It was as desired: nothing was written.
    Unchanged,
    /// It is as desired now, and was read back.
    Changed,
    /// It is not as desired, because of running VMs; why.
    Postponed(&'static str),
}

/// One step's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepReport {
    /// Which step.
    pub step: Step,
    /// How it ended.
    pub done: Done,
    /// How long it took.
    pub took: Duration,
}

/// A bootstrap's end, step by step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Every step, in order.
    pub steps: Vec<StepReport>,
}

impl Report {
    /// Whether the host is all that it shall be. Only then is its fingerprint its configuration's.
    #[must_use]
    pub fn converged(&self) -> bool {
        self.steps.iter().all(|step| !matches!(step.done, Done::Postponed(_)))
    }

    /// Whether anything was written.
    #[must_use]
    pub fn changed(&self) -> bool {
        self.steps.iter().any(|step| step.done != Done::Unchanged)
    }
}

/// Makes a host what it shall be. First bootstrap and update are this one function.
///
/// # Guarantees
/// - A host that is as desired is read, not written.
/// - Cut off anywhere, and run again, it converges.
/// - An error names its step and holds no secret.
pub async fn bootstrap<M: Mac + ?Sized>(
    mac: &M,
    desired: &HostConfig,
    progress: &(dyn Fn(Progress) + Send + Sync),
) -> Result<Report, StepError> {
    let host = Host { mac: &mac, desired };
    let mut steps = Vec::with_capacity(Step::ALL.len());
    for (index, step) in Step::ALL.into_iter().enumerate() {
        progress(Progress { index: index + 1, total: Step::ALL.len(), name: step.name() });
        let started = Instant::now();
        let done = match timeout(step.timeout(), converge(step, &host)).await {
            Ok(Ok(done)) => done,
            Ok(Err(cause)) => return Err(StepError { step, cause: scrubbed(cause, desired) }),
            Err(_) => return Err(StepError { step, cause: Cause::TimedOut(step.timeout()) }),
        };
        steps.push(StepReport { step, done, took: started.elapsed() });
    }
    Ok(Report { steps })
}

async fn converge(step: Step, host: &Host<'_>) -> Result<Done, Cause> {
    if step.check(host).await? == State::Converged {
        return Ok(Done::Unchanged);
    }
    if let Applied::Postponed(why) = step.apply(host).await? {
        return Ok(Done::Postponed(why));
    }
    match step.check(host).await? {
        State::Converged => Ok(Done::Changed),
        State::Differs(what) => Err(Cause::NotVerified(what)),
    }
}

/// What a host prints is its own; should it repeat a secret of ours, nobody gets to see it.
fn scrubbed(cause: Cause, desired: &HostConfig) -> Cause {
    let scrub = |text: String| {
        desired.secrets().iter().fold(text, |text, secret| text.replace(secret, "<hidden>"))
    };
    match cause {
        Cause::Failed { doing, status, stderr } => {
            Cause::Failed { doing, status, stderr: scrub(stderr) }
        }
        Cause::Mac(MacError::Refused { doing, status, stderr }) => {
            Cause::Mac(MacError::Refused { doing, status, stderr: scrub(stderr) })
        }
        cause @ (Cause::Mac(_)
        | Cause::PasswordRefused
        | Cause::AutoLoginSealed
        | Cause::NotVerified(_)
        | Cause::TimedOut(_)) => cause,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::desired;

    #[test]
    fn a_secret_that_a_host_repeats_is_not_shown() {
        // LH4
        let desired = desired();
        for secret in desired.secrets() {
            let stderr = format!("sh: bad word {secret}!");
            let cause = Cause::Failed { doing: "x".into(), status: 1, stderr };
            let shown = format!("{:?}", scrubbed(cause, &desired));
            assert!(!shown.contains(&secret) && shown.contains("<hidden>"), "{shown}");
        }
    }
}
