//! Every shape that an error has on the wire, through the real HTTP client.

#[path = "support/scaleway_http.rs"]
mod scaleway_http;

use std::sync::LazyLock;
use std::time::Duration;

use applecart_api::ids::{ServerId, Zone};
use applecart_scaleway::{
    CONCURRENT_CALLS, Client, Config, Error, ErrorKind as Kind, Operation as Called, Profile,
    Retry, ServerStatus, Transport, http_service,
};
use applecart_sim::scaleway::{Answer, HostSpec, Operation, Rule, Settings, Verdict, limit};
use futures::future::join_all;
use jiff::Timestamp;
use scaleway_http::{NOW, Served};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

fn zone() -> Zone {
    "fr-par-1".parse().unwrap()
}

/// One connection pool for all clients of these tests: certificates take a while to read.
fn transport() -> Transport {
    static TRANSPORT: LazyLock<Transport> = LazyLock::new(|| http_service().unwrap());
    TRANSPORT.clone()
}

/// A configuration with a limit of its own.
fn config(served: &Served) -> Config {
    let Settings { secret_key, project, .. } = Settings::new(1);
    let profile = Profile::new(&served.url, secret_key, project).unwrap();
    Config::new(profile, served.scaleway.clock(), limit(CONCURRENT_CALLS))
}

fn client(served: &Served) -> Client {
    Client::new(transport(), config(served))
}

fn typed(kind: &str) -> Answer {
    Answer::error(kind).unwrap()
}

fn body(status: u16, body: &Value) -> Answer {
    Answer::json(status, body)
}

fn raw(status: u16, content_type: &str, body: &str) -> Answer {
    Answer::raw(status, content_type, body)
}

fn retry_after(value: &str, mut answer: Answer) -> Answer {
    answer.retry_after = Some(value.into());
    answer
}

fn floor(help: &str) -> Answer {
    let message = "precondition is not respected";
    body(412, &json!({"type": "precondition_failed", "message": message, "help_message": help}))
}

fn precondition(at: Option<&str>) -> Kind {
    Kind::Precondition { deletable_at: at.map(|at| at.parse::<Timestamp>().unwrap()) }
}

fn limited(seconds: Option<u64>) -> Kind {
    Kind::RateLimited { reset: seconds.map(|seconds| NOW + Duration::from_secs(seconds)) }
}

/// The answer, its meaning, and what to do about it.
type Row = (Answer, Kind, Retry);

fn by_type() -> Vec<Row> {
    use Retry::{BackOff, Never, WaitForChange};
    let before = "this server cannot be deleted before";
    vec![
        (typed("not_found"), Kind::NotFound, Never),
        (
            body(404, &json!({"type": "unknown_resource", "message": "\"x\" not found"})),
            Kind::NotFound,
            Never,
        ),
        (typed("permissions_denied"), Kind::Permission, WaitForChange),
        (
            body(403, &json!({"type": "permissions_denied", "details": null})),
            Kind::Permission,
            WaitForChange,
        ),
        (
            typed("precondition_failed"),
            precondition(Some("2026-03-06T08:25:47.808092Z")),
            WaitForChange,
        ),
        (
            floor(&format!("{before} 2026-03-06 08:25:47 +0000 UTC")),
            precondition(Some("2026-03-06T08:25:47Z")),
            WaitForChange,
        ),
        (floor("the server is still in use"), precondition(None), WaitForChange),
        (typed("locked"), Kind::Locked, WaitForChange),
        (typed("out_of_stock"), Kind::OutOfStock, WaitForChange),
        (typed("quotas_exceeded"), Kind::Quota, WaitForChange),
        (
            body(
                403,
                &json!({"type": "invalid_request_error", "message": "Quota exceeded for this"}),
            ),
            Kind::Quota,
            WaitForChange,
        ),
        (typed("denied_authentication"), Kind::Authentication, WaitForChange),
        (typed("too_many_requests"), limited(Some(2)), BackOff),
        (
            body(
                429,
                &json!({"type": "too_many_requests", "reset_at": "2026-03-05T08:26:00.808092Z"}),
            ),
            limited(Some(13)),
            BackOff,
        ),
        (
            body(429, &json!({"type": "too_many_requests", "reset_seconds": 1e9})),
            limited(Some(300)),
            BackOff,
        ),
        (
            retry_after("7", body(429, &json!({"type": "too_many_requests"}))),
            limited(Some(7)),
            BackOff,
        ),
        (typed("invalid_arguments"), Kind::InvalidArgument, Never),
        (
            body(400, &json!({"type": "invalid_request_error", "fields": {"name": ["bad"]}})),
            Kind::InvalidArgument,
            Never,
        ),
        (typed("already_exists"), Kind::AlreadyExists, Never),
        (typed("resource_expired"), Kind::Expired, Never),
        (typed("expired"), Kind::Expired, Never),
        (typed("conflict"), Kind::Other, BackOff),
        // The type decides, whatever the status and whatever else is odd about the body.
        (
            body(400, &json!({"type": "not_found", "message": 7, "details": "?"})),
            Kind::NotFound,
            Never,
        ),
    ]
}

fn by_status() -> Vec<Row> {
    use Retry::{BackOff, Never, WaitForChange};
    let mut rows = Vec::new();
    for (status, kind, class) in [
        (400, Kind::InvalidArgument, Never),
        (401, Kind::Authentication, WaitForChange),
        (403, Kind::Permission, WaitForChange),
        (404, Kind::NotFound, Never),
        (408, Kind::Other, BackOff),
        (409, Kind::Other, BackOff),
        (410, Kind::Expired, Never),
        (412, precondition(None), WaitForChange), // P15
        (418, Kind::Other, Never),
        (423, Kind::Locked, WaitForChange),
        (429, limited(None), BackOff),
        // A write that a gateway gave up on may have happened.
        (500, Kind::Unknown, BackOff),
        (502, Kind::Unknown, BackOff),
        (503, Kind::Unknown, BackOff),
        (504, Kind::Unknown, BackOff),
    ] {
        for answer in [
            Answer::html(status),
            Answer::empty(status),
            raw(status, "application/json", ""),
            raw(status, "application/json", "{\"type\": \"not_fou"),
            raw(status, "application/json", "{\"type\": \"never_heard_of\"}"),
            raw(status, "application/json", "[\"not_found\"]"),
        ] {
            rows.push((answer, kind.clone(), class));
        }
    }
    let date = retry_after("Thu, 05 Mar 2026 08:26:07 GMT", Answer::html(429));
    let reset = Some("2026-03-05T08:26:07Z".parse().unwrap());
    rows.push((date, Kind::RateLimited { reset }, BackOff));
    rows.push((retry_after("soon", Answer::html(429)), limited(None), BackOff));
    rows.push((Answer::html(302), Kind::Other, Never));
    rows
}

fn broken_successes() -> Vec<Row> {
    let answers = [
        Answer::html(200),
        Answer::empty(200),
        raw(200, "application/json", "{\"id\":"),
        raw(200, "application/json", "{}"),
        Answer::html(203),
        body(202, &json!({})),
        Answer::empty(204),
    ];
    answers.into_iter().map(|answer| (answer, Kind::Unknown, Retry::BackOff)).collect()
}

#[tokio::test]
async fn every_shape_of_error_has_its_meaning_and_its_class() {
    let served = Served::new(Settings::new(1)).await;
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    for (answer, kind, class) in [by_type(), by_status(), broken_successes()].concat() {
        let rule = Rule::next(Operation::UpdateServer, Verdict::FailBefore(answer.clone()));
        served.scaleway.add_rule(rule);
        let error = client(&served).rename(&zone(), &id, "new").await.unwrap_err();
        assert_eq!(error.kind, kind, "{answer:?}");
        assert_eq!(error.class(), class, "{answer:?}");
        assert_eq!(error.operation, Called::RenameServer);
        assert_eq!(error.status.unwrap().as_u16(), answer.status, "{answer:?}");
        let request_id = error.request_id.as_deref().unwrap();
        assert!(error.to_string().contains(request_id), "{error}");
        assert!(error.to_string().starts_with("rename server: "), "{error}");
    }
    assert_eq!(served.scaleway.host(&id).unwrap().name, "box");
}

/// What a read makes of an answer that it always gets, and how often it asks.
async fn read(answer: Answer) -> (Kind, Retry, u64) {
    let served = Served::new(Settings::new(1)).await;
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    let rule = Rule::next(Operation::GetServer, Verdict::FailBefore(answer)).for_ever();
    served.scaleway.add_rule(rule);
    let error = client(&served).server(&zone(), &id).await.unwrap_err();
    (error.kind.clone(), error.class(), served.scaleway.calls()["get_server"])
}

#[tokio::test]
async fn a_read_is_repeated_while_that_may_help_and_no_longer() {
    use Retry::{BackOff, Never, WaitForChange};
    let rows = [
        // Nothing hangs on a read: what is in doubt for a write is a plain failure here.
        (Answer::html(500), Kind::Other, BackOff, 4),
        (Answer::empty(502), Kind::Other, BackOff, 4),
        (raw(503, "application/json", ""), Kind::Other, BackOff, 4),
        (Answer::html(504), Kind::Other, BackOff, 4),
        (Answer::html(408), Kind::Other, BackOff, 4),
        (Answer::html(200), Kind::Other, BackOff, 4),
        (Answer::empty(204), Kind::Other, BackOff, 4),
        (body(202, &json!({})), Kind::Other, BackOff, 4),
        (Answer::html(429), limited(None), BackOff, 4),
        (
            body(429, &json!({"type": "too_many_requests", "reset_seconds": 0})),
            limited(Some(0)),
            BackOff,
            4,
        ),
        (typed("conflict"), Kind::Other, BackOff, 4),
        (typed("permissions_denied"), Kind::Permission, WaitForChange, 1),
        (typed("denied_authentication"), Kind::Authentication, WaitForChange, 1),
        (
            typed("transient_state"),
            Kind::TransientState { state: ServerStatus::Starting },
            WaitForChange,
            1,
        ),
        (typed("locked"), Kind::Locked, WaitForChange, 1),
        (typed("out_of_stock"), Kind::OutOfStock, WaitForChange, 1),
        (typed("not_found"), Kind::NotFound, Never, 1),
        (typed("invalid_arguments"), Kind::InvalidArgument, Never, 1),
        (typed("expired"), Kind::Expired, Never, 1),
        (Answer::html(404), Kind::NotFound, Never, 1),
        (Answer::html(302), Kind::Other, Never, 1),
    ];
    // All at once: each waits for itself alone.
    let read = rows.iter().map(|(answer, ..)| read(answer.clone()));
    for ((answer, kind, class, calls), seen) in rows.iter().zip(join_all(read).await) {
        assert_eq!(seen, (kind.clone(), *class, *calls), "{answer:?}");
    }
}

#[tokio::test]
async fn a_transient_state_says_which() {
    let served = Served::new(Settings::new(1)).await;
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    for state in [
        ServerStatus::Starting,
        ServerStatus::Rebooting,
        ServerStatus::Updating,
        ServerStatus::Locking,
        ServerStatus::Unlocking,
        ServerStatus::Reinstalling,
        ServerStatus::Busy,
        ServerStatus::Other("levitating".into()),
    ] {
        served.scaleway.set_status(&id, state.clone());
        let error = client(&served).reboot(&zone(), &id).await.unwrap_err();
        assert_eq!(error.kind, Kind::TransientState { state });
        assert_eq!(error.class(), Retry::WaitForChange);
    }
    served.scaleway.set_status(&id, ServerStatus::Locked);
    assert_eq!(client(&served).reboot(&zone(), &id).await.unwrap_err().kind, Kind::Locked);
}

#[tokio::test]
async fn a_wrong_key_is_an_authentication_error_and_prints_no_key() {
    let served = Served::new(Settings::new(1)).await;
    let mut config = config(&served);
    let project = config.profile.project.clone();
    config.profile = Profile::new(&served.url, "canary-key".into(), project).unwrap();
    let printed = format!("{:?}", config.profile);
    let error = Client::new(transport(), config).list_servers(&zone()).await;
    let error = error.unwrap_err();
    assert_eq!(error.kind, Kind::Authentication);
    assert!(!format!("{error} {error:?} {printed}").contains("canary-key"));
}

#[tokio::test]
async fn a_broken_answer_that_holds_a_password_does_not_print_it() {
    let served = Served::new(Settings::new(1)).await;
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    let body = "{\"sudo_password\": \"canary-password\", \"delivered\": \"canary-password\"}";
    let answer = raw(200, "application/json", body);
    served.scaleway.add_rule(Rule::next(Operation::UpdateServer, Verdict::FailBefore(answer)));
    let error = client(&served).rename(&zone(), &id, "new").await.unwrap_err();
    assert!(!format!("{error} {error:?}").contains("canary-password"));
    let host = client(&served).server(&zone(), &id).await.unwrap();
    let password = host.password.as_ref().unwrap().expose_secret();
    assert!(!format!("{host:?}").contains(password));
}

/// What a rename ends with if `verdict` becomes of it; and the name after it.
async fn renamed(verdict: Verdict) -> (Error, String) {
    let served = Served::new(Settings::new(1)).await;
    let id: ServerId = served.scaleway.order_host(&HostSpec::named("old"));
    served.scaleway.add_rule(Rule::next(Operation::UpdateServer, verdict));
    let mut config = config(&served);
    config.timeout = Duration::from_millis(200);
    let client = Client::new(transport(), config);
    let error = client.rename(&zone(), &id, "new").await.unwrap_err();
    (error, served.scaleway.host(&id).unwrap().name)
}

#[tokio::test]
async fn no_answer_is_unknown_and_an_unsent_request_is_not() {
    for (verdict, name) in [
        (Verdict::LoseBefore, "old"),
        (Verdict::LoseAfter, "new"),
        (Verdict::HangBefore, "old"),
        (Verdict::HangAfter, "new"),
    ] {
        let (error, after) = renamed(verdict.clone()).await;
        assert_eq!((&error.kind, error.class()), (&Kind::Unknown, Retry::Now), "{verdict:?}");
        assert_eq!(error.status, None);
        assert_eq!(after, name, "{verdict:?}");
    }
    let served = Served::new(Settings::new(1)).await;
    let mut config = config(&served);
    let Profile { project, .. } = config.profile.clone();
    // Nobody listens on the port that tcpmux once had.
    config.profile = Profile::new("http://127.0.0.1:1", "key".into(), project).unwrap();
    let client = Client::new(transport(), config);
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    let error = client.rename(&zone(), &id, "new").await.unwrap_err();
    assert_eq!((&error.kind, error.class()), (&Kind::Unreachable, Retry::BackOff));
}

#[tokio::test]
async fn a_deleted_server_is_permission_and_one_that_never_was_is_not_found() {
    let served = Served::new(Settings::new(1)).await;
    let id = served.scaleway.order_host(&HostSpec::named("box"));
    let client = client(&served);
    client.delete(&zone(), &id).await.unwrap();
    assert_eq!(client.server(&zone(), &id).await.unwrap_err().kind, Kind::Permission);
    let never = "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap();
    assert_eq!(client.server(&zone(), &never).await.unwrap_err().kind, Kind::NotFound);
}
