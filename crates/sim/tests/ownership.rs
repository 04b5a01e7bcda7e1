//! Whose a host is, where two could think that it is theirs: the real provider in a simulated
//! world, under virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use applecart_api::keys::{annotation, lease};
use applecart_mac::paths;
use applecart_sim::faults::{Class, Fault, Faults, Plan, Process, Step};
use applecart_sim::mac::SimMac;
use applecart_sim::oracle::Safety;
use applecart_sim::scaleway::{Answer, HostView, Operation, Rule, Verdict};
use applecart_sim::world::{FLEET, Install, NAMESPACE, POOL, POOL_PREFIX, World, WorldSettings};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";
const MAC: (&str, &str, &str) =
    ("infrastructure.cluster.x-k8s.io", "v1alpha1", "ScalewayAppleSiliconMachine");
const MACHINE: (&str, &str, &str) = ("cluster.x-k8s.io", "v1beta2", "Machine");
const POOLS: (&str, &str, &str) = ("tuist.dev", "v1alpha1", "RunnerPool");
const DEPLOYMENT: (&str, &str, &str) = ("cluster.x-k8s.io", "v1beta2", "MachineDeployment");

fn world(hosts: usize, machines: u32, faults: Option<Arc<Faults>>) -> World {
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
        foreign: false,
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
    let waited = tokio::time::timeout(Duration::from_hours(6), async {
        while !level() {
            sleep(Duration::from_secs(1)).await;
        }
    });
    let told = || world.api().objects(MACHINES).iter().map(ToString::to_string).collect::<String>();
    waited.await.unwrap_or_else(|_| panic!("{what} did not come about: {}", told()));
}

fn api(world: &World, (group, version, kind): (&str, &str, &str)) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind));
    Api::namespaced_with(world.client(), NAMESPACE, &resource)
}

async fn patch(world: &World, of: (&str, &str, &str), name: &str, change: Value) {
    let (how, merge) = (PatchParams::default(), Patch::Merge(&change));
    api(world, of).patch(name, &how, &merge).await.expect("a patch");
}

async fn scale(world: &World, replicas: u32) {
    patch(world, DEPLOYMENT, FLEET, json!({"spec": {"replicas": replicas}})).await;
}

fn machines(world: &World) -> Vec<Arc<Value>> {
    world.api().objects(MACHINES)
}

fn machine(world: &World) -> Value {
    machines(world).first().map_or(Value::Null, |object| (**object).clone())
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// What a condition of the one Machine says: status and reason.
fn says(world: &World, condition: &str) -> (String, String) {
    let conditions = machine(world)["status"]["conditions"].clone();
    let found = conditions.as_array().into_iter().flatten().find(|c| c["type"] == condition);
    let text = |field: &str| found.and_then(|c| c[field].as_str()).unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

/// The host of the one Machine, once that is Ready.
async fn ready(world: &World) -> HostView {
    until(world, "a Mac that is Ready", || says(world, "Ready").0 == "True").await;
    let hosts = world.scaleway().hosts();
    let owner = name(&machine(world));
    hosts.into_iter().find(|host| host.name == owner).expect("its host has its name")
}

async fn gone(world: &World) {
    until(world, "the Machine gone", || machines(world).is_empty()).await;
}

fn fact(world: &World, id: &ServerId, fact: &str) -> Value {
    let leases = world.api().objects("leases.coordination.k8s.io");
    let of_host = leases.iter().find(|object| object["metadata"]["name"] == lease::name(id));
    of_host.map_or(Value::Null, |object| object["metadata"]["annotations"][fact].clone())
}

fn host(world: &World, id: &ServerId) -> HostView {
    world.scaleway().host(id).expect("the host is there")
}

/// What became of one release beside Machines that wait.
struct Interleaved {
    /// Effects there were while the first Machine went.
    effects: usize,
    violation: Option<String>,
}

/// How often those who wait are woken: longer than any call is held up.
const TOUCHES: usize = 15;

/// Wakes all Machines.
async fn touch(world: &World, number: usize) {
    let change = json!({"metadata": {"annotations": {"touched": number.to_string()}}});
    let (how, merge) = (PatchParams::default(), Patch::Merge(&change));
    for object in machines(world) {
        // One that is gone meanwhile needs no waking.
        let _ = api(world, MAC).patch(&name(&object), &how, &merge).await;
    }
}

/// A Machine gives the only host of its pool back, and others wait for it, wide awake. `fault`
/// meets the effect of this number, counted from the deletion on.
async fn interleave(at: usize, fault: Fault) -> Interleaved {
    let (armed, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_armed, counted) = (armed.clone(), count.clone());
    let faults = Faults::new(Plan::Chosen(Box::new(move |ahead| {
        if !is_armed.load(Ordering::Relaxed) || ahead.class != Class::Effect {
            return None;
        }
        (counted.fetch_add(1, Ordering::Relaxed) == at).then_some(fault)
    })));
    let world = world(1, 1, Some(faults.clone()));
    let safety = Safety::new(world.sight().clone());
    faults.ask_after_effects(Box::new(move |step| safety.check(step)));
    during(&world, async {
        let host = ready(&world).await;
        let first = name(&machine(&world));
        scale(&world, 2).await;
        until(&world, "another Machine", || machines(&world).len() == 2).await;
        armed.store(true, Ordering::Relaxed);
        api(&world, MACHINE).delete(&first, &DeleteParams::default()).await.expect("a delete");
        let mut touched = 0;
        while machines(&world).iter().any(|object| name(object) == first) {
            // Around the fault, whoever waits looks again, each second.
            if count.load(Ordering::Relaxed) >= at && touched < TOUCHES {
                touched += 1;
                touch(&world, touched).await;
            }
            sleep(Duration::from_secs(1)).await;
        }
        armed.store(false, Ordering::Relaxed);
        let has_host = |object: &Arc<Value>| object["spec"]["providerID"].is_string();
        until(&world, "the next owner", || machines(&world).iter().any(has_host)).await;
        let wipes = world.scaleway().wipes(&host.id);
        assert!((1..=2).contains(&wipes), "wiped {wipes} times, with {fault:?} at {at}");
    })
    .await;
    let violation = faults.violation().map(|(_, violated)| violated);
    Interleaved { effects: count.load(Ordering::Relaxed), violation }
}

#[tokio::test(start_paused = true)]
async fn adopt_and_release_cannot_interleave_into_a_wipe_of_a_live_host() {
    // P22, LH1, seed 004
    for fault in [Fault::Slow, Fault::Late] {
        let mut at = 0;
        loop {
            let Interleaved { effects, violation } = interleave(at, fault).await;
            assert_eq!(violation, None, "{fault:?} at effect {at}");
            if effects <= at {
                break;
            }
            at += 1;
        }
        assert!(at > 10, "a release has more effects than {at}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_only_its_name_ties_to_its_machine_comes_back_wiped() {
    // LH2: Lease, status and provider ID are gone, and then the Machine goes.
    let world = world(1, 1, None);
    during(&world, async {
        let claimed = ready(&world).await;
        world.stop(&Process::Provider);
        let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
        let all = DeleteParams::default();
        leases.delete(&lease::name(&claimed.id), &all).await.expect("a delete");
        let lost = json!({"status": {"serverID": null}});
        let (how, lost) = (PatchParams::default(), Patch::Merge(&lost));
        api(&world, MAC).patch_status(&claimed.name, &how, &lost).await.expect("a patch");
        patch(&world, MAC, &claimed.name, json!({"spec": {"providerID": null}})).await;
        scale(&world, 0).await;
        sleep(Duration::from_mins(1)).await;
        world.start_again(&Process::Provider);
        gone(&world).await;
        let is_back = || host(&world, &claimed.id).name.starts_with(POOL_PREFIX);
        until(&world, "the host in its pool", is_back).await;
        assert_eq!(world.scaleway().wipes(&claimed.id), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_runs_for_an_object_that_is_forced_away_ends_with_it() {
    // A person strips the finalizer in mid-bootstrap: no turn of ours ever comes again.
    let world = world(1, 0, None);
    during(&world, async {
        scale(&world, 1).await;
        let in_step = || machine(&world)["status"]["bootstrap"].is_object();
        until(&world, "a bootstrap", in_step).await;
        let hosts = world.scaleway().hosts();
        let object = name(&machine(&world));
        let claimed = hosts.iter().find(|host| host.name == object).expect("its host");
        scale(&world, 0).await;
        world.api().lose(MACHINES);
        sleep(Duration::from_secs(1)).await;
        let before = mac_of(&world, claimed).call_counts();
        sleep(Duration::from_mins(5)).await;
        assert_eq!(mac_of(&world, claimed).call_counts(), before, "somebody still works there");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_namesake_gets_nothing_of_what_an_object_that_was_forced_away_left() {
    // S5, LH14: neither its host, with its disk, nor another one before that one is out of the way.
    let world = world(2, 1, None);
    during(&world, async {
        let claimed = ready(&world).await;
        assert_eq!(fact(&world, &claimed.id, lease::POOL), json!(POOL_PREFIX));
        world.stop(&Process::Provider);
        let forced = machine(&world);
        world.api().lose(MACHINES);
        let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
        let freed = json!({
            "metadata": {"labels": {lease::HOLDER: null}}, "spec": {"holderIdentity": null},
        });
        let (how, freed) = (PatchParams::default(), Patch::Merge(&freed));
        leases.patch(&lease::name(&claimed.id), &how, &freed).await.expect("a patch");
        let mut again: DynamicObject = serde_json::from_value(forced).expect("an object");
        again.metadata.uid = None;
        again.metadata.resource_version = None;
        again.data["status"] = Value::Null;
        again.data["spec"]["providerID"] = Value::Null;
        api(&world, MAC).create(&PostParams::default(), &again).await.expect("a namesake");
        world.start_again(&Process::Provider);
        let waits = || says(&world, "Ready").1 == "NameTaken";
        until(&world, "the namesake waiting", waits).await;
        sleep(Duration::from_mins(10)).await;
        assert!(waits(), "{}", machine(&world));
        assert_eq!(host(&world, &claimed.id).name, claimed.name);
        let holder = fact(&world, &claimed.id, lease::LAST_OWNER);
        assert!(!holder.to_string().contains(&uid(&machine(&world))), "{holder}");
    })
    .await;
}

fn uid(object: &Value) -> String {
    object["metadata"]["uid"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_host_is_marked_only_right_after_it_was_read() {
    // DESIGN 3: a mark that lands later than others wait for is one that nobody waited for.
    for (seconds, claims) in [(2, true), (4, false)] {
        let world = world(1, 0, None);
        during(&world, async {
            let slow = Verdict::Delay(Duration::from_secs(seconds));
            world.scaleway().add_rule(Rule::next(Operation::GetServer, slow).for_ever());
            scale(&world, 1).await;
            sleep(Duration::from_mins(5)).await;
            let hosts = world.scaleway().hosts();
            let taken = hosts.iter().any(|host| !host.name.starts_with(POOL_PREFIX));
            assert_eq!(taken, claims, "a read takes {seconds} s");
            world.scaleway().clear_rules();
            ready(&world).await;
        })
        .await;
    }
}

fn mac_of(world: &World, host: &HostView) -> SimMac {
    world.mac(&host.id).expect("a Mac")
}

/// Makes the one Machine look as if the system before us had made it Ready.
async fn hand_over(world: &World, claimed: &HostView) {
    world.stop(&Process::Provider);
    let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
    let name = lease::name(&claimed.id);
    leases.delete(&name, &DeleteParams::default()).await.expect("a delete");
    let mut conditions = machine(world)["status"]["conditions"].clone();
    conditions.as_array_mut().expect("conditions").retain(|c| c["type"] != "UpToDate");
    let change = json!({"status": {
        "conditions": conditions, "tartKubeletBinarySHA": "of the system before us",
    }});
    let (how, change) = (PatchParams::default(), Patch::Merge(&change));
    api(world, MAC).patch_status(&claimed.name, &how, &change).await.expect("a patch");
    mac_of(world, claimed).put_file(paths::PF_CONF, "# as the system before us wrote it\n");
}

/// The system before us gave a host its pool name, and ended before it asked for the wipe.
async fn half_release(world: &World, claimed: &HostView) {
    world.stop(&Process::Provider);
    let leases: Api<Lease> = Api::namespaced(world.client(), NAMESPACE);
    let lease = lease::name(&claimed.id);
    leases.delete(&lease, &DeleteParams::default()).await.expect("a delete");
    world.scaleway().rename_host(&claimed.id, &format!("{POOL_PREFIX}{}", claimed.id));
}

#[tokio::test(start_paused = true)]
async fn a_release_that_was_left_half_done_gives_nobody_a_host_with_its_last_owners_disk() {
    // LH1
    let world = world(1, 1, None);
    during(&world, async {
        let claimed = ready(&world).await;
        half_release(&world, &claimed).await;
        scale(&world, 2).await;
        until(&world, "one that waits", || machines(&world).len() == 2).await;
        let how = DeleteParams::default();
        api(&world, MACHINE).delete(&claimed.name, &how).await.expect("a delete");
        scale(&world, 1).await;
        let goes = |object: &Arc<Value>| object["metadata"]["deletionTimestamp"].is_string();
        until(&world, "a deletion", || machines(&world).iter().any(goes)).await;
        world.start_again(&Process::Provider);
        until(&world, "one of them gone", || machines(&world).len() == 1).await;
        assert_ne!(name(&machine(&world)), claimed.name);
        sleep(Duration::from_mins(10)).await;
        assert_eq!(says(&world, "Ready").1, "NoAvailableHost");
        assert_eq!(fact(&world, &claimed.id, lease::UNWIPED), json!("true"));
        assert!(host(&world, &claimed.id).name.starts_with(POOL_PREFIX));
        assert_eq!(world.scaleway().wipes(&claimed.id), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_exchange_that_was_left_half_done_keeps_its_machine_from_no_other_host() {
    // LH1, V5
    let world = world(2, 0, None);
    during(&world, async {
        let pool = world.scaleway().hosts();
        for host in &pool {
            mac_of(&world, host).authorize(vec![]);
        }
        scale(&world, 1).await;
        let failed = || machine(&world)["status"]["bootstrapAttempts"] == json!(1);
        until(&world, "a failure", failed).await;
        let owner = name(&machine(&world));
        let (hosts, is_its) = (world.scaleway().hosts(), |host: &&HostView| host.name == owner);
        let claimed = hosts.iter().find(is_its).expect("its host").clone();
        half_release(&world, &claimed).await;
        let good = pool.iter().find(|host| host.id != claimed.id).expect("another");
        mac_of(&world, good).authorize(world.scaleway().public_keys());
        world.start_again(&Process::Provider);
        assert_eq!(ready(&world).await.id, good.id);
        assert_eq!(fact(&world, &claimed.id, lease::UNWIPED), json!("true"));
        assert_eq!(world.scaleway().wipes(&claimed.id), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_mac_that_is_taken_over_is_not_touched_until_its_configuration_changes() {
    // DESIGN 4: a host taken over keeps what it has until its first update.
    for asked in [false, true] {
        let world = world(1, 1, None);
        during(&world, async {
            let claimed = ready(&world).await;
            hand_over(&world, &claimed).await;
            let mac = mac_of(&world, &claimed);
            let (before, wipes) = (mac.call_counts(), world.scaleway().wipes(&claimed.id));
            let calls = world.scaleway().calls();
            world.start_again(&Process::Provider);
            let told = || says(&world, "UpToDate") == ("Unknown".into(), "TakenOver".into());
            until(&world, "the take-over told", told).await;
            sleep(Duration::from_mins(40)).await;
            assert_eq!(mac.call_counts(), before, "somebody went to the Mac");
            let renames = Operation::UpdateServer.label();
            assert_eq!(world.scaleway().calls().get(renames), calls.get(renames));
            assert_eq!((host(&world, &claimed.id).name, wipes), (claimed.name.clone(), 0));
            assert!(told(), "each process finds the same");
            let status = machine(&world)["status"].clone();
            assert_eq!(status["tartKubeletBinarySHA"], "of the system before us");
            assert_eq!(says(&world, "Ready").0, "True");
            if asked {
                let change = json!({"metadata": {"annotations": {annotation::UPDATE: ""}}});
                patch(&world, MAC, &claimed.name, change).await;
            } else {
                world.install(Install { agent: "a newer agent", ..Install::default() });
            }
            until(&world, "the update", || says(&world, "UpToDate").0 == "True").await;
            let (rules, ..) = mac.file(paths::PF_CONF).expect("a file");
            assert!(String::from_utf8_lossy(&rules).contains("tuist.runners"));
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_was_set_aside_is_adopted_again_once_a_person_wiped_and_renamed_it() {
    // V5
    let world = world(1, 1, None);
    world.install(Install { sweep_interval: Duration::from_mins(1), ..Install::default() });
    during(&world, async {
        let claimed = ready(&world).await;
        let locked = Answer::error("locked").expect("a typed error");
        let refused = Rule::next(Operation::ReinstallServer, Verdict::FailBefore(locked));
        world.scaleway().add_rule(refused.for_ever());
        scale(&world, 0).await;
        gone(&world).await;
        assert_eq!(host(&world, &claimed.id).name, format!("tuist-quarantine-{}", claimed.id));
        assert_eq!(fact(&world, &claimed.id, lease::UNWIPED), "true");
        world.scaleway().clear_rules();
        let person = world.scaleway().client();
        person.reinstall(&claimed.zone, &claimed.id, None).await.expect("a wipe");
        let noted = || fact(&world, &claimed.id, lease::UNWIPED) == "false";
        until(&world, "the wipe noted", noted).await;
        let well = || host(&world, &claimed.id).status.as_str() == "ready";
        until(&world, "the host well", well).await;
        world.scaleway().rename_host(&claimed.id, &format!("{POOL_PREFIX}mended"));
        scale(&world, 1).await;
        assert_eq!(ready(&world).await.id, claimed.id);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_taken_for_an_object_that_a_delete_took_from_under_its_new_finalizer() {
    // The delete read the object before the finalizer was there, and nobody heard of it yet.
    let lost = Arc::new(AtomicBool::new(false));
    let deaf = lost.clone();
    let faults = Faults::new(Plan::Chosen(Box::new(move |ahead| {
        (ahead.class == Class::Event && deaf.load(Ordering::Relaxed)).then_some(Fault::Coalesce)
    })));
    let world = world(1, 0, Some(faults.clone()));
    let (api, first) = (world.api().clone(), lost.clone());
    faults.ask_after_effects(Box::new(move |_| {
        let objects = api.objects(MACHINES);
        let keeps = |object: &Arc<Value>| object["metadata"]["finalizers"].is_array();
        if objects.iter().any(keeps) && !first.swap(true, Ordering::Relaxed) {
            api.lose(MACHINES);
        }
        Ok(())
    }));
    during(&world, async {
        scale(&world, 1).await;
        until(&world, "the object lost", || lost.load(Ordering::Relaxed)).await;
        sleep(Duration::from_secs(20)).await;
        let accounts = world.api().objects("serviceaccounts");
        let signed: Vec<_> = accounts.iter().map(|a| name(a)).filter(|n| n != "default").collect();
        assert_eq!(signed, Vec::<String>::new());
        let leases = world.api().objects("leases.coordination.k8s.io");
        assert!(!leases.iter().any(|lease| name(lease).starts_with("host-")), "a host was taken");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_password_that_could_not_be_stored_after_the_claim_is_stored_later() {
    // LH3: first, when it is stored; then the same claim, and from there on all is refused.
    let calm = Faults::new(Plan::Chosen(Box::new(|_| None)));
    let seen = world(1, 1, Some(calm.clone()));
    during(&seen, async { drop(ready(&seen).await) }).await;
    let is_stored = |step: &Step| {
        step.process == Process::Provider
            && step.class == Class::Effect
            && step.call.contains("-bootstrap")
    };
    let stored = calm.look(|steps| steps.iter().find(|s| is_stored(s)).map(|s| s.number));
    let stored = stored.expect("a password is stored");
    let open = Arc::new(AtomicBool::new(false));
    let is_open = open.clone();
    let faults = Faults::new(Plan::Chosen(Box::new(move |ahead| {
        let refused = ahead.number >= stored && ahead.class == Class::Effect;
        (refused && !is_open.load(Ordering::Relaxed)).then_some(Fault::Denied)
    })));
    let world = world(1, 1, Some(faults.clone()));
    during(&world, async {
        let claimed = || machine(&world)["spec"]["providerID"].is_string();
        until(&world, "a claim", claimed).await;
        sleep(Duration::from_mins(10)).await;
        assert!(faults.look(|steps| steps.iter().any(is_stored)), "it was tried");
        assert_ne!(says(&world, "Ready").0, "True", "nothing was stored");
        open.store(true, Ordering::Relaxed);
        ready(&world).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nobody_spins_while_everything_that_it_tries_is_refused() {
    // LH21, LH25: also of what is told or noted before everything else.
    for (from, machines) in [(Duration::ZERO, 1), (Duration::from_mins(2), 2)] {
        let (armed, count) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (is_armed, counted) = (armed.clone(), count.clone());
        let faults = Faults::new(Plan::Chosen(Box::new(move |ahead| {
            let refused = ahead.class == Class::Effect && is_armed.load(Ordering::Relaxed);
            refused.then(|| {
                counted.fetch_add(1, Ordering::Relaxed);
                Fault::Denied
            })
        })));
        let world = world(2, 1, Some(faults.clone()));
        let told = async {
            sleep(from).await;
            scale(&world, machines).await;
            patch(&world, POOLS, POOL, json!({"spec": {"replicas": 1}})).await;
            armed.store(true, Ordering::Relaxed);
            sleep(Duration::from_mins(10)).await;
            armed.store(false, Ordering::Relaxed);
            let tried = count.load(Ordering::Relaxed);
            assert!((5..300).contains(&tried), "{tried} tries in ten minutes");
            let all = usize::try_from(machines).expect("a few");
            let is_ready = |object: &Arc<Value>| object["status"]["ready"] == true;
            let ready = || self::machines(&world).iter().filter(|m| is_ready(m)).count() == all;
            until(&world, "all is well", ready).await;
            let runs = || !world.sight().tarts().all(|(_, tart)| tart.running().is_empty());
            until(&world, "a runner", runs).await;
        };
        during(&world, async {
            tokio::select! {
                () = told => {}
                () = faults.spun() => panic!("somebody spins"),
            }
        })
        .await;
    }
}
