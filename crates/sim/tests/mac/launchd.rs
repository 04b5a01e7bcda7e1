//! launchd, and what it makes of jobs.

use std::time::Duration;

use applecart_mac::{FleetWide, HostConfig, Payload, PerHost, Step, paths};
use applecart_sim::mac::{AgentHealth, SimMac};
use tokio::time::advance;

use super::{
    PASSWORD, assert_converges, changed, converged, desired, fleet, host, run, shown, updates,
};

const AGENT: &str = "system/dev.tuist.tart-kubelet";

#[tokio::test(start_paused = true)]
async fn a_kick_that_does_nothing_is_told_and_so_is_a_job_that_a_reload_lost() {
    // B9
    let binary =
        HostConfig::new(FleetWide { agent: Payload::new("agent 2"), ..fleet() }, host(PASSWORD));
    let definition = HostConfig::new(fleet(), PerHost { cpu: 4, ..host(PASSWORD) });
    for (health, update, said) in [
        (AgentHealth::KickIgnored, binary.unwrap(), "launchd did not restart the agent"),
        (AgentHealth::LostOnReload, definition.unwrap(), "launchd has lost the agent's job"),
    ] {
        let mac = converged().await;
        mac.set_agent_health(health);
        for _ in 0..2 {
            let error = run(&mac, &update).await.unwrap_err();
            assert_eq!(error.step, Step::AgentJob, "{health:?}");
            assert!(error.explain().contains(said), "{}", error.explain());
        }
        mac.set_agent_health(AgentHealth::Runs);
        assert!(run(&mac, &update).await.unwrap().converged(), "{health:?}");
        assert!(mac.agent_pid().is_some(), "{health:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_somebody_disabled_is_enabled_before_it_is_put_in() {
    let mac = converged().await;
    shown(&mac, &["launchctl", "disable", AGENT]).await;
    shown(&mac, &["launchctl", "bootout", AGENT]).await;
    advance(Duration::from_secs(2)).await;
    let bootstrap = ["launchctl", "bootstrap", "system", paths::AGENT_PLIST];
    shown(&mac, &bootstrap).await;
    assert_eq!(mac.agent_pid(), None, "launchd refuses it");
    mac.reboot();
    assert_eq!(mac.agent_pid(), None, "at boot too");
    advance(Duration::from_secs(5)).await;
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::AgentJob]);
    assert_converges(&mac, "enabled").await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_right_after_a_start_takes_its_time_and_is_waited_for() {
    let mac = SimMac::new("a", PASSWORD);
    run(&mac, &desired()).await.unwrap();
    let before = mac.agent_pid();
    shown(&mac, &["launchctl", "kickstart", "-k", AGENT]).await;
    assert_eq!(mac.agent_pid(), None, "launchd throttles");
    advance(Duration::from_secs(10)).await;
    assert!(mac.agent_pid().is_some() && mac.agent_pid() != before);
    for update in updates() {
        assert!(run(&mac, &update).await.unwrap().converged());
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_label_in_another_domain_is_another_job_and_ends_with_its_session() {
    let mac = converged().await;
    let job = "dev.tuist.tart-kubelet";
    let plist = "/Users/m1/Library/LaunchAgents/own.plist";
    let text = format!(
        "<plist><key>Label</key><string>{job}</string><key>ProgramArguments</key>\
         <array><string>{}</string></array></plist>",
        paths::AGENT
    );
    mac.put_file(plist, text);
    mac.give(plist, "m1:staff", 0o644);
    shown(&mac, &["launchctl", "bootstrap", "gui/501", plist]).await;
    let print = ["launchctl", "print", "gui/501/dev.tuist.tart-kubelet"];
    assert!(shown(&mac, &print).await.contains("pid = "));
    let before = mac.agent_pid();
    mac.kill_loginwindow();
    assert_eq!(shown(&mac, &print).await, "");
    assert_eq!(mac.agent_pid(), before, "the system's is there as before");
}

#[tokio::test(start_paused = true)]
async fn folders_that_became_anothers_cost_the_agent_no_restart() {
    let mac = converged().await;
    let before = mac.agent_pid();
    mac.give_away(paths::VM_LOGS);
    assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::AgentJob]);
    assert_eq!(mac.agent_pid(), before);
    assert_converges(&mac, "folders").await;
}
