//! The five CRDs, as they are installed.
//!
//! The schemas come from the Rust types. What a type cannot say is added here: labels for Cluster
//! API, the rules for what must not change, conditions as a map by type, an empty spec for objects
//! that were stored without one (S15); and `nullable` is taken out, because a stored null makes
//! Cluster API's readers fail.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;
use serde_json::{Value, json};

use crate::cluster::ScalewayAppleSiliconCluster;
use crate::control_plane::ExistingControlPlane;
use crate::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineTemplate};
use crate::runner_pool::RunnerPool;

/// Fields of a claimed Mac's spec that say which host it is. The pool prefix and the OS pin may
/// change: they steer the release, and an operator must be able to mend them (P17, P32).
const FIXED_FIELDS: [&str; 3] = ["type", "zone", "fleetName"];

/// All CRDs of Applecart.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    let mut machine = document(&ScalewayAppleSiliconMachine::crd());
    fix_fields(&mut machine);
    let mut cluster = document(&ScalewayAppleSiliconCluster::crd());
    let mut control_plane = document(&ExistingControlPlane::crd());
    for definition in [&mut machine, &mut cluster, &mut control_plane] {
        spec_schema(definition)["default"] = json!({});
    }
    let mut pool = document(&RunnerPool::crd());
    // Pools may have been stored without a spec (S15). They cannot have an empty one, which lacks
    // what a pool needs; required, it would bar every write to them, that of a finalizer too.
    let schema = &mut pool["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    schema.as_object_mut().expect("a schema is an object").remove("required");
    let template = document(&ScalewayAppleSiliconMachineTemplate::crd());
    let mut definitions = [machine, template, cluster, control_plane];
    for definition in &mut definitions {
        definition["metadata"]["labels"] = json!({
            "cluster.x-k8s.io/provider": "infrastructure-scaleway-applesilicon",
            "cluster.x-k8s.io/v1beta1": "v1alpha1",
            "cluster.x-k8s.io/v1beta2": "v1alpha1",
            "clusterctl.cluster.x-k8s.io": "",
        });
    }
    definitions
        .into_iter()
        .chain([pool])
        .map(|definition| serde_json::from_value(definition).expect("still a CRD"))
        .collect()
}

fn document(definition: &CustomResourceDefinition) -> Value {
    let mut document = serde_json::to_value(definition).expect("a CRD is JSON");
    tidy_schema(&mut document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    document
}

/// Takes out what the Rust types say and Kubernetes must not hear; makes conditions a map.
fn tidy_schema(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            let integer = fields.get("type").and_then(Value::as_str) == Some("integer");
            if integer && fields.get("format").and_then(Value::as_str) == Some("int64") {
                fields.remove("format");
            }
            if let Some(conditions) =
                fields.get_mut("properties").and_then(|p| p.get_mut("conditions"))
            {
                conditions["x-kubernetes-list-type"] = json!("map");
                conditions["x-kubernetes-list-map-keys"] = json!(["type"]);
            }
            fields.values_mut().for_each(tidy_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy_schema),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn spec_schema(definition: &mut Value) -> &mut Value {
    &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
}

fn fix_fields(definition: &mut Value) {
    let rules: Vec<Value> = FIXED_FIELDS
        .iter()
        .map(|field| {
            json!({
                "rule": format!(
                    "!has(oldSelf.{field}) || \
                     (has(self.{field}) && self.{field} == oldSelf.{field})"
                ),
                "message": format!(
                    "spec.{field} cannot change once set: make a new template and a new Machine"
                ),
            })
        })
        .collect();
    spec_schema(definition)["x-kubernetes-validations"] = Value::Array(rules);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn walk(value: &Value, path: &str, visit: &mut dyn FnMut(&str, &Value)) {
        visit(path, value);
        match value {
            Value::Object(fields) => {
                for (key, inner) in fields {
                    walk(inner, &format!("{path}.{key}"), visit);
                }
            }
            Value::Array(items) => {
                for (i, inner) in items.iter().enumerate() {
                    walk(inner, &format!("{path}[{i}]"), visit);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn documents() -> Vec<Value> {
        crds().iter().map(|crd| serde_json::to_value(crd).unwrap()).collect()
    }

    #[test]
    fn no_schema_lets_a_null_be_stored() {
        for document in documents() {
            walk(&document, "", &mut |path, _| assert!(!path.ends_with(".nullable"), "{path}"));
        }
    }

    #[test]
    fn every_field_is_described() {
        for document in documents() {
            let kind = document["spec"]["names"]["kind"].as_str().unwrap().to_owned();
            let schema = &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            walk(schema, &kind, &mut |path, value| {
                let Some(fields) = value.get("properties").and_then(Value::as_object) else {
                    return;
                };
                if path.ends_with(".properties") {
                    return;
                }
                for (name, field) in fields {
                    let standard = ["apiVersion", "kind", "metadata"].contains(&name.as_str());
                    assert!(
                        standard || field["description"].as_str().is_some_and(|d| d.len() > 10),
                        "{path}.{name} says nothing to `kubectl explain`"
                    );
                }
            });
        }
    }

    #[test]
    fn conditions_are_a_map_by_type_that_asks_for_type_and_status_only() {
        let with_conditions = [true, false, true, true, true];
        assert_eq!(documents().len(), with_conditions.len());
        for (document, has_status) in documents().iter().zip(with_conditions) {
            let schema = &document["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let conditions = &schema["properties"]["status"]["properties"]["conditions"];
            assert_eq!(conditions.is_object(), has_status);
            if has_status {
                assert_eq!(conditions["x-kubernetes-list-map-keys"], json!(["type"]));
                let mut required: Vec<String> =
                    serde_json::from_value(conditions["items"]["required"].clone()).unwrap();
                required.sort();
                assert_eq!(required, ["status", "type"]);
            }
        }
    }

    #[test]
    fn no_infrastructure_spec_has_a_required_field_but_the_templates_own() {
        // P31: a field that a live template never received must not block its clones.
        let machine = &documents()[0]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(machine["properties"]["spec"].get("required"), None);
        let rules = &machine["properties"]["spec"]["x-kubernetes-validations"];
        assert_eq!(rules.as_array().unwrap().len(), FIXED_FIELDS.len());
        let template = &documents()[1]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let inner = &template["properties"]["spec"]["properties"]["template"]["properties"]["spec"];
        assert_eq!(inner.get("x-kubernetes-validations"), None);
    }

    #[test]
    fn defaults_and_columns_are_those_that_a_running_fleet_knows() {
        let documents = documents();
        let version = &documents[0]["spec"]["versions"][0];
        let spec = &version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        for (field, default) in [("type", "M2-L"), ("zone", "fr-par-1"), ("os", "macos-tahoe-26.3")]
        {
            assert_eq!(spec[field]["default"], json!(default));
        }
        let columns = |index: usize| -> Vec<String> {
            documents[index]["spec"]["versions"][0]["additionalPrinterColumns"]
                .as_array()
                .unwrap()
                .iter()
                .map(|column| column["name"].as_str().unwrap().to_owned())
                .collect()
        };
        let known = ["Phase", "ProviderID", "Ready", "Age"];
        let ours: Vec<String> = columns(0).into_iter().filter(|c| known.contains(&&**c)).collect();
        assert_eq!(ours, known);
        assert_eq!(columns(2), ["Endpoint", "Ready"]);
        let pool =
            &documents[4]["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        assert_eq!(pool["properties"]["podCPUMilli"]["default"], json!(8000));
        assert_eq!(
            pool["properties"]["autoscaling"]["properties"]["minWarmPoolFloor"]["default"],
            json!(1)
        );
        assert_eq!(
            pool["required"],
            json!(["dispatchLabel", "fleetSelector", "image", "runnerLabels"])
        );
        let whole = &documents[4]["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        assert_eq!(whole.get("required"), None, "a pool without a spec can be written to (S15)");
    }
}
