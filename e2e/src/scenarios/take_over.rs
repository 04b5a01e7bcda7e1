//! Our definitions and our programs over those of the system before us, with its objects in place
//! (S15).

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{self, CLUSTER_API, INFRASTRUCTURE};
use crate::binaries::package_folder;
use crate::ground::{Ground, our_definitions};
use crate::installation::{ClusterForm, Installation, Plan, VERSION};
use crate::{Audit, ClusterApi, objects, wait};

const NAMESPACE: &str = "tuist";
/// Objects of the corpus that have a host, and the id that the corpus has for it. The second one
/// names no pool.
const WITH_A_HOST: [(&str, &str); 2] = [
    ("in-full", "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e"),
    ("older-than-the-pool-with-a-host", "0e1f7c52-6d0b-4b8e-9a55-2f4ab9d4c7d1"),
];

/// The one of them whose Mac is a Node, by its own word.
const BOOTSTRAPPED: &str = "in-full";

/// Others that a Machine owns: they wait for a host, and are told so.
const WITHOUT_A_HOST: [&str; 2] = ["said-twice", "odd-words"];

/// Created under the old definitions, all of them stay readable, editable and deletable under ours,
/// and lose nothing; our running programs adopt them, and let every one of them go.
pub async fn objects_of_the_system_before_us_live_on_under_our_definitions(
    ground: &mut Ground,
) -> Result<()> {
    let mut plane = ground.new_control_plane().await?;
    let _manager = ClusterApi::start(&mut plane).await?;
    let client = plane.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace",
                           "metadata": {"name": NAMESPACE}});
    objects::create(&client, &namespace, false).await?;
    let old = objects::read_folder(&package_folder().join("original/crds"))?;
    // Some objects are older than what the last release required.
    let older: Vec<Value> = old.iter().cloned().map(without_requirements).collect();
    objects::define(&client, &older).await?;
    let plan = Plan::new(NAMESPACE.to_owned(), ClusterForm::Original, ground.seed());
    // No host is free: what has none yet goes on waiting.
    let mut installed =
        Installation::prepare(&mut plane, Plan { hosts: 0, runners: 0, ..plan }).await?;
    let hosts = order_hosts(&installed).await?;
    let corpus = corpus(&installed, &hosts)?;
    for object in &corpus {
        objects::create(&client, object, false).await?;
        if object["status"].is_object() && has_status(object) {
            objects::merge_status(&client, object, &json!({"status": object["status"]})).await?;
        }
    }
    objects::define(&client, &old).await?;
    let machines = machines_own_them(&installed, &client).await?;
    let before = read_all(&client, &corpus).await?;
    for (object, stored) in corpus.iter().zip(&before) {
        keeps(object, stored).context("the old definitions lost it: they are written wrongly")?;
    }
    objects::define(&client, &our_definitions()?).await?;
    ours_are_served(&client, &corpus).await?;
    for (object, stored) in before.iter().zip(read_all(&client, &corpus).await?) {
        keeps(object, &stored)?;
        edit(&client, &stored).await?;
    }
    installed.begin(&mut plane).await?;
    they_are_adopted(&mut installed, &hosts).await?;
    they_go(&mut installed, &[machines, corpus].concat()).await?;
    fleet::in_pool(&mut installed, hosts.len()).await?;
    for (host, wipes) in installed.wipes().await? {
        ensure!(wipes == 1, "host {host} was wiped {wipes} times");
    }
    let audit = Audit::read(&plane, &format!("system:serviceaccount:{NAMESPACE}:"))?;
    audit.none_is_a_defect()?;
    audit.nobody_spins()
}

/// A host for each object that has one, under its name; ids by object.
async fn order_hosts(fleet: &Installation) -> Result<BTreeMap<&'static str, String>> {
    let mut ids = BTreeMap::new();
    for (name, _) in WITH_A_HOST {
        let order = json!({"name": name, "os": "macos-tahoe-26.0"});
        fleet.scaleway("POST", "/sim/hosts", Some(&order)).await?;
        let hosts = fleet.hosts().await?;
        let host = hosts.iter().find(|host| host["name"] == name).context("not delivered")?;
        ids.insert(name, host["id"].as_str().context("a host without an id")?.to_owned());
    }
    Ok(ids)
}

/// Some belong to Machines of Cluster API, whose Cluster the old provider knew.
async fn machines_own_them(installed: &Installation, client: &Client) -> Result<Vec<Value>> {
    let cluster = format!("{}-capi", installed.plan.namespace);
    let kind = "ScalewayAppleSiliconCluster";
    let infrastructure = objects::named(INFRASTRUCTURE, kind, NAMESPACE, &cluster);
    objects::merge_status(client, &infrastructure, &json!({"status": {"ready": true}})).await?;
    let mut machines = Vec::new();
    for name in WITH_A_HOST.map(|(name, _)| name).into_iter().chain(WITHOUT_A_HOST) {
        let kind = "ScalewayAppleSiliconMachine";
        let mut machine = objects::named(CLUSTER_API, "Machine", NAMESPACE, name);
        machine["metadata"]["labels"] = json!({"cluster.x-k8s.io/cluster-name": cluster});
        machine["spec"] = json!({
            "clusterName": cluster, "version": VERSION,
            "bootstrap": {"dataSecretName": format!("{NAMESPACE}-noop-bootstrap")},
            "infrastructureRef": {
                "apiGroup": "infrastructure.cluster.x-k8s.io", "kind": kind, "name": name,
            },
        });
        objects::create(client, &machine, false).await?;
        let mac = objects::named(INFRASTRUCTURE, kind, NAMESPACE, name);
        let owned = |mac: &Value| mac["metadata"]["ownerReferences"][0]["kind"] == "Machine";
        objects::until(client, &mac, "the Machine to own its Mac", owned).await?;
        machines.push(machine);
    }
    Ok(machines)
}

/// Taken over: each host is its object's by Lease too, and nothing was done to it.
async fn they_are_adopted(
    fleet: &mut Installation,
    hosts: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let leases = objects::named("coordination.k8s.io/v1", "Lease", NAMESPACE, "");
    let look = async |client: &Client| {
        let leases = objects::list(client, &leases).await?;
        for name in hosts.keys() {
            let of = |lease: &&Value| {
                let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
                holder.starts_with(&format!("{NAMESPACE}/{name}/"))
            };
            ensure!(leases.iter().filter(of).count() == 1, "{name} does not hold its host");
        }
        for name in WITHOUT_A_HOST {
            let mac =
                objects::named(INFRASTRUCTURE, "ScalewayAppleSiliconMachine", NAMESPACE, name);
            let mac = objects::get(client, &mac).await?.context("it is gone")?;
            let told = mac["status"]["lastReason"].as_str().unwrap_or_default();
            ensure!(told.contains("pool"), "{name} is not told why it waits: {told:?}");
        }
        Ok(Some(()))
    };
    fleet.until("the old objects to be taken over", look).await?;
    let state = fleet.state().await?;
    for host in state["hosts"].as_array().into_iter().flatten() {
        let known = hosts.contains_key(host["name"].as_str().unwrap_or_default());
        ensure!(known && host["wipes"] == 0, "taken over, it changed: {host}");
    }
    they_are_untouched(fleet, hosts).await
}

/// A Mac that the system before us made a Node is left as it is, and its object says so.
async fn they_are_untouched(
    fleet: &mut Installation,
    hosts: &BTreeMap<&'static str, String>,
) -> Result<()> {
    let mac =
        objects::named(INFRASTRUCTURE, "ScalewayAppleSiliconMachine", NAMESPACE, BOOTSTRAPPED);
    let told = async |client: &Client| {
        let mac = objects::get(client, &mac).await?.context("it is gone")?;
        let conditions = mac["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let says = conditions.iter().find(|condition| condition["type"] == "UpToDate");
        let says = says.map(|condition| (&condition["status"], &condition["reason"]));
        ensure!(says == Some((&json!("Unknown"), &json!("TakenOver"))), "it says {says:?}");
        let stamp = &mac["status"]["tartKubeletBinarySHA"];
        ensure!(stamp == "00ff00ff", "its stamp is {stamp}");
        Ok(Some(()))
    };
    fleet.until("the take-over to be told", told).await?;
    let calls = fleet.calls(&hosts[BOOTSTRAPPED]).await?;
    ensure!(calls.as_array().is_some_and(Vec::is_empty), "somebody was there: {calls}");
    Ok(())
}

/// Deleted as a person does it, every object goes, by our programs' own doing.
async fn they_go(fleet: &mut Installation, corpus: &[Value]) -> Result<()> {
    let left = async |client: &Client| {
        let mut left = Vec::new();
        for object in corpus {
            if let Some(found) = objects::get(client, object).await? {
                left.push(found);
            }
        }
        Ok::<_, anyhow::Error>(left)
    };
    let all = async |client: &Client| {
        for object in left(client).await? {
            if object["metadata"]["deletionTimestamp"].is_null() {
                objects::delete(client, &object).await?;
            }
        }
        Ok(Some(()))
    };
    fleet.until("all to be deleted", all).await?;
    let gone = async |client: &Client| {
        let left = left(client).await?;
        let names: Vec<_> = left.iter().map(|object| &object["metadata"]["name"]).collect();
        ensure!(left.is_empty(), "left: {names:?}");
        Ok(Some(()))
    };
    fleet.until("all to go", gone).await
}

fn corpus(fleet: &Installation, hosts: &BTreeMap<&'static str, String>) -> Result<Vec<Value>> {
    let path = package_folder().join("original/corpus.yaml");
    let mut text = std::fs::read_to_string(path).context("no corpus")?;
    for (name, id) in WITH_A_HOST {
        text = text.replace(id, &hosts[name]);
    }
    let mut corpus = objects::read(&text)?;
    ensure!(corpus.len() > 10, "the corpus has {} objects only", corpus.len());
    for object in &mut corpus {
        let pool = object["kind"] == "RunnerPool";
        let namespace = if pool { fleet.runners_namespace() } else { NAMESPACE.to_owned() };
        object["metadata"]["namespace"] = json!(namespace);
    }
    Ok(corpus)
}

/// Templates have no status.
fn has_status(object: &Value) -> bool {
    !object["kind"].as_str().is_some_and(|kind| kind.ends_with("Template"))
}

/// A definition as it was before anything was required in a spec.
fn without_requirements(mut definition: Value) -> Value {
    fn strip(schema: &mut Value) {
        let Some(schema) = schema.as_object_mut() else { return };
        schema.remove("required");
        schema.remove("minLength");
        if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
            properties.values_mut().for_each(strip);
        }
    }
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec";
    if let Some(spec) = definition.pointer_mut(spec) {
        strip(spec);
    }
    definition
}

async fn read_all(client: &Client, corpus: &[Value]) -> Result<Vec<Value>> {
    let mut stored = Vec::new();
    for object in corpus {
        let found = objects::get(client, object).await?;
        stored.push(found.with_context(|| format!("{} is gone", object["metadata"]["name"]))?);
    }
    Ok(stored)
}

/// An API server takes a moment to serve a changed definition. Each kind is asked for something
/// that only ours can do.
async fn ours_are_served(client: &Client, corpus: &[Value]) -> Result<()> {
    let named = |name: &str| {
        let found = corpus.iter().find(|object| object["metadata"]["name"] == name);
        found.cloned().with_context(|| format!("no {name} in the corpus"))
    };
    let mut fresh = named("just-created")?;
    fresh["metadata"]["name"] = json!("probe");
    fresh["spec"] = json!({});
    let mut template = named("tuist-tuist-macos-fleet")?;
    template["metadata"]["name"] = json!("probe");
    template["spec"]["template"]["metadata"] = json!({"labels": {"a": "b"}});
    let cluster = named("tuist-tuist-capi")?;
    let provisioned = json!({"status": {"initialization": {"provisioned": true}}});
    let pools = named("zeros")?["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
    let scale = format!("/apis/tuist.dev/v1alpha1/namespaces/{pools}/runnerpools/zeros/scale");
    wait::until("our definitions to be served", async || {
        objects::create(client, &fresh, true).await?;
        let cloned = objects::create(client, &template, true).await?;
        ensure!(cloned["spec"]["template"]["metadata"].is_object(), "the template's is old");
        let written = objects::merge_status(client, &cluster, &provisioned).await?;
        ensure!(written["status"]["initialization"].is_object(), "the cluster's is old");
        let request = Request::get(&scale).body(Vec::new())?;
        client.request::<Value>(request).await?;
        Ok(Some(()))
    })
    .await
}

/// All that was there is there, with the same values; more may be.
fn keeps(old: &Value, new: &Value) -> Result<()> {
    fn lost(old: &Value, new: &Value, path: &str) -> Option<String> {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => old.iter().find_map(|(key, value)| {
                let path = format!("{path}.{key}");
                // What the API server counts.
                if path == ".metadata.managedFields" || path == ".metadata.resourceVersion" {
                    return None;
                }
                new.get(key).map_or(Some(path.clone()), |new| lost(value, new, &path))
            }),
            _ => (old != new).then(|| format!("{path}: {old} became {new}")),
        }
    }
    let lost = lost(old, new, "");
    ensure!(lost.is_none(), "{} lost {lost:?}", old["metadata"]["name"]);
    Ok(())
}

/// What people and controllers do to an object: put it back, label it, write its status.
async fn edit(client: &Client, stored: &Value) -> Result<()> {
    // Cluster API may have written to it since.
    let stored = &objects::get(client, stored).await?.context("it is gone")?;
    let put = objects::replace(client, stored).await?;
    keeps(stored, &put)?;
    let labelled = json!({"metadata": {"labels": {"seen": "yes"}}});
    let labelled = objects::merge(client, stored, &labelled).await?;
    assert_eq!(labelled["metadata"]["labels"]["seen"], "yes");
    if has_status(stored) {
        let status = json!({"status": {"observedGeneration": 7}});
        let told = objects::merge_status(client, stored, &status).await?;
        assert_eq!(told["status"]["observedGeneration"], 7);
        if stored["status"].is_object() {
            keeps(&stored["status"], &told["status"])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_changed_value_is_found_and_an_added_one_is_not() {
        let old = json!({"metadata": {"name": "x", "resourceVersion": "1"}, "spec": {"a": 1}});
        let mut new = old.clone();
        new["metadata"]["resourceVersion"] = json!("2");
        new["spec"]["b"] = json!(2);
        assert!(keeps(&old, &new).is_ok());
        new["spec"]["a"] = json!(2);
        assert!(keeps(&old, &new).unwrap_err().to_string().contains(".spec.a"));
        new["spec"] = json!({});
        assert!(keeps(&old, &new).unwrap_err().to_string().contains(".spec.a"));
    }
}
