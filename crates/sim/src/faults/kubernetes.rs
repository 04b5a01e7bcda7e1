//! The gate to the API server.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::fault::{Class, Edge, Fault};
use super::trace::Process;
use super::{Faults, HELD, LATE, SERVER_TIMEOUT, SLOW, STALE};
use crate::kubernetes::{Call, Delivery, Gate, Refusal, Verb, Verdict};

impl Gate for Faults {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        let verdict = match self.judge(call) {
            None => Verdict::Pass,
            Some(Fault::TimeOut) => return times_out().boxed(),
            Some(Fault::Slow) => return slowly().boxed(),
            Some(fault) => verdict(call, fault),
        };
        std::future::ready(verdict).boxed()
    }

    fn answered(&self, call: &Call, code: u16) {
        let Some(process) = Process::of_user(&call.who.user) else { return };
        let number = self.state().open.remove(&(process, call.number));
        if let Some(number) = number {
            Faults::answer(self, number, &code.to_string());
        }
    }

    fn deliver(&self, call: &Call, event: &str, object: &Value) -> Delivery {
        let Some(process) = Process::of_user(&call.who.user) else { return Delivery::Pass };
        let entry = self.enter(process, Edge::Kubernetes, Class::Event, false, || {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let version = object["metadata"]["resourceVersion"].as_str().unwrap_or_default();
            format!("{event} {} {name} at {version}", call.resource)
        });
        match entry.and_then(|entry| entry.fault) {
            Some(Fault::Drop) => Delivery::Drop,
            Some(Fault::Twice) => Delivery::Twice,
            Some(Fault::Coalesce) => Delivery::Coalesce(HELD),
            Some(Fault::Cut) => Delivery::Cut,
            Some(Fault::Gone) => Delivery::Gone,
            _ => Delivery::Pass,
        }
    }
}

impl Faults {
    /// Numbers the call, if its caller is under test; what goes wrong with it.
    fn judge(&self, call: &Call) -> Option<Fault> {
        let process = Process::of_user(&call.who.user)?;
        // Events are news, not state: losing one is no fault worth a run.
        if call.resource.starts_with("events") {
            return None;
        }
        let class = class(&process, call);
        let who = process.clone();
        let entry =
            self.enter(who, Edge::Kubernetes, class, call.conditional, || call.to_string())?;
        self.state().open.insert((process, call.number), entry.number);
        entry.fault
    }
}

fn class(process: &Process, call: &Call) -> Class {
    if !call.verb.mutates() {
        return Class::Read;
    }
    let lease = call.namespace.as_deref() == Some("kube-node-lease");
    let node = call.resource == "nodes" && call.subresource.as_deref() == Some("status");
    let beats = matches!(process, Process::Agent(_)) && call.verb != Verb::Create;
    if beats && (lease || node) { Class::Heartbeat } else { Class::Effect }
}

async fn slowly() -> Verdict {
    tokio::time::sleep(SLOW).await;
    Verdict::Pass
}

/// No server keeps a request for ever: it says so when its own time is up.
async fn times_out() -> Verdict {
    tokio::time::sleep(SERVER_TIMEOUT).await;
    Verdict::FailBefore(Refusal::new(504, "Timeout", "the simulated API server takes too long"))
}

fn verdict(call: &Call, fault: Fault) -> Verdict {
    let refuse = |code, reason, why: &str| Verdict::FailBefore(Refusal::new(code, reason, why));
    match fault {
        Fault::CrashBefore => Verdict::HangBefore,
        Fault::CrashAfter | Fault::LostAnswer => Verdict::HangAfter,
        Fault::Error => refuse(500, "InternalError", "the simulated API server fails"),
        Fault::Denied => refuse(403, "Forbidden", "not today"),
        Fault::Conflict => {
            refuse(409, "Conflict", &format!("the object of `{call}` has been modified"))
        }
        Fault::Late => Verdict::Late(LATE),
        // A watch shows what it can; what it missed, it tells when it comes.
        Fault::Stale if call.verb == Verb::Watch => Verdict::Pass,
        Fault::Stale => Verdict::Stale(STALE.saturating_sub(Duration::from_nanos(1))),
        Fault::TimeOut
        | Fault::Slow
        | Fault::Reboot
        | Fault::Drop
        | Fault::Twice
        | Fault::Coalesce
        | Fault::Cut
        | Fault::Gone => Verdict::Pass,
    }
}
