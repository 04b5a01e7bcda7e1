//! How the client repeats, waits and limits, under virtual time.

#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_scaleway::{
    CallReport, Client, ErrorKind, Limit, Operation as Called, Retry, Transport, TransportError,
};
use applecart_sim::scaleway::{Answer, HostSpec, Operation, Rule, Scaleway, Settings, Verdict};
use bytes::Bytes;
use futures::future::join_all;
use http::{Request, Response};
use scaleway_world::{world, zone};
use tokio::time::{Instant, sleep};
use tower::ServiceExt;

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

#[tokio::test(start_paused = true)]
async fn a_write_is_sent_once_whatever_comes_back() {
    for verdict in failures() {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("box"));
        let client = scaleway.client();
        for operation in [Operation::UpdateServer, Operation::RebootServer, Operation::DeleteServer]
        {
            scaleway.add_rule(Rule::next(operation, verdict.clone()));
        }
        client.rename(&zone(), &id, "new").await.unwrap_err();
        client.reboot(&zone(), &id).await.unwrap_err();
        // Any success is one to a deletion: it has no body to be broken.
        let _ = client.delete(&zone(), &id).await;
        for operation in ["update_server", "reboot_server", "delete_server"] {
            assert_eq!(scaleway.calls()[operation], 1, "{verdict:?}");
        }
    }
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

#[tokio::test(start_paused = true)]
async fn one_limit_holds_for_all_clients_that_share_it() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let most = Arc::new(AtomicUsize::new(0));
    let mut config = scaleway.config();
    config.limit = Limit::new(3);
    let service = slow(&scaleway, &most);
    let clients =
        [Client::new(service.clone(), config.clone()), Client::new(service, config.clone())];
    let zone = zone();
    let reads = (0..20).map(|number| clients[number % 2].server(&zone, &id));
    assert!(join_all(reads).await.iter().all(Result::is_ok));
    assert_eq!(most.load(Ordering::SeqCst), 3);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_gets_no_turn_soon_is_not_sent_late() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("box"));
    let mut config = scaleway.config();
    config.limit = Limit::new(1);
    let client = Client::new(scaleway.service(), config);
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
    let mut config = scaleway.config();
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
        let mut config = scaleway.config();
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
