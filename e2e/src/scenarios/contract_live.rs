//! The lines of Cluster API's checklist that need our programs: one small fleet serves them all,
//! and every version of its objects is on record. They run in this order.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{self, CLUSTER_API, INFRASTRUCTURE};
use crate::installation::{ClusterForm, Installation};
use crate::recording::Recording;
use crate::{Ground, objects};

const KIND: &str = "ScalewayAppleSiliconMachine";
const MINE: &str = "example.org/mine";

/// A fleet of one Mac, with all that was ever written about it.
pub struct Contract {
    fleet: Installation,
    machines: Recording,
    clusters: Recording,
    client: Client,
    mac: String,
}

/// The shared fleet, with one Mac that is Ready.
async fn contract(ground: &mut Ground) -> Result<&mut Contract> {
    if ground.contract.is_none() {
        let client = ground.client().await?;
        let mut fleet = fleet::install(ground, "contract", ClusterForm::Original, 3).await?;
        let namespace = fleet.plan.namespace.clone();
        let machines = Recording::start(&client, &like(&namespace, KIND)).await?;
        let clusters = like(&namespace, "ScalewayAppleSiliconCluster");
        let clusters = Recording::start(&client, &clusters).await?;
        fleet::scale(&mut fleet, 1).await?;
        let mac = fleet::machines(&client, &fleet).await?.pop().context("no Machine")?;
        let mac = objects::name(&mac)?.to_owned();
        ground.contract = Some(Contract { fleet, machines, clusters, client, mac });
    }
    ground.contract.as_mut().context("it was just started")
}

fn like(namespace: &str, kind: &str) -> Value {
    objects::named(INFRASTRUCTURE, kind, namespace, "")
}

impl Contract {
    fn object(&self, name: &str) -> Value {
        objects::named(INFRASTRUCTURE, KIND, &self.fleet.plan.namespace, name)
    }

    fn machine(&self) -> Value {
        objects::named(CLUSTER_API, "Machine", &self.fleet.plan.namespace, &self.mac)
    }

    /// Waits until the Mac's object is as `is` says.
    async fn until(&mut self, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        let object = self.object(&self.mac);
        let look = async |client: &Client| {
            Ok(objects::get(client, &object).await?.filter(|object| is(object)))
        };
        self.fleet.until(what, look).await
    }

    /// Calls that Scaleway has had.
    async fn calls(&self) -> Result<u64> {
        let state = self.fleet.scaleway("GET", "/sim/state", None).await?;
        let calls = state["calls"].as_object().context("the state does not count calls")?;
        Ok(calls.values().filter_map(Value::as_u64).sum())
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

fn nulls(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Null => found.push(path.to_owned()),
        Value::Array(items) => items.iter().for_each(|item| nulls(item, path, found)),
        Value::Object(fields) => {
            fields.iter().for_each(|(key, inner)| nulls(inner, &format!("{path}.{key}"), found));
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Nothing that only a `MachineSet` owns is written to, while a Mac beside it becomes Ready.
pub async fn contract_07_a_fresh_object_is_left_alone(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mut fresh = seen.object("fresh");
    let owner = json!({"apiVersion": CLUSTER_API, "kind": "MachineSet", "name": "set", "uid": "u"});
    fresh["metadata"]["ownerReferences"] = json!([owner]);
    fresh["spec"] = json!({"adoptPoolPrefix": "tuist-pool-"});
    // The garbage collector would remove it: its owner does not exist. So it is looked at at once,
    // and by what the recording has of it.
    objects::create(&seen.client, &fresh, false).await?;
    fleet::scale(&mut seen.fleet, 2).await?;
    fleet::scale(&mut seen.fleet, 1).await?;
    let versions = seen.machines.of("fresh");
    ensure!(!versions.is_empty(), "it was never seen");
    for version in versions {
        ensure!(version["metadata"]["finalizers"].is_null(), "a finalizer: {version}");
        ensure!(version["status"].is_null(), "a status: {version}");
    }
    let left = fleet::machines(&seen.client, &seen.fleet).await?.pop().context("no Machine")?;
    objects::name(&left)?.clone_into(&mut seen.mac);
    Ok(())
}

/// The finalizer is there before anything outside is: no version names a host or a claim without
/// it.
pub async fn contract_08_the_finalizer_comes_before_the_first_call(
    ground: &mut Ground,
) -> Result<()> {
    let seen = contract(ground).await?;
    let versions = seen.machines.of(&seen.mac);
    let finalizer = json!(["scalewayapplesilicon.cluster.x-k8s.io/finalizer"]);
    let first = versions.iter().position(|v| v["metadata"]["finalizers"] == finalizer);
    let first = first.context("it never had our finalizer")?;
    for version in &versions[..first] {
        ensure!(version["status"]["serverID"].is_null(), "a host too early: {version}");
        ensure!(version["status"]["phase"] != "Adopting", "a claim too early: {version}");
    }
    Ok(())
}

/// Never provisioned without a provider ID.
pub async fn contract_09_provisioned_comes_with_a_provider_id(ground: &mut Ground) -> Result<()> {
    let versions = contract(ground).await?.machines.versions();
    let provisioned = |v: &&Value| v["status"]["initialization"]["provisioned"] == true;
    ensure!(versions.iter().any(|v| provisioned(&v)), "nothing was ever provisioned");
    for version in versions.iter().filter(provisioned) {
        let id = version["spec"]["providerID"].as_str().unwrap_or_default();
        ensure!(id.starts_with("scw-applesilicon://"), "{version}");
    }
    Ok(())
}

/// Whatever was written has reason and time, and no second set of conditions.
pub async fn contract_04_conditions_always_have_reason_and_time(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    for version in seen.machines.versions().iter().chain(&seen.clusters.versions()) {
        ensure!(version["status"]["v1beta2"].is_null(), "{version}");
        for condition in version["status"]["conditions"].as_array().into_iter().flatten() {
            for field in ["reason", "lastTransitionTime"] {
                let text = condition[field].as_str().unwrap_or_default();
                ensure!(!text.is_empty(), "no {field}: {condition}");
            }
        }
    }
    Ok(())
}

/// No object of ours ever held a null.
pub async fn contract_05_nothing_of_ours_holds_a_null(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mut found = vec![];
    for version in seen.machines.versions().iter().chain(&seen.clusters.versions()) {
        for part in ["spec", "status"] {
            if let Some(value) = version.get(part) {
                nulls(value, part, &mut found);
            }
        }
    }
    ensure!(found.is_empty(), "nulls: {found:?}");
    Ok(())
}

/// A condition's time moves with its status alone.
pub async fn contract_12_a_time_moves_with_its_status_alone(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let versions = seen.machines.of(&seen.mac);
    let mut compared = 0;
    for pair in versions.windows(2) {
        for kind in ["Ready", "Provisioned", "Bootstrapped", "Paused"] {
            let (Some(old), Some(new)) = (condition(&pair[0], kind), condition(&pair[1], kind))
            else {
                continue;
            };
            if old["status"] == new["status"] {
                compared += usize::from(old["message"] != new["message"]);
                let (old, new) = (&old["lastTransitionTime"], &new["lastTransitionTime"]);
                ensure!(old == new, "{kind} moved from {old} to {new}");
            }
        }
    }
    ensure!(compared > 0, "no message ever changed");
    Ok(())
}

/// Machines are Ready and Available, and the `MachineDeployment` counts all its replicas.
pub async fn contract_13_machines_are_ready_and_available(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    fleet::scale(&mut seen.fleet, 1).await?;
    let machine = objects::get(&seen.client, &seen.machine()).await?.context("no Machine")?;
    for kind in ["Ready", "Available", "NodeHealthy", "InfrastructureReady"] {
        let holds = condition(&machine, kind).is_some_and(|c| c["status"] == "True");
        ensure!(holds, "{kind}: {}", machine["status"]["conditions"]);
    }
    Ok(())
}

/// What others wrote stays: owners, the cluster's label, foreign annotations.
pub async fn contract_18_what_others_wrote_stays(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let object = seen.object(&seen.mac);
    let before = objects::get(&seen.client, &object).await?.context("no object")?;
    let mine = json!({"metadata": {"annotations": {MINE: "kept"}}});
    objects::merge(&seen.client, &object, &mine).await?;
    // Something for the provider to write: a pause, and its end.
    pause(seen, &object, true).await?;
    pause(seen, &object, false).await?;
    let after = objects::get(&seen.client, &object).await?.context("no object")?;
    let (old, new) = (&before["metadata"], &after["metadata"]);
    ensure!(new["annotations"][MINE] == "kept", "{}", new["annotations"]);
    ensure!(old["ownerReferences"] == new["ownerReferences"], "owners changed");
    ensure!(old["labels"] == new["labels"], "labels changed");
    Ok(())
}

async fn pause(seen: &mut Contract, object: &Value, on: bool) -> Result<()> {
    let value = if on { json!("false") } else { Value::Null };
    let change = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": value}}});
    objects::merge(&seen.client, object, &change).await?;
    let wanted = if on { "True" } else { "False" };
    seen.until(&format!("Paused={wanted}"), |object| {
        condition(object, "Paused").is_some_and(|paused| paused["status"] == wanted)
    })
    .await?;
    Ok(())
}

/// Paused by annotation, with any value, or by the Cluster: said, and no call outside.
pub async fn contract_14_paused_means_no_call_outside(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let object = seen.object(&seen.mac);
    pause(seen, &object, true).await?;
    quiet(seen).await?;
    pause(seen, &object, false).await?;
    let cluster = fleet::cluster(&seen.fleet);
    for (paused, wanted) in [(true, "True"), (false, "False")] {
        let change = json!({"spec": {"paused": paused}});
        objects::merge(&seen.client, &cluster, &change).await?;
        seen.until(&format!("Paused={wanted} by the Cluster"), |object| {
            condition(object, "Paused").is_some_and(|paused| paused["status"] == wanted)
        })
        .await?;
        if paused {
            quiet(seen).await?;
        }
    }
    Ok(())
}

/// The provider looks at the paused object again, and Scaleway hears nothing of it.
async fn quiet(seen: &mut Contract) -> Result<()> {
    let before = seen.calls().await?;
    let object = seen.object(&seen.mac);
    let poke = json!({"metadata": {"annotations": {MINE: before.to_string()}}});
    let poked = objects::merge(&seen.client, &object, &poke).await?;
    let mut looks = 0;
    let look = async |client: &Client| {
        looks += 1;
        let now = objects::get(client, &object).await?.context("no object")?;
        let same = now["metadata"]["resourceVersion"] == poked["metadata"]["resourceVersion"];
        ensure!(same, "written while paused");
        Ok((looks > 10).then_some(()))
    };
    seen.fleet.until("ten looks", look).await?;
    let after = seen.calls().await?;
    ensure!(before == after, "{} calls while paused", after - before);
    Ok(())
}

/// An externally managed cluster is left byte for byte alone.
pub async fn contract_21_an_externally_managed_cluster_is_left_alone(
    ground: &mut Ground,
) -> Result<()> {
    let seen = contract(ground).await?;
    let namespace = seen.fleet.plan.namespace.clone();
    let cluster = fleet::cluster(&seen.fleet);
    let owner = objects::get(&seen.client, &cluster).await?.context("no Cluster")?;
    let reference = json!({
        "apiVersion": CLUSTER_API, "kind": "Cluster",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    });
    let kind = "ScalewayAppleSiliconCluster";
    let make = |name: &str, annotations: Value| {
        let mut object = objects::named(INFRASTRUCTURE, kind, &namespace, name);
        object["metadata"]["annotations"] = annotations;
        object["metadata"]["ownerReferences"] = json!([reference.clone()]);
        object["spec"] = json!({});
        object
    };
    let managed = make("managed", json!({"cluster.x-k8s.io/managed-by": "somebody"}));
    let created = objects::create(&seen.client, &managed, false).await?;
    let ours = make("ours", json!({}));
    objects::create(&seen.client, &ours, false).await?;
    let look = async |client: &Client| {
        let found = objects::get(client, &ours).await?.context("gone")?;
        Ok((found["status"]["ready"] == true).then_some(()))
    };
    seen.fleet.until("the cluster beside it to be told", look).await?;
    let after = objects::get(&seen.client, &managed).await?.context("gone")?;
    ensure!(created == after, "it was touched: {after}");
    objects::delete(&seen.client, &managed).await?;
    objects::delete(&seen.client, &ours).await
}

/// A lost host: Ready turns False, and the Machine repeats it with our reason, message and time.
pub async fn contract_11_a_lost_host_is_told(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mac = seen.until("the Mac to be Ready", |mac| mac["status"]["ready"] == true).await?;
    let server = mac["status"]["serverID"].as_str().context("no host")?.to_owned();
    rename(seen, &server, "taken-by-hand").await?;
    let lost = seen
        .until("Ready=False", |mac| {
            condition(mac, "Ready").is_some_and(|ready| ready["status"] == "False")
        })
        .await?;
    let ours = condition(&lost, "Ready").context("no Ready")?.clone();
    ensure!(ours["reason"] == "NotOurs", "{ours}");
    let machine = seen.machine();
    let look = async |client: &Client| {
        let machine = objects::get(client, &machine).await?.context("no Machine")?;
        let theirs = condition(&machine, "InfrastructureReady").context("no condition")?;
        for field in ["status", "reason", "message", "lastTransitionTime"] {
            ensure!(theirs[field] == ours[field], "{field}: {theirs} is not {ours}");
        }
        Ok(Some(()))
    };
    seen.fleet.until("the Machine to repeat it", look).await?;
    rename(seen, &server, &seen.mac.clone()).await?;
    seen.until("the Mac to be Ready again", |mac| mac["status"]["ready"] == true).await?;
    Ok(())
}

/// What was once provisioned stays so, with its provider ID, whatever happened to it.
pub async fn contract_10_what_is_provisioned_stays_so(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let versions = seen.machines.of(&seen.mac);
    let is = |v: &&Value| v["status"]["initialization"]["provisioned"] == true;
    let since = versions.iter().position(|v| is(&v)).context("it was never provisioned")?;
    let id = versions[since]["spec"]["providerID"].clone();
    let server = id.as_str().and_then(|id| id.rsplit('/').next()).context("no host")?.to_owned();
    rename(seen, &server, "taken-by-hand").await?;
    seen.until("its loss to be told", |mac| mac["status"]["ready"] == false).await?;
    rename(seen, &server, &seen.mac.clone()).await?;
    seen.until("the Mac to be Ready again", |mac| mac["status"]["ready"] == true).await?;
    let versions = seen.machines.of(&seen.mac);
    for version in &versions[since..] {
        ensure!(is(&version) && version["spec"]["providerID"] == id, "{version}");
    }
    Ok(())
}

async fn rename(seen: &Contract, server: &str, name: &str) -> Result<()> {
    let path = format!("/sim/hosts/{server}");
    seen.fleet.scaleway("PATCH", &path, Some(&json!({"name": name}))).await.map(|_| ())
}

/// With only the mark of `clusterctl move` it vanishes while paused, and its host keeps its name.
pub async fn contract_24_delete_for_move_calls_nobody(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mac = seen.until("the Mac to be Ready", |mac| mac["status"]["ready"] == true).await?;
    let cluster = fleet::cluster(&seen.fleet);
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": true}})).await?;
    seen.until("Paused=True", |object| {
        condition(object, "Paused").is_some_and(|paused| paused["status"] == "True")
    })
    .await?;
    let before = seen.calls().await?;
    let object = seen.object(&seen.mac);
    let only = json!({"metadata": {
        "annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""},
    }});
    objects::merge(&seen.client, &object, &only).await?;
    objects::delete(&seen.client, &object).await?;
    let look =
        async |client: &Client| Ok(objects::get(client, &object).await?.is_none().then_some(()));
    seen.fleet.until("the object to vanish", look).await?;
    ensure!(before == seen.calls().await?, "Scaleway was called");
    let server = mac["status"]["serverID"].as_str().context("no host")?;
    let hosts = seen.fleet.hosts().await?;
    let host = hosts.iter().find(|host| host["id"] == server).context("the host is gone")?;
    ensure!(host["name"] == seen.mac.as_str(), "its host is called {}", host["name"]);
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": false}})).await?;
    Ok(())
}

/// An object whose Machine and Cluster are gone still deletes cleanly.
pub async fn contract_15_an_orphan_deletes_cleanly(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mut orphan = seen.object("orphan");
    orphan["metadata"]["finalizers"] = json!(["scalewayapplesilicon.cluster.x-k8s.io/finalizer"]);
    orphan["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": "gone"});
    orphan["spec"] = json!({"adoptPoolPrefix": "tuist-pool-"});
    objects::create(&seen.client, &orphan, false).await?;
    objects::delete(&seen.client, &orphan).await?;
    let look =
        async |client: &Client| Ok(objects::get(client, &orphan).await?.is_none().then_some(()));
    seen.fleet.until("the orphan to be gone", look).await?;
    ground.contract = None;
    Ok(())
}
