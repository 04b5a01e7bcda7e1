//! The server itself: a handle that is cheap to clone, and its clients in this process.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::auth::{Grant, Identity};
use super::gate::{Call, Gate, Verb};
use super::refusal::Refusal;
use super::registry::Registry;
use super::respond;
use super::state::{EVENT_LIFE, State};
use super::store::ObjectKey;
use super::tls::Authority;

/// An answer; the body of a watch goes on until it is dropped.
pub(crate) type Answer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// What service accounts are told to trust where nothing listens.
const NO_AUTHORITY: &str = "-----BEGIN CERTIFICATE-----\nc2ltdWxhdGVk\n-----END CERTIFICATE-----\n";

/// A Kubernetes API server in memory.
///
/// Cloning gives another handle to the same server. Everything but watches is answered at once;
/// time passes only where a gate takes it.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub clock: Clock,
    state: Mutex<State>,
    pub gate: Option<Arc<dyn Gate>>,
    pub authority: Option<Arc<Authority>>,
    /// Whether a caller needs a role for what it asks.
    pub enforces_roles: AtomicBool,
    /// Requests that are still on their way; performed when they are due and somebody asks.
    late: Mutex<Vec<respond::Late>>,
}

impl Inner {
    /// Requests that are still on their way.
    pub fn late(&self) -> MutexGuard<'_, Vec<respond::Late>> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether whoever made this call cannot reach it.
    pub fn is_away(&self, call: &Call) -> bool {
        self.gate.as_ref().is_some_and(|gate| gate.is_away(call))
    }

    /// The state, for a moment: never held across a wait.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiServer(at version {})", self.inner.state().store.version())
    }
}

/// How a server is made. [`ApiServer::new`] is enough for most.
pub struct Setup {
    /// Tells creation times and ages.
    pub clock: Clock,
    /// Uids, generated names and tokens follow from it.
    pub seed: u64,
    /// The kinds that it knows from the start.
    pub registry: Arc<Registry>,
    /// How long an Event lives after its last write.
    pub event_life: Duration,
    /// What every request passes, if anything.
    pub gate: Option<Arc<dyn Gate>>,
    /// Who signs its certificate; needed to serve over HTTPS.
    pub authority: Option<Authority>,
}

impl ApiServer {
    /// A fresh cluster without a gate, for clients in this process.
    #[must_use]
    pub fn new(clock: Clock, seed: u64, registry: Arc<Registry>) -> Self {
        let (event_life, gate, authority) = (EVENT_LIFE, None, None);
        Self::set_up(Setup { clock, seed, registry, event_life, gate, authority })
    }

    /// A fresh cluster: four namespaces with their default accounts, and the registry's
    /// definitions.
    #[must_use]
    pub fn set_up(setup: Setup) -> Self {
        let certificate = setup.authority.as_ref().map_or_else(
            || NO_AUTHORITY.to_owned(),
            |authority| authority.certificate().to_owned(),
        );
        let authority = setup.authority.map(Arc::new);
        let mut state = State::new(setup.clock.now(), setup.seed, setup.registry, certificate);
        state.event_life = setup.event_life;
        if let Some(authority) = &authority {
            state.signer = Some(authority.clone());
            let token = authority.admin_token().expose_secret().to_owned();
            state.tokens.give(token, Grant::new(Identity::admin()));
        }
        let inner = Inner {
            clock: setup.clock,
            state: Mutex::new(state),
            gate: setup.gate,
            authority,
            enforces_roles: AtomicBool::new(false),
            late: Mutex::default(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Lets changes be replayed for so long, instead of [`HISTORY_AGE`](super::HISTORY_AGE).
    pub fn keep_history(&self, age: Duration) {
        self.inner.state().store.keep_history(age);
    }

    /// A client in this process, already known as `who`. No sockets: it works on a paused clock.
    ///
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn client(&self, who: Identity) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (server, who) = (server.clone(), who.clone());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, kube::Error>(respond::answer(&server.inner, who, &parts, &body).await)
            }
        });
        kube::Client::new(service, "default")
    }

    /// A client in this process that shows `token` with every request; each is refused with 401
    /// while the token is not valid.
    ///
    /// Must be called inside a tokio runtime.
    #[must_use]
    pub fn client_with_token(&self, token: SecretString) -> kube::Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            let who = server.identify(token.expose_secret());
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                let answer = match who {
                    Some(who) => respond::answer(&server.inner, who, &parts, &body).await,
                    None => respond::refuse(&Refusal::unauthorized()),
                };
                Ok::<_, kube::Error>(answer)
            }
        });
        kube::Client::new(service, "default")
    }

    /// Answers a request that came over a connection, by the certificate (DER) that its client
    /// showed, or by its bearer token.
    pub(crate) async fn answer_known(
        &self,
        shown: Option<&[u8]>,
        parts: &http::request::Parts,
        body: &Bytes,
    ) -> Answer {
        let bearer = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = bearer.and_then(|value| value.strip_prefix("Bearer "));
        let now = self.inner.clock.now();
        let of_certificate =
            shown.and_then(|der| self.inner.state().certificates.identify(der, now).cloned());
        match of_certificate.or_else(|| self.identify(token?.trim())) {
            Some(who) => respond::answer(&self.inner, who, parts, body).await,
            None => respond::refuse(&Refusal::unauthorized()),
        }
    }

    fn identify(&self, token: &str) -> Option<Identity> {
        let now = self.inner.clock.now();
        self.inner.state().identify(token, now)
    }

    /// From now on, a caller needs a Role or a `ClusterRole` for everything that it asks; without
    /// this, everybody may do everything.
    pub fn enforce_roles(&self) {
        self.inner.enforces_roles.store(true, Ordering::Relaxed);
    }

    /// Requests since the start, by verb and resource (`pods`, `pods/status`). Refused ones count.
    #[must_use]
    pub fn requests(&self) -> BTreeMap<(Verb, String), u64> {
        self.inner.state().counts.clone()
    }

    /// The kinds of which objects were ever stored.
    #[must_use]
    pub fn resources(&self) -> Vec<String> {
        self.inner.state().store.resources().map(str::to_owned).collect()
    }

    /// All objects of a kind (`pods`, `machines.cluster.x-k8s.io`) as they are stored, in order of
    /// namespace and name. Not a request: nobody counts it and no gate sees it.
    #[must_use]
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        let state = self.inner.state();
        state.store.objects(resource, None).map(|(_, object)| object.clone()).collect()
    }

    /// The bearer tokens that are valid now. Not a request.
    #[must_use]
    pub fn tokens(&self) -> Vec<String> {
        self.inner.state().tokens.all().cloned().collect()
    }

    /// Takes the objects of a kind away whatever their finalizers say: so does a delete that read
    /// one before they were there, for Kubernetes does not look at them again. Not a request.
    pub fn lose(&self, resource: &str) {
        let mut state = self.inner.state();
        let places: Vec<_> =
            state.store.objects(resource, None).map(|(at, _)| at.clone()).collect();
        for (namespace, name) in places {
            state.remove(&ObjectKey { resource: resource.into(), namespace, name });
        }
        state.settle(self.inner.clock.now());
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::{Patch, PatchParams};
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nobody_owns_the_fields_of_an_object_that_went_as_it_came() {
        let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
        let server = ApiServer::new(clock, 1, Registry::new(vec![]).unwrap());
        let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::admin()));
        // Its owner is gone already.
        let owner = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "b", "uid": "gone"});
        let metadata = json!({"name": "a", "ownerReferences": [owner]});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        maps.patch("a", &PatchParams::apply("ada"), &Patch::Apply(map)).await.unwrap();
        assert!(maps.get_opt("a").await.unwrap().is_none());
        assert!(server.inner.state().owners.is_empty());
    }
}
