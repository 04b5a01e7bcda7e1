//! The edge to a Mac: three verbs, and how to get at them. The real twin is [`crate::Ssh`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use secrecy::SecretString;

use crate::{Command, Hidden, Output, UserName};

/// What every verb returns: a future that can be boxed, so that a Mac can be a trait object.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = Result<T, MacError>> + Send + 'a>>;

/// A Mac, as one connection to it.
///
/// `read` and `write` act as root through passwordless sudo. No call outlives its time-out.
pub trait Mac: Send + Sync {
    /// The content of a file. `None`: certainly no such file; everything else is an error.
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>>;

    /// Puts a file in place as a whole, with its folders: whoever looks sees the old file or the
    /// new one, with its owner and mode, and the new one is a new inode.
    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()>;

    /// Runs a command to its end. A non-zero exit is an [`Output`], not an error.
    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output>;
}

impl<M: Mac + ?Sized> Mac for &M {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        (**self).read(path)
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        (**self).write(file)
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        (**self).run(command)
    }
}

/// Gets a connection to a Mac.
pub trait Dial: Send + Sync {
    /// Connects and authenticates, once. A host key that is not the pinned one is refused before
    /// anything is sent; without a pin, the key seen comes back and is the caller's to keep.
    fn dial<'a>(&'a self, target: &'a Target) -> Answer<'a, Session>;
}

/// Where a Mac is, and who we are there.
#[derive(Clone, Debug)]
pub struct Target {
    /// Host name or IP address.
    pub address: String,
    /// TCP port of its SSH server.
    pub port: u16,
    /// The account to log in to.
    pub user: UserName,
    /// The private key, as OpenSSH writes it. The only way in: no passwords, no agent.
    pub key: SecretString,
    /// The host key of the first contact since the host's last wipe.
    pub pinned: Option<HostKey>,
}

/// A connection, and the key that the host showed for it.
pub struct Session {
    /// The Mac.
    pub mac: Arc<dyn Mac>,
    /// The key seen, equal to the pinned one if there was one. Kept even if the bootstrap fails.
    pub host_key: HostKey,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").field("host_key", &self.host_key).finish_non_exhaustive()
    }
}

/// A host key's fingerprint as OpenSSH prints it: `SHA256:` and 43 characters.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostKey(pub String);

impl fmt::Display for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whose a file is: `user:group`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The user's name.
    pub user: String,
    /// The group's name.
    pub group: String,
}

impl Owner {
    /// `root:wheel`, the owner of everything that is not the agent's.
    #[must_use]
    pub fn root() -> Self {
        Self { user: "root".to_owned(), group: "wheel".to_owned() }
    }

    /// `<user>:staff`, the owner of what the agent uses.
    #[must_use]
    pub fn staff(user: &UserName) -> Self {
        Self { user: user.to_string(), group: "staff".to_owned() }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.user, self.group)
    }
}

/// A file as it shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its absolute path.
    pub path: String,
    /// All of its content.
    pub content: Hidden,
    /// Its owner and group.
    pub owner: Owner,
    /// Its permission bits.
    pub mode: u32,
}

/// Why a Mac did not answer as asked. None of these carries a secret.
#[derive(Debug, thiserror::Error)]
pub enum MacError {
    /// Nobody answered: never connected, nothing was sent.
    #[error("cannot reach {address}{}", waited(*.within, .source.as_ref()))]
    Unreachable {
        /// Address and port that were tried.
        address: String,
        /// How long.
        within: Duration,
        /// What the network said, if it said anything.
        #[source]
        source: Option<std::io::Error>,
    },
    /// What answered does not speak SSH as we do.
    #[error("{address} answers, but not with an SSH session")]
    Protocol {
        /// Address and port that were tried.
        address: String,
        /// What went wrong.
        #[source]
        source: russh::Error,
    },
    /// The host does not know our key.
    #[error("{user}@{address} refused the SSH key")]
    AuthRefused {
        /// The account.
        user: String,
        /// Address and port that were tried.
        address: String,
    },
    /// The host shows another key than at first contact. Nothing was sent.
    #[error("the host key of {address} is {seen}, but {pinned} is pinned")]
    HostKeyChanged {
        /// Address and port that were tried.
        address: String,
        /// The key of first contact.
        pinned: HostKey,
        /// The key shown now.
        seen: HostKey,
    },
    /// Our own private key is not one.
    #[error("the private SSH key cannot be read")]
    BadKey(#[source] russh::keys::Error),
    /// Our own private key is locked with a passphrase, which nobody gives us.
    #[error(
        "the private SSH key is encrypted: give a copy without passphrase, as \
         `ssh-keygen -p -N '' -f <copy>` makes it"
    )]
    EncryptedKey,
    /// Our own private key is of a kind that we cannot sign with.
    #[error("the private SSH key is an RSA key: give an Ed25519 or ECDSA one")]
    RsaKey,
    /// The connection was lost after something was sent: it may have happened.
    #[error("lost the connection during {doing}: it may or may not have happened")]
    Unknown {
        /// What was under way.
        doing: String,
    },
    /// No end within the time-out: it may have happened, and may still be running.
    #[error("{doing} did not end within {} s", .after.as_secs())]
    TimedOut {
        /// What was under way.
        doing: String,
        /// The limit.
        after: Duration,
    },
    /// A read or write was refused by the host.
    #[error("{doing} ended with status {status}: {stderr}")]
    Refused {
        /// What was tried.
        doing: String,
        /// The exit status.
        status: i32,
        /// What the host said; shortened in what a bootstrap returns.
        stderr: String,
    },
    /// What was to be sent could not be read here.
    #[error("could not read what was to be sent during {doing}")]
    Payload {
        /// What was under way.
        doing: String,
        /// What went wrong.
        #[source]
        source: std::io::Error,
    },
    /// More output than anything that we run may print.
    #[error("{doing} printed more than {limit_bytes} bytes")]
    TooMuchOutput {
        /// What was under way.
        doing: String,
        /// The limit.
        limit_bytes: usize,
    },
}

/// How long a silent host was waited for; one that said no was not waited for.
fn waited(within: Duration, said: Option<&std::io::Error>) -> String {
    said.map_or_else(|| format!(" within {} s", within.as_secs()), |_| String::new())
}
