//! A provider that only observes, beside a fleet that somebody else runs.

use std::time::Duration;

use applecart_sim::scaleway::Operation;
use applecart_sim::world::{World, WorldSettings};
use kube::api::DeleteParams;

use crate::stage::{Stage, clock, minutes};

fn settings() -> WorldSettings {
    WorldSettings {
        hosts: 4,
        machines: 3,
        runners: 0,
        speed: 1.0,
        seed: 1,
        clock: clock(),
        authority: None,
        api_url: "https://kubernetes.default.svc".to_owned(),
        ssh_latency: Duration::from_millis(100),
        foreign: true,
        jobs: false,
        roles: &[],
        providers: 1,
        deployments: false,
        faults: None,
    }
}

async fn reach(what: &str, level: impl AsyncFn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_hours(2), async {
        while !level().await {
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    waited.await.unwrap_or_else(|_| panic!("{what} did not come about"));
}

/// Every change that anybody asked of Kubernetes and of Scaleway so far.
fn writes(world: &World) -> u64 {
    let requests = world.api().requests();
    let kubernetes = requests.iter().filter(|((verb, _), _)| verb.mutates());
    let calls = world.scaleway().calls();
    let changes = Operation::ALL.iter().filter(|operation| !operation.is_read());
    let scaleway = changes.filter_map(|operation| calls.get(operation.label()));
    kubernetes.map(|(_, count)| count).chain(scaleway).sum()
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_only_observes_writes_nothing_and_tells_each_effect_once() {
    let world = World::new(settings());
    world.apply().await.expect("applied");
    let ready = async || {
        let hosts = world.view().await.hosts;
        hosts.iter().filter(|host| host.step == "ready").count() == 3
    };
    tokio::select! {
        () = world.run() => unreachable!("a world has no end"),
        () = reach("three Ready Machines", ready) => {}
    }
    // Take-over day: one Machine is being deleted, one host is nobody's, all statuses are old.
    let machines: kube::Api<applecart_api::machine::ScalewayAppleSiliconMachine> =
        kube::Api::namespaced(world.client(), "default");
    let names: Vec<String> =
        world.view().await.hosts.into_iter().map(|host| host.machine).collect();
    let doomed = names.iter().find(|name| !name.is_empty()).expect("a Machine");
    machines.delete(doomed, &DeleteParams::default()).await.expect("deleted");
    let stray = world.scaleway().hosts().into_iter().find(|host| host.name.contains("pool"));
    world.scaleway().rename_host(&stray.expect("one is left").id, "macs-stray");
    let stage = Stage {
        api: world.api().clone(),
        scaleway: world.scaleway().clone(),
        observe_only: true,
        ..Stage::new(&[])
    };
    let before = writes(&world);
    stage.run(stage.after(minutes(90))).await;
    assert_eq!(writes(&world), before, "{:?}", world.api().requests());
    let told = |controller: &str, action: &str| {
        let labels = format!(r#"{{controller="{controller}",action="{action}"}}"#);
        stage.count(&format!("applecart_effects_withheld_total{labels}"))
    };
    // What a deletion begins with, and what a sweep does: each told once in an hour and a half.
    assert_eq!(told("machine", "cordon the Node"), 1);
    assert_eq!(told("sweep", "take_lease"), 1);
}
