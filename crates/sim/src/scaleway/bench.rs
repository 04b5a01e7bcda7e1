//! How fast this Scaleway answers.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use applecart_api::clock::Clock;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use secrecy::ExposeSecret;
use tokio::net::{TcpListener, TcpStream};

use super::{HostSpec, Scaleway, Settings};

/// How long each kind of request is measured.
const MEASURED: Duration = Duration::from_secs(2);

/// How many requests per second, caller included, in one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BenchReport {
    /// Hosts in the account.
    pub hosts: usize,
    /// One server at a time.
    pub get_per_second: f64,
    /// Pages of 100 servers.
    pub list_page_per_second: f64,
    /// Renames.
    pub rename_per_second: f64,
}

impl fmt::Display for BenchReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "scaleway simulator, {} hosts, loopback HTTP, one thread with its caller: \
             {:.0} get/s, {:.0} rename/s, {:.0} pages of 100/s",
            self.hosts, self.get_per_second, self.rename_per_second, self.list_page_per_second
        )
    }
}

/// Measures a simulator with so many hosts over one loopback connection. For a figure of one core,
/// run it in a current-thread runtime.
pub async fn bench(hosts: usize) -> io::Result<BenchReport> {
    let settings = Settings::new(1);
    let token = settings.secret_key.expose_secret().to_owned();
    let scaleway = Scaleway::new(settings, Clock::new(|| Timestamp::UNIX_EPOCH));
    let ids: Vec<_> = (0..hosts)
        .map(|number| scaleway.order_host(&HostSpec::named(format!("tuist-pool-{number}"))))
        .collect();
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let mut server = tokio::task::JoinSet::new();
    server.spawn(async { match scaleway.serve(listener).await {} });
    let stream = TokioIo::new(TcpStream::connect(address).await?);
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(stream).await.map_err(io::Error::other)?;
    server.spawn(async { connection.await.map_err(io::Error::other) });

    let mut rates = [0.0; 3];
    let server_path = |number: usize| format!("servers/{}", ids[number % ids.len()]);
    let pages = hosts.div_ceil(100).max(1);
    for (kind, rate) in rates.iter_mut().enumerate() {
        let (started, mut number) = (Instant::now(), 0);
        while started.elapsed() < MEASURED {
            let (method, path, body) = match kind {
                0 => ("GET", server_path(number), String::new()),
                1 => (
                    "GET",
                    format!("servers?page_size=100&page={}", number % pages + 1),
                    String::new(),
                ),
                _ => ("PATCH", server_path(number), format!("{{\"name\":\"box-{number}\"}}")),
            };
            let request = Request::builder()
                .method(method)
                .uri(format!("/apple-silicon/v1alpha1/zones/fr-par-1/{path}"))
                .header("host", "localhost")
                .header("x-auth-token", &token)
                .body(Full::new(Bytes::from(body)))
                .map_err(io::Error::other)?;
            let answer = sender.send_request(request).await.map_err(io::Error::other)?;
            assert_eq!(answer.status(), 200, "{path}");
            answer.into_body().collect().await.map_err(io::Error::other)?;
            number += 1;
        }
        #[allow(clippy::cast_precision_loss, reason = "a count of requests in two seconds")]
        {
            *rate = number as f64 / started.elapsed().as_secs_f64();
        }
    }
    let [get_per_second, list_page_per_second, rename_per_second] = rates;
    Ok(BenchReport { hosts, get_per_second, list_page_per_second, rename_per_second })
}
