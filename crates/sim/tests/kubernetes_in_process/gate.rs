//! What a sweep can do to a call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_sim::kubernetes::{
    ApiServer, Call, Delivery, EVENT_LIFE, Gate, Identity, Refusal, Setup, Verb, Verdict,
};
use futures::StreamExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};

use crate::fixture::{clock, code, config_map, refused, registry};

/// A gate that gives each mutating call the next verdict of a list, and notes it.
#[derive(Default)]
struct Script {
    verdicts: Mutex<Vec<Verdict>>,
    seen: Mutex<Vec<String>>,
}

impl Gate for Script {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        Box::pin(async move {
            if !call.verb.mutates() {
                return Verdict::Pass;
            }
            self.seen.lock().unwrap().push(format!("{}: {call}", call.who.user));
            self.verdicts.lock().unwrap().pop().unwrap_or(Verdict::Pass)
        })
    }
}

#[tokio::test(start_paused = true)]
async fn the_gate_can_refuse_a_call_and_lose_it_before_or_after() {
    let unavailable = Refusal::new(503, "ServiceUnavailable", "not now");
    let verdicts = vec![Verdict::HangAfter, Verdict::HangBefore, Verdict::FailBefore(unavailable)];
    let gate = Arc::new(Script { verdicts: Mutex::new(verdicts), ..Script::default() });
    let server = ApiServer::set_up(Setup {
        clock: clock(),
        seed: 1,
        registry: registry(),
        event_life: EVENT_LIFE,
        gate: Some(gate.clone()),
        authority: None,
    });
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let create = PostParams::default();
    let refusal = maps.create(&create, &config_map("a")).await;
    assert_eq!(refused(refusal), code(503, "ServiceUnavailable"));
    let patience = Duration::from_secs(30);
    let map = config_map("a");
    assert!(tokio::time::timeout(patience, maps.create(&create, &map)).await.is_err());
    assert_eq!(refused(maps.get("a").await), code(404, "NotFound"));
    assert!(tokio::time::timeout(patience, maps.create(&create, &map)).await.is_err());
    maps.get("a").await.unwrap();
    let seen = gate.seen.lock().unwrap();
    assert_eq!(*seen, ["ada: create configmaps default/a"; 3]);
}

/// A gate that gives each call of one user the next verdict, and each event the next delivery.
#[derive(Default)]
struct Weather {
    verdicts: Mutex<Vec<Verdict>>,
    deliveries: Mutex<Vec<Delivery>>,
    answers: Mutex<Vec<u16>>,
    away: AtomicBool,
}

impl Gate for Weather {
    fn pass<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Verdict> {
        let ada = call.who.user == "ada" && call.verb != Verb::Watch;
        let next = ada.then(|| self.verdicts.lock().unwrap().pop()).flatten();
        Box::pin(std::future::ready(next.unwrap_or(Verdict::Pass)))
    }

    fn answered(&self, call: &Call, code: u16) {
        if call.who.user == "ada" {
            self.answers.lock().unwrap().push(code);
        }
    }

    fn is_away(&self, _: &Call) -> bool {
        self.away.load(Ordering::Relaxed)
    }

    fn deliver(&self, _: &Call, _: &str, _: &serde_json::Value) -> Delivery {
        self.deliveries.lock().unwrap().pop().unwrap_or(Delivery::Pass)
    }
}

fn under(gate: &Arc<Weather>) -> ApiServer {
    let (clock, registry) = (clock(), registry());
    let gate = Some(gate.clone() as Arc<dyn Gate>);
    let event_life = EVENT_LIFE;
    ApiServer::set_up(Setup { clock, seed: 1, registry, event_life, gate, authority: None })
}

#[tokio::test(start_paused = true)]
async fn a_stale_read_misses_what_happened_within_its_age_and_nothing_else() {
    let gate = Arc::new(Weather::default());
    let server = under(&gate);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let create = PostParams::default();
    maps.create(&create, &config_map("old")).await.unwrap();
    tokio::time::sleep(Duration::from_mins(1)).await;
    maps.create(&create, &config_map("new")).await.unwrap();
    let stale = || Verdict::Stale(Duration::from_secs(30));
    *gate.verdicts.lock().unwrap() = vec![stale(), stale()];
    let list = maps.list(&ListParams::default()).await.unwrap();
    let names: Vec<String> = list.items.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names, ["old"]);
    assert_eq!(refused(maps.get("new").await), code(404, "NotFound"));
    maps.get("new").await.expect("it was only the reads that were stale");
}

#[tokio::test(start_paused = true)]
async fn a_late_write_is_answered_at_once_and_happens_when_it_is_due() {
    let gate = Arc::new(Weather::default());
    let server = under(&gate);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let late = async || {
        *gate.verdicts.lock().unwrap() = vec![Verdict::Late(Duration::from_secs(10))];
        let late = maps.create(&PostParams::default(), &config_map("a")).await;
        assert_eq!(refused(late), code(504, "Timeout"));
    };
    late().await;
    tokio::time::sleep(Duration::from_secs(9)).await;
    assert_eq!(refused(maps.get("a").await), code(404, "NotFound"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    maps.get("a").await.unwrap();
    // The gate hears what it came to, once, though that is a refusal.
    late().await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    maps.get("a").await.unwrap();
    assert_eq!(*gate.answers.lock().unwrap(), [404, 201, 200, 409, 200]);
}

#[tokio::test(start_paused = true)]
async fn what_lands_while_the_server_is_away_is_lost() {
    let gate = Arc::new(Weather::default());
    let server = under(&gate);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    *gate.verdicts.lock().unwrap() = vec![Verdict::Late(Duration::from_secs(10))];
    let late = maps.create(&PostParams::default(), &config_map("a")).await;
    assert_eq!(refused(late), code(504, "Timeout"));
    gate.away.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(refused(maps.get("a").await), code(404, "NotFound"));
    assert_eq!(*gate.answers.lock().unwrap(), [503, 404]);
    // So is what a watch holds back.
    *gate.deliveries.lock().unwrap() = vec![Delivery::Coalesce(Duration::from_secs(10))];
    let watch = maps.watch(&WatchParams::default().timeout(100), "1").await.unwrap();
    maps.create(&PostParams::default(), &config_map("b")).await.unwrap();
    assert_eq!(watch.count().await, 0);
}

/// What a watch tells while three maps are made a second apart, the first of them with `delivery`.
async fn told(delivery: Delivery) -> Vec<String> {
    let gate = Arc::new(Weather::default());
    gate.deliveries.lock().unwrap().push(delivery);
    let server = under(&gate);
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let params = WatchParams::default().timeout(100).disable_bookmarks();
    let watch = maps.watch(&params, "1").await.unwrap();
    let write = async {
        for name in ["a", "b", "c"] {
            maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        maps.delete("b", &DeleteParams::default()).await.unwrap();
        std::future::pending::<()>().await;
    };
    let watched = watch.map(|event| match event.unwrap() {
        WatchEvent::Added(map) => format!("+{}", map.name_any()),
        WatchEvent::Deleted(map) => format!("-{}", map.name_any()),
        WatchEvent::Error(status) => status.code.to_string(),
        other => format!("{other:?}"),
    });
    tokio::select! {
        told = watched.collect() => told,
        () = write => unreachable!("it waits for ever"),
    }
}

#[tokio::test(start_paused = true)]
async fn events_can_be_dropped_doubled_coalesced_and_cut_off() {
    for (delivery, expected) in [
        (Delivery::Pass, &["+a", "+b", "+c", "-b"][..]),
        (Delivery::Drop, &["+b", "+c", "-b", "410"]),
        (Delivery::Twice, &["+a", "+a", "+b", "+c", "-b"]),
        (Delivery::Coalesce(Duration::from_secs(30)), &["+a", "+c"]),
        (Delivery::Cut, &[]),
        (Delivery::Gone, &["410"]),
    ] {
        assert_eq!(told(delivery).await, expected, "{delivery:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_held_back_for_longer_than_history_lasts_is_told_that_it_is_gone() {
    let gate = Arc::new(Weather::default());
    gate.deliveries.lock().unwrap().push(Delivery::Coalesce(Duration::from_secs(30)));
    let server = under(&gate);
    server.keep_history(Duration::from_secs(1));
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client(Identity::user("ada")));
    let params = WatchParams::default().timeout(100).disable_bookmarks();
    let watch = maps.watch(&params, "1").await.unwrap();
    let write = async {
        for name in ["a", "b", "c"] {
            maps.create(&PostParams::default(), &config_map(name)).await.unwrap();
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    };
    let (told, ()) = tokio::join!(watch.collect::<Vec<_>>(), write);
    let gone = |event: &WatchEvent<_>| matches!(event, WatchEvent::Error(told) if told.code == 410);
    assert!(matches!(&told[..], [Ok(event)] if gone(event)), "{told:?}");
}
