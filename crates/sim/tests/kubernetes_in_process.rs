//! The simulated API server, asked by the real `kube` client and runtime under a paused clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_sim::kubernetes::{
    ApiServer, Call, Gate, Identity, Refusal, Registry, Setup, Verb, Verdict,
};
use futures::future::BoxFuture;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Pod, Secret, ServiceAccount};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams,
    Patch, PatchParams, PostParams, Preconditions, PropagationPolicy, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use kube::{Client, ResourceExt};
use secrecy::SecretString;
use serde_json::{Value, json};

fn widget_definition() -> CustomResourceDefinition {
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

fn registry() -> Arc<Registry> {
    Registry::new(vec![widget_definition()]).unwrap()
}

/// A clock that follows tokio's, so that virtual time moves both.
fn clock() -> Clock {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Clock::new(move || epoch + start.elapsed())
}

fn server() -> ApiServer {
    ApiServer::new(clock(), 1, registry())
}

fn admin(server: &ApiServer) -> Client {
    server.client(Identity::admin())
}

fn widgets(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("test.dev", "v1", "Widget");
    let resource = ApiResource::from_gvk_with_plural(&kind, "widgets");
    Api::namespaced_with(client.clone(), "default", &resource)
}

fn widget(name: &str, spec: &Value) -> DynamicObject {
    serde_json::from_value(json!({"apiVersion": "test.dev/v1", "kind": "Widget",
        "metadata": {"name": name}, "spec": spec}))
    .unwrap()
}

fn pod(name: &str, node: Option<&str>) -> Pod {
    serde_json::from_value(json!({"metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}}))
    .unwrap()
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"k": "v"}})).unwrap()
}

fn owned_map(name: &str, owner: &ConfigMap) -> ConfigMap {
    let mut map = config_map(name);
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(),
        "uid": owner.uid(), "blockOwnerDeletion": true}]);
    map.metadata.owner_references = serde_json::from_value(reference).unwrap();
    map
}

/// The code and reason of the refusal that a call must end with.
fn refused<T: std::fmt::Debug>(result: kube::Result<T>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason.clone()),
        other => panic!("not refused: {other:?}"),
    }
}

fn code(code: u16, reason: &str) -> (u16, String) {
    (code, reason.to_owned())
}

fn merge(patch: &Value) -> Patch<&Value> {
    Patch::Merge(patch)
}

#[tokio::test(start_paused = true)]
async fn a_created_object_reads_back_with_the_servers_own_fields() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let made = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    assert!(made.uid().is_some() && made.creation_timestamp().is_some());
    assert_eq!(maps.get("a").await.unwrap(), made);
    let again = maps.create(&PostParams::default(), &config_map("a")).await;
    assert_eq!(refused(again), code(409, "AlreadyExists"));
    assert_eq!(refused(maps.get("b").await), code(404, "NotFound"));
    let dry = PostParams { dry_run: true, ..PostParams::default() };
    maps.create(&dry, &config_map("c")).await.unwrap();
    assert_eq!(refused(maps.get("c").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_generated_name_follows_from_the_seed() {
    let mut names = Vec::new();
    for _ in 0..2 {
        let server = server();
        let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
        let mut map = config_map("");
        map.metadata.name = None;
        map.metadata.generate_name = Some("x-".to_owned());
        names.push(maps.create(&PostParams::default(), &map).await.unwrap().name_any());
    }
    assert_eq!(names[0], names[1]);
    assert!(names[0].starts_with("x-") && names[0].len() == 7, "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_with_an_old_version_conflicts_and_one_that_changes_nothing_writes_nothing() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let same = maps.replace("a", &PostParams::default(), &first).await.unwrap();
    assert_eq!(same.resource_version(), first.resource_version());
    let mut second = first.clone();
    second.data = Some(BTreeMap::from([("k".to_owned(), "w".to_owned())]));
    let second = maps.replace("a", &PostParams::default(), &second).await.unwrap();
    assert_ne!(second.resource_version(), first.resource_version());
    let late = maps.replace("a", &PostParams::default(), &first).await;
    assert_eq!(refused(late), code(409, "Conflict"));
    let old =
        json!({"metadata": {"resourceVersion": first.resource_version()}, "data": {"k": "x"}});
    let late = maps.patch("a", &PatchParams::default(), &merge(&old)).await;
    assert_eq!(refused(late), code(409, "Conflict"));
}

#[tokio::test(start_paused = true)]
async fn objects_need_their_namespace_and_go_with_it() {
    let server = server();
    let client = admin(&server);
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "team");
    let early = maps.create(&PostParams::default(), &config_map("a")).await;
    assert_eq!(refused(early), code(404, "NotFound"));
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let team = serde_json::from_value(json!({"metadata": {"name": "team"}})).unwrap();
    namespaces.create(&PostParams::default(), &team).await.unwrap();
    let accounts: Api<ServiceAccount> = Api::namespaced(client, "team");
    accounts.get("default").await.unwrap();
    let mut held = config_map("a");
    held.metadata.finalizers = Some(vec!["test.dev/hold".to_owned()]);
    maps.create(&PostParams::default(), &held).await.unwrap();
    namespaces.delete("team", &DeleteParams::default()).await.unwrap();
    let ending = namespaces.get("team").await.unwrap();
    assert_eq!(ending.status.unwrap().phase.unwrap(), "Terminating");
    let late = maps.create(&PostParams::default(), &config_map("b")).await;
    assert_eq!(refused(late), code(403, "Forbidden"));
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("a", &PatchParams::default(), &merge(&free)).await.unwrap();
    assert_eq!(refused(namespaces.get("team").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_custom_resource_is_defaulted_pruned_and_checked() {
    let server = server();
    let api = widgets(&admin(&server));
    let spec = json!({"colour": "red", "unknown": 1});
    let made = api.create(&PostParams::default(), &widget("a", &spec)).await.unwrap();
    assert_eq!(made.data["spec"], json!({"colour": "red", "replicas": 2}));
    assert_eq!(made.metadata.generation, Some(1));
    for spec in [
        json!({}),
        json!({"colour": "green"}),
        json!({"colour": 7}),
        json!({"colour": "red", "replicas": -1}),
        json!({"colour": "red", "replicas": "3"}),
    ] {
        let bad = api.create(&PostParams::default(), &widget("b", &spec)).await;
        assert_eq!(refused(bad), code(422, "Invalid"), "{spec}");
    }
    let bad_name = api.create(&PostParams::default(), &widget("Bad_Name", &json!({}))).await;
    assert_eq!(refused(bad_name), code(422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn the_generation_counts_changes_of_the_specification_alone() {
    let server = server();
    let api = widgets(&admin(&server));
    api.create(&PostParams::default(), &widget("a", &json!({"colour": "red"}))).await.unwrap();
    let params = PatchParams::default();
    for (patch, generation) in [
        (json!({"metadata": {"labels": {"x": "y"}}}), 1),
        (json!({"spec": {"colour": "blue"}}), 2),
        (json!({"spec": {"colour": "blue"}}), 2),
        (json!({"status": {"phase": "sneaked in"}}), 2),
    ] {
        let patched = api.patch("a", &params, &merge(&patch)).await.unwrap();
        assert_eq!(patched.metadata.generation, Some(generation), "{patch}");
        assert!(patched.data.get("status").is_none(), "{patch}");
    }
    let both = json!({"status": {"phase": "Done"}, "spec": {"colour": "red"},
        "metadata": {"labels": {"x": "z"}}});
    let patched = api.patch_status("a", &params, &merge(&both)).await.unwrap();
    assert_eq!(patched.data["status"], json!({"phase": "Done"}));
    assert_eq!(patched.data["spec"]["colour"], json!("blue"));
    assert_eq!(patched.labels()["x"], "y");
    assert_eq!(patched.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn the_scale_of_a_custom_resource_is_one_number_of_it() {
    let server = server();
    let api = widgets(&admin(&server));
    api.create(&PostParams::default(), &widget("a", &json!({"colour": "red"}))).await.unwrap();
    let scale = api.get_scale("a").await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    let five = json!({"spec": {"replicas": 5}});
    let scale = api.patch_scale("a", &PatchParams::default(), &merge(&five)).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(5));
    let object = api.get("a").await.unwrap();
    assert_eq!(object.data["spec"]["replicas"], json!(5));
    assert_eq!(object.metadata.generation, Some(2));
    let less = json!({"spec": {"replicas": -5}});
    let refusal = api.patch_scale("a", &PatchParams::default(), &merge(&less)).await;
    assert_eq!(refused(refusal), code(422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn server_side_apply_creates_and_then_merges() {
    let server = server();
    let api = widgets(&admin(&server));
    let params = PatchParams::apply("test").force();
    let full = widget("a", &json!({"colour": "red", "replicas": 1}));
    api.patch("a", &params, &Patch::Apply(&full)).await.unwrap();
    let part = widget("a", &json!({"colour": "blue"}));
    let merged = api.patch("a", &params, &Patch::Apply(&part)).await.unwrap();
    assert_eq!(merged.data["spec"], json!({"colour": "blue", "replicas": 1}));
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_holds_an_object_until_it_is_taken_off() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let mut map = config_map("a");
    map.metadata.finalizers = Some(vec!["test.dev/hold".to_owned()]);
    maps.create(&PostParams::default(), &map).await.unwrap();
    let marked = maps.delete("a", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(marked.metadata.deletion_timestamp.is_some());
    let more = json!({"metadata": {"finalizers": ["test.dev/hold", "test.dev/more"]}});
    let late = maps.patch("a", &PatchParams::default(), &merge(&more)).await;
    assert_eq!(refused(late), code(422, "Invalid"));
    let free = json!({"metadata": {"finalizers": []}});
    maps.patch("a", &PatchParams::default(), &merge(&free)).await.unwrap();
    assert_eq!(refused(maps.get("a").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_delete_holds_to_its_preconditions() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let made = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let only = |uid: Option<String>, resource_version: Option<String>| DeleteParams {
        preconditions: Some(Preconditions { uid, resource_version }),
        ..DeleteParams::default()
    };
    for params in [only(Some("other".to_owned()), None), only(None, Some("1".to_owned()))] {
        assert_eq!(refused(maps.delete("a", &params).await), code(409, "Conflict"));
    }
    let exact = only(made.uid(), made.resource_version());
    assert!(maps.delete("a", &exact).await.unwrap().right().unwrap().is_success());
}

#[tokio::test(start_paused = true)]
async fn a_bound_pod_stays_until_its_kubelet_lets_it_go() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    for pod in [pod("free", None), pod("bound", Some("mac"))] {
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods.delete(&pod.name_any(), &DeleteParams::default()).await.unwrap();
    }
    assert_eq!(refused(pods.get("free").await), code(404, "NotFound"));
    let bound = pods.get("bound").await.unwrap();
    assert_eq!(bound.metadata.deletion_grace_period_seconds, Some(30));
    let add = json!({"metadata": {"finalizers": ["test.dev/vm"]}});
    let late = pods.patch_status("bound", &PatchParams::default(), &merge(&add)).await;
    assert_eq!(refused(late), code(422, "Invalid"));
    let now = DeleteParams::default().grace_period(0);
    pods.delete("bound", &now).await.unwrap();
    assert_eq!(refused(pods.get("bound").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_pods_finalizer_goes_through_its_status_and_the_pod_with_it() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    pods.create(&PostParams::default(), &pod("a", Some("mac"))).await.unwrap();
    let params = PatchParams::default();
    let add = json!({"metadata": {"finalizers": ["test.dev/vm"]}, "status": {"phase": "Running"}});
    let running = pods.patch_status("a", &params, &merge(&add)).await.unwrap();
    assert_eq!(running.finalizers(), ["test.dev/vm"]);
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
    let free = json!({"metadata": {"finalizers": null}});
    pods.patch_status("a", &params, &merge(&free)).await.unwrap();
    assert_eq!(refused(pods.get("a").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn a_pods_specification_is_fixed() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    pods.create(&PostParams::default(), &pod("a", None)).await.unwrap();
    let params = PatchParams::default();
    let image = json!({"spec": {"containers": [{"name": "c", "image": "j"}]}});
    pods.patch("a", &params, &Patch::Strategic(&image)).await.unwrap();
    let node = json!({"spec": {"nodeName": "mac"}});
    let refusal = pods.patch("a", &params, &Patch::Strategic(&node)).await;
    assert_eq!(refused(refusal), code(422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn a_budget_keeps_its_pods_from_eviction() {
    let server = server();
    let client = admin(&server);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let ready = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    for name in ["a", "b"] {
        pods.create(&PostParams::default(), &pod(name, Some("mac"))).await.unwrap();
        pods.patch_status(name, &PatchParams::default(), &merge(&ready)).await.unwrap();
    }
    let budgets: Api<k8s_openapi::api::policy::v1::PodDisruptionBudget> =
        Api::default_namespaced(client);
    let budget = serde_json::from_value(json!({"metadata": {"name": "keep-a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}));
    budgets.create(&PostParams::default(), &budget.unwrap()).await.unwrap();
    let refusal = pods.evict("a", &EvictParams::default()).await;
    assert_eq!(refused(refusal), code(429, "TooManyRequests"));
    pods.evict("b", &EvictParams::default()).await.unwrap();
    assert!(pods.get("b").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn dependents_go_after_their_last_owner() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let create = PostParams::default();
    let one = maps.create(&create, &config_map("one")).await.unwrap();
    let two = maps.create(&create, &config_map("two")).await.unwrap();
    let mut child = owned_map("child", &one);
    child.owner_references_mut().extend(owned_map("x", &two).owner_references().to_vec());
    let child = maps.create(&create, &child).await.unwrap();
    maps.create(&create, &owned_map("grandchild", &child)).await.unwrap();
    maps.delete("one", &DeleteParams::default()).await.unwrap();
    assert_eq!(maps.get("child").await.unwrap().owner_references().len(), 1);
    maps.delete("two", &DeleteParams::default()).await.unwrap();
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());
    maps.create(&create, &owned_map("late", &one)).await.unwrap();
    assert_eq!(refused(maps.get("late").await), code(404, "NotFound"));
}

#[tokio::test(start_paused = true)]
async fn propagation_decides_who_goes_first() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let create = PostParams::default();
    let owner = maps.create(&create, &config_map("owner")).await.unwrap();
    let mut child = owned_map("child", &owner);
    child.metadata.finalizers = Some(vec!["test.dev/hold".to_owned()]);
    maps.create(&create, &child).await.unwrap();
    let foreground = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        ..DeleteParams::default()
    };
    maps.delete("owner", &foreground).await.unwrap();
    assert!(maps.get("owner").await.unwrap().metadata.deletion_timestamp.is_some());
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("child", &PatchParams::default(), &merge(&free)).await.unwrap();
    assert!(maps.list(&ListParams::default()).await.unwrap().items.is_empty());

    let owner = maps.create(&create, &config_map("owner")).await.unwrap();
    maps.create(&create, &owned_map("child", &owner)).await.unwrap();
    let orphan = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    maps.delete("owner", &orphan).await.unwrap();
    assert!(maps.get("child").await.unwrap().owner_references().is_empty());
}

#[tokio::test(start_paused = true)]
async fn lists_select_and_come_in_pages() {
    let server = server();
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    for (name, node) in [("a", Some("x")), ("b", Some("y")), ("c", None), ("d", Some("x"))] {
        pods.create(&PostParams::default(), &pod(name, node)).await.unwrap();
    }
    let names = |list: kube::api::ObjectList<Pod>| -> Vec<String> {
        list.items.iter().map(ResourceExt::name_any).collect()
    };
    for (params, wanted) in [
        (ListParams::default().fields("spec.nodeName=x"), vec!["a", "d"]),
        (ListParams::default().labels("app in (b, c)"), vec!["b", "c"]),
        (ListParams::default().labels("app notin (b, c)").fields("metadata.name!=d"), vec!["a"]),
    ] {
        assert_eq!(names(pods.list(&params).await.unwrap()), wanted);
    }
    let page = pods.list(&ListParams::default().limit(3)).await.unwrap();
    let token = page.metadata.continue_.clone().unwrap();
    assert_eq!(page.metadata.remaining_item_count, Some(1));
    assert_eq!(names(page), ["a", "b", "c"]);
    let rest = ListParams::default().limit(3).continue_token(&token);
    assert_eq!(names(pods.list(&rest).await.unwrap()), ["d"]);
    pods.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=c"))
        .await
        .unwrap();
    assert_eq!(refused(pods.get("c").await), code(404, "NotFound"));
}

fn told(event: &WatchEvent<ConfigMap>) -> String {
    match event {
        WatchEvent::Added(map) => format!("added {}", map.name_any()),
        WatchEvent::Modified(map) => format!("modified {}", map.name_any()),
        WatchEvent::Deleted(map) => format!("deleted {}", map.name_any()),
        WatchEvent::Bookmark(_) => "bookmark".to_owned(),
        WatchEvent::Error(status) => format!("error {}", status.code),
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_replays_what_happened_since_its_version_and_follows_its_selection() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let params = PatchParams::default();
    for labels in [json!({"on": "1"}), json!({"on": "2"}), json!({"on": null})] {
        let patch = json!({"metadata": {"labels": labels}});
        maps.patch("a", &params, &merge(&patch)).await.unwrap();
    }
    let since = first.resource_version().unwrap();
    let watch = WatchParams::default().labels("on").timeout(90);
    let stream = maps.watch(&watch, &since).await.unwrap();
    let events: Vec<String> = stream.map_ok(|event| told(&event)).try_collect().await.unwrap();
    assert_eq!(events, ["added a", "modified a", "deleted a", "bookmark", "bookmark"]);
    let stream =
        maps.watch(&WatchParams::default().timeout(1).disable_bookmarks(), "0").await.unwrap();
    let events: Vec<String> = stream.map_ok(|event| told(&event)).try_collect().await.unwrap();
    assert_eq!(events, ["added a"]);
}

#[tokio::test(start_paused = true)]
async fn a_watch_from_a_forgotten_version_is_told_so() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    for round in 0..1_100 {
        let patch = json!({"data": {"k": round.to_string()}});
        maps.patch("a", &PatchParams::default(), &merge(&patch)).await.unwrap();
    }
    let since = first.resource_version().unwrap();
    let stream = maps.watch(&WatchParams::default(), &since).await.unwrap();
    let events: Vec<String> = stream.map_ok(|event| told(&event)).try_collect().await.unwrap();
    assert_eq!(events, ["error 410"]);
}

#[tokio::test(start_paused = true)]
async fn both_kinds_of_initial_list_bring_a_watcher_up_to_date() {
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let server = server();
        let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
        maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
        let mut events = watcher(maps.clone(), config).boxed();
        let mut seen = Vec::new();
        while seen.last() != Some(&"deleted a".to_owned()) {
            seen.push(match events.try_next().await.unwrap().unwrap() {
                watcher::Event::Init => "init".to_owned(),
                watcher::Event::InitApply(map) => format!("there {}", map.name_any()),
                watcher::Event::InitDone => {
                    maps.delete("a", &DeleteParams::default()).await.unwrap();
                    "done".to_owned()
                }
                watcher::Event::Apply(map) => format!("applied {}", map.name_any()),
                watcher::Event::Delete(map) => format!("deleted {}", map.name_any()),
            });
        }
        assert_eq!(seen, ["init", "there a", "done", "deleted a"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_of_the_real_runtime_reconciles_here() {
    let server = server();
    let client = admin(&server);
    let api = widgets(&client);
    api.create(&PostParams::default(), &widget("a", &json!({"colour": "red"}))).await.unwrap();
    let resource = ApiResource::from_gvk_with_plural(
        &GroupVersionKind::gvk("test.dev", "v1", "Widget"),
        "widgets",
    );
    let reconcile = |object: Arc<DynamicObject>, api: Arc<Api<DynamicObject>>| async move {
        if object.data["status"]["phase"] == "Done" {
            return Ok::<_, kube::Error>(Action::await_change());
        }
        let done = json!({"status": {"phase": "Done"}});
        api.patch_status(&object.name_any(), &PatchParams::default(), &merge(&done)).await?;
        Ok(Action::requeue(Duration::from_mins(1)))
    };
    let mut turns = Controller::new_with(api.clone(), watcher::Config::default(), resource)
        .run(reconcile, |_, _, _| Action::await_change(), Arc::new(api.clone()))
        .boxed();
    while api.get("a").await.unwrap().data["status"]["phase"] != "Done" {
        turns.next().await.unwrap().unwrap();
    }
    assert_eq!(server.requests()[&(Verb::Patch, "widgets.test.dev/status".to_owned())], 1);
}

#[tokio::test(start_paused = true)]
async fn an_event_in_newer_words_reads_in_older_ones() {
    let server = server();
    let client = admin(&server);
    let newer: Api<k8s_openapi::api::events::v1::Event> = Api::default_namespaced(client.clone());
    let event = serde_json::from_value(json!({"metadata": {"name": "e"}, "note": "hello",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reason": "Said", "type": "Normal",
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"}}));
    newer.create(&PostParams::default(), &event.unwrap()).await.unwrap();
    let older: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(client);
    let selected = ListParams::default().fields("involvedObject.name=p,reason=Said");
    let found = older.list(&selected).await.unwrap().items;
    assert_eq!(found[0].message.as_deref(), Some("hello"));
    let again = json!({"note": "again"});
    let patched = newer.patch("e", &PatchParams::default(), &merge(&again)).await.unwrap();
    assert_eq!(patched.regarding.unwrap().name.unwrap(), "p");
}

#[tokio::test(start_paused = true)]
async fn a_service_accounts_token_works_until_its_secret_goes() {
    let server = server();
    let client = admin(&server);
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let secret = serde_json::from_value(json!({"metadata": {"name": "t",
        "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token"}));
    secrets.create(&PostParams::default(), &secret.unwrap()).await.unwrap();
    let data = secrets.get("t").await.unwrap().data.unwrap();
    assert!(data["ca.crt"].0.starts_with(b"-----BEGIN"));
    let token = String::from_utf8(data["token"].0.clone()).unwrap();
    let bearer = server.client_with_token(SecretString::from(token));
    let nodes: Api<Node> = Api::all(bearer);
    assert!(nodes.list(&ListParams::default()).await.unwrap().items.is_empty());
    secrets.delete("t", &DeleteParams::default()).await.unwrap();
    let late = nodes.list(&ListParams::default()).await;
    assert_eq!(refused(late), code(401, "Unauthorized"));
}

#[tokio::test(start_paused = true)]
async fn a_requested_token_ends_with_its_time() {
    let server = server();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin(&server));
    let request = serde_json::from_value(json!({"metadata": {}, "spec": {"audiences": [],
        "expirationSeconds": 600}}));
    let answer = accounts
        .create_token_request("default", &PostParams::default(), &request.unwrap())
        .await
        .unwrap();
    let token = SecretString::from(answer.status.unwrap().token);
    let nodes: Api<Node> = Api::all(server.client_with_token(token));
    nodes.list(&ListParams::default()).await.unwrap();
    tokio::time::advance(Duration::from_mins(10)).await;
    assert_eq!(refused(nodes.list(&ListParams::default()).await), code(401, "Unauthorized"));
}

#[tokio::test(start_paused = true)]
async fn a_definition_that_comes_later_is_served_and_takes_its_objects_along() {
    let server = ApiServer::new(clock(), 1, Registry::new(Vec::new()).unwrap());
    let client = admin(&server);
    let api = widgets(&client);
    let red = widget("a", &json!({"colour": "red"}));
    assert_eq!(refused(api.create(&PostParams::default(), &red).await), code(404, "NotFound"));
    let definitions: Api<CustomResourceDefinition> = Api::all(client);
    definitions.create(&PostParams::default(), &widget_definition()).await.unwrap();
    let established = kube::runtime::wait::conditions::is_crd_established();
    kube::runtime::wait::await_condition(definitions.clone(), "widgets.test.dev", established)
        .await
        .unwrap();
    api.create(&PostParams::default(), &red).await.unwrap();
    definitions.delete("widgets.test.dev", &DeleteParams::default()).await.unwrap();
    assert_eq!(refused(definitions.get("widgets.test.dev").await), code(404, "NotFound"));
    assert_eq!(refused(api.get("a").await), code(404, "NotFound"));
    assert!(server.objects("widgets.test.dev").is_empty());
}

/// A gate that gives each mutating call the next verdict of a list, and notes it.
#[derive(Default)]
struct Script {
    verdicts: Mutex<Vec<Verdict>>,
    seen: Mutex<Vec<String>>,
}

impl Gate for Script {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if !call.verb.mutates() {
                return Verdict::Pass;
            }
            self.seen.lock().unwrap().push(format!("{}: {call}", call.who.user));
            self.verdicts.lock().unwrap().pop().unwrap_or(Verdict::Pass)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_can_refuse_a_call_and_lose_it_before_or_after() {
    let unavailable = Refusal::new(503, "ServiceUnavailable", "not now");
    let verdicts = vec![Verdict::HangAfter, Verdict::HangBefore, Verdict::FailBefore(unavailable)];
    let gate = Arc::new(Script { verdicts: Mutex::new(verdicts), ..Script::default() });
    let server = ApiServer::set_up(Setup {
        clock: clock(),
        seed: 1,
        registry: registry(),
        gate: Some(gate.clone()),
        authority: None,
    });
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let create = PostParams::default();
    let refusal = maps.create(&create, &config_map("a")).await;
    assert_eq!(refused(refusal), code(503, "ServiceUnavailable"));
    let patience = Duration::from_secs(30);
    let map = config_map("a");
    assert!(tokio::time::timeout(patience, maps.create(&create, &map)).await.is_err());
    assert_eq!(refused(maps.get("a").await), code(404, "NotFound"));
    assert!(tokio::time::timeout(patience, maps.create(&create, &map)).await.is_err());
    maps.get("a").await.unwrap();
    let seen = gate.seen.lock().unwrap();
    assert_eq!(*seen, ["ada: create configmaps default/a"; 3]);
}
