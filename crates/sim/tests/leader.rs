//! Leader election against the simulated API server, under a paused clock.

use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_operator::leader::Election;
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

const LEASE: &str = "leader";

fn server() -> (ApiServer, Clock) {
    let start = Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let clock = Clock::new(move || epoch + start.elapsed());
    (ApiServer::new(clock.clone(), 1, Registry::new(vec![]).unwrap()), clock)
}

fn candidate(server: &ApiServer, clock: &Clock, name: &str) -> Election {
    let client = server.client(Identity::admin());
    Election::new(client, "default", LEASE, name.to_owned(), clock.clone())
}

/// Since when the candidate leads, if it wins within so many seconds.
async fn wins(candidate: &mut Election, seconds: u64) -> Option<Instant> {
    timeout(Duration::from_secs(seconds), candidate.win(|_| {})).await.ok()
}

#[tokio::test(start_paused = true)]
async fn the_first_leads_and_the_second_stands_by_while_it_renews() {
    // S8
    let (server, clock) = server();
    let (mut first, mut second) =
        (candidate(&server, &clock, "first"), candidate(&server, &clock, "second"));
    let since = wins(&mut first, 1).await.expect("nobody else leads");
    tokio::select! {
        why = first.keep(since) => panic!("the first lost it: {why}"),
        won = wins(&mut second, 120) => assert!(won.is_none(), "two lead at once"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_fell_silent_is_followed_only_after_its_lease_ran_out() {
    let (server, clock) = server();
    let (mut first, mut second) =
        (candidate(&server, &clock, "first"), candidate(&server, &clock, "second"));
    let since = wins(&mut first, 1).await.expect("nobody else leads");
    assert!(wins(&mut second, 120).await.is_some());
    assert!(since.elapsed() >= Duration::from_secs(15), "after {:?}", since.elapsed());
    let why = first.keep(Instant::now()).await;
    assert!(why.contains("second"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn who_resigns_is_followed_at_once_and_who_comes_back_goes_on() {
    let (server, clock) = server();
    let (mut first, mut second) =
        (candidate(&server, &clock, "first"), candidate(&server, &clock, "second"));
    assert!(wins(&mut first, 1).await.is_some());
    // Killed and started again under the same name: it need not wait for itself.
    assert!(wins(&mut candidate(&server, &clock, "first"), 1).await.is_some());
    first.resign().await;
    assert!(wins(&mut second, 3).await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_api_server_hangs_ends_before_another_may_begin() {
    // S8
    let (server, clock) = server();
    let since = wins(&mut candidate(&server, &clock, "first"), 1).await.expect("nobody else leads");
    // The same candidate, but no call of its is ever answered.
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = kube::Client::new(silent, "default");
    let mut hung = Election::new(client, "default", LEASE, "first".to_owned(), clock);
    let why = hung.keep(since).await;
    assert!(why.contains("could not be renewed"), "{why}");
    assert!(since.elapsed() <= Duration::from_secs(10), "after {:?}", since.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_pulse_tells_looks_from_answers_and_renewals() {
    let (server, clock) = server();
    let mut first = candidate(&server, &clock, "first");
    let pulse = first.pulse();
    assert!(pulse.beat().looked.is_none());
    let since = wins(&mut first, 1).await.expect("nobody else leads");
    assert!(timeout(Duration::from_mins(1), first.keep(since)).await.is_err());
    let beat = pulse.beat();
    for (what, when) in
        [("look", beat.looked), ("answer", beat.answered), ("renewal", beat.renewed)]
    {
        let age = when.map(|at| at.elapsed());
        assert!(age.is_some_and(|age| age < Duration::from_secs(5)), "{what}: {age:?}");
    }
    // No call of this one is ever answered: it still looks, and nothing else moves.
    let silent = tower::service_fn(|_: http::Request<kube::client::Body>| {
        std::future::pending::<Result<http::Response<kube::client::Body>, std::io::Error>>()
    });
    let client = kube::Client::new(silent, "default");
    let mut hung = Election::new(client, "default", LEASE, "second".to_owned(), clock);
    let pulse = hung.pulse();
    assert!(wins(&mut hung, 300).await.is_none());
    let beat = pulse.beat();
    assert!(beat.looked.is_some_and(|at| at.elapsed() < Duration::from_secs(20)), "{beat:?}");
    assert!(beat.answered.is_none() && beat.renewed.is_none(), "{beat:?}");
}
