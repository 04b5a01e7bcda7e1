//! The socket between a Mac's tools and its model: one request a connection, a line each way.

use applecart_mac::MacError;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::tart;
use crate::mac::{SimMac, Sudo};
use crate::tart::SimTart;

/// Longer than any command line that anybody sends.
const LIMIT_BYTES: u64 = 256 * 1024;

/// What a tool asks.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// To be run.
    Tool {
        /// Its name and arguments.
        words: Vec<String>,
        /// Whether root runs it.
        as_root: bool,
    },
    /// Whether the user may be root.
    Sudo {
        /// The user's password, if it was asked for.
        password: Option<String>,
        /// What for.
        what: String,
    },
}

/// What the model says.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Reply {
    /// The tool ended.
    Ended { status: i32, stdout: String, stderr: String },
    /// What sudo says.
    Sudo(Admission),
}

/// What sudo says, on the wire.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Admission {
    Allowed,
    NeedsPassword(String),
    Refused(String),
}

/// Answers tools until dropped.
pub(super) async fn serve(listener: UnixListener, mac: SimMac, tart: SimTart) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                connections.spawn(converse(stream, mac.clone(), tart.clone()));
            },
            Some(_) = connections.join_next() => {}
        }
    }
}

/// A tool that gets no answer ends as one whose Mac has lost its power.
async fn converse(stream: UnixStream, mac: SimMac, tart: SimTart) {
    let (read, mut write) = stream.into_split();
    let mut read = BufReader::new(read.take(LIMIT_BYTES));
    let mut line = String::new();
    let Ok(1..) = read.read_line(&mut line).await else { return };
    let Ok(request) = serde_json::from_str(&line) else { return };
    let answer = tokio::select! {
        answer = answer(request, &mac, &tart) => answer,
        // Its process is gone, and what it runs with it.
        _ = read.read_u8() => return,
    };
    if let Ok(reply) = answer
        && let Ok(text) = serde_json::to_string(&reply)
    {
        // A process that does not wait for its answer does not want it.
        let _ = write.write_all(format!("{text}\n").as_bytes()).await;
    }
}

async fn answer(request: Request, mac: &SimMac, tart: &SimTart) -> Result<Reply, MacError> {
    let (words, as_root) = match request {
        Request::Tool { words, as_root } => (words, as_root),
        Request::Sudo { password, what } => {
            return Ok(Reply::Sudo(match mac.sudo(password, &what).await? {
                Sudo::Allowed => Admission::Allowed,
                Sudo::NeedsPassword(complaint) => Admission::NeedsPassword(complaint),
                Sudo::Refused(said) => Admission::Refused(said),
            }));
        }
    };
    let output = match words.split_first() {
        Some((name, arguments)) if name == tart::NAME => tart::run(tart, mac, arguments).await,
        _ => mac.tool(&words, as_root).await?,
    };
    Ok(Reply::Ended {
        status: output.status,
        stdout: output.text(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}
