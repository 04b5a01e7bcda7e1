//! The lines of Cluster API's checklist that need our programs: one small fleet serves them all,
//! and every version of its objects is on record. They run in this order.

mod blocking;

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{self, CLUSTER_API, INFRASTRUCTURE};
use crate::installation::{ClusterForm, Installation, POOL_PREFIX};
use crate::recording::Recording;
use crate::{Audit, Ground, audit, objects, wait};

pub use blocking::contract_23_a_move_waits_for_claims_bootstraps_and_releases;

const KIND: &str = "ScalewayAppleSiliconMachine";
const MINE: &str = "example.org/mine";
const PAUSED: &str = "cluster.x-k8s.io/paused";
const FINALIZER: &str = "scalewayapplesilicon.cluster.x-k8s.io/finalizer";

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
        let mut fleet = fleet::install(ground, "contract", ClusterForm::Original).await?;
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

    /// A `MachineSet` of no Machines that Cluster API leaves alone.
    fn paused_set(&self) -> Value {
        let namespace = &self.fleet.plan.namespace;
        let cluster = format!("{namespace}-capi");
        let labels = json!({"cluster.x-k8s.io/cluster-name": cluster, "set": "paused"});
        let mut set = objects::named(CLUSTER_API, "MachineSet", namespace, "paused");
        set["metadata"]["annotations"] = json!({PAUSED: ""});
        set["spec"] = json!({
            "clusterName": cluster, "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {
                "clusterName": cluster,
                "bootstrap": {"dataSecretName": format!("{namespace}-noop-bootstrap")},
                "infrastructureRef": {
                    "apiGroup": "infrastructure.cluster.x-k8s.io",
                    "kind": "ScalewayAppleSiliconMachineTemplate", "name": namespace,
                },
            }},
        });
        set
    }

    /// Waits until a Mac's object says `reason` in Ready=False, and its Machine repeats it.
    async fn is_lost(&mut self, mac: &str, reason: &str) -> Result<()> {
        let object = self.object(mac);
        let look = async |client: &Client| {
            let found = objects::get(client, &object).await?.context("no object")?;
            let ready = condition(&found, "Ready").context("no Ready")?;
            ensure!(ready["status"] == "False" && ready["reason"] == reason, "{ready}");
            Ok(Some(ready.clone()))
        };
        let ours = self.fleet.until(&format!("Ready=False, {reason}"), look).await?;
        let machine = objects::named(CLUSTER_API, "Machine", &self.fleet.plan.namespace, mac);
        let look = async |client: &Client| {
            let machine = objects::get(client, &machine).await?.context("no Machine")?;
            let theirs = condition(&machine, "InfrastructureReady").context("no condition")?;
            for field in ["status", "reason", "message", "lastTransitionTime"] {
                ensure!(theirs[field] == ours[field], "{field}: {theirs} is not {ours}");
            }
            Ok(Some(()))
        };
        self.fleet.until("the Machine to repeat it", look).await
    }

    /// Another Mac than the one that all lines look at.
    async fn another(&mut self) -> Result<Value> {
        if fleet::machines(&self.client, &self.fleet).await?.len() < 2 {
            fleet::scale(&mut self.fleet, 2).await?;
        }
        let machines = fleet::machines(&self.client, &self.fleet).await?;
        let name = machines.iter().filter_map(|m| objects::name(m).ok()).find(|n| *n != self.mac);
        let object = self.object(name.context("there is no other Mac")?);
        objects::get(&self.client, &object).await?.context("it was just listed")
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
        let state = self.fleet.state().await?;
        let calls = state["calls"].as_object().context("the state does not count calls")?;
        Ok(calls.values().filter_map(Value::as_u64).sum())
    }
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// What only a `MachineSet` owns is not written to, and nobody outside hears of it.
pub async fn contract_07_a_fresh_object_is_left_alone(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let object = seen.object(&seen.mac);
    // The one Mac there is calls nobody while it is paused (line 14).
    pause(seen, &object, true).await?;
    // A set that Cluster API does not act on: it would remove what no Machine of its names.
    let set = seen.paused_set();
    let owner = objects::create(&seen.client, &set, false).await?;
    let before = seen.calls().await?;
    let mut fresh = seen.object("fresh");
    fresh["metadata"]["ownerReferences"] = json!([{
        "apiVersion": CLUSTER_API, "kind": "MachineSet",
        "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"],
    }]);
    fresh["spec"] = json!({"adoptPoolPrefix": POOL_PREFIX});
    objects::create(&seen.client, &fresh, false).await?;
    // One that the provider lets go without a call, made later: when it is gone, the first was
    // looked at.
    let mut beacon = seen.object("beacon");
    beacon["metadata"]["annotations"] = json!({PAUSED: ""});
    beacon["metadata"]["finalizers"] = json!([FINALIZER]);
    beacon["spec"] = json!({"adoptPoolPrefix": POOL_PREFIX});
    objects::create(&seen.client, &beacon, false).await?;
    objects::delete(&seen.client, &beacon).await?;
    let gone =
        async |client: &Client| Ok(objects::get(client, &beacon).await?.is_none().then_some(()));
    seen.fleet.until("an object beside it to go", gone).await?;
    some_looks(&mut seen.fleet).await?;
    let after = seen.calls().await?;
    ensure!(before == after, "{} calls outside", after - before);
    let versions = seen.machines.of("fresh");
    ensure!(!versions.is_empty(), "it was never seen");
    for version in versions {
        ensure!(version["metadata"]["finalizers"].is_null(), "a finalizer: {version}");
        ensure!(version["status"].is_null(), "a status: {version}");
    }
    for gone in [&fresh, &set] {
        objects::delete(&seen.client, gone).await?;
    }
    pause(seen, &object, false).await
}

/// Time for the provider, which looks once a second, to do what it should not.
async fn some_looks(fleet: &mut Installation) -> Result<()> {
    let mut looks = 0;
    let look = async |_: &Client| {
        looks += 1;
        Ok((looks > 10).then_some(()))
    };
    fleet.until("ten looks", look).await
}

/// While the finalizer cannot be written, nobody outside hears of the object.
pub async fn contract_08_the_finalizer_comes_before_the_first_call(
    ground: &mut Ground,
) -> Result<()> {
    let seen = contract(ground).await?;
    let object = seen.object(&seen.mac);
    pause(seen, &object, true).await?;
    let namespace = seen.fleet.plan.namespace.clone();
    let policy = no_finalizers(&namespace);
    for part in &policy {
        objects::create(&seen.client, part, false).await?;
    }
    let mut probe = seen.object("probe");
    probe["spec"] = json!({"adoptPoolPrefix": POOL_PREFIX});
    probe["metadata"]["annotations"] = json!({PAUSED: ""});
    let before = seen.calls().await?;
    let client = seen.client.clone();
    wait::until("finalizers to be refused", async || {
        let mut with = probe.clone();
        with["metadata"]["finalizers"] = json!([FINALIZER]);
        Ok(objects::create(&client, &with, true).await.is_err().then_some(()))
    })
    .await?;
    fleet::ask_for(&mut seen.fleet, 2).await?;
    let user = format!("system:serviceaccount:{namespace}:");
    let plane = ground.control_plane().await?;
    wait::until("the provider to be refused its finalizer", async || {
        let audit = Audit::read(plane, &user)?;
        let refused = |call: &&Value| {
            audit::code(call) == 422
                && call["objectRef"]["resource"] == "scalewayapplesiliconmachines"
        };
        Ok((audit.calls().iter().filter(refused).count() >= 2).then_some(()))
    })
    .await?;
    let seen = contract(ground).await?;
    let after = seen.calls().await?;
    for part in policy.iter().rev() {
        objects::delete(&seen.client, part).await?;
    }
    ensure!(before == after, "{} calls before the finalizer", after - before);
    pause(seen, &object, false).await?;
    fleet::available(&mut seen.fleet, 2).await?;
    // And so it was with every object: none had a host or a claim without the finalizer.
    for version in seen.machines.versions() {
        let finalizers = version["metadata"]["finalizers"].as_array();
        if finalizers.is_none_or(|all| !all.contains(&json!(FINALIZER))) {
            ensure!(version["status"]["serverID"].is_null(), "a host too early: {version}");
            ensure!(version["status"]["phase"] != "Adopting", "a claim too early: {version}");
        }
    }
    Ok(())
}

/// A policy that lets nobody add a finalizer to a Mac of this namespace.
fn no_finalizers(namespace: &str) -> [Value; 2] {
    let name = format!("no-finalizers-{namespace}");
    let version = "admissionregistration.k8s.io/v1";
    let mut policy = objects::named(version, "ValidatingAdmissionPolicy", "", &name);
    policy["spec"] = json!({
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{
            "apiGroups": ["infrastructure.cluster.x-k8s.io"], "apiVersions": ["*"],
            "operations": ["CREATE", "UPDATE"], "resources": ["scalewayapplesiliconmachines"],
        }]},
        "validations": [{
            "expression": "!has(object.metadata.finalizers) || \
                           (oldObject != null && has(oldObject.metadata.finalizers))",
            "message": "no finalizer yet",
        }],
    });
    let mut binding = objects::named(version, "ValidatingAdmissionPolicyBinding", "", &name);
    let here = json!({"matchLabels": {"kubernetes.io/metadata.name": namespace}});
    binding["spec"] = json!({
        "policyName": name, "validationActions": ["Deny"],
        "matchResources": {"namespaceSelector": here},
    });
    [policy, binding]
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

/// No null was ever sent that could be stored, and none was: neither by the provider nor by runner
/// pools.
pub async fn contract_05_nothing_of_ours_holds_a_null(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mut stored = vec![];
    for version in seen.machines.versions().iter().chain(&seen.clusters.versions()) {
        audit::nulls(version, "", true, &mut stored);
    }
    ensure!(stored.is_empty(), "stored: {stored:?}");
    let user = format!("system:serviceaccount:{}:", seen.fleet.plan.namespace);
    let audit = Audit::read(ground.control_plane().await?, &user)?;
    let (sent, bodies) = audit.nulls_sent();
    ensure!(sent.is_empty(), "sent: {sent:#?}");
    for resource in ["scalewayapplesiliconmachines", "scalewayapplesiliconclusters", "runnerpools"]
    {
        let to = |call: &&Value| {
            call["objectRef"]["resource"] == resource && call["requestObject"].is_object()
        };
        ensure!(audit.calls().iter().any(|call| to(&call)), "no body to {resource} of {bodies}");
    }
    println!("{bodies} bodies were sent, and none holds a null");
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
    let change = json!({"metadata": {"annotations": {PAUSED: value}}});
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

/// A lost host, renamed by hand or gone for good: Ready turns False, and the Machine repeats it
/// with our reason, message and time.
pub async fn contract_11_a_lost_host_is_told(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mac = seen.until("the Mac to be Ready", |mac| mac["status"]["ready"] == true).await?;
    let server = mac["status"]["serverID"].as_str().context("no host")?.to_owned();
    let name = seen.mac.clone();
    rename(seen, &server, "taken-by-hand").await?;
    seen.is_lost(&name, "NotOurs").await?;
    rename(seen, &server, &name).await?;
    seen.until("the Mac to be Ready again", |mac| mac["status"]["ready"] == true).await?;
    // One that Scaleway does not know any more: 404.
    let other = seen.another().await?;
    let name = objects::name(&other)?.to_owned();
    let server = other["status"]["serverID"].as_str().context("no host")?;
    seen.fleet.scaleway("DELETE", &format!("/sim/hosts/{server}"), None).await?;
    seen.fleet.plan.hosts -= 1;
    seen.is_lost(&name, "HostGone").await?;
    // It goes, and no other comes in its place.
    go_first(seen, &name).await
}

/// One Machine stays, and this one goes.
async fn go_first(seen: &mut Contract, name: &str) -> Result<()> {
    let machine = objects::named(CLUSTER_API, "Machine", &seen.fleet.plan.namespace, name);
    let first = json!({"metadata": {"annotations": {"cluster.x-k8s.io/delete-machine": ""}}});
    objects::merge(&seen.client, &machine, &first).await?;
    fleet::scale(&mut seen.fleet, 1).await?;
    let left = fleet::machines(&seen.client, &seen.fleet).await?.pop().context("no Machine")?;
    ensure!(objects::name(&left)? == seen.mac, "the wrong Machine went");
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
    let only = json!({"clusterctl.cluster.x-k8s.io/delete-for-move": ""});
    let marked = objects::replace_annotations(&seen.client, &object, &only).await?;
    ensure!(marked["metadata"]["annotations"] == only, "{}", marked["metadata"]);
    objects::delete(&seen.client, &object).await?;
    let look =
        async |client: &Client| Ok(objects::get(client, &object).await?.is_none().then_some(()));
    seen.fleet.until("the object to vanish", look).await?;
    some_looks(&mut seen.fleet).await?;
    ensure!(before == seen.calls().await?, "Scaleway was called");
    let server = mac["status"]["serverID"].as_str().context("no host")?;
    let hosts = seen.fleet.hosts().await?;
    let host = hosts.iter().find(|host| host["id"] == server).context("the host is gone")?;
    ensure!(host["name"] == seen.mac.as_str(), "its host is called {}", host["name"]);
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": false}})).await?;
    // The host is another cluster's now. Here its Machine goes, and one comes in its place.
    seen.fleet.plan.hosts -= 1;
    objects::delete(&seen.client, &seen.machine()).await?;
    let gone = seen.machine();
    let look =
        async |client: &Client| Ok(objects::get(client, &gone).await?.is_none().then_some(()));
    seen.fleet.until("the moved Machine to go", look).await?;
    fleet::scale(&mut seen.fleet, 1).await?;
    let mac = fleet::machines(&seen.client, &seen.fleet).await?.pop().context("no Machine")?;
    objects::name(&mac)?.clone_into(&mut seen.mac);
    Ok(())
}

/// An object with a host, whose Machine and Cluster are gone, still deletes cleanly: its host goes
/// back to the pool, wiped, and nothing of it is left.
pub async fn contract_15_an_orphan_deletes_cleanly(ground: &mut Ground) -> Result<()> {
    let seen = contract(ground).await?;
    let mac = seen.until("the Mac to be Ready", |mac| mac["status"]["ready"] == true).await?;
    let server = mac["status"]["serverID"].as_str().context("no host")?.to_owned();
    let wipes = seen.fleet.wipes().await?[&server];
    // Paused, Cluster API does nothing about what goes.
    let cluster = fleet::cluster(&seen.fleet);
    objects::merge(&seen.client, &cluster, &json!({"spec": {"paused": true}})).await?;
    objects::orphan(&seen.client, &fleet::deployment(&seen.fleet)).await?;
    let sets = objects::named(CLUSTER_API, "MachineSet", &seen.fleet.plan.namespace, "");
    for set in objects::list(&seen.client, &sets).await? {
        objects::orphan(&seen.client, &set).await?;
    }
    objects::orphan(&seen.client, &seen.machine()).await?;
    objects::orphan(&seen.client, &cluster).await?;
    let object = seen.object(&seen.mac);
    let left = objects::get(&seen.client, &object).await?.context("it went with its Machine")?;
    ensure!(left["metadata"]["deletionTimestamp"].is_null(), "it is going already");
    ensure!(left["metadata"]["ownerReferences"].is_null(), "{}", left["metadata"]);
    ensure!(left["metadata"]["labels"]["cluster.x-k8s.io/cluster-name"].is_string(), "no label");
    objects::delete(&seen.client, &object).await?;
    let look =
        async |client: &Client| Ok(objects::get(client, &object).await?.is_none().then_some(()));
    seen.fleet.until("the orphan to be gone", look).await?;
    let hosts = seen.fleet.plan.hosts;
    fleet::in_pool(&mut seen.fleet, hosts).await?;
    ensure!(seen.fleet.wipes().await?[&server] > wipes, "its host was not wiped");
    let node = objects::named("v1", "Node", "", &seen.mac);
    ensure!(objects::get(&seen.client, &node).await?.is_none(), "its Node is left");
    ground.contract = None;
    Ok(())
}
