//! `applecart demo`: the real provider, agents and runner pools in a simulated world.

mod kubeconfig;
mod screen;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use applecart_sim::kubernetes::Authority;
use applecart_sim::world::{World, WorldSettings};
use tokio::net::TcpListener;

use kubeconfig::Kubeconfig;
use screen::Screen;

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
    let world = World::new(WorldSettings {
        hosts: arguments.hosts,
        machines: 3,
        runners: 4,
        speed: arguments.speed,
        seed: arguments.seed,
        clock: crate::system_clock(),
        authority: Some(Authority::generate().context("could not make a certificate")?),
        api_url: url.clone(),
        faults: None,
    })
    .context("could not load the CRDs")?;
    let kubeconfig = world.api().kubeconfig(&url).context("the API server has no authority")?;
    let kubeconfig = Kubeconfig::write(address.port(), &kubeconfig)?;
    let mut screen = Screen::new();
    screen::welcome(&kubeconfig, arguments.hosts, arguments.speed);
    world.apply().await.context("could not create the fleet")?;
    let served = world.api().serve(listener);
    let ended = tokio::select! {
        biased;
        signal = stop() => signal,
        served = served => match served {
            Err(error) => Err(error).context("the API server stopped"),
        },
        () = world.run() => bail!("the world stopped"),
        () = draw(&mut screen, &world) => unreachable!("drawing goes on until the demo ends"),
    };
    screen::goodbye();
    ended
}

async fn draw(screen: &mut Screen, world: &World) {
    loop {
        screen.show(&world.view().await);
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
