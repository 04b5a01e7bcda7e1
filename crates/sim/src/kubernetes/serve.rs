//! The server on a socket: HTTPS on loopback, for kubectl and everything else that speaks it.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::refusal::Refusal;
use super::respond::{self, BODY_BYTES};
use super::server::{Answer, ApiServer};

/// How long a client may take to agree on encryption: loopback needs milliseconds.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Why the server could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// It was set up without an authority.
    #[error("the server was set up without an authority to sign its certificate")]
    NoAuthority,
    /// The certificate does not make a configuration.
    #[error("the server's certificate cannot be used")]
    Certificate(#[from] rustls::Error),
    /// The listener broke.
    #[error("could not accept a connection")]
    Accept(#[source] io::Error),
}

impl ApiServer {
    /// Serves HTTPS on `listener` until the future is dropped, which ends every connection too.
    ///
    /// Every request needs the bearer token of somebody known, or a certificate that was signed
    /// here.
    pub async fn serve(&self, listener: TcpListener) -> Result<Infallible, ServeError> {
        let authority = self.inner.authority.as_ref().ok_or(ServeError::NoAuthority)?;
        let acceptor = TlsAcceptor::from(Arc::new(authority.server_config()?));
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => {
                    match accepted {
                        Ok((stream, _)) => {
                            let connection = connection(self.clone(), acceptor.clone(), stream);
                            connections.spawn(connection);
                        }
                        // The client gave up before it was accepted: its own affair.
                        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                        Err(error) => return Err(ServeError::Accept(error)),
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
    }

    /// A kubeconfig for `url` with the administrator's token; `None` without an authority.
    #[must_use]
    pub fn kubeconfig(&self, url: &str) -> Option<SecretString> {
        let authority = self.inner.authority.as_ref()?;
        let certificate = STANDARD.encode(authority.certificate());
        let token = authority.admin_token().expose_secret();
        Some(SecretString::from(format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: simulated\n\
             clusters:\n- name: simulated\n  cluster:\n    server: {url}\n    \
             certificate-authority-data: {certificate}\n\
             users:\n- name: admin\n  user:\n    token: {token}\n\
             contexts:\n- name: simulated\n  context:\n    cluster: simulated\n    user: admin\n"
        )))
    }
}

/// One connection, to its end. What goes wrong with it is the client's to see.
async fn connection(server: ApiServer, acceptor: TlsAcceptor, stream: TcpStream) {
    let stream = match tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%error, "a client did not finish its TLS handshake");
            return;
        }
        Err(_) => return,
    };
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let shown: Option<Arc<[u8]>> = shown.map(|certificate| certificate.as_ref().into());
    let service = service_fn(|request: Request<Incoming>| {
        let (server, shown) = (server.clone(), shown.clone());
        async move { Ok::<_, Infallible>(answer(&server, shown.as_deref(), request).await) }
    });
    let outcome = hyper::server::conn::http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(server: &ApiServer, shown: Option<&[u8]>, request: Request<Incoming>) -> Answer {
    let (parts, body) = request.into_parts();
    let body: Bytes = match Limited::new(body, BODY_BYTES).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            let message = format!("the body could not be read: {error}");
            return respond::refuse(&Refusal::new(413, "RequestEntityTooLarge", message));
        }
    };
    server.answer_known(shown, &parts, &body).await
}
