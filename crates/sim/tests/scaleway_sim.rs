//! The simulated Scaleway, in-process and under virtual time, through the real client.

#[path = "support/scaleway_world.rs"]
mod scaleway_world;

use std::time::Duration;

use applecart_scaleway::{ErrorKind, Order, Retry, ServerStatus};
use applecart_sim::scaleway::{HostSpec, Operation, Rule, Settings, Verdict};
use scaleway_world::{password, world, zone};
use secrecy::ExposeSecret;
use tokio::time::sleep;

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
}
