//! `clusterctl move` waits for whoever says `block-move`.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::{Contract, condition, contract, go_first};
use crate::scenarios::fleet;
use crate::{Ground, objects};

const BLOCK_MOVE: &str = "clusterctl.cluster.x-k8s.io/block-move";

/// What is told only while a host is on its way back.
const RETURNS: [&str; 2] = ["Wiping", "Released"];

/// A move is kept waiting from before a claim until the bootstrap is over, and while a release
/// runs; a bootstrap that a pause ends keeps it waiting no longer, although nobody unpaused.
pub async fn contract_23_a_move_waits_for_claims_bootstraps_and_releases(
    ground: &mut Ground,
) -> Result<()> {
    let seen = contract(ground).await?;
    fleet::ask_for(&mut seen.fleet, 2).await?;
    let other = in_bootstrap(seen).await?;
    let cluster = fleet::cluster(&seen.fleet);
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": true}})).await?;
    let object = seen.object(&other);
    let look = async |client: &Client| {
        let object = objects::get(client, &object).await?.context("no object")?;
        let paused = condition(&object, "Paused").is_some_and(|c| c["status"] == "True");
        ensure!(paused && !is_blocked(&object), "{}", object["metadata"]["annotations"]);
        Ok(Some(()))
    };
    seen.fleet.until("a move to be free while its Cluster is paused", look).await?;
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": false}})).await?;
    fleet::available(&mut seen.fleet, 2).await?;
    seen.until("a move to be free of a Mac that is Ready", |mac| !is_blocked(mac)).await?;
    go_first(seen, &other).await?;
    let mut told = (0, 0);
    for name in [&seen.mac.clone(), &other] {
        let (coming, going) = is_marked_throughout(&seen.machines.of(name))?;
        told = (told.0 + coming, told.1 + going);
    }
    ensure!(told.0 > 2 && told.1 > 0, "{} versions of claims, {} of releases", told.0, told.1);
    Ok(())
}

/// Whoever reads that a host is on its way finds the mark there, or set by the next write that
/// tells nothing: what is told comes first, and again if it is something else by then; then the
/// mark, then the first effect. How many versions of one object told of a claim, and of a release.
fn is_marked_throughout(versions: &[Value]) -> Result<(usize, usize)> {
    let (mut coming, mut going) = (0, 0);
    for (number, version) in versions.iter().enumerate() {
        let (comes, goes) = (is_coming(version), is_going(version));
        let paused = condition(version, "Paused").is_some_and(|c| c["status"] == "True");
        if paused || !(comes || goes) {
            continue;
        }
        coming += usize::from(comes);
        going += usize::from(goes);
        let later = &versions[number..];
        let told = later.iter().take_while(|later| !is_blocked(later)).count();
        let only_told = later[..told].iter().all(|later| {
            later["spec"] == version["spec"] && !later["status"]["bootstrap"].is_object()
        });
        let soon = only_told
            && later
                .get(told)
                .is_some_and(|marked| told == 0 || marked["status"] == later[told - 1]["status"]);
        ensure!(soon, "a move would not wait: {version}, then {:?}", later.get(1));
    }
    Ok((coming, going))
}

fn is_blocked(object: &Value) -> bool {
    object["metadata"]["annotations"][BLOCK_MOVE] == "true"
}

fn is_coming(object: &Value) -> bool {
    let phase = object["status"]["phase"].as_str().unwrap_or_default();
    let bootstrapped = condition(object, "Bootstrapped").is_some_and(|c| c["status"] == "True");
    ["Adopting", "Bootstrapping"].contains(&phase) && !bootstrapped
}

fn is_going(object: &Value) -> bool {
    let reason = condition(object, "Ready").and_then(|ready| ready["reason"].as_str());
    reason.is_some_and(|reason| RETURNS.contains(&reason))
}

/// Waits until another Mac than the one that all lines look at is in the middle of its bootstrap;
/// its name.
async fn in_bootstrap(seen: &mut Contract) -> Result<String> {
    let (all, mac) = (seen.object(""), seen.mac.clone());
    let look = async |client: &Client| {
        for object in objects::list(client, &all).await? {
            let name = objects::name(&object)?;
            if name != mac && object["status"]["bootstrap"].is_object() {
                ensure!(is_blocked(&object), "a move would not wait: {object}");
                return Ok(Some(name.to_owned()));
            }
        }
        Ok(None)
    };
    seen.fleet.until("a bootstrap", look).await
}
