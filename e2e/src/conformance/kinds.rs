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

/// Formats, and texts that have them and that have not.
pub const FORMATS: &[(&str, &[&str])] = &[
    ("anything", &["x"]),
    ("bsonobjectid", &["0123456789abcdef01234567", "0123"]),
    ("byte", &["b25l", "YQ==", "b25", ""]),
    ("cidr", &["10.0.0.0/8", "fd00::/64", "10.0.0.0", "10.0.0.0/33", "10.0.0/8"]),
    ("date", &["2026-02-28", "2026-02-30", "20260228"]),
    ("date-time", &["2026-02-28T12:00:00Z", "2026-02-28T12:00:00.5+01:00", "2026-02-28", "noon"]),
    ("duration", &["1h30m", "-1.5s", "2 days", "0", "1x", "h", ""]),
    ("email", &["ada@example.dev", "Ada <ada@example.dev>", "ada", "ada@"]),
    ("hexcolor", &["#12aBcf", "fff", "#12345"]),
    ("hostname", &["mac-1.example.dev", "localhost", "-mac", "a..b", "10.0.0.1", "a.1"]),
    ("int32", &["x"]),
    ("ipv4", &["10.0.0.1", "10.0.0.256", "010.0.0.1", "fd00::1"]),
    ("ipv6", &["fd00::1", "::ffff:10.0.0.1", "10.0.0.1", "fe80::1%eth0"]),
    ("mac", &["00:1b:44:11:3a:b7", "00-1B-44-11-3A-B7", "001b.4411.3ab7", "00:1b:44"]),
    ("password", &["x", ""]),
    ("uri", &["https://example.dev/a?b#c", "/a b", "mailto:ada", "a/b", "https://a b/", "/a%zz"]),
    ("uuid", &["01234567-89ab-4def-8123-456789abcdef", "0123456789ab4def8123456789ABCDEF", "01"]),
    ("uuid3", &["01234567-89ab-3def-0123-456789abcdef", "01234567-89ab-4def-8123-456789abcdef"]),
    ("uuid4", &["01234567-89ab-4def-8123-456789abcdef", "01234567-89ab-4def-0123-456789abcdef"]),
    ("uuid5", &["01234567-89ab-5def-8123-456789abcdef", "01234567-89ab-4def-8123-456789abcdef"]),
];

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
    let mut spec = spec;
    let more = json!({
        "share": {"type": "number", "minimum": 0, "exclusiveMinimum": true,
            "maximum": 1, "exclusiveMaximum": true},
        "step": {"type": "integer", "format": "int32", "multipleOf": 5},
        "tenth": {"type": "number", "multipleOf": 0.1},
        "marks": {"type": "object", "minProperties": 1, "maxProperties": 2,
            "additionalProperties": {"type": "string"}},
        "level": {"type": "integer", "anyOf": [{"maximum": 3}, {"minimum": 7}],
            "allOf": [{"maximum": 8}, {"minimum": 1}]},
        "choice": {"type": "object", "not": {"required": ["c"]},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "properties": {"a": {"type": "string"}, "b": {"type": "string"},
                "c": {"type": "string"}}}});
    if let (Some(fields), Value::Object(more)) = (spec["properties"].as_object_mut(), more) {
        fields.extend(more);
    }
    let texts = FORMATS
        .iter()
        .map(|(format, _)| ((*format).to_owned(), json!({"type": "string", "format": format})));
    let texts: serde_json::Map<String, Value> = texts.collect();
    spec["properties"]["texts"] = json!({"type": "object", "properties": texts});
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
