//! A Mac that builds images: its Machine asks for a runner of GitHub's on the Mac itself.

use std::time::Duration;

use applecart_sim::world::{NAMESPACE, World};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::steps::{Kind, empty_fleet, first, fleet, reach, scale};

/// Whose runners they are.
const ORGANISATION: &str = "tuist";
/// How long its job takes.
const JOB: Duration = Duration::from_mins(2);
/// The Secret with the app that registers them.
const APP: &str = "app";
/// Both halves of the app's key.
pub const PRIVATE_KEY: &str = include_str!("app/private.pem");
const PUBLIC_KEY: &[u8] = include_bytes!("app/public.der");

/// Waits for a Machine; there is an app at GitHub, and a Secret that tells of it.
pub async fn begin(world: &World) -> Result<(), String> {
    let (id, installation) = ("12", "34");
    world.github().install(id, PUBLIC_KEY, installation, ORGANISATION);
    let data = [("app-id", id), ("installation-id", installation), ("private-key", PRIVATE_KEY)];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into())));
    let metadata = ObjectMeta { name: Some(APP.to_owned()), ..ObjectMeta::default() };
    let secret = Secret { metadata, data: Some(data.into()), ..Secret::default() };
    let secrets: Api<Secret> = Api::namespaced(world.client(), NAMESPACE);
    let created = secrets.create(&PostParams::default(), &secret).await;
    created.map_err(|error| error.to_string())?;
    fleet(world, 1).await
}

/// The Machine asks for a runner, which registers itself and gets a job; then the Machine goes, and
/// the job ends first (LH24).
pub async fn register(world: &World) -> Result<(), String> {
    let (machine, host) = first(world)?;
    let (name, mac) = (machine.name_any(), world.mac(&host.id).ok_or("no Mac")?);
    let asks = json!({"ghAppSecretName": APP, "ghRunnerVersion": "2.334.0"});
    Kind::Mac.patch(world, &name, json!({"spec": {"ghActionsRunner": asks}})).await?;
    let job = format!("actions.runner.{ORGANISATION}.{name}");
    reach("the runner", || mac.job_runs(&job)).await?;
    world.github().register(ORGANISATION, &name);
    world.github().set_busy(&name, true);
    scale(world, 0).await?;
    let end = Instant::now() + JOB;
    while Instant::now() < end {
        if world.scaleway().wipes(&host.id) > 0 {
            return Err("builder: it was wiped under its job".to_owned());
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    world.github().set_busy(&name, false);
    empty_fleet(world).await
}
