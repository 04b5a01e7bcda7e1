//! What a run does to the world. Each scenario is a few lines.

use std::fmt;
use std::time::Duration;

use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_sim::world::{FLEET, NAMESPACE, World};
use clap::ValueEnum;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams};
use serde_json::json;

/// How long a world may take to come to rest after all, in its own time: three wipes' worth.
const PATIENCE: Duration = Duration::from_hours(2);
/// How often a world is looked at, in its own time.
const LOOK: Duration = Duration::from_secs(5);

/// A story that every fault must leave with the same end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// One Machine gets a Mac and becomes Ready.
    Claim,
    /// One Machine becomes Ready, then goes: its Mac ends wiped in the pool, nothing is left.
    Release,
    /// A Machine is deleted as soon as it has a host: nothing is stranded (LH2).
    EarlyDelete,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no scenario is hidden");
        f.write_str(value.get_name())
    }
}

impl Scenario {
    /// Every scenario.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Plays the story; an error says what did not come about.
    pub async fn play(self, world: &World) -> Result<(), String> {
        match self {
            Self::Claim => reach(world, "the Machine Ready", is_ready).await,
            Self::Release => {
                reach(world, "the Machine Ready", is_ready).await?;
                scale(world, 0).await?;
                reach(world, "an empty fleet", is_empty).await
            }
            Self::EarlyDelete => {
                reach(world, "a host claimed", has_host).await?;
                scale(world, 0).await?;
                reach(world, "an empty fleet", is_empty).await
            }
        }
    }
}

/// Waits for a level, in the world's time.
async fn reach(
    world: &World,
    what: &str,
    level: fn(&[ScalewayAppleSiliconMachine]) -> bool,
) -> Result<(), String> {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !level(&machines(world).await) {
            tokio::time::sleep(LOOK).await;
        }
    });
    waited.await.map_err(|_| format!("{what} did not come about"))
}

async fn machines(world: &World) -> Vec<ScalewayAppleSiliconMachine> {
    let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(world.client(), NAMESPACE);
    api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
}

fn is_ready(machines: &[ScalewayAppleSiliconMachine]) -> bool {
    let ready = |m: &ScalewayAppleSiliconMachine| {
        m.status.as_ref().and_then(|status| status.ready) == Some(true)
    };
    machines.len() == 1 && machines.iter().all(ready)
}

fn has_host(machines: &[ScalewayAppleSiliconMachine]) -> bool {
    let bound = |m: &ScalewayAppleSiliconMachine| {
        m.status.as_ref().is_some_and(|status| status.server_id.is_some())
    };
    machines.iter().any(bound)
}

fn is_empty(machines: &[ScalewayAppleSiliconMachine]) -> bool {
    machines.is_empty()
}

async fn scale(world: &World, replicas: u32) -> Result<(), String> {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), NAMESPACE, &resource);
    let change = json!({"spec": {"replicas": replicas}});
    let patched = api.patch(FLEET, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).map_err(|error| error.to_string())
}
