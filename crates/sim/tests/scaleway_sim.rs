//! The simulated Scaleway, in-process and under virtual time, through the real client.

#[path = "support/scaleway_key.rs"]
mod scaleway_key;
#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_scaleway::{Client, ErrorKind, Order, Retry, ServerStatus, Stock};
use applecart_sim::scaleway::{HostSpec, Operation, Rule, Settings, Verdict};
use scaleway_key::KEY;
use scaleway_world::{world, zone};
use secrecy::ExposeSecret;
use tokio::time::sleep;
use tower::ServiceExt;

async fn password(client: &Client, id: &ServerId) -> String {
    let server = client.server(&zone(), id).await.unwrap();
    server.password.unwrap().expose_secret().to_owned()
}

#[tokio::test(start_paused = true)]
async fn a_new_host_is_delivered_after_a_while_and_its_password_comes_from_a_read_alone() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let order = Order { name: "box".into(), server_type: "M4-M".into(), os: None };
    let made = client.create(&zone(), &order).await.unwrap();
    assert_eq!((made.status, made.delivered), (ServerStatus::Starting, false));
    assert!(made.password.is_none(), "sealed in the answer to a create");
    assert!(made.ip.is_some());
    let starting = client.server(&zone(), &made.id).await.unwrap();
    assert!(starting.password.is_some(), "told by a read, already while it starts");
    sleep(Duration::from_secs(129)).await;
    assert_eq!(client.server(&zone(), &made.id).await.unwrap().status, ServerStatus::Starting);
    sleep(Duration::from_secs(2)).await;
    let ready = client.server(&zone(), &made.id).await.unwrap();
    assert_eq!((ready.status, ready.delivered), (ServerStatus::Ready, true));
    assert!(ready.updated_at > starting.updated_at);
}

#[tokio::test(start_paused = true)]
async fn a_wipe_gives_a_new_password_and_host_key_and_never_takes_delivered_back() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let id = scaleway.order_host(&HostSpec::named("tuist-pool-1"));
    let (before, mac) = (password(&client, &id).await, scaleway.mac_secrets(&id).unwrap());
    assert_eq!(before, mac.password.expose_secret());
    let wiped = client.reinstall(&zone(), &id, None).await.unwrap();
    assert_eq!((wiped.status, wiped.delivered), (ServerStatus::Reinstalling, true));
    assert!(wiped.password.is_none());
    assert_eq!((scaleway.wipes(&id), scaleway.host(&id).unwrap().power_cycles), (1, 1));
    let refused = client.reinstall(&zone(), &id, None).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::TransientState { state: ServerStatus::Reinstalling });
    assert_eq!(refused.class(), Retry::WaitForChange);
    sleep(Duration::from_mins(20)).await;
    assert_eq!(client.server(&zone(), &id).await.unwrap().status, ServerStatus::Ready);
    let after = scaleway.mac_secrets(&id).unwrap();
    assert_ne!(password(&client, &id).await, before);
    assert_eq!(password(&client, &id).await, after.password.expose_secret());
    assert_ne!(after.host_key, mac.host_key);
}

#[tokio::test(start_paused = true)]
async fn a_reboot_cycles_the_power_and_keeps_disk_and_password() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let id = scaleway.order_host(&HostSpec::named("box"));
    let before = password(&client, &id).await;
    let rebooting = client.reboot(&zone(), &id).await.unwrap();
    assert_eq!((rebooting.status, rebooting.delivered), (ServerStatus::Rebooting, true));
    assert!(rebooting.password.is_none());
    sleep(Duration::from_secs(105)).await;
    let host = scaleway.host(&id).unwrap();
    assert_eq!((host.status, host.generation, host.power_cycles), (ServerStatus::Ready, 0, 1));
    assert_eq!(password(&client, &id).await, before);
}

#[tokio::test(start_paused = true)]
async fn a_host_inside_its_floor_says_when_it_ends_and_goes_then_if_scheduled() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let spec = HostSpec { ordered_ago: Duration::from_hours(1), ..HostSpec::named("box") };
    let id = scaleway.order_host(&spec);
    let seen = client.server(&zone(), &id).await.unwrap();
    let refused = client.delete(&zone(), &id).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Precondition { deletable_at: seen.deletable_at });
    assert!(seen.deletable_at.is_some());
    assert!(client.schedule_deletion(&zone(), &id).await.unwrap().deletion_scheduled);
    sleep(Duration::from_hours(23) - Duration::from_secs(1)).await;
    assert_eq!(client.list_servers(&zone()).await.unwrap().len(), 1);
    sleep(Duration::from_secs(1)).await;
    assert!(client.list_servers(&zone()).await.unwrap().is_empty());
    let gone = client.server(&zone(), &id).await.unwrap_err();
    assert_eq!(gone.kind, ErrorKind::Permission, "a deleted server answers 403");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_unknown_whether_or_not_the_call_was_performed() {
    for (verdict, name) in [
        (Verdict::LoseBefore, "old"),
        (Verdict::LoseAfter, "new"),
        (Verdict::HangBefore, "old"),
        (Verdict::HangAfter, "new"),
    ] {
        let scaleway = world(Settings::new(1));
        let id = scaleway.order_host(&HostSpec::named("old"));
        scaleway.add_rule(Rule::next(Operation::UpdateServer, verdict.clone()));
        let client = scaleway.client();
        let error = client.rename(&zone(), &id, "new").await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unknown, "{verdict:?}");
        assert_eq!(scaleway.host(&id).unwrap().name, name, "{verdict:?}");
        assert_eq!(scaleway.calls()["update_server"], 1, "a write is sent once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_delayed_call_lands_even_after_its_caller_gave_up() {
    let scaleway = world(Settings::new(1));
    let id = scaleway.order_host(&HostSpec::named("old"));
    let late = Verdict::Delay(Duration::from_secs(12));
    scaleway.add_rule(Rule::next(Operation::UpdateServer, late));
    let error = scaleway.client().rename(&zone(), &id, "new").await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unknown);
    assert_eq!(scaleway.host(&id).unwrap().name, "old");
    sleep(Duration::from_secs(2)).await;
    assert_eq!(scaleway.host(&id).unwrap().name, "new");
    let slow = Verdict::Delay(Duration::from_secs(5));
    scaleway.add_rule(Rule::next(Operation::UpdateServer, slow));
    let started = tokio::time::Instant::now();
    assert_eq!(scaleway.client().rename(&zone(), &id, "newer").await.unwrap().name, "newer");
    assert_eq!(started.elapsed(), Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn an_image_other_than_the_default_takes_an_hour_and_macos_stays_macos() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let images = client.list_os(&zone(), Some("M4-M")).await.unwrap();
    let tahoe = images.iter().find(|os| os.family == "Tahoe").unwrap();
    let os = Some(tahoe.id.clone());
    let order = Order { name: "box".into(), server_type: "M4-M".into(), os };
    let id = client.create(&zone(), &order).await.unwrap().id;
    sleep(Duration::from_mins(59)).await;
    assert_eq!(scaleway.host(&id).unwrap().status, ServerStatus::Starting);
    sleep(Duration::from_mins(1)).await;
    assert_eq!(scaleway.host(&id).unwrap().status, ServerStatus::Ready);
    let all = client.list_os(&zone(), None).await.unwrap();
    let linux = all.iter().find(|os| os.family == "Linux").unwrap();
    let refused = client.reinstall(&zone(), &id, Some(&linux.id)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::InvalidArgument);
    assert_eq!(scaleway.wipes(&id), 0);
}

#[tokio::test(start_paused = true)]
async fn a_withdrawn_image_cannot_be_asked_for_and_the_default_moves_on() {
    // P32
    let mut settings = Settings::new(1);
    settings.unsure.os_follows_reinstall = applecart_sim::scaleway::Accepts::Yes;
    let scaleway = world(settings);
    let client = scaleway.client();
    let id = scaleway.order_host(&HostSpec::named("box"));
    let pinned = client.server(&zone(), &id).await.unwrap().os.unwrap();
    scaleway.withdraw_image(&pinned.id);
    let refused = client.reinstall(&zone(), &id, Some(&pinned.id)).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::NotFound);
    client.reinstall(&zone(), &id, None).await.unwrap();
    let types = client.list_server_types(&zone()).await.unwrap();
    let default = types.iter().find(|kind| kind.name == "M2-L").unwrap().default_os.clone();
    assert_eq!(client.server(&zone(), &id).await.unwrap().os.unwrap().name, default.unwrap().name);
}

#[tokio::test(start_paused = true)]
async fn stock_and_quota_end_and_say_so() {
    let quotas = std::collections::BTreeMap::from([("M4-S".to_owned(), 1)]);
    let scaleway = world(Settings { quotas: quotas.clone(), ..Settings::new(1) });
    let client = scaleway.client();
    let order = |kind: &str| Order { name: "box".into(), server_type: kind.into(), os: None };
    scaleway.set_stock(&zone(), "M4-M", 1);
    let stock = async |kind: &str| {
        let types = client.list_server_types(&zone()).await.unwrap();
        types.into_iter().find(|found| found.name == kind).unwrap().stock
    };
    assert_eq!(stock("M4-M").await, Stock::LowStock);
    client.create(&zone(), &order("M4-M")).await.unwrap();
    assert_eq!(stock("M4-M").await, Stock::NoStock);
    let refused = client.create(&zone(), &order("M4-M")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::OutOfStock);
    assert_eq!(stock("M4-S").await, Stock::HighStock);
    client.create(&zone(), &order("M4-S")).await.unwrap();
    let refused = client.create(&zone(), &order("M4-S")).await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Quota);
    let project = Some("another-project".parse().unwrap());
    let theirs = |kind: &str| HostSpec {
        server_type: kind.into(),
        project: project.clone(),
        ..HostSpec::named("box")
    };
    let scaleway = world(Settings { quotas, ..Settings::new(1) });
    scaleway.order_host(&theirs("M4-S"));
    let client = scaleway.client();
    client.create(&zone(), &order("M4-S")).await.expect("another project's count apart");
    let elsewhere = client.create(&zone(), &order("M1-M")).await.unwrap_err();
    assert_eq!(elsewhere.kind, ErrorKind::InvalidArgument, "M1 stands in another zone");
}

#[tokio::test(start_paused = true)]
async fn another_projects_host_is_neither_listed_nor_touched() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let project = Some("another-project".parse().unwrap());
    let id = scaleway.order_host(&HostSpec { project, ..HostSpec::named("theirs") });
    assert!(client.list_servers(&zone()).await.unwrap().is_empty());
    assert_eq!(client.server(&zone(), &id).await.unwrap_err().kind, ErrorKind::Permission);
    let refused = client.rename(&zone(), &id, "ours").await.unwrap_err();
    assert_eq!(refused.kind, ErrorKind::Permission);
    assert_eq!(scaleway.host(&id).unwrap().name, "theirs");
}

#[tokio::test(start_paused = true)]
async fn the_last_rename_wins_whatever_the_name_was() {
    let scaleway = world(Settings::new(1));
    let (one, two) = (scaleway.client(), scaleway.client());
    let id = scaleway.order_host(&HostSpec::named("tuist-pool-1"));
    one.rename(&zone(), &id, "mine").await.unwrap();
    assert_eq!(two.rename(&zone(), &id, "yours").await.unwrap().name, "yours");
    scaleway.rename_host(&id, "a person's");
    assert_eq!(one.server(&zone(), &id).await.unwrap().name, "a person's");
}

#[tokio::test(start_paused = true)]
async fn a_key_loses_its_comment_and_is_found_by_its_exact_name() {
    let scaleway = world(Settings::new(1));
    let client = scaleway.client();
    let made = client.create_ssh_key("fleet", &format!("{KEY} me@home")).await.unwrap();
    assert_eq!(made.public_key, KEY);
    assert!(made.is(&format!("{KEY} somebody@else")));
    let other = KEY.replace("HR4f", "HR4e");
    assert!(!made.is(&other));
    client.create_ssh_key("fleet-two", &other).await.unwrap();
    assert_eq!(client.ssh_keys("fleet").await.unwrap(), std::slice::from_ref(&made));
    client.delete_ssh_key(&made.id).await.unwrap();
    assert!(client.ssh_keys("fleet").await.unwrap().is_empty());
    let again = client.delete_ssh_key(&made.id).await.unwrap_err();
    assert_eq!(again.kind, ErrorKind::NotFound);
    let cut = &KEY[..KEY.len() - 4];
    for broken in ["ssh-tulip AAAA", "ssh-ed25519", "ssh-ed25519 AAAA", "ssh-rsa AAAA", cut] {
        let refused = client.create_ssh_key("fleet", broken).await.unwrap_err();
        assert_eq!(refused.kind, ErrorKind::InvalidArgument, "{broken}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_world_byte_for_byte() {
    let story = async |seed: u64| {
        let scaleway = world(Settings::new(seed));
        let client = scaleway.client();
        let id = scaleway.order_host(&HostSpec::named("box"));
        client.reinstall(&zone(), &id, None).await.unwrap();
        sleep(Duration::from_hours(1)).await;
        let request =
            http::Request::get(format!("/apple-silicon/v1alpha1/zones/fr-par-1/servers/{id}"))
                .header("x-auth-token", Settings::new(seed).secret_key.expose_secret())
                .body(bytes::Bytes::new())
                .unwrap();
        let answer = scaleway.service().oneshot(request).await.unwrap();
        format!("{:?} {:?}", answer.headers(), answer.body())
    };
    assert_eq!(story(7).await, story(7).await);
    assert_ne!(story(7).await, story(8).await);
}
