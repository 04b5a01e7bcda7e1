//! `applecart sim`: a simulated outside world, for real clients to be pointed at.

mod macs;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use applecart_api::ids::Zone;
use applecart_sim::scaleway::{
    Durations, HostSpec, Question, Scaleway, Settings, Unsure, levers, server_types,
};
use clap::Subcommand;
use clap::builder::PossibleValuesParser;
use tokio::net::TcpListener;

/// The most hosts of one account: ten times what anybody rents, and still at hand in a second.
const MOST_HOSTS: usize = 10_000;

fn hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(hosts @ 0..=MOST_HOSTS) => Ok(hosts),
        _ => Err(format!("a number of hosts from 0 to {MOST_HOSTS}, such as 12")),
    }
}

/// Runs a part of the outside world on this computer.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    world: World,
}

#[derive(Debug, Subcommand)]
enum World {
    /// A Scaleway: the Apple silicon API and the IAM SSH keys. Prints the environment to export, so
    /// that any client of the real one can be pointed at it, and answers until it is interrupted.
    #[command(after_long_help = format!(
        "Questions for --unsure, with their answers, the default first:\n\n{}\n\
         Levers, at that address and without a key:\n\n{}",
        questions(),
        levers()
    ))]
    Scaleway(ScalewayArgs),
    /// A Mac for every host of a simulated Scaleway: a real SSH server, a real shell, macOS's
    /// tools, and a real agent started by its launchd, each in namespaces of its own. Needs Linux
    /// and root; prints where its levers are, and runs until it is interrupted.
    #[command(after_long_help = format!(
        "Levers, at the address that it prints:\n\n{}\n{}",
        applecart_sim::macs::LEVERS, macs::EXAMPLES
    ))]
    Macs(macs::Args),
    /// Writes an archive with the stand-in for Tart, for a bootstrap of a simulated Mac to unpack.
    TartArchive {
        /// What `tart --version` will print.
        #[arg(long = "tart-version", default_value = "2.32.1")]
        version: String,
        /// Where to write it, such as tart.tar.gz.
        file: PathBuf,
    },
    /// Writes an archive with the stand-ins for Tailscale's command and daemon, for a bootstrap of
    /// a simulated Mac to unpack.
    TailscaleArchive {
        /// Where to write it, such as tailscale.tar.gz.
        file: PathBuf,
    },
    /// What a simulated Mac's tools are.
    #[command(hide = true)]
    MacTool {
        name: String,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct ScalewayArgs {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// How many hosts are in the pool from the start.
    #[arg(long, default_value_t = 0, value_parser = hosts)]
    hosts: usize,
    /// What the names of those hosts begin with.
    #[arg(long, default_value = "tuist-pool-")]
    pool_prefix: String,
    /// What kind of server they are.
    #[arg(long = "type", default_value = "M2-L",
          value_parser = PossibleValuesParser::new(server_types()))]
    server_type: String,
    /// What they were delivered with, such as macos-tahoe-26.0; their kind's own image if not
    /// given.
    #[arg(long, value_name = "IMAGE")]
    os: Option<String>,
    /// Where they stand.
    #[arg(long, default_value = "fr-par-1")]
    zone: Zone,
    /// Ids, addresses and passwords come from it: same seed, same world.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The address of the first host; the others follow it. `applecart sim macs` needs one of this
    /// computer's own, such as 127.77.0.1.
    #[arg(long, default_value = "198.18.0.1")]
    first_address: Ipv4Addr,
    /// How long a delivery takes, in seconds.
    #[arg(long, default_value_t = 130)]
    starting_seconds: u64,
    /// The same with another image than the kind's own, in seconds.
    #[arg(long, default_value_t = 3600)]
    starting_other_os_seconds: u64,
    /// How long a power cycle takes, in seconds.
    #[arg(long, default_value_t = 105)]
    rebooting_seconds: u64,
    /// How long a wipe takes, in seconds.
    #[arg(long, default_value_t = 1200)]
    reinstalling_seconds: u64,
    /// How long switching the private network on or off takes, in seconds.
    #[arg(long, default_value_t = 20)]
    vpc_updating_seconds: u64,
    /// The licensing floor: from an order to the first moment of a deletion, in seconds.
    #[arg(long, default_value_t = 86_400)]
    floor_seconds: u64,
    /// The largest page of a list.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..))]
    max_page_size: u16,
    /// How many of a kind the project may have in a zone, such as M4-M=2; may be repeated.
    #[arg(long, value_name = "TYPE=COUNT")]
    quota: Vec<String>,
    /// Answers a question that the real service's documentation leaves open, such as
    /// `gone=not_found` or `default_page_size=50`; may be repeated. The questions are below.
    #[arg(long, value_name = "QUESTION=ANSWER")]
    unsure: Vec<String>,
}

/// Runs it until it is interrupted.
pub async fn run(args: Args) -> anyhow::Result<()> {
    match args.world {
        World::Scaleway(args) => scaleway(args).await,
        World::Macs(args) => macs::run(args).await,
        World::TartArchive { version, file } => applecart_sim::macs::archive(&version, &file)
            .with_context(|| format!("cannot write {}", file.display())),
        World::TailscaleArchive { file } => applecart_sim::macs::tailscale_archive(&file)
            .with_context(|| format!("cannot write {}", file.display())),
        World::MacTool { name, arguments } => {
            std::process::exit(applecart_sim::macs::run_tool(&name, &arguments))
        }
    }
}

async fn scaleway(args: ScalewayArgs) -> anyhow::Result<()> {
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let url = format!("http://{}", listener.local_addr()?);
    let scaleway = Scaleway::new(settings(&args)?, crate::system_clock());
    pre_order(&scaleway, &args)?;
    let mut out = std::io::stdout().lock();
    for (name, value) in scaleway.environment(&url, &args.zone) {
        writeln!(out, "export {name}={value}")?;
    }
    writeln!(out, "# The levers: curl $SCW_API_URL/sim/. The end: Ctrl-C.")?;
    out.flush()?;
    drop(out);
    tokio::select! {
        never = scaleway.serve(listener) => match never {},
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    }
}

/// Puts the hosts into the pool. That there can be such hosts is checked even if none is asked for:
/// the flags say what later ones are like.
fn pre_order(scaleway: &Scaleway, args: &ScalewayArgs) -> anyhow::Result<()> {
    let spec = |name: String| HostSpec {
        server_type: args.server_type.clone(),
        zone: args.zone.clone(),
        os: args.os.clone(),
        ..HostSpec::named(name)
    };
    let refused = |problem| anyhow!("no host with that --type, --zone and --os: {problem}");
    scaleway.could_order(&spec(args.pool_prefix.clone())).map_err(refused)?;
    for number in 1..=args.hosts {
        let name = format!("{}{number}", args.pool_prefix);
        scaleway.try_order(&spec(name)).map_err(refused)?;
    }
    Ok(())
}

/// Every question that `--unsure` answers, a line each.
fn questions() -> String {
    let line =
        |(name, answers, about): &Question| format!("{name}: {} ({about})\n", answers.join(" | "));
    Unsure::QUESTIONS.iter().map(line).collect()
}

fn settings(args: &ScalewayArgs) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(args.seed);
    settings.first_address = args.first_address;
    settings.durations = Durations {
        starting: Duration::from_secs(args.starting_seconds),
        starting_other_os: Duration::from_secs(args.starting_other_os_seconds),
        rebooting: Duration::from_secs(args.rebooting_seconds),
        reinstalling: Duration::from_secs(args.reinstalling_seconds),
        vpc_updating: Duration::from_secs(args.vpc_updating_seconds),
        floor: Duration::from_secs(args.floor_seconds),
    };
    settings.max_page_size = args.max_page_size.into();
    for pair in &args.quota {
        let parsed = pair.split_once('=').and_then(|(kind, n)| Some((kind, n.parse().ok()?)));
        let (kind, count) = parsed.with_context(|| format!("--quota {pair}: not TYPE=COUNT"))?;
        if !server_types().any(|known| known == kind) {
            let known: Vec<&str> = server_types().collect();
            bail!("--quota {pair}: the types are {}", known.join(", "));
        }
        settings.quotas.insert(kind.to_owned(), count);
    }
    for pair in &args.unsure {
        let (question, answer) = pair
            .split_once('=')
            .with_context(|| format!("--unsure {pair}: not QUESTION=ANSWER"))?;
        settings.unsure = settings
            .unsure
            .answer(question, answer)
            .map_err(|problem| anyhow!("--unsure {pair}: {problem}"))?;
    }
    Ok(settings)
}
