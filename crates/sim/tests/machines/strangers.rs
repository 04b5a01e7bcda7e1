//! What a list proves that shows hosts, and none of ours.

use super::*;

/// What another project's key gets: it may read no host of ours, and sees one that we never had.
fn use_a_strangers_key(world: &World) {
    let id = "7fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
    let theirs = json!({
        "id": id, "name": "staging-mac", "type": "M2-L", "status": "ready", "zone": "fr-par-1",
        "project_id": id, "delivered": true,
    });
    let list = Answer::ok(&json!({"servers": [theirs], "total_count": 1}));
    let denied = Answer::error("permissions_denied").expect("a typed error");
    for (operation, answer) in [(Operation::GetServer, denied), (Operation::ListServers, list)] {
        let rule = Rule::next(operation, Verdict::FailBefore(answer));
        world.scaleway().add_rule(rule.for_ever());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_another_project_that_has_hosts_makes_nobody_believe_that_ours_are_gone() {
    // S10: its lists show something, and all the same nothing of ours.
    let world = world(2, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        use_a_strangers_key(&world);
        scale(&world, 0).await;
        tokio::time::sleep(Duration::from_mins(25)).await;
        let told = machine(&world)["status"]["lastReason"].clone();
        assert!(told.as_str().is_some_and(|told| told.starts_with("could not read")), "{told}");
        world.scaleway().clear_rules();
        gone(&world).await;
        assert_eq!(world.scaleway().wipes(&claimed.id), 1);
        assert_eq!(host(&world, &claimed.id).name, format!("{POOL_PREFIX}{}", claimed.id));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_had_the_only_host_that_is_gone_is_not_kept_waiting_for_ever() {
    // V1: the list shows hosts of others, and none of ours, for there is none.
    let world = world(1, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        world.scaleway().delete_host(&claimed.id);
        assert!(!world.scaleway().hosts().is_empty(), "there are others");
        let began = Instant::now();
        scale(&world, 0).await;
        gone(&world).await;
        let took = began.elapsed();
        assert!(took > Duration::from_mins(29) && took < Duration::from_mins(33), "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_gave_the_only_host_up_is_kept_waiting_by_no_list() {
    // Its deletion was asked for: that it is gone is no surprise.
    let world = world(1, 1);
    during(&world, async {
        let claimed = ready(&world).await;
        annotate(&world, json!({annotation::RELEASE_POLICY: annotation::TERMINATE})).await;
        let began = Instant::now();
        scale(&world, 0).await;
        gone(&world).await;
        assert!(world.scaleway().hosts().iter().all(|host| host.id != claimed.id), "it is deleted");
        assert!(began.elapsed() < Duration::from_mins(5), "{:?}", began.elapsed());
    })
    .await;
}
