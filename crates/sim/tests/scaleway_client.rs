//! How the client repeats, waits and limits, under virtual time.

#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_scaleway::{
    CONCURRENT_CALLS, CallReport, Client, Config, Error, ErrorKind, LIST_TIMEOUT, Limit,
    Operation as Called, Order, Retry, Transport, TransportError,
};
use applecart_sim::scaleway::{
    Answer, HostSpec, Operation, Rule, Scaleway, Settings, Verdict, limit,
};
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use scaleway_world::{world, zone};
use secrecy::ExposeSecret;
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

fn config(scaleway: &Scaleway) -> Config {
    scaleway.config(limit(CONCURRENT_CALLS))
}

fn failures() -> Vec<Verdict> {
    vec![
        Verdict::FailBefore(Answer::html(502)),
        Verdict::FailBefore(Answer::empty(500)),
        Verdict::FailBefore(Answer::html(200)),
        Verdict::FailBefore(Answer::html(429)),
        Verdict::Unreachable,
        Verdict::LoseBefore,
        Verdict::HangBefore,
    ]
}

#[tokio::test(start_paused = true)]
async fn a_read_outlives_three_failures_and_gives_up_after_the_fourth() {
    for verdict in failures() {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("box"));
        scaleway.add_rule(Rule::next(Operation::GetServer, verdict.clone()).times(3));
        scaleway.client().server(&zone(), &id).await.unwrap();
        assert_eq!(scaleway.calls()["get_server"], 4, "{verdict:?}");
        scaleway.add_rule(Rule::next(Operation::GetServer, verdict.clone()).times(4));
        let error = scaleway.client().server(&zone(), &id).await.unwrap_err();
        assert!(error.class() <= Retry::BackOff, "{verdict:?} {error}");
        let attempts = scaleway.calls()["get_server"] - 4;
        assert_eq!(attempts, 4, "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_get_better_by_repeating_is_not_repeated() {
    for kind in ["permissions_denied", "not_found", "denied_authentication", "locked"] {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("box"));
        let answer = Verdict::FailBefore(Answer::error(kind).unwrap());
        scaleway.add_rule(Rule::next(Operation::GetServer, answer));
        scaleway.client().server(&zone(), &id).await.unwrap_err();
        assert_eq!(scaleway.calls()["get_server"], 1, "{kind}");
    }
}

/// Every write that there is, once, and what it ends with.
async fn every_write(client: &Client, id: &ServerId) -> Vec<(Called, Option<ErrorKind>)> {
    fn ended<T>(called: Called, result: Result<T, Error>) -> (Called, Option<ErrorKind>) {
        (called, result.err().map(|error| error.kind))
    }
    let (zone, key) = (zone(), "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e".parse().unwrap());
    let order = Order { name: "box".into(), server_type: "M4-M".into(), os: None };
    vec![
        ended(Called::CreateServer, client.create(&zone, &order).await),
        ended(Called::RenameServer, client.rename(&zone, id, "new").await),
        ended(Called::ScheduleDeletion, client.schedule_deletion(&zone, id).await),
        ended(Called::RebootServer, client.reboot(&zone, id).await),
        ended(Called::ReinstallServer, client.reinstall(&zone, id, None).await),
        ended(Called::DeleteServer, client.delete(&zone, id).await),
        ended(Called::CreateSshKey, client.create_ssh_key("fleet", "ssh-ed25519 AAAA").await),
        ended(Called::DeleteSshKey, client.delete_ssh_key(&key).await),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_once_whatever_comes_back() {
    for verdict in failures() {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("box"));
        scaleway.add_rule(Rule::any(verdict.clone()).for_ever());
        let sent: Arc<Mutex<Vec<Called>>> = Arc::default();
        let (mut config, reports) = (config(&scaleway), sent.clone());
        config.on_call =
            Some(Arc::new(move |report| reports.lock().unwrap().push(report.operation)));
        let ended = every_write(&Client::new(scaleway.service(), config), &id).await;
        assert!(ended.iter().all(|(_, error)| error.is_some()), "{verdict:?} {ended:?}");
        let called: Vec<Called> = ended.iter().map(|(called, _)| *called).collect();
        assert_eq!(*sent.lock().unwrap(), called, "{verdict:?}");
        let arrived: u64 = scaleway.calls().values().sum();
        assert_eq!(arrived, ended.len() as u64, "{verdict:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_success_that_is_not_the_documented_one_leaves_a_write_in_doubt() {
    for status in [200, 201, 202, 204, 206] {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("box"));
        // A body that every one of them would take.
        let mut body: serde_json::Value =
            serde_json::from_str(&server_json(&scaleway, &id).await).unwrap();
        body["public_key"] = "ssh-ed25519 AAAA".into();
        let answer = Verdict::FailBefore(Answer::json(status, &body));
        scaleway.add_rule(Rule::any(answer).for_ever());
        for (called, error) in every_write(&scaleway.client(), &id).await {
            let removes = matches!(called, Called::DeleteServer | Called::DeleteSshKey);
            let documented = if removes { 204 } else { 200 };
            let expected = (status != documented).then_some(ErrorKind::Unknown);
            assert_eq!(error, expected, "{called} {status}");
        }
        let read = scaleway.client().server(&zone(), &id).await;
        assert_eq!(read.err().map(|error| error.kind), (status != 200).then_some(ErrorKind::Other));
    }
}

/// One server as it is on the wire.
async fn server_json(scaleway: &Scaleway, id: &ServerId) -> String {
    let request = Request::get(format!("/apple-silicon/v1alpha1/zones/fr-par-1/servers/{id}"))
        .header("x-auth-token", Settings::new(1).secret_key.expose_secret())
        .body(Bytes::new())
        .unwrap();
    let answer = scaleway.service().oneshot(request).await.unwrap();
    String::from_utf8(answer.body().to_vec()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn nobody_calls_before_a_rate_limit_is_reset() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let client = scaleway.client();
    let limited = Verdict::FailBefore(Answer::too_many_requests(9));
    scaleway.add_rule(Rule::next(Operation::GetServer, limited));
    let started = Instant::now();
    let zone = zone();
    let (read, write) = tokio::join!(client.server(&zone, &id), async {
        sleep(Duration::from_secs(1)).await;
        client.rename(&zone, &id, "new").await
    });
    read.unwrap();
    let waited = started.elapsed();
    assert!((9..11).contains(&waited.as_secs()), "{waited:?}");
    let refused = write.unwrap_err();
    assert!(matches!(refused.kind, ErrorKind::RateLimited { reset: Some(_) }), "{refused}");
    assert!(!scaleway.calls().contains_key("update_server"), "a write is not even sent");
    client.rename(&zone, &id, "new").await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reset_that_is_too_far_away_is_the_callers_to_wait_for() {
    let scaleway = world(Settings::new(1));
    let limited = Verdict::FailBefore(Answer::too_many_requests(120));
    scaleway.add_rule(Rule::next(Operation::ListServers, limited));
    let started = Instant::now();
    let error = scaleway.client().list_servers(&zone()).await.unwrap_err();
    assert!(matches!(error.kind, ErrorKind::RateLimited { reset: Some(_) }));
    assert_eq!(started.elapsed(), Duration::ZERO);
}

/// Counts how many requests are under way at once, each for a second.
fn slow(scaleway: &Scaleway, most: &Arc<AtomicUsize>) -> Transport {
    let (service, most) = (scaleway.service(), most.clone());
    let now = Arc::new(AtomicUsize::new(0));
    Transport::new(tower::service_fn(move |request: Request<Bytes>| {
        let (service, most, now) = (service.clone(), most.clone(), now.clone());
        async move {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            sleep(Duration::from_secs(1)).await;
            now.fetch_sub(1, Ordering::SeqCst);
            service.oneshot(request).await as Result<Response<Bytes>, TransportError>
        }
    }))
}

/// The most requests at once of two clients, each made by itself with one of these limits.
async fn most_at_once(limits: [Limit; 2]) -> usize {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let most = Arc::new(AtomicUsize::new(0));
    let service = slow(&scaleway, &most);
    let clients = limits.map(|limit| Client::new(service.clone(), scaleway.config(limit)));
    let zone = zone();
    let reads = (0..40).map(|number| clients[number % 2].server(&zone, &id));
    assert!(join_all(reads).await.iter().all(Result::is_ok));
    most.load(Ordering::SeqCst)
}

#[tokio::test(start_paused = true)]
async fn a_process_has_one_limit_whatever_number_of_clients_it_makes() {
    assert_eq!(most_at_once([Limit::of_process(), Limit::of_process()]).await, CONCURRENT_CALLS);
}

#[tokio::test(start_paused = true)]
async fn simulated_processes_do_not_feel_each_other() {
    assert_eq!(most_at_once([limit(3), limit(4)]).await, 7);
    let shared = limit(3);
    assert_eq!(most_at_once([shared.clone(), shared]).await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_list_that_does_not_come_to_its_end_in_time_is_an_error() {
    let scaleway = world(Settings { max_page_size: 1, ..Settings::new(1) });
    for number in 0..40 {
        scaleway.order_host(&HostSpec::named(format!("box-{number}")));
    }
    let slow = Verdict::Delay(Duration::from_secs(5));
    scaleway.add_rule(Rule::next(Operation::ListServers, slow).for_ever());
    let started = Instant::now();
    let error = scaleway.client().list_servers(&zone()).await.unwrap_err();
    assert_eq!((&error.kind, error.class()), (&ErrorKind::Other, Retry::BackOff), "{error}");
    assert_eq!(started.elapsed(), LIST_TIMEOUT);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_gets_no_turn_soon_is_not_sent_late() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let client = Client::new(scaleway.service(), scaleway.config(limit(1)));
    scaleway.add_rule(Rule::next(Operation::GetServer, Verdict::HangBefore));
    let started = Instant::now();
    let zone = zone();
    tokio::select! {
        biased;
        _ = client.server(&zone, &id) => panic!("the read hangs"),
        written = client.rename(&zone, &id, "new") => {
            assert_eq!(written.unwrap_err().kind, ErrorKind::Unreachable);
        }
    }
    assert_eq!(started.elapsed(), Duration::from_secs(2));
    assert!(!scaleway.calls().contains_key("update_server"));
}

#[tokio::test(start_paused = true)]
async fn the_metrics_hear_of_every_request() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let heard: Arc<Mutex<Vec<CallReport>>> = Arc::default();
    let mut config = config(&scaleway);
    let listener = heard.clone();
    config.on_call = Some(Arc::new(move |report| listener.lock().unwrap().push(*report)));
    let client = Client::new(scaleway.service(), config);
    scaleway.add_rule(Rule::next(Operation::GetServer, Verdict::HangBefore));
    client.server(&zone(), &id).await.unwrap();
    client.reboot(&zone(), &id).await.unwrap();
    client.reboot(&zone(), &id).await.unwrap_err();
    let heard: Vec<_> = heard
        .lock()
        .unwrap()
        .iter()
        .map(|report| (report.operation, report.outcome, report.latency.as_secs()))
        .collect();
    assert_eq!(
        heard,
        [
            (Called::GetServer, "unknown", 10),
            (Called::GetServer, "ok", 0),
            (Called::RebootServer, "ok", 0),
            (Called::RebootServer, "transient_state", 0),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_waits_the_same_and_another_does_not() {
    let mut waits = Vec::new();
    for seed in [1, 1, 2] {
        let scaleway = world(Settings::new(1));
        let mut config = config(&scaleway);
        config.seed = seed;
        scaleway.add_rule(Rule::next(Operation::ListServers, Verdict::LoseBefore).times(3));
        let started = Instant::now();
        Client::new(scaleway.service(), config).list_servers(&zone()).await.unwrap();
        waits.push(started.elapsed());
    }
    assert_eq!(waits[0], waits[1]);
    assert_ne!(waits[0], waits[2]);
    assert!(waits.iter().all(|wait| (1_750..=3_500).contains(&wait.as_millis())), "{waits:?}");
}
