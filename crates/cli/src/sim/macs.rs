//! `applecart sim macs`: a Mac to log in to for every host of a simulated Scaleway.

use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use applecart_sim::macs::{self, KeysCome, MacsSettings};
use clap::ValueEnum;
use tokio::net::TcpListener;

/// Makes a file system in memory where tools and disks are, then goes on as what follows.
const INSIDE: &str = r#"mount -t tmpfs -o mode=0700 applecart-macs "$1" && shift && exec "$@""#;

pub(super) const EXAMPLES: &str = "\
Examples, each in a terminal of its own, as root:

  applecart sim scaleway --listen 127.0.0.1:8080 --hosts 3 --first-address 127.77.0.1
  applecart sim macs --scaleway http://127.0.0.1:8080 --ssh-port 2222 --speed 10

  export SCW_API_URL=…                 # paste what the first one printed: register a key with any
                                       # client, and log in
  ssh -p 2222 m1@127.77.0.1

  applecart sim tart-archive tart.tar.gz   # the stand-in for Tart that a bootstrap can unpack
  applecart sim tailscale-archive tailscale.tar.gz             # and those for Tailscale's programs
";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Where `applecart sim scaleway` answers, such as `http://127.0.0.1:8080`.
    #[arg(long, value_name = "URL")]
    scaleway: String,
    /// Where to listen for levers; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// The port of every Mac's SSH server, on its host's own address.
    #[arg(long, default_value_t = 22)]
    ssh_port: u16,
    /// A tart-kubelet for this computer, which a Mac's launchd starts in place of the file that a
    /// bootstrap put there.
    #[arg(long, value_name = "PATH")]
    agent: Option<PathBuf>,
    /// How many times as fast as real ones VMs are fetched, cloned, booted and done.
    #[arg(long, default_value_t = 1.0)]
    speed: f64,
    /// How long a VM works after it has booted, in seconds; then it ends with code 0. Without it, a
    /// VM works until a lever ends it.
    #[arg(long, value_name = "SECONDS")]
    job_seconds: Option<u64>,
    /// The size of each Mac's disk, in megabytes of this computer's memory as they are used.
    #[arg(long, default_value_t = 1024)]
    disk_mb: u64,
    /// When the project's SSH keys come to a Mac.
    #[arg(long, value_enum, default_value_t = Keys::AtOnce)]
    keys: Keys,
    /// Set by this command itself, once it is in a namespace of its own.
    #[arg(long, hide = true)]
    inside: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Keys {
    /// As soon as they are registered.
    AtOnce,
    /// With the first boot after a delivery or a wipe, as with the real service.
    FirstBoot,
}

/// Runs them until interrupted.
pub(super) async fn run(args: Args) -> anyhow::Result<()> {
    if !(args.speed.is_finite() && args.speed > 0.0) {
        bail!("--speed {}: a speed is a number greater than 0", args.speed);
    }
    if let Some(agent) = args.agent.as_ref().filter(|agent| !agent.is_file()) {
        bail!("--agent {}: there is no such file", agent.display());
    }
    if !args.inside {
        macs::probe().await?;
        return Err(go_inside()).context("cannot start in a namespace of its own");
    }
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "export APPLECART_SIM_MACS=http://{}", listener.local_addr()?)?;
    out.flush()?;
    drop(out);
    let settings = MacsSettings {
        scaleway: args.scaleway,
        agent: args.agent,
        ssh_port: args.ssh_port,
        speed: args.speed,
        job: args.job_seconds.map(Duration::from_secs),
        disk_mb: args.disk_mb,
        keys: match args.keys {
            Keys::AtOnce => KeysCome::AtOnce,
            Keys::FirstBoot => KeysCome::AtFirstBoot,
        },
        clock: crate::system_clock(),
    };
    tokio::select! {
        never = macs::run(settings, listener) => match never? {},
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    }
}

/// Becomes the same command in a mount namespace of its own: what it mounts is gone with it.
fn go_inside() -> std::io::Error {
    let program = match std::env::current_exe() {
        Ok(program) => program,
        Err(error) => return error,
    };
    std::process::Command::new("unshare")
        .args(["--mount", "--propagation", "private", "--", "/bin/sh", "-c", INSIDE, "sh"])
        .arg(macs::WORKSHOP)
        .arg(program)
        .args(std::env::args_os().skip(1))
        .arg("--inside")
        .exec()
}
