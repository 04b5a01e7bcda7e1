//! `applecart sim macs` as a person uses it: real SSH, real shell, a real process as the agent.
//!
//! Needs Linux, root, and the packages openssh-server and openssh-client.

#[path = "sim_macs/legacy.rs"]
mod legacy;
#[path = "sim_macs/legacy_vms.rs"]
mod legacy_vms;
#[path = "sim_macs/prepare_host.rs"]
mod prepare_host;
#[path = "support/macs.rs"]
mod support;
#[path = "sim_macs/tailnet.rs"]
mod tailnet;

use std::path::Path;
use std::time::Duration;

use applecart_mac::{
    Command, Dial, Done, FleetWide, GithubRunner, HostConfig, Mac, MacError, Next, Payload,
    PerHost, Privilege, Script, Ssh, Step, bootstrap, pf,
};
use secrecy::ExposeSecret;

use support::{Macs, until};

/// Lives until it is ended, and can be found by its arguments.
const AGENT: &str = "#!/bin/sh\necho \"started $*\"\nwhile :; do sleep 1; done\n";

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs a script as root by the password, as the first step of a bootstrap does.
async fn as_root(mac: &dyn Mac, password: &str, script: &'static str) -> applecart_mac::Output {
    let script = Script { name: "test", text: script };
    let command = Command::script(script, &[], Privilege::RootByPassword);
    mac.run(&command.stdin(format!("{password}\n"))).await.expect("an end")
}

/// Every file of a Mac with its inode, size, mode, owner and times, but for what its server logs.
async fn everything(mac: &dyn Mac) -> String {
    let find = [
        "find",
        "/etc",
        "/opt",
        "/private",
        "/Users",
        "/Library",
        "/usr/local",
        "/var",
        "-not",
        "-name",
        "sshd.log",
        "-printf",
        "%p %i %s %m %u:%g %T@ %C@\n",
    ];
    text(&mac.run(&Command::root(&find)).await.expect("an end").stdout)
}

#[tokio::test]
async fn a_person_logs_in_with_a_real_client_and_finds_a_mac() {
    let macs = Macs::start(1, 1, AGENT).await;
    macs.dial().await;
    let output = macs.ssh("id -un; stat -f '%Su:%Sg %Lp' /etc/pf.conf; pmset -g; pfctl -e").await;
    let (said, complaint) = (text(&output.stdout), text(&output.stderr));
    assert!(said.starts_with("m1\nroot:wheel 644\nCurrently in use:"), "{said}");
    assert!(complaint.contains("pfctl: Operation not permitted"), "{complaint}");
    let output = macs.ssh("sudo -n true").await;
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("a password is required"));
}

#[tokio::test]
async fn a_whole_bootstrap_over_ssh_converges_and_its_agent_is_kept_alive() {
    let macs = Macs::start(2, 1, AGENT).await;
    let session = macs.dial().await;
    let desired = macs.desired("mac-a").await;
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    let before = everything(&*session.mac).await;
    let report = bootstrap(&*session.mac, &desired, &|_| {}).await.expect("is converged");
    assert!(report.steps.iter().all(|step| step.done == Done::Unchanged), "{report:?}");
    assert_eq!(everything(&*session.mac).await, before, "a converged host is not written to");
    let before = macs.mac()["agent_pid"].clone();
    assert!(before.is_number() && macs.mac()["session"] == true, "{}", macs.mac());
    let log = text(&macs.ssh("cat /var/log/tart-kubelet.log").await.stdout);
    assert!(log.starts_with("started --node-name=mac-a --kubeconfig=/etc/"), "{log}");
    let id = macs.host().await.id;
    macs.lever("POST", &format!("/macs/{id}/kill-agent"), "");
    macs.until("a new process", |mac| mac["agent_pid"].is_number() && mac["agent_pid"] != before)
        .await;
    let report = bootstrap(&*session.mac, &desired, &|_| {}).await.expect("is converged");
    assert!(!report.changed(), "{report:?}");
}

#[tokio::test]
async fn a_builder_gets_its_own_runner_over_ssh_once_and_keeps_it_through_a_reboot() {
    let macs = Macs::start(13, 1, AGENT).await;
    let session = macs.dial().await;
    let plain = macs.desired("mac-a").await;
    let token = "canary-registration-token";
    let runner = |labels| {
        GithubRunner::new("https://github.com", "tuist", labels, "2.334.0", token.into()).ok()
    };
    let builder = |labels| {
        let host = PerHost { github_runner: runner(labels), ..plain.host().clone() };
        HostConfig::new(plain.fleet().clone(), host).expect("valid")
    };
    bootstrap(&*session.mac, &builder("macos,builder"), &|_| {}).await.expect("converges");
    let shown = text(&macs.ssh("cat /opt/actions-runner/.runner /etc/zshenv").await.stdout);
    assert!(shown.contains(r#""gitHubUrl":"https://github.com/tuist","labels":"macos,builder""#));
    assert!(shown.contains("TUIST_MIX_BUILD_ROOT"), "{shown}");
    let before = everything(&*session.mac).await;
    assert!(!before.contains(token));
    let report = bootstrap(&*session.mac, &builder("macos,builder"), &|_| {}).await;
    assert!(!report.expect("is converged").changed());
    assert_eq!(everything(&*session.mac).await, before, "a converged host is not written to");
    bootstrap(&*session.mac, &builder("other"), &|_| {}).await.expect("registers anew");
    let shown = text(&macs.ssh("cat /opt/actions-runner/.runner").await.stdout);
    assert!(shown.contains(r#""labels":"other""#), "{shown}");
    let output = macs.ssh("launchctl print gui/501/actions.runner.tuist.mac-a").await;
    assert!(text(&output.stdout).contains("pid = "), "{output:?}");
}

#[tokio::test]
async fn what_arrives_damaged_is_not_installed_and_what_is_large_arrives_whole() {
    // B10
    let macs = Macs::start(11, 1, AGENT).await;
    let (session, host) = (macs.dial().await, macs.host().await);
    let path = macs.folder.path().join("agent-binary");
    let content = |first: u8| {
        let mut bytes: Vec<u8> = (0..5 * 1024 * 1024_u32).map(|n| n.to_le_bytes()[1]).collect();
        bytes[0] = first;
        bytes
    };
    std::fs::write(&path, content(1)).expect("written");
    let agent = Payload::open(&path).expect("a file");
    let desired = macs.desired_with(&host, "mac-large", agent);
    std::fs::write(&path, content(2)).expect("written");
    let error = bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("another file");
    assert!(error.explain().contains("arrived damaged"), "{}", error.explain());
    let list = text(&macs.ssh("ls -a /usr/local/bin").await.stdout);
    assert!(!list.contains("tart-kubelet"), "{list}");
    std::fs::write(&path, content(1)).expect("written");
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    let installed =
        text(&macs.ssh("head -c 5242880 /usr/local/bin/tart-kubelet | shasum -a 256").await.stdout);
    assert!(installed.starts_with(desired.fleet().agent.sha256()), "{installed}");
}

#[tokio::test]
async fn a_damaged_tart_leaves_the_one_that_is_there_and_nothing_of_itself() {
    // B10
    let macs = Macs::start(14, 1, AGENT).await;
    let (session, host) = (macs.dial().await, macs.host().await);
    let desired = macs.desired_of(&host, "mac-tart");
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    let newer = macs.tart("newer", "2.33.0");
    let path = macs.folder.path().join("newer.tar.gz");
    let whole = std::fs::read(&path).expect("an archive");
    let fleet = FleetWide { tart: newer, ..desired.fleet().clone() };
    let newer = HostConfig::new(fleet, desired.host().clone()).expect("valid");
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 1;
    for damaged in [&flipped[..], &whole[..whole.len() / 2]] {
        std::fs::write(&path, damaged).expect("written");
        let error = bootstrap(&*session.mac, &newer, &|_| {}).await.expect_err("damaged");
        assert_eq!(error.step, Step::Tart, "{}", error.explain());
        let left = macs.ssh("tart --version; ls -A /usr/local/lib").await;
        assert_eq!(text(&left.stdout), "2.32.1\ntart.app\ntart.app.sha256\n");
    }
    std::fs::write(&path, whole).expect("written");
    bootstrap(&*session.mac, &newer, &|_| {}).await.expect("converges");
    assert_eq!(text(&macs.ssh("tart --version").await.stdout), "2.33.0\n");
}

#[tokio::test]
async fn a_vm_runs_until_its_job_is_finished() {
    let macs = Macs::start(3, 1, AGENT).await;
    let session = macs.dial().await;
    bootstrap(&*session.mac, &macs.desired("mac-vm").await, &|_| {}).await.expect("converges");
    let tart = async |arguments: &[&str]| {
        let words = [&["/usr/local/bin/tart"], arguments].concat();
        session.mac.run(&Command::user(&words)).await.expect("an end")
    };
    assert_eq!(tart(&["clone", "ghcr.example/image", "one"]).await.status, 0);
    assert_eq!(tart(&["clone", "ghcr.example/image", "two"]).await.status, 0);
    let id = macs.host().await.id;
    let finish = async {
        until("an address", async || tart(&["ip", "one"]).await.status == 0).await;
        assert!(text(&tart(&["list", "--format", "json"]).await.stdout).contains("running"));
        assert_eq!(tart(&["delete", "one"]).await.status, 1, "it runs");
        macs.lever("POST", &format!("/macs/{id}/vms/one/finish"), r#"{"code": 7}"#);
    };
    let (ended, ()) = tokio::join!(tart(&["run", "one", "--no-graphics"]), finish);
    assert_eq!(ended.status, 7);
    assert_eq!(tart(&["delete", "one"]).await.status, 0);
    assert_eq!(tart(&["ip", "one"]).await.status, 2, "it does not exist");
}

#[tokio::test]
async fn nothing_in_a_mac_can_touch_the_machine_that_it_runs_on() {
    let macs = Macs::start(4, 1, AGENT).await;
    let session = macs.dial().await;
    let password = macs.host().await.password.expect("a password");
    let output = as_root(
        &*session.mac,
        password.expose_secret(),
        "touch /etc/applecart-was-here /private/tmp/applecart-was-here /usr/local/bin/was-here
         touch /usr/bin/applecart-was-here && echo wrote /usr
         mount -t tmpfs x /private/tmp 2>/dev/null && echo mounted
         mknod /private/tmp/disk b 8 0 2>/dev/null && echo made a device
         echo 1 2>/dev/null >/proc/sys/kernel/panic && echo changed the kernel
         umount -l /usr 2>/dev/null && echo unmounted
         # To what it is already: nothing comes of it even where it works.
         for device in null zero full random urandom tty; do
           chmod --reference=/dev/$device /dev/$device 2>/dev/null && echo chmod $device
           chown --reference=/dev/$device /dev/$device 2>/dev/null && echo chown $device
         done
         chroot /proc/1/root test -e /.applecart || echo out of its root
         nsenter --target 1 --mount true 2>/dev/null && echo entered
         ls /root /home /mnt 2>/dev/null
         ps ax -o args= | grep -v -e sshd -e '^ps ' -e '^sh ' -e sudo -e '/bin/sh'
         hostname elsewhere 2>/dev/null && echo renamed
         true",
    )
    .await;
    assert_eq!(text(&output.stdout), "", "{}", text(&output.stderr));
    for path in ["/etc", "/tmp", "/usr/bin", "/usr/local/bin"] {
        for name in ["applecart-was-here", "was-here"] {
            assert!(!Path::new(path).join(name).exists(), "{path}/{name}");
        }
    }
    // All that it can see to kill is its own; nobody is left to answer.
    let kill = Script { name: "kill all", text: "kill -KILL -1" };
    let kill = Command::script(kill, &[], Privilege::RootByPassword);
    let cut = session.mac.run(&kill.stdin(format!("{}\n", password.expose_secret()))).await;
    assert!(matches!(cut, Err(MacError::Unknown { .. })), "{cut:?}");
    macs.dial().await;
    assert!(!Path::new("/mnt/tools").exists(), "the workshop is in a namespace of its own");
}

#[tokio::test]
async fn a_reboot_keeps_the_disk_and_a_wipe_gives_new_keys_a_new_password_and_an_empty_one() {
    let macs = Macs::start(5, 1, AGENT).await;
    let first = macs.dial().await;
    let old = macs.host().await.password.expect("a password").expose_secret().to_owned();
    let made = as_root(&*first.mac, &old, "touch /etc/mark /private/tmp/mark; sync").await;
    assert!(made.success());
    let id = macs.host().await.id;
    macs.lever("POST", &format!("/macs/{id}/reboot"), "");
    until("the connection's end", async || first.mac.run(&Command::user(&["true"])).await.is_err())
        .await;
    let second = macs.dial().await;
    assert_eq!(second.host_key, first.host_key);
    let list = text(&macs.ssh("ls /etc/mark /private/tmp").await.stdout);
    assert_eq!(list, "/etc/mark\n\n/private/tmp:\n", "macOS empties one folder");
    macs.wipe(&macs.host().await).await;
    until("another host key", async || {
        let pinned = Some(second.host_key.clone());
        let target = applecart_mac::Target { pinned, ..macs.target().await };
        matches!(Ssh::default().dial(&target).await, Err(MacError::HostKeyChanged { .. }))
    })
    .await;
    let third = macs.dial().await;
    let new = macs.host().await.password.expect("a password").expose_secret().to_owned();
    assert_ne!(new, old);
    assert!(as_root(&*third.mac, &new, "test ! -e /etc/mark").await.success());
}

#[tokio::test]
async fn every_fault_can_be_asked_for_and_taken_back() {
    let macs = Macs::start(6, 1, AGENT).await;
    let session = macs.dial().await;
    let target = macs.target().await;
    let quick = Ssh::default().connect_timeout(Duration::from_secs(2));
    macs.change(r#"{"refuses_keys": true}"#).await;
    until("a refused key", async || {
        matches!(quick.dial(&target).await, Err(MacError::AuthRefused { .. }))
    })
    .await;
    macs.change(r#"{"refuses_keys": false, "hangs": true}"#).await;
    until("silence", async || {
        matches!(quick.dial(&target).await, Err(MacError::Unreachable { .. }))
    })
    .await;
    macs.change(r#"{"hangs": false}"#).await;
    macs.dial().await;
    let password = macs.host().await.password.expect("a password");
    macs.change(r#"{"disk_full": true}"#).await;
    let fill = "dd if=/dev/zero of=/etc/large bs=1M count=4";
    until("a full disk", async || {
        let output = as_root(&*session.mac, password.expose_secret(), fill).await;
        text(&output.stderr).contains("No space left on device")
    })
    .await;
    macs.change(r#"{"disk_full": false, "latency_seconds": 0.3}"#).await;
    until("room", async || as_root(&*session.mac, password.expose_secret(), fill).await.success())
        .await;
    let desired = macs.desired("mac-faults").await;
    macs.change(r#"{"latency_seconds": 0, "locked": true}"#).await;
    let error = bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("locked");
    assert_eq!(error.next(), Next::NewPassword, "{error:?}");
    macs.change(r#"{"locked": false, "password": "another"}"#).await;
    let error = bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("wrong password");
    assert_eq!(error.next(), Next::NewPassword, "{error:?}");
}

#[tokio::test]
async fn a_disk_without_room_is_told_by_a_step_and_the_next_run_with_room_converges() {
    let macs = Macs::start(45, 1, AGENT).await;
    let session = macs.dial().await;
    let host = macs.host().await;
    let password = host.password.as_ref().expect("a password").expose_secret();
    let first = macs.desired("mac-full").await;
    let large = Payload::new(vec![7; 3 * 1024 * 1024]);
    let second = macs.desired_with(&host, "mac-full", large);
    let in_steps = ["passwordless sudo", "agent binary"];
    for (desired, step) in [first, second].iter().zip(in_steps) {
        macs.change(r#"{"disk_full": true}"#).await;
        // Always more: what was measured as used is room again for whoever writes the same anew.
        let fill =
            Script { name: "fill", text: "head -c 1048576 /dev/zero 2>&1 >>/Users/m1/fill; true" };
        let fill = Command::script(fill, &[], Privilege::User);
        // The lever is pulled a moment after it was answered.
        until("a full disk", async || {
            session
                .mac
                .run(&fill)
                .await
                .is_ok_and(|output| text(&output.stdout).contains("No space left on device"))
        })
        .await;
        let error = bootstrap(&*session.mac, desired, &|_| {}).await.expect_err("no room");
        let said = error.explain();
        assert!(said.contains(step) && !said.contains(password), "{said}");
        assert!(!format!("{error:?}").contains(password), "{said}");
        macs.change(r#"{"disk_full": false}"#).await;
        let free = Script { name: "free", text: "rm -f /Users/m1/fill; echo x >/Users/m1/x" };
        let free = Command::script(free, &[], Privilege::User);
        until("room", async || session.mac.run(&free).await.is_ok_and(|output| output.success()))
            .await;
        let report = bootstrap(&*session.mac, desired, &|_| {}).await.expect("converges");
        assert!(report.converged(), "{report:?}");
    }
    assert_eq!(macs.mac()["wrong_passwords"], 0);
}

#[tokio::test]
async fn a_disk_is_filled_although_its_mac_writes_meanwhile() {
    let macs = Macs::start(47, 1, AGENT).await;
    let session = macs.dial().await;
    let grow =
        "while :; do head -c 400000 /dev/zero >/Users/m1/x 2>/dev/null; rm -f /Users/m1/x; done";
    let grow = Script { name: "grow", text: grow };
    let grow = Command::script(grow, &[], Privilege::User).timeout(Duration::from_mins(5));
    let pull = async {
        for _ in 0..40 {
            macs.change(r#"{"disk_full": true}"#).await;
            macs.change(r#"{"disk_full": false}"#).await;
        }
        // Orders are obeyed one after the other: this one comes last.
        macs.change(r#"{"refuses_keys": true}"#).await;
        let target = macs.target().await;
        until("the last order", async || {
            matches!(Ssh::default().dial(&target).await, Err(MacError::AuthRefused { .. }))
        })
        .await;
    };
    tokio::select! {
        ended = session.mac.run(&grow) => panic!("{ended:?}"),
        () = pull => {}
    }
    assert_eq!(macs.mac()["on"], true);
}

#[tokio::test]
async fn tries_of_a_password_are_counted_for_one_boot_whatever_macos_cleans() {
    // S18
    let macs = Macs::start(46, 1, AGENT).await;
    macs.dial().await;
    let desired = macs.desired("mac-tries").await;
    macs.change(r#"{"password": "another"}"#).await;
    for _ in 0..4 {
        let session = macs.dial().await;
        let error = bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("wrong password");
        assert_eq!(error.next(), Next::NewPassword, "{error:?}");
        macs.ssh("rm -rf /private/tmp/* /private/tmp/.[!.]*").await;
    }
    assert_eq!(macs.mac()["wrong_passwords"], 2);
    let (first, id) = (macs.dial().await, macs.host().await.id);
    macs.lever("POST", &format!("/macs/{id}/reboot"), "");
    until("the connection's end", async || first.mac.run(&Command::user(&["true"])).await.is_err())
        .await;
    let session = macs.dial().await;
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("wrong password");
    assert_eq!(macs.mac()["wrong_passwords"], 3, "a boot unlocks the account");
}

#[tokio::test]
async fn a_mac_that_loses_its_power_in_the_middle_of_a_step_converges_afterwards() {
    let macs = Macs::start(7, 1, AGENT).await;
    let desired = macs.desired("mac-reboot").await;
    macs.dial().await;
    macs.change(r#"{"firewall_busy": 2, "reboot_at": "pfctl -f /etc/pf.conf"}"#).await;
    let error = bootstrap(&*macs.dial().await.mac, &desired, &|_| {}).await.expect_err("cut off");
    assert!(error.explain().contains("firewall"), "{}", error.explain());
    assert!(!error.explain().contains("busy"), "a busy firewall is waited for");
    let report = bootstrap(&*macs.dial().await.mac, &desired, &|_| {}).await.expect("converges");
    assert!(report.changed());
}

/// Whether a process of the Mac sleeps for so many seconds.
async fn sleeps(macs: &Macs, seconds: &str) -> bool {
    text(&macs.ssh("ps ax -o args=").await.stdout).contains(&format!("sleep {seconds}"))
}

#[tokio::test]
async fn a_command_that_is_given_up_is_ended_with_all_that_it_started() {
    // LH18. In a Mac's own process namespace: nothing else here can be hit.
    let macs = Macs::start(10, 1, AGENT).await;
    let session = macs.dial().await;
    let desired = macs.desired("mac-given-up").await;
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    let stubborn = Script { name: "two", text: "trap '' TERM; sleep 11111 & sleep 11111" };
    let stubborn = Command::script(stubborn, &[], Privilege::Root).timeout(Duration::from_secs(1));
    let error = session.mac.run(&stubborn).await.unwrap_err();
    assert!(matches!(error, MacError::TimedOut { .. }), "{error}");
    until("the end of a slow command", async || !sleeps(&macs, "11111").await).await;

    let slow = Command::root(&["sleep", "22222"]);
    tokio::select! {
        ended = session.mac.run(&slow) => panic!("{ended:?}"),
        () = until("a slow command", async || sleeps(&macs, "22222").await) => {}
    }
    drop(session);
    until("the end of a cancelled command", async || !sleeps(&macs, "22222").await).await;
    assert!(macs.mac()["agent_pid"].is_number(), "nothing else is ended");
}

#[tokio::test]
async fn what_a_lost_connection_left_running_is_ended_before_the_next_run() {
    // LH18
    let macs = Macs::start(9, 1, AGENT).await;
    let (lost, desired) = (macs.dial().await, macs.desired("mac-left").await);
    bootstrap(&*lost.mac, &desired, &|_| {}).await.expect("converges");
    let script = Script {
        name: "lose the line",
        text: r#"kill -9 "$(ps -o ppid= -p $PPID)"; exec sleep 77777"#,
    };
    let slow = Command::script(script, &[], Privilege::Root);
    assert!(matches!(lost.mac.run(&slow).await, Err(MacError::Unknown { .. })));
    let session = macs.dial().await;
    assert!(sleeps(&macs, "77777").await, "it outlives its connection");
    macs.change(r#"{"leftovers_status": 3}"#).await;
    let error = bootstrap(&*session.mac, &desired, &|_| {}).await.expect_err("nobody can tell");
    assert!(error.explain().contains("pgrep ended with status 3"), "{}", error.explain());
    assert!(sleeps(&macs, "77777").await);
    macs.change(r#"{"leftovers_status": 0}"#).await;
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("is converged");
    assert!(!sleeps(&macs, "77777").await, "no two runs work at once");
}

/// An agent with one child in its own process group, and one in another.
const PARENT: &str = "#!/bin/sh
sleep 33333 &
setsid sleep 44444 &
while :; do sleep 1; done
";

#[tokio::test]
async fn an_agents_restart_ends_its_process_group_and_nothing_else() {
    // S24: launchd ends what is left in a job's group, so a VM must not be in it.
    let macs = Macs::start(48, 1, PARENT).await;
    let session = macs.dial().await;
    bootstrap(&*session.mac, &macs.desired("mac-group").await, &|_| {}).await.expect("converges");
    let count = async |seconds: &str| {
        let all = text(&macs.ssh("ps ax -o args=").await.stdout);
        all.lines().filter(|line| *line == format!("sleep {seconds}")).count()
    };
    until("both children", async || (count("33333").await, count("44444").await) == (1, 1)).await;
    let kick = ["launchctl", "kickstart", "-k", "system/dev.tuist.tart-kubelet"];
    let kill = format!("/macs/{}/kill-agent", macs.host().await.id);
    for restarts in 2..4 {
        let before = macs.mac()["agent_pid"].clone();
        if restarts == 2 {
            session.mac.run(&Command::root(&kick)).await.expect("an end");
        } else {
            macs.lever("POST", &kill, "");
        }
        macs.until("another agent", |mac| {
            mac["agent_pid"].is_number() && mac["agent_pid"] != before
        })
        .await;
        until("its children", async || count("44444").await == restarts).await;
        until("the end of the old ones", async || count("33333").await == 1).await;
    }
}

#[tokio::test]
async fn a_firewall_that_lost_ours_is_closed_over_ssh_under_a_running_vm() {
    // V17, S22: the texts that a real shell runs.
    let macs = Macs::start(49, 1, AGENT).await;
    let session = macs.dial().await;
    let desired = macs.desired("mac-open").await;
    bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    // By another client: what a bootstrap finds of earlier ones, it ends.
    let tart = "/usr/local/bin/tart";
    let start = format!("{tart} clone image one; setsid {tart} run one >/dev/null 2>&1 &");
    assert!(macs.ssh(&start).await.status.success());
    let runs = async || macs.ssh(&format!("{tart} ip one")).await.status.success();
    until("a VM", runs).await;
    let rules = async |anchor: &str| {
        let show = ["pfctl", "-a", anchor, "-s", "rules"];
        session.mac.run(&Command::root(&show)).await.expect("an end").text()
    };
    session.mac.run(&Command::root(&["pfctl", "-F", "rules"])).await.expect("an end");
    let report = bootstrap(&*session.mac, &desired, &|_| {}).await.expect("closes it");
    assert!(report.converged() && report.changed(), "{report:?}");
    assert!(pf::are_live(&rules(pf::ANCHOR).await));

    let open = "sed -i '/BEGIN tuist/,/END tuist/d' /etc/pf.conf; pfctl -R -f /etc/pf.conf";
    let open = Command::script(Script { name: "replace", text: open }, &[], Privilege::Root);
    assert!(session.mac.run(&open).await.expect("an end").success());
    let report = bootstrap(&*session.mac, &desired, &|_| {}).await.expect("closes it");
    assert!(report.postponed().is_some_and(|why| why.contains("firewall")), "{report:?}");
    assert!(pf::are_live(&rules(pf::STAND_IN).await) && runs().await);

    macs.lever("POST", &format!("/macs/{}/vms/one/finish", macs.host().await.id), "{}");
    until("the end of the VM", async || !runs().await).await;
    let report = bootstrap(&*session.mac, &desired, &|_| {}).await.expect("converges");
    assert!(report.converged() && report.changed(), "{report:?}");
    assert_eq!(rules(pf::STAND_IN).await, "");
    assert!(pf::are_live(&rules(pf::ANCHOR).await));
}

#[tokio::test]
async fn everything_ends_with_the_command_even_when_it_is_killed() {
    let mut macs = Macs::start(8, 1, AGENT).await;
    let session = macs.dial().await;
    let node = format!("mac-killed-{}", std::process::id());
    bootstrap(&*session.mac, &macs.desired(&node).await, &|_| {}).await.expect("converges");
    assert!(processes_with(&node) > 0, "the agent runs");
    let address = macs.target().await.address;
    macs.kill();
    until("the end of the agent", async || processes_with(&node) == 0).await;
    until("the end of the server", async || {
        std::net::TcpStream::connect((address.as_str(), macs.port)).is_err()
    })
    .await;
}

/// How many processes of this machine have a text in their arguments.
fn processes_with(text: &str) -> usize {
    let processes = std::fs::read_dir("/proc").expect("processes").flatten();
    let has = |entry: &std::fs::DirEntry| {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(text)
    };
    processes.filter(has).count()
}

#[test]
fn help_lists_the_levers_and_a_machine_that_cannot_run_macs_is_told_what_to_do() {
    let run = |arguments: &[&str], path: &str| {
        std::process::Command::new(env!("CARGO_BIN_EXE_applecart"))
            .args(["sim", "macs"])
            .args(arguments)
            .env("PATH", path)
            .output()
            .expect("it runs")
    };
    let help = text(&run(&["--help"], "").stdout);
    for word in ["--scaleway", "--ssh-port", "--agent", "--job-seconds", "/macs", "Examples"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    assert!(!help.contains("--inside"));
    let output = run(&["--scaleway", "http://127.0.0.1:1"], "/nonexistent");
    let complaint = text(&output.stderr);
    assert!(!output.status.success() && complaint.contains("run this as root"), "{complaint}");
    let output = run(&["--scaleway", "http://127.0.0.1:1", "--speed", "0"], "");
    assert!(text(&output.stderr).contains("--speed 0"));
}
