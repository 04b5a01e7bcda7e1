//! `tart-kubelet`: the agent on a Mac. Ends on SIGTERM or SIGINT at once, and leaves all VMs alone.

use anyhow::Context;
use applecart_api::clock::Clock;
use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use tart_kubelet::{Config, Tailscale, Tart};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let config = Config::from_args(std::env::args_os()).unwrap_or_else(|error| error.exit());
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let client = client(&config).await?;
    let tart = Tart::new(&config.tart_binary, &config.state_dir);
    let tailnet = Tailscale::new(&config.tailscale_binary);
    tracing::info!(node = config.node_name(), "starting");
    #[expect(clippy::disallowed_methods, reason = "a process hands out the system's clock once")]
    let clock = Clock::new(Timestamp::now);
    tokio::select! {
        never = tart_kubelet::run(config, client, tart, tailnet, clock) => match never {},
        _ = terminate.recv() => tracing::info!("SIGTERM: ending, VMs stay"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending, VMs stay"),
    }
    Ok(())
}

async fn client(config: &Config) -> anyhow::Result<kube::Client> {
    let mut client = match &config.kubeconfig {
        Some(path) => {
            let read = Kubeconfig::read_from(path);
            let read = read.with_context(|| format!("reading kubeconfig {}", path.display()))?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(read, &options)
                .await
                .with_context(|| format!("understanding kubeconfig {}", path.display()))?
        }
        None => kube::Config::infer().await.context("looking for a kubeconfig")?,
    };
    // It would repeat any verb; what may be tried again is decided elsewhere.
    client.default_retry = false;
    kube::Client::try_from(client).context("making a client of the kubeconfig")
}
