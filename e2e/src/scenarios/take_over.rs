//! Our definitions over those of the system before us, with its objects in place (S15).

use anyhow::{Context, Result, ensure};
use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::binaries::package_folder;
use crate::ground::{Ground, our_definitions};
use crate::{objects, wait};

const NAMESPACE: &str = "default";

/// Created under the old definitions, all of them stay readable, editable and deletable under ours,
/// and lose nothing.
pub async fn objects_of_the_system_before_us_live_on_under_our_definitions(
    ground: &mut Ground,
) -> Result<()> {
    let plane = ground.new_control_plane().await?;
    let client = plane.client();
    let old = objects::read_folder(&package_folder().join("original/crds"))?;
    let corpus = corpus()?;
    // Some objects are older than what the last release required.
    let older: Vec<Value> = old.iter().cloned().map(without_requirements).collect();
    objects::define(&client, &older).await?;
    for object in &corpus {
        objects::create(&client, object, false).await?;
        if object["status"].is_object() && has_status(object) {
            objects::merge_status(&client, object, &json!({"status": object["status"]})).await?;
        }
    }
    objects::define(&client, &old).await?;
    let before = read_all(&client, &corpus).await?;
    for (object, stored) in corpus.iter().zip(&before) {
        keeps(object, stored).context("the old definitions lost it: they are written wrongly")?;
    }
    objects::define(&client, &our_definitions()?).await?;
    ours_are_served(&client, &corpus).await?;
    for (object, stored) in before.iter().zip(read_all(&client, &corpus).await?) {
        keeps(object, &stored)?;
        edit(&client, &stored).await?;
        end(&client, &stored).await?;
    }
    Ok(())
}

fn corpus() -> Result<Vec<Value>> {
    let path = package_folder().join("original/corpus.yaml");
    let mut corpus = objects::read(&std::fs::read_to_string(path).context("no corpus")?)?;
    ensure!(corpus.len() > 10, "the corpus has {} objects only", corpus.len());
    for object in &mut corpus {
        object["metadata"]["namespace"] = json!(NAMESPACE);
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
    let scale = format!("/apis/tuist.dev/v1alpha1/namespaces/{NAMESPACE}/runnerpools/zeros/scale");
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

async fn end(client: &Client, stored: &Value) -> Result<()> {
    objects::delete(client, stored).await?;
    if stored["metadata"]["finalizers"].is_array() {
        let free = json!({"metadata": {"finalizers": null}});
        objects::merge(client, stored, &free).await?;
    }
    let left = objects::get(client, stored).await?;
    ensure!(left.is_none(), "{} did not go", stored["metadata"]["name"]);
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
