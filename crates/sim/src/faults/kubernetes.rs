//! The gate to the API server.

use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::Value;

use super::fault::{Class, Edge, Fault, Terms};
use super::trace::Process;
use super::{Faults, HELD, SERVER_TIMEOUT, SLOW};
use crate::kubernetes::{Call, Delivery, Gate, Refusal, Verb, Verdict};

impl Gate for Faults {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        let judged = self.judge(call);
        let verdict = match judged {
            Some(Fault::TimeOut) => return times_out().boxed(),
            // A server that is away does nothing of what it is asked, whatever else goes wrong.
            Some(Fault::CrashBefore | Fault::CrashAfter) if self.is_away(call) => {
                Verdict::HangBefore
            }
            _ if self.is_away(call) => Verdict::FailBefore(Refusal::away()),
            None => Verdict::Pass,
            Some(Fault::Slow) => return self.slowly(call).boxed(),
            Some(Fault::Late) => Verdict::Late(self.late),
            Some(Fault::Stale) => {
                Verdict::Stale(self.stale.saturating_sub(Duration::from_nanos(1)))
            }
            Some(fault) => verdict(call, fault),
        };
        std::future::ready(verdict).boxed()
    }

    fn is_away(&self, call: &Call) -> bool {
        Process::of_user(&call.who.user).is_some_and(|process| self.is_gone_for(&process))
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
        if self.is_gone_for(&process) {
            return Delivery::Cut;
        }
        let entry = self.enter(process, Edge::Kubernetes, Class::Event, Terms::Plain, || {
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
    async fn slowly(&self, call: &Call) -> Verdict {
        tokio::time::sleep(SLOW).await;
        if self.is_away(call) { Verdict::FailBefore(Refusal::away()) } else { Verdict::Pass }
    }

    /// Numbers the call, if its caller is under test; what goes wrong with it.
    fn judge(&self, call: &Call) -> Option<Fault> {
        let process = Process::of_user(&call.who.user)?;
        let class = class(&process, call);
        // Where secrets belong, nobody looks for them.
        if call.resource != "secrets" {
            self.note(class, &process, &call.body, || call.to_string());
        }
        // Events are news, not state: losing one is no fault worth a run. In a silence they are
        // writes like any other: nobody repeats old news.
        if call.resource.starts_with("events") && !self.hears_news() {
            return self.state().dying.contains(&process).then_some(Fault::CrashBefore);
        }
        let who = process.clone();
        let entry = self.enter(who, Edge::Kubernetes, class, terms(call), || call.to_string())?;
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

/// A watch shows what it can; what it missed, it tells when it comes.
fn terms(call: &Call) -> Terms {
    match call.verb {
        Verb::Watch => Terms::Fresh,
        _ if call.conditional => Terms::Conditional,
        _ => Terms::Plain,
    }
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
        Fault::CrashDuring
        | Fault::Late
        | Fault::Stale
        | Fault::TimeOut
        | Fault::Slow
        | Fault::Reboot
        | Fault::Fails
        | Fault::Drop
        | Fault::Twice
        | Fault::Coalesce
        | Fault::Cut
        | Fault::Gone => Verdict::Pass,
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use crate::faults::{Plan, possible};
    use crate::kubernetes::Identity;

    use super::*;

    const HOUR: Duration = Duration::from_hours(1);

    fn call(who: Identity, verb: Verb, resource: &str, namespace: &str) -> Call {
        Call {
            number: 1,
            who,
            verb,
            resource: resource.to_owned(),
            namespace: Some(namespace.to_owned()),
            name: Some("a".to_owned()),
            subresource: None,
            conditional: false,
            body: Bytes::from_static(b"{}"),
        }
    }

    fn calm() -> std::sync::Arc<Faults> {
        Faults::new(Plan::Chosen(Box::new(|_| None)))
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_breaks_a_silence_and_is_no_step_before_it() {
        // LH25
        let faults = calm();
        let provider = Identity::service_account("default", "provider");
        let event = call(provider, Verb::Create, "events", "default");
        faults.pass(&event).await;
        assert_eq!(faults.next_number(), 0);
        faults.be_quiet();
        assert_eq!(faults.silent_since(0, HOUR), Ok(()));
        faults.pass(&event).await;
        let told = faults.silent_since(0, HOUR).unwrap_err();
        assert!(told.contains("provider still writes") && told.contains("events"), "{told}");
        assert_eq!(faults.silent_since(1, HOUR), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn heartbeats_break_a_silence_when_they_come_more_often_than_they_are_due() {
        let faults = calm();
        faults.be_quiet();
        let beat = call(Identity::node("a"), Verb::Update, "leases", "kube-node-lease");
        for _ in 0..61 * 16 {
            faults.pass(&beat).await;
        }
        assert_eq!(faults.silent_since(0, HOUR), Ok(()));
        faults.pass(&beat).await;
        let told = faults.silent_since(0, HOUR).unwrap_err();
        assert!(told.contains("agent a sent 977 heartbeats in 60 minutes"), "{told}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_watch_is_never_stale_and_no_such_fault_is_counted() {
        let faults = Faults::new(Plan::Chosen(Box::new(|_| Some(Fault::Stale))));
        let provider = || Identity::service_account("default", "provider");
        let watch = call(provider(), Verb::Watch, "nodes", "default");
        assert_eq!(faults.pass(&watch).await, Verdict::Pass);
        let told = faults.look(|steps| (steps[0].fault, steps[0].possible()));
        assert_eq!(told.0, None);
        assert!(!told.1.contains(&Fault::Stale));
        assert_eq!(faults.counts().0, 0);
        let list = call(provider(), Verb::List, "nodes", "default");
        assert!(matches!(faults.pass(&list).await, Verdict::Stale(_)));
        assert_eq!(faults.counts().0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_gone_answers_none_of_those_under_test_until_it_is_back() {
        let faults = calm();
        let get = |who: Identity| call(who, Verb::Get, "nodes", "default");
        let refused = async |who: Identity| {
            let verdict = faults.pass(&get(who)).await;
            matches!(verdict, Verdict::FailBefore(refusal) if refusal.code == 503)
        };
        let provider = || Identity::service_account("default", "provider");
        faults.lose_api_server(HOUR);
        assert!(refused(provider()).await && refused(Identity::node("a")).await);
        assert!(!refused(Identity::admin()).await);
        let event = serde_json::json!({});
        assert_eq!(faults.deliver(&get(provider()), "ADDED", &event), Delivery::Cut);
        tokio::time::advance(HOUR).await;
        assert!(!refused(provider()).await);
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_cut_off_reaches_it_as_little_and_all_others_do() {
        let faults = calm();
        let get = |who: Identity| call(who, Verb::Get, "nodes", "default");
        let agent = |name: &str| {
            Identity::service_account("default", &applecart_api::keys::owned::agent(name))
        };
        faults.cut_off(Process::Agent("a".to_owned()), HOUR);
        let event = serde_json::json!({});
        for (name, away) in [("a", true), ("b", false)] {
            assert_eq!(faults.is_away(&get(agent(name))), away, "{name}");
            let cut = faults.deliver(&get(agent(name)), "ADDED", &event) == Delivery::Cut;
            assert_eq!(cut, away, "{name}");
        }
        tokio::time::advance(HOUR).await;
        assert!(!faults.is_away(&get(agent("a"))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_api_server_that_is_gone_performs_nothing_whatever_fault_a_call_meets() {
        let provider = || Identity::service_account("default", "provider");
        let write = call(provider(), Verb::Update, "nodes", "default");
        let unperformed = |verdict| matches!(verdict, Verdict::FailBefore(_) | Verdict::HangBefore);
        for fault in possible(Edge::Kubernetes, Class::Effect, Terms::Plain) {
            let faults = Faults::new(Plan::Chosen(Box::new(move |_| Some(*fault))));
            faults.lose_api_server(HOUR);
            assert!(unperformed(faults.pass(&write).await), "{fault}");
        }
        let read = call(provider(), Verb::Get, "nodes", "default");
        for fault in possible(Edge::Kubernetes, Class::Read, Terms::Plain) {
            let faults = Faults::new(Plan::Chosen(Box::new(move |_| Some(*fault))));
            faults.lose_api_server(HOUR);
            assert!(unperformed(faults.pass(&read).await), "{fault}");
        }
        // One that was on its way when the server went.
        let faults = Faults::new(Plan::Chosen(Box::new(|_| Some(Fault::Slow))));
        let lose = async { faults.lose_api_server(HOUR) };
        let (verdict, ()) = tokio::join!(faults.pass(&write), lose);
        assert!(unperformed(verdict));
    }
}
