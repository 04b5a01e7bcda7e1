//! Returning hosts.

use super::*;

#[test]
fn a_job_is_waited_for_until_the_drain_time_out_and_no_longer() {
    let seen = with(deleting(bootstrapped()), |seen| {
        seen.node = Some(Node { cordoned: true, ..node() });
        seen.guests = vec![Guest { busy: true, ..guest("job") }];
    });
    let at = |minutes| effect_at(now() + Duration::from_mins(minutes), &seen);
    assert_eq!(at(59).reason.word(), "WaitingForJob");
    assert!(matches!(at(60).action, Some(Action::Rename { .. })));
}

#[test]
fn what_failed_before_the_deletion_does_not_hold_it_up() {
    // V1: a back-off of ten minutes was for another effect, and so is over.
    let failed_at = |at: Timestamp| {
        with(after_trouble(deleting(bound(NAME, ours()))), |seen| {
            seen.object.deleting_since = Some(minutes_ago(1));
            let trouble = seen.trouble.as_mut().expect("a trouble");
            (trouble.at, trouble.retry_at) = (at, now() + Duration::from_mins(9));
        })
    };
    assert!(matches!(effect(&failed_at(minutes_ago(2))).action, Some(Action::Rename { .. })));
    assert_eq!(effect(&failed_at(minutes_ago(0))).action, None, "LH21: its own is waited for");
    let behind = with(failed_at(minutes_ago(0)), |seen| {
        seen.object.deleting_since = Some(now() + Duration::from_mins(5));
    });
    assert_eq!(effect(&behind).action, None, "LH21: the API server's clock is ahead of ours");
}

#[test]
fn pods_of_a_wiped_mac_are_forced_and_freed_before_its_node_goes() {
    let releasing = NameClass::releasing(&fresh().marker());
    let wiped = Lease { wiped_at: Some(now()), releasing_at: Some(now()), ..ours() };
    let with_guest = |guest: Guest| {
        with(deleting(bound(&releasing, wiped.clone())), |seen| {
            seen.object.provider_id = prepared().object.provider_id;
            seen.node = Some(node());
            seen.guests = vec![guest];
        })
    };
    let left = Guest { busy: true, ..guest("job") };
    assert_eq!(effect(&with_guest(left.clone())).action, Some(delete_action(&left, true)));
    let forced = Guest { deleting: true, forced: true, ..left };
    assert!(matches!(effect(&with_guest(forced)).action, Some(Action::FreeGuest { .. })));
}

#[test]
fn a_host_is_wiped_to_the_newest_image_that_its_pin_accepts() {
    // P32, S14: a released host must fit the fleet that released it.
    let image = |id: &str, family: &str, version: &str, beta| Image {
        id: id.into(),
        name: format!("macos-{}-{version}", family.to_lowercase()),
        family: family.into(),
        version: version.into(),
        beta,
    };
    let wiped_to = |images: Vec<Image>| {
        let seen = with(deleting(releasing(0)), |seen| {
            seen.images = Images::Listed(images);
        });
        match effect(&seen).action {
            Some(Action::RequestWipe { image, .. }) => image,
            other => panic!("not wiped: {other:?}"),
        }
    };
    let catalogue = vec![
        image("old", "Tahoe", "26.9", false),
        image("new", "Tahoe", "26.10", false),
        image("beta", "Tahoe", "27.0", true),
        image("other", "Sequoia", "99.0", false),
    ];
    assert_eq!(wiped_to(catalogue.clone()).as_deref(), Some("new"));
    assert_eq!(wiped_to(vec![catalogue[3].clone()]), None, "the pin's images are withdrawn");
    let unread = with(deleting(releasing(0)), |seen| {
        seen.images = Images::Failed("503".into());
    });
    assert_eq!(effect(&unread).action, None);
}
