//! The CI server, as far as a fleet sees it: jobs come in, claim idle runners, and end.

use std::time::Duration;

use applecart_api::keys::label;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use serde_json::json;
use tokio::time::Instant;

use super::settings::{JOB_EVERY, SHORTEST_JOB};
use super::{NAMESPACE, World};

/// A job in a runner.
struct Job {
    /// Of the runner.
    uid: String,
    ends: Instant,
}

/// Runs until dropped.
pub async fn run(world: &World) {
    let mut random = SmallRng::seed_from_u64(world.settings.seed);
    let mut jobs: Vec<Job> = vec![];
    let mut number = 0;
    loop {
        let wait = world.settings.scale(JOB_EVERY).mul_f64(random.random_range(0.5..1.5));
        tokio::time::sleep(wait).await;
        let runners = world.runners().await;
        if let Some(pod) = runners.iter().find(|pod| is_idle(pod)) {
            number += 1;
            let lasts = world.settings.scale(SHORTEST_JOB).mul_f64(random.random_range(1.0..3.0));
            if let Some(job) = claim(world, pod, number, lasts).await {
                jobs.push(job);
            }
        }
        for job in jobs.extract_if(.., |job| job.ends <= Instant::now()) {
            let pod = runners.iter().find(|pod| pod.uid().as_ref() == Some(&job.uid));
            if let Some(pod) = pod {
                world.finish_job(pod);
            }
        }
    }
}

fn is_idle(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let claimed = pod.labels().get(label::RUNNER_POOL_OWNER).is_some_and(|owner| !owner.is_empty());
    phase == Some("Running") && !claimed && pod.metadata.deletion_timestamp.is_none()
}

/// Stamps the runner as the CI server does, if it is still as it was read.
async fn claim(world: &World, pod: &Pod, number: u32, lasts: Duration) -> Option<Job> {
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"metadata": {
        "resourceVersion": pod.resource_version(),
        "labels": {label::RUNNER_POOL_OWNER: format!("job-{number}")},
    }});
    let name = pod.name_any();
    let claimed = pods.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
    claimed.ok()?;
    Some(Job { uid: pod.uid().unwrap_or_default(), ends: Instant::now() + lasts })
}
