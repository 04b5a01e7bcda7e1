//! Tokens of service accounts.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use secrecy::SecretString;
use serde_json::json;

use crate::fixture::{admin, code, refused, server};

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
