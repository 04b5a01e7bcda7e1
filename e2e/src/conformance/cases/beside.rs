//! What a server tells of itself, and what a watch tells of time: discovery, schemas, histories.

use serde_json::json;

use super::{Case, MERGE, Request, ask, delete, get, patch, post};

const WIDGETS: &str = "/apis/conformance.dev/v1/namespaces/{ns}/widgets";
const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

/// Every group version of which something is compared, and what.
const SERVED: &[(&str, &[&str])] = &[
    (
        "/api/v1",
        &[
            "configmaps",
            "events",
            "namespaces",
            "namespaces/status",
            "nodes",
            "nodes/status",
            "pods",
            "pods/binding",
            "pods/eviction",
            "pods/status",
            "secrets",
            "serviceaccounts",
            "serviceaccounts/token",
            "services",
            "services/status",
        ],
    ),
    (
        "/apis/apps/v1",
        &[
            "deployments",
            "deployments/scale",
            "deployments/status",
            "replicasets",
            "replicasets/scale",
            "replicasets/status",
        ],
    ),
    (
        "/apis/rbac.authorization.k8s.io/v1",
        &["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
    ),
    ("/apis/authentication.k8s.io/v1", &["selfsubjectreviews"]),
    ("/apis/authorization.k8s.io/v1", &["selfsubjectaccessreviews"]),
    ("/apis/policy/v1", &[]),
    ("/apis/coordination.k8s.io/v1", &["leases"]),
    ("/apis/events.k8s.io/v1", &[]),
    (
        "/apis/certificates.k8s.io/v1",
        &[
            "certificatesigningrequests",
            "certificatesigningrequests/approval",
            "certificatesigningrequests/status",
        ],
    ),
    ("/apis/apiextensions.k8s.io/v1", &[]),
    ("/apis/conformance.dev/v1", &[]),
    ("/apis/tuist.dev/v1alpha1", &[]),
    ("/apis/infrastructure.cluster.x-k8s.io/v1alpha1", &[]),
];

const GROUPS: &[&str] = &[
    "apiextensions.k8s.io",
    "apps",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "conformance.dev",
    "coordination.k8s.io",
    "events.k8s.io",
    "infrastructure.cluster.x-k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "tuist.dev",
];

/// Schemas of custom resources; those of built-in kinds are the work of a library.
const SCHEMAS: &[(&str, &[&str])] = &[
    ("apis/conformance.dev/v1", &["dev.conformance.v1.Widget"]),
    ("apis/tuist.dev/v1alpha1", &["dev.tuist.v1alpha1.RunnerPool"]),
    (
        "apis/infrastructure.cluster.x-k8s.io/v1alpha1",
        &[
            "io.x-k8s.cluster.infrastructure.v1alpha1.ScalewayAppleSiliconCluster",
            "io.x-k8s.cluster.infrastructure.v1alpha1.ScalewayAppleSiliconMachine",
            "io.x-k8s.cluster.infrastructure.v1alpha1.ScalewayAppleSiliconMachineTemplate",
        ],
    ),
];

/// What of the schemas' index is compared.
const DOCUMENTS: &[&str] = &[
    "api/v1",
    "apis/apps/v1",
    "apis/conformance.dev/v1",
    "apis/infrastructure.cluster.x-k8s.io/v1alpha1",
    "apis/tuist.dev/v1alpha1",
];

/// Every case.
pub fn cases() -> Vec<Case> {
    let mut cases = discovery();
    cases.extend(schemas());
    cases.extend(histories());
    cases
}

fn case(name: String, requests: Vec<Request>) -> Case {
    Case { name, requests, leftovers: vec![format!("{WIDGETS}/one"), format!("{MAPS}/one")] }
}

fn only(only: &'static [&'static str], path: impl Into<String>) -> Request {
    Request { only, ..get(path) }
}

fn discovery() -> Vec<Case> {
    let one = |name: &str, request: Request| case(format!("discovery: {name}"), vec![request]);
    let mut cases: Vec<Case> =
        SERVED.iter().map(|(path, names)| one(path, only(names, *path))).collect();
    let group = |name: &&str| one(&format!("the group {name}"), get(format!("/apis/{name}")));
    cases.extend(GROUPS.iter().map(group));
    let all_at_once = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    cases.extend([
        one("versions", get("/api")),
        one("groups", only(GROUPS, "/apis")),
        one("all at once", Request { accept: all_at_once, ..get("/apis") }),
        one("no such group", get("/apis/nothing.dev")),
        one("no such version", get("/apis/apps/v9")),
        one("no such core version", get("/api/v9")),
        one("health", get("/readyz")),
        one("delete all namespaces", ask("DELETE", "/api/v1/namespaces")),
    ]);
    cases
}

fn schemas() -> Vec<Case> {
    let one = |name: &str, request: Request| case(format!("openapi: {name}"), vec![request]);
    let mut cases = vec![
        one("index", only(DOCUMENTS, "/openapi/v3")),
        one("no such version", get("/openapi/v3/apis/apps/v9")),
    ];
    let schema = |(path, names): &(&str, &'static [&'static str])| {
        one(path, only(names, format!("/openapi/v3/{path}")))
    };
    cases.extend(SCHEMAS.iter().map(schema));
    cases
}

/// What a watch tells when the history does not reach back, and before it ends.
fn histories() -> Vec<Case> {
    let widget = json!({"apiVersion": "conformance.dev/v1", "kind": "Widget",
        "metadata": {"name": "one"}, "spec": {"colour": "red"}});
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let label = |all: &str| {
        patch(MERGE, format!("{all}/one"), json!({"metadata": {"labels": {"more": "1"}}}))
    };
    // Long enough for the bookmark that comes before the end.
    let watched = |all: &str, body, from: &str, meanwhile: Option<Request>| {
        let query = "watch=true&timeoutSeconds=4&allowWatchBookmarks=true";
        let one = format!("{all}/one");
        let named = "fieldSelector=metadata.name%3Done";
        let watch = get(format!("{all}?{query}&{named}&resourceVersion={from}"));
        let meanwhile = meanwhile.map(Box::new);
        let begin = vec![get(format!("{all}?{named}")), post(all, body), get(&one)];
        [begin, vec![Request { meanwhile, ..watch }, delete(one)]].concat()
    };
    let early = "watch=true&timeoutSeconds=1&resourceVersion=1";
    vec![
        case("watch: a kind from before its time".to_owned(), {
            vec![get(format!("{WIDGETS}?{early}"))]
        }),
        case("watch: a kind of ours from before its time".to_owned(), {
            vec![get(format!("/apis/tuist.dev/v1alpha1/namespaces/{{ns}}/runnerpools?{early}"))]
        }),
        case("watch: no bookmark that says nothing".to_owned(), {
            watched(WIDGETS, widget.clone(), "{version}", None)
        }),
        case("watch: no bookmark of what was before".to_owned(), {
            watched(WIDGETS, widget.clone(), "{start}", None)
        }),
        case("watch: a custom resource that changes meanwhile".to_owned(), {
            watched(WIDGETS, widget, "{version}", Some(label(WIDGETS)))
        }),
        case("watch: what changes meanwhile".to_owned(), {
            watched(MAPS, map.clone(), "{version}", Some(label(MAPS)))
        }),
        case("watch: what goes meanwhile".to_owned(), {
            watched(MAPS, map, "{version}", Some(delete(format!("{MAPS}/one"))))
        }),
        case("watch: at the old path".to_owned(), {
            vec![get("/api/v1/watch/namespaces/{ns}/configmaps?timeoutSeconds=1")]
        }),
    ]
}
