//! The outermost service: requests over HTTPS, for real.

use std::error::Error as StdError;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, Response};
use tower::util::BoxCloneSyncService;

/// The service that a client calls, whatever it is made of.
pub type Transport = BoxCloneSyncService<Request<Bytes>, Response<Bytes>, TransportError>;

/// Longer than any network round trip, and a fraction of [`crate::CALL_TIMEOUT`].
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// Below what servers allow: a connection that idled for too long is lost in mid-request.
const IDLE_MAX: Duration = Duration::from_secs(15);

/// A page of 100 servers is about 200 kB.
const ANSWER_MAX_BYTES: usize = 8 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The request never left: nothing has happened.
    #[error("the request was not sent")]
    NotSent(#[source] Box<dyn StdError + Send + Sync>),
    /// The request left, or may have: it may have happened.
    #[error("the connection was lost before the answer")]
    Lost(#[source] Box<dyn StdError + Send + Sync>),
}

/// Sends requests over HTTP or HTTPS, each exactly once, following no redirects.
///
/// Fails if the system's certificates cannot be read.
pub fn http_service() -> Result<Transport, TransportError> {
    // The one TLS backend of the tree. Somebody else having installed it already is as good.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(IDLE_MAX)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .build()
        .map_err(|error| TransportError::NotSent(error.into()))?;
    let send = move |request| send(client.clone(), request);
    Ok(Transport::new(tower::service_fn(send)))
}

async fn send(
    client: reqwest::Client,
    request: Request<Bytes>,
) -> Result<Response<Bytes>, TransportError> {
    let request = request.try_into().map_err(not_sent_or_lost)?;
    let mut answer = client.execute(request).await.map_err(not_sent_or_lost)?;
    let mut body = BytesMut::new();
    while let Some(chunk) = answer.chunk().await.map_err(lost)? {
        if body.len() + chunk.len() > ANSWER_MAX_BYTES {
            let message = format!("the answer is larger than {ANSWER_MAX_BYTES} bytes");
            return Err(TransportError::Lost(message.into()));
        }
        body.extend_from_slice(&chunk);
    }
    let mut response = Response::new(body.freeze());
    *response.status_mut() = answer.status();
    *response.headers_mut() = answer.headers().clone();
    Ok(response)
}

fn lost(error: reqwest::Error) -> TransportError {
    TransportError::Lost(error.without_url().into())
}

fn not_sent_or_lost(error: reqwest::Error) -> TransportError {
    if error.is_connect() || error.is_builder() {
        TransportError::NotSent(error.without_url().into())
    } else {
        lost(error)
    }
}
