//! The steps from a factory Mac to a node, in order. Each one checks, applies, and checks again.
//!
//! A step's `check` only reads. Its `apply` may be cut off anywhere: what it leaves behind makes
//! the next `check` say *differs*, never *converged*.

mod agent_binary;
mod agent_job;
mod auto_login;
mod firewall;
mod github_runner;
mod hostname;
mod kubeconfig;
mod launchd;
mod node_exporter;
pub mod paths;
mod pending;
mod power;
pub mod scripts;
mod sudo;
mod tailscale;
mod tart;
mod tries;

pub(crate) use github_runner::ZSHENV_LINE;

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;

use crate::{
    Command, Done, File, HostConfig, Mac, MacError, Output, Owner, Password, Payload, Privilege,
    Report, StepReport, UserName,
};

/// Tens of megabytes over a slow uplink.
const RECEIVE_TIMEOUT: Duration = Duration::from_mins(10);

/// One step of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Root without a password, for everything after it.
    Sudo,
    /// A graphical session that survives a reboot: VMs start in no other.
    AutoLogin,
    /// Nothing that ends that session by itself.
    Power,
    /// The host's names.
    Hostname,
    /// Tart.
    Tart,
    /// What VMs may not reach.
    Firewall,
    /// The agent's way into the cluster.
    Kubeconfig,
    /// The agent's binary.
    AgentBinary,
    /// The agent's launchd job, running.
    AgentJob,
    /// The tailnet, for a fleet that has one.
    Tailscale,
    /// Figures of the host, for a fleet that wants them.
    NodeExporter,
    /// A GitHub Actions runner, for a host that builds images.
    GithubRunner,
}

impl Step {
    /// The steps that every host takes, in their order. Each creates what it needs; only `Sudo`
    /// must come first. Those that are asked for come after them ([`HostConfig::steps`]).
    pub const ALL: [Self; 9] = [
        Self::Sudo,
        Self::AutoLogin,
        Self::Power,
        Self::Hostname,
        Self::Tart,
        Self::Firewall,
        Self::Kubeconfig,
        Self::AgentBinary,
        Self::AgentJob,
    ];

    /// Its name, for people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Sudo => "passwordless sudo",
            Self::AutoLogin => "auto-login",
            Self::Power => "no sleep",
            Self::Hostname => "host name",
            Self::Tart => "Tart",
            Self::Firewall => "egress firewall",
            Self::Kubeconfig => "kubeconfig",
            Self::AgentBinary => "agent binary",
            Self::AgentJob => "agent job",
            Self::Tailscale => "Tailscale",
            Self::NodeExporter => "node exporter",
            Self::GithubRunner => "GitHub runner",
        }
    }

    /// Whether a host is a node without it: such a step runs after the agent, and fails alone.
    #[must_use]
    pub fn is_optional(self) -> bool {
        match self {
            Self::Tailscale | Self::NodeExporter | Self::GithubRunner => true,
            Self::Sudo
            | Self::AutoLogin
            | Self::Power
            | Self::Hostname
            | Self::Tart
            | Self::Firewall
            | Self::Kubeconfig
            | Self::AgentBinary
            | Self::AgentJob => false,
        }
    }

    /// How long it may take in all. Those that carry megabytes get the time of a slow uplink.
    #[must_use]
    pub fn timeout(self) -> Duration {
        Duration::from_secs(match self {
            Self::Sudo | Self::Power | Self::Hostname | Self::Firewall | Self::Kubeconfig => 120,
            // Three kicks and a session, and the same once more for the old password.
            Self::AutoLogin => 300,
            Self::AgentJob => 240,
            Self::Tart
            | Self::AgentBinary
            | Self::Tailscale
            | Self::NodeExporter
            | Self::GithubRunner => 900,
        })
    }
}

/// A step that needs nothing but the account: what a person can do to a host by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccountStep {
    Sudo,
    AutoLogin,
}

impl AccountStep {
    pub(crate) const ALL: [Self; 2] = [Self::Sudo, Self::AutoLogin];

    pub(crate) fn step(self) -> Step {
        match self {
            Self::Sudo => Step::Sudo,
            Self::AutoLogin => Step::AutoLogin,
        }
    }

    pub(crate) async fn check(self, account: &Account<'_>) -> Result<State, Cause> {
        match self {
            Self::Sudo => sudo::check(account).await,
            Self::AutoLogin => auto_login::check(account).await,
        }
    }

    pub(crate) async fn apply(self, account: &Account<'_>) -> Result<Applied, Cause> {
        match self {
            Self::Sudo => sudo::apply(account).await,
            Self::AutoLogin => auto_login::apply(account).await,
        }
    }
}

impl Step {
    pub(crate) async fn check(self, host: &Host<'_>) -> Result<State, Cause> {
        match self {
            Self::Sudo => AccountStep::Sudo.check(&host.account).await,
            Self::AutoLogin => AccountStep::AutoLogin.check(&host.account).await,
            Self::Power => power::check(host).await,
            Self::Hostname => hostname::check(host).await,
            Self::Tart => tart::check(host).await,
            Self::Firewall => firewall::check(host).await,
            Self::Kubeconfig => kubeconfig::check(host).await,
            Self::AgentBinary => agent_binary::check(host).await,
            Self::AgentJob => agent_job::check(host).await,
            Self::Tailscale => tailscale::check(host).await,
            Self::NodeExporter => node_exporter::check(host).await,
            Self::GithubRunner => github_runner::check(host).await,
        }
    }

    pub(crate) async fn apply(self, host: &Host<'_>) -> Result<Applied, Cause> {
        match self {
            Self::Sudo => AccountStep::Sudo.apply(&host.account).await,
            Self::AutoLogin => AccountStep::AutoLogin.apply(&host.account).await,
            Self::Power => power::apply(host).await,
            Self::Hostname => hostname::apply(host).await,
            Self::Tart => tart::apply(host).await,
            Self::Firewall => firewall::apply(host).await,
            Self::Kubeconfig => kubeconfig::apply(host).await,
            Self::AgentBinary => agent_binary::apply(host).await,
            Self::AgentJob => agent_job::apply(host).await,
            Self::Tailscale => tailscale::apply(host).await,
            Self::NodeExporter => node_exporter::apply(host).await,
            Self::GithubRunner => github_runner::apply(host).await,
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// All texts that every host gets and that no configuration changes.
pub(crate) fn constants() -> Vec<(&'static str, String)> {
    vec![
        ("power settings", power::settings_text()),
        ("tart wrapper", tart::WRAPPER.to_owned()),
        ("agent folders", scripts::AGENT_FOLDERS.text.to_owned()),
        ("node exporter wrapper", node_exporter::WRAPPER.to_owned()),
    ]
}

/// What a check saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// All as desired: nothing to do.
    Converged,
    /// The same, but something counts from the next boot on; what.
    AwaitsBoot(&'static str),
    /// What is not as desired, for people.
    Differs(&'static str),
}

/// How far an apply came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// To its end; the check says whether it worked.
    Done,
    /// Not now, and why: it would end running VMs.
    Postponed(&'static str),
}

/// Why a step failed. Carries no secret; what a host printed is scrubbed of ours.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The host did not answer as asked.
    #[error("the host did not answer")]
    Mac(#[from] MacError),
    /// macOS refused the password, or it was tried as often as is safe: macOS locks accounts.
    #[error("macOS refused the password: give a new one, or reboot the host and try again")]
    PasswordRefused,
    /// macOS threw the auto-login password away at login: it is not the user's.
    #[error("macOS refused the auto-login password and sealed it: give the right one")]
    AutoLoginSealed,
    /// A command ended with a status that means failure.
    #[error("{doing} ended with status {status}: {stderr}")]
    Failed {
        /// What was run.
        doing: String,
        /// Its exit status.
        status: i32,
        /// What it complained about; shortened in what a bootstrap returns.
        stderr: String,
    },
    /// All was applied, and still is not as desired.
    #[error("applied, but {0}")]
    NotVerified(String),
    /// The step as a whole took too long.
    #[error("did not end within {} s", .0.as_secs())]
    TimedOut(Duration),
}

/// A step that failed.
#[derive(Debug, thiserror::Error)]
#[error("step {step} failed")]
pub struct StepError {
    /// Which one.
    pub step: Step,
    /// Why.
    #[source]
    pub cause: Cause,
    /// How long it took to fail.
    pub took: Duration,
    /// How the steps before it ended.
    pub earlier: Vec<StepReport>,
}

/// What a failed bootstrap is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Time: the same again, with back-off.
    TryAgain,
    /// Another password, or a reboot: the same again would lock the account.
    NewPassword,
}

impl StepError {
    /// What has to happen before another attempt makes sense.
    #[must_use]
    pub fn next(&self) -> Next {
        match &self.cause {
            Cause::PasswordRefused | Cause::AutoLoginSealed => Next::NewPassword,
            Cause::Mac(_) | Cause::Failed { .. } | Cause::NotVerified(_) | Cause::TimedOut(_) => {
                Next::TryAgain
            }
        }
    }

    /// How all steps ended so far, this one too.
    #[must_use]
    pub fn steps(&self) -> Report {
        let done = Done::Failed(explained(&self.cause));
        let failed = StepReport { step: self.step, done, awaits_boot: None, took: self.took };
        Report { steps: self.earlier.iter().cloned().chain([failed]).collect() }
    }

    /// The whole chain on one line, for a status or an Event.
    #[must_use]
    pub fn explain(&self) -> String {
        explained(self)
    }
}

/// An error and all its causes on one line.
pub(crate) fn explained(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text = format!("{text}: {error}");
        source = error.source();
    }
    text
}

/// What a step works with.
pub(crate) struct Host<'a> {
    pub(crate) account: Account<'a>,
    pub(crate) desired: &'a HostConfig,
}

impl<'a> Deref for Host<'a> {
    type Target = Account<'a>;

    fn deref(&self) -> &Account<'a> {
        &self.account
    }
}

/// A Mac, and who we are there.
pub(crate) struct Account<'a> {
    pub(crate) mac: &'a dyn Mac,
    pub(crate) user: &'a UserName,
    pub(crate) password: &'a Password,
}

impl Account<'_> {
    /// Runs a command that has to succeed.
    pub(crate) async fn run(&self, command: Command) -> Result<Output, Cause> {
        let output = self.mac.run(&command).await?;
        if output.success() { Ok(output) } else { Err(failed(&command, &output)) }
    }

    /// Runs a command whose status is an answer.
    async fn ask(&self, command: Command) -> Result<Output, Cause> {
        Ok(self.mac.run(&command).await?)
    }

    async fn read(&self, path: &str) -> Result<Option<Bytes>, Cause> {
        Ok(self.mac.read(path).await?)
    }

    async fn write(
        &self,
        path: &str,
        content: impl Into<crate::Hidden>,
        owner: Owner,
        mode: u32,
    ) -> Result<(), Cause> {
        let file = File { path: path.to_owned(), content: content.into(), owner, mode };
        Ok(self.mac.write(&file).await?)
    }

    /// Puts a payload in place as a file of root's, once all of it has arrived.
    async fn receive(&self, path: &str, payload: &Payload, mode: u32) -> Result<(), Cause> {
        let mode = format!("{mode:o}");
        let arguments = [path, payload.sha256(), &mode];
        let receive = Command::script(scripts::RECEIVE, &arguments, Privilege::Root);
        self.run(receive.payload(payload).timeout(RECEIVE_TIMEOUT)).await?;
        Ok(())
    }

    /// Whether a file or folder has this owner and mode.
    async fn has_attributes(&self, path: &str, owner: &Owner, mode: u32) -> Result<bool, Cause> {
        let output = self.ask(Command::root(&["stat", "-f", "%Su:%Sg %Lp", path])).await?;
        Ok(output.success() && output.text().trim() == format!("{owner} {mode:o}"))
    }

    /// Whether a file has this content, owner and mode.
    async fn is_file(
        &self,
        path: &str,
        content: &[u8],
        owner: &Owner,
        mode: u32,
    ) -> Result<bool, Cause> {
        let same = self.read(path).await?.is_some_and(|found| found == content);
        Ok(same && self.has_attributes(path, owner, mode).await?)
    }

    /// Whether a VM runs. The pattern does not match itself on sudo's own command line.
    async fn runs_vms(&self) -> Result<bool, Cause> {
        self.finds(Command::root(&["pgrep", "-f", scripts::VM_PATTERN])).await
    }

    /// What a `pgrep` found out. Trouble is not *none*: only a look that says so without a
    /// complaint is, for sudo's own refusal has the same status.
    async fn finds(&self, pgrep: Command) -> Result<bool, Cause> {
        let output = self.ask(pgrep.clone()).await?;
        match output.status {
            0 => Ok(true),
            1 if output.stderr.is_empty() => Ok(false),
            _ => Err(failed(&pgrep, &output)),
        }
    }
}

fn failed(command: &Command, output: &Output) -> Cause {
    let (status, stderr) = (output.status, output.complaint());
    Cause::Failed { doing: command.describe(), status, stderr }
}
