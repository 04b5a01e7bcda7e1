//! A host that builds images: its own GitHub Actions runner.

use std::sync::Arc;
use std::time::Duration;

use applecart_mac::{Command, Done, GithubRunner, HostConfig, Mac, PerHost, Step, paths, scripts};
use applecart_sim::mac::{AgentHealth, Open, SimMac, Verdict};
use tokio::time::advance;

use super::{
    FaultAt, PASSWORD, TOKEN, assert_nothing_leaked, changed, converged, fleet, host, run, shown,
};

const JOB: &str = "actions.runner.tuist.mac-a";

fn builder(labels: &str, version: &str, token: &str) -> HostConfig {
    let runner = GithubRunner::new("https://github.com", "tuist", labels, version, token.into());
    let github_runner = Some(runner.unwrap());
    HostConfig::new(fleet(), PerHost { github_runner, ..host(PASSWORD) }).unwrap()
}

fn content(mac: &SimMac, path: &str) -> String {
    String::from_utf8(mac.file(path).expect("it is there").0.to_vec()).unwrap()
}

fn usual() -> HostConfig {
    builder("macos,builder", "2.334.0", TOKEN)
}

#[tokio::test(start_paused = true)]
async fn a_builder_registers_once_comes_back_after_a_reboot_and_tells_no_token() {
    let mac = converged().await;
    let report = run(&mac, &usual()).await;
    assert_eq!(changed(report.as_ref().unwrap()), [Step::GithubRunner]);
    assert_eq!(
        content(&mac, paths::RUNNER_REGISTERED),
        "https://github.com/tuist mac-a macos,builder\n"
    );
    assert!(mac.job_runs(JOB));
    let zshenv = content(&mac, paths::ZSHENV);
    assert!(zshenv.contains("TUIST_MIX_BUILD_ROOT=/opt/tuist-build-cache"));
    assert!(!run(&mac, &builder("macos,builder", "2.999.0", "spent")).await.unwrap().changed());
    assert_nothing_leaked(&mac, &[report]);
    mac.reboot();
    assert!(mac.job_runs(JOB), "its job starts with the session");
    advance(Duration::from_secs(5)).await;
    assert!(!run(&mac, &usual()).await.unwrap().changed());
}

#[tokio::test(start_paused = true)]
async fn other_labels_register_anew_but_never_under_a_running_job() {
    let mac = converged().await;
    run(&mac, &usual()).await.unwrap();
    let wanted = builder("macos,other", "2.334.0", "a new token");
    mac.set_runner_job(true);
    let report = run(&mac, &wanted).await.unwrap();
    let last = report.steps.last().map(|step| step.done.clone());
    assert_eq!(last, Some(Done::Postponed("the runner has a job")));
    assert!(mac.job_runs(JOB));
    mac.set_runner_job(false);
    run(&mac, &wanted).await.unwrap();
    assert!(content(&mac, paths::RUNNER_REGISTERED).ends_with("macos,other\n"));
    assert!(mac.job_runs(JOB) && !run(&mac, &wanted).await.unwrap().changed());
}

#[tokio::test(start_paused = true)]
async fn a_look_for_its_job_that_failed_is_not_no_job() {
    let mac = converged().await;
    run(&mac, &usual()).await.unwrap();
    mac.set_runner_job(true);
    let trouble = Some((3, "pgrep: Cannot get process list\n"));
    mac.set_pgrep_trouble(scripts::JOB_PATTERN, trouble);
    let wanted = builder("macos,other", "2.334.0", "a new token");
    let failed = run(&mac, &wanted).await.unwrap().failed().unwrap();
    assert!(failed.contains("Cannot get process list"), "{failed}");
    assert!(mac.job_runs(JOB) && content(&mac, paths::RUNNER_REGISTERED).contains("macos,builder"));
}

#[tokio::test(start_paused = true)]
async fn a_builder_that_the_original_registered_is_left_as_it_is() {
    let mac = converged().await;
    run(&mac, &usual()).await.unwrap();
    let remove = Command::root(&["rm", "-f", paths::RUNNER_STAMP]);
    assert!(mac.connect().run(&remove).await.unwrap().success());
    mac.set_github("nothing is taken", 0);
    let report = run(&mac, &builder("other,labels", "2.334.0", TOKEN)).await.unwrap();
    assert!(!report.changed(), "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn what_github_refuses_fails_alone_and_says_what_github_said() {
    // P35, B22
    let mac = SimMac::new("a", PASSWORD);
    mac.set_github("another token", 0);
    let report = run(&mac, &usual()).await.unwrap();
    assert!(report.failed().is_some_and(|why| why.contains("GitHub runner: ")), "{report:?}");
    assert!(!report.converged() && mac.agent_pid().is_some());
    mac.set_github(TOKEN, 400);
    let failed = run(&mac, &usual()).await.unwrap().failed();
    assert!(
        failed.as_ref().is_some_and(|why| why.contains("v2.334.0 is deprecated")),
        "{failed:?}"
    );
    mac.set_github(TOKEN, 300);
    assert!(run(&mac, &usual()).await.unwrap().converged());
}

#[tokio::test(start_paused = true)]
async fn an_installation_cut_off_at_any_call_converges_on_the_next_run() {
    let reference = converged().await;
    let before = reference.call_counts().0;
    run(&reference, &usual()).await.unwrap();
    for index in before..reference.call_counts().0 {
        for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
            let mac = converged().await;
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            let first = run(&mac, &usual()).await;
            assert!(!first.is_ok_and(|report| report.converged()), "call {index} {verdict:?}");
            assert!(run(&mac, &usual()).await.unwrap().converged(), "call {index} {verdict:?}");
            assert!(!run(&mac, &usual()).await.unwrap().changed(), "call {index} {verdict:?}");
            assert!(mac.job_runs(JOB), "call {index} {verdict:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn folders_that_became_anothers_are_the_builders_again() {
    // B17
    let mac = converged().await;
    run(&mac, &usual()).await.unwrap();
    mac.give_away(paths::BUILD_CACHE);
    assert_eq!(changed(&run(&mac, &usual()).await.unwrap()), [Step::GithubRunner]);
    let stat = Command::root(&["stat", "-f", "%Su:%Sg %Lp", paths::BUILD_CACHE]);
    assert_eq!(mac.connect().run(&stat).await.unwrap().text(), "m1:staff 755\n");
    assert!(!run(&mac, &usual()).await.unwrap().changed());
}

/// A Mac with `before`, that becomes `after` and is cut off once that is registered.
async fn cut_off_after_registering(before: Option<HostConfig>, after: &HostConfig) -> SimMac {
    let ready = async || {
        let mac = converged().await;
        if let Some(before) = &before {
            run(&mac, before).await.unwrap();
        }
        mac
    };
    let reference = ready().await;
    run(&reference, after).await.unwrap();
    let registers = |what: &str| what.contains("./config.sh --url");
    let index = reference.calls().iter().rfind(|call| registers(&call.what)).unwrap().index;
    let mac = ready().await;
    mac.set_gate(Arc::new(FaultAt { index, verdict: Verdict::HangAfter }));
    assert!(!run(&mac, after).await.unwrap().converged());
    assert!(mac.file(paths::RUNNER_REGISTERED).is_some(), "it is registered, and nobody knows");
    mac.set_gate(Arc::new(Open));
    mac
}

#[tokio::test(start_paused = true)]
async fn a_registration_that_was_cut_off_before_its_stamp_does_not_pass_for_the_originals() {
    // Labels that change afterwards must still reach the host.
    let mac = cut_off_after_registering(None, &usual()).await;
    run(&mac, &builder("macos,other", "2.334.0", TOKEN)).await.unwrap();
    assert!(content(&mac, paths::RUNNER_REGISTERED).ends_with("macos,other\n"));
}

#[tokio::test(start_paused = true)]
async fn labels_that_were_taken_back_after_a_cut_reach_the_host_again() {
    let other = builder("macos,other", "2.334.0", TOKEN);
    let mac = cut_off_after_registering(Some(usual()), &other).await;
    assert!(content(&mac, paths::RUNNER_REGISTERED).ends_with("macos,other\n"));
    assert!(run(&mac, &usual()).await.unwrap().converged());
    assert!(content(&mac, paths::RUNNER_REGISTERED).ends_with("macos,builder\n"));
    assert!(!run(&mac, &usual()).await.unwrap().changed());
}

#[tokio::test(start_paused = true)]
async fn nobody_claims_the_labels_of_a_registration_that_the_original_made() {
    // S20
    let mac = converged().await;
    run(&mac, &usual()).await.unwrap();
    shown(&mac, &["rm", "-f", paths::RUNNER_STAMP]).await;
    mac.give_away(paths::BUILD_CACHE);
    let other = builder("macos,other", "2.334.0", TOKEN);
    assert_eq!(changed(&run(&mac, &other).await.unwrap()), [Step::GithubRunner]);
    assert_eq!(mac.file(paths::RUNNER_STAMP), None);
    assert!(content(&mac, paths::RUNNER_REGISTERED).ends_with("macos,builder\n"));
}

#[tokio::test(start_paused = true)]
async fn a_runner_that_is_loaded_and_does_not_stay_up_is_no_success() {
    // B9, S23
    let mac = converged().await;
    mac.set_job_health(JOB, AgentHealth::CrashLoops);
    let failed = run(&mac, &usual()).await.unwrap().failed().unwrap();
    assert!(failed.contains("the runner does not stay up"), "{failed}");
    mac.set_job_health(JOB, AgentHealth::Runs);
    assert!(run(&mac, &usual()).await.unwrap().converged());
    advance(Duration::from_secs(20)).await;
    mac.set_job_health(JOB, AgentHealth::NeverStarts);
    shown(&mac, &["launchctl", "kickstart", "-k", &format!("gui/501/{JOB}")]).await;
    assert!(!mac.job_runs(JOB));
    let failed = run(&mac, &usual()).await.unwrap().failed().unwrap();
    assert!(failed.contains("the runner does not stay up"), "{failed}");
    mac.set_job_health(JOB, AgentHealth::Runs);
    assert!(run(&mac, &usual()).await.unwrap().converged());
    assert!(mac.job_runs(JOB) && !run(&mac, &usual()).await.unwrap().changed());
}
