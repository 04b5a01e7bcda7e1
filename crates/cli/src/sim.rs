//! `applecart sim`: a simulated outside world, for real clients to be pointed at.

use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, anyhow};
use applecart_api::ids::Zone;
use applecart_sim::scaleway::{HostSpec, LEVERS, Scaleway, Settings};
use clap::Subcommand;
use tokio::net::TcpListener;

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
    #[command(after_long_help = format!("Levers, at that address and without a key:\n\n{LEVERS}"))]
    Scaleway(ScalewayArgs),
}

#[derive(Debug, clap::Args)]
struct ScalewayArgs {
    /// Where to listen; port 0 picks a free one.
    #[arg(long, default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// How many hosts are in the pool from the start.
    #[arg(long, default_value_t = 0)]
    hosts: usize,
    /// What the names of those hosts begin with.
    #[arg(long, default_value = "tuist-pool-")]
    pool_prefix: String,
    /// What kind of server they are.
    #[arg(long = "type", default_value = "M2-L")]
    server_type: String,
    /// Where they stand.
    #[arg(long, default_value = "fr-par-1")]
    zone: Zone,
    /// Ids, addresses and passwords come from it: same seed, same world.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long a delivery takes, in seconds.
    #[arg(long, default_value_t = 130)]
    starting_seconds: u64,
    /// How long a power cycle takes, in seconds.
    #[arg(long, default_value_t = 105)]
    rebooting_seconds: u64,
    /// How long a wipe takes, in seconds.
    #[arg(long, default_value_t = 1200)]
    reinstalling_seconds: u64,
    /// How many of a kind one may have, such as M4-M=2; may be repeated.
    #[arg(long, value_name = "TYPE=COUNT")]
    quota: Vec<String>,
    /// Answers a question that the real service's documentation leaves open, such as
    /// `gone=not_found`; may be repeated. See docs/scaleway.md.
    #[arg(long, value_name = "QUESTION=ANSWER")]
    unsure: Vec<String>,
}

/// Runs it until it is interrupted.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let World::Scaleway(args) = args.world;
    let listener = TcpListener::bind(args.listen)
        .await
        .with_context(|| format!("cannot listen on {}", args.listen))?;
    let url = format!("http://{}", listener.local_addr()?);
    let scaleway = Scaleway::new(settings(&args)?, crate::system_clock());
    for number in 1..=args.hosts {
        let spec = HostSpec {
            server_type: args.server_type.clone(),
            zone: args.zone.clone(),
            ..HostSpec::named(format!("{}{number}", args.pool_prefix))
        };
        scaleway.try_order(&spec).map_err(|problem| anyhow!("cannot order a host: {problem}"))?;
    }
    let mut out = std::io::stdout().lock();
    for (name, value) in scaleway.environment(&url, &args.zone) {
        writeln!(out, "export {name}={value}")?;
    }
    out.flush()?;
    drop(out);
    tokio::select! {
        served = scaleway.serve(listener) => served.context("cannot accept connections"),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot wait for Ctrl-C"),
    }
}

fn settings(args: &ScalewayArgs) -> anyhow::Result<Settings> {
    let mut settings = Settings::new(args.seed);
    settings.durations.starting = Duration::from_secs(args.starting_seconds);
    settings.durations.rebooting = Duration::from_secs(args.rebooting_seconds);
    settings.durations.reinstalling = Duration::from_secs(args.reinstalling_seconds);
    for pair in &args.quota {
        let parsed = pair.split_once('=').and_then(|(kind, n)| Some((kind, n.parse().ok()?)));
        let (kind, count) = parsed.with_context(|| format!("--quota {pair}: not TYPE=COUNT"))?;
        settings.quotas.insert(kind.to_owned(), count);
    }
    for pair in &args.unsure {
        let (question, answer) =
            pair.split_once('=').with_context(|| format!("--unsure {pair}: no answer"))?;
        settings.unsure = settings
            .unsure
            .answer(question, answer)
            .map_err(|problem| anyhow!("--unsure {pair}: {problem}"))?;
    }
    Ok(settings)
}
