//! The levers over HTTP, as a person with a terminal pulls them.

#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use applecart_scaleway::{ErrorKind, ServerStatus};
use applecart_sim::scaleway::{LEVERS, Scaleway, Settings};
use bytes::Bytes;
use http::Request;
use scaleway_world::{world, zone};
use serde_json::{Value, json};
use tower::ServiceExt;

/// Pulls a lever: the status, and the answer as text.
async fn pull(scaleway: &Scaleway, method: &str, path: &str, body: &Value) -> (u16, String) {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(Bytes::from(body.to_string())).unwrap();
    let answer = scaleway.service().oneshot(request).await.unwrap();
    (answer.status().as_u16(), String::from_utf8(answer.body().to_vec()).unwrap())
}

async fn pulled(scaleway: &Scaleway, method: &str, path: &str, body: Value) -> Value {
    let (status, text) = pull(scaleway, method, path, &body).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

#[tokio::test(start_paused = true)]
async fn hosts_come_change_and_go_behind_the_apis_back() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let host = json!({"name": "pool-1", "type": "M4-M", "os": "macos-tahoe-26.0"});
    let made = pulled(&scaleway, "POST", "/sim/hosts", host).await;
    let id = made["id"].as_str().unwrap().parse().unwrap();
    let seen = client.server(&zone(), &id).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.server_type.as_str()), ("pool-1", "M4-M"));
    assert_eq!(seen.os.unwrap().family, "Tahoe");
    let path = format!("/sim/hosts/{id}");
    let change = json!({"name": "by hand", "status": "error"});
    pulled(&scaleway, "PATCH", &path, change).await;
    let seen = client.server(&zone(), &id).await.unwrap();
    assert_eq!((seen.name.as_str(), seen.status), ("by hand", ServerStatus::Error));
    pulled(&scaleway, "DELETE", &path, json!(null)).await;
    assert!(client.list_servers(&zone()).await.unwrap().is_empty());
    let state = pulled(&scaleway, "GET", "/sim/state", json!(null)).await;
    assert_eq!(state["deleted"], json!([id]));
}

#[tokio::test(start_paused = true)]
async fn a_rule_meets_the_nth_matching_call_and_no_other() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let mut ids = Vec::new();
    for name in ["one", "two"] {
        let made = pulled(&scaleway, "POST", "/sim/hosts", json!({"name": name})).await;
        ids.push(made["id"].as_str().unwrap().parse().unwrap());
    }
    let rule = json!({"operation": "update_server", "server": ids[0], "nth": 2, "times": 2,
                      "effect": {"error": "locked"}});
    pulled(&scaleway, "POST", "/sim/rules", rule).await;
    let mut refused = Vec::new();
    for number in 0..4 {
        client.rename(&zone(), &ids[1], "two").await.unwrap();
        let renamed = client.rename(&zone(), &ids[0], &format!("one-{number}")).await;
        refused.push(renamed.is_err_and(|error| error.kind == ErrorKind::Locked));
    }
    assert_eq!(refused, [false, true, true, false]);
    let for_ever = json!({"effect": {"html": 418}, "times": 0});
    pulled(&scaleway, "POST", "/sim/rules", for_ever).await;
    for _ in 0..3 {
        client.list_servers(&zone()).await.unwrap_err();
    }
    let state = pulled(&scaleway, "GET", "/sim/state", json!(null)).await;
    assert_eq!(
        (&state["rules"][0]["seen"], &state["calls"]["list_servers"]),
        (&json!(3), &json!(3))
    );
    pulled(&scaleway, "DELETE", "/sim/rules", json!(null)).await;
    client.list_servers(&zone()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_clock_moves_on_demand() {
    let scaleway = world(Settings::new(1));
    let made = pulled(&scaleway, "POST", "/sim/hosts", json!({"name": "box"})).await;
    let id = made["id"].as_str().unwrap().parse().unwrap();
    scaleway.client().reboot(&zone(), &id).await.unwrap();
    pulled(&scaleway, "POST", "/sim/clock", json!({"advance_seconds": 104})).await;
    assert_eq!(scaleway.host(&id).unwrap().status, ServerStatus::Rebooting);
    pulled(&scaleway, "POST", "/sim/clock", json!({"advance_seconds": 1})).await;
    assert_eq!(scaleway.host(&id).unwrap().status, ServerStatus::Ready);
}

#[tokio::test(start_paused = true)]
async fn a_lever_that_is_not_there_or_is_pulled_wrongly_says_so() {
    let scaleway = world(Settings::new(1));
    for (method, path, body) in [
        ("POST", "/sim/nonsense", json!({})),
        ("POST", "/sim/hosts", json!({"nmae": "typo"})),
        ("POST", "/sim/hosts", json!({"name": "box", "type": "M9"})),
        ("PATCH", "/sim/hosts/nobody", json!({})),
        ("DELETE", "/sim/hosts/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e", json!(null)),
        ("POST", "/sim/rules", json!({"effect": {"error": "never_heard_of"}})),
        ("POST", "/sim/rules", json!({"effect": {"html": 100}})),
        ("POST", "/sim/rules", json!({"effect": {"delay": -1}})),
        ("POST", "/sim/rules", json!({"operation": "levitate", "effect": "lose_answer"})),
        ("POST", "/sim/clock", json!({"advance_seconds": -1})),
    ] {
        let (status, text) = pull(&scaleway, method, path, &body).await;
        assert_eq!(status, 400, "{method} {path} {body}: {text}");
    }
    assert_eq!(pull(&scaleway, "GET", "/sim/", &json!(null)).await, (200, LEVERS.to_owned()));
}
