//! No release lasts for ever.

use super::*;

const IMAGES: Dimension = (4, |seen, way| {
    let image = |id: &str, name: &str, family: &str| Image {
        id: id.into(),
        name: name.into(),
        family: family.into(),
        version: "26.3".into(),
        beta: false,
    };
    let tahoe = image("tahoe", "macos-tahoe-26.3", "Tahoe");
    seen.images = match way {
        0 => Images::Listed(vec![]),
        1 => Images::Listed(vec![tahoe]),
        2 => Images::Failed("503".into()),
        _ => Images::NotRead,
    };
});
/// What was told last, and since when.
const SAID: Dimension = (4, |seen, way| {
    seen.object.status = ScalewayAppleSiliconMachineStatus::default();
    match way {
        0 => {}
        1 => say(seen, &Reason::CannotWipe("x".into()), seconds_ago(59)),
        2 => say(seen, &Reason::CannotWipe("x".into()), seconds_ago(60)),
        _ => say(seen, &Reason::Quarantined("x".into()), now()),
    }
});

/// Every state of a host that has been on its way back for longer than anybody waits.
const OVERDUE: &[Dimension] = &[
    BARE,
    (1, |seen, _| {
        NAMES.1(seen, 1);
        RELEASING.1(seen, 2);
    }),
    (2, |seen, way| seen.object.deleting_since = [None, Some(minutes_ago(32))][way]),
    STATE,
    RETIRING,
    PREFIX,
    TROUBLE,
    DOOM,
    (2, |seen, way| {
        the_lease(seen).delete_requested_at = [None, Some(minutes_ago(32))][way];
    }),
    WIPED,
    IMAGES,
    SAID,
];

#[test]
fn every_state_of_a_release_that_is_overdue_guards_what_it_does_to_a_host() {
    // G6, V1
    assert_guarded(OVERDUE, &[&["RequestWipe", "NoteWiped", "NoteQuarantined", "Rename"]]);
}

#[test]
fn no_wipe_that_is_overdue_is_asked_for_again_and_again() {
    // G6, V1: granted each time, and never seen to run.
    let limits = Limits::default();
    let mut asked = 0;
    every_state(OVERDUE, |seen| {
        let decision = decide::next(now(), seen, &limits);
        let is_wipe = |action: &Option<Action>| matches!(action, Some(Action::RequestWipe { .. }));
        if !is_wipe(&decision.action) {
            return;
        }
        asked += 1;
        let told = status::status(now(), seen, &decision);
        let granted = with(seen.clone(), |seen| {
            seen.object.status = told;
            seen.trouble = None;
        });
        let told = decide::next(now(), &granted, &limits);
        let told = status::status(now(), &granted, &told);
        let granted = with(granted, |seen| seen.object.status = told);
        let later = decide::next(now() + limits.insist, &granted, &limits);
        assert!(!is_wipe(&later.action), "{later:?} in {granted:#?}");
    });
    assert!(asked > 0, "it is asked for at all");
}
