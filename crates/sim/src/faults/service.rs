//! The gate to Scaleway and to GitHub: a service around the simulated one.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use applecart_scaleway::{Transport, TransportError};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;

use super::fault::{Class, Edge, Fault, Terms};
use super::trace::Process;
use super::{Faults, SLOW, STALE};

/// What the gate keeps of earlier calls.
#[derive(Default)]
pub(super) struct Memory {
    /// Requests that are still on their way.
    late: Vec<(Instant, usize, Transport, Request<Bytes>)>,
    /// The last answer to each read, by all of its address: two zones have servers of one id.
    answers: BTreeMap<String, (Instant, Response<Bytes>)>,
}

impl Memory {
    /// Keeps an answer, and no older one that no stale read would give again: a demo has no end.
    fn keep(&mut self, address: String, answer: Response<Bytes>) {
        self.answers.retain(|_, (at, _)| at.elapsed() < STALE);
        self.answers.insert(address, (Instant::now(), answer));
    }

    /// What a stale read of this address is told, if anybody read it within the last minute.
    fn recall(&self, address: &str) -> Option<Response<Bytes>> {
        let (at, answer) = self.answers.get(address)?;
        (at.elapsed() < STALE).then(|| answer.clone())
    }
}

type Answered = Result<Response<Bytes>, TransportError>;

impl Faults {
    /// `inner`, which is Scaleway or GitHub, behind this gate, as `process` calls it.
    #[must_use]
    pub fn gated(self: &Arc<Self>, edge: Edge, process: &Process, inner: Transport) -> Transport {
        let (faults, process) = (self.clone(), process.clone());
        Transport::new(tower::service_fn(move |request| {
            let (faults, process, inner) = (faults.clone(), process.clone(), inner.clone());
            async move { faults.call(edge, process, inner, request).await }
        }))
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.services.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn call(
        &self,
        edge: Edge,
        process: Process,
        inner: Transport,
        request: Request<Bytes>,
    ) -> Answered {
        self.arrive().await;
        let read = request.method() == Method::GET;
        let class = if read { Class::Read } else { Class::Effect };
        let told = describe(&request);
        self.note(class, &process, request.body(), || told.clone());
        let address = request.uri().to_string();
        let earlier = if read { self.memory().recall(&address) } else { None };
        let terms = if read && earlier.is_none() { Terms::Fresh } else { Terms::Plain };
        let Some(entry) = self.enter(process, edge, class, terms, || told) else {
            return inner.oneshot(request).await;
        };
        let number = entry.number;
        if let (Some(Fault::Stale), Some(answer)) = (entry.fault, earlier) {
            self.answer(number, answer.status().as_str());
            return Ok(answer);
        }
        match entry.fault {
            Some(Fault::CrashBefore | Fault::TimeOut) => std::future::pending().await,
            Some(Fault::CrashAfter) => {
                let _ = self.forward(&inner, request, number).await;
                std::future::pending().await
            }
            Some(Fault::LostAnswer) => {
                let _ = self.forward(&inner, request, number).await;
                Err(TransportError::Lost("lost on the way back".into()))
            }
            Some(Fault::Error) => Ok(self.refuse(number, StatusCode::BAD_GATEWAY)),
            Some(Fault::Denied) => Ok(self.refuse(number, StatusCode::FORBIDDEN)),
            Some(Fault::Late) => {
                self.memory().late.push((Instant::now() + self.late, number, inner, request));
                Err(TransportError::Lost("lost on the way".into()))
            }
            fault => {
                if fault == Some(Fault::Slow) {
                    tokio::time::sleep(SLOW).await;
                }
                let answer = self.forward(&inner, request, number).await?;
                if read {
                    self.memory().keep(address, answer.clone());
                }
                Ok(answer)
            }
        }
    }

    /// Waits until whatever is late by now has arrived, though nobody calls any more.
    pub async fn settle(&self) {
        tokio::time::sleep(self.late).await;
        self.arrive().await;
    }

    /// Performs what was sent earlier and arrives now.
    async fn arrive(&self) {
        let now = Instant::now();
        let due: Vec<_> = self.memory().late.extract_if(.., |(due, ..)| *due <= now).collect();
        for (_, number, inner, request) in due {
            let _ = self.forward(&inner, request, number).await;
        }
    }

    async fn forward(&self, inner: &Transport, request: Request<Bytes>, number: usize) -> Answered {
        let answer = inner.clone().oneshot(request).await;
        match &answer {
            Ok(answer) => self.answer(number, answer.status().as_str()),
            Err(error) => self.answer(number, &error.to_string()),
        }
        answer
    }

    fn refuse(&self, number: usize, status: StatusCode) -> Response<Bytes> {
        self.answer(number, status.as_str());
        let mut answer = Response::new(Bytes::from(format!("<html>{status}</html>")));
        *answer.status_mut() = status;
        answer
    }
}

/// What a request asks, in the words of the trace.
fn describe(request: &Request<Bytes>) -> String {
    let path = request.uri().path();
    let tail = path.split("/zones/").nth(1).and_then(|rest| rest.split_once('/'));
    let tail = tail.map_or(path, |(_, tail)| tail);
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    let body: Value = serde_json::from_slice(request.body()).unwrap_or_default();
    let name = body["name"].as_str().map(|name| format!(" to {name}")).unwrap_or_default();
    format!("{} {tail}{query}{name}", request.method())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::faults::{Ahead, Plan};

    /// What a read through a gate with this plan is told, of a service that tells how often it was
    /// called; and the faults that happened by then.
    async fn told(faults: &Arc<Faults>, inner: &Transport, address: &str) -> (String, usize) {
        let gated = faults.gated(Edge::Scaleway, &Process::Provider, inner.clone());
        let request = Request::get(address).body(Bytes::new()).unwrap();
        let body = gated.oneshot(request).await.unwrap().into_body();
        (String::from_utf8(body.to_vec()).unwrap(), faults.counts().0)
    }

    fn counting() -> Transport {
        let calls = Arc::new(AtomicUsize::new(0));
        Transport::new(tower::service_fn(move |_| {
            let call = calls.fetch_add(1, Ordering::Relaxed);
            let answer = Response::new(Bytes::from(format!("call {call}")));
            std::future::ready(Ok::<_, TransportError>(answer))
        }))
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_stale_only_where_somebody_read_the_same_within_a_minute() {
        const ONE: &str = "http://scaleway.invalid/apple-silicon/v1alpha1/zones/one/servers";
        const TWO: &str = "http://scaleway.invalid/apple-silicon/v1alpha1/zones/two/servers";
        let stale = |ahead: &Ahead| (ahead.number != 1).then_some(Fault::Stale);
        let faults = Faults::new(Plan::Chosen(Box::new(stale)));
        let inner = counting();
        let fresh = |call: &str| (call.to_owned(), 0);
        assert_eq!(told(&faults, &inner, ONE).await, fresh("call 0"), "nobody asked before");
        assert_eq!(told(&faults, &inner, ONE).await, fresh("call 1"), "as planned");
        assert_eq!(told(&faults, &inner, TWO).await, fresh("call 2"), "another zone");
        tokio::time::advance(STALE / 2).await;
        assert_eq!(told(&faults, &inner, ONE).await, ("call 1".to_owned(), 1));
        tokio::time::advance(STALE / 2).await;
        assert_eq!(told(&faults, &inner, ONE).await, ("call 3".to_owned(), 1), "too long ago");
        let possible = faults.look(|steps| {
            steps.iter().map(|step| step.possible().contains(&Fault::Stale)).collect::<Vec<_>>()
        });
        assert_eq!(possible, [false, true, false, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_kept_for_as_long_as_a_stale_read_may_give_it() {
        let mut memory = Memory::default();
        memory.keep("GET servers/a".to_owned(), Response::default());
        tokio::time::advance(STALE / 2).await;
        memory.keep("GET servers/b".to_owned(), Response::default());
        assert_eq!(memory.answers.len(), 2);
        tokio::time::advance(STALE / 2).await;
        memory.keep("GET servers/c".to_owned(), Response::default());
        assert!(memory.answers.keys().eq(["GET servers/b", "GET servers/c"]));
    }
}
