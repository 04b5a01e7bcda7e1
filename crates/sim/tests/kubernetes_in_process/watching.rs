//! Lists, watches, and the real runtime on top of them.

use std::sync::Arc;
use std::time::Duration;

use applecart_sim::kubernetes::Verb;
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, PatchParams,
    PostParams, WatchEvent, WatchParams,
};
use kube::runtime::controller::Action;
use kube::runtime::{Controller, watcher};
use serde_json::json;

use crate::fixture::{admin, code, config_map, merge, pod, refused, server, widget, widgets};

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
