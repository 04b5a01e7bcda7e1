//! The way in: as a tower service inside the process, or over HTTP.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use applecart_scaleway::{Transport, TransportError};
use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use secrecy::ExposeSecret;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::Scaleway;
use super::answer::{Answer, Performed};
use super::gate::{Operation, Verdict};
use super::route::{Asked, asked};
use super::state::State;

/// More than the largest key, by far.
const REQUEST_MAX_BYTES: usize = 1 << 20;

/// How long nobody is let in after a connection could not be accepted: no busy loop.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl Scaleway {
    /// This Scaleway as the service that a client calls, without a network between.
    #[must_use]
    pub fn service(&self) -> Transport {
        let this = self.clone();
        Transport::new(tower::service_fn(move |request| this.clone().respond(request)))
    }

    /// Answers over HTTP until it is dropped, with all its connections.
    pub async fn serve(self, listener: TcpListener) -> Infallible {
        self.serve_each(accepted(listener)).await
    }

    async fn serve_each(
        self,
        mut accepted: impl Stream<Item = io::Result<TcpStream>> + Unpin,
    ) -> Infallible {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                biased;
                Some(_) = connections.join_next() => {}
                Some(accepted) = accepted.next() => match accepted {
                    Ok(stream) => {
                        connections.spawn(self.clone().connection(stream));
                    }
                    // A caller that is gone already, or too many open files: both pass.
                    Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
                },
                else => std::future::pending().await,
            }
        }
    }

    async fn connection(self, stream: TcpStream) {
        let respond = |request: Request<Incoming>| {
            let this = self.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = Limited::new(body, REQUEST_MAX_BYTES).collect().await;
                let body = body.map_err(TransportError::Lost)?.to_bytes();
                let response = this.respond(Request::from_parts(parts, body)).await?;
                // A whole body has a known length: hyper says it in `Content-Length`.
                Ok::<_, TransportError>(response.map(Full::new))
            }
        };
        let _ = stream.set_nodelay(true);
        // An error is a caller that went away, or one whose connection we were told to break.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), hyper::service::service_fn(respond))
            .await;
    }

    async fn respond(self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        if request.uri().path().split('/').nth(1) == Some("sim") {
            let (answer, number) = (self.control(&request), self.with(State::number));
            return Ok(self.finish(answer, number, "sim"));
        }
        let token = request.headers().get("x-auth-token").cloned();
        let token = token.as_ref().and_then(|token| token.to_str().ok()).unwrap_or_default();
        let (number, admitted) = self.with(|state| state.admit(token));
        let asked = match admitted.and_then(|()| asked(request, number)) {
            Ok(asked) => asked,
            Err(answer) => return Ok(self.finish(answer, number, "global")),
        };
        let zone = asked.call.zone.as_ref().map_or("global", |zone| zone.as_str()).to_owned();
        let ruled = self.with(|state| {
            *state.calls.entry(asked.call.operation.label()).or_default() += 1;
            state.judge(&asked.call)
        });
        let verdict = ruled.unwrap_or_else(|| self.gate.judge(&asked.call));
        let answer = self.execute(verdict, asked).await?;
        Ok(self.finish(answer, number, &zone))
    }

    async fn execute(&self, verdict: Verdict, asked: Asked) -> Result<Answer, TransportError> {
        let perform = |asked: &Asked| self.with(|state| state.perform(asked));
        match verdict {
            Verdict::Pass => Ok(perform(&asked)),
            Verdict::Delay(delay) => Ok(self.delayed(asked, delay).await),
            Verdict::FailBefore(answer) => Ok(answer),
            Verdict::Unreachable => Err(TransportError::NotSent("unreachable".into())),
            Verdict::LoseBefore => Err(TransportError::Lost("lost on the way".into())),
            Verdict::LoseAfter => {
                perform(&asked);
                Err(TransportError::Lost("lost on the way back".into()))
            }
            Verdict::HangBefore => std::future::pending().await,
            Verdict::HangAfter => {
                perform(&asked);
                std::future::pending().await
            }
        }
    }

    async fn delayed(&self, asked: Asked, delay: Duration) -> Answer {
        let waits = Arc::new(());
        let ticket = self.with(|state| state.delay(asked, delay, Arc::downgrade(&waits)));
        tokio::time::sleep(delay).await;
        self.with(|state| state.collect(ticket))
    }

    fn finish(&self, answer: Answer, number: u64, zone: &str) -> Response<Bytes> {
        let (answer, request_id) =
            self.with(|state| (state.shaped(answer), state.seeded().uuid("request", number)));
        answer.into_response(&request_id, zone)
    }
}

/// Everybody who connects, for ever.
fn accepted(listener: TcpListener) -> impl Stream<Item = io::Result<TcpStream>> + Unpin {
    stream::poll_fn(move |context| {
        let accepted = listener.poll_accept(context);
        accepted.map(|accepted| Some(accepted.map(|(stream, _)| stream)))
    })
}

impl State {
    /// The number of the next request; no two have the same.
    fn number(&mut self) -> u64 {
        self.requests += 1;
        self.requests
    }

    /// Numbers a request, and lets in who has the one key.
    fn admit(&mut self, token: &str) -> (u64, Result<(), Answer>) {
        let number = self.number();
        let admitted = if token == self.settings.secret_key.expose_secret() {
            Ok(())
        } else {
            let reason = if token.is_empty() { "invalid_argument" } else { "not_found" };
            Err(Answer::denied_authentication(reason))
        };
        (number, admitted)
    }

    /// Does what is asked, at once and whole.
    pub(super) fn perform(&mut self, asked: &Asked) -> Answer {
        let performed = match (&asked.call.zone, &asked.call.server) {
            (Some(zone), Some(id)) => match asked.call.operation {
                Operation::GetServer => self.get_server(zone, id),
                Operation::UpdateServer => self.update_server(zone, id, &asked.body),
                Operation::DeleteServer => self.delete_server(zone, id),
                Operation::RebootServer => self.reboot_server(zone, id),
                Operation::ReinstallServer => self.reinstall_server(zone, id, &asked.body),
                other => unreachable!("{other} is not an operation on a server"),
            },
            (Some(zone), None) => match asked.call.operation {
                Operation::ListServers => self.list_servers(zone, &asked.query),
                Operation::CreateServer => self.create_server(zone, &asked.body),
                Operation::BatchCreateServers => self.batch_create(zone, &asked.body),
                Operation::ListOs => self.list_os(&asked.query),
                Operation::GetOs => self.get_os(&asked.item),
                Operation::ListServerTypes => Ok(self.list_server_types(zone)),
                Operation::GetServerType => self.get_server_type(zone, &asked.item),
                other => unreachable!("{other} is not an operation in a zone"),
            },
            (None, _) => self.perform_on_keys(asked),
        };
        performed.unwrap_or_else(|refusal| refusal)
    }

    fn perform_on_keys(&mut self, asked: &Asked) -> Performed {
        match asked.call.operation {
            Operation::ListSshKeys => self.list_keys(&asked.query),
            Operation::GetSshKey => self.get_key(&asked.item),
            Operation::CreateSshKey => self.create_key(&asked.body),
            Operation::UpdateSshKey => self.update_key(&asked.item, &asked.body),
            Operation::DeleteSshKey => self.delete_key(&asked.item),
            other => unreachable!("{other} is not an operation on keys"),
        }
    }
}

#[cfg(test)]
mod tests {
    use applecart_api::clock::Clock;
    use jiff::Timestamp;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::super::Settings;
    use super::*;

    #[tokio::test]
    async fn a_connection_that_cannot_be_accepted_does_not_end_it() {
        let scaleway = Scaleway::new(Settings::new(1), Clock::new(|| Timestamp::UNIX_EPOCH));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let failure = stream::iter([Err(io::Error::other("too many open files"))]);
        let mut server = JoinSet::new();
        server.spawn(scaleway.serve_each(failure.chain(accepted(listener))));
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream
            .write_all(b"GET /sim/ HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
}
