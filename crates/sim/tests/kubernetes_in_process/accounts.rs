//! Tokens of service accounts.

use std::time::Duration;

use applecart_sim::kubernetes::{ApiServer, Identity};
use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use secrecy::SecretString;
use serde_json::{Value, json};

use crate::fixture::{admin, code, merge, pod, refused, server};

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
async fn a_token_for_somebody_else_opens_nothing_here() {
    let server = server();
    let accounts: Api<ServiceAccount> = Api::default_namespaced(admin(&server));
    let own = "https://kubernetes.default.svc";
    for (audiences, opens) in [
        (json!([]), true),
        (json!(["vault"]), false),
        (json!([own]), true),
        (json!(["vault", own]), true),
    ] {
        let request = json!({"metadata": {}, "spec": {"audiences": audiences}});
        let request = serde_json::from_value(request).unwrap();
        let create = PostParams::default();
        let answer = accounts.create_token_request("default", &create, &request).await.unwrap();
        assert!(!answer.spec.audiences.is_empty(), "it tells whom it is for");
        let token = SecretString::from(answer.status.unwrap().token);
        let nodes: Api<Node> = Api::all(server.client_with_token(token));
        let listed = nodes.list(&ListParams::default()).await;
        if opens {
            listed.unwrap();
        } else {
            assert_eq!(refused(listed), code(401, "Unauthorized"), "{audiences}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_outlives_the_deletion_of_what_it_is_bound_to_by_a_minute() {
    let server = server();
    let client = admin(&server);
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let bears = async |token: &SecretString| {
        let nodes: Api<Node> = Api::all(server.client_with_token(token.clone()));
        nodes.list(&ListParams::default()).await.is_ok()
    };
    let delete = DeleteParams::default();
    let mut graceful = pod("one", Some("mac"));
    graceful.spec.as_mut().unwrap().termination_grace_period_seconds = Some(30);
    pods.create(&PostParams::default(), &graceful).await.unwrap();
    let token = bound(&client, "Pod", "one", "").await.unwrap();
    pods.delete("one", &delete).await.unwrap();
    // A Pod is deleted when its grace is over.
    tokio::time::advance(Duration::from_secs(90)).await;
    assert!(bears(&token).await);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!bears(&token).await, "the Pod is there and should not be");
    // An account that somebody holds.
    let free = bound_to_nothing(&client).await;
    let hold = json!({"metadata": {"finalizers": ["test.dev/held"]}});
    accounts.patch("default", &PatchParams::default(), &merge(&hold)).await.unwrap();
    accounts.delete("default", &delete).await.unwrap();
    tokio::time::advance(Duration::from_mins(1)).await;
    assert!(bears(&free).await);
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!bears(&free).await);
}

/// A token of `default` that nothing else than its account ends.
async fn bound_to_nothing(client: &Client) -> SecretString {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let request = json!({"metadata": {}, "spec": {"audiences": []}});
    let request = serde_json::from_value(request).unwrap();
    let create = PostParams::default();
    let answer = accounts.create_token_request("default", &create, &request).await.unwrap();
    SecretString::from(answer.status.unwrap().token)
}

/// Asks for a token of `default` that is bound to the object of this kind, name and uid.
async fn bound(client: &Client, kind: &str, name: &str, uid: &str) -> kube::Result<SecretString> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
    let reference = json!({"apiVersion": "v1", "kind": kind, "name": name, "uid": uid});
    let spec = json!({"audiences": [], "boundObjectRef": reference});
    let request = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    let answer = accounts.create_token_request("default", &PostParams::default(), &request).await?;
    Ok(SecretString::from(answer.status.unwrap().token))
}

#[tokio::test(start_paused = true)]
async fn a_token_is_bound_only_to_what_is_there_and_its_own() {
    let client = admin(&server());
    let (create, pods) = (PostParams::default(), Api::<Pod>::default_namespaced(client.clone()));
    let made = pods.create(&create, &pod("own", None)).await.unwrap();
    let mut other = pod("other", None);
    other.spec.as_mut().unwrap().service_account_name = Some("ada".to_owned());
    pods.create(&create, &other).await.unwrap();
    let refused = async |kind, name, uid| match bound(&client, kind, name, uid).await {
        Err(error) => refused::<()>(Err(error)),
        Ok(_) => code(200, "it was given"),
    };
    assert_eq!(refused("Pod", "none", "").await, code(404, "NotFound"));
    assert_eq!(refused("Secret", "none", "").await, code(404, "NotFound"));
    assert_eq!(refused("Node", "none", "").await, code(404, "NotFound"));
    assert_eq!(refused("Pod", "other", "").await, code(400, "BadRequest"));
    assert_eq!(refused("ConfigMap", "own", "").await, code(400, "BadRequest"));
    assert_eq!(refused("Pod", "own", "another").await, code(409, "Conflict"));
    bound(&client, "Pod", "own", &made.uid().unwrap()).await.unwrap();
    bound(&client, "Pod", "own", "").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_token_dies_with_what_it_is_bound_to() {
    let server = server();
    let client = admin(&server);
    let (create, delete) = (PostParams::default(), DeleteParams::default());
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    let secrets: Api<Secret> = Api::default_namespaced(client.clone());
    let nodes: Api<Node> = Api::all(client.clone());
    pods.create(&create, &pod("one", None)).await.unwrap();
    let named = json!({"metadata": {"name": "one"}});
    secrets.create(&create, &serde_json::from_value(named.clone()).unwrap()).await.unwrap();
    nodes.create(&create, &serde_json::from_value(named).unwrap()).await.unwrap();
    for kind in ["Pod", "Secret", "Node"] {
        // Whoever names no uid gets one all the same.
        let token = bound(&client, kind, "one", "").await.unwrap();
        let bearer: Api<Node> = Api::all(server.client_with_token(token));
        bearer.list(&ListParams::default()).await.unwrap();
        match kind {
            "Pod" => drop(pods.delete("one", &delete).await.unwrap()),
            "Secret" => drop(secrets.delete("one", &delete).await.unwrap()),
            _ => drop(nodes.delete("one", &delete).await.unwrap()),
        }
        let late = bearer.list(&ListParams::default()).await;
        assert_eq!(refused(late), code(401, "Unauthorized"), "{kind}");
    }
}

#[tokio::test(start_paused = true)]
async fn where_roles_are_enforced_a_caller_may_do_what_they_say_and_no_more() {
    let server = server();
    let client = admin(&server);
    let create = PostParams::default();
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let role = json!({"metadata": {"name": "looker"}, "rules": [
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["one"],
         "verbs": ["get"]}]});
    roles.create(&create, &serde_json::from_value(role).unwrap()).await.unwrap();
    let subject = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "ada"}]);
    let reference = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": "looker"});
    let everywhere: Api<ClusterRoleBinding> = Api::all(client.clone());
    let binding = json!({"metadata": {"name": "ada"}, "subjects": subject, "roleRef": reference});
    server.enforce_roles();
    let ada = server.client(Identity::service_account("default", "ada"));
    let nodes: Api<Node> = Api::all(ada.clone());
    let all = ListParams::default();
    assert_eq!(refused(nodes.list(&all).await), code(403, "Forbidden"), "no role yet");
    everywhere.create(&create, &serde_json::from_value(binding).unwrap()).await.unwrap();
    nodes.list(&all).await.unwrap();
    assert_eq!(refused(nodes.get("a").await), code(403, "Forbidden"), "another verb");
    let secrets: Api<Secret> = Api::default_namespaced(ada);
    assert_eq!(refused(secrets.get("one").await), code(404, "NotFound"));
    assert_eq!(refused(secrets.get("two").await), code(403, "Forbidden"), "another name");
}

const RBAC: &str = "rbac.authorization.k8s.io";

fn cluster_role(name: &str, rules: &Value) -> ClusterRole {
    serde_json::from_value(json!({"metadata": {"name": name}, "rules": rules})).unwrap()
}

/// Gives a cluster-wide role to an account.
fn cluster_binding(name: &str, role: &str, account: &str) -> ClusterRoleBinding {
    serde_json::from_value(json!({"metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": account}]}))
    .unwrap()
}

/// A server that enforces roles, with three of them: `small` and `great`, and one for ada, who
/// writes roles and bindings, may list Nodes, and may do `more`.
async fn where_ada_writes_roles(more: &Value) -> (ApiServer, Client) {
    let server = server();
    let client = admin(&server);
    let roles: Api<ClusterRole> = Api::all(client.clone());
    let mut own = json!([
        {"apiGroups": [RBAC], "verbs": ["create", "update", "patch"],
         "resources": ["clusterroles", "clusterrolebindings", "roles", "rolebindings"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list", "get"]},
        {"nonResourceURLs": ["/healthz/*"], "verbs": ["get"]}]);
    own.as_array_mut().unwrap().push(more.clone());
    let small = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]},
        {"nonResourceURLs": ["/healthz/etcd"], "verbs": ["get"]}]);
    let great = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let create = PostParams::default();
    for (name, rules) in [("writer", &own), ("small", &small), ("great", &great)] {
        roles.create(&create, &cluster_role(name, rules)).await.unwrap();
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client);
    bindings.create(&create, &cluster_binding("ada", "writer", "ada")).await.unwrap();
    server.enforce_roles();
    let ada = server.client(Identity::service_account("default", "ada"));
    (server, ada)
}

#[tokio::test(start_paused = true)]
async fn nobody_gives_a_role_away_without_its_rights_or_the_right_to_bind_it() {
    let bind = json!({"apiGroups": [RBAC], "resources": ["clusterroles"],
        "resourceNames": ["great"], "verbs": ["bind"]});
    for (more, may) in [(json!({"verbs": []}), false), (bind, true)] {
        let (_server, ada) = where_ada_writes_roles(&more).await;
        let bindings: Api<ClusterRoleBinding> = Api::all(ada.clone());
        let create = PostParams::default();
        bindings.create(&create, &cluster_binding("one", "small", "bob")).await.unwrap();
        let great = bindings.create(&create, &cluster_binding("two", "great", "bob")).await;
        assert_eq!(great.is_ok(), may, "{great:?}");
        let none = bindings.create(&create, &cluster_binding("no", "none", "bob")).await;
        assert_eq!(refused(none), code(404, "NotFound"), "nobody knows what it would give");
        // In a namespace, too, a role of the whole cluster is bound by that right.
        let here: Api<RoleBinding> = Api::default_namespaced(ada);
        let mut binding = serde_json::to_value(cluster_binding("two", "great", "bob")).unwrap();
        binding["kind"] = json!("RoleBinding");
        let great = here.create(&create, &serde_json::from_value(binding).unwrap()).await;
        assert_eq!(great.is_ok(), may, "{great:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn nobody_joins_a_binding_that_he_could_not_have_made() {
    let (server, ada) = where_ada_writes_roles(&json!({"verbs": []})).await;
    let all: Api<ClusterRoleBinding> = Api::all(admin(&server));
    all.create(&PostParams::default(), &cluster_binding("one", "great", "bob")).await.unwrap();
    let bindings: Api<ClusterRoleBinding> = Api::all(ada);
    let params = PatchParams::default();
    let subject = json!([{"kind": "ServiceAccount", "namespace": "default", "name": "ada"}]);
    let joined = bindings.patch("one", &params, &merge(&json!({"subjects": subject}))).await;
    assert_eq!(refused(joined), code(403, "Forbidden"));
    let applied = Patch::Apply(cluster_binding("one", "great", "ada"));
    let joined = bindings.patch("one", &PatchParams::apply("ada").force(), &applied).await;
    assert_eq!(refused(joined), code(403, "Forbidden"));
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    assert_eq!(
        refused(bindings.patch("one", &params, &merge(&label)).await),
        code(403, "Forbidden")
    );
    let hold = json!({"metadata": {"finalizers": ["test.dev/held"]}});
    bindings.patch("one", &params, &merge(&hold)).await.unwrap();
    let other = json!({"roleRef": {"name": "small"}});
    assert_eq!(refused(all.patch("one", &params, &merge(&other)).await), code(422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn nobody_writes_more_into_a_role_than_he_may_unless_he_may_escalate() {
    let escalate = json!({"apiGroups": [RBAC], "resources": ["clusterroles", "roles"],
        "verbs": ["escalate"]});
    let nodes = |verbs: Value| json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": verbs}]);
    for (more, may) in [(json!({"verbs": []}), false), (escalate, true)] {
        let (_server, ada) = where_ada_writes_roles(&more).await;
        let roles: Api<ClusterRole> = Api::all(ada.clone());
        let create = PostParams::default();
        roles.create(&create, &cluster_role("a", &nodes(json!(["list"])))).await.unwrap();
        for (name, rules) in [
            ("verb", nodes(json!(["list", "delete"]))),
            ("all", nodes(json!(["*"]))),
            ("path", json!([{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}])),
        ] {
            let made = roles.create(&create, &cluster_role(name, &rules)).await;
            assert_eq!(made.is_ok(), may, "{made:?}");
        }
        let grown = json!({"rules": nodes(json!(["delete"]))});
        let grown = roles.patch("a", &PatchParams::default(), &merge(&grown)).await;
        assert_eq!(grown.is_ok(), may, "{grown:?}");
        // What holds everywhere holds here.
        let here: Api<Role> = Api::default_namespaced(ada);
        let named = json!([{"apiGroups": [""], "resources": ["nodes"], "verbs": ["get"],
            "resourceNames": ["a"]}]);
        let role = json!({"metadata": {"name": "a"}, "rules": named});
        here.create(&create, &serde_json::from_value(role).unwrap()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn somebody_who_asks_what_it_may_do_is_told() {
    let server = server();
    server.enforce_roles();
    let may = async |who: Identity, verb: &str, resource: &str| {
        let reviews: Api<SelfSubjectAccessReview> = Api::all(server.client(who));
        let question = json!({"spec": {"resourceAttributes":
            {"verb": verb, "resource": resource, "namespace": "default"}}});
        let question = serde_json::from_value(question).unwrap();
        let answer = reviews.create(&PostParams::default(), &question).await.unwrap();
        answer.status.unwrap().allowed
    };
    assert!(may(Identity::admin(), "delete", "pods").await);
    assert!(!may(Identity::user("ada"), "delete", "pods").await);
}
