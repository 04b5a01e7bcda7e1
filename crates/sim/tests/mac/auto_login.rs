//! The login that proves a password, and what a wrong one costs: nothing.

use super::*;

/// The password that macOS would log in with.
fn on_disk(mac: &SimMac) -> Option<String> {
    kcpassword::decode(&mac.file(paths::KCPASSWORD)?.0)
}

fn wrong() -> HostConfig {
    HostConfig::new(fleet(), host("wrong")).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_wrong_auto_login_password_fails_loudly_twice_at_most_and_the_right_one_mends_it() {
    // B4, S18, S23
    let mac = SimMac::new("a", PASSWORD);
    mac.put_file("/etc/sudoers.d/m1-nopasswd", "m1 ALL=(ALL) NOPASSWD: ALL\n");
    for tries in 1..5 {
        let error = run(&mac, &wrong()).await.unwrap_err();
        let sealed = matches!(error.cause, Cause::AutoLoginSealed);
        assert!(sealed || tries > 2 && matches!(error.cause, Cause::PasswordRefused), "{error:?}");
        assert_eq!(error.next(), Next::NewPassword);
        assert_eq!(mac.wrong_passwords(), tries.min(2));
    }
    assert!(run(&mac, &desired()).await.unwrap().converged());
    assert_is_a_node(&mac);
}

#[tokio::test(start_paused = true)]
async fn a_mistyped_password_costs_a_healthy_host_nothing_wherever_the_run_is_cut_off() {
    // T1, B4: macOS replaces a wrong auto-login file by a marker, and the next boot has no session.
    let reference = converged().await;
    let before = reference.call_counts().0;
    let error = run(&reference, &wrong()).await.unwrap_err();
    assert!(matches!(error.cause, Cause::AutoLoginSealed), "{error:?}");
    assert!(reference.has_session());
    assert_eq!(on_disk(&reference).as_deref(), Some(PASSWORD));
    for index in before..reference.call_counts().0 {
        for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
            let mac = converged().await;
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            for _ in 0..4 {
                run(&mac, &wrong()).await.unwrap_err();
            }
            assert!(mac.wrong_passwords() <= 2, "call {index} {verdict:?}");
            assert!(mac.has_session(), "call {index} {verdict:?}");
            assert_eq!(on_disk(&mac).as_deref(), Some(PASSWORD), "call {index} {verdict:?}");
            assert!(run(&mac, &desired()).await.unwrap().converged(), "call {index} {verdict:?}");
            assert_is_a_node(&mac);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_session_of_before_proves_nothing_however_long_it_stays() {
    // T1, B4, S23: a new loginwindow is there before the old session is gone and the file sealed.
    let mac = converged().await;
    let error = run(&mac, &wrong()).await.unwrap_err();
    assert!(matches!(error.cause, Cause::AutoLoginSealed), "{error:?}");
    assert_eq!((on_disk(&mac).as_deref(), mac.has_session()), (Some(PASSWORD), true));
    assert!(mac.file(paths::LOGIN_PENDING).is_none());
    let began = tokio::time::Instant::now();
    assert!(!run(&mac, &desired()).await.unwrap().changed());
    assert!(began.elapsed() < Duration::from_secs(5), "a host that is well is not waited for");
}

#[tokio::test(start_paused = true)]
async fn under_running_vms_the_auto_login_password_stays_as_it_is() {
    // S24
    let mac = converged().await;
    mac.set_vms(2);
    let report = run(&mac, &wrong()).await.unwrap();
    assert!(report.postponed().is_some_and(|why| why.contains("password")), "{report:?}");
    assert_eq!((on_disk(&mac).as_deref(), mac.vms().0), (Some(PASSWORD), 2));
}

#[tokio::test(start_paused = true)]
async fn a_new_password_is_proven_by_a_new_session_and_the_old_one_does_not_count() {
    let new = HostConfig::new(fleet(), host("new")).unwrap();
    let reference = converged().await;
    let before = reference.call_counts().0;
    reference.set_password("new");
    assert!(run(&reference, &new).await.unwrap().converged());
    for index in before..reference.call_counts().0 {
        for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
            let mac = converged().await;
            mac.set_password("new");
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            run(&mac, &new).await.unwrap_err();
            assert!(run(&mac, &new).await.unwrap().converged(), "call {index} {verdict:?}");
            assert_is_a_node(&mac);
            assert_eq!((on_disk(&mac).as_deref(), mac.wrong_passwords()), (Some("new"), 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_session_comes_up_from_every_state_of_the_login_window() {
    // B3, T2
    for case in 0..16 {
        let (dead, refused, kills) = (case & 1 > 0, case & 2 > 0, case & 4 > 0);
        let untold = case & 8 > 0;
        let mac = SimMac::new("a", PASSWORD);
        mac.set_login_window_untold(untold);
        mac.set_kickstart_refused(refused);
        mac.set_hang_up_kills(kills);
        if dead {
            mac.kill_loginwindow();
        }
        let what = format!("dead {dead}, refused {refused}, kills {kills}, untold {untold}");
        assert_converges(&mac, &what).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_login_window_that_nothing_restarts_is_told_and_the_old_password_stays() {
    let mac = converged().await;
    mac.set_login_window_stuck(true);
    mac.set_password("new");
    let new = HostConfig::new(fleet(), host("new")).unwrap();
    let error = run(&mac, &new).await.unwrap_err();
    assert_eq!(error.step, Step::AutoLogin, "{error:?}");
    assert_eq!((mac.has_session(), on_disk(&mac).as_deref()), (true, Some(PASSWORD)));
    mac.set_login_window_stuck(false);
    assert!(run(&mac, &new).await.unwrap().converged());
    assert_is_a_node(&mac);
}
