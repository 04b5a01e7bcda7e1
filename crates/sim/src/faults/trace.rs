//! What happened: every call of every process, with its answer. No I/O.

use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::fault::{Class, Edge, Fault, Terms, possible};

/// One of the processes that are under test.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Process {
    /// The Cluster API provider.
    Provider,
    /// Another one of the same cluster, that believes to lead as well.
    SecondProvider,
    /// The runner-pool controller.
    RunnerPools,
    /// The one of a second cluster beside the first.
    SecondRunnerPools,
    /// The agent of the Node of this name.
    Agent(String),
}

/// The user name that the provider has in a world.
pub const PROVIDER: &str = "provider";
/// The user name that another provider of the same world has.
pub const SECOND_PROVIDER: &str = "second-provider";
/// The user name that the runner-pool controller has in a world.
pub const RUNNER_POOLS: &str = "runner-pools";
/// The user name that the runner-pool controller of a second cluster has.
pub const SECOND_RUNNER_POOLS: &str = "second-runner-pools";

impl Process {
    /// Whether it is one of the providers.
    #[must_use]
    pub fn is_provider(&self) -> bool {
        matches!(self, Self::Provider | Self::SecondProvider)
    }

    /// Whether it is one of the runner-pool controllers.
    #[must_use]
    pub fn is_runner_pools(&self) -> bool {
        matches!(self, Self::RunnerPools | Self::SecondRunnerPools)
    }

    /// Whose user name this is; `None` for stand-ins and people, who are not under test.
    #[must_use]
    pub fn of_user(user: &str) -> Option<Self> {
        if let Some(node) = user.strip_prefix("system:node:") {
            return Some(Self::Agent(node.to_owned()));
        }
        let account = user.strip_prefix("system:serviceaccount:")?.split_once(':')?.1;
        match account {
            PROVIDER => Some(Self::Provider),
            SECOND_PROVIDER => Some(Self::SecondProvider),
            RUNNER_POOLS => Some(Self::RunnerPools),
            SECOND_RUNNER_POOLS => Some(Self::SecondRunnerPools),
            account => account.strip_prefix("tart-kubelet-").map(|node| Self::Agent(node.into())),
        }
    }
}

impl fmt::Display for Process {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider => f.pad("provider"),
            Self::SecondProvider => f.pad("second provider"),
            Self::RunnerPools => f.pad("runner pools"),
            Self::SecondRunnerPools => f.pad("second runner pools"),
            Self::Agent(node) => f.pad(&format!("agent {node}")),
        }
    }
}

/// One call, or one event of a watch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    /// Its number, from 0.
    pub number: usize,
    /// When, since the beginning.
    pub at: Duration,
    /// Whose.
    pub process: Process,
    /// To whom.
    pub edge: Edge,
    /// Of which kind.
    pub class: Class,
    /// What else there is to know of it.
    pub terms: Terms,
    /// What was asked.
    pub call: String,
    /// What was answered; empty while nobody has.
    pub answer: String,
    /// What went wrong with it.
    pub fault: Option<Fault>,
}

impl Step {
    /// What could go wrong with it.
    #[must_use]
    pub fn possible(&self) -> &'static [Fault] {
        possible(self.edge, self.class, self.terms)
    }

    /// Whether it is a write that names what it is meant for.
    #[must_use]
    pub fn is_conditional(&self) -> bool {
        self.terms == Terms::Conditional
    }

    /// Whether it changed something, as far as its answer tells.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        self.answer == "ok" || self.answer.starts_with('2')
    }
}

/// The steps as a table for people: number, time, process, call, answer.
#[must_use]
pub fn table<'a>(steps: impl IntoIterator<Item = &'a Step>) -> String {
    let mut text = String::new();
    for step in steps {
        let Step { number, at, process, edge, call, answer, fault, .. } = step;
        let fault = fault.map(|fault| format!("  ← {fault}")).unwrap_or_default();
        let seconds = at.as_secs_f64();
        let call = one_line(call);
        let line = format!("{number:5} {seconds:9.1} s  {process:<24} {edge}: {call}");
        let _ = writeln!(text, "{line:<130} {answer}{fault}");
    }
    text
}

/// A call on one line of a table: of a script, its beginning.
fn one_line(call: &str) -> String {
    const LONGEST: usize = 160;
    let words: Vec<&str> = call.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{} …", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_takes_one_line() {
        assert_eq!(one_line("a\n  b"), "a b");
        let long = one_line(&"é ".repeat(200));
        assert!(long.ends_with(" …") && long.chars().count() == 162, "{long}");
    }

    #[test]
    fn processes_are_known_by_their_user_names() {
        for (user, process) in [
            ("system:serviceaccount:default:provider", Some(Process::Provider)),
            ("system:serviceaccount:default:second-provider", Some(Process::SecondProvider)),
            ("system:serviceaccount:default:runner-pools", Some(Process::RunnerPools)),
            ("system:serviceaccount:default:second-runner-pools", Some(Process::SecondRunnerPools)),
            (
                "system:serviceaccount:default:tart-kubelet-macs-a",
                Some(Process::Agent("macs-a".into())),
            ),
            ("system:node:macs-a", Some(Process::Agent("macs-a".into()))),
            ("system:serviceaccount:default:default", None),
            ("kubernetes-admin", None),
        ] {
            assert_eq!(Process::of_user(user), process, "{user}");
        }
    }
}
