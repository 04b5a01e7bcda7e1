//! How a call is made: its turn, its time-out, its repetitions.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use bytes::Bytes;
use http::{HeaderValue, Method, Response, StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tower::{Service, ServiceExt};

use crate::call::{CallReport, OnCall, Operation};
use crate::error::{self, Error, ErrorKind, Retry};
use crate::ids::ProjectId;
use crate::limit::Limit;
use crate::profile::Profile;
use crate::transport::{Transport, TransportError};

/// How long one request may take. With [`WRITE_PATIENCE`] it bounds how long a rename can be in
/// flight, which others wait out before they believe a name.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a write may wait for its turn. What it was decided on must still be fresh when it goes.
pub const WRITE_PATIENCE: Duration = Duration::from_secs(2);

/// How often a read is tried.
const READ_ATTEMPTS: u32 = 4;

/// No attempt of a read begins later than this after the first: enough for three time-outs.
const READ_BUDGET: Duration = Duration::from_secs(40);

/// The first wait between two attempts; it doubles.
const BACK_OFF_FIRST: Duration = Duration::from_millis(500);

/// What has to be escaped in a query.
const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// How to call: for whom, by which clock, within which limit.
#[derive(Clone)]
pub struct Config {
    /// Where, as whom, for which project.
    pub profile: Profile,
    /// What time it is.
    pub clock: Clock,
    /// Shared by all clients of a process.
    pub limit: Limit,
    /// How long one request may take.
    pub timeout: Duration,
    /// Seeds the jitter between repetitions.
    pub seed: u64,
    /// Told of every request.
    pub on_call: Option<OnCall>,
}

impl Config {
    /// A configuration with nobody listening. The limit is [`Limit::of_process`], but in a
    /// simulated process.
    #[must_use]
    pub fn new(profile: Profile, clock: Clock, limit: Limit) -> Self {
        Self { profile, clock, limit, timeout: CALL_TIMEOUT, seed: 0, on_call: None }
    }
}

/// Calls Scaleway. Clones share one limit and one connection pool.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    service: Transport,
    config: Config,
    jitter: Mutex<SmallRng>,
}

impl Client {
    /// A client that sends its requests through `service`: [`crate::http_service`], or a simulator.
    pub fn new<S>(service: S, config: Config) -> Self
    where
        S: Service<http::Request<Bytes>, Response = Response<Bytes>, Error = TransportError>,
        S: Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
    {
        let jitter = Mutex::new(SmallRng::seed_from_u64(config.seed));
        Self(Arc::new(Inner { service: Transport::new(service), config, jitter }))
    }

    /// The project whose hosts and keys these are.
    #[must_use]
    pub fn project(&self) -> &ProjectId {
        &self.0.config.profile.project
    }

    /// Asks, and asks again while that may help: reads alone are safe to repeat.
    pub(crate) async fn read<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        assert!(request.operation.is_read(), "{} is not a read", request.operation);
        let deadline = Instant::now() + READ_BUDGET;
        let mut attempt = 1;
        loop {
            let error = match self.call(request, json).await {
                Ok(value) => return Ok(value),
                Err(error) => error,
            };
            let Some(wait) = self.wait_after(&error, attempt) else { return Err(error) };
            if attempt == READ_ATTEMPTS || Instant::now() + wait > deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    /// Changes something, with one request.
    pub(crate) async fn write<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        self.call(request, json).await
    }

    /// Removes something, with one request. Its answer has no body.
    pub(crate) async fn remove(&self, request: &Request) -> Result<(), Error> {
        self.call(request, no_content).await
    }

    /// One request, reported.
    async fn call<T>(&self, request: &Request, decode: Decode<T>) -> Result<T, Error> {
        let started = Instant::now();
        let result = self.send(request).await.and_then(|answer| decode(request, &answer));
        if let Some(on_call) = &self.0.config.on_call {
            on_call(&CallReport::new(request.operation, &result, started.elapsed()));
        }
        result
    }

    async fn send(&self, request: &Request) -> Result<Response<Bytes>, Error> {
        let Config { limit, timeout, clock, .. } = &self.0.config;
        let operation = request.operation;
        let patience = if operation.is_read() { *timeout } else { WRITE_PATIENCE };
        let Some(_turn) = limit.turn(patience).await else {
            let message = format!("no turn within {patience:?}: too many calls at once");
            return Err(Error::new(ErrorKind::Unreachable, operation, message));
        };
        if let Some(reset) = limit.paused(clock.now()) {
            let kind = ErrorKind::RateLimited { reset: Some(reset) };
            return Err(Error::new(kind, operation, "not sent"));
        }
        let sent = self.0.service.clone().oneshot(self.http_request(request));
        let answer = match tokio::time::timeout(*timeout, sent).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(source)) => return Err(Error::from_transport(operation, source)),
            Err(_) => {
                let message = format!("no answer within {timeout:?}");
                return Err(Error::new(ErrorKind::Unknown, operation, message));
            }
        };
        if answer.status().is_success() {
            return Ok(answer);
        }
        let error = error::from_answer(operation, &answer, clock.now());
        if let ErrorKind::RateLimited { reset: Some(reset) } = error.kind {
            limit.pause(reset);
        }
        Err(error)
    }

    fn http_request(&self, request: &Request) -> http::Request<Bytes> {
        let profile = &self.0.config.profile;
        let uri = format!("{}{}", profile.api_url(), request.path_and_query);
        let mut token = HeaderValue::from_str(profile.secret_key().expose_secret())
            .expect("a profile holds a secret key that fits in a header");
        token.set_sensitive(true);
        let builder = http::Request::builder()
            .method(request.method.clone())
            .uri(uri)
            .header("x-auth-token", token)
            .header(header::USER_AGENT, concat!("applecart/", env!("CARGO_PKG_VERSION")));
        let builder = if request.body.is_empty() {
            builder
        } else {
            builder.header(header::CONTENT_TYPE, "application/json")
        };
        builder.body(request.body.clone()).expect("a profile holds a URL, and paths are escaped")
    }

    /// How long to wait before a read is repeated; `None` if repeating it does not help.
    fn wait_after(&self, error: &Error, attempt: u32) -> Option<Duration> {
        match error.class() {
            Retry::Now | Retry::BackOff => {}
            Retry::WaitForChange | Retry::Never => return None,
        }
        let full = BACK_OFF_FIRST * 2_u32.pow(attempt - 1);
        let mut jitter = self.0.jitter.lock().unwrap_or_else(PoisonError::into_inner);
        let back_off = jitter.random_range(full / 2..=full);
        let until_reset = match error.kind {
            ErrorKind::RateLimited { reset: Some(reset) } => {
                reset.duration_since(self.0.config.clock.now()).unsigned_abs()
            }
            _ => Duration::ZERO,
        };
        // After a reset, not all at once.
        Some(until_reset + back_off)
    }
}

type Decode<T> = fn(&Request, &Response<Bytes>) -> Result<T, Error>;

/// The value in a 200, which is what everything but a removal succeeds with.
fn json<T: DeserializeOwned>(request: &Request, answer: &Response<Bytes>) -> Result<T, Error> {
    expect(StatusCode::OK, request, answer)?;
    serde_json::from_slice(answer.body()).map_err(|error| {
        // Where, but not what: the body may hold a password.
        let (line, column) = (error.line(), error.column());
        doubtful(request, answer, &format!("at line {line} column {column}"))
    })
}

/// Nothing, in a 204: what a removal succeeds with.
fn no_content(request: &Request, answer: &Response<Bytes>) -> Result<(), Error> {
    expect(StatusCode::NO_CONTENT, request, answer)
}

/// Only the documented success is one: any other may be a gateway's, or mean "later" or "in part".
fn expect(status: StatusCode, request: &Request, answer: &Response<Bytes>) -> Result<(), Error> {
    if answer.status() == status {
        Ok(())
    } else {
        Err(doubtful(request, answer, &format!("a success, but not {}", status.as_u16())))
    }
}

/// A success that is not as expected. A write that ends so may well have happened.
fn doubtful(request: &Request, answer: &Response<Bytes>, what: &str) -> Error {
    let kind = if request.operation.is_read() { ErrorKind::Other } else { ErrorKind::Unknown };
    let message = format!("the answer is not what was expected: {what}");
    Error::new(kind, request.operation, message).with_answer(answer)
}

/// A request, before it has an address and a key.
#[derive(Clone)]
pub(crate) struct Request {
    pub operation: Operation,
    method: Method,
    path_and_query: String,
    body: Bytes,
}

impl Request {
    pub(crate) fn get(operation: Operation, path: String) -> Self {
        Self { operation, method: Method::GET, path_and_query: path, body: Bytes::new() }
    }

    pub(crate) fn delete(operation: Operation, path: String) -> Self {
        Self { method: Method::DELETE, ..Self::get(operation, path) }
    }

    pub(crate) fn post(operation: Operation, path: String, body: &impl Serialize) -> Self {
        let body = serde_json::to_vec(body).expect("our own bodies are JSON").into();
        Self { method: Method::POST, body, ..Self::get(operation, path) }
    }

    pub(crate) fn patch(operation: Operation, path: String, body: &impl Serialize) -> Self {
        Self { method: Method::PATCH, ..Self::post(operation, path, body) }
    }

    pub(crate) fn query(mut self, name: &str, value: &str) -> Self {
        let separator = if self.path_and_query.contains('?') { '&' } else { '?' };
        self.path_and_query.push(separator);
        self.path_and_query.push_str(name);
        self.path_and_query.push('=');
        self.path_and_query.extend(utf8_percent_encode(value, QUERY));
        self
    }
}
