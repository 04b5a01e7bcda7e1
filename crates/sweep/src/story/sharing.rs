//! Stories of those who share: a name in two namespaces, a pool between two clusters.

use applecart_sim::cluster_api::Manifests;
use applecart_sim::world::World;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::hosts;
use super::steps::{Kind, MACHINES, first, fleet, has_host, is_told, number, reach, scale};

/// The other namespace.
const ELSEWHERE: &str = "elsewhere";

/// A Machine of another namespace gets the name of one that has a host. Nodes are named after them:
/// it waits, and takes its turn when the first one is gone (LH14).
pub async fn namesakes(world: &World) -> Result<(), String> {
    let (machine, _) = first(world)?;
    let name = machine.name_any();
    let others = Manifests {
        namespace: ELSEWHERE.to_owned(),
        cluster: ELSEWHERE.to_owned(),
        fleet: ELSEWHERE.to_owned(),
        replicas: 0,
        version: None,
        machine: machine.spec.clone(),
    };
    others.create(&world.client()).await.map_err(|error| error.to_string())?;
    let mut spec = json!(machine.spec);
    spec["providerID"] = Value::Null;
    Kind::Mac.create_in(world, ELSEWHERE, &name, spec).await?;
    let reference = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "ScalewayAppleSiliconMachine",
        "name": name,
    });
    let spec = json!({
        "clusterName": ELSEWHERE,
        "bootstrap": {"dataSecretName": format!("{ELSEWHERE}-bootstrap-data")},
        "infrastructureRef": reference,
    });
    Kind::Machine.create_in(world, ELSEWHERE, &name, spec).await?;
    reach("the wait told", || is_told(world, "HeldByOther")).await?;
    scale(world, 0).await?;
    reach("the first one gone", || number(world, MACHINES) == 1).await?;
    fleet(world, 1).await
}

/// Two clusters claim the one host of a pool, a person adds another, and one of them leaves.
pub async fn neighbours(world: &World) -> Result<(), String> {
    reach("a host claimed", || has_host(world)).await?;
    hosts::fill_pool(world)?;
    fleet(world, 2).await?;
    scale(world, 0).await?;
    reach("one Machine", || number(world, MACHINES) == 1).await?;
    fleet(world, 1).await
}
