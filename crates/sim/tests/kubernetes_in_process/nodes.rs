//! What a Node may do by being one, as facts about a real server say.

use applecart_sim::kubernetes::{ApiServer, Identity};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::{admin, code, merge, pod, refused, server};

/// A cluster with a Node `a`, a Pod on it and one elsewhere; and a client that is the Node.
async fn cluster() -> (ApiServer, Client) {
    let server = server();
    let nodes: Api<Node> = Api::all(admin(&server));
    let create = PostParams::default();
    for name in ["a", "b"] {
        let node = json!({"metadata": {"name": name}, "spec": {"taints": []}});
        nodes.create(&create, &serde_json::from_value(node).unwrap()).await.unwrap();
    }
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    pods.create(&create, &pod("mine", Some("a"))).await.unwrap();
    pods.create(&create, &pod("other", Some("b"))).await.unwrap();
    server.enforce_roles();
    let node = server.client(Identity::node("a"));
    (server, node)
}

fn denied<T: std::fmt::Debug>(result: kube::Result<T>, what: &str) {
    assert_eq!(refused(result), code(403, "Forbidden"), "{what}");
}

#[tokio::test(start_paused = true)]
async fn a_node_changes_itself_and_no_other_and_never_its_taints() {
    let (_server, client) = cluster().await;
    let nodes: Api<Node> = Api::all(client);
    let how = PatchParams::default();
    let annotate = json!({"metadata": {"annotations": {"k": "v"}}});
    nodes.patch("a", &how, &merge(&annotate)).await.unwrap();
    nodes.patch_status("a", &how, &merge(&annotate)).await.unwrap();
    denied(nodes.patch("b", &how, &merge(&annotate)).await, "another Node");
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    denied(nodes.patch("a", &how, &merge(&taint)).await, "its taints");
    let label = json!({"metadata": {"labels": {"k": "v"}}});
    denied(nodes.patch_status("a", &how, &merge(&label)).await, "labels through status");
    nodes.patch("a", &how, &merge(&label)).await.unwrap();
    let lure = json!({"metadata": {"labels": {"node-restriction.kubernetes.io/k": "v"}}});
    denied(nodes.patch("a", &how, &merge(&lure)).await, "a restricted label");
    denied(nodes.delete("a", &DeleteParams::default()).await, "itself");
    denied(nodes.list(&ListParams::default()).await, "all Nodes");
    nodes.list(&ListParams::default().fields("metadata.name=a")).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_node_sees_and_ends_its_own_pods_through_their_status_alone() {
    let (_server, client) = cluster().await;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let how = PatchParams::default();
    let own = ListParams::default().fields("spec.nodeName=a");
    assert_eq!(pods.list(&own).await.unwrap().items.len(), 1);
    denied(pods.list(&ListParams::default()).await, "all Pods");
    denied(pods.get("other").await, "a Pod elsewhere");
    let finalizer = json!({"metadata": {"finalizers": ["test.dev/x"]}});
    denied(pods.patch("mine", &how, &merge(&finalizer)).await, "a Pod itself");
    pods.patch_status("mine", &how, &merge(&finalizer)).await.unwrap();
    denied(pods.patch_status("other", &how, &merge(&finalizer)).await, "a Pod elsewhere");
    pods.delete("mine", &DeleteParams::default().grace_period(0)).await.unwrap();
    denied(pods.delete("other", &DeleteParams::default()).await, "a Pod elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_node_reads_the_secrets_of_its_pods_and_gets_tokens_bound_to_them() {
    let (server, client) = cluster().await;
    let create = PostParams::default();
    let mut uses: Value = serde_json::to_value(pod("uses", Some("a"))).unwrap();
    uses["spec"]["containers"][0]["env"] = json!([{"name": "E",
        "valueFrom": {"secretKeyRef": {"name": "used", "key": "k"}}}]);
    let pods: Api<Pod> = Api::default_namespaced(admin(&server));
    pods.create(&create, &serde_json::from_value(uses).unwrap()).await.unwrap();
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    assert_eq!(refused(secrets.get("used").await), code(404, "NotFound"), "allowed, not there");
    denied(secrets.get("unused").await, "a Secret that no Pod uses");
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let token = |pod: Option<&str>| -> TokenRequest {
        let bound = pod.map(|pod| json!({"kind": "Pod", "name": pod}));
        let spec = json!({"audiences": [], "boundObjectRef": bound});
        serde_json::from_value(json!({"spec": spec})).unwrap()
    };
    accounts.create_token_request("default", &create, &token(Some("uses"))).await.unwrap();
    let unbound = accounts.create_token_request("default", &create, &token(None)).await;
    denied(unbound, "a token of no Pod");
    let elsewhere = accounts.create_token_request("default", &create, &token(Some("other"))).await;
    denied(elsewhere, "a token of a Pod elsewhere");
}

#[tokio::test(start_paused = true)]
async fn a_node_renews_its_own_lease_and_touches_no_other() {
    let (_server, client) = cluster().await;
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let create = PostParams::default();
    let lease = |name: &str| -> Lease {
        serde_json::from_value(json!({"metadata": {"name": name}, "spec": {}})).unwrap()
    };
    leases.create(&create, &lease("a")).await.unwrap();
    denied(leases.create(&create, &lease("b")).await, "another Node's");
    let elsewhere: Api<Lease> = Api::default_namespaced(client);
    denied(elsewhere.create(&create, &lease("a")).await, "in another namespace");
}
