//! Looks at the simulated Scaleway again and again: each host there is a Mac here.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::ids::ServerId;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::host::{Host, Order, Seen};
use super::{Fleet, MacsError, MacsSettings};

/// How often Scaleway is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// More than an account of thousands of hosts tells.
const LIMIT_BYTES: usize = 16 * 1024 * 1024;

#[derive(Deserialize)]
struct Account {
    macs: Vec<Seen>,
    keys: Vec<String>,
}

/// Runs until dropped, which ends all Macs.
pub(super) async fn run(settings: &MacsSettings, fleet: &Fleet) -> Result<Infallible, MacsError> {
    let mut tasks = JoinSet::new();
    let mut silent = false;
    loop {
        match tokio::time::timeout(ANSWER, look(&settings.scaleway)).await {
            Ok(Ok(account)) => {
                silent = false;
                follow(settings, fleet, &mut tasks, account).await?;
            }
            Ok(Err(error)) if !silent => {
                silent = true;
                tracing::warn!(url = settings.scaleway, %error, "Scaleway does not answer");
            }
            Ok(Err(_)) | Err(_) => {}
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            Some(ended) = tasks.join_next() => match ended {
                Ok(result) => result?,
                Err(error) => return Err(MacsError::machine("running a Mac")(error.into())),
            }
        }
    }
}

async fn follow(
    settings: &MacsSettings,
    fleet: &Fleet,
    tasks: &mut JoinSet<Result<(), MacsError>>,
    account: Account,
) -> Result<(), MacsError> {
    let keys = Arc::new(account.keys);
    let there: BTreeSet<ServerId> = account.macs.iter().map(|seen| seen.id.clone()).collect();
    for seen in account.macs {
        let id = seen.id.clone();
        let known = fleet.with(|macs| {
            let mac = macs.get_mut(&id)?;
            mac.name.clone_from(&seen.name);
            Some(mac.orders.clone())
        });
        let orders = if let Some(orders) = known {
            orders
        } else {
            let (host, handle) = Host::new(settings, seen.clone()).await?;
            let orders = handle.orders.clone();
            tasks.spawn(host.live());
            fleet.with(|macs| macs.insert(id, handle));
            orders
        };
        // One that has just ended is told by its task.
        let _ = orders.send(Order::Follow(Box::new(seen), keys.clone()));
    }
    // Without its handle a Mac has nobody to obey, and ends.
    fleet.with(|macs| macs.retain(|id, _| there.contains(id)));
    Ok(())
}

async fn look(url: &str) -> io::Result<Account> {
    let place = url.trim_start_matches("http://").trim_end_matches('/');
    let stream = TcpStream::connect(place).await?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get("/sim/macs").header("Host", place).body(Empty::<Bytes>::new());
    let request = request.map_err(io::Error::other)?;
    let exchange = async {
        let answer = sender.send_request(request).await.map_err(io::Error::other)?;
        let body = Limited::new(answer.into_body(), LIMIT_BYTES);
        body.collect().await.map_err(io::Error::other)
    };
    let body = tokio::select! {
        body = exchange => body?.to_bytes(),
        _ = connection => return Err(io::ErrorKind::ConnectionAborted.into()),
    };
    serde_json::from_slice(&body).map_err(io::Error::other)
}
