//! `applecart runner-pools`: keeps the warm, single-use CI runners of every `RunnerPool`.

use anyhow::Result;
use applecart_core::runner_pool::Limits;
use applecart_operator::metrics::Metrics;
use applecart_operator::runner_pools::RunnerPools;
use futures::FutureExt;

use crate::serving::{self, Serving};

/// The Lease that the leader holds; the system before us holds the same one.
const LEASE: &str = "runners-controller.tuist.dev";

/// Arguments of `applecart runner-pools`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "Example:
  applecart runner-pools --namespace tuist-runners \\
    --dispatch-url https://ci.example/api/internal/runners/dispatch")]
pub struct Arguments {
    #[command(flatten)]
    serving: serving::Running,
    /// Where a runner asks for its job.
    #[arg(long, env = "TUIST_RUNNER_DISPATCH_URL", value_name = "URL")]
    dispatch_url: String,
    /// Namespace whose pools are kept.
    #[arg(long, env = "TUIST_RUNNERS_NAMESPACE", default_value = "tuist-runners")]
    namespace: String,
}

/// Runs the runner pools until told to end.
pub async fn run(arguments: Arguments) -> Result<()> {
    let clock = crate::system_clock();
    let metrics = Metrics::of_leader(clock.clone());
    let serving = Serving::start(&arguments.serving, clock.clone(), metrics).await?;
    let pools = RunnerPools {
        client: serving.client.clone(),
        namespace: Some(arguments.namespace),
        clock,
        dispatch_url: arguments.dispatch_url,
        limits: Limits::default(),
    };
    serving.run(LEASE, pools.run().map(Ok).boxed()).await
}
