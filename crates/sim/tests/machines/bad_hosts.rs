//! Hosts on which a bootstrap fails, or that take no other name, and what is told of them.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use applecart_sim::faults::{Ahead, Class, Fault, Plan};

use super::*;

/// Failures in a row, as the object tells them.
fn attempts(world: &World) -> Option<i64> {
    machine(world)["status"]["bootstrapAttempts"].as_i64()
}

/// What became of a third failure.
struct Third {
    /// The step that told it.
    step: usize,
    /// When the host was rebooted.
    rebooted: Duration,
    /// How many failures had been counted by then.
    counted: Option<i64>,
    /// Reboots until the fourth failure.
    reboots: u64,
    /// Events of it.
    events: usize,
}

/// A Machine on a host that lets nobody in; the answer to this step is lost.
async fn fail_three_times(lost: Option<usize>) -> Third {
    let plan = move |ahead: &Ahead| (Some(ahead.number) == lost).then_some(Fault::LostAnswer);
    let faults = Faults::new(Plan::Chosen(Box::new(plan)));
    let world = world_with(1, 0, Some(faults.clone()));
    let step = Arc::new(Mutex::new(None));
    let (api, told) = (world.api().clone(), step.clone());
    faults.ask_after_effects(Box::new(move |step| {
        let is_third = |object: &Arc<Value>| object["status"]["bootstrapAttempts"] == json!(3);
        if api.objects(MACHINES).iter().any(is_third) {
            told.lock().expect("no panic").get_or_insert(step.number);
        }
        Ok(())
    }));
    let mut third =
        Third { step: 0, rebooted: Duration::ZERO, counted: None, reboots: 0, events: 0 };
    let began = Instant::now();
    during(&world, async {
        lock_all_out(&world);
        claim(&world).await;
        until(&world, "a reboot", || calls(&world, Operation::RebootServer) > 0).await;
        (third.rebooted, third.counted) = (began.elapsed(), attempts(&world));
        until(&world, "the fourth failure", || attempts(&world) == Some(4)).await;
        third.reboots = calls(&world, Operation::RebootServer);
        let events = world.api().objects("events");
        let said = |event: &&Arc<Value>| {
            let text = event["note"].as_str().or(event["message"].as_str()).unwrap_or_default();
            text.starts_with("bootstrap failed 3 times: ")
        };
        third.events = events.iter().filter(said).count();
    })
    .await;
    third.step = step.lock().expect("no panic").expect("a third failure");
    third
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_was_told_though_nobody_heard_so_counts_once_and_its_event_follows() {
    // LH21, O1: counted twice, it made the reboot and the exchange come one attempt early.
    let calm = fail_three_times(None).await;
    let lost = fail_three_times(Some(calm.step)).await;
    assert!(calm.events > 0, "it is told");
    for third in [&calm, &lost] {
        assert_eq!((third.counted, third.reboots, third.events), (Some(3), 1, calm.events));
    }
    let late = lost.rebooted.abs_diff(calm.rebooted);
    assert!(late < Duration::from_secs(30), "{late:?} from its time");
}

#[tokio::test(start_paused = true)]
async fn what_kubernetes_denies_is_told_once_and_holds_nothing_up_afterwards() {
    // O1, LH25: else a deletion that it holds up tells why it waited before.
    let (denied, told) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_denied, tries) = (denied.clone(), told.clone());
    let plan = move |ahead: &Ahead| {
        if !is_denied.load(Ordering::Relaxed) {
            return None;
        }
        tries.fetch_add(usize::from(ahead.class == Class::Effect), Ordering::Relaxed);
        (ahead.class == Class::Read).then_some(Fault::Denied)
    };
    let faults = Faults::new(Plan::Chosen(Box::new(plan)));
    let world = world_with(1, 1, Some(faults));
    during(&world, async {
        ready(&world).await;
        denied.store(true, Ordering::Relaxed);
        scale(&world, 0).await;
        let says = || machine(&world)["status"]["lastReason"].as_str().map(str::to_owned);
        let is_told = || says().is_some_and(|told| told.ends_with("see its ClusterRole"));
        until(&world, "what is denied", is_told).await;
        assert!(says().is_some_and(|told| told.starts_with("could not read")), "{:?}", says());
        let before = told.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(told.load(Ordering::Relaxed), before, "it is told again");
        denied.store(false, Ordering::Relaxed);
        gone(&world).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_locked_when_it_is_wiped_holds_its_machine_for_a_while_only() {
    // V5: eight failures, wiped, and then it takes no name of its pool.
    let world = world(2, 0);
    during(&world, async {
        lock_all_out(&world);
        let bad = claim(&world).await;
        let pool = world.scaleway().hosts();
        let good = pool.iter().find(|h| h.name.starts_with(POOL_PREFIX)).expect("another").clone();
        until(&world, "a wipe", || fact(&world, &bad, lease::WIPED_AT).is_string()).await;
        let locked = Answer::error("locked").expect("a typed error");
        let rule = Rule::next(Operation::UpdateServer, Verdict::FailBefore(locked));
        world.scaleway().add_rule(rule.on(&bad).for_ever());
        world.mac(&good.id).expect("a Mac").authorize(world.scaleway().public_keys());
        assert_eq!(ready(&world).await.id, good.id);
        assert_eq!(fact(&world, &bad, lease::QUARANTINED), json!("true"));
        assert!(host(&world, &bad).name.starts_with("tuist-release-pending-"));
        // It is not taken back: its Machine has a host, and later has none.
        scale(&world, 0).await;
        gone(&world).await;
        assert_eq!(world.scaleway().wipes(&bad), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_deleted_later_and_takes_no_name_until_then_holds_up_no_deletion() {
    // P15, V1: inside the licensing floor, and locked as soon as its end was scheduled.
    let world = world(0, 0);
    during(&world, async {
        let young = world.scaleway().order_host(&HostSpec {
            os: Some("macos-tahoe-26.0".to_owned()),
            ordered_ago: Duration::ZERO,
            ..HostSpec::named(format!("{POOL_PREFIX}young"))
        });
        claim(&world).await;
        annotate(&world, json!({annotation::RELEASE_POLICY: "terminate"})).await;
        let locked = Answer::error("locked").expect("a typed error");
        let rule = Rule::next(Operation::UpdateServer, Verdict::FailBefore(locked));
        // The first change of it schedules its end.
        world.scaleway().add_rule(rule.on(&young).nth(2).for_ever());
        let began = Instant::now();
        scale(&world, 0).await;
        gone(&world).await;
        let took = began.elapsed();
        assert!(took < Duration::from_hours(1), "{took:?}");
        assert!(host(&world, &young).deletion_scheduled);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_reboot_whose_answer_is_lost_is_not_asked_for_again_while_it_may_be_on_its_way() {
    // S12: it was granted, and comes a minute later than anybody hears of it.
    let world = world(1, 0);
    during(&world, async {
        lock_all_out(&world);
        let late = Verdict::Delay(Duration::from_mins(1));
        world.scaleway().add_rule(Rule::next(Operation::RebootServer, late));
        claim(&world).await;
        until(&world, "the fourth failure", || attempts(&world) == Some(4)).await;
        assert_eq!(calls(&world, Operation::RebootServer), 1);
        assert_eq!(machine(&world)["status"]["bootstrapRebootIssued"], json!(true));
    })
    .await;
}
