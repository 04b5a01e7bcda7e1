//! A small cluster and things to put into it.

use std::sync::Arc;

use applecart_api::clock::Clock;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};

pub fn widget_definition() -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.test.dev"},
        "spec": {"group": "test.dev", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget",
                "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}},
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "properties": {
                        "spec": {"type": "object", "required": ["colour"], "properties": {
                            "colour": {"type": "string", "enum": ["red", "blue"]},
                            "replicas": {"type": "integer", "minimum": 0, "default": 2}}},
                        "status": {"type": "object", "properties": {
                            "replicas": {"type": "integer"},
                            "phase": {"type": "string"}}}}}}}]},
    }))
    .unwrap()
}

pub fn registry() -> Arc<Registry> {
    Registry::new(vec![widget_definition()]).unwrap()
}

/// A clock that follows tokio's, so that virtual time moves both.
pub fn clock() -> Clock {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Clock::new(move || epoch + start.elapsed())
}

pub fn server() -> ApiServer {
    ApiServer::new(clock(), 1, registry())
}

pub fn admin(server: &ApiServer) -> Client {
    server.client(Identity::admin())
}

pub fn widgets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("test.dev", "v1", "Widget");
    let resource = ApiResource::from_gvk_with_plural(&kind, "widgets");
    Api::namespaced_with(client.clone(), "default", &resource)
}

pub fn widget(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "test.dev/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": spec}))
    .unwrap()
}

pub fn pod(name: &str, node: Option<&str>) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}))
    .unwrap()
}

pub fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

pub fn owned_map(name: &str, owner: &ConfigMap) -> ConfigMap {
    let mut map = config_map(name);
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(),
        "uid": owner.uid(), "blockOwnerDeletion": true}]);
    map.metadata.owner_references = serde_json::from_value(reference).unwrap();
    map
}

/// The code and reason of the refusal that a call must end with.
pub fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

pub fn code(code: u16, reason: &str) -> (u16, String) {
    (code, reason.to_owned())
}

pub fn merge(patch: &Value) -> Patch<&Value> {
    Patch::Merge(patch)
}
