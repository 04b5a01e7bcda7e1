//! Who may do what, asked and tried by a service account with a role.

use serde_json::{Value, json};

use super::{Case, Request, ask, delete, get, post, until};

const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/roles";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/{ns}/rolebindings";
const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";
/// Who asks.
const ACCOUNT: &str = "asker";

/// Every case about rights.
pub fn cases() -> Vec<Case> {
    let mut cases = questions();
    cases.extend(tries());
    cases.extend(malformed());
    cases
}

fn case(name: &str, requests: Vec<Request>) -> Case {
    let leftovers = vec![format!("{ROLES}/one"), format!("{BINDINGS}/one"), format!("{MAPS}/one")];
    Case { name: format!("rights: {name}"), requests, leftovers }
}

fn by_account(request: Request) -> Request {
    Request { who: Some(ACCOUNT), ..request }
}

/// A role with `rules` for the account, while `requests` are made. It holds when a read of a
/// `ConfigMap` that it allows is no longer refused.
fn with_role(rules: &Value, requests: Vec<Request>) -> Vec<Request> {
    let mut all = vec![json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]})];
    all.extend(rules.as_array().cloned().unwrap_or_default());
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role",
        "metadata": {"name": "one"}, "rules": all});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
        "metadata": {"name": "one"}, "roleRef": {"apiGroup": group, "kind": "Role", "name": "one"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "{ns}"}]});
    let held = until(404, by_account(get(format!("{MAPS}/nothing"))));
    let refused = until(403, by_account(get(format!("{MAPS}/nothing"))));
    let mut story = vec![post(ROLES, role), post(BINDINGS, binding), held];
    story.extend(requests);
    story.extend([delete(format!("{BINDINGS}/one")), delete(format!("{ROLES}/one")), refused]);
    story
}

fn question(attributes: &Value) -> Request {
    let body = json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes}});
    by_account(post(REVIEWS, body))
}

fn questions() -> Vec<Case> {
    let one = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"],
        "resourceNames": ["one"]}]);
    let below = json!([{"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]);
    let all = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]);
    let asked = [
        ("one resource", json!([]), json!({"verb": "get", "resource": "configmaps"})),
        ("another verb", json!([]), json!({"verb": "list", "resource": "configmaps"})),
        ("another resource", json!([]), json!({"verb": "get", "resource": "pods"})),
        (
            "another group",
            json!([]),
            json!({"verb": "get", "resource": "configmaps", "group": "x"}),
        ),
        ("one name", one.clone(), json!({"verb": "get", "resource": "secrets", "name": "one"})),
        ("another name", one.clone(), json!({"verb": "get", "resource": "secrets", "name": "two"})),
        ("no name", one, json!({"verb": "get", "resource": "secrets"})),
        ("a part", below.clone(), {
            json!({"verb": "patch", "resource": "pods", "subresource": "status"})
        }),
        ("the whole of a part", below, json!({"verb": "patch", "resource": "pods"})),
        ("everything", all.clone(), json!({"verb": "list", "resource": "leases", "group": "y"})),
        ("a part of everything", all, {
            json!({"verb": "list", "resource": "pods", "subresource": "status"})
        }),
    ];
    let mut cases = vec![];
    for (name, rules, mut attributes) in asked {
        let everywhere = question(&attributes);
        attributes["namespace"] = json!("{ns}");
        let here = question(&attributes);
        attributes["namespace"] = json!("default");
        let story = vec![here, question(&attributes), everywhere];
        cases.push(case(&format!("ask for {name}"), with_role(&rules, story)));
    }
    cases
}

fn tries() -> Vec<Case> {
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    let writes = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}]);
    let who = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let one = || format!("{MAPS}/one");
    vec![
        case("read what may be read", with_role(&json!([]), vec![by_account(get(one()))])),
        case("list what may be read", with_role(&json!([]), vec![by_account(get(MAPS))])),
        case("watch what may be read", {
            let watch = get(format!("{MAPS}?watch=true&timeoutSeconds=1"));
            with_role(&json!([]), vec![by_account(watch)])
        }),
        case("read elsewhere", {
            let elsewhere = get("/api/v1/namespaces/default/configmaps/one");
            with_role(&json!([]), vec![by_account(elsewhere)])
        }),
        case("read everywhere", {
            with_role(&json!([]), vec![by_account(get("/api/v1/configmaps"))])
        }),
        case("create and not delete", {
            let story = vec![by_account(post(MAPS, map.clone())), by_account(delete(one()))];
            with_role(&writes, [story, vec![delete(one())]].concat())
        }),
        case("create without a right", with_role(&json!([]), vec![by_account(post(MAPS, map))])),
        case("delete all without a right", {
            with_role(&json!([]), vec![by_account(ask("DELETE", MAPS))])
        }),
        case("discover", vec![Request { only: &["apps"], ..by_account(get("/apis")) }]),
        case("who am I", vec![by_account(post(WHO, who))]),
    ]
}

fn malformed() -> Vec<Case> {
    let body = |spec: Value| {
        let kind = "SelfSubjectAccessReview";
        json!({"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec})
    };
    let both = json!({"resourceAttributes": {"verb": "get", "resource": "pods"},
        "nonResourceAttributes": {"verb": "get", "path": "/x"}});
    let path = json!({"nonResourceAttributes": {"verb": "get", "path": "/x"}});
    let plain = json!({"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}});
    let mut other = body(both.clone());
    other["kind"] = json!("Other");
    vec![
        case("ask for nothing", vec![post(REVIEWS, body(json!({})))]),
        case("ask for two things", vec![post(REVIEWS, body(both))]),
        case("ask for a path", vec![post(REVIEWS, body(path))]),
        case("ask another question", vec![post(REVIEWS, other)]),
        case("ask, kind left out", vec![post(REVIEWS, plain)]),
        case("read questions", vec![get(REVIEWS)]),
    ]
}
