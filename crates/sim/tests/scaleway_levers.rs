//! The levers over HTTP, as a person with a terminal pulls them.

#[path = "support/scaleway_key.rs"]
mod scaleway_key;
#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use applecart_scaleway::{ErrorKind, ServerStatus};
use applecart_sim::scaleway::{
    Answer, HostSpec, Operation, Scaleway, Settings, levers, server_types,
};
use bytes::Bytes;
use http::Request;
use scaleway_key::KEY;
use scaleway_world::{world, zone};
use secrecy::ExposeSecret;
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
async fn a_lever_that_is_not_there_or_is_pulled_wrongly_names_the_field_and_the_remedy() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let (host, nobody) = (format!("/sim/hosts/{id}"), "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e");
    let unknown = format!("/sim/hosts/{nobody}");
    let rule =
        |nth: u64, server: &str| json!({"effect": "lose_answer", "nth": nth, "server": server});
    for (method, path, body, words) in [
        ("POST", "/sim/nonsense", json!({}), ["POST /sim/nonsense", "GET    /sim/state"]),
        ("POST", "/sim/hosts", json!({"nmae": "typo"}), ["`nmae`", "`name`"]),
        ("POST", "/sim/hosts", json!({}), ["missing", "`name`"]),
        ("POST", "/sim/hosts", json!({"name": "box", "type": "M9"}), ["type: ", "M4-XL"]),
        ("POST", "/sim/hosts", json!({"name": "x", "os": "dos"}), ["os: ", "macos-tahoe-26.0"]),
        ("POST", "/sim/hosts", json!({"name": "x", "os": "fedora-asahi-remix"}), ["os: ", "M2-L"]),
        ("POST", "/sim/hosts", json!({"name": "x", "zone": "paris"}), ["zone: ", "fr-par-1"]),
        (
            "POST",
            "/sim/hosts",
            json!({"name": "x", "ordered_seconds_ago": u64::MAX}),
            ["ordered_seconds_ago: ", "longer"],
        ),
        ("PATCH", "/sim/hosts/nobody", json!({}), ["nobody", "UUID"]),
        ("PATCH", &unknown, json!({}), [nobody, "/sim/state"]),
        ("PATCH", &host, json!({"status": "levitating"}), ["status: ", "reinstalling"]),
        ("PATCH", &host, json!({"colour": "red"}), ["`colour`", "`status`"]),
        ("DELETE", &unknown, json!(null), [nobody, "/sim/state"]),
        ("DELETE", "/sim/os/dos", json!(null), ["dos", "macos-tahoe-26.0"]),
        (
            "POST",
            "/sim/stock",
            json!({"zone": "fr-par-1", "type": "M9", "left": 0}),
            ["type: ", "M4-XL"],
        ),
        (
            "POST",
            "/sim/stock",
            json!({"zone": "fr-par-2", "type": "M4-M", "left": 0}),
            ["zone: ", "fr-par-1"],
        ),
        ("POST", "/sim/rules", json!({"effect": {"error": "x"}}), ["error: ", "out_of_stock"]),
        ("POST", "/sim/rules", json!({"effect": {"html": 100}}), ["status: ", "599"]),
        ("POST", "/sim/rules", json!({"effect": {"delay": -1}}), ["delay: ", "negative"]),
        ("POST", "/sim/rules", json!({"effect": "explode"}), ["effect", "lose_answer"]),
        (
            "POST",
            "/sim/rules",
            json!({"effect": {"answer": {"status": 200, "bdoy": ""}}}),
            ["`bdoy`", "`body`"],
        ),
        (
            "POST",
            "/sim/rules",
            json!({"operation": "levitate", "effect": "lose_answer"}),
            ["operation: ", "list_servers"],
        ),
        ("POST", "/sim/rules", rule(0, id.as_str()), ["nth: ", "1"]),
        ("POST", "/sim/rules", rule(1, nobody), ["server: ", "/sim/state"]),
        ("POST", "/sim/clock", json!({"advance_seconds": -1}), ["advance_seconds: ", "u64"]),
        (
            "POST",
            "/sim/clock",
            json!({"advance_seconds": u64::MAX}),
            ["advance_seconds: ", "at most"],
        ),
    ] {
        let (status, text) = pull(&scaleway, method, path, &body).await;
        assert_eq!(status, 400, "{method} {path} {body}: {text}");
        assert!(words.iter().all(|word| text.contains(word)), "{method} {path} {body}: {text}");
    }
    assert_eq!(scaleway.hosts().len(), 1);
    assert!(scaleway.rules().is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_help_has_every_word_that_a_lever_takes() {
    let scaleway = world(Settings::new(1));
    let (status, help) = pull(&scaleway, "GET", "/sim/", &json!(null)).await;
    assert_eq!((status, &help), (200, &levers()));
    for operation in Operation::ALL {
        assert!(help.contains(operation.label()), "{operation}");
    }
    for error in Answer::ERRORS {
        assert!(help.contains(error) && Answer::error(error).is_some(), "{error}");
    }
    assert!(server_types().all(|kind| help.contains(kind)));
}

#[tokio::test(start_paused = true)]
async fn the_state_has_all_that_there_is_but_for_passwords() {
    let scaleway = world(Settings::new(1));
    let host = HostSpec { project: Some("theirs".parse().unwrap()), ..HostSpec::named("box") };
    let id = scaleway.order_host(&host);
    let key = scaleway.client().create_ssh_key("fleet", KEY).await.unwrap();
    let text = pull(&scaleway, "GET", "/sim/state", &json!(null)).await.1;
    let password = scaleway.mac_secrets(&id).unwrap().password;
    assert!(!text.contains(password.expose_secret()));
    let state: Value = serde_json::from_str(&text).unwrap();
    let host = &state["hosts"][0];
    assert_eq!(
        (&host["project_id"], &host["os"]),
        (&json!("theirs"), &json!("macos-sequoia-15.6"))
    );
    assert_eq!((&host["delivered"], &host["wipes"]), (&json!(true), &json!(0)));
    assert_eq!(host["created_at"], "2026-03-03T08:25:47.808092Z");
    assert_eq!(host["deletable_at"], "2026-03-04T08:25:47.808092Z");
    assert_eq!((&state["ssh_keys"][0]["id"], &state["seed"]), (&json!(key.id), &json!(1)));
    assert_eq!(state["unsure"]["gone"], "permission");
    assert_eq!(state["seconds"]["floor"], 86_400.0);
    assert_eq!(state["images"][1]["name"], "macos-tahoe-26.0");
    assert!(state["quotas"].is_object() && state["calls"].is_object());
    pulled(&scaleway, "DELETE", "/sim/os/macos-tahoe-26.0", json!(null)).await;
    let state = pulled(&scaleway, "GET", "/sim/state", json!(null)).await;
    assert_eq!(state["images"].as_array().unwrap().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_not_one_json_value_is_refused_as_a_whole() {
    let scaleway = world(Settings::new(1));
    for body in [r#"{"advance_seconds": 1} garbage"#, r#"{"advance_seconds": 1"#] {
        let request = Request::builder().method("POST").uri("/sim/clock");
        let request = request.body(Bytes::from(body)).unwrap();
        let answer = scaleway.service().oneshot(request).await.unwrap();
        let text = String::from_utf8(answer.body().to_vec()).unwrap();
        assert_eq!(answer.status().as_u16(), 400, "{body}: {text}");
        assert!(text.contains("the body:"), "{text}");
    }
}
