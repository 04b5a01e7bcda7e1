//! Creating and changing objects.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_sim::kubernetes::{ApiServer, Registry};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};

use crate::fixture::{
    admin, clock, code, config_map, merge, pod, refused, server, widget, widget_definition, widgets,
};

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
async fn a_pod_that_could_not_run_is_refused_and_no_field_is_null() {
    let server = server();
    let pods: Api<DynamicObject> =
        Api::default_namespaced_with(admin(&server), &ApiResource::erase::<Pod>(&()));
    let made = async |name: &str, spec: Value| {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": spec});
        let pod: DynamicObject = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await
    };
    let spec = |container: Value| json!({"containers": [container]});
    let sized = |resources: Value| spec(json!({"name": "c", "image": "i", "resources": resources}));
    let mut sometimes = spec(json!({"name": "c", "image": "i"}));
    sometimes["restartPolicy"] = json!("Sometimes");
    let over = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    for (wrong, number, reason) in [
        (spec(json!({"name": "", "image": "i"})), 422, "Invalid"),
        (spec(json!({"name": "C", "image": "i"})), 422, "Invalid"),
        (sometimes, 422, "Invalid"),
        (sized(over), 422, "Invalid"),
        (sized(json!({"limits": {"cpu": "lots"}})), 400, "BadRequest"),
    ] {
        assert_eq!(refused(made("wrong", wrong.clone()).await), code(number, reason), "{wrong}");
    }
    let size = json!({"cpu": "1", "memory": "1Gi"});
    let same = json!({"cpu": "1000m", "memory": "1024Mi"});
    for (name, resources, class) in [
        ("a", json!({"requests": same, "limits": size}), "Guaranteed"),
        ("b", json!({"limits": size}), "Guaranteed"),
        ("c", json!({"requests": {"cpu": 1}}), "Burstable"),
        ("d", json!({}), "BestEffort"),
    ] {
        let pod = made(name, sized(resources)).await.unwrap();
        assert_eq!(pod.data["status"]["qosClass"], class, "{name}");
        assert!(pod.data["spec"].get("initContainers").is_none(), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_deployment_and_a_service_say_what_was_left_out_and_keep_their_selector() {
    let server = server();
    let client = admin(&server);
    let deployments: Api<Deployment> = Api::default_namespaced(client.clone());
    let services: Api<Service> = Api::default_namespaced(client);
    let deployment = |label: &str| -> Deployment {
        serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": label}},
                "spec": {"containers": [{"name": "c", "image": "i"}]}}}}))
        .unwrap()
    };
    let params = PostParams::default();
    let refusal = deployments.create(&params, &deployment("other")).await;
    assert_eq!(refused(refusal), code(422, "Invalid"));
    let web = deployments.create(&params, &deployment("web")).await.unwrap();
    let strategy = json!(web.spec.unwrap().strategy);
    let rolling = json!({"maxSurge": "25%", "maxUnavailable": "25%"});
    assert_eq!(strategy, json!({"type": "RollingUpdate", "rollingUpdate": rolling}));
    let other = json!({"spec": {"selector": {"matchLabels": {"app": "other"}},
        "template": {"metadata": {"labels": {"app": "other"}}}}});
    let refusal = deployments.patch("web", &PatchParams::default(), &merge(&other)).await;
    assert_eq!(refused(refusal), code(422, "Invalid"));
    let service = |protocol: Value| -> Service {
        serde_json::from_value(json!({"metadata": {"name": "web"},
            "spec": {"ports": [{"port": 80, "protocol": protocol}]}}))
        .unwrap()
    };
    let refusal = services.create(&params, &service(json!("ICMP"))).await;
    assert_eq!(refused(refusal), code(422, "Invalid"));
    let web = services.create(&params, &service(Value::Null)).await.unwrap();
    let spec = json!(web.spec.unwrap());
    assert_eq!(
        (&spec["type"], &spec["ports"][0]["protocol"]),
        (&json!("ClusterIP"), &json!("TCP"))
    );
    let moved = json!({"spec": {"ports": [{"port": 81}]}});
    let moved = services.patch("web", &PatchParams::default(), &merge(&moved)).await.unwrap();
    assert_eq!(json!(moved.spec.unwrap())["clusterIP"], spec["clusterIP"]);
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

#[tokio::test(start_paused = true)]
async fn an_event_goes_an_hour_after_its_last_write() {
    let server = server();
    let events: Api<k8s_openapi::api::core::v1::Event> = Api::default_namespaced(admin(&server));
    for name in ["old", "renewed"] {
        let event = serde_json::from_value(json!({"metadata": {"name": name},
            "involvedObject": {"kind": "Pod", "name": "p"}}));
        events.create(&PostParams::default(), &event.unwrap()).await.unwrap();
    }
    tokio::time::advance(Duration::from_mins(30)).await;
    let again = json!({"count": 2});
    events.patch("renewed", &PatchParams::default(), &merge(&again)).await.unwrap();
    tokio::time::advance(Duration::from_mins(40)).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(admin(&server));
    maps.create(&PostParams::default(), &config_map("any-write")).await.unwrap();
    assert_eq!(refused(events.get("old").await), code(404, "NotFound"));
    events.get("renewed").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_same_requests_give_the_same_cluster() {
    let mut clusters = Vec::new();
    for _ in 0..2 {
        let server = server();
        let api = widgets(&admin(&server));
        api.create(&PostParams::default(), &widget("a", &json!({"colour": "red"}))).await.unwrap();
        let resources = ["namespaces", "serviceaccounts", "widgets.test.dev"];
        let definitions = "customresourcedefinitions.apiextensions.k8s.io";
        let all = resources.into_iter().chain([definitions]);
        clusters.push(all.flat_map(|resource| server.objects(resource)).collect::<Vec<_>>());
    }
    assert_eq!(clusters[0], clusters[1]);
}
