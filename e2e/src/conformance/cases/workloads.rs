//! What the server fills into Pods, Deployments, `ReplicaSet`s, Services and budgets, and what it
//! refuses. Mostly for practice (`dryRun`), so that no controller of the real server's meddles.

use serde_json::{Value, json};

use super::{Case, MERGE, Request, delete, get, patch, post};

const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const SERVICES: &str = "/api/v1/namespaces/{ns}/services";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/{ns}/deployments";
const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/{ns}/replicasets";
const BUDGETS: &str = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";

/// The cases of this file.
pub fn cases() -> Vec<Case> {
    let mut cases = pods();
    cases.push(evicted());
    cases.extend(deployments());
    cases.extend(services());
    cases.extend(budgets());
    cases
}

fn case(name: &str, requests: Vec<Request>) -> Case {
    let made = [PODS, SERVICES, DEPLOYMENTS, REPLICA_SETS, BUDGETS];
    let leftovers = made.map(|path| format!("{path}/one")).to_vec();
    Case { name: name.to_owned(), requests, leftovers }
}

fn object(version: &str, kind: &str, spec: Value) -> Value {
    let metadata = json!({"name": "one", "labels": {"app": "x"}});
    let mut object = json!({"apiVersion": version, "kind": kind, "metadata": metadata});
    object["spec"] = spec;
    object
}

/// One object that is only tried.
fn tried(name: &str, path: &str, object: Value) -> Case {
    case(name, vec![post(format!("{path}?dryRun=All"), object)])
}

fn with(mut value: Value, pointer: &str, said: Value) -> Value {
    if let Some(place) = value.pointer_mut(pointer) {
        *place = said;
    }
    value
}

/// A Pod that no scheduler looks at, with these containers.
fn pod(containers: Value) -> Value {
    let mut spec = json!({"automountServiceAccountToken": false, "schedulerName": "nobody"});
    spec["containers"] = containers;
    object("v1", "Pod", spec)
}

fn pods() -> Vec<Case> {
    let container = |name: &str| json!({"name": name, "image": "i"});
    let sized = |resources: Value| {
        let mut container = container("c");
        container["resources"] = resources;
        pod(json!([container]))
    };
    let restarted = |policy: &str| {
        let mut pod = pod(json!([container("c")]));
        pod["spec"]["restartPolicy"] = json!(policy);
        pod
    };
    let size = json!({"cpu": "1", "memory": "64Mi"});
    let tried = |name: &str, pod: Value| tried(name, PODS, pod);
    vec![
        tried("Pod: a container without a name", pod(json!([container("")]))),
        tried("Pod: a container with a bad name", pod(json!([container("C c")]))),
        tried("Pod: two containers of one name", pod(json!([container("c"), container("c")]))),
        tried("Pod: a container without an image", pod(json!([{"name": "c"}]))),
        tried("Pod: an unknown restart policy", restarted("Sometimes")),
        tried("Pod: another restart policy", restarted("Never")),
        tried("Pod: what is no quantity", sized(json!({"requests": {"cpu": "lots"}}))),
        tried("Pod: a negative quantity", sized(json!({"requests": {"cpu": "-1"}}))),
        tried("Pod: a quantity as a number", sized(json!({"requests": {"cpu": 2}}))),
        tried("Pod: more than its limit", {
            sized(json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}))
        }),
        tried("Pod: guaranteed", sized(json!({"requests": size, "limits": size}))),
        tried("Pod: guaranteed by its limits alone", sized(json!({"limits": size}))),
        tried("Pod: burstable", sized(json!({"requests": {"cpu": "1"}}))),
        tried("Pod: one of two containers bounded", {
            let mut bounded = container("b");
            bounded["resources"] = json!({"limits": size});
            pod(json!([bounded, container("c")]))
        }),
        tried("Pod: with ports", {
            let mut open = container("c");
            open["ports"] = json!([{"containerPort": 80}]);
            pod(json!([open]))
        }),
    ]
}

/// A ready Pod stays while its budget needs it.
fn evicted() -> Case {
    let one = |path: &str| format!("{path}/one");
    let budget = json!({"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}});
    let ready = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": 0}});
    let pod = pod(json!([{"name": "c", "image": "i"}]));
    let evict = post(format!("{PODS}/one/eviction"), eviction);
    let story = vec![
        post(BUDGETS, object("policy/v1", "PodDisruptionBudget", budget)),
        post(PODS, pod),
        patch(MERGE, format!("{PODS}/one/status"), ready),
        Request { settles: true, ..get(one(BUDGETS)) },
        evict,
        delete(one(PODS)),
        delete(one(BUDGETS)),
    ];
    case("Pod: evict a ready one under a budget", story)
}

fn template() -> Value {
    json!({"metadata": {"labels": {"app": "x"}},
        "spec": {"containers": [{"name": "c", "image": "i:1"}], "restartPolicy": "Always"}})
}

fn deployments() -> Vec<Case> {
    let spec = || {
        json!({"replicas": 0, "selector": {"matchLabels": {"app": "x"}}, "template": template(),
            "strategy": {"type": "RollingUpdate"}})
    };
    let deployment = |spec: Value| object("apps/v1", "Deployment", spec);
    let strategy = |strategy: Value| deployment(with(spec(), "/strategy", strategy));
    let tried_with = |name: &str, pointer: &str, said: Value| {
        tried(name, DEPLOYMENTS, deployment(with(spec(), pointer, said)))
    };
    let recreate = json!({"type": "Recreate", "rollingUpdate": {"maxSurge": 1}});
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "y"}},
        "template": {"metadata": {"labels": {"app": "y"}}}}});
    vec![
        tried("Deployment: defaults", DEPLOYMENTS, {
            let selector = json!({"matchLabels": {"app": "x"}});
            deployment(json!({"selector": selector, "template": template()}))
        }),
        tried("Deployment: another strategy", DEPLOYMENTS, strategy(json!({"type": "Recreate"}))),
        tried("Deployment: an unknown strategy", DEPLOYMENTS, strategy(json!({"type": "Other"}))),
        tried("Deployment: a strategy with another's limits", DEPLOYMENTS, strategy(recreate)),
        tried_with("Deployment: fewer than none", "/replicas", json!(-1)),
        tried_with("Deployment: a selector of others", "/selector/matchLabels/app", json!("y")),
        tried_with("Deployment: an empty selector", "/selector", json!({})),
        tried_with("Deployment: Pods that end", "/template/spec/restartPolicy", json!("Never")),
        tried_with("Deployment: without containers", "/template/spec/containers", json!([])),
        tried("ReplicaSet: defaults", REPLICA_SETS, {
            let selector = json!({"matchLabels": {"app": "x"}});
            let spec = json!({"selector": selector, "template": template()});
            object("apps/v1", "ReplicaSet", spec)
        }),
        case("Deployment: another selector", {
            let one = format!("{DEPLOYMENTS}/one");
            vec![post(DEPLOYMENTS, deployment(spec())), patch(MERGE, &one, other), delete(&one)]
        }),
    ]
}

fn services() -> Vec<Case> {
    let service = |spec: Value| object("v1", "Service", spec);
    let ports = |ports: Value| service(json!({"clusterIP": "None", "ports": ports}));
    let tried = |name: &str, service: Value| tried(name, SERVICES, service);
    vec![
        tried("Service: defaults", ports(json!([{"port": 80}]))),
        tried("Service: another name", {
            service(json!({"type": "ExternalName", "externalName": "elsewhere.dev"}))
        }),
        tried("Service: another name without one", service(json!({"type": "ExternalName"}))),
        tried("Service: an unknown type", {
            service(json!({"type": "Other", "ports": [{"port": 80}]}))
        }),
        tried("Service: without ports", service(json!({}))),
        tried("Service: a port that is none", ports(json!([{"port": 0}]))),
        tried("Service: an unknown protocol", ports(json!([{"port": 80, "protocol": "ICMP"}]))),
        tried("Service: two ports without names", ports(json!([{"port": 80}, {"port": 81}]))),
    ]
}

fn budgets() -> Vec<Case> {
    let budget = |mut limits: Value| {
        limits["selector"] = json!({"matchLabels": {"app": "x"}});
        object("policy/v1", "PodDisruptionBudget", limits)
    };
    let tried = |name: &str, limits: Value| tried(name, BUDGETS, budget(limits));
    vec![
        tried("budget: a number", json!({"minAvailable": 1})),
        tried("budget: a share", json!({"maxUnavailable": "50%"})),
        tried("budget: two limits", json!({"minAvailable": 1, "maxUnavailable": 1})),
        tried("budget: fewer than none", json!({"minAvailable": -1})),
        tried("budget: what is no share", json!({"minAvailable": "lots"})),
        tried("budget: more than all", json!({"minAvailable": "150%"})),
        tried("budget: an unknown policy", json!({"unhealthyPodEvictionPolicy": "Sometimes"})),
    ]
}
