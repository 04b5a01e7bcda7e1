//! What only some kinds know: schemas and their rules, scales, tokens, bindings, budgets.

use serde_json::{Value, json};

use crate::conformance::kinds::FORMATS;

use super::{Case, MERGE, Request, Who, ask, delete, get, patch, post, put, until};

const WIDGETS: &str = "/apis/conformance.dev/v1/namespaces/{ns}/widgets";
const PODS: &str = "/api/v1/namespaces/{ns}/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/{ns}/serviceaccounts";
const APPLY: &str = "application/apply-patch+yaml";

/// Every case that was written by hand.
pub fn cases() -> Vec<Case> {
    let mut cases = schemas();
    cases.extend(formats());
    cases.extend(definitions());
    cases.extend(lists());
    cases.extend(scales());
    cases.extend(pods());
    cases.extend(evictions());
    cases.extend(tokens());
    cases.extend(others());
    cases
}

fn case(name: &str, requests: Vec<Request>) -> Case {
    let leftovers = [WIDGETS, PODS, ACCOUNTS].map(one).to_vec();
    Case { name: name.to_owned(), requests, leftovers }
}

fn widget(spec: Value) -> Value {
    let metadata = json!({"name": "one"});
    let mut widget =
        json!({"apiVersion": "conformance.dev/v1", "kind": "Widget", "metadata": metadata});
    widget["spec"] = spec;
    widget
}

fn one(path: &str) -> String {
    format!("{path}/one")
}

/// What a schema takes, fills in, drops and refuses.
fn schemas() -> Vec<Case> {
    let specs = [
        ("an enum", json!({"colour": "green"})),
        ("a missing field", json!({})),
        ("a null", json!({"colour": null})),
        ("a null with a default", json!({"colour": "red", "replicas": null})),
        ("a wrong type", json!({"colour": 1})),
        ("a number that is a text", json!({"colour": "red", "replicas": "2"})),
        ("a fraction", json!({"colour": "red", "replicas": 1.5})),
        ("too small a number", json!({"colour": "red", "replicas": -1})),
        ("too large a number", json!({"colour": "red", "replicas": 10})),
        ("the largest number", json!({"colour": "red", "replicas": 9})),
        ("a rule", json!({"colour": "blue", "replicas": 9})),
        ("too long a text", json!({"colour": "red", "name": "abcdefghi"})),
        ("a text that does not match", json!({"colour": "red", "name": "A"})),
        ("too many items", json!({"colour": "red", "tags": ["a", "b", "c"]})),
        ("an item twice in a set", json!({"colour": "red", "tags": ["a", "a"]})),
        ("a key twice in a map", json!({"colour": "red", "parts": [{"name": "a"}, {"name": "a"}]})),
        ("an item without its key", json!({"colour": "red", "parts": [{"size": 1}]})),
        ("a free object", json!({"colour": "red", "free": {"any": [1, {"thing": null}]}})),
        ("an unknown field", json!({"colour": "red", "more": 1})),
        ("an unknown field below", json!({"colour": "red", "parts": [{"name": "a", "x": 1}]})),
        ("two faults", json!({"colour": "green", "replicas": 10})),
        ("a list for an object", json!([])),
        ("a number at an open end", json!({"colour": "red", "share": 0})),
        ("a number at the other open end", json!({"colour": "red", "share": 1})),
        ("a number between open ends", json!({"colour": "red", "share": 0.5})),
        ("a multiple", json!({"colour": "red", "step": 15})),
        ("no multiple", json!({"colour": "red", "step": 7})),
        ("a large number of a small format", json!({"colour": "red", "step": 5_000_000_000_i64})),
        ("a multiple of a fraction", json!({"colour": "red", "tenth": 0.3})),
        ("no multiple of a fraction", json!({"colour": "red", "tenth": 0.35})),
        ("no field where one must be", json!({"colour": "red", "marks": {}})),
        ("as many fields as may be", json!({"colour": "red", "marks": {"a": "1", "b": "2"}})),
        ("too many fields", json!({"colour": "red", "marks": {"a": "1", "b": "2", "c": "3"}})),
        ("any of two: the first", json!({"colour": "red", "level": 3})),
        ("any of two: the second", json!({"colour": "red", "level": 7})),
        ("any of two: none", json!({"colour": "red", "level": 5})),
        ("all of two: one", json!({"colour": "red", "level": 9})),
        ("one of two: none", json!({"colour": "red", "choice": {}})),
        ("one of two: one", json!({"colour": "red", "choice": {"a": "1"}})),
        ("one of two: both", json!({"colour": "red", "choice": {"a": "1", "b": "1"}})),
        ("not so", json!({"colour": "red", "choice": {"a": "1", "c": "1"}})),
    ];
    let mut cases = vec![];
    for (name, spec) in specs {
        let create = vec![post(WIDGETS, widget(spec.clone())), delete(one(WIDGETS))];
        cases.push(case(&format!("Widget schema: {name}"), create));
        let strict = format!("{WIDGETS}?fieldValidation=Strict");
        let create = vec![post(strict, widget(spec.clone())), delete(one(WIDGETS))];
        cases.push(case(&format!("Widget schema, strictly: {name}"), create));
        let change = vec![
            post(WIDGETS, widget(json!({"colour": "blue", "fixed": "a"}))),
            patch(MERGE, one(WIDGETS), json!({"spec": spec})),
            delete(one(WIDGETS)),
        ];
        cases.push(case(&format!("Widget schema, merged: {name}"), change));
    }
    cases.push(case("Widget schema: a field that must not change", {
        let change = |text: &str| patch(MERGE, one(WIDGETS), json!({"spec": {"fixed": text}}));
        let made = post(WIDGETS, widget(json!({"colour": "red", "fixed": "a"})));
        vec![made, change("a"), change("b"), delete(one(WIDGETS))]
    }));
    cases
}

/// Texts of each format, and texts that are not.
fn formats() -> Vec<Case> {
    let mut cases = vec![];
    for (format, texts) in FORMATS {
        for text in *texts {
            let spec = json!({"colour": "red", "texts": {*format: text}});
            let create = vec![post(WIDGETS, widget(spec)), delete(one(WIDGETS))];
            cases.push(case(&format!("Widget format: {format}: {text:?}"), create));
        }
    }
    cases
}

/// Definitions that nobody takes.
fn definitions() -> Vec<Case> {
    let unique = json!({"type": "array", "uniqueItems": true, "items": {"type": "string"}});
    let schema = json!({"type": "object", "properties": {"spec": unique}});
    let definition = json!({"apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition", "metadata": {"name": "bolts.conformance.dev"},
        "spec": {"group": "conformance.dev", "scope": "Namespaced",
            "names": {"kind": "Bolt", "plural": "bolts", "singular": "bolt"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}}]}});
    let all = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    vec![case("definition: a list whose items must differ", vec![post(all, definition)])]
}

/// Lists with keys under server-side apply.
fn lists() -> Vec<Case> {
    let by = |owner: &str| format!("{}?fieldManager={owner}", one(WIDGETS));
    let parts = |parts: Value| widget(json!({"colour": "red", "parts": parts}));
    let tags = |tags: Value| widget(json!({"colour": "red", "tags": tags}));
    let two = |a: Value, b: Value| {
        vec![
            patch(APPLY, by("a"), a),
            patch(APPLY, by("b"), b),
            get(one(WIDGETS)),
            delete(one(WIDGETS)),
        ]
    };
    vec![
        case("Widget apply: two owners of one list", {
            two(parts(json!([{"name": "a", "size": 1}])), parts(json!([{"name": "b", "size": 2}])))
        }),
        case("Widget apply: two owners of one item", {
            two(parts(json!([{"name": "a", "size": 1}])), parts(json!([{"name": "a", "size": 2}])))
        }),
        case("Widget apply: two owners of a set", two(tags(json!(["a"])), tags(json!(["b"])))),
        case("Widget apply: the same from two", two(tags(json!(["a"])), tags(json!(["a"])))),
        case("Widget apply: an item taken back", {
            let both = parts(json!([{"name": "a"}, {"name": "b"}]));
            vec![
                patch(APPLY, by("a"), both),
                patch(APPLY, by("a"), parts(json!([{"name": "b"}]))),
                delete(one(WIDGETS)),
            ]
        }),
        case("Widget apply: a field taken back gets its default", {
            vec![
                patch(APPLY, by("a"), widget(json!({"colour": "red", "replicas": 4}))),
                patch(APPLY, by("a"), widget(json!({"colour": "red"}))),
                delete(one(WIDGETS)),
            ]
        }),
        case("Widget apply: after an update by somebody", {
            vec![
                patch(APPLY, by("a"), widget(json!({"colour": "red", "replicas": 4}))),
                patch(MERGE, by("b"), json!({"spec": {"replicas": 5}})),
                patch(APPLY, by("a"), widget(json!({"colour": "red", "replicas": 4}))),
                delete(one(WIDGETS)),
            ]
        }),
        case("Widget apply: to the status", {
            let mut status = widget(json!({"colour": "red"}));
            status["status"] = json!({"phase": "Up"});
            let path = format!("{}/status?fieldManager=a", one(WIDGETS));
            vec![
                post(WIDGETS, widget(json!({"colour": "red"}))),
                patch(APPLY, path, status),
                delete(one(WIDGETS)),
            ]
        }),
    ]
}

fn scales() -> Vec<Case> {
    let scale = format!("{}/scale", one(WIDGETS));
    let made = || post(WIDGETS, widget(json!({"colour": "red", "replicas": 3})));
    let body = |replicas: i64| {
        json!({"apiVersion": "autoscaling/v1", "kind": "Scale",
            "metadata": {"name": "one", "namespace": "{ns}"}, "spec": {"replicas": replicas}})
    };
    let around = |requests: Vec<Request>| {
        let mut story = vec![made()];
        story.extend(requests);
        story.push(delete(one(WIDGETS)));
        story
    };
    vec![
        case("Widget scale: read", around(vec![get(&scale)])),
        case("Widget scale: replace", around(vec![put(&scale, body(1)), get(one(WIDGETS))])),
        case("Widget scale: too many", around(vec![put(&scale, body(10))])),
        case("Widget scale: merge", {
            let change = patch(MERGE, &scale, json!({"spec": {"replicas": 0}}));
            around(vec![change, get(one(WIDGETS))])
        }),
        case("Widget scale: of nothing", vec![get(&scale)]),
        case("Widget status: merge", {
            let change = json!({"status": {"phase": "Up", "more": 1}, "spec": {"colour": "blue"}});
            around(vec![patch(MERGE, format!("{}/status", one(WIDGETS)), change)])
        }),
        case("Widget status: generation stays", {
            let change = json!({"status": {"phase": "Up"}});
            let status = patch(MERGE, format!("{}/status", one(WIDGETS)), change);
            around(vec![status, patch(MERGE, one(WIDGETS), json!({"spec": {"replicas": 1}}))])
        }),
    ]
}

fn pod(spec: Value) -> Value {
    let metadata = json!({"name": "one", "labels": {"app": "x"}});
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata});
    pod["spec"] = spec;
    pod
}

/// A Pod that no scheduler looks at.
fn plain() -> Value {
    json!({"containers": [{"name": "c", "image": "i"}], "automountServiceAccountToken": false,
        "schedulerName": "nobody"})
}

/// A Pod with `requests` between making and deleting it.
fn around(spec: Value, requests: Vec<Request>) -> Vec<Request> {
    let mut story = vec![post(PODS, pod(spec))];
    story.extend(requests);
    story.push(delete(one(PODS)));
    story
}

fn pods() -> Vec<Case> {
    let status = |change: Value| patch(MERGE, format!("{}/status", one(PODS)), change);
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "one"},
        "target": {"kind": "Node", "name": "nowhere"}});
    let bind = || post(format!("{}/binding", one(PODS)), binding.clone());
    let image = json!({"spec": {"containers": [{"name": "c", "image": "j"}]}});
    let host = json!({"spec": {"hostNetwork": true}});
    let strategic = "application/strategic-merge-patch+json";
    vec![
        case("Pod: without containers", around(json!({"containers": []}), vec![])),
        case("Pod: bind", around(plain(), vec![bind(), get(one(PODS))])),
        case("Pod: bind twice", around(plain(), vec![bind(), bind()])),
        case("Pod: another image", around(plain(), vec![patch(strategic, one(PODS), image)])),
        case("Pod: what must not change", around(plain(), vec![patch(strategic, one(PODS), host)])),
        case("Pod: a phase", {
            around(plain(), vec![status(json!({"status": {"phase": "Running"}}))])
        }),
        case("Pod: a finalizer by its status", {
            let held = json!({"metadata": {"finalizers": ["conformance.dev/held"]}});
            let free = json!({"metadata": {"finalizers": null}});
            around(plain(), vec![status(held), status(free)])
        }),
        case("Pod: deleted with grace", {
            let bound = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "nowhere",
                "automountServiceAccountToken": false});
            let go = ask("DELETE", one(PODS));
            around(bound, vec![go.clone(), go, get(one(PODS))])
        }),
        case("Pod: deleted while unbound", {
            let watch = "watch=true&timeoutSeconds=1&fieldSelector=metadata.name%3Done";
            let mut story = vec![get(PODS)];
            story.extend(around(plain(), vec![ask("DELETE", one(PODS))]));
            story.push(get(format!("{PODS}?{watch}&resourceVersion={{start}}")));
            story
        }),
        case("Pod: listed by Node", {
            let bound = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": "somewhere",
                "automountServiceAccountToken": false});
            let by_node = format!("{PODS}?fieldSelector=spec.nodeName%3Dsomewhere");
            around(bound, vec![get(by_node)])
        }),
    ]
}

/// Evictions: of whom, for practice, and under a budget.
fn evictions() -> Vec<Case> {
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": "one"}, "deleteOptions": {"gracePeriodSeconds": 0}});
    let evict = || post(format!("{}/eviction", one(PODS)), eviction.clone());
    let evict_as = |query: &str, options: Value| {
        let mut body = eviction.clone();
        body["deleteOptions"] = options;
        post(format!("{}/eviction{query}", one(PODS)), body)
    };
    let meant = |preconditions: Value| evict_as("", json!({"preconditions": preconditions}));
    let other = "11111111-1111-4111-8111-111111111111";
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": {"name": "one"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}});
    let budgets = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets";
    vec![
        case("Pod: evict", around(plain(), vec![evict(), get(one(PODS))])),
        case("Pod: evict nothing", vec![evict()]),
        case("Pod: evict for practice", {
            let rehearsed = evict_as("", json!({"dryRun": ["All"]}));
            around(plain(), vec![rehearsed, get(one(PODS))])
        }),
        case("Pod: evict for practice, as the query says", {
            let rehearsed = evict_as("?dryRun=All", json!({}));
            around(plain(), vec![rehearsed, get(one(PODS))])
        }),
        case("Pod: evict for practice, as both say", {
            let rehearsed = evict_as("?dryRun=All", json!({"dryRun": ["All"]}));
            around(plain(), vec![rehearsed, get(one(PODS))])
        }),
        case("Pod: evict another", {
            around(plain(), vec![meant(json!({"uid": other})), get(one(PODS))])
        }),
        case("Pod: evict another for practice", {
            let options = json!({"dryRun": ["All"], "preconditions": {"uid": other}});
            around(plain(), vec![evict_as("", options), get(one(PODS))])
        }),
        case("Pod: evict what it was", {
            around(plain(), vec![meant(json!({"resourceVersion": "1"})), get(one(PODS))])
        }),
        case("Pod: evict the one that was read", {
            let read = json!({"uid": "{uid}", "resourceVersion": "{version}"});
            around(plain(), vec![get(one(PODS)), meant(read), get(one(PODS))])
        }),
        case("Pod: evict one that does not run under a budget", {
            let mut story = vec![post(budgets, budget)];
            story.extend(around(plain(), vec![evict()]));
            story.push(delete(one(budgets)));
            story
        }),
    ]
}

/// Tokens of service accounts, and what they are bound to.
fn tokens() -> Vec<Case> {
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "one"}});
    let token = |spec: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": spec});
        post(format!("{}/token", one(ACCOUNTS)), body)
    };
    let asked =
        |spec: Value| vec![post(ACCOUNTS, account.clone()), token(spec), delete(one(ACCOUNTS))];
    let bound = |kind: &str, name: &str, uid: Value| {
        let named = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
        token(json!({"boundObjectRef": named}))
    };
    // It may do nothing, but who has no token that is good is not even known.
    let show = || Request { who: Who::Bearer, ..get("/api/v1/namespaces/{ns}/configmaps") };
    let used = |spec: Value| {
        let mut story = asked(spec);
        story.insert(2, show());
        story
    };
    // What is asked beside a Pod that runs as this account.
    let for_a_pod = |runs_as: &str, token: Request| {
        let mut spec = plain();
        spec["serviceAccountName"] = json!(runs_as);
        let made = [post(ACCOUNTS, account.clone()), post(PODS, pod(spec))];
        made.into_iter().chain([token, delete(one(PODS)), delete(one(ACCOUNTS))]).collect()
    };
    vec![
        case("token: for an hour", asked(json!({"expirationSeconds": 3600}))),
        case("token: too short", asked(json!({"expirationSeconds": 60}))),
        case("token: of nobody", vec![token(json!({}))]),
        case("token: for a Pod", for_a_pod("one", bound("Pod", "one", json!("{uid}")))),
        case("token: for a Pod that is not there", {
            for_a_pod("one", bound("Pod", "two", json!("{uid}")))
        }),
        case("token: for a Pod of another uid", {
            let other = "11111111-1111-4111-8111-111111111111";
            for_a_pod("one", bound("Pod", "one", json!(other)))
        }),
        case("token: for a Pod of another account", {
            for_a_pod("default", bound("Pod", "one", json!("{uid}")))
        }),
        case("token: for what no token is bound to", {
            for_a_pod("one", bound("ConfigMap", "one", json!("{uid}")))
        }),
        case("token: used", used(json!({}))),
        case("token: for nobody in particular, used", used(json!({"audiences": []}))),
        case("token: for another, used", used(json!({"audiences": ["vault"]}))),
        case("token: for the server, used", used(json!({"audiences": [OWN]}))),
        case("token: for another and the server, used", {
            used(json!({"audiences": ["vault", OWN]}))
        }),
        case("token: for a Pod, used", {
            let mut story = for_a_pod("one", bound("Pod", "one", json!("{uid}")));
            story.insert(3, show());
            story
        }),
        case("token: used after its Pod", {
            let mut story = for_a_pod("one", bound("Pod", "one", json!("{uid}")));
            story.insert(4, until(401, show()));
            story
        }),
        case("token: used after its account", {
            let mut story = asked(json!({}));
            story.push(until(401, show()));
            story
        }),
    ]
}

/// The real server's own name among audiences.
const OWN: &str = "https://kubernetes.default.svc";

fn others() -> Vec<Case> {
    let nowhere = "/api/v1/namespaces/nowhere/configmaps";
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}});
    vec![
        case("namespace: of nobody", vec![get(nowhere), post(nowhere, map.clone())]),
        case("path: no such group", vec![get("/apis/nothing.dev/v1/things")]),
        case("path: no such kind", vec![get("/api/v1/namespaces/{ns}/things")]),
        case("path: no such version", vec![get("/apis/apps/v9/deployments")]),
        case("path: no such method", vec![ask("PUT", "/api/v1/namespaces/{ns}/configmaps")]),
        case("path: a namespaced kind without one", vec![get("/api/v1/configmaps/one")]),
        case("owner: gone with its owner", {
            let maps = "/api/v1/namespaces/{ns}/configmaps";
            let reference =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "name": "one", "uid": "{uid}"});
            let mut owned = map.clone();
            owned["metadata"] = json!({"name": "two", "ownerReferences": [reference]});
            vec![
                post(maps, map.clone()),
                post(maps, owned),
                delete(format!("{maps}/two")),
                delete(one(maps)),
            ]
        }),
        case("secret: of a wrong type", {
            let secrets = "/api/v1/namespaces/{ns}/secrets";
            let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"},
                "type": "Opaque", "data": {"a": "b25l"}});
            let change = json!({"type": "other.dev/type"});
            vec![
                post(secrets, secret),
                patch(MERGE, one(secrets), change),
                patch(MERGE, one(secrets), json!({"data": {"a": "not base64!"}})),
                patch(MERGE, one(secrets), json!({"data": {"a": null}})),
                delete(one(secrets)),
            ]
        }),
    ]
}
