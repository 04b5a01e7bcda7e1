//! Objects of any kind, as JSON: read from files, applied, waited for.

use std::path::Path;

use anyhow::{Context, Result, bail};
use http::Request;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams,
    PostParams,
};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::wait;

/// Who applies, to the API server.
const FIELD_MANAGER: &str = "applecart-e2e";

/// The objects of a YAML text, in its order.
pub fn read(text: &str) -> Result<Vec<Value>> {
    // The limits are against hostile texts; this one is pinned, and Cluster API's is large.
    let options = serde_saphyr::options! { budget: None };
    let objects: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options)?;
    Ok(objects.into_iter().filter(|object| !object.is_null()).collect())
}

/// The objects of every YAML file in a folder, by the files' names.
pub fn read_folder(folder: &Path) -> Result<Vec<Value>> {
    let list = || format!("could not list {}", folder.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(list)? {
        paths.push(entry.with_context(list)?.path());
    }
    paths.sort();
    let mut objects = Vec::new();
    for path in paths.iter().filter(|path| path.extension().is_some_and(|e| e == "yaml")) {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("could not read {}", path.display()))?;
        objects.extend(read(&text).with_context(|| format!("in {}", path.display()))?);
    }
    Ok(objects)
}

/// Where objects like this one are.
pub fn api(client: &Client, object: &Value) -> Result<Api<DynamicObject>> {
    let text = |key: &str| object[key].as_str().with_context(|| format!("an object without {key}"));
    let (group, version) = text("apiVersion")?.split_once('/').unwrap_or(("", text("apiVersion")?));
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text("kind")?));
    Ok(match object["metadata"]["namespace"].as_str().filter(|name| !name.is_empty()) {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    })
}

/// Its name.
pub fn name(object: &Value) -> Result<&str> {
    object["metadata"]["name"].as_str().context("an object without a name")
}

/// Applies an object on the server, and takes fields over from others: what the text says counts.
pub async fn apply(client: &Client, object: &Value) -> Result<DynamicObject> {
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let (api, name) = (api(client, object)?, name(object)?);
    let applied = api.patch(name, &parameters, &Patch::Apply(object)).await;
    applied.with_context(|| told("apply", object))
}

/// Applies definitions and waits until the API server serves what they define.
pub async fn define(client: &Client, definitions: &[Value]) -> Result<()> {
    for definition in definitions {
        apply(client, definition).await?;
    }
    for definition in definitions {
        established(client, name(definition)?).await?;
        served(client, definition).await?;
    }
    Ok(())
}

/// Waits until the kind that a definition defines can be listed: a moment after Established.
async fn served(client: &Client, definition: &Value) -> Result<()> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let version = format!("{}/{}", text(&spec["group"]), text(&spec["versions"][0]["name"]));
    let mut like = named(&version, &text(&spec["names"]["kind"]), "default", "");
    if spec["scope"] == "Cluster" {
        like["metadata"] = json!({});
    }
    wait::until(&told("serve", definition), async || list(client, &like).await.map(Some)).await?;
    Ok(())
}

/// Waits until a definition is Established.
pub async fn established(client: &Client, name: &str) -> Result<()> {
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    wait::until(&format!("{name} to be Established"), async || {
        let definition = definitions.get(name).await?;
        let conditions = definition.status.and_then(|status| status.conditions).unwrap_or_default();
        let yes = |kind: &str| conditions.iter().any(|c| c.type_ == kind && c.status == "True");
        Ok((yes("NamesAccepted") && yes("Established")).then_some(()))
    })
    .await
}

/// What names an object, to be filled in or looked up.
#[must_use]
pub fn named(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let metadata = json!({"namespace": namespace, "name": name});
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

/// An object as the API server has it now, if it has it.
pub async fn get(client: &Client, object: &Value) -> Result<Option<Value>> {
    let found = api(client, object)?.get_opt(name(object)?).await;
    found.with_context(|| told("read", object))?.map(|found| value(&found)).transpose()
}

/// All objects of this one's kind and namespace.
pub async fn list(client: &Client, like: &Value) -> Result<Vec<Value>> {
    let found = api(client, like)?.list(&ListParams::default()).await;
    let mut found: Vec<Value> =
        found.with_context(|| told("list", like))?.iter().map(value).collect::<Result<_>>()?;
    for object in &mut found {
        // The items of a list do not say what they are.
        object["apiVersion"] = like["apiVersion"].clone();
        object["kind"] = like["kind"].clone();
    }
    Ok(found)
}

/// Creates an object; with `dry_run` the API server only says what it would store.
pub async fn create(client: &Client, object: &Value, dry_run: bool) -> Result<Value> {
    let parameters = PostParams { dry_run, field_manager: Some(FIELD_MANAGER.into()) };
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    let created = api(client, object)?.create(&parameters, &typed).await;
    value(&created.with_context(|| told("create", object))?)
}

/// Puts an object back as it is given, resourceVersion included.
pub async fn replace(client: &Client, object: &Value) -> Result<Value> {
    let typed: DynamicObject = serde_json::from_value(object.clone())?;
    let replaced =
        api(client, object)?.replace(name(object)?, &PostParams::default(), &typed).await;
    value(&replaced.with_context(|| told("replace", object))?)
}

/// Merges a patch into an object.
pub async fn merge(client: &Client, object: &Value, patch: &Value) -> Result<Value> {
    let parameters = PatchParams::default();
    let merged = api(client, object)?.patch(name(object)?, &parameters, &Patch::Merge(patch)).await;
    value(&merged.with_context(|| told("patch", object))?)
}

/// Gives an object exactly these annotations, whatever it had: as `clusterctl move` does.
pub async fn replace_annotations(client: &Client, object: &Value, notes: &Value) -> Result<Value> {
    let change = json!([{"op": "add", "path": "/metadata/annotations", "value": notes}]);
    let url = format!("{}/{}", api(client, object)?.resource_url(), name(object)?);
    let request = Request::patch(url)
        .header("Content-Type", "application/json-patch+json")
        .body(change.to_string().into_bytes())?;
    client.request(request).await.with_context(|| told("annotate", object))
}

/// Merges a patch into an object through its status subresource.
pub async fn merge_status(client: &Client, object: &Value, patch: &Value) -> Result<Value> {
    let (api, parameters) = (api(client, object)?, PatchParams::default());
    let merged = api.patch_status(name(object)?, &parameters, &Patch::Merge(patch)).await;
    value(&merged.with_context(|| told("patch the status of", object))?)
}

/// Deletes an object, without waiting for its end.
pub async fn delete(client: &Client, object: &Value) -> Result<()> {
    let deleted = api(client, object)?.delete(name(object)?, &DeleteParams::default()).await;
    deleted.map(|_| ()).with_context(|| told("delete", object))
}

/// Takes an object away without what hangs on it, and without asking whoever wants a say.
pub async fn orphan(client: &Client, object: &Value) -> Result<()> {
    let (api, name) = (api(client, object)?, name(object)?);
    let told = || told("orphan what hangs on", object);
    api.delete(name, &DeleteParams::orphan()).await.with_context(told)?;
    wait::until(&told(), async || {
        let Some(found) = api.get_opt(name).await? else { return Ok(Some(())) };
        // The garbage collector's own finalizer goes once it has let the others go.
        let finalizers = found.metadata.finalizers.unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == "orphan") {
            let free = Patch::Merge(json!({"metadata": {"finalizers": null}}));
            api.patch(name, &PatchParams::default(), &free).await?;
        }
        Ok(None)
    })
    .await
}

/// Waits until an object looks as `fits` wants it; tells what it last looked like if it never does.
pub async fn until(
    client: &Client,
    object: &Value,
    what: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Value> {
    wait::until(what, async || {
        let found = get(client, object).await?.with_context(|| told("find", object))?;
        if fits(&found) {
            return Ok(Some(found));
        }
        bail!("{}", told("see it yet in", &found) + &format!(":\n{found:#}"))
    })
    .await
}

fn value(object: &DynamicObject) -> Result<Value> {
    Ok(serde_json::to_value(object)?)
}

fn told(verb: &str, object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("?").to_owned();
    format!("could not {verb} {} {}", text(&object["kind"]), text(&object["metadata"]["name"]))
}
