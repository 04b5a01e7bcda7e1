//! A look that went wrong is not an answer; and a disk without room.

use std::sync::Arc;

use applecart_mac::{Cause, FleetWide, HostConfig, Payload, Step, paths, scripts};
use applecart_sim::mac::{Open, SimMac, Verdict, tart_bundle};

use super::{
    FaultAt, PASSWORD, assert_converges, assert_nothing_leaked, converged, desired, fleet, host,
    run, shown,
};

/// How a look for processes can go wrong.
const TROUBLE: [(i32, &str); 3] = [
    (2, "pgrep: illegal option\n"),
    (3, "pgrep: Cannot get process list\n"),
    (1, "sudo: a password is required\n"),
];

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_look_that_failed_for_no_vm() {
    // S24
    for trouble in TROUBLE {
        let mac = converged().await;
        mac.set_vms(2);
        mac.set_pgrep_trouble(scripts::VM_PATTERN, Some(trouble));
        let newer = FleetWide { tart: tart_bundle("2.33.0"), ..fleet() };
        let newer = HostConfig::new(newer, host(PASSWORD)).unwrap();
        let error = run(&mac, &newer).await.unwrap_err();
        assert_eq!(error.step, Step::Tart, "{error:?}");
        assert!(error.explain().contains(trouble.1.trim()), "{}", error.explain());
        shown(&mac, &["pfctl", "-F", "rules"]).await;
        let error = run(&mac, &desired()).await.unwrap_err();
        assert_eq!(error.step, Step::Firewall, "{error:?}");
        let other = HostConfig::new(fleet(), host("another")).unwrap();
        let error = run(&mac, &other).await.unwrap_err();
        assert_eq!(error.step, Step::AutoLogin, "{error:?}");
        assert!(matches!(error.cause, Cause::Failed { .. }), "{error:?}");
        assert_eq!(mac.vms(), (2, true), "{trouble:?}");
        assert!(mac.has_session(), "{trouble:?}");
        mac.set_pgrep_trouble(scripts::VM_PATTERN, None);
        mac.set_vms(0);
        assert_converges(&mac, "it can be looked again").await;
    }
}

#[tokio::test(start_paused = true)]
async fn no_run_begins_where_nobody_can_tell_what_an_earlier_one_left() {
    // LH18
    let mac = SimMac::new("a", PASSWORD);
    let before = converged().await.calls();
    let index = before.iter().rfind(|call| call.mutates).expect("an effect").index;
    mac.set_gate(Arc::new(FaultAt { index, verdict: Verdict::LostRunning }));
    run(&mac, &desired()).await.unwrap_err();
    mac.set_gate(Arc::new(Open));
    for status in [2, 3] {
        let trouble = Some((status, "pgrep: Cannot get process list\n"));
        mac.set_pgrep_trouble(scripts::COMMAND_PATTERN, trouble);
        let effects = mac.call_counts().1;
        let error = run(&mac, &desired()).await.unwrap_err();
        assert_eq!(error.step, Step::Sudo, "{error:?}");
        let said = format!("pgrep ended with status {status}");
        assert!(error.explain().contains(&said), "{}", error.explain());
        assert_eq!(mac.call_counts().1, effects, "nothing was done");
    }
    mac.set_pgrep_trouble(scripts::COMMAND_PATTERN, None);
    assert_converges(&mac, "it can be looked again").await;
}

#[tokio::test(start_paused = true)]
async fn a_disk_without_room_is_told_by_a_step_and_mended_with_room() {
    let mac = SimMac::new("a", PASSWORD);
    mac.set_disk_full(true);
    let error = run(&mac, &desired()).await.unwrap_err();
    assert_eq!(error.step, Step::Sudo);
    assert!(error.explain().contains("No space left"), "{}", error.explain());
    assert_eq!(mac.wrong_passwords(), 0);
    mac.set_disk_full(false);
    run(&mac, &desired()).await.unwrap();
    mac.set_disk_full(true);
    let (agent, before) = (mac.file(paths::AGENT), mac.agent_pid());
    let newer = FleetWide { agent: Payload::new("agent 2"), ..fleet() };
    let newer = HostConfig::new(newer, host(PASSWORD)).unwrap();
    let refused = run(&mac, &newer).await;
    assert_eq!(refused.as_ref().unwrap_err().step, Step::AgentBinary);
    assert_eq!((mac.file(paths::AGENT), mac.agent_pid()), (agent, before), "it runs on");
    assert_nothing_leaked(&mac, &[Err(error), refused]);
    mac.set_disk_full(false);
    assert!(run(&mac, &newer).await.unwrap().converged());
    assert_converges(&mac, "room again").await;
}
