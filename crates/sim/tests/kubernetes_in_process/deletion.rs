//! Finalizers, grace, owners, budgets, namespaces.

use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use kube::api::{
    Api, DeleteParams, EvictParams, ListParams, PatchParams, PostParams, Preconditions,
    PropagationPolicy,
};
use serde_json::{Value, json};

use crate::fixture::{admin, code, config_map, merge, owned_map, pod, refused, server};

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
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    let budget = serde_json::from_value(json!({"metadata": {"name": "keep-a"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}}));
    budgets.create(&PostParams::default(), &budget.unwrap()).await.unwrap();
    let refusal = pods.evict("a", &EvictParams::default()).await;
    assert_eq!(refused(refusal), code(429, "TooManyRequests"));
    pods.evict("b", &EvictParams::default()).await.unwrap();
    assert!(pods.get("b").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_eviction_that_is_rehearsed_or_meant_for_another_pod_evicts_nobody() {
    let server = server();
    let client = admin(&server);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let made = pods.create(&PostParams::default(), &pod("a", Some("mac"))).await.unwrap();
    // The library's own call has another name for the options, and no server reads them.
    let evict = async |options: Value| {
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"},
            "deleteOptions": options});
        let request = http::Request::post("/api/v1/namespaces/default/pods/a/eviction");
        let request = request.header("content-type", "application/json");
        client.request::<Value>(request.body(body.to_string().into_bytes()).unwrap()).await
    };
    // As `kubectl drain --dry-run=server` asks.
    evict(json!({"dryRun": ["All"]})).await.unwrap();
    for other in [json!({"uid": "another"}), json!({"resourceVersion": "1"})] {
        let refusal = evict(json!({"preconditions": other})).await;
        assert_eq!(refused(refusal), code(409, "Conflict"));
    }
    let kept = pods.get("a").await.unwrap();
    assert_eq!(kept.metadata, made.metadata);
    let (uid, version) = (kept.uid(), kept.resource_version());
    evict(json!({"preconditions": {"uid": uid, "resourceVersion": version}})).await.unwrap();
    assert!(pods.get("a").await.unwrap().metadata.deletion_timestamp.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_budget_tells_what_it_allows_and_lets_go_what_is_no_loss() {
    let server = server();
    let client = admin(&server);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    let budget = serde_json::from_value(json!({"metadata": {"name": "two"},
        "spec": {"minAvailable": 2, "selector": {}}}));
    budgets.create(&PostParams::default(), &budget.unwrap()).await.unwrap();
    let told = async || {
        let status = budgets.get("two").await.unwrap().status.unwrap();
        (status.expected_pods, status.current_healthy, status.disruptions_allowed)
    };
    assert_eq!(told().await, (0, 0, 0));
    for name in ["a", "b", "c", "unready"] {
        pods.create(&PostParams::default(), &pod(name, Some("mac"))).await.unwrap();
        let ready = if name == "unready" { "False" } else { "True" };
        let status = json!({"status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": ready}]}});
        pods.patch_status(name, &PatchParams::default(), &merge(&status)).await.unwrap();
    }
    assert_eq!(told().await, (4, 3, 1));
    pods.evict("a", &EvictParams::default()).await.unwrap();
    assert_eq!(told().await, (4, 2, 0));
    let refusal = pods.evict("b", &EvictParams::default()).await;
    assert_eq!(refused(refusal), code(429, "TooManyRequests"));
    // Those that are ready are as many without it.
    pods.evict("unready", &EvictParams::default()).await.unwrap();
    let gone = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    pods.patch_status("c", &PatchParams::default(), &merge(&gone)).await.unwrap();
    assert_eq!(told().await, (4, 1, 0));
    let refusal = pods.evict("c", &EvictParams::default()).await;
    assert_eq!(refused(refusal), code(429, "TooManyRequests"));
    let always = json!({"spec": {"unhealthyPodEvictionPolicy": "AlwaysAllow"}});
    budgets.patch("two", &PatchParams::default(), &merge(&always)).await.unwrap();
    pods.evict("c", &EvictParams::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_share_is_of_the_pods_that_their_owners_want() {
    let server = server();
    let client = admin(&server);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let sets: Api<ReplicaSet> = Api::default_namespaced(client.clone());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(client);
    let set = serde_json::from_value(json!({"metadata": {"name": "set"}, "spec": {"replicas": 4,
        "selector": {"matchLabels": {"app": "x"}}, "template": {
            "metadata": {"labels": {"app": "x"}},
            "spec": {"containers": [{"name": "c", "image": "i"}]}}}}));
    let set = sets.create(&PostParams::default(), &set.unwrap()).await.unwrap();
    let owner = json!([{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "set",
        "uid": set.metadata.uid, "controller": true}]);
    let ready = json!({"status": {"phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}]}});
    for name in ["a", "b", "c"] {
        let mut pod = pod(name, Some("mac"));
        pod.metadata.owner_references = serde_json::from_value(owner.clone()).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        pods.patch_status(name, &PatchParams::default(), &merge(&ready)).await.unwrap();
    }
    let budget = serde_json::from_value(json!({"metadata": {"name": "half"},
        "spec": {"maxUnavailable": "50%", "selector": {}}}));
    budgets.create(&PostParams::default(), &budget.unwrap()).await.unwrap();
    let allowed = async || {
        let status = budgets.get("half").await.unwrap().status.unwrap();
        (status.expected_pods, status.desired_healthy, status.disruptions_allowed)
    };
    assert_eq!(allowed().await, (4, 2, 1));
    let fewer = json!({"spec": {"replicas": 2}});
    sets.patch("set", &PatchParams::default(), &merge(&fewer)).await.unwrap();
    assert_eq!(allowed().await, (2, 1, 2));
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
