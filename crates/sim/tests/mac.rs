//! The bootstrap against simulated Macs: from every state, through every fault.

#[path = "mac/auto_login.rs"]
mod auto_login;
#[path = "mac/builder.rs"]
mod builder;
#[path = "mac/firewall.rs"]
mod firewall;
#[path = "mac/launchd.rs"]
mod launchd;
#[path = "mac/looks.rs"]
mod looks;
#[path = "mac/tailnet.rs"]
mod tailnet;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use applecart_mac::{
    Cause, Command, Dial, Done, FleetWide, HostConfig, KeyPair, Mac, MacError, Next, Password,
    Payload, PerHost, Progress, Report, Step, StepError, Target, TartBundle, bootstrap, kcpassword,
    paths, pf,
};
use applecart_sim::mac::{
    AgentHealth, AgentStart, Effect, Gate, OWN_ADDRESSES, Packet, SimMac, SimNetwork, USER,
    VM_BRIDGE, Verdict, tart_bundle,
};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use proptest::prelude::*;
use secrecy::ExposeSecret;
use tokio::time::advance;

const PASSWORD: &str = "c4nary pass'w%rd";
const TOKEN: &str = "canary-token-0123456789abcdef";

fn fleet() -> FleetWide {
    let (agent, tart) = (Payload::new("agent 1"), tart_bundle("2.32.1"));
    FleetWide { agent, tart, tailscale: None, node_exporter: None }
}

fn host(password: &str) -> PerHost {
    PerHost {
        node_name: "mac-a".into(),
        user: USER.parse().unwrap(),
        password: Password::new(password.into()).unwrap(),
        provider_id: None,
        labels: BTreeMap::from([("tuist.dev/fleet".into(), "ci".into())]),
        cpu: 8,
        memory_mb: 16_384,
        max_pods: 2,
        kubelet_version: None,
        kubeconfig: format!("apiVersion: v1\nusers:\n- user:\n    token: {TOKEN}\n").into(),
        tailscale_key: None,
        github_runner: None,
    }
}

fn desired() -> HostConfig {
    HostConfig::new(fleet(), host(PASSWORD)).unwrap()
}

async fn run(mac: &SimMac, desired: &HostConfig) -> Result<Report, StepError> {
    bootstrap(&mac.connect(), desired, &|_| {}).await
}

/// A Mac that is all it shall be.
async fn converged() -> SimMac {
    let mac = SimMac::new("a", PASSWORD);
    run(&mac, &desired()).await.unwrap();
    mac
}

fn changed(report: &Report) -> Vec<Step> {
    let changed = report.steps.iter().filter(|step| step.done == Done::Changed);
    changed.map(|step| step.step).collect()
}

fn postponed(report: &Report) -> Vec<Step> {
    let postponed = report.steps.iter().filter(|step| matches!(step.done, Done::Postponed(_)));
    postponed.map(|step| step.step).collect()
}

/// One fault, at one call.
struct FaultAt {
    index: u64,
    verdict: Verdict,
}

impl Gate for FaultAt {
    fn verdict(&self, effect: &Effect) -> Verdict {
        if effect.index == self.index { self.verdict } else { Verdict::Pass }
    }
}

/// One reboot, just before one call.
struct RebootAt {
    index: u64,
    mac: SimMac,
}

impl Gate for RebootAt {
    fn verdict(&self, effect: &Effect) -> Verdict {
        if effect.index == self.index {
            self.mac.reboot();
        }
        Verdict::Pass
    }
}

/// Every form in which a secret of the test could appear.
fn canaries() -> Vec<String> {
    let percent = "c4nary%20pass%27w%25rd".to_owned();
    let xor = kcpassword::encode(PASSWORD);
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |t, b| t + &format!("{b:02x}"));
    let mut all = vec![PASSWORD.to_owned(), percent, TOKEN.to_owned(), hex(&xor)];
    for bytes in [PASSWORD.as_bytes(), &xor, TOKEN.as_bytes()] {
        // Without the last characters, so that other bytes may follow.
        all.push(STANDARD_NO_PAD.encode(&bytes[..bytes.len() - bytes.len() % 3]));
        all.push(STANDARD.encode(bytes));
    }
    all
}

fn assert_no_canary(text: &str) {
    for canary in canaries() {
        assert!(!text.contains(&canary), "{canary} in {text}");
    }
}

fn assert_nothing_leaked(mac: &SimMac, results: &[Result<Report, StepError>]) {
    let calls: Vec<String> = mac.calls().into_iter().map(|call| call.what).collect();
    assert_no_canary(&calls.join("\n"));
    for result in results {
        assert_no_canary(&format!("{result:?}"));
        if let Err(error) = result {
            assert_no_canary(&error.explain());
        }
    }
}

/// What must be true of a host that converged.
fn assert_is_a_node(mac: &SimMac) {
    assert!(mac.agent_pid().is_some() && mac.has_session());
    let attributes = |path: &str| mac.file(path).map(|(_, owner, mode)| (owner, mode));
    assert_eq!(attributes(paths::KUBECONFIG), Some(("m1:staff".into(), 0o600)));
    assert_eq!(attributes(paths::KCPASSWORD), Some(("root:wheel".into(), 0o600)));
    assert_eq!(attributes("/etc/sudoers.d/m1-nopasswd"), Some(("root:wheel".into(), 0o440)));
    for left_over in
        [paths::AGENT_STAGED, paths::AGENT_PENDING, paths::LOGIN_PENDING, paths::KCPASSWORD_PROVEN]
    {
        assert_eq!(mac.file(left_over), None, "{left_over}");
    }
}

/// A second run finishes what the first left, and a third finds nothing to do.
async fn assert_converges(mac: &SimMac, what: &str) {
    let desired = desired();
    mac.set_gate(Arc::new(applecart_sim::mac::Open));
    let second = run(mac, &desired).await;
    assert!(second.as_ref().is_ok_and(Report::converged), "{what}: {second:?}");
    assert_is_a_node(mac);
    assert_eq!(mac.wrong_passwords(), 0, "{what}");
    let (_, before) = mac.call_counts();
    let third = run(mac, &desired).await.unwrap();
    assert!(!third.changed(), "{what}: {third:?}");
    assert_eq!(mac.call_counts().1, before, "{what}: a converged host is not written to");
}

#[tokio::test(start_paused = true)]
async fn a_factory_mac_becomes_a_node_and_a_second_run_only_reads() {
    let mac = SimMac::new("a", PASSWORD);
    let told = Mutex::new(Vec::new());
    let tell = |progress| told.lock().unwrap().push(progress);
    tell(Progress::waiting_for_ssh(&desired()));
    let report = bootstrap(&mac.connect(), &desired(), &tell).await.unwrap();
    assert_eq!(changed(&report), Step::ALL);
    let told = told.into_inner().unwrap();
    assert_eq!(told.iter().map(|p| p.index).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
    assert!(told.iter().all(|p| p.total == 10 && !p.name.is_empty()));
    assert_converges(&mac, "no fault").await;
    assert_nothing_leaked(&mac, &[Ok(report)]);
    assert_no_canary(&format!("{:?} {told:?} {mac:?}", desired()));
}

#[tokio::test(start_paused = true)]
async fn cut_off_at_any_call_in_any_way_it_converges_on_the_next_run() {
    // S19, B6
    let calls = converged().await.call_counts().0;
    assert!(calls > 50, "{calls}");
    for index in 0..calls {
        for verdict in [Verdict::FailBefore, Verdict::HangBefore, Verdict::HangAfter] {
            let mac = SimMac::new("a", PASSWORD);
            mac.set_gate(Arc::new(FaultAt { index, verdict }));
            let first = run(&mac, &desired()).await;
            assert!(first.is_err(), "call {index} {verdict:?} went unnoticed");
            assert_converges(&mac, &format!("call {index} {verdict:?}")).await;
            assert_nothing_leaked(&mac, &[first]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn whatever_effect_fails_with_a_status_it_converges_on_the_next_run() {
    // S19, B6
    let effects: Vec<Effect> = converged().await.calls();
    for effect in effects.iter().filter(|effect| effect.mutates) {
        let (index, verdict) = (effect.index, Verdict::Fails);
        let mac = SimMac::new("a", PASSWORD);
        mac.set_gate(Arc::new(FaultAt { index, verdict }));
        let first = run(&mac, &desired()).await;
        assert_converges(&mac, &format!("{effect:?}")).await;
        assert_nothing_leaked(&mac, &[first]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_command_that_outlives_its_connection_undoes_nothing_of_the_next_run() {
    // LH18: each effect in turn comes late, from a run that wanted something else.
    let newer = updates().pop().unwrap();
    let effects: Vec<Effect> = converged().await.calls();
    for effect in effects.iter().filter(|effect| effect.mutates) {
        let (index, verdict) = (effect.index, Verdict::LostRunning);
        let mac = SimMac::new("a", PASSWORD);
        mac.set_gate(Arc::new(FaultAt { index, verdict }));
        assert!(run(&mac, &desired()).await.is_err(), "{effect:?}");
        mac.set_gate(Arc::new(applecart_sim::mac::Open));
        assert!(run(&mac, &newer).await.unwrap().converged(), "{effect:?}");
        advance(Duration::from_mins(2)).await;
        let report = run(&mac, &newer).await.unwrap();
        assert!(!report.changed(), "{effect:?}: {report:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn ending_what_a_run_left_is_an_effect_only_where_something_goes_on() {
    let ends = |mac: &SimMac| {
        let calls = mac.calls();
        let end =
            calls.iter().rfind(|call| call.what.contains("commands of an earlier run do not end"));
        end.expect("every run does").mutates
    };
    let mac = converged().await;
    assert!(!ends(&mac));
    let first = mac.calls().into_iter().find(|call| call.mutates).expect("an effect");
    let mac = SimMac::new("a", PASSWORD);
    mac.set_gate(Arc::new(FaultAt { index: first.index, verdict: Verdict::LostRunning }));
    assert!(run(&mac, &desired()).await.is_err());
    mac.set_gate(Arc::new(applecart_sim::mac::Open));
    assert!(run(&mac, &desired()).await.unwrap().converged() && ends(&mac));
    assert!(run(&mac, &desired()).await.unwrap().converged() && !ends(&mac));
}

#[tokio::test(start_paused = true)]
async fn a_reboot_in_mid_step_is_survived_at_every_call() {
    let calls = converged().await.call_counts().0;
    for index in 0..calls {
        let mac = SimMac::new("a", PASSWORD);
        mac.set_gate(Arc::new(RebootAt { index, mac: mac.clone() }));
        let first = run(&mac, &desired()).await;
        assert!(matches!(first.unwrap_err().cause, Cause::Mac(MacError::Unknown { .. })));
        assert_converges(&mac, &format!("reboot at call {index}")).await;
    }
}

/// A change of each thing that a running agent must be restarted for, and of all at once.
fn updates() -> Vec<HostConfig> {
    let agent = || FleetWide { agent: Payload::new("agent 2"), ..fleet() };
    let kubeconfig = || format!("users:\n- user:\n    token: {TOKEN}2\n").into();
    let all = PerHost { cpu: 4, kubeconfig: kubeconfig(), ..host(PASSWORD) };
    [
        (agent(), host(PASSWORD)),
        (fleet(), PerHost { kubeconfig: kubeconfig(), ..host(PASSWORD) }),
        (fleet(), PerHost { cpu: 4, ..host(PASSWORD) }),
        (agent(), all),
    ]
    .map(|(fleet, host)| HostConfig::new(fleet, host).unwrap())
    .into()
}

#[tokio::test(start_paused = true)]
async fn an_update_cut_off_at_any_call_still_restarts_the_agent_with_all_that_changed() {
    for update in updates() {
        let reference = converged().await;
        let before = reference.call_counts().0;
        run(&reference, &update).await.unwrap();
        for index in before..reference.call_counts().0 {
            for verdict in [Verdict::FailBefore, Verdict::HangAfter] {
                let mac = converged().await;
                let started = Arc::new(Mutex::new(None));
                let last = started.clone();
                let start = move |start: AgentStart| *last.lock().unwrap() = Some(start);
                mac.on_agent(Arc::new(start), Arc::new(|| {}));
                mac.set_gate(Arc::new(FaultAt { index, verdict }));
                assert!(run(&mac, &update).await.is_err());
                let again = run(&mac, &update).await.unwrap();
                assert!(again.converged(), "call {index} {verdict:?}");
                let started = started.lock().unwrap().clone().expect("a restart");
                assert_eq!(started.args, update.agent_arguments(), "call {index} {verdict:?}");
                let kubeconfig = update.host().kubeconfig.expose_secret().as_bytes();
                assert!(started.kubeconfig.is_some_and(|found| found == kubeconfig));
                assert!(!run(&mac, &update).await.unwrap().changed(), "call {index} {verdict:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wrong_password_is_tried_at_most_twice_and_a_new_one_works() {
    // B5, S18
    let mac = SimMac::new("a", PASSWORD);
    let wrong = HostConfig::new(fleet(), host("wrong")).unwrap();
    for _ in 0..5 {
        let error = run(&mac, &wrong).await.unwrap_err();
        assert_eq!(error.step, Step::Sudo);
        assert!(matches!(error.cause, Cause::PasswordRefused), "{error:?}");
        assert_eq!(error.next(), Next::NewPassword);
    }
    assert_eq!(mac.wrong_passwords(), 2);
    assert!(run(&mac, &desired()).await.unwrap().converged());
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_lost_count_as_tries_too() {
    struct LoseSudo;
    impl Gate for LoseSudo {
        fn verdict(&self, effect: &Effect) -> Verdict {
            if effect.what.starts_with("sudo -S") { Verdict::HangAfter } else { Verdict::Pass }
        }
    }
    let mac = SimMac::new("a", PASSWORD);
    mac.set_gate(Arc::new(LoseSudo));
    let wrong = HostConfig::new(fleet(), host("wrong")).unwrap();
    for _ in 0..5 {
        run(&mac, &wrong).await.unwrap_err();
        mac.empty_temporary();
    }
    assert_eq!(mac.wrong_passwords(), 2);
    mac.reboot();
    run(&mac, &wrong).await.unwrap_err();
    assert_eq!(mac.wrong_passwords(), 3, "a reboot unlocks the account, and allows tries again");
}

#[tokio::test(start_paused = true)]
async fn a_broken_sudo_rule_with_the_password_in_it_is_replaced_and_never_shown() {
    // LH5
    let mac = SimMac::new("a", PASSWORD);
    mac.put_file("/etc/sudoers.d/m1-nopasswd", format!("{PASSWORD}\n"));
    let report = run(&mac, &desired()).await;
    assert!(report.is_ok());
    let wrong = HostConfig::new(fleet(), host("wrong")).unwrap();
    let other = SimMac::new("b", "other");
    other.put_file("/etc/sudoers.d/m1-nopasswd", format!("{PASSWORD}\n"));
    let refused = run(&other, &wrong).await;
    assert!(refused.is_err());
    assert_nothing_leaked(&other, &[report, refused]);
    let (rule, _, _) = mac.file("/etc/sudoers.d/m1-nopasswd").unwrap();
    assert_eq!(rule, "m1 ALL=(ALL) NOPASSWD: ALL\n");
}

#[tokio::test(start_paused = true)]
async fn an_auto_login_file_of_the_older_system_is_left_alone() {
    // S19, S24: it works as it is, and a login would end the session with its VMs.
    let mac = converged().await;
    let mut older = kcpassword::encode(PASSWORD);
    older.truncate(22);
    mac.put_file(paths::KCPASSWORD, older.clone());
    let report = run(&mac, &desired()).await.unwrap();
    assert!(!report.changed());
    assert_eq!(mac.file(paths::KCPASSWORD).unwrap().0, older);
}

#[tokio::test(start_paused = true)]
async fn every_older_firewall_file_converges_live() {
    // B2, B19
    let line = "load anchor \"tuist.runners\" from \"/etc/pf.anchors/tuist.runners\"\n";
    let unmarked = format!("anchor \"tuist.runners\"\n{line}");
    let table = "table <vm_sources> persist\n";
    let begin = "# BEGIN tuist.runners\n";
    for older in [
        unmarked.clone(),
        format!("{unmarked}{unmarked}"),
        format!("{table}{unmarked}"),
        format!("{unmarked}{}", pf::BLOCK),
        format!("{begin}{unmarked}"),
        format!("{begin}anchor \"tuist.run"),
    ] {
        let mac = SimMac::new("a", PASSWORD);
        mac.put_file(paths::PF_CONF, format!("{}{older}", pf::STOCK));
        assert_converges(&mac, &older).await;
        let (text, _, _) = mac.file(paths::PF_CONF).unwrap();
        assert_eq!(text, format!("{}{}", pf::STOCK, pf::BLOCK));
    }
}

/// What a tool prints on a Mac.
async fn shown(mac: &SimMac, argv: &[&str]) -> String {
    mac.connect().run(&Command::root(argv)).await.unwrap().text()
}

#[tokio::test(start_paused = true)]
async fn nothing_on_a_mac_sleeps_locks_or_ends_its_session() {
    // B1: written out, so that a setting that is dropped from the step is missed here.
    let mac = converged().await;
    let pmset = shown(&mac, &["pmset", "-g"]).await;
    for (key, value) in [
        ("sleep", "0"),
        ("displaysleep", "0"),
        ("disksleep", "0"),
        ("powernap", "0"),
        ("autorestart", "1"),
    ] {
        let is_set = |line: &str| line.split_whitespace().eq([key, value]);
        assert!(pmset.lines().any(is_set), "{key}: {pmset}");
    }
    let host = "/Library/Preferences/com.apple.screensaver";
    let all = "/Library/Preferences/.GlobalPreferences";
    for (domain, key) in [
        (host, "idleTime"),
        (host, "askForPassword"),
        (all, "com.apple.autologout.AutoLogOutDelay"),
    ] {
        assert_eq!(shown(&mac, &["defaults", "read", domain, key]).await, "0\n", "{key}");
    }
    for key in ["idleTime", "askForPassword"] {
        let read = ["defaults", "-currentHost", "read", "com.apple.screensaver", key];
        assert_eq!(shown(&mac, &read).await, "0\n", "the user's {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn live_rules_of_another_order_or_reach_are_noticed() {
    let wide = pf::ANCHOR_RULES.replace(" proto udp from <vm_sources> to 192.168.64.1 port 53", "");
    let (passes, blocks) = pf::ANCHOR_RULES.split_once("block drop in").unwrap();
    let (tables, passes) = passes.split_once("pass").unwrap();
    let reversed = format!("{tables}block drop in{blocks}pass{passes}");
    for other in [wide, reversed] {
        let mac = converged().await;
        mac.put_file("/private/tmp/other", other);
        shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-f", "/private/tmp/other"]).await;
        assert_eq!(changed(&run(&mac, &desired()).await.unwrap()), [Step::Firewall]);
    }
}

#[tokio::test(start_paused = true)]
async fn tables_that_outlive_their_rules_go_in_both_scopes() {
    // B2, seed 000
    let mac = SimMac::new("a", PASSWORD);
    mac.put_file("/etc/sudoers.d/m1-nopasswd", "m1 ALL=(ALL) NOPASSWD: ALL\n");
    let tables = "table <vm_sources> persist { 192.168.64.0/22 }\n\
                  table <blocked_dst> persist { 10.0.0.0/8 }\n";
    mac.put_file(paths::PF_ANCHOR, tables);
    mac.put_file("/etc/pf.old", format!("{}{tables}", pf::STOCK));
    for load in [["-a", pf::ANCHOR, "-f", paths::PF_ANCHOR].as_slice(), &["-f", "/etc/pf.old"]] {
        shown(&mac, &[&["pfctl"], load].concat()).await;
    }
    let left = "blocked_dst\nvm_sources\n";
    assert_eq!(shown(&mac, &["pfctl", "-s", "Tables"]).await, left);
    assert_eq!(shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-s", "Tables"]).await, left);
    assert_converges(&mac, "tables in both scopes").await;
    assert_eq!(shown(&mac, &["pfctl", "-s", "Tables"]).await, "");
    shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-f", "/dev/null"]).await;
    let gone = shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-s", "Tables"]).await;
    assert_eq!(gone, "", "no table of ours outlives its rules any more");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_meets_another_pfctl_is_tried_again() {
    let mac = SimMac::new("a", PASSWORD);
    mac.set_firewall_busy(3);
    assert_converges(&mac, "busy").await;
    let mac = SimMac::new("a", PASSWORD);
    mac.set_firewall_busy(u32::MAX);
    let error = run(&mac, &desired()).await.unwrap_err();
    assert_eq!((error.step, error.next()), (Step::Firewall, Next::TryAgain));
    assert!(error.explain().contains("Resource busy"), "{}", error.explain());
    mac.set_firewall_busy(0);
    assert_converges(&mac, "not busy any more").await;
}

#[tokio::test(start_paused = true)]
async fn what_macos_reads_at_boot_is_told_as_pending_until_then() {
    // B23
    let mac = SimMac::new("a", PASSWORD);
    let report = run(&mac, &desired()).await.unwrap();
    assert!(report.awaits_boot().is_some_and(|what| what.contains("next boot")));
    assert!(report.converged(), "the agent does not need it");
    let report = run(&mac, &desired()).await.unwrap();
    assert!(report.awaits_boot().is_some() && !report.changed());
    mac.empty_temporary();
    let report = run(&mac, &desired()).await.unwrap();
    assert!(report.awaits_boot().is_some(), "macOS empties folders without a boot, too");
    mac.reboot();
    advance(Duration::from_secs(5)).await;
    assert_eq!(run(&mac, &desired()).await.unwrap().awaits_boot(), None);
}

/// The paths of everything that a bootstrap puts on a host.
const PUT: [&str; 11] = [
    "/etc/sudoers.d/m1-nopasswd",
    paths::KCPASSWORD,
    paths::TART,
    paths::TART_STAMP,
    paths::PF_ANCHOR,
    paths::PF_CONF,
    paths::PF_PLIST,
    paths::KUBECONFIG,
    paths::AGENT,
    paths::AGENT_STAMP,
    paths::AGENT_PLIST,
];

#[tokio::test(start_paused = true)]
async fn a_host_of_the_system_before_us_keeps_every_file_that_is_right() {
    // What the original leaves: no stamps, a kcpassword padded to eleven, two rules for VMs.
    let mac = converged().await;
    let mut older = kcpassword::encode(PASSWORD);
    older.truncate(22);
    mac.put_file(paths::KCPASSWORD, older);
    mac.put_file(
        paths::PF_ANCHOR,
        "table <vm_sources> { 192.168.64.0/22 }\n\
         table <blocked_dst> { 10.0.0.0/8, 172.16.0.0/12, 169.254.0.0/16 }\n\
         block drop out quick from <vm_sources> to <blocked_dst>\n\
         block drop out quick from <vm_sources> to 169.254.169.254\n",
    );
    shown(&mac, &["pfctl", "-a", pf::ANCHOR, "-f", paths::PF_ANCHOR]).await;
    for stamp in [paths::AGENT_STAMP, paths::TART_STAMP] {
        shown(&mac, &["rm", "-f", stamp]).await;
    }
    mac.set_vms(2);
    let before: Vec<_> = PUT.iter().map(|path| (*path, mac.file(path), mac.inode(path))).collect();
    let report = run(&mac, &desired()).await.unwrap();
    assert_eq!(changed(&report), [Step::Firewall, Step::AgentBinary, Step::AgentJob]);
    assert_eq!(mac.vms(), (2, true), "S24");
    let replaced = [paths::PF_ANCHOR, paths::AGENT, paths::AGENT_STAMP];
    for (path, file, inode) in before.into_iter().filter(|(path, ..)| !replaced.contains(path)) {
        assert_eq!((mac.file(path), mac.inode(path)), (file, inode), "{path}");
    }
    assert_converges(&mac, "taken over").await;
}

/// Configurations that differ in everything that may differ.
fn any_config() -> impl Strategy<Value = HostConfig> {
    let fleet = ("[a-z]{1,20}", "[0-9]\\.[0-9]{1,2}\\.[0-9]").prop_map(|(agent, tart)| {
        let (agent, tart) = (Payload::new(agent), tart_bundle(&tart));
        FleetWide { agent, tart, ..self::fleet() }
    });
    let labels = prop::collection::btree_map("[a-z]{1,5}/[a-z]{1,5}", "[a-z0-9]{0,5}", 0..3);
    let sizes = (0..16_u32, 0..40_000_u32, 0..4_u32);
    let version = prop::option::of("v1\\.[0-9]{1,2}");
    (fleet, "[a-z]([a-z0-9]{0,8}[a-z0-9])?", labels, sizes, version, "[a-z0-9]{20,30}").prop_map(
        |(fleet, node_name, labels, (cpu, memory_mb, max_pods), kubelet_version, token)| {
            let kubeconfig = format!("users:\n- user:\n    token: {token}\n").into();
            let own = PerHost {
                node_name,
                labels,
                cpu,
                memory_mb,
                max_pods,
                kubelet_version,
                kubeconfig,
                ..host(PASSWORD)
            };
            HostConfig::new(fleet, own).unwrap()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]
    #[test]
    fn an_update_leaves_the_very_bytes_that_a_first_bootstrap_does(
        before in any_config(), wanted in any_config()
    ) {
        // P12, P33, P34
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(async {
            let (fresh, updated) = (SimMac::new("a", PASSWORD), SimMac::new("a", PASSWORD));
            run(&fresh, &wanted).await.unwrap();
            run(&updated, &before).await.unwrap();
            assert!(run(&updated, &wanted).await.unwrap().converged());
            for path in PUT {
                assert_eq!(updated.file(path), fresh.file(path), "{path}");
            }
            for name in ["HostName", "LocalHostName", "ComputerName"] {
                let get = ["scutil", "--get", name];
                assert_eq!(shown(&updated, &get).await, shown(&fresh, &get).await);
            }
            let program = format!("{}/Contents/MacOS/tart", paths::TART_APP);
            assert_eq!(updated.file(&program), fresh.file(&program));
            assert!(!run(&updated, &wanted).await.unwrap().changed());
        });
    }
}

#[tokio::test(start_paused = true)]
async fn vms_reach_the_internet_and_their_gateways_dns_and_nothing_private() {
    // S22, B20, S21
    let mac = converged().await;
    let vm = [192, 168, 64, 5].into();
    let from = |source, destination: [u8; 4], protocol, port| {
        let (interface, destination) = (VM_BRIDGE, destination.into());
        mac.lets_pass(Packet { interface, inbound: true, protocol, source, destination, port })
    };
    let to = |destination, protocol, port| from(vm, destination, protocol, port);
    assert!(to([140, 82, 121, 4], "tcp", 22), "git over SSH");
    assert!(to([192, 168, 64, 1], "udp", 53) && to([192, 168, 64, 1], "udp", 67));
    for own in OWN_ADDRESSES {
        assert!(!to(own.octets(), "tcp", 22), "the host, at {own}");
    }
    assert!(!to([192, 168, 64, 6], "tcp", 5900), "a sibling");
    assert!(!to([10, 0, 0, 1], "tcp", 443) && !to([172, 16, 0, 1], "tcp", 443));
    assert!(!to([169, 254, 169, 254], "tcp", 80) && !to([100, 64, 0, 1], "tcp", 443));
    // A guest says of itself what it likes.
    for spoofed in [[10, 0, 0, 9], [192, 168, 1, 5], [51, 15, 0, 2], [127, 0, 0, 1], [0; 4]] {
        for destination in [[10, 0, 0, 1], [192, 168, 64, 6], [140, 82, 121, 4], [51, 15, 0, 2]] {
            let reaches = from(spoofed.into(), destination, "tcp", 22);
            assert!(!reaches, "{destination:?} from {spoofed:?}");
        }
    }
    assert!(from([0; 4].into(), [255; 4], "udp", 67), "who has no address yet asks for one");
    let host = Packet {
        interface: VM_BRIDGE,
        inbound: false,
        protocol: "tcp",
        source: [192, 168, 64, 1].into(),
        destination: vm,
        port: 22,
    };
    assert!(mac.lets_pass(host), "the host reaches its VMs");
    let operator = Packet {
        interface: "en0",
        inbound: true,
        protocol: "tcp",
        source: [51, 15, 0, 1].into(),
        destination: [51, 15, 0, 2].into(),
        port: 22,
    };
    assert!(mac.lets_pass(operator), "a push never cuts its own connection");
}

#[tokio::test(start_paused = true)]
async fn flushed_rules_come_back_without_touching_what_macos_added_for_vms() {
    // B13, B14, S24
    let mac = converged().await;
    mac.set_vms(2);
    mac.flush_firewall();
    let report = run(&mac, &desired()).await.unwrap();
    assert_eq!(changed(&report), [Step::Firewall]);
    assert_eq!(mac.vms(), (2, true));
}

#[tokio::test(start_paused = true)]
async fn all_is_back_after_a_reboot_by_itself() {
    let mac = converged().await;
    mac.reboot();
    advance(Duration::from_secs(5)).await;
    assert!(!run(&mac, &desired()).await.unwrap().changed());
    assert_is_a_node(&mac);
}

#[tokio::test(start_paused = true)]
async fn running_vms_survive_an_update_and_what_would_end_them_waits() {
    // S24
    let mac = converged().await;
    mac.set_vms(2);
    let tart = tart_bundle("2.33.0");
    let newer = FleetWide { agent: Payload::new("agent 2"), tart, ..fleet() };
    let newer = HostConfig::new(newer, host(PASSWORD)).unwrap();
    let report = run(&mac, &newer).await.unwrap();
    assert_eq!(postponed(&report), [Step::Tart]);
    assert_eq!(changed(&report), [Step::AgentBinary, Step::AgentJob]);
    assert!(!report.converged());
    assert_eq!(mac.vms(), (2, true));
    mac.set_vms(0);
    let report = run(&mac, &newer).await.unwrap();
    assert_eq!(changed(&report), [Step::Tart]);
    assert!(report.converged());
}

#[tokio::test(start_paused = true)]
async fn a_bundle_that_was_cut_off_before_its_stamp_is_replaced_by_a_rebuilt_one() {
    // The same version from another archive: without a stamp, its version alone would do.
    let is_swap = |what: &str| what.contains("/usr/local/lib/.tart.XXXXXX");
    let calls = converged().await.calls();
    let index = calls.iter().rfind(|call| is_swap(&call.what)).unwrap().index;
    let mac = SimMac::new("a", PASSWORD);
    mac.set_gate(Arc::new(FaultAt { index, verdict: Verdict::HangAfter }));
    assert_eq!(run(&mac, &desired()).await.unwrap_err().step, Step::Tart);
    mac.set_gate(Arc::new(applecart_sim::mac::Open));
    let archive = Payload::new("tart tart 2.32.1");
    let tart = TartBundle { version: "2.32.1".into(), archive: archive.clone() };
    let rebuilt = HostConfig::new(FleetWide { tart, ..fleet() }, host(PASSWORD)).unwrap();
    assert!(run(&mac, &rebuilt).await.unwrap().converged());
    let program = format!("{}/Contents/MacOS/tart", paths::TART_APP);
    assert_eq!(mac.file(&program).unwrap().0, archive.bytes().unwrap());
}

#[tokio::test(start_paused = true)]
async fn only_what_changed_is_restarted() {
    let mac = converged().await;
    let (starts, stops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let count = |counter: &Arc<AtomicUsize>| {
        let counter = counter.clone();
        move || _ = counter.fetch_add(1, Ordering::SeqCst)
    };
    let (start, stop) = (count(&starts), count(&stops));
    mac.on_agent(Arc::new(move |_| start()), Arc::new(stop));
    let restarts = || (starts.load(Ordering::SeqCst), stops.load(Ordering::SeqCst));

    let renamed = PerHost { node_name: "mac-b".into(), ..host(PASSWORD) };
    let report = run(&mac, &HostConfig::new(fleet(), renamed).unwrap()).await.unwrap();
    assert_eq!(changed(&report), [Step::Hostname, Step::AgentJob]);
    assert_eq!(restarts(), (1, 1));

    let report = run(&mac, &desired()).await.unwrap();
    assert_eq!(changed(&report), [Step::Hostname, Step::AgentJob]);
    mac.wipe("new");
    assert_eq!(restarts(), (2, 3), "a wipe ends the agent");
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_overwritten_in_place_is_killed_until_it_is_a_new_file() {
    // B8
    let mac = converged().await;
    let before = mac.agent_pid();
    mac.put_file(paths::AGENT, "agent 2\n<signature>");
    mac.reboot();
    assert!(mac.agent_pid().is_some(), "the kernel forgets at boot");
    mac.put_file(paths::AGENT, "agent 3\n<signature>");
    let report = run(&mac, &desired()).await.unwrap();
    assert!(changed(&report).contains(&Step::AgentBinary));
    assert_ne!(mac.agent_pid(), before);
    assert_converges(&mac, "overwritten").await;
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_does_not_stay_up_is_no_success() {
    // B9, S23
    for health in [AgentHealth::CrashLoops, AgentHealth::NeverStarts, AgentHealth::LostOnReload] {
        let mac = SimMac::new("a", PASSWORD);
        mac.set_agent_health(health);
        let error = run(&mac, &desired()).await.unwrap_err();
        assert_eq!(error.step, Step::AgentJob, "{health:?}");
        assert_eq!(error.next(), Next::TryAgain);
        mac.set_agent_health(AgentHealth::Runs);
        assert_converges(&mac, &format!("{health:?}")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_mac_that_hangs_is_given_up_within_its_steps_time() {
    let mac = SimMac::new("a", PASSWORD);
    mac.set_hanging(true);
    let before = tokio::time::Instant::now();
    let error = run(&mac, &desired()).await.unwrap_err();
    assert!(before.elapsed() <= Step::Sudo.timeout());
    assert_eq!(error.next(), Next::TryAgain);
    mac.set_hanging(false);
    mac.set_latency(Duration::from_millis(300));
    assert_converges(&mac, "slow").await;
}

fn target(address: &str) -> Target {
    let key = KeyPair::from_seed([1; 32], "").unwrap().private;
    let user = USER.parse().unwrap();
    Target { address: address.into(), port: 22, user, key, pinned: None }
}

#[tokio::test(start_paused = true)]
async fn a_host_key_holds_until_a_wipe_and_connections_end_with_a_boot() {
    // B24, S17
    let network = SimNetwork::default();
    let mac = SimMac::new("a", PASSWORD);
    network.insert("10.0.0.1", mac.clone());
    let first = network.dial(&target("10.0.0.1")).await.unwrap();
    let pinned = Target { pinned: Some(first.host_key), ..target("10.0.0.1") };
    mac.reboot();
    assert!(matches!(first.mac.read("/x").await, Err(MacError::Unknown { .. })));
    let second = network.dial(&pinned).await.unwrap();
    bootstrap(&*second.mac, &desired(), &|_| {}).await.unwrap();
    mac.wipe("new");
    let refused = network.dial(&pinned).await.unwrap_err();
    assert!(matches!(refused, MacError::HostKeyChanged { .. }), "{refused}");
    let wiped = HostConfig::new(fleet(), host("new")).unwrap();
    let third = network.dial(&target("10.0.0.1")).await.unwrap();
    let report = bootstrap(&*third.mac, &wiped, &|_| {}).await.unwrap();
    assert_eq!(changed(&report), Step::ALL);
}

#[tokio::test(start_paused = true)]
async fn a_mac_opens_to_its_keys_alone_and_silence_is_unreachable() {
    let network = SimNetwork::default();
    let mac = SimMac::new("a", PASSWORD);
    network.insert("10.0.0.1", mac.clone());
    mac.authorize(vec![KeyPair::from_seed([2; 32], "").unwrap().public]);
    let refused = network.dial(&target("10.0.0.1")).await.unwrap_err();
    assert!(matches!(refused, MacError::AuthRefused { .. }), "{refused}");
    mac.authorize(vec![KeyPair::from_seed([1; 32], "").unwrap().public]);
    network.dial(&target("10.0.0.1")).await.unwrap();
    mac.set_unreachable(true);
    for address in ["10.0.0.1", "10.0.0.2"] {
        let silent = network.dial(&target(address)).await.unwrap_err();
        assert!(matches!(silent, MacError::Unreachable { .. }), "{silent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_costs_a_known_number_of_calls_and_a_look_writes_nothing() {
    let mac = SimMac::new("a", PASSWORD);
    run(&mac, &desired()).await.unwrap();
    let (first, _) = mac.call_counts();
    run(&mac, &desired()).await.unwrap();
    let (both, mutations) = mac.call_counts();
    run(&mac, &desired()).await.unwrap();
    assert_eq!(mac.call_counts().1, mutations);
    // One of them asks which boot this is, while one is awaited.
    assert!(first <= 160 && both - first <= 46, "{first} calls, then {}", both - first);
}
