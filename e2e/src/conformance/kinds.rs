//! The kinds that are compared, each with an object that both servers take.

use serde_json::{Value, json};

/// A kind and how to ask for it.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name in cases.
    pub name: &'static str,
    /// `/api/v1` or `/apis/<group>/<version>`.
    pub prefix: &'static str,
    /// Its plural.
    pub plural: &'static str,
    /// Whether it lives in a namespace.
    pub namespaced: bool,
    /// What an object says beside its metadata.
    body: fn() -> Value,
    /// The same with a field changed that may change.
    changed: fn() -> Value,
}

impl Kind {
    /// The path of the collection in `{ns}`.
    pub fn path(&self) -> String {
        let place = if self.namespaced { "/namespaces/{ns}" } else { "" };
        format!("{}{place}/{}", self.prefix, self.plural)
    }

    /// The path of one object.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path())
    }

    fn version(&self) -> &'static str {
        self.prefix.trim_start_matches("/apis/").trim_start_matches("/api/")
    }

    fn whole(&self, name: &str, body: Value) -> Value {
        let mut object = json!({
            "apiVersion": self.version(), "kind": self.kind(),
            "metadata": {"name": name, "labels": {"suite": "conformance"}},
        });
        if let (Some(fields), Value::Object(body)) = (object.as_object_mut(), body) {
            fields.extend(body);
        }
        if self.name == "Node" {
            // What the real controller-manager would add.
            object["metadata"]["annotations"] = json!({"node.alpha.kubernetes.io/ttl": "0"});
        }
        object
    }

    fn kind(&self) -> &'static str {
        if self.name == "Machine" { "ScalewayAppleSiliconMachine" } else { self.name }
    }

    /// An object of this name.
    pub fn object(&self, name: &str) -> Value {
        self.whole(name, (self.body)())
    }

    /// The object with a field changed.
    pub fn changed(&self, name: &str) -> Value {
        self.whole(name, (self.changed)())
    }

    /// A merge patch that makes the change.
    pub fn change(&self) -> Value {
        (self.changed)()
    }
}

/// A built-in kind of the first group, in a namespace.
const CORE: Kind = Kind {
    name: "",
    prefix: "/api/v1",
    plural: "",
    namespaced: true,
    body: || json!({}),
    changed: || json!({}),
};

/// Every kind that is compared.
pub const KINDS: &[Kind] = &[
    Kind {
        name: "ConfigMap",
        plural: "configmaps",
        body: || json!({"data": {"a": "1", "b": "2"}}),
        changed: || json!({"data": {"a": "3", "b": "2"}}),
        ..CORE
    },
    Kind {
        name: "Secret",
        plural: "secrets",
        body: || json!({"stringData": {"a": "one"}}),
        changed: || json!({"stringData": {"a": "two"}}),
        ..CORE
    },
    Kind {
        name: "ServiceAccount",
        plural: "serviceaccounts",
        changed: || json!({"automountServiceAccountToken": false}),
        ..CORE
    },
    Kind {
        name: "Pod",
        plural: "pods",
        body: || pod("image:1"),
        changed: || pod("image:2"),
        ..CORE
    },
    Kind {
        name: "Node",
        plural: "nodes",
        namespaced: false,
        body: || json!({"spec": {"providerID": "scw://a"}}),
        changed: || {
            let taint = json!({"key": "conformance.dev/a", "effect": "NoSchedule"});
            json!({"spec": {"providerID": "scw://a", "taints": [taint]}})
        },
        ..CORE
    },
    Kind {
        name: "Service",
        plural: "services",
        // One with an address would have another address on each server.
        body: || json!({"spec": {"clusterIP": "None", "selector": {"app": "a"}}}),
        changed: || json!({"spec": {"clusterIP": "None", "selector": {"app": "b"}}}),
        ..CORE
    },
    Kind {
        name: "Lease",
        prefix: "/apis/coordination.k8s.io/v1",
        plural: "leases",
        body: || json!({"spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}}),
        changed: || json!({"spec": {"holderIdentity": "b", "leaseDurationSeconds": 40}}),
        ..CORE
    },
    Kind {
        name: "ClusterRole",
        prefix: "/apis/rbac.authorization.k8s.io/v1",
        plural: "clusterroles",
        namespaced: false,
        body: || rules("get"),
        changed: || rules("list"),
    },
    Kind {
        name: "Widget",
        prefix: "/apis/conformance.dev/v1",
        plural: "widgets",
        body: || json!({"spec": {"colour": "red"}}),
        changed: || json!({"spec": {"colour": "blue"}}),
        ..CORE
    },
    Kind {
        name: "RunnerPool",
        prefix: "/apis/tuist.dev/v1alpha1",
        plural: "runnerpools",
        body: || pool("image:1"),
        changed: || pool("image:2"),
        ..CORE
    },
    Kind {
        name: "Machine",
        prefix: "/apis/infrastructure.cluster.x-k8s.io/v1alpha1",
        plural: "scalewayapplesiliconmachines",
        body: || json!({"spec": {"type": "M2-L"}}),
        changed: || json!({"spec": {"type": "M1-M"}}),
        ..CORE
    },
];

fn rules(verb: &str) -> Value {
    json!({"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]})
}

fn pod(image: &str) -> Value {
    json!({"spec": {"containers": [{"name": "c", "image": image}],
        "automountServiceAccountToken": false, "nodeName": "nowhere"}})
}

fn pool(image: &str) -> Value {
    json!({"spec": {"image": image, "fleetSelector": "macs", "dispatchLabel": "macos",
        "runnerLabels": ["self-hosted"], "replicas": 2}})
}

/// The definition of the Widgets, which use what a schema can say.
#[must_use]
pub fn widgets() -> Value {
    let spec = json!({"type": "object", "required": ["colour"],
        "x-kubernetes-validations": [{
            "rule": "self.replicas <= 5 || self.colour == 'red'",
            "message": "only red ones may be many"}],
        "properties": {
            "colour": {"type": "string", "enum": ["red", "blue"]},
            "name": {"type": "string", "maxLength": 8, "pattern": "^[a-z]*$"},
            "replicas": {"type": "integer", "minimum": 0, "maximum": 9, "default": 2},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2,
                "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"],
                    "properties": {"name": {"type": "string"}, "size": {"type": "integer"}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            "fixed": {"type": "string", "x-kubernetes-validations": [{
                "rule": "self == oldSelf", "message": "fixed is fixed"}]}}});
    let status = json!({"type": "object", "properties": {
        "replicas": {"type": "integer"}, "phase": {"type": "string"}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.conformance.dev"},
        "spec": {"group": "conformance.dev", "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets", "singular": "widget",
                "shortNames": ["wd"], "listKind": "WidgetList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [
                    {"name": "Colour", "type": "string", "jsonPath": ".spec.colour"}],
                "schema": {"openAPIV3Schema": {"type": "object", "required": ["spec"],
                    "properties": {"spec": spec, "status": status}}}}]},
    })
}
