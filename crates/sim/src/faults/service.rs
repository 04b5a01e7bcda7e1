//! The gate to Scaleway and to GitHub: a service around the simulated one.

use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};

use applecart_scaleway::{Transport, TransportError};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::time::Instant;
use tower::ServiceExt;

use super::fault::{Class, Edge, Fault};
use super::trace::Process;
use super::{Faults, SLOW, STALE};

/// What the gate keeps of earlier calls.
#[derive(Default)]
pub(super) struct Memory {
    /// Requests that are still on their way.
    late: Vec<(Instant, usize, Transport, Request<Bytes>)>,
    /// The last answer to each read.
    answers: BTreeMap<String, (Instant, Response<Bytes>)>,
}

impl Memory {
    /// Keeps an answer, and no older one that no stale read would give again: a demo has no end.
    fn keep(&mut self, told: String, answer: Response<Bytes>) {
        self.answers.retain(|_, (at, _)| at.elapsed() < STALE);
        self.answers.insert(told, (Instant::now(), answer));
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
        let Some(entry) = self.enter(process, edge, class, false, || told.clone()) else {
            return inner.oneshot(request).await;
        };
        let number = entry.number;
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
            Some(Fault::Stale) => {
                let earlier = self.memory().answers.get(&told).cloned();
                match earlier.filter(|(at, _)| at.elapsed() < STALE) {
                    Some((_, answer)) => Ok(answer),
                    None => self.forward(&inner, request, number).await,
                }
            }
            fault => {
                if fault == Some(Fault::Slow) {
                    tokio::time::sleep(SLOW).await;
                }
                let answer = self.forward(&inner, request, number).await?;
                if read {
                    self.memory().keep(told, answer.clone());
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
    use super::*;

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
