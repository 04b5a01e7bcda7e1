//! Answers byte for byte, and calls that cross each other.

use std::collections::BTreeSet;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_mac::KeyPair;
use applecart_sim::scaleway::{HostSpec, Operation, Rule, Scaleway, Settings, Verdict};
use bytes::Bytes;
use http::{Method, Request, Response};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde_json::Value;
use tokio::task::JoinSet;
use tower::ServiceExt;

fn scaleway() -> Scaleway {
    let now: Timestamp = "2026-03-05T08:25:47.808092Z".parse().unwrap();
    Scaleway::new(Settings::new(1), Clock::new(move || now))
}

async fn ask(scaleway: &Scaleway, method: Method, path: &str, body: &str) -> Response<Bytes> {
    let key = Settings::new(1).secret_key;
    let request = Request::builder()
        .method(method)
        .uri(format!("http://sim{path}"))
        .header("x-auth-token", key.expose_secret())
        .header("content-type", "application/json")
        .body(Bytes::from(body.to_owned()))
        .unwrap();
    scaleway.service().oneshot(request).await.unwrap()
}

#[tokio::test]
async fn the_licensing_floor_and_a_deleted_server_answer_as_recorded() {
    let scaleway = scaleway();
    let young = HostSpec { ordered_ago: Duration::ZERO, ..HostSpec::named("young") };
    let id = scaleway.order_host(&young);
    let path = format!("/apple-silicon/v1alpha1/zones/fr-par-1/servers/{id}");
    let early = ask(&scaleway, Method::DELETE, &path, "").await;
    assert_eq!(early.status(), 412);
    let recorded = concat!(
        r#"{"help_message":"this server cannot be deleted before "#,
        r#"2026-03-06 08:25:47.808092 +0000 UTC","#,
        r#""message":"precondition is not respected","#,
        r#""precondition":"unknown_precondition","type":"precondition_failed"}"#
    );
    assert_eq!(String::from_utf8_lossy(early.body()), recorded);
    scaleway.delete_host(&id);
    let gone = ask(&scaleway, Method::GET, &path, "").await;
    assert_eq!(gone.status(), 403);
    let body: Value = serde_json::from_slice(gone.body()).unwrap();
    assert_eq!(body["type"], "permissions_denied");
    assert_eq!(body["message"], "insufficient permissions");
    assert_eq!(body["details"], serde_json::json!([{"action": "read", "resource": "server"}]));
}

#[tokio::test(flavor = "multi_thread")]
async fn delayed_calls_that_cross_each_other_all_happen_once() {
    const CALLS: u8 = 60;
    let scaleway = scaleway();
    let delay = Verdict::Delay(Duration::from_millis(5));
    scaleway.add_rule(Rule::next(Operation::CreateSshKey, delay).times(CALLS.into()));
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let scaleway = scaleway.clone();
        calls.spawn(async move {
            let project = Settings::new(1).project;
            let public_key = KeyPair::from_seed([number; 32], "").unwrap().public;
            let body = serde_json::json!({
                "name": number.to_string(), "public_key": public_key, "project_id": project,
            });
            let path = "/iam/v1alpha1/ssh-keys";
            let made = ask(&scaleway, Method::POST, path, &body.to_string()).await;
            assert_eq!(made.status(), 200, "{:?}", made.body());
            let request = made.headers()["x-request-id"].to_str().unwrap().to_owned();
            let key: Value = serde_json::from_slice(made.body()).unwrap();
            (key["id"].as_str().unwrap().to_owned(), request)
        });
    }
    let made = calls.join_all().await;
    let ids: BTreeSet<&String> = made.iter().map(|(id, _)| id).collect();
    let requests: BTreeSet<&String> = made.iter().map(|(_, request)| request).collect();
    assert_eq!((ids.len(), requests.len()), (CALLS.into(), CALLS.into()));
}
