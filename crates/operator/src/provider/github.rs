//! GitHub, as far as a host that builds images needs it: a token that registers its runner, and the
//! end of that registration.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_scaleway::{Transport, TransportError};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, USER_AGENT};
use http::{Method, Request, StatusCode};
use jiff::{SignedDuration, Timestamp};
use ring::rand::SystemRandom;
use ring::signature::{RSA_PKCS1_SHA256, RsaKeyPair};
use rustls_pki_types::PrivateKeyDer;
use rustls_pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Longest wait for one answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// GitHub's clock may be behind ours by as much.
const SKEW: SignedDuration = SignedDuration::from_secs(30);

/// GitHub takes no assertion that is good for more than ten minutes.
const ASSERTION_LASTS: SignedDuration = SignedDuration::from_mins(9);

/// A token is used only while it is good for as long as a bootstrap takes.
const TOKEN_MARGIN: SignedDuration = SignedDuration::from_mins(20);

/// How much of what GitHub said goes into a status.
const EXCERPT_CHARS: usize = 200;

/// An app of GitHub's that may register runners, from its Secret.
pub struct App {
    /// Its id, or its client id.
    pub id: String,
    /// Where it was installed.
    pub installation: String,
    /// Its key, as GitHub gave it out: PEM, PKCS#1 or PKCS#8.
    pub key: SecretString,
}

/// Why there is no token. Carries no secret.
#[derive(Debug, thiserror::Error)]
pub enum GithubError {
    /// The Secret's key is none.
    #[error("its private-key is no RSA key in PEM: download a new one from the app's page")]
    Key,
    /// A field of the Secret would be read as more than a name.
    #[error("its {0} is not a number or a name: copy it from the app's page")]
    Field(&'static str),
    /// No answer.
    #[error("GitHub did not answer")]
    Transport(#[source] TransportError),
    /// No answer in time.
    #[error("GitHub did not answer within {} s", CALL_TIMEOUT.as_secs())]
    TimedOut,
    /// An answer that means no.
    #[error("GitHub refused {what} with {status}: {said}{}", advice(*.status))]
    Refused {
        /// What was asked for.
        what: &'static str,
        /// How it was refused.
        status: StatusCode,
        /// What GitHub said.
        said: String,
    },
    /// An answer without what was asked for.
    #[error("GitHub was asked for {what}, and its answer has none")]
    Malformed {
        /// What was asked for.
        what: &'static str,
    },
}

fn advice(status: StatusCode) -> &'static str {
    match status {
        StatusCode::UNAUTHORIZED => {
            " (check app-id and private-key in the app's Secret, and this machine's clock)"
        }
        StatusCode::FORBIDDEN | StatusCode::NOT_FOUND => {
            " (check installation-id and ghOrg, and that the app may write the organisation's \
             self-hosted runners)"
        }
        _ => "",
    }
}

struct Token {
    text: SecretString,
    expires: Timestamp,
}

/// A client of GitHub's API. A token registers any number of runners for an hour, so it is kept:
/// calls do not grow with the fleet.
pub struct Github {
    transport: Transport,
    api: String,
    clock: Clock,
    tokens: Mutex<BTreeMap<(String, String), Token>>,
}

impl fmt::Debug for Github {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Github").field("api", &self.api).finish_non_exhaustive()
    }
}

impl Github {
    /// A client of the API at `api`: `https://api.github.com`, or a server's own
    /// `https://github.example.com/api/v3`.
    #[must_use]
    pub fn new(transport: Transport, api: &str, clock: Clock) -> Self {
        let api = api.trim_end_matches('/').to_owned();
        Self { transport, api, clock, tokens: Mutex::default() }
    }

    /// Where people and runners find it.
    pub fn server(&self) -> String {
        if self.api == "https://api.github.com" {
            return "https://github.com".to_owned();
        }
        self.api.strip_suffix("/api/v3").unwrap_or(&self.api).to_owned()
    }

    fn tokens(&self) -> MutexGuard<'_, BTreeMap<(String, String), Token>> {
        self.tokens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A token that registers runners of `org`.
    pub async fn registration_token(
        &self,
        app: &App,
        org: &str,
    ) -> Result<SecretString, GithubError> {
        let key = (app.installation.clone(), org.to_owned());
        let needed = self.clock.now() + TOKEN_MARGIN;
        if let Some(token) = self.tokens().get(&key).filter(|token| token.expires > needed) {
            return Ok(token.text.clone());
        }
        let access = self.access(app).await?;
        let path = format!("/orgs/{org}/actions/runners/registration-token");
        let token = self.post("a registration token", &path, &access.text).await?;
        let text = token.text.clone();
        self.tokens().insert(key, token);
        Ok(text)
    }

    /// Whether the runner of `org` that is called `name` has a job, if there is one.
    pub async fn is_busy(
        &self,
        app: &App,
        org: &str,
        name: &str,
    ) -> Result<Option<bool>, GithubError> {
        let access = self.access(app).await?.text;
        let runners = self.runners(org, name, &access).await?;
        let busy: Option<Vec<bool>> = runners.iter().map(|r| r["busy"].as_bool()).collect();
        let busy = busy.ok_or(GithubError::Malformed { what: "its runners" })?;
        Ok((!busy.is_empty()).then(|| busy.contains(&true)))
    }

    /// Removes the runner of `org` that is called `name`, if there is one.
    pub async fn remove_runner(&self, app: &App, org: &str, name: &str) -> Result<(), GithubError> {
        let access = self.access(app).await?.text;
        for id in self.runners(org, name, &access).await?.iter().filter_map(|r| r["id"].as_u64()) {
            let one = format!("/orgs/{org}/actions/runners/{id}");
            let gone = StatusCode::NO_CONTENT;
            self.call("the end of a runner", Method::DELETE, &one, &access, gone).await?;
        }
        Ok(())
    }

    /// The runners of this name. Whatever else GitHub lists: only these are ours.
    async fn runners(
        &self,
        org: &str,
        name: &str,
        access: &SecretString,
    ) -> Result<Vec<Value>, GithubError> {
        let named = format!("/orgs/{org}/actions/runners?name={name}");
        let found = self.call("its runners", Method::GET, &named, access, StatusCode::OK).await?;
        let runners = found["runners"].as_array().cloned();
        let runners = runners.ok_or(GithubError::Malformed { what: "its runners" })?;
        Ok(runners.into_iter().filter(|runner| runner["name"] == name).collect())
    }

    /// A token of the app where it is installed.
    async fn access(&self, app: &App) -> Result<Token, GithubError> {
        for (name, text) in [("app-id", &app.id), ("installation-id", &app.installation)] {
            if text.is_empty() || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.') {
                return Err(GithubError::Field(name));
            }
        }
        let assertion = self.assertion(app)?;
        let path = format!("/app/installations/{}/access_tokens", app.installation);
        self.post("an access token", &path, &assertion).await
    }

    /// Who we are, signed.
    fn assertion(&self, app: &App) -> Result<SecretString, GithubError> {
        let pem = app.key.expose_secret().as_bytes();
        let key = match PrivateKeyDer::from_pem_slice(pem).map_err(|_| GithubError::Key)? {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => RsaKeyPair::from_pkcs8(der.secret_pkcs8_der()),
            _ => return Err(GithubError::Key),
        };
        let key = key.map_err(|_| GithubError::Key)?;
        let now = self.clock.now();
        let claims = json!({
            "iat": (now - SKEW).as_second(),
            "exp": (now + ASSERTION_LASTS).as_second(),
            "iss": app.id,
        });
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let text = format!("{}.{}", part(&json!({"alg": "RS256", "typ": "JWT"})), part(&claims));
        let mut signature = vec![0; key.public().modulus_len()];
        key.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
            .map_err(|_| GithubError::Key)?;
        Ok(SecretString::from(format!("{text}.{}", URL_SAFE_NO_PAD.encode(signature))))
    }

    async fn post(
        &self,
        what: &'static str,
        path: &str,
        bearer: &SecretString,
    ) -> Result<Token, GithubError> {
        let body = self.call(what, Method::POST, path, bearer, StatusCode::CREATED).await?;
        let expires = body["expires_at"].as_str().and_then(|text| text.parse().ok());
        match (body["token"].as_str().filter(|text| !text.is_empty()), expires) {
            (Some(text), Some(expires)) => Ok(Token { text: text.into(), expires }),
            _ => Err(GithubError::Malformed { what }),
        }
    }

    /// One call; any answer but `wanted` is a refusal.
    async fn call(
        &self,
        what: &'static str,
        method: Method,
        path: &str,
        bearer: &SecretString,
        wanted: StatusCode,
    ) -> Result<Value, GithubError> {
        let request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.api))
            .header(ACCEPT, "application/vnd.github+json")
            .header(USER_AGENT, "applecart")
            .header("X-GitHub-Api-Version", "2022-11-28")
            .header(AUTHORIZATION, format!("Bearer {}", bearer.expose_secret()))
            .body(Bytes::new())
            .map_err(|error| GithubError::Transport(TransportError::NotSent(error.into())))?;
        let answer = tokio::time::timeout(CALL_TIMEOUT, self.transport.clone().oneshot(request));
        let answer = answer.await.map_err(|_| GithubError::TimedOut)?;
        let answer = answer.map_err(GithubError::Transport)?;
        let (status, body) = (answer.status(), answer.into_body());
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status != wanted {
            let said = body["message"].as_str().unwrap_or("no reason was given");
            let said = said.chars().filter(|c| !c.is_control()).take(EXCERPT_CHARS).collect();
            return Err(GithubError::Refused { what, status, said });
        }
        Ok(body)
    }
}
