//! `applecart demo`: the real provider, agents and runner pools in a simulated world.

mod kubeconfig;
mod screen;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use applecart_sim::faults::{Faults, Plan};
use applecart_sim::kubernetes::Authority;
use applecart_sim::oracle::Safety;
use applecart_sim::world::{World, WorldSettings};
use tokio::net::TcpListener;

use kubeconfig::Kubeconfig;
use screen::Screen;

/// One answer of a Mac over SSH, before `--speed`: a bootstrap then takes about ten minutes.
const SSH_LATENCY: Duration = Duration::from_secs(4);
/// With `--chaos`, one call or event in so many goes wrong: every few seconds one does.
const ONE_IN: u32 = 400;
/// How often the table is drawn anew.
const REDRAW: Duration = Duration::from_millis(250);

/// The most hosts: more would not fit any screen, and each is a process's worth of work.
const MOST_HOSTS: usize = 200;

/// Arguments of `applecart demo`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Examples:
  applecart demo                        six Macs, a minute of fleet time in a second
  applecart demo --hosts 2              too few Macs: watch a Machine say why it waits
  applecart demo --speed 10 --seed 7    slower, and another run of the same world
  applecart demo --chaos                with faults, and invariants checked after each effect
  applecart demo --port 0               on any free port")]
pub struct Arguments {
    /// Macs in the simulated pool.
    #[arg(long, default_value_t = 6, value_parser = hosts)]
    hosts: usize,
    /// How many times faster than a real fleet everything happens.
    #[arg(long, default_value_t = 60.0, value_parser = speed)]
    speed: f64,
    /// Same seed, same ids, names, passwords and jobs.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Lets things go wrong: crashes, lost answers, stale reads, cut watches, power cuts.
    ///
    /// The screen counts the faults and how often an invariant was checked; the first one that does
    /// not hold ends the demo with an error.
    #[arg(long)]
    chaos: bool,
    /// Port of the Kubernetes API on 127.0.0.1; 0 takes any free one.
    #[arg(long, default_value_t = 7443)]
    port: u16,
}

fn hosts(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(hosts @ 1..=MOST_HOSTS) => Ok(hosts),
        _ => Err(format!("a number of Macs from 1 to {MOST_HOSTS}, such as 6")),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(speed) if (1.0..=600.0).contains(&speed) => Ok(speed),
        _ => Err("a number from 1 (as slow as a real fleet) to 600".to_owned()),
    }
}

/// Runs the demo until Ctrl-C.
pub async fn run(arguments: &Arguments) -> Result<()> {
    let listener = listen(arguments.port).await?;
    let address = listener.local_addr().context("could not learn the port")?;
    let url = format!("https://{address}");
    let chaos = Plan::Chaos { seed: arguments.seed, one_in: ONE_IN, speed: arguments.speed };
    let faults = arguments.chaos.then(|| Faults::new(chaos));
    let world = World::new(WorldSettings {
        hosts: arguments.hosts,
        machines: 3,
        runners: 4,
        speed: arguments.speed,
        seed: arguments.seed,
        clock: crate::system_clock(),
        authority: Some(Authority::generate().context("could not make a certificate")?),
        api_url: url.clone(),
        ssh_latency: SSH_LATENCY,
        foreign: false,
        roles: &[],
        providers: 1,
        deployments: true,
        jobs: true,
        faults: faults.clone(),
    });
    if let Some(faults) = &faults {
        let safety = Safety::new(world.sight().clone()).without_jobs();
        faults.ask_after_effects(Box::new(move |step| safety.check(step)));
    }
    let kubeconfig = world.api().kubeconfig(&url).context("the API server has no authority")?;
    let kubeconfig = Kubeconfig::write(address.port(), &kubeconfig)?;
    let mut screen = Screen::new(&kubeconfig, arguments.hosts, arguments.speed);
    world.apply().await.context("could not create the fleet")?;
    let served = world.api().serve(listener);
    let ended = tokio::select! {
        biased;
        signal = stop() => signal,
        served = served => match served {
            Err(error) => Err(error).context("the API server stopped"),
        },
        () = world.run() => bail!("the world stopped"),
        broken = draw(&mut screen, &world) => Err(anyhow!("an invariant does not hold: {broken}")),
    };
    screen::goodbye();
    ended
}

/// Draws until an invariant does not hold, and tells which.
async fn draw(screen: &mut Screen, world: &World) -> String {
    loop {
        let view = world.view().await;
        screen.show(&view);
        if let Some(violation) = view.chaos.and_then(|chaos| chaos.violation) {
            return violation;
        }
        tokio::time::sleep(REDRAW).await;
    }
}

async fn listen(port: u16) -> Result<TcpListener> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(listener),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => bail!(
            "port {port} is taken, perhaps by another demo: end that one, or choose a port with \
             --port (0 takes any free one)"
        ),
        Err(error) => Err(error).with_context(|| format!("could not listen on {address}")),
    }
}

/// Ctrl-C, or a polite kill.
async fn stop() -> Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("could not wait for signals")?;
    tokio::select! {
        interrupt = tokio::signal::ctrl_c() => interrupt.context("could not wait for Ctrl-C"),
        _ = terminate.recv() => Ok(()),
    }
}
