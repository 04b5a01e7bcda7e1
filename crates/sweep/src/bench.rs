//! Figures. Each is printed with what it was measured on; none is a test.

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use applecart_sim::scaleway;
use applecart_sim::world::{World, WorldSettings};
use clap::ValueEnum;

use crate::run::{settings, virtual_clock};

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum What {
    /// N Machines, a pool of N: wall time and Scaleway calls until all are Ready.
    Fleet,
    /// Requests a second of the simulated Scaleway over loopback.
    Scaleway,
}

/// Measures and prints.
pub fn run(what: What, hosts: Option<usize>) -> anyhow::Result<()> {
    match what {
        What::Fleet => fleet(hosts.unwrap_or(1000)),
        What::Scaleway => {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let report = runtime.block_on(scaleway::bench(hosts.unwrap_or(1000)))?;
            println!("{report}");
            Ok(())
        }
    }
}

fn fleet(hosts: usize) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .context("could not start the runtime")?;
    runtime.block_on(async {
        let began = Instant::now();
        let machines = u32::try_from(hosts)?;
        let settings = WorldSettings { hosts, machines, ..settings(1, virtual_clock()) };
        let world = World::new(settings);
        world.apply().await?;
        let virtual_start = tokio::time::Instant::now();
        tokio::select! {
            biased;
            ready = all_ready(&world, hosts) => ready?,
            () = world.run() => bail!("the world stopped"),
        }
        let calls: u64 = world.scaleway().calls().values().sum();
        println!(
            "{hosts} Machines Ready: {:.2?} wall on one core, {:.0?} virtual, \
             {calls} Scaleway calls",
            began.elapsed(),
            virtual_start.elapsed(),
        );
        Ok(())
    })
}

async fn all_ready(world: &World, hosts: usize) -> anyhow::Result<()> {
    let patience = Duration::from_hours(6);
    let ready = async {
        while world.view().await.hosts.iter().filter(|host| host.step == "ready").count() < hosts {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    tokio::time::timeout(patience, ready).await.context("not all Machines became Ready")
}
