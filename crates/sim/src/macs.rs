//! A real Mac to log in to, as far as a client can tell, for every host of a simulated Scaleway.
//!
//! Each has a real OpenSSH server on the host's own loopback address, in a mount and process
//! namespace of its own with its own disk, a real shell, and macOS's tools on its path. Those ask
//! the one model of a Mac ([`crate::mac`]), which works on the same files. Its launchd starts a
//! real agent, whose `tart` is the simulated one ([`crate::tart`]).
//!
//! # Guarantees
//! - Nothing in a Mac can write to this machine's files or see its processes: its root is its own
//!   disk, this machine's programs are read-only in it, and root there has no right that reaches
//!   further. Its network is this machine's: it has to reach an API server.
//! - All of it ends with this process, however that ends: disks are in memory, in a mount namespace
//!   that nobody else is in.

mod disk;
mod follow;
mod host;
mod levers;
mod process;
mod sandbox;
mod socket;
mod tailnet;
mod tart;
mod tool;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::sync::mpsc;

use crate::mac::SimMac;
use crate::tart::SimTart;

pub use levers::LEVERS;
pub use tailnet::archive as tailscale_archive;
pub use tart::archive;
pub use tool::run as run_tool;

use host::Order;

/// Where tools and disks are, in a mount namespace of this process alone.
pub const WORKSHOP: &str = "/mnt";

/// macOS's tools that ask the model.
const TOOLS: [&str; 12] = [
    "codesign",
    "defaults",
    "killall",
    "launchctl",
    "pfctl",
    "pmset",
    "scutil",
    "stat",
    "sudo",
    "sysctl",
    "visudo",
    "tart-stand-in",
];

/// `shasum` as far as anybody here uses it, by a program that every Linux has.
const SHASUM: &str = "#!/bin/sh
if [ \"$1 $2\" != '-a 256' ]; then echo 'shasum: only -a 256 here' >&2; exit 64; fi
shift 2
exec sha256sum \"$@\"
";

/// `pgrep`: real processes for our own commands and the exporter, unless the model has trouble with
/// them; the model for VMs.
const PGREP: &str = "#!/bin/sh
ask() { /.applecart/tools/tool sim mac-tool pgrep \"$@\"; }
case \"$*\" in
  *pplecart-command* | *ode_exporter*)
    status=0
    ask \"$@\" >/dev/null || status=$?
    if [ \"$status\" -gt 1 ]; then exit \"$status\"; fi
    exec /usr/bin/pgrep \"$@\"
    ;;
esac
ask \"$@\"
";

/// `curl`: no Mac fetches anything from anywhere.
const CURL: &str = include_str!("macs/curl.sh");

/// How simulated Macs are run.
#[derive(Clone, Debug)]
pub struct MacsSettings {
    /// Where the simulated Scaleway answers, such as `http://127.0.0.1:8080`.
    pub scaleway: String,
    /// The agent to start instead of the file that a bootstrap put on the Mac.
    pub agent: Option<PathBuf>,
    /// The port of every SSH server.
    pub ssh_port: u16,
    /// How many times as fast as real ones their VMs are.
    pub speed: f64,
    /// How long a VM works after it has booted; `None`: until a lever ends it.
    pub job: Option<Duration>,
    /// The size of each disk, in megabytes of this machine's memory as they are used.
    pub disk_mb: u64,
    /// When the project's keys come to a Mac.
    pub keys: KeysCome,
    /// What dates things.
    pub clock: Clock,
}

/// When the project's SSH keys come to a Mac.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeysCome {
    /// As soon as they are registered.
    #[default]
    AtOnce,
    /// With the first boot after a delivery or a wipe, as with the real service.
    AtFirstBoot,
}

/// Why the Macs could not go on.
#[derive(Debug, thiserror::Error)]
pub enum MacsError {
    /// A program of this machine did not do what it must.
    #[error("{doing}: {said}")]
    Failed {
        /// What it was for.
        doing: String,
        /// What it said.
        said: String,
    },
    /// This machine did not let us.
    #[error("{doing}")]
    Machine {
        /// What we tried.
        doing: String,
        /// What it said.
        #[source]
        source: io::Error,
    },
    /// A host's address is not one of this machine's own.
    #[error(
        "host {name} has the address {address}, which is not one of this machine's own: start \
         `applecart sim scaleway` with --first-address 127.77.0.1"
    )]
    NotLoopback {
        /// The host's name.
        name: String,
        /// Its address.
        address: Ipv4Addr,
    },
}

impl MacsError {
    fn machine(doing: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let doing = doing.into();
        move |source| Self::Machine { doing, source }
    }
}

/// What others need of a running Mac.
#[derive(Clone)]
struct Handle {
    name: String,
    address: Ipv4Addr,
    mac: SimMac,
    tart: SimTart,
    orders: mpsc::UnboundedSender<Order>,
}

/// All Macs that run.
#[derive(Clone, Default)]
struct Fleet(Arc<Mutex<BTreeMap<ServerId, Handle>>>);

impl Fleet {
    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<ServerId, Handle>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Whether this machine lets us make namespaces; if not, what to do.
pub async fn probe() -> Result<(), MacsError> {
    let arguments =
        ["--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "true"];
    run_program("unshare", &arguments).await.map_err(|error| MacsError::Failed {
        doing: "simulated Macs need namespaces of their own".to_owned(),
        said: format!(
            "run this as root, where `unshare --mount --pid --fork true` works ({error})"
        ),
    })?;
    for (program, package) in [("sshd", "openssh-server"), ("ssh-keygen", "openssh-client")] {
        if find(program).is_none() {
            let said = format!("install the package {package}");
            return Err(MacsError::Failed { doing: format!("there is no {program} here"), said });
        }
    }
    Ok(())
}

/// A program on the path, or where servers are kept.
fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Runs the Macs, and their levers on `listener`, until dropped. Must be in a mount namespace of
/// its own, with [`WORKSHOP`] empty and writable.
pub async fn run(settings: MacsSettings, listener: TcpListener) -> Result<Infallible, MacsError> {
    make_tools(&settings).await?;
    let fleet = Fleet::default();
    let levers = levers::serve(listener, fleet.clone());
    tokio::select! {
        served = levers => served.map_err(MacsError::machine("listening for levers")),
        followed = follow::run(&settings, &fleet) => followed,
    }
}

/// Makes the tools that all Macs share. The one program behind them may make itself root, for
/// `sudo`; nobody outside of the Macs can get at it.
async fn make_tools(settings: &MacsSettings) -> Result<(), MacsError> {
    let tools = Path::new(WORKSHOP).join("tools");
    let made = async {
        tokio::fs::create_dir_all(tools.join("bin")).await?;
        tokio::fs::copy(std::env::current_exe()?, tools.join("tool")).await?;
        tokio::fs::set_permissions(tools.join("tool"), PermissionsExt::from_mode(0o4755)).await?;
        for name in TOOLS {
            let text =
                format!("#!/bin/sh\nexec /.applecart/tools/tool sim mac-tool {name} \"$@\"\n");
            write_program(&tools.join("bin").join(name), &text).await?;
        }
        write_program(&tools.join("bin/curl"), CURL).await?;
        write_program(&tools.join("bin/pgrep"), PGREP).await?;
        write_program(&tools.join("bin/shasum"), SHASUM).await
    };
    made.await.map_err(MacsError::machine("making the Macs' tools"))?;
    if let Some(agent) = &settings.agent {
        let place = tools.join("agent");
        tokio::fs::write(&place, "").await.map_err(MacsError::machine("placing the agent"))?;
        let (from, to) = (agent.display().to_string(), place.display().to_string());
        run_program("mount", &["--bind", &from, &to]).await?;
    }
    Ok(())
}

async fn write_program(path: &Path, text: &str) -> io::Result<()> {
    tokio::fs::write(path, text).await?;
    tokio::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).await
}

/// Runs a program of this machine that has to succeed.
async fn run_program(program: &str, arguments: &[&str]) -> Result<(), MacsError> {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).kill_on_drop(true).output().await;
    let doing = format!("`{program} {}`", arguments.join(" "));
    let output = output.map_err(MacsError::machine(doing.clone()))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(MacsError::Failed { doing, said })
}
