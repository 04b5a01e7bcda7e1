//! Who may do what, asked and tried by a service account with a role.

use serde_json::{Value, json};

use super::{Case, MERGE, Request, Who, ask, delete, get, patch, post, until};

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
    cases.extend(bindings());
    cases.extend(roles());
    cases.extend(malformed());
    cases
}

fn case(name: &str, requests: Vec<Request>) -> Case {
    let mut leftovers = vec![format!("{MAPS}/one")];
    for all in [ROLES, BINDINGS] {
        leftovers.extend(["one", "two", "three"].map(|name| format!("{all}/{name}")));
    }
    Case { name: format!("rights: {name}"), requests, leftovers }
}

fn by_account(request: Request) -> Request {
    Request { who: Who::Account(ACCOUNT), ..request }
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

const GROUP: &str = "rbac.authorization.k8s.io";
/// What the account may read anyway, and what it may not.
const OWN: &str = "get";
const MORE: &str = "delete";

fn role(name: &str, verb: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": name},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": [verb]}]})
}

fn binding(name: &str, kind: &str, role: &str) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "RoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": "somebody", "namespace": "{ns}"}]})
}

/// The account writes roles and bindings, and may do this besides.
fn writer(more: &Value) -> Value {
    json!([{"apiGroups": [GROUP], "resources": ["roles", "rolebindings"],
        "verbs": ["create", "update", "patch", "delete"]}, more])
}

/// A role called `two` that is there before the account's own, so that whoever knows that one knows
/// it; and what the account does then.
fn beside(verb: &str, more: &Value, story: Vec<Request>) -> Vec<Request> {
    let made = vec![post(ROLES, role("two", verb))];
    let story = with_role(&writer(more), story);
    [made, story, vec![delete(format!("{ROLES}/two"))]].concat()
}

fn bindings() -> Vec<Case> {
    let nothing = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]});
    let bind = |roles: &str, name: &str| {
        json!({"apiGroups": [GROUP], "resources": [roles], "resourceNames": [name],
            "verbs": ["bind"]})
    };
    let three = format!("{BINDINGS}/three");
    let made = |kind, role| by_account(post(BINDINGS, binding("three", kind, role)));
    let create = |verb, more: &Value| beside(verb, more, vec![made("Role", "two"), delete(&three)]);
    let change = |more: &Value, change: Value| {
        let old = post(BINDINGS, binding("three", "Role", "two"));
        let changed = by_account(patch(MERGE, &three, change));
        beside(MORE, more, vec![old, changed, get(&three), delete(&three)])
    };
    let subjects = json!({"subjects": [{"kind": "ServiceAccount", "name": ACCOUNT,
        "namespace": "{ns}"}]});
    let may = bind("roles", "two");
    vec![
        case("bind a role of more rights", create(MORE, &nothing)),
        case("bind a role of more rights with the right to", create(MORE, &may)),
        case("bind another role than one may", create(MORE, &bind("roles", "other"))),
        case("bind a role of no more rights", create(OWN, &nothing)),
        case("bind a role that is not there", {
            beside(OWN, &nothing, vec![made("Role", "nothing")])
        }),
        case("bind a role of the cluster with the right to here", {
            let may = bind("clusterroles", "nothing");
            beside(OWN, &may, vec![made("ClusterRole", "nothing"), delete(&three)])
        }),
        case("join a binding", change(&nothing, subjects.clone())),
        case("join a binding with the right to bind", change(&may, subjects)),
        case("label a binding", change(&nothing, json!({"metadata": {"labels": {"a": "b"}}}))),
        case("hold a binding", {
            let held = json!({"metadata": {"finalizers": ["conformance.dev/held"]}});
            let free = patch(MERGE, &three, json!({"metadata": {"finalizers": null}}));
            let mut story = change(&nothing, held);
            story.insert(story.len() - 5, free);
            story
        }),
        case("bind another role", change(&may, json!({"roleRef": {"name": "one"}}))),
    ]
}

fn roles() -> Vec<Case> {
    let nothing = json!({"apiGroups": ["x"], "resources": ["y"], "verbs": ["get"]});
    let escalate = json!({"apiGroups": [GROUP], "resources": ["roles"], "verbs": ["escalate"]});
    let all = json!({"apiGroups": ["*"], "resources": ["configmaps", "*/status"],
        "verbs": ["list", "watch"]});
    let three = format!("{ROLES}/three");
    let create = |more: &Value, new: Value| {
        with_role(&writer(more), vec![by_account(post(ROLES, new)), delete(&three)])
    };
    let change = |more: &Value, change: Value| {
        let changed = by_account(patch(MERGE, format!("{ROLES}/two"), change));
        beside(OWN, more, vec![changed])
    };
    let rules = |rule: Value| {
        let mut role = role("three", OWN);
        role["rules"] = json!([rule]);
        role
    };
    vec![
        case("write a role of more rights", create(&nothing, role("three", MORE))),
        case("write a role of more rights with the right to", {
            create(&escalate, role("three", MORE))
        }),
        case("write a role of no more rights", create(&nothing, role("three", OWN))),
        case("write a role of all verbs", create(&nothing, role("three", "*"))),
        case("write a role of one name", {
            create(
                &nothing,
                rules(json!({"apiGroups": [""], "resources": ["configmaps"],
                "resourceNames": ["a"], "verbs": [OWN]})),
            )
        }),
        case("write a role of one group of all", {
            create(
                &all,
                rules(json!({"apiGroups": ["a"], "resources": ["configmaps"],
                "verbs": ["watch"]})),
            )
        }),
        case("write a role of one part of all", {
            create(
                &all,
                rules(json!({"apiGroups": [""], "resources": ["pods/status"],
                "verbs": ["list"]})),
            )
        }),
        case("write a role of the whole of a part", {
            create(
                &all,
                rules(json!({"apiGroups": [""], "resources": ["pods"],
                "verbs": ["list"]})),
            )
        }),
        case("add to a role", change(&nothing, role("two", MORE))),
        case("add to a role with the right to", change(&escalate, role("two", MORE))),
        case("label a role", change(&nothing, json!({"metadata": {"labels": {"a": "b"}}}))),
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
