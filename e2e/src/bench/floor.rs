//! What the control plane takes for a claim's bare writes: no provider, no read, no wait. Nobody
//! who keeps the same promises on this machine can be faster than that.

use std::time::Duration;

use anyhow::Result;
use futures::{StreamExt, TryStreamExt, stream};
use kube::Client;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{CLUSTER, NAMESPACE, Spent, like_ours};
use crate::{ControlPlane, objects};

/// Machines that are written for at once: as many as a provider takes turns at once.
const AT_ONCE: usize = 32;

/// Writes for each Machine: the account that signs its name, the host's Lease and a note in it,
/// finalizer, provider ID, and the status while it is claimed and when it is.
pub const WRITES: usize = 7;

/// Sends them for so many Machines, which are there; what that took.
pub async fn measure(plane: &mut ControlPlane, machines: usize) -> Result<Spent> {
    let client = plane.client();
    let before = super::plane_cpu(plane)?;
    let began = Instant::now();
    stream::iter(0..machines)
        .map(|number| write(&client, number))
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    let wall = began.elapsed();
    Ok(Spent { wall, plane: super::plane_cpu(plane)?.saturating_sub(before) })
}

async fn write(client: &Client, number: usize) -> Result<()> {
    let name = format!("{CLUSTER}-{number:04}");
    let host = format!("scw-applesilicon://fr-par-1/00000000-0000-4000-8000-{number:012}");
    let ours = like_ours(&name);
    let finalizer = json!({"metadata": {"finalizers": ["example.com/floor"]}});
    objects::merge(client, &ours, &finalizer).await?;
    let account = objects::named("v1", "ServiceAccount", NAMESPACE, &name);
    objects::create(client, &account, false).await?;
    let mut lease = objects::named("coordination.k8s.io/v1", "Lease", NAMESPACE, &name);
    lease["spec"] = json!({"holderIdentity": name});
    objects::create(client, &lease, false).await?;
    let claiming = json!({"status": {"phase": "Claiming", "conditions": conditions("Claiming")}});
    objects::merge_status(client, &ours, &claiming).await?;
    let marked = json!({"metadata": {"annotations": {"example.com/marked": "true"}}});
    objects::merge(client, &lease, &marked).await?;
    objects::merge(client, &ours, &json!({"spec": {"providerID": host}})).await?;
    let claimed =
        json!({"status": {"phase": "Bootstrapping", "conditions": conditions("Preparing")}});
    objects::merge_status(client, &ours, &claimed).await.map(|_| ())
}

fn conditions(reason: &str) -> Value {
    let at = "2026-01-01T00:00:00Z";
    json!([{"type": "Ready", "status": "False", "reason": reason, "lastTransitionTime": at}])
}

/// How long the writes take, at least, in words.
pub fn told(spent: &Spent) -> String {
    let seconds = Duration::as_secs_f64;
    format!(
        "          its {WRITES} writes alone, without a provider: {:.1} s, of the control plane's \
         CPU {:.1} s",
        seconds(&spent.wall),
        seconds(&spent.plane)
    )
}
