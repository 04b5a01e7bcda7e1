//! Answers byte for byte, and calls that cross each other.

use std::collections::BTreeSet;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_mac::KeyPair;
use applecart_sim::scaleway::{Accepts, HostSpec, Operation, Rule, Scaleway, Settings, Verdict};
use bytes::Bytes;
use http::{Method, Request, Response};
use jiff::Timestamp;
use secrecy::ExposeSecret;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tower::ServiceExt;

fn scaleway() -> Scaleway {
    at("2026-03-05T08:25:47.808092Z", Settings::new(1))
}

fn at(now: &str, settings: Settings) -> Scaleway {
    let now: Timestamp = now.parse().unwrap();
    Scaleway::new(settings, Clock::new(move || now))
}

const SERVERS: &str = "/apple-silicon/v1alpha1/zones/fr-par-1/servers";
const BATCH: &str = "/apple-silicon/v1alpha1/zones/fr-par-1/batch-create-servers";
const KEYS: &str = "/iam/v1alpha1/ssh-keys";

/// The status and the JSON of an answer to a POST of this body.
async fn post(scaleway: &Scaleway, path: &str, body: &Value) -> (u16, Value) {
    let answer = ask(scaleway, Method::POST, path, &body.to_string()).await;
    (answer.status().as_u16(), serde_json::from_slice(answer.body()).unwrap_or_default())
}

/// The body of an order, with these fields on top.
fn order(more: &Value) -> Value {
    let mut body = json!({"name": "box", "type": "M4-M", "project_id": Settings::new(1).project});
    for (name, value) in more.as_object().unwrap() {
        body[name] = value.clone();
    }
    body
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

#[tokio::test]
async fn times_have_six_digits_even_when_they_are_zero() {
    let scaleway = at("2026-03-05T08:25:47Z", Settings::new(1));
    let (_, server) = post(&scaleway, SERVERS, &order(&json!({}))).await;
    for (field, time) in [
        ("created_at", "2026-03-05T08:25:47.000000Z"),
        ("updated_at", "2026-03-05T08:25:47.000000Z"),
        ("deletable_at", "2026-03-06T08:25:47.000000Z"),
    ] {
        assert_eq!(server[field], time);
    }
    let key = KeyPair::from_seed([1; 32], "").unwrap().public;
    let key = json!({"name": "x", "public_key": key, "project_id": Settings::new(1).project});
    assert_eq!(post(&scaleway, KEYS, &key).await.1["created_at"], "2026-03-05T08:25:47.000000Z");
}

#[tokio::test]
async fn a_field_that_is_missing_or_wrong_is_named_with_its_reason() {
    let scaleway = scaleway();
    let project = Settings::new(1).project;
    let batch = json!({"type": "M4-M", "project_id": project, "requests": [{"name": "a"}, {}]});
    for (path, body, argument, reason) in [
        (SERVERS, json!({"name": "box", "project_id": project}), "type", "required"),
        (SERVERS, json!({"name": "box", "type": "M4-M"}), "project_id", "required"),
        (SERVERS, order(&json!({"enable_vpc": "maybe"})), "enable_vpc", "format"),
        (SERVERS, order(&json!({"type": "M9"})), "type", "constraint"),
        (SERVERS, json!([]), "body", "format"),
        (BATCH, batch, "requests[1].name", "required"),
        (KEYS, json!({"name": "x", "project_id": project}), "public_key", "required"),
        (KEYS, json!({"name": 7, "project_id": project}), "name", "format"),
    ] {
        let (status, answer) = post(&scaleway, path, &body).await;
        let detail = &answer["details"][0];
        assert_eq!((status, &answer["type"]), (400, &json!("invalid_arguments")), "{body}");
        assert_eq!(detail["argument_name"], argument, "{body}");
        assert_eq!(detail["reason"], reason, "{body}");
    }
}

#[tokio::test]
async fn an_order_is_honoured_in_all_it_asks_for_or_refused() {
    let scaleway = scaleway();
    let gigabit = 1_000_000_000_u64;
    let (_, plain) = post(&scaleway, SERVERS, &order(&json!({}))).await;
    assert_eq!(plain["kext_enabled"], false);
    assert_eq!(plain["public_bandwidth_bps"], gigabit);
    assert_eq!(plain["commitment"]["type"], "duration_24h");
    let wanted = json!({"enable_kext": true, "public_bandwidth_bps": 3 * gigabit,
                        "commitment_type": "renewed_monthly"});
    let (_, made) = post(&scaleway, SERVERS, &order(&wanted)).await;
    assert_eq!(made["kext_enabled"], true);
    assert_eq!(made["public_bandwidth_bps"], 3 * gigabit);
    assert_eq!(made["commitment"]["type"], "renewed_monthly");
    assert_eq!(made["deletable_at"], "2026-04-05T08:25:47.808092Z");
    let asahi = json!({"type": "M2-L-ASAHI", "commitment_type": "duration_24h"});
    let (_, linux) = post(&scaleway, SERVERS, &order(&asahi)).await;
    assert_eq!(linux["deletable_at"], linux["created_at"], "no floor for Linux");
    for (refused, argument) in [
        (json!({"commitment_type": "none"}), "commitment_type"),
        (json!({"commitment_type": "for ever"}), "commitment_type"),
        (json!({"public_bandwidth_bps": 11 * gigabit}), "public_bandwidth_bps"),
        (json!({"type": "M2-L", "public_bandwidth_bps": 2 * gigabit}), "public_bandwidth_bps"),
    ] {
        let (status, answer) = post(&scaleway, SERVERS, &order(&refused)).await;
        assert_eq!((status, &answer["details"][0]["argument_name"]), (400, &argument.into()));
    }
    let runner = json!({"applied_runner_configurations": {"runner_configuration_ids": ["x"]}});
    assert_eq!(post(&scaleway, SERVERS, &order(&runner)).await.0, 404);
    assert_eq!(scaleway.hosts().len(), 3, "what was refused was not made");
    let path = format!("{SERVERS}/{}", made["id"].as_str().unwrap());
    scaleway.advance(Duration::from_hours(1));
    let wipe = format!("{path}/reinstall");
    assert_eq!(post(&scaleway, &wipe, &json!({})).await.1["kext_enabled"], false);
    scaleway.advance(Duration::from_hours(1));
    let wiped = post(&scaleway, &wipe, &json!({"enable_kext": true})).await.1;
    assert_eq!(wiped["kext_enabled"], true);
    let change = |bps: u64| json!({"public_bandwidth_bps": bps}).to_string();
    let faster = ask(&scaleway, Method::PATCH, &path, &change(10 * gigabit)).await;
    assert_eq!(faster.status(), 200);
    assert_eq!(ask(&scaleway, Method::PATCH, &path, &change(7)).await.status(), 400);
}

#[tokio::test]
async fn names_are_unique_in_a_batch_and_in_a_project_where_they_are_unique_at_all() {
    let batch =
        |names: [&str; 2]| order(&json!({"requests": names.map(|name| json!({"name": name}))}));
    for (accepts, expected) in [(Accepts::Yes, 200), (Accepts::No, 400)] {
        let mut settings = Settings::new(1);
        settings.unsure.duplicate_names = accepts;
        let scaleway = at("2026-03-05T08:25:47Z", settings);
        let project = Some("another-project".parse().unwrap());
        scaleway.order_host(&HostSpec { project, ..HostSpec::named("theirs") });
        assert_eq!(post(&scaleway, BATCH, &batch(["one", "one"])).await.0, expected);
        assert_eq!(post(&scaleway, BATCH, &batch(["two", "theirs"])).await.0, 200);
        assert_eq!(scaleway.hosts().len(), if expected == 200 { 5 } else { 3 });
    }
}

#[tokio::test]
async fn a_kind_of_server_has_the_fields_that_the_service_documents_and_no_others() {
    let path = "/apple-silicon/v1alpha1/zones/fr-par-1/server-type/M4-M";
    let answer = ask(&scaleway(), Method::GET, path, "").await;
    let kind: Value = serde_json::from_slice(answer.body()).unwrap();
    let fields: Vec<&String> = kind.as_object().unwrap().keys().collect();
    let documented = [
        "cpu",
        "default_os",
        "disk",
        "gpu",
        "memory",
        "minimum_lease_duration",
        "name",
        "network",
        "npu",
        "stock",
    ];
    assert_eq!(fields, documented);
}

#[tokio::test]
async fn a_fingerprint_tells_the_length_of_the_very_key() {
    // As `ssh-keygen -E md5 -lf` prints them.
    for (key, fingerprint) in [
        (
            concat!(
                "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAABAQDnNY0WU+0xkChvjFcc5WNU",
                "b46cjITj5tjAwA17Z/jQR1T5",
                "MS5DyVvzgNfCGwMtU/c4StYQXC6Z8o65ZGUGFHgINDeAEt5dbjHeFgd7QfX6",
                "nxfqzrJ4ldbcRR3qEQAhb7FK",
                "ll9NQhEr9oK/pVR3YVt6JAaeGYhNWofHI1B6Bkhq3B5T0Vp1JDwMrWgU9Y+R",
                "FwwuVyPoNTRskFM6PPOwC6ST",
                "XQv9JKdZotSpgAqrjbXc/nJs/PpfeSjSYi7IB7Gg/rucvmMb4vTryOjGboIR",
                "CQaywpxs2kVUkNWQki+2ZpL+",
                "evXFNazyC8LEmK0XFdLPrFJm37AeYBIr6xC9yGoVWMVp",
            ),
            "2048 MD5:19:e7:aa:e4:3a:38:b0:e6:e4:d4:77:6d:91:6c:ce:ef (ssh-rsa)",
        ),
        (
            concat!(
                "ecdsa-sha2-nistp384 AAAAE2VjZHNhLXNoYTItbmlzdHAzODQAAAAIbmlz",
                "dHAzODQAAABhBMi4VpKpFBTJ",
                "CSvaAk4gTKu+Ge16qJ6puVDZj/LMJl1x122HhjUxml0AQY7HsNbdG+x1iiq1",
                "awYfij4G2JGW0DH0c1ATWUwK",
                "QaI4Ee6X9yYNXVcTNPEySDgXbZ+gw3QyzA==",
            ),
            "384 MD5:38:57:85:ca:f6:ea:b9:c8:cb:0a:66:e2:c9:06:d8:cb (ecdsa-sha2-nistp384)",
        ),
    ] {
        let project = Settings::new(1).project;
        let body = json!({"name": "x", "public_key": key, "project_id": project});
        assert_eq!(post(&scaleway(), KEYS, &body).await.1["fingerprint"], fingerprint);
    }
}
