//! The real twin of a Mac: OpenSSH's protocol, by key only, to a host whose key is pinned.

mod ending;
mod key;
mod pace;

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use russh::client::{AuthResult, Config, Handle, Handler};
use russh::keys::{Algorithm, EcdsaCurve, HashAlg, PrivateKeyWithHashAlg, PublicKeyOrCertificate};
use russh::{ChannelMsg, ChannelWriteHalf, Preferred};
use tokio::time::{Instant, sleep, timeout};

use ending::{Endings, Running};
pub use key::{KeyPair, public_key};
use pace::Pace;

use crate::{
    Answer, Command, Dial, File, HostKey, Input, Mac, MacError, Output, Payload, Privilege, Script,
    Session, Target,
};

/// How long a host may take to answer, with key exchange and login: a busy Mac needs a few seconds.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);

/// The least time between two dials of one host: more often, and we are part of what keeps it busy.
const DIAL_EVERY: Duration = Duration::from_secs(2);

/// How long a host that does not answer is left alone, at first and at most.
const WAIT_FIRST: Duration = Duration::from_secs(2);
const WAIT_LONGEST: Duration = Duration::from_secs(30);

/// What the last dials get where less of the patience is left: a host that answers needs that long.
const LEAST_DIAL: Duration = Duration::from_secs(3);

/// How often a silent connection is asked whether it is still there; three silences end it.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(15);

/// The most that anything we run or read may print.
const OUTPUT_LIMIT_BYTES: usize = 1024 * 1024;

/// How long a read of a file may take: they are small.
const READ_TIMEOUT: Duration = Duration::from_mins(1);

/// How long a write of a file may take: they are small too.
const WRITE_TIMEOUT: Duration = Duration::from_mins(2);

/// The status with which [`READ`] says: no such file.
const STATUS_ABSENT: i32 = 44;

/// Prints file `$1`.
pub(crate) const READ: Script =
    Script { name: "read a file", text: r#"if [ -e "$1" ]; then exec cat "$1"; else exit 44; fi"# };

/// Puts stdin, of `$4` bytes, in place as file `$1` of owner `$2` and mode `$3`.
pub(crate) const WRITE: Script = Script {
    name: "write a file",
    text: r#"set -eu
umask 022
mkdir -p "$(dirname "$1")"
umask 077
rm -f "$1".applecart.??????
staged=$(mktemp "$1.applecart.XXXXXX")
trap 'rm -f "$staged"' EXIT
cat >"$staged"
if [ $(($(wc -c <"$staged"))) -ne "$4" ]; then echo "arrived cut off" >&2; exit 1; fi
chown "$2" "$staged"
chmod "$3" "$staged"
mv -f "$staged" "$1"
"#,
};

/// Dials Macs over SSH. Clones share what they know of each other's dials.
///
/// It outlives its sessions: what they leave running on a host, it ends.
#[derive(Clone, Debug)]
pub struct Ssh {
    connect_timeout: Duration,
    dial_every: Duration,
    keepalive_every: Duration,
    pace: Arc<Pace>,
    endings: Arc<Endings>,
}

impl Default for Ssh {
    fn default() -> Self {
        Self {
            connect_timeout: CONNECT_TIMEOUT,
            dial_every: DIAL_EVERY,
            keepalive_every: KEEPALIVE_EVERY,
            pace: Arc::default(),
            endings: Arc::default(),
        }
    }
}

impl Ssh {
    /// The same, where a host may take this long for each of: connecting, logging in, opening a
    /// channel.
    #[must_use]
    pub fn connect_timeout(self, connect_timeout: Duration) -> Self {
        Self { connect_timeout, ..self }
    }

    /// The same, where a silent connection is asked this often whether it is still there.
    #[must_use]
    pub fn keepalive_every(self, keepalive_every: Duration) -> Self {
        Self { keepalive_every, ..self }
    }
}

/// Dials until the host answers, or `patience` ends: at its end for the last time. Only silence is
/// waited out: whoever refuses us will refuse us again. No dial outlasts the patience, but that
/// each gets three seconds.
pub async fn wait_for_ssh(
    dial: &dyn Dial,
    target: &Target,
    patience: Duration,
) -> Result<Session, MacError> {
    let began = Instant::now();
    let left = || patience.saturating_sub(began.elapsed());
    let mut wait = WAIT_FIRST;
    loop {
        let (limit, is_last) = (left().max(LEAST_DIAL), left().is_zero());
        let dialled = timeout(limit, dial.dial(target)).await;
        let source = match dialled {
            Ok(Err(MacError::Unreachable { source, .. })) => source,
            Ok(other) => return other,
            Err(_) => None,
        };
        if is_last || left().is_zero() && source.is_none() {
            let address = format!("{}:{}", target.address, target.port);
            let within = began.elapsed();
            return Err(MacError::Unreachable { address, within, source });
        }
        // Whoever says nothing is not asked at the very end, but as long before it as that takes.
        let spare = if source.is_none() { LEAST_DIAL } else { Duration::ZERO };
        sleep(wait.min(left().saturating_sub(spare))).await;
        wait = WAIT_LONGEST.min(wait * 2);
    }
}

impl Dial for Ssh {
    fn dial<'a>(&'a self, target: &'a Target) -> Answer<'a, Session> {
        Box::pin(async move {
            let session = SshSession::open(self, target).await?;
            let host_key = session.host_key.clone();
            Ok(Session { mac: Arc::new(session), host_key })
        })
    }
}

/// Looks at the host's key before anything is sent.
struct Gatekeeper {
    pinned: Option<HostKey>,
    seen: Arc<OnceLock<HostKey>>,
}

impl Handler for Gatekeeper {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        shown: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        let PublicKeyOrCertificate::PublicKey { key, .. } = shown else {
            return Ok(false);
        };
        let seen = HostKey(key.fingerprint(HashAlg::Sha256).to_string());
        let seen = self.seen.get_or_init(|| seen);
        Ok(self.pinned.as_ref().is_none_or(|pinned| pinned == seen))
    }
}

/// One connection to a Mac. Dropping it closes it.
pub struct SshSession {
    handle: Arc<Handle<Gatekeeper>>,
    endings: Arc<Endings>,
    host_key: HostKey,
    connect_timeout: Duration,
}

/// How one attempt to connect ended.
enum Attempt {
    Connected(Handle<Gatekeeper>, HostKey),
    /// The host showed another key than the pinned one; it may have the pinned one as well.
    OtherKey(HostKey),
}

impl SshSession {
    /// Connects and logs in.
    ///
    /// A Mac has several host keys, and which one it shows depends on what the client asks for: a
    /// pin may be of any of them, so each kind is asked for before the pin counts as broken.
    async fn open(ssh: &Ssh, target: &Target) -> Result<Self, MacError> {
        let within = ssh.connect_timeout;
        let address = format!("{}:{}", target.address, target.port);
        let key = key::parse(&target.key)?;
        let kinds = [Algorithm::Ed25519, Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 }];
        let mut other = None;
        let mut refused = None;
        ssh.pace.wait(&address, ssh.dial_every).await;
        for kind in kinds {
            match connect(ssh, target, &address, kind).await {
                Ok(Attempt::Connected(mut handle, host_key)) => {
                    log_in(within, &mut handle, target, &address, key).await?;
                    let (handle, endings) = (Arc::new(handle), ssh.endings.clone());
                    return Ok(Self { handle, endings, host_key, connect_timeout: within });
                }
                Ok(Attempt::OtherKey(seen)) => other = other.or(Some(seen)),
                Err(
                    error @ MacError::Protocol { source: russh::Error::NoCommonAlgo { .. }, .. },
                ) => {
                    refused = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        match (&target.pinned, other, refused) {
            (Some(pinned), Some(seen), _) => {
                Err(MacError::HostKeyChanged { address, pinned: pinned.clone(), seen })
            }
            (_, _, Some(error)) => Err(error),
            (_, _, None) => Err(MacError::Protocol { address, source: russh::Error::UnknownKey }),
        }
    }

    /// Runs `command` and collects what it prints. If it takes too long, or nobody waits for it any
    /// more, it is ended.
    async fn execute(&self, command: &Command) -> Result<Output, MacError> {
        let doing = command.describe();
        let unknown = |_| MacError::Unknown { doing: doing.clone() };
        let opened = timeout(self.connect_timeout, self.handle.channel_open_session()).await;
        let Ok(channel) = opened else {
            return Err(MacError::TimedOut { doing, after: self.connect_timeout });
        };
        let (read, write) = channel.map_err(unknown)?.split();
        let mut running = Running {
            handle: self.handle.clone(),
            endings: self.endings.clone(),
            read: Some(read),
            stderr: BytesMut::new(),
            group: None,
        };
        write.exec(false, sent_line(command)).await.map_err(unknown)?;
        let exchange = async {
            tokio::select! {
                biased;
                output = receive(&mut running, &doing) => output,
                // A command may end without reading all of its input: its end is what counts.
                source = send(&write, &command.stdin) => {
                    Err(MacError::Payload { doing: doing.clone(), source })
                }
            }
        };
        let after = command.timeout;
        let ended = timeout(after, exchange).await;
        let result = ended.unwrap_or_else(|_| Err(MacError::TimedOut { doing, after }));
        if let Ok(_) | Err(MacError::Unknown { .. }) = &result {
            running.over();
        }
        result
    }
}

async fn connect(
    ssh: &Ssh,
    target: &Target,
    address: &str,
    kind: Algorithm,
) -> Result<Attempt, MacError> {
    let within = ssh.connect_timeout;
    let seen = Arc::new(OnceLock::new());
    let gatekeeper = Gatekeeper { pinned: target.pinned.clone(), seen: seen.clone() };
    let config = Config {
        preferred: Preferred { key: Cow::Owned(vec![kind]), ..Preferred::default() },
        keepalive_interval: Some(ssh.keepalive_every),
        nodelay: true,
        ..Config::default()
    };
    let place = (target.address.as_str(), target.port);
    let connecting = russh::client::connect(Arc::new(config), place, gatekeeper);
    let unreachable =
        |source| MacError::Unreachable { address: address.to_owned(), within, source };
    let Ok(connected) = timeout(within, connecting).await else {
        return Err(unreachable(None));
    };
    match (connected, seen.get()) {
        (Ok(handle), Some(key)) => Ok(Attempt::Connected(handle, key.clone())),
        (Err(russh::Error::UnknownKey), Some(key)) => Ok(Attempt::OtherKey(key.clone())),
        (Err(russh::Error::IO(source)), _) => Err(unreachable(Some(source))),
        // A server that is still starting, or has too many at its door, takes us and hangs up.
        (Err(russh::Error::Disconnect | russh::Error::HUP), None) => {
            let said = "it closes the connection before it shows a key";
            Err(unreachable(Some(std::io::Error::new(std::io::ErrorKind::ConnectionReset, said))))
        }
        (Err(source), _) => Err(MacError::Protocol { address: address.to_owned(), source }),
        (Ok(_), None) => {
            let source = russh::Error::UnknownKey;
            Err(MacError::Protocol { address: address.to_owned(), source })
        }
    }
}

async fn log_in(
    within: Duration,
    handle: &mut Handle<Gatekeeper>,
    target: &Target,
    address: &str,
    key: russh::keys::PrivateKey,
) -> Result<(), MacError> {
    let user = target.user.to_string();
    // Only RSA has a choice of digests, and `key::parse` takes no RSA key.
    let key = PrivateKeyWithHashAlg::new(Arc::new(key), None);
    let login = timeout(within, handle.authenticate_publickey(&user, key)).await;
    match login {
        Ok(Ok(AuthResult::Success)) => Ok(()),
        Ok(Ok(AuthResult::Failure { .. })) => {
            Err(MacError::AuthRefused { user, address: address.to_owned() })
        }
        Ok(Err(source)) => Err(MacError::Protocol { address: address.to_owned(), source }),
        Err(_) => Err(MacError::Unreachable { address: address.to_owned(), within, source: None }),
    }
}

/// Sends all of `stdin` and its end, then waits for ever: errors of the line show in what is
/// received. Returns only if a payload cannot be read here; its end is not sent then, so that the
/// host does not take a part for the whole.
async fn send(write: &ChannelWriteHalf<russh::client::Msg>, stdin: &Input) -> std::io::Error {
    match stdin {
        Input::Hidden(bytes) => {
            let _ = write.data_bytes(bytes.expose().clone()).await;
        }
        Input::Payload(payload) => {
            if let Err(error) = send_pieces(write, payload).await {
                return error;
            }
        }
    }
    let _ = write.eof().await;
    std::future::pending().await
}

/// Sends a payload as fast as the host takes it: what is on its way is one window of SSH.
async fn send_pieces(
    write: &ChannelWriteHalf<russh::client::Msg>,
    payload: &Payload,
) -> std::io::Result<()> {
    let mut pieces = payload.pieces().await?;
    while let Some(piece) = pieces.next().await? {
        if write.data_bytes(piece).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Collects output until the channel closes. Closing without a status is no answer.
async fn receive(running: &mut Running, doing: &str) -> Result<Output, MacError> {
    let (mut stdout, mut status) = (BytesMut::new(), None);
    while let Some(message) = running.next().await {
        match message {
            ChannelMsg::Data { data } => stdout.extend_from_slice(&data),
            ChannelMsg::ExtendedData { data, .. } => running.complains(&data),
            ChannelMsg::ExitStatus { exit_status } => {
                status = Some(i32::try_from(exit_status).unwrap_or(i32::MAX));
            }
            ChannelMsg::ExitSignal { .. } => status = Some(128),
            _ => {}
        }
        if stdout.len() + running.stderr.len() > OUTPUT_LIMIT_BYTES {
            let (doing, limit_bytes) = (doing.to_owned(), OUTPUT_LIMIT_BYTES);
            return Err(MacError::TooMuchOutput { doing, limit_bytes });
        }
    }
    let status = status.ok_or_else(|| MacError::Unknown { doing: doing.to_owned() })?;
    let stderr = std::mem::take(&mut running.stderr).freeze();
    Ok(Output { status, stdout: stdout.freeze(), stderr })
}

impl Mac for SshSession {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        Box::pin(async move {
            let output = self.execute(&reading(path)).await?;
            match output.status {
                0 => Ok(Some(output.stdout)),
                STATUS_ABSENT => Ok(None),
                _ => Err(refused(format!("reading {path}"), &output)),
            }
        })
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        Box::pin(async move {
            let output = self.execute(&writing(file)).await?;
            if output.success() {
                Ok(())
            } else {
                Err(refused(format!("writing {}", file.path), &output))
            }
        })
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        Box::pin(self.execute(command))
    }
}

/// The command that reads a file over SSH.
#[must_use]
pub fn reading(path: &str) -> Command {
    Command::script(READ, &[path], Privilege::Root).timeout(READ_TIMEOUT)
}

/// The command that writes a file over SSH.
#[must_use]
pub fn writing(file: &File) -> Command {
    let content = file.content.expose();
    let (owner, mode) = (file.owner.to_string(), format!("{:o}", file.mode));
    let size = content.len().to_string();
    let arguments = [file.path.as_str(), &owner, &mode, &size];
    let write = Command::script(WRITE, &arguments, Privilege::Root);
    write.stdin(content.clone()).timeout(WRITE_TIMEOUT)
}

/// The line that is sent for a command, before what it reads.
#[must_use]
pub fn sent_line(command: &Command) -> String {
    ending::marked(&command.line())
}

fn refused(doing: String, output: &Output) -> MacError {
    MacError::Refused { doing, status: output.status, stderr: output.complaint() }
}

#[cfg(test)]
mod tests;
