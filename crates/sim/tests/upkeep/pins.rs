//! A host's key, from first contact to the wipe: in the Secret of its Machine, and nowhere else.

use applecart_mac::HostKey;
use applecart_sim::mac::AgentHealth;
use applecart_sim::scaleway::Operation;

use super::*;

/// More than a wait for SSH between two looks at a host that does not answer.
const SOON: Duration = Duration::from_mins(2);

fn host(machine: &ScalewayAppleSiliconMachine) -> Option<String> {
    machine.status.as_ref().and_then(|status| status.server_id.clone())
}

fn attempts(world: &World) -> Option<i32> {
    machines(world).first().and_then(|machine| machine.status.clone()?.bootstrap_attempts)
}

/// What the one Machine says of itself.
fn told(world: &World) -> String {
    let status = machines(world).first().and_then(|machine| machine.status.clone());
    let conditions = status.unwrap_or_default().conditions;
    conditions.into_iter().filter_map(|condition| condition.message).collect()
}

fn secret_name(world: &World) -> String {
    owned::credentials(&machines(world)[0].name_any())
}

async fn stored(world: &World) -> Secret {
    secrets(world).get(&secret_name(world)).await.unwrap()
}

async fn pin(world: &World) -> Option<HostKey> {
    let data = stored(world).await.data.unwrap();
    data.get(owned::HOST_KEY).map(|pin| HostKey(String::from_utf8(pin.0.clone()).unwrap()))
}

async fn put(world: &World, key: &str, value: &str) {
    let change = json!({"stringData": {key: value}});
    let how = PatchParams::default();
    secrets(world).patch(&secret_name(world), &how, &Patch::Merge(&change)).await.unwrap();
}

/// Plays on from when the one Mac is claimed, and the run that begins waits for it to answer.
async fn while_it_waits(story: impl AsyncFn(&World, &SimMac)) {
    let world = world(1, 1);
    let mac = world.mac(&world.scaleway().hosts()[0].id).unwrap();
    mac.set_unreachable(true);
    play(&world, async {
        let waits = async || told(&world).contains("step 1 of 10: wait for SSH");
        reach("a wait for SSH", waits).await;
        assert_eq!(pin(&world).await, None);
        story(&world, &mac).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pin_outlives_a_failed_first_run_and_a_host_with_another_key_is_sent_nothing() {
    // B24, S17
    let world = world(1, 1);
    let mac = world.mac(&world.scaleway().hosts()[0].id).unwrap();
    mac.set_agent_health(AgentHealth::NeverStarts);
    play(&world, async {
        reach("a failure", async || attempts(&world) == Some(1)).await;
        let first = mac.host_key();
        assert_eq!(pin(&world).await, Some(first.clone()), "although the run failed");
        // Another host at its address, which takes our key and our password.
        let password = stored(&world).await.data.unwrap()[owned::PASSWORD].0.clone();
        mac.wipe(&String::from_utf8(password).unwrap());
        let before = mac.call_counts().0;
        reach("another failure", async || attempts(&world) == Some(2)).await;
        let calls = mac.calls();
        let since = calls.iter().filter(|call| call.index >= before);
        let since: Vec<&str> = since.map(|call| call.what.as_str()).collect();
        assert!(!since.is_empty() && since.iter().all(|what| *what == "dial"), "{since:?}");
        assert_eq!(pin(&world).await, Some(first), "nobody but a wipe drops a pin");
        assert!(told(&world).contains("step wait for SSH failed"), "{}", told(&world));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn the_pin_of_an_exchanged_host_goes_with_it_beside_a_sealed_password_too() {
    // B24, S17, P20: else the tiers reboot and wipe one good host after the other.
    let world = world(2, 1);
    let hosts = world.scaleway().hosts();
    let health = |health| {
        for host in &hosts {
            world.mac(&host.id).unwrap().set_agent_health(health);
        }
    };
    health(AgentHealth::NeverStarts);
    play(&world, async {
        reach("a claim", async || machines(&world).first().is_some_and(|m| host(m).is_some()))
            .await;
        let first = host(&machines(&world)[0]);
        let mac = mac_of(&world, &machines(&world)[0]);
        reach("seven failures", async || attempts(&world) == Some(7)).await;
        let before = dials(&mac);
        reach("the last attempt", async || dials(&mac) > before).await;
        assert_eq!(pin(&world).await, Some(mac.host_key()));
        put(&world, owned::PASSWORD, "<sealed>").await;
        let given_up = async || machines(&world).first().is_some_and(|now| host(now) != first);
        reach("an exchange", given_up).await;
        health(AgentHealth::Runs);
        reach("a Machine Ready", async || ready(&world) == 1).await;
        let now = mac_of(&world, &machines(&world)[0]);
        assert_eq!(pin(&world).await, Some(now.host_key()));
        let wipes = world.scaleway().calls()[Operation::ReinstallServer.label()];
        assert_eq!(wipes, 1, "the next host was a good one");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_leaves_no_secret_however_useless_its_password() {
    // C5, B24, S17
    for useless in ["<sealed>", " <Sealed>\n", ""] {
        let world = world(1, 1);
        play(&world, async {
            reach("a Machine Ready", async || ready(&world) == 1).await;
            let name = secret_name(&world);
            assert!(pin(&world).await.is_some());
            put(&world, owned::PASSWORD, useless).await;
            scale(&world, 0).await;
            reach("no Machine", async || machines(&world).is_empty()).await;
            assert!(secrets(&world).get_opt(&name).await.unwrap().is_none(), "{useless:?}");
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_is_not_pinned_into_the_secret_of_the_next_host() {
    // B24, S17: the name is the Machine's, so a late run finds another host's Secret under it.
    while_it_waits(async |world, mac| {
        let old = stored(world).await;
        let name = old.name_any();
        secrets(world).delete(&name, &DeleteParams::default()).await.unwrap();
        let metadata = ObjectMeta { name: Some(name), ..ObjectMeta::default() };
        let next = Secret { metadata, data: old.data, ..Secret::default() };
        secrets(world).create(&PostParams::default(), &next).await.unwrap();
        mac.set_unreachable(false);
        reach_within(SOON, "a failure", async || attempts(world) == Some(1)).await;
        assert_eq!(pin(world).await, None);
        assert!(told(world).contains("of another host by now"), "{}", told(world));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_is_pinned_although_somebody_else_wrote_to_the_secret_meanwhile() {
    // B24, S17
    while_it_waits(async |world, mac| {
        put(world, "note", "by a person").await;
        mac.set_unreachable(false);
        reach_within(SOON, "a pin", async || pin(world).await == Some(mac.host_key())).await;
        assert_eq!(attempts(world), None, "by the first run");
        reach("a Machine Ready", async || ready(world) == 1).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_key_that_somebody_else_pinned_meanwhile_is_not_replaced() {
    // B24, S17
    while_it_waits(async |world, mac| {
        let other = HostKey(format!("SHA256:{}", "a".repeat(43)));
        put(world, owned::HOST_KEY, &other.0).await;
        mac.set_unreachable(false);
        reach_within(SOON, "a failure", async || attempts(world) == Some(1)).await;
        assert_eq!(pin(world).await, Some(other));
        assert!(told(world).contains("another key is pinned by now"), "{}", told(world));
    })
    .await;
}
