//! GitHub, as far as a runner that is registered meets it: apps, their installations, and tokens.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applecart_api::clock::Clock;
use applecart_scaleway::{Transport, TransportError};
use axum::Router;
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{AUTHORIZATION, HeaderMap};
use http::{Method, Request, Response, StatusCode, Uri};
use jiff::SignedDuration;
use ring::signature::{RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey};
use serde_json::{Value, json};
use tokio::net::TcpListener;

/// For how long a token is good.
const TOKEN_LASTS: SignedDuration = SignedDuration::from_hours(1);

/// An assertion that is good for longer is refused.
const ASSERTION_MAX_SECONDS: i64 = 600;

/// A simulated GitHub. Clones share it.
#[derive(Clone)]
pub struct SimGithub {
    state: Arc<Mutex<State>>,
    clock: Clock,
}

#[derive(Default)]
struct State {
    /// Apps by id: their public keys, as PKCS#1 in DER.
    apps: BTreeMap<String, Vec<u8>>,
    /// Installations by id: whose, and where.
    installations: BTreeMap<String, (String, String)>,
    /// Access tokens, and the installation that each is of.
    access: BTreeMap<String, String>,
    /// Tokens that register runners.
    registration: BTreeSet<String>,
    /// What apps said of themselves, signed: whoever has it is the app for some minutes.
    assertions: BTreeSet<String>,
    /// Runners by id: whose, and their names.
    runners: BTreeMap<u64, (String, String)>,
    /// The names of those that have a job.
    busy: BTreeSet<String>,
    calls: u64,
}

/// What an answer says: its status and its body.
type Said = (StatusCode, Value);

fn message(status: StatusCode, text: &str) -> Said {
    (status, json!({"message": text}))
}

impl SimGithub {
    /// One without apps.
    #[must_use]
    pub fn new(clock: Clock) -> Self {
        Self { state: Arc::default(), clock }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes an app of this id and public key (PKCS#1, DER), and installs it in `org`.
    pub fn install(&self, app: &str, key: &[u8], installation: &str, org: &str) {
        let mut state = self.state();
        state.apps.insert(app.to_owned(), key.to_owned());
        state.installations.insert(installation.to_owned(), (app.to_owned(), org.to_owned()));
    }

    /// How often it was called.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Whether this token registers runners.
    #[must_use]
    pub fn takes(&self, registration_token: &str) -> bool {
        self.state().registration.contains(registration_token)
    }

    /// Everything that it took or gave out and that opens something.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let state = self.state();
        let given = state.access.keys().chain(&state.registration);
        given.chain(&state.assertions).cloned().collect()
    }

    /// A runner registers.
    pub fn register(&self, org: &str, name: &str) {
        let mut state = self.state();
        let id = state.runners.keys().next_back().map_or(1, |last| last + 1);
        state.runners.insert(id, (org.to_owned(), name.to_owned()));
    }

    /// A runner gets a job, or ends it.
    pub fn set_busy(&self, name: &str, busy: bool) {
        let mut state = self.state();
        if busy {
            state.busy.insert(name.to_owned());
        } else {
            state.busy.remove(name);
        }
    }

    /// The names of all runners, in the order in which they registered.
    #[must_use]
    pub fn runners(&self) -> Vec<String> {
        self.state().runners.values().map(|(_, name)| name.clone()).collect()
    }

    /// Answers over HTTP until it is dropped.
    pub async fn serve(&self, listener: TcpListener) -> io::Result<Infallible> {
        let github = self.clone();
        let answer = async move |method: Method, uri: Uri, headers: HeaderMap| {
            let mut request = Request::new(Bytes::new());
            (*request.method_mut(), *request.uri_mut()) = (method, uri);
            *request.headers_mut() = headers;
            let (status, body) = github.answer(&request);
            // What has no content may not have a body either.
            let text = if body.is_null() { String::new() } else { body.to_string() };
            let mut response = Response::new(Body::from(text));
            *response.status_mut() = status;
            response
        };
        axum::serve(listener, Router::new().fallback(answer)).await?;
        Err(io::ErrorKind::ConnectionAborted.into())
    }

    /// The service that a client calls.
    #[must_use]
    pub fn service(&self) -> Transport {
        let github = self.clone();
        Transport::new(tower::service_fn(move |request| {
            let (status, body) = github.answer(&request);
            let mut response = Response::new(Bytes::from(body.to_string()));
            *response.status_mut() = status;
            std::future::ready(Ok::<_, TransportError>(response))
        }))
    }

    fn answer(&self, request: &Request<Bytes>) -> Said {
        self.state().calls += 1;
        let bearer = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let bearer = bearer.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
        let path: Vec<&str> = request.uri().path().trim_matches('/').split('/').collect();
        match path[..] {
            ["app", "installations", id, "access_tokens"] if request.method() == Method::POST => {
                self.access(id, bearer)
            }
            ["orgs", org, "actions", "runners", "registration-token"]
                if request.method() == Method::POST =>
            {
                self.registration(org, bearer)
            }
            ["orgs", org, "actions", "runners"] if request.method() == Method::GET => {
                self.list(org, request.uri().query().unwrap_or_default(), bearer)
            }
            ["orgs", org, "actions", "runners", id] if request.method() == Method::DELETE => {
                self.remove(org, id, bearer)
            }
            _ => message(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    /// Why a token opens nothing of an organisation, if so.
    fn refused(&self, org: &str, access: &str) -> Option<Said> {
        let state = self.state();
        let Some(installation) = state.access.get(access) else {
            return Some(message(StatusCode::UNAUTHORIZED, "Bad credentials"));
        };
        let of_org = state.installations.get(installation).is_some_and(|(_, of)| of == org);
        (!of_org).then(|| message(StatusCode::NOT_FOUND, "Not Found"))
    }

    fn list(&self, org: &str, query: &str, access: &str) -> Said {
        if let Some(refused) = self.refused(org, access) {
            return refused;
        }
        let state = self.state();
        let wanted = query.split('&').find_map(|part| part.strip_prefix("name="));
        let is = |of: &str, name: &str| of == org && wanted.is_none_or(|wanted| wanted == name);
        let named = state.runners.iter().filter(|(_, (of, name))| is(of, name));
        let listed: Vec<Value> =
            named.map(|(id, (_, name))| {
                json!({"id": id, "name": name, "busy": state.busy.contains(name)})
            }).collect();
        (StatusCode::OK, json!({"total_count": listed.len(), "runners": listed}))
    }

    fn remove(&self, org: &str, id: &str, access: &str) -> Said {
        if let Some(refused) = self.refused(org, access) {
            return refused;
        }
        let mut state = self.state();
        let found = id.parse().ok().and_then(|id: u64| Some((id, state.runners.get(&id)?.clone())));
        if let Some((_, (_, name))) = &found
            && state.busy.contains(name)
        {
            let text = format!("Bad request - Runner \"{name}\" is still running a job");
            return message(StatusCode::UNPROCESSABLE_ENTITY, &text);
        }
        match found.and_then(|(id, _)| state.runners.remove(&id)) {
            Some(_) => (StatusCode::NO_CONTENT, Value::Null),
            None => message(StatusCode::NOT_FOUND, "Not Found"),
        }
    }

    fn access(&self, installation: &str, assertion: &str) -> Said {
        let app = match self.asserted(assertion) {
            Ok(app) => app,
            Err(text) => return message(StatusCode::UNAUTHORIZED, text),
        };
        let mut state = self.state();
        if state.installations.get(installation).is_none_or(|(of, _)| *of != app) {
            return message(StatusCode::NOT_FOUND, "Not Found");
        }
        state.assertions.insert(assertion.to_owned());
        let token = format!("ghs_{installation}_{}", state.calls);
        state.access.insert(token.clone(), installation.to_owned());
        self.created(&token)
    }

    /// The app that says so, if its signature and its times are right.
    fn asserted(&self, assertion: &str) -> Result<String, &'static str> {
        const UNREADABLE: &str = "A JSON web token could not be decoded";
        let (text, signature) = assertion.rsplit_once('.').ok_or(UNREADABLE)?;
        let (_, claims) = text.split_once('.').ok_or(UNREADABLE)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| UNREADABLE);
        let claims: Value = serde_json::from_slice(&decode(claims)?).map_err(|_| UNREADABLE)?;
        let app = claims["iss"].as_str().ok_or(UNREADABLE)?.to_owned();
        let state = self.state();
        let key = state.apps.get(&app).ok_or("Integration not found")?;
        UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, key)
            .verify(text.as_bytes(), &decode(signature)?)
            .map_err(|_| UNREADABLE)?;
        let now = self.clock.now().as_second();
        let (from, to) = (claims["iat"].as_i64().unwrap_or(now + 1), claims["exp"].as_i64());
        match to {
            _ if from > now => Err("'Issued at' claim ('iat') must be in the past"),
            Some(to) if to <= now => Err("'Expiration time' claim ('exp') must be in the future"),
            Some(to) if to - now > ASSERTION_MAX_SECONDS => {
                Err("'Expiration time' claim ('exp') is too far in the future")
            }
            Some(_) => Ok(app),
            None => Err(UNREADABLE),
        }
    }

    fn registration(&self, org: &str, access: &str) -> Said {
        if let Some(refused) = self.refused(org, access) {
            return refused;
        }
        let mut state = self.state();
        let token = format!("REGISTRATION-{}", state.calls);
        state.registration.insert(token.clone());
        self.created(&token)
    }

    fn created(&self, token: &str) -> Said {
        let expires = (self.clock.now() + TOKEN_LASTS).to_string();
        (StatusCode::CREATED, json!({"token": token, "expires_at": expires}))
    }
}
