//! Single Machines in trouble: the real provider in a simulated world, under virtual time.

#[path = "machines/bad_hosts.rs"]
mod bad_hosts;
#[path = "machines/strangers.rs"]
mod strangers;

use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use applecart_api::keys::{annotation, lease};
use applecart_sim::faults::Faults;
use applecart_sim::scaleway::{Answer, HostSpec, HostView, Operation, Rule, Unsure, Verdict};
use applecart_sim::world::{FLEET, NAMESPACE, POOL_PREFIX, World, WorldSettings};
use jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams};
use serde_json::{Value, json};
use tokio::time::Instant;

const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";
const INFRASTRUCTURE: (&str, &str) = ("infrastructure.cluster.x-k8s.io", "v1alpha1");
const CLUSTER_API: (&str, &str) = ("cluster.x-k8s.io", "v1beta2");

fn world(hosts: usize, machines: u32) -> World {
    world_with(hosts, machines, None)
}

fn world_with(hosts: usize, machines: u32, faults: Option<Arc<Faults>>) -> World {
    let start = Instant::now();
    let beginning: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    World::new(WorldSettings {
        hosts,
        machines,
        runners: 0,
        speed: 1.0,
        seed: 1,
        clock: Clock::new(move || beginning + start.elapsed()),
        authority: None,
        api_url: "https://kubernetes.default.svc".to_owned(),
        ssh_latency: Duration::from_millis(100),
        foreign: true,
        jobs: false,
        roles: &[],
        providers: 1,
        deployments: false,
        faults,
    })
}

/// Runs `test` beside the world.
async fn during(world: &World, test: impl Future<Output = ()>) {
    world.apply().await.expect("what a person applies is taken");
    tokio::select! {
        biased;
        () = test => {}
        () = world.run() => unreachable!("it runs until dropped"),
    }
}

/// Waits for a level, in the world's time.
async fn until(world: &World, what: &str, level: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_hours(4), async {
        while !level() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    let told = || world.api().objects(MACHINES).iter().map(ToString::to_string).collect::<String>();
    waited.await.unwrap_or_else(|_| panic!("{what} did not come about: {}", told()));
}

fn machine(world: &World) -> Value {
    world.api().objects(MACHINES).first().map_or(Value::Null, |object| (**object).clone())
}

fn word(world: &World) -> String {
    let conditions = machine(world)["status"]["conditions"].clone();
    let ready = conditions.as_array().into_iter().flatten().find(|c| c["type"] == "Ready").cloned();
    ready.and_then(|ready| ready["reason"].as_str().map(str::to_owned)).unwrap_or_default()
}

async fn ready(world: &World) -> HostView {
    until(world, "a Mac that is ready", || word(world) == "Ready").await;
    let name = machine(world)["metadata"]["name"].clone();
    let hosts = world.scaleway().hosts();
    hosts.into_iter().find(|host| name == host.name.as_str()).expect("its host has its name")
}

async fn gone(world: &World) {
    until(world, "the Machine gone", || world.api().objects(MACHINES).is_empty()).await;
    assert!(world.api().objects("nodes").is_empty(), "its Node is left");
}

async fn patch(world: &World, of: (&str, &str), kind: &str, name: &str, change: Value) {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(of.0, of.1, kind));
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), NAMESPACE, &resource);
    let patched = api.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.expect("a patch");
}

async fn annotate(world: &World, annotations: Value) {
    let name = machine(world)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let change = json!({"metadata": {"annotations": annotations}});
    patch(world, INFRASTRUCTURE, "ScalewayAppleSiliconMachine", &name, change).await;
}

async fn scale(world: &World, replicas: u32) {
    let change = json!({"spec": {"replicas": replicas}});
    patch(world, CLUSTER_API, "MachineDeployment", FLEET, change).await;
}

fn calls(world: &World, operation: Operation) -> u64 {
    world.scaleway().calls().get(operation.label()).copied().unwrap_or_default()
}

fn host(world: &World, id: &ServerId) -> HostView {
    world.scaleway().host(id).expect("the host is there")
}

fn fact(world: &World, id: &ServerId, name: &str) -> Value {
    let leases = world.api().objects("leases.coordination.k8s.io");
    let named = |object: &&std::sync::Arc<Value>| object["metadata"]["name"] == lease::name(id);
    leases.iter().find(named).map_or(Value::Null, |l| l["metadata"]["annotations"][name].clone())
}

/// The Mac lets nobody in: each bootstrap fails at once.
fn lock_out(world: &World, id: &ServerId) {
    world.mac(id).expect("a Mac").authorize(vec![]);
}

/// So do all Macs of the pool.
fn lock_all_out(world: &World) {
    let hosts = world.scaleway().hosts();
    for host in hosts.iter().filter(|host| host.name.starts_with(POOL_PREFIX)) {
        lock_out(world, &host.id);
    }
}

/// One Machine claims a host; which.
async fn claim(world: &World) -> ServerId {
    scale(world, 1).await;
    until(world, "a claim", || machine(world)["spec"]["providerID"].is_string()).await;
    let server = machine(world)["status"]["serverID"].as_str().unwrap_or_default().to_owned();
    server.parse().expect("a server id")
}

#[tokio::test(start_paused = true)]
async fn whatever_the_service_answers_to_open_questions_a_host_is_claimed_and_comes_back_wiped() {
    // P16
    let others = Unsure::QUESTIONS.iter().flat_map(|(question, answers, _)| {
        answers.iter().skip(1).map(move |answer| (*question, *answer))
    });
    // Where nobody is told a password, no Mac can be entered: a state of its own.
    let told =
        |(question, answer): &(&str, &str)| *question != "get_credentials" || *answer == "plain";
    for (question, answer) in others.filter(told) {
        let world = world(1, 1);
        let unsure = Unsure::default().answer(question, answer).expect("an answer");
        world.scaleway().set_unsure(unsure);
        during(&world, async {
            let host = ready(&world).await;
            scale(&world, 0).await;
            gone(&world).await;
            // A busy host that takes no name gets its own from the sweep.
            let what = format!("{question}={answer}: the host in its pool");
            let is_back = || self::host(&world, &host.id).name.starts_with(POOL_PREFIX);
            until(&world, &what, is_back).await;
            assert_eq!(world.scaleway().wipes(&host.id), 1, "{question}={answer}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn inside_the_licensing_floor_a_deletion_is_scheduled_in_every_shape_of_412() {
    // P15: typed as the service sends it, and bare as a proxy does.
    for shape in [None, Some(Answer::empty(412)), Some(Answer::html(412))] {
        let world = world(0, 0);
        during(&world, async {
            let young = world.scaleway().order_host(&HostSpec {
                os: Some("macos-tahoe-26.0".to_owned()),
                ordered_ago: Duration::ZERO,
                ..HostSpec::named(format!("{POOL_PREFIX}young"))
            });
            if let Some(answer) = shape {
                let rule = Rule::next(Operation::DeleteServer, Verdict::FailBefore(answer));
                world.scaleway().add_rule(rule.for_ever());
            }
            scale(&world, 1).await;
            until(&world, "a claim", || machine(&world)["spec"]["providerID"].is_string()).await;
            annotate(&world, json!({annotation::RELEASE_POLICY: "terminate"})).await;
            scale(&world, 0).await;
            gone(&world).await;
            assert!(host(&world, &young).deletion_scheduled);
            assert_eq!(calls(&world, Operation::DeleteServer), 1);
            assert_eq!(world.scaleway().wipes(&young), 1, "what is ours on it works on");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_takes_six_calls_besides_the_list() {
    let world = world(3, 3);
    during(&world, async {
        let claimed = |object: &std::sync::Arc<Value>| object["spec"]["providerID"].is_string();
        until(&world, "three claims", || {
            world.api().objects(MACHINES).iter().filter(|object| claimed(object)).count() == 3
        })
        .await;
        let (reads, renames) = (Operation::GetServer, Operation::UpdateServer);
        // Before and after each of the two renames: all else follows from what was read then.
        assert_eq!((calls(&world, reads), calls(&world, renames)), (3 * 4, 3 * 2));
        // One list serves all who wait at a time, and one is the sweep's.
        let lists = calls(&world, Operation::ListServers);
        assert!(lists <= 2, "{lists} lists for three claims");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn outside_the_licensing_floor_a_host_is_deleted_with_its_machine() {
    let world = world(2, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        annotate(&world, json!({annotation::RELEASE_POLICY: "terminate"})).await;
        scale(&world, 0).await;
        gone(&world).await;
        assert_eq!(world.scaleway().host(&claimed.id), None);
        assert!(fact(&world, &claimed.id, lease::DELETE_REQUESTED_AT).is_string());
        assert_eq!(calls(&world, Operation::DeleteServer), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_fails_at_once_is_rebooted_once_and_exchanged_once() {
    // P20, LH21, V5; and the reboot that Scaleway refused first keeps its one-shot.
    let world = world(2, 0);
    during(&world, async {
        lock_all_out(&world);
        let refused = Verdict::FailBefore(Answer::empty(500));
        world.scaleway().add_rule(Rule::next(Operation::RebootServer, refused));
        let bad = claim(&world).await;
        let pool = world.scaleway().hosts();
        let good = pool.iter().find(|h| h.name.starts_with(POOL_PREFIX)).expect("another").clone();
        until(&world, "a reboot", || {
            machine(&world)["status"]["bootstrapRebootIssued"] == json!(true)
        })
        .await;
        assert_eq!(calls(&world, Operation::RebootServer), 2);
        assert_eq!(calls(&world, Operation::ReinstallServer), 0);
        world.mac(&good.id).expect("a Mac").authorize(world.scaleway().public_keys());
        assert_eq!(ready(&world).await.id, good.id);
        assert_eq!(calls(&world, Operation::RebootServer), 2);
        assert_eq!(calls(&world, Operation::ReinstallServer), 1);
        assert_eq!(host(&world, &bad).name, format!("{POOL_PREFIX}{bad}"));
        assert_eq!(fact(&world, &bad, lease::OWNERS_FAILED), json!("1"));
        let status = machine(&world)["status"].clone();
        assert_eq!(status["serverID"], good.id.as_str());
        assert_eq!(status["bootstrapAttempts"], Value::Null);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_that_is_granted_and_never_comes_is_asked_for_once_and_the_exchange_follows() {
    // S12, V5
    let world = world(2, 0);
    during(&world, async {
        lock_all_out(&world);
        let bad = claim(&world).await;
        let granted = json!({
            "id": bad, "name": machine(&world)["metadata"]["name"], "type": "M2-L",
            "status": "rebooting", "zone": "fr-par-1", "project_id": bad, "delivered": true,
        });
        let rule = Rule::next(Operation::RebootServer, Verdict::FailBefore(Answer::ok(&granted)));
        world.scaleway().add_rule(rule.for_ever());
        let returned = || host(&world, &bad).name == format!("{POOL_PREFIX}{bad}");
        until(&world, "the exchange", returned).await;
        assert_eq!(calls(&world, Operation::RebootServer), 1);
        assert_eq!(calls(&world, Operation::ReinstallServer), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_that_is_refused_for_good_keeps_nobody_on_a_bad_host() {
    // P20, V5: refused after the third failure, it is asked for again after each further one.
    let world = world(2, 0);
    during(&world, async {
        lock_all_out(&world);
        let refused = Verdict::FailBefore(Answer::empty(500));
        world.scaleway().add_rule(Rule::next(Operation::RebootServer, refused).for_ever());
        let bad = claim(&world).await;
        let attempts = || machine(&world)["status"]["bootstrapAttempts"].as_i64();
        until(&world, "the seventh failure", || attempts() == Some(7)).await;
        assert!(calls(&world, Operation::RebootServer) >= 5, "once after each failure at least");
        assert_eq!(machine(&world)["status"]["bootstrapRebootIssued"], Value::Null);
        let returned = || host(&world, &bad).name == format!("{POOL_PREFIX}{bad}");
        until(&world, "the exchange", returned).await;
        assert_eq!(calls(&world, Operation::ReinstallServer), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_stay_on_a_host_has_a_reboot_of_its_own() {
    // S12: the same Machine gets the only host there is again, and that fails again.
    let world = world(1, 0);
    during(&world, async {
        let hosts = world.scaleway().hosts();
        let only = hosts.iter().find(|host| host.name.starts_with(POOL_PREFIX)).expect("a host");
        lock_out(&world, &only.id);
        scale(&world, 1).await;
        let failed = || fact(&world, &only.id, lease::OWNERS_FAILED) == json!("1");
        until(&world, "the exchange", failed).await;
        assert_eq!(calls(&world, Operation::RebootServer), 1);
        let attempts = || machine(&world)["status"]["bootstrapAttempts"].as_i64();
        until(&world, "another stay", || attempts() == Some(1)).await;
        lock_out(&world, &only.id);
        until(&world, "its fourth failure", || attempts() == Some(4)).await;
        assert_eq!(calls(&world, Operation::RebootServer), 2);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_becomes_of_a_host_by_anybodys_hand_is_told_and_changes_nothing() {
    // LH16
    let world = world(1, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        let scaleway = world.scaleway();
        let before = calls(&world, Operation::UpdateServer);
        scaleway.set_status(&claimed.id, "locked".parse().expect("a status"));
        until(&world, "locked told", || word(&world) == "HostStuck").await;
        scaleway.set_status(&claimed.id, "ready".parse().expect("a status"));
        ready(&world).await;
        scaleway.rename_host(&claimed.id, "taken-by-hand");
        until(&world, "renamed told", || word(&world) == "NotOurs").await;
        scaleway.rename_host(&claimed.id, &claimed.name);
        ready(&world).await;
        scaleway.delete_host(&claimed.id);
        until(&world, "lost told", || word(&world) == "HostGone").await;
        assert!(machine(&world)["spec"]["providerID"].is_string());
        assert_eq!(machine(&world)["status"]["initialization"]["provisioned"], json!(true));
        assert_eq!(calls(&world, Operation::UpdateServer), before);
        scale(&world, 0).await;
        gone(&world).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_revoked_for_an_hour_changes_nothing() {
    // S10: a deleted host answers 403 as well.
    let world = world(1, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        let denied = Answer::error("permissions_denied").expect("a typed error");
        world.scaleway().add_rule(Rule::any(Verdict::FailBefore(denied)).for_ever());
        tokio::time::sleep(Duration::from_hours(1)).await;
        assert_eq!(word(&world), "Ready");
        let told = machine(&world)["status"]["lastReason"].clone();
        assert!(told.as_str().is_some_and(|told| told.starts_with("could not read")), "{told}");
        world.scaleway().clear_rules();
        until(&world, "well again", || machine(&world)["status"]["lastReason"] == "ready").await;
        assert_eq!(ready(&world).await.id, claimed.id);
        assert_eq!(calls(&world, Operation::ReinstallServer), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_404_that_scaleway_did_not_say_itself_is_no_proof_that_a_host_is_gone() {
    // S10: a proxy answers so, and the host lives on, unwiped and billed.
    for page in [Answer::html(404), Answer::empty(404)] {
        let world = world(1, 1);
        during(&world, async {
            let claimed = ready(&world).await;
            let rule = Rule::next(Operation::GetServer, Verdict::FailBefore(page));
            world.scaleway().add_rule(rule.for_ever());
            scale(&world, 0).await;
            tokio::time::sleep(Duration::from_mins(10)).await;
            let told = machine(&world)["status"]["lastReason"].clone();
            assert!(told.as_str().is_some_and(|told| told.starts_with("could not read")), "{told}");
            world.scaleway().clear_rules();
            gone(&world).await;
            assert_eq!(world.scaleway().wipes(&claimed.id), 1);
            assert!(host(&world, &claimed.id).name.starts_with(POOL_PREFIX));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_nobody_can_wipe_is_set_aside_and_its_machine_goes() {
    for renamed in [true, false] {
        let world = world(1, 1);
        during(&world, async {
            let claimed = ready(&world).await;
            let locked = Answer::error("locked").expect("a typed error");
            let refuse = |operation| {
                let rule = Rule::next(operation, Verdict::FailBefore(locked.clone()));
                world.scaleway().add_rule(rule.for_ever());
            };
            refuse(Operation::ReinstallServer);
            scale(&world, 0).await;
            until(&world, "a refusal", || calls(&world, Operation::ReinstallServer) > 1).await;
            if !renamed {
                refuse(Operation::UpdateServer);
            }
            gone(&world).await;
            let name = host(&world, &claimed.id).name;
            assert_eq!(name == format!("tuist-quarantine-{}", claimed.id), renamed, "{name}");
            let by_lease = fact(&world, &claimed.id, lease::QUARANTINED) == json!("true");
            assert_eq!(by_lease, !renamed);
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_whose_answer_is_lost_is_sent_once() {
    // G17
    for lost in [Verdict::LoseAfter, Verdict::HangAfter, Verdict::Delay(Duration::from_mins(1))] {
        let world = world(1, 0);
        during(&world, async {
            let change = json!({"spec": {"template": {"spec": {"autoOrder": true}}}});
            let template = template(&world);
            let kind = "ScalewayAppleSiliconMachineTemplate";
            patch(&world, INFRASTRUCTURE, kind, &template, change).await;
            let before = world.scaleway().hosts().len();
            world.scaleway().add_rule(Rule::next(Operation::CreateServer, lost));
            scale(&world, 1).await;
            until(&world, "a claim", || machine(&world)["spec"]["providerID"].is_string()).await;
            assert_eq!(calls(&world, Operation::CreateServer), 1);
            assert_eq!(world.scaleway().hosts().len(), before + 1);
            scale(&world, 0).await;
            gone(&world).await;
            let hosts = world.scaleway().hosts();
            let left = hosts.iter().filter(|host| !host.deletion_scheduled).count();
            assert_eq!(left, before, "bought, and not given up: {hosts:?}");
        })
        .await;
    }
}

fn template(world: &World) -> String {
    let all = "scalewayapplesiliconmachinetemplates.infrastructure.cluster.x-k8s.io";
    let found = world.api().objects(all);
    found[0]["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_moved_machine_leaves_its_host_and_its_lease_says_so() {
    let world = world(1, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        let cluster = json!({"spec": {"paused": true}});
        patch(&world, CLUSTER_API, "Cluster", "demo", cluster).await;
        until(&world, "the pause told", || {
            fact(&world, &claimed.id, lease::MOVED) == json!("true")
        })
        .await;
        assert_eq!(machine(&world)["metadata"]["annotations"][annotation::BLOCK_MOVE], Value::Null);
        let before = world.scaleway().calls();
        let name = machine(&world)["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        annotate(&world, json!({annotation::DELETE_FOR_MOVE: ""})).await;
        let (group, version) = INFRASTRUCTURE;
        let kind = GroupVersionKind::gvk(group, version, "ScalewayAppleSiliconMachine");
        let resource = ApiResource::from_gvk(&kind);
        let api: Api<DynamicObject> = Api::namespaced_with(world.client(), NAMESPACE, &resource);
        api.delete(&name, &kube::api::DeleteParams::default()).await.expect("a delete");
        until(&world, "it gone", || machine(&world).is_null()).await;
        assert_eq!(world.scaleway().calls(), before, "somebody outside was called");
        assert_eq!(host(&world, &claimed.id).name, claimed.name);
        assert_eq!(fact(&world, &claimed.id, lease::MOVED), json!("true"));
    })
    .await;
}
