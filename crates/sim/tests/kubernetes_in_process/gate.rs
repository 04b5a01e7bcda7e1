//! What a sweep can do to a call.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_sim::kubernetes::{ApiServer, Call, Gate, Identity, Refusal, Setup, Verdict};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Api, PostParams};

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
