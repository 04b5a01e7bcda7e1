//! Lists, watches, and the real runtime on top of them.

use std::sync::Arc;
use std::time::Duration;

use applecart_sim::kubernetes::Verb;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PatchParams,
    PostParams, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use serde_json::json;

use crate::fixture::{
    admin, code, config_map, merge, pod, refused, server, widget, widget_definition, widgets,
};

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
    let events: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    let said: Vec<String> = events.iter().map(told).collect();
    assert_eq!(said, ["added a", "modified a", "deleted a"]);
    // What leaves the selection is told as it was, at the version at which it left.
    let WatchEvent::Deleted(last) = &events[2] else { unreachable!("it said so") };
    assert_eq!(last.labels()["on"], "2");
    assert_eq!(last.resource_version(), maps.get("a").await.unwrap().resource_version());
    let stream =
        maps.watch(&WatchParams::default().timeout(1).disable_bookmarks(), "0").await.unwrap();
    let events: Vec<String> = stream.map_ok(|event| told(&event)).try_collect().await.unwrap();
    assert_eq!(events, ["added a"]);
}

#[tokio::test(start_paused = true)]
async fn a_bookmark_comes_before_the_end_and_only_if_it_says_more_than_the_beginning() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let first = maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let since = first.resource_version().unwrap();
    let watch = async |seconds, change: bool| {
        let stream = maps.watch(&WatchParams::default().timeout(seconds), &since).await.unwrap();
        let began = tokio::time::Instant::now();
        if change {
            maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
        }
        let told = stream.map_ok(|event| (told(&event), began.elapsed().as_secs()));
        let told: Vec<(String, u64)> = told.try_collect().await.unwrap();
        if change {
            maps.delete("b", &DeleteParams::default()).await.unwrap();
        }
        told.into_iter().filter(|(event, _)| event == "bookmark").map(|(_, at)| at).collect()
    };
    let none: Vec<u64> = watch(90, false).await;
    assert!(none.is_empty());
    assert_eq!(watch(90, true).await, [60, 88]);
    let short: Vec<u64> = watch(1, true).await;
    assert!(short.is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_let_go_is_told_once_and_a_pods_deletion_before_it_goes() {
    let server = server();
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    let mut held = config_map("a");
    held.metadata.finalizers = Some(vec!["test.dev/held".to_owned()]);
    let since = maps.create(&PostParams::default(), &held).await.unwrap().resource_version();
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    let free = json!({"metadata": {"finalizers": null}});
    maps.patch("a", &PatchParams::default(), &merge(&free)).await.unwrap();
    let watch = WatchParams::default().timeout(1).disable_bookmarks();
    let stream = maps.watch(&watch, &since.unwrap()).await.unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    assert_eq!(events.iter().map(told).collect::<Vec<_>>(), ["modified a", "deleted a"]);
    let WatchEvent::Deleted(last) = &events[1] else { unreachable!("it said so") };
    assert_eq!(last.finalizers(), ["test.dev/held"], "as it was");
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    let since = pods.create(&PostParams::default(), &pod("a", Some("x"))).await.unwrap();
    pods.delete("a", &DeleteParams::default().grace_period(0)).await.unwrap();
    let stream = pods.watch(&watch, &since.resource_version().unwrap()).await.unwrap();
    let events: Vec<WatchEvent<Pod>> = stream.try_collect().await.unwrap();
    assert!(matches!(&events[..], [WatchEvent::Modified(marked), WatchEvent::Deleted(_)]
        if marked.metadata.deletion_timestamp.is_some()));
}

#[tokio::test(start_paused = true)]
async fn nobody_watches_a_kind_from_before_its_time_and_one_to_come_waits() {
    let server = server();
    let client = admin(&server);
    let watch = WatchParams::default().timeout(1).disable_bookmarks();
    let stream = widgets(&client).watch(&watch, "1").await.unwrap();
    let events: Vec<WatchEvent<DynamicObject>> = stream.try_collect().await.unwrap();
    // The one definition of this cluster is its first object.
    assert!(events.is_empty());
    let later = gears(&client).await;
    let stream = later.watch(&watch, "1").await.unwrap();
    let events: Vec<WatchEvent<DynamicObject>> = stream.try_collect().await.unwrap();
    assert!(matches!(&events[..], [WatchEvent::Error(status)] if status.code == 410));
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let stream = maps.watch(&watch, "1000000").await.unwrap();
    maps.create(&PostParams::default(), &config_map("a")).await.unwrap();
    let events: Vec<WatchEvent<ConfigMap>> = stream.try_collect().await.unwrap();
    assert!(events.is_empty());
}

/// Gears, of a kind that is defined while the server runs.
async fn gears(client: &kube::Client) -> Api<DynamicObject> {
    let mut definition = widget_definition();
    definition.metadata.name = Some("gears.test.dev".to_owned());
    "Gear".clone_into(&mut definition.spec.names.kind);
    "gears".clone_into(&mut definition.spec.names.plural);
    definition.spec.names.singular = None;
    definition.spec.names.short_names = None;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.unwrap();
    let kind = GroupVersionKind::gvk("test.dev", "v1", "Gear");
    let resource = ApiResource::from_gvk_with_plural(&kind, "gears");
    Api::namespaced_with(client.clone(), "default", &resource)
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
async fn all_pages_of_a_list_are_of_one_moment() {
    let client = admin(&server());
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    for name in ["a", "b", "c"] {
        maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
    }
    let names = |list: &kube::core::ObjectList<ConfigMap>| -> Vec<String> {
        list.items.iter().map(ResourceExt::name_any).collect()
    };
    let first = maps.list(&ListParams::default().limit(1)).await.unwrap();
    maps.delete("b", &DeleteParams::default()).await.unwrap();
    maps.create(&PostParams::default(), &config_map("d")).await.unwrap();
    let token = first.metadata.continue_.clone().unwrap();
    let rest = maps.list(&ListParams::default().continue_token(&token)).await.unwrap();
    assert_eq!(names(&rest), ["b", "c"], "neither what went nor what came since");
    let now = maps.list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&now), ["a", "c", "d"]);
}
