//! Egress: a Service for each Mac, by which the cluster reaches it in the tailnet. Tailscale's
//! operator makes it work; we say which Mac it is. No I/O.
//!
//! # Guarantees
//! - Only what is ours of a Service is ever compared or written: where it leads is the other
//!   operator's (P13).
//! - A Service of ours is there as long as a Machine of its name has a host, and no longer (C5). A
//!   Service that is not ours is left alone, whatever it is called.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Ports by which a Mac is reached: what its exporter and its agent listen on (P28).
pub const PORTS: [(&str, i32); 2] = [("node-exporter", 9100), ("tart-kubelet", 8080)];

/// Who keeps a Service.
const MANAGED_BY: (&str, &str) = ("app.kubernetes.io/managed-by", "capi-scaleway-applesilicon");

/// What is for all Services alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tailnet {
    /// Tailscale's group of proxies.
    pub proxy_group: String,
    /// What follows a Mac's name in the tailnet, such as `tail1234.ts.net`.
    pub suffix: String,
}

/// Everything that one decision may depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Machines that are there, and whether each has a host and is not on its way out.
    pub machines: BTreeMap<String, bool>,
    /// Services of the egress namespace, by name.
    pub services: BTreeMap<String, Service>,
}

/// A Service as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// Its ports, by name.
    pub ports: BTreeMap<String, i32>,
}

impl Service {
    /// What a Mac's Service shall say.
    #[must_use]
    pub fn of(machine: &str, tailnet: &Tailnet) -> Self {
        let owned = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let fqdn = format!("{machine}.{}", tailnet.suffix);
        Self {
            labels: owned(&[
                MANAGED_BY,
                ("app.kubernetes.io/component", "macmini-egress"),
                ("tuist.dev/macmini-egress", "true"),
                ("tuist.dev/macmini-machine", machine),
            ]),
            annotations: owned(&[
                ("tailscale.com/tailnet-fqdn", &fqdn),
                ("tailscale.com/proxy-group", &tailnet.proxy_group),
            ]),
            ports: PORTS.iter().map(|(name, port)| ((*name).to_owned(), *port)).collect(),
        }
    }

    fn is_ours(&self) -> bool {
        self.labels.get(MANAGED_BY.0).is_some_and(|by| by == MANAGED_BY.1)
    }

    /// Says all that `wanted` says; what others added does not count.
    fn says(&self, wanted: &Self) -> bool {
        let holds = |found: &BTreeMap<String, String>, wanted: &BTreeMap<String, String>| {
            wanted.iter().all(|(key, value)| found.get(key) == Some(value))
        };
        holds(&self.labels, &wanted.labels)
            && holds(&self.annotations, &wanted.annotations)
            && self.ports == wanted.ports
    }
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the Service of this Machine.
    Create(String),
    /// Make the Service of this Machine say again what it shall.
    Mend(String),
    /// Delete the Service of a Machine that is gone.
    Delete(String),
}

impl Action {
    /// What it is, as metrics say it.
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self {
            Self::Create(_) => "create-egress",
            Self::Mend(_) => "mend-egress",
            Self::Delete(_) => "delete-egress",
        }
    }

    /// Whose Service.
    #[must_use]
    pub fn machine(&self) -> &str {
        match self {
            Self::Create(name) | Self::Mend(name) | Self::Delete(name) => name,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Create(_) => "its Machine has a host",
            Self::Mend(_) => "it does not say what it shall",
            Self::Delete(_) => "its Machine is gone",
        })
    }
}

/// All that there is to do; the order is no matter.
#[must_use]
pub fn decide(seen: &Observed, tailnet: &Tailnet) -> Vec<Action> {
    let names: BTreeSet<&String> = seen.machines.keys().chain(seen.services.keys()).collect();
    names.into_iter().filter_map(|name| one(seen, tailnet, name)).collect()
}

fn one(seen: &Observed, tailnet: &Tailnet, name: &str) -> Option<Action> {
    match (seen.machines.get(name), seen.services.get(name)) {
        (Some(true), None) => Some(Action::Create(name.to_owned())),
        (Some(_), Some(service)) if service.is_ours() => {
            (!service.says(&Service::of(name, tailnet))).then(|| Action::Mend(name.to_owned()))
        }
        (None, Some(service)) if service.is_ours() => Some(Action::Delete(name.to_owned())),
        (Some(_) | None, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tailnet() -> Tailnet {
        Tailnet { proxy_group: "macmini-egress".into(), suffix: "tail1.ts.net".into() }
    }

    fn seen(machine: Option<bool>, service: Option<Service>) -> Observed {
        Observed {
            machines: machine.map(|has| ("mac-a".to_owned(), has)).into_iter().collect(),
            services: service.map(|service| ("mac-a".to_owned(), service)).into_iter().collect(),
        }
    }

    fn ours() -> Service {
        Service::of("mac-a", &tailnet())
    }

    #[test]
    fn a_service_is_there_exactly_as_long_as_its_machine() {
        let name = || "mac-a".to_owned();
        for (machine, service, wanted) in [
            (Some(true), None, Some(Action::Create(name()))),
            (Some(false), None, None),
            (Some(true), Some(ours()), None),
            (Some(false), Some(ours()), None),
            (None, Some(ours()), Some(Action::Delete(name()))),
            (None, None, None),
        ] {
            let case = seen(machine, service);
            assert_eq!(decide(&case, &tailnet()), Vec::from_iter(wanted), "{case:?}");
        }
    }

    #[test]
    fn what_others_own_of_a_service_is_not_compared_and_what_is_theirs_is_left_alone() {
        // P13
        let mut rewritten = ours();
        rewritten.annotations.insert("tailscale.com/operator".into(), "was here".into());
        rewritten.labels.insert("tailscale.com/managed".into(), "true".into());
        assert_eq!(decide(&seen(Some(true), Some(rewritten)), &tailnet()), []);
        let theirs = Service::default();
        assert_eq!(decide(&seen(Some(true), Some(theirs.clone())), &tailnet()), []);
        assert_eq!(decide(&seen(None, Some(theirs)), &tailnet()), []);
    }

    #[test]
    fn a_service_that_says_something_else_is_mended() {
        let moved = Tailnet { suffix: "tail2.ts.net".into(), ..tailnet() };
        let mut without_port = ours();
        without_port.ports.remove("node-exporter");
        for (service, tailnet) in [(ours(), moved), (without_port, tailnet())] {
            let done = decide(&seen(Some(true), Some(service)), &tailnet);
            assert_eq!(done, [Action::Mend("mac-a".into())]);
            assert_eq!((done[0].word(), done[0].machine()), ("mend-egress", "mac-a"));
        }
        for action in [Action::Create("a".into()), Action::Delete("a".into())] {
            assert!(!action.to_string().is_empty() && action.word().ends_with("-egress"));
        }
    }
}
