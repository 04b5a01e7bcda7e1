//! The `scale` subresource: one number of an object, seen as an object of its own. No I/O.

use serde_json::{Value, json};

use super::kind::Scale;
use super::patch::Patch;
use super::refusal::{Fault, Refusal};
use super::state::{Ask, State};
use super::write::Part;

/// A write to a scale.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Replace(Value),
    Patch(Patch),
}

impl State {
    /// Shows, and before that changes, the scale of the object that the path names.
    pub fn scale(&mut self, ask: &Ask, change: Option<Change>) -> Result<Value, Refusal> {
        let kind = ask.kind().clone();
        let paths =
            kind.versions[ask.target.version].scale.as_ref().ok_or_else(Refusal::no_such_path)?;
        let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
        let Some(change) = change else {
            return Ok(show(paths, &*self.find(&kind, &key)?));
        };
        let updated = self.update(ask, Part::Whole, |object| {
            let scale = show(paths, object);
            let wanted = match change {
                Change::Replace(scale) => scale,
                Change::Patch(patch) => patch.apply(&scale, None)?,
            };
            let replicas = wanted["spec"]["replicas"].as_i64().unwrap_or_default();
            if replicas < 0 {
                let why = "should be a non-negative integer";
                let fault = Fault::invalid("spec.replicas", &json!(replicas), why);
                return Err(Refusal::invalid(&kind, &key.name, &[fault]));
            }
            let mut object = object.clone();
            paths.spec_replicas.set(&mut object, json!(replicas));
            // The scale that the client read is a precondition as the object itself would be.
            if let Some(version) = wanted["metadata"]["resourceVersion"].as_str() {
                object["metadata"]["resourceVersion"] = json!(version);
            }
            Ok(object)
        })?;
        Ok(show(paths, &updated))
    }
}

fn show(paths: &Scale, object: &Value) -> Value {
    let metadata = &object["metadata"];
    let number = |path: &super::jsonpath::Path| path.first(object).and_then(Value::as_i64);
    let mut scale = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"],
            "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"],
            "creationTimestamp": metadata["creationTimestamp"]},
        "spec": {},
        "status": {"replicas": number(&paths.status_replicas).unwrap_or_default()},
    });
    // A zero is left out, as everywhere in this kind.
    if let Some(replicas) = number(&paths.spec_replicas).filter(|replicas| *replicas != 0) {
        scale["spec"]["replicas"] = json!(replicas);
    }
    let selector = match &paths.selector {
        Some(path) => path.first(object).and_then(Value::as_str).map(str::to_owned),
        None => equality_selector(&object["spec"]["selector"]["matchLabels"]),
    };
    if let Some(selector) = selector {
        scale["status"]["selector"] = json!(selector);
    }
    scale
}

fn equality_selector(labels: &Value) -> Option<String> {
    let terms: Vec<String> = labels
        .as_object()?
        .iter()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    Some(terms.join(","))
}
