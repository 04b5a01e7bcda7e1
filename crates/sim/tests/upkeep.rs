//! Macs that were bootstrapped stay as they shall be, in a whole world with the real provider.

#[path = "upkeep/around.rs"]
mod around;
#[path = "upkeep/builder.rs"]
mod builder;
#[path = "upkeep/pins.rs"]
mod pins;
#[path = "upkeep/tailnet.rs"]
mod tailnet;
#[path = "upkeep/told.rs"]
mod told;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::ids::ServerId;
use applecart_api::keys::owned;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_mac::{paths, public_key};
use applecart_sim::mac::{Effect, Gate, Packet, SimMac, VM_BRIDGE, Verdict};
use applecart_sim::world::{FLEET, NAMESPACE, World, WorldSettings};
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Node, Secret};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams,
    PostParams,
};
use kube::{Api, ResourceExt};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

/// How long anything may take to come true, in virtual time.
const PATIENCE: Duration = Duration::from_hours(2);
/// The world's upkeep interval, and a bit for the run itself.
const ONE_INTERVAL: Duration = Duration::from_mins(6);

fn world(hosts: usize, machines: u32) -> World {
    World::new(settings(hosts, machines))
}

fn settings(hosts: usize, machines: u32) -> WorldSettings {
    let (start, epoch) = (Instant::now(), Timestamp::from_second(1_800_000_000).unwrap());
    WorldSettings {
        hosts,
        machines,
        runners: 0,
        speed: 1.0,
        seed: 1,
        clock: Clock::new(move || epoch + start.elapsed()),
        authority: None,
        api_url: "https://kubernetes.default.svc".to_owned(),
        ssh_latency: Duration::from_millis(100),
        foreign: false,
        roles: &[],
        providers: 1,
        deployments: false,
        jobs: false,
        faults: None,
    }
}

/// Plays `story` in a world.
async fn play(world: &World, story: impl Future<Output = ()>) {
    world.apply().await.unwrap();
    tokio::select! {
        biased;
        () = story => {}
        () = world.run() => panic!("the world stopped"),
    }
}

async fn reach_within(limit: Duration, what: &str, level: impl AsyncFn() -> bool) {
    let waited = timeout(limit, async {
        while !level().await {
            sleep(Duration::from_secs(1)).await;
        }
    });
    assert!(waited.await.is_ok(), "{what} did not come about");
}

async fn reach(what: &str, level: impl AsyncFn() -> bool) {
    reach_within(PATIENCE, what, level).await;
}

fn machines(world: &World) -> Vec<ScalewayAppleSiliconMachine> {
    let all = world.api().objects("scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io");
    all.iter().map(|object| ScalewayAppleSiliconMachine::deserialize(&**object).unwrap()).collect()
}

fn is_ready(machine: &ScalewayAppleSiliconMachine) -> bool {
    machine.status.as_ref().and_then(|status| status.ready) == Some(true)
}

fn ready(world: &World) -> usize {
    machines(world).iter().filter(|machine| is_ready(machine)).count()
}

/// The Mac of a Machine that has one.
fn mac_of(world: &World, machine: &ScalewayAppleSiliconMachine) -> SimMac {
    let id = machine.status.clone().and_then(|status| status.server_id).expect("a host");
    world.mac(&id.parse::<ServerId>().unwrap()).expect("a Mac")
}

/// What the condition `UpToDate` says.
fn up_to_date(machine: &ScalewayAppleSiliconMachine) -> Option<String> {
    let conditions = machine.status.clone().unwrap_or_default().conditions;
    conditions.into_iter().find(|c| c.type_ == "UpToDate").map(|c| c.status)
}

async fn scale(world: &World, replicas: u32) {
    let kind = GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", "MachineDeployment");
    let resource = ApiResource::from_gvk(&kind);
    let api: Api<DynamicObject> = Api::namespaced_with(world.client(), NAMESPACE, &resource);
    let change = json!({"spec": {"replicas": replicas}});
    api.patch(FLEET, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
}

fn dials(mac: &SimMac) -> usize {
    mac.calls().iter().filter(|call| call.what == "dial").count()
}

fn secrets(world: &World) -> Api<Secret> {
    Api::namespaced(world.client(), NAMESPACE)
}

#[tokio::test(start_paused = true)]
async fn a_flushed_firewall_is_back_within_one_interval_and_a_mac_that_is_well_is_only_read() {
    // V17, B14
    let world = world(1, 1);
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let mac = mac_of(&world, &machines(&world)[0]);
        let to_a_sibling = Packet {
            interface: VM_BRIDGE,
            inbound: true,
            protocol: "tcp",
            source: [192, 168, 64, 5].into(),
            destination: [192, 168, 64, 6].into(),
            port: 22,
        };
        assert!(!mac.lets_pass(to_a_sibling));
        mac.flush_firewall();
        assert!(mac.lets_pass(to_a_sibling));
        let mended = async || !mac.lets_pass(to_a_sibling);
        reach_within(ONE_INTERVAL, "the rules", mended).await;
        let (calls, effects) = mac.call_counts();
        let before = dials(&mac);
        sleep(ONE_INTERVAL * 3).await;
        let looks = dials(&mac) - before;
        assert!(looks >= 2, "{looks}");
        assert_eq!(mac.call_counts().1, effects, "a Mac that is well is not written to");
        let each = (mac.call_counts().0 - calls) / looks as u64;
        assert!(each <= 60, "{each} calls for each connection");
        assert_eq!(ready(&world), 1);
        assert_eq!(up_to_date(&machines(&world)[0]).as_deref(), Some("True"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_is_back_and_its_mac_was_gone_through_again() {
    // Seed 001's test plan: `kubectl delete node`.
    let world = world(1, 1);
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let machine = machines(&world).remove(0);
        let mac = mac_of(&world, &machine);
        let nodes: Api<Node> = Api::all(world.client());
        let name = machine.name_any();
        let uid = nodes.get(&name).await.unwrap().uid();
        // A Mac that is broken as well, so that its agent alone does not mend it.
        mac.put_file(paths::PF_CONF, applecart_mac::pf::STOCK);
        let before = dials(&mac);
        nodes.delete(&name, &DeleteParams::default()).await.unwrap();
        reach("the Node again", async || {
            nodes.get_opt(&name).await.unwrap().is_some_and(|node| node.uid() != uid)
        })
        .await;
        let again = async || dials(&mac) > before && ready(&world) == 1;
        reach_within(ONE_INTERVAL, "another run", again).await;
        let mended = async || {
            let (text, ..) = mac.file(paths::PF_CONF).unwrap();
            text == applecart_mac::pf::with_block(applecart_mac::pf::STOCK)
        };
        reach_within(ONE_INTERVAL, "the mended file", mended).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_changed_spec_reaches_a_mac_that_runs() {
    // P23, P33
    let world = world(1, 1);
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let machine = machines(&world).remove(0);
        let (mac, stamp) = (mac_of(&world, &machine), stamp_of(&machine));
        let before = mac.agent_pid();
        let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(world.client(), NAMESPACE);
        let change = json!({"spec": {"hostCPU": 4}});
        let name = machine.name_any();
        api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        reach_within(Duration::from_mins(2), "the new size", async || {
            let (plist, ..) = mac.file(paths::AGENT_PLIST).unwrap();
            String::from_utf8_lossy(&plist).contains("--host-cpu=4") && mac.agent_pid() != before
        })
        .await;
        reach("a new stamp", async || stamp_of(&machines(&world)[0]) != stamp).await;
        assert_eq!(ready(&world), 1);
    })
    .await;
}

fn stamp_of(machine: &ScalewayAppleSiliconMachine) -> Option<String> {
    machine.status.clone().and_then(|status| status.tart_kubelet_binary_sha)
}

/// Takes connections, and never answers what is asked over them.
struct HangsAfterConnect;

impl Gate for HangsAfterConnect {
    fn verdict(&self, effect: &Effect) -> Verdict {
        if effect.what == "dial" { Verdict::Pass } else { Verdict::HangBefore }
    }
}

#[tokio::test(start_paused = true)]
async fn a_mac_that_hangs_after_connect_delays_no_other_machine_and_no_deletion() {
    // P2, S11
    let world = world(3, 3);
    let calm = Box::pin(async {
        let world = self::world(3, 3);
        let began = Instant::now();
        play(&world, reach("all Ready", async || ready(&world) == 3)).await;
        began.elapsed()
    })
    .await;
    let hosts = world.scaleway().hosts();
    let hung = world.mac(&hosts[0].id).unwrap();
    hung.set_gate(Arc::new(HangsAfterConnect));
    let began = Instant::now();
    play(&world, async {
        reach_within(calm * 2, "the two others Ready", async || ready(&world) == 2).await;
        assert!(began.elapsed() <= calm + Duration::from_secs(30), "{:?}", began.elapsed());
        assert!(dials(&hung) > 0, "the third one is at it");
        scale(&world, 0).await;
        // A wipe takes a while; the hung bootstrap takes nothing.
        reach_within(Duration::from_mins(5), "no Machine", async || machines(&world).is_empty())
            .await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_fleet_has_one_key_and_what_is_registered_is_what_the_secret_holds() {
    // LH6
    let world = world(4, 4);
    play(&world, async {
        reach("all Ready", async || ready(&world) == 4).await;
        let secret = secrets(&world).get(&owned::fleet_key(FLEET)).await.unwrap();
        let private = &secret.data.as_ref().unwrap()[owned::PRIVATE_KEY].0;
        let private = SecretString::from(String::from_utf8(private.clone()).unwrap());
        let keys = world.scaleway().client().ssh_keys(FLEET).await.unwrap();
        assert_eq!(keys.len(), 1, "{keys:?}");
        assert!(keys[0].is(&public_key(&private).unwrap()));
        assert_eq!(secret.annotations()[owned::SSH_KEY_ID], keys[0].id.to_string());
        let public = &secret.data.as_ref().unwrap()[owned::PUBLIC_KEY].0;
        assert_eq!(String::from_utf8_lossy(public).trim(), public_key(&private).unwrap());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn keys_of_others_stay_registered_and_a_key_that_is_there_is_used() {
    // LH6: the Secret of a running fleet, whose name somebody gave to another key.
    let world = world(1, 1);
    let pair = applecart_mac::KeyPair::from_seed([5; 32], "").unwrap();
    let other = applecart_mac::KeyPair::from_seed([6; 32], "").unwrap();
    let client = world.scaleway().client();
    client.create_ssh_key(FLEET, &other.public).await.unwrap();
    store(&world, &pair).await;
    play(&world, async {
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let keys = client.ssh_keys(FLEET).await.unwrap();
        let public: BTreeSet<String> = keys.iter().map(|key| key.public_key.clone()).collect();
        assert_eq!(public, BTreeSet::from([pair.public.clone(), other.public.clone()]));
        let stored = secrets(&world).get(&owned::fleet_key(FLEET)).await.unwrap();
        assert_eq!(stored.data.unwrap()[owned::PRIVATE_KEY].0, exposed(&pair));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_under_another_name_is_used_once_it_is_enabled_and_registered_no_second_time() {
    // LH6: a Mac that was installed while it was disabled does not know it.
    let world = world(1, 1);
    let pair = applecart_mac::KeyPair::from_seed([5; 32], "").unwrap();
    let client = world.scaleway().client();
    let key = client.create_ssh_key("by hand", &pair.public).await.unwrap();
    world.scaleway().disable_key(&key.id, true);
    store(&world, &pair).await;
    play(&world, async {
        let waits = |machine: &ScalewayAppleSiliconMachine| {
            serde_json::to_string(&machine.status).unwrap().contains("it is disabled at Scaleway")
        };
        reach("that is told", async || machines(&world).first().is_some_and(waits)).await;
        assert_eq!(ready(&world), 0);
        world.scaleway().disable_key(&key.id, false);
        reach("a Machine Ready", async || ready(&world) == 1).await;
        assert_eq!(client.all_ssh_keys().await.unwrap().len(), 1);
        let stored = secrets(&world).get(&owned::fleet_key(FLEET)).await.unwrap();
        assert_eq!(stored.annotations()[owned::SSH_KEY_ID], key.id.to_string());
    })
    .await;
}

/// A Secret of the fleet that is there before its provider.
async fn store(world: &World, pair: &applecart_mac::KeyPair) {
    let secret = Secret {
        metadata: ObjectMeta { name: Some(owned::fleet_key(FLEET)), ..ObjectMeta::default() },
        data: Some([(owned::PRIVATE_KEY.to_owned(), ByteString(exposed(pair)))].into()),
        ..Secret::default()
    };
    secrets(world).create(&PostParams::default(), &secret).await.unwrap();
}

fn exposed(pair: &applecart_mac::KeyPair) -> Vec<u8> {
    secrecy::ExposeSecret::expose_secret(&pair.private).as_bytes().to_vec()
}

#[tokio::test(start_paused = true)]
async fn a_sealed_password_that_an_older_version_stored_is_read_again() {
    // P19, seed 003: a Secret from before the fix heals by itself.
    let world = world(1, 1);
    play(&world, async {
        reach("a Machine", async || !machines(&world).is_empty()).await;
        let name = owned::credentials(&machines(&world)[0].name_any());
        let sealed = ByteString(b"<sealed>".to_vec());
        let user = ByteString(b"m1".to_vec());
        let secret = Secret {
            metadata: ObjectMeta { name: Some(name.clone()), ..ObjectMeta::default() },
            data: Some([(owned::PASSWORD.into(), sealed), (owned::USER.into(), user)].into()),
            ..Secret::default()
        };
        secrets(&world).create(&PostParams::default(), &secret).await.unwrap();
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let stored = secrets(&world).get(&name).await.unwrap().data.unwrap();
        let password = String::from_utf8(stored[owned::PASSWORD].0.clone()).unwrap();
        assert!(world.passwords().contains(&password));
        assert_eq!(mac_of(&world, &machines(&world)[0]).wrong_passwords(), 0);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_password_is_waited_out_and_another_one_is_tried_as_soon_as_it_is_stored() {
    // B5, S18, P9: at most two tries of one password, whatever happens.
    let world = world(1, 1);
    play(&world, async {
        let claimed = |machine: &ScalewayAppleSiliconMachine| {
            machine.status.as_ref().is_some_and(|status| status.server_id.is_some())
        };
        reach("a claim", async || machines(&world).first().is_some_and(claimed)).await;
        let mac = mac_of(&world, &machines(&world)[0]);
        mac.set_password("another");
        let attempts = || machines(&world)[0].status.clone().unwrap().bootstrap_attempts;
        reach("two refusals", async || attempts() == Some(2)).await;
        assert_eq!(mac.wrong_passwords(), 2);
        sleep(Duration::from_secs(30)).await;
        let before = dials(&mac);
        let change = json!({"stringData": {owned::PASSWORD: "another"}});
        let name = owned::credentials(&machines(&world)[0].name_any());
        let secrets = secrets(&world);
        secrets.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await.unwrap();
        let soon = Duration::from_secs(15);
        reach_within(soon, "another bootstrap", async || dials(&mac) > before).await;
        reach("a Machine Ready", async || ready(&world) == 1).await;
        assert_eq!(mac.wrong_passwords(), 2);
    })
    .await;
}
