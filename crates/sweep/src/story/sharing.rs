//! Stories of those who share: a name in two namespaces, a pool between two clusters.

use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_sim::cluster_api::Manifests;
use applecart_sim::world::World;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::hosts;
use super::steps::{
    Kind, MACHINES, first, fleet, has_host, is_told, machines, number, reach, scale,
};

/// The other namespace.
const ELSEWHERE: &str = "elsewhere";

/// A third one.
const YONDER: &str = "yonder";
/// A name that two Machines have.
const TWIN: &str = "macs-twin";

/// Makes a namespace with a Cluster, in which Machines can be.
async fn settle(
    world: &World,
    namespace: &str,
    machine: &ScalewayAppleSiliconMachine,
) -> Result<(), String> {
    let others = Manifests {
        namespace: namespace.to_owned(),
        cluster: namespace.to_owned(),
        fleet: namespace.to_owned(),
        replicas: 0,
        version: None,
        machine: machine.spec.clone(),
    };
    others.create(&world.client()).await.map_err(|error| error.to_string())
}

/// Makes a Machine like another one in such a namespace.
async fn join(
    world: &World,
    namespace: &str,
    name: &str,
    machine: &ScalewayAppleSiliconMachine,
) -> Result<(), String> {
    let mut spec = json!(machine.spec);
    spec["providerID"] = Value::Null;
    Kind::Mac.create_in(world, namespace, name, spec).await?;
    let reference = json!({
        "apiGroup": "infrastructure.cluster.x-k8s.io",
        "kind": "ScalewayAppleSiliconMachine",
        "name": name,
    });
    let spec = json!({
        "clusterName": namespace,
        "bootstrap": {"dataSecretName": format!("{namespace}-bootstrap-data")},
        "infrastructureRef": reference,
    });
    Kind::Machine.create_in(world, namespace, name, spec).await
}

/// A Machine of another namespace gets the name of one that has a host. Nodes are named after them:
/// it waits, and takes its turn when the first one is gone (LH14).
pub async fn namesakes(world: &World) -> Result<(), String> {
    let (machine, _) = first(world)?;
    settle(world, ELSEWHERE, &machine).await?;
    join(world, ELSEWHERE, &machine.name_any(), &machine).await?;
    reach("the wait told", || is_told(world, "HeldByOther")).await?;
    scale(world, 0).await?;
    reach("the first one gone", || number(world, MACHINES) == 1).await?;
    fleet(world, 1).await
}

/// Two Machines of one name come at the same moment, and there are hosts for both: one gets one,
/// the other waits, and takes its turn when the first one is gone (LH14).
pub async fn twins(world: &World) -> Result<(), String> {
    let (machine, _) = first(world)?;
    for namespace in [ELSEWHERE, YONDER] {
        settle(world, namespace, &machine).await?;
    }
    for namespace in [ELSEWHERE, YONDER] {
        join(world, namespace, TWIN, &machine).await?;
    }
    let twins = || -> Vec<_> {
        machines(world).into_iter().filter(|machine| machine.name_any() == TWIN).collect()
    };
    let winner = || {
        let is_ready = |twin: &ScalewayAppleSiliconMachine| {
            twin.status.as_ref().and_then(|status| status.ready) == Some(true)
        };
        twins().into_iter().find(is_ready).and_then(|twin| twin.namespace())
    };
    reach("one twin Ready", || winner().is_some()).await?;
    let waits = || is_told(world, "NameTaken") || is_told(world, "HeldByOther");
    reach("the wait of the other told", waits).await?;
    let winner = winner().ok_or("no twin is Ready any more")?;
    Kind::Machine.delete_in(world, &winner, TWIN).await?;
    reach("the first one gone", || twins().len() == 1).await?;
    fleet(world, 2).await
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
