//! Tart's command line, against a stand-in that keeps its VMs as folders and answers with Tart's
//! own exit codes and words.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use applecart_core::pod::{Exit, Template, VmName, VmState};
use tart_kubelet::{Share, Tart, Vm, VmError};
use tempfile::TempDir;

/// It is in the tree: one that was just written may be busy, while another test starts a process.
const STAND_IN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand_in/tart.sh");

struct Host {
    home: TempDir,
}

impl Host {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(STAND_IN, home.path().join("tart")).unwrap();
        Self { home }
    }

    /// A Tart as a freshly started agent has it.
    fn tart(&self) -> Tart {
        Tart::new(self.path("tart"), self.path("state"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        let new = self.path("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.path(name)).unwrap();
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    async fn state(&self, vm: &VmName) -> Option<VmState> {
        self.tart().list().await.unwrap().remove(vm)
    }

    /// Waits until a VM is in a state that `wanted` likes.
    async fn until(
        &self,
        vm: &VmName,
        wanted: impl Fn(Option<&VmState>) -> bool,
    ) -> Option<VmState> {
        let reached = async {
            loop {
                let state = self.state(vm).await;
                if wanted(state.as_ref()) {
                    return state;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), reached).await.expect("the level is reached")
    }

    async fn ended(&self, vm: &VmName) -> Exit {
        match self.until(vm, |state| matches!(state, Some(VmState::Ended { .. }))).await {
            Some(VmState::Ended { exit, .. }) => exit,
            other => panic!("{other:?}"),
        }
    }

    async fn created(&self, name: &str) -> VmName {
        let vm = VmName::new(name);
        self.tart().create(&vm, &template()).await.unwrap();
        vm
    }

    async fn started(&self, name: &str) -> VmName {
        let vm = self.created(name).await;
        self.tart().start(&vm, Share::default()).await.unwrap();
        let pid = self.path(&format!("vms/{name}/pid"));
        while !pid.exists() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        vm
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for vm in std::fs::read_dir(self.path("vms")).into_iter().flatten().flatten() {
            let _ = std::fs::write(vm.path().join("halt"), "0");
        }
    }
}

fn template() -> Template {
    Template {
        container: "runner".into(),
        image: "registry/image:1".into(),
        cpu: Some(4),
        memory_mib: Some(8192),
        env: Vec::new(),
        token_of: None,
    }
}

fn code(code: i32, message: &str) -> Exit {
    Exit::Code { code, message: message.into() }
}

#[tokio::test]
async fn a_vm_is_cloned_given_its_own_identity_and_then_complete() {
    let host = Host::new();
    let vm = host.created("a").await;
    assert_eq!(host.state(&vm).await, Some(VmState::Created));
    let set = "set a --random-mac --random-serial --cpu 4 --memory 8192";
    assert_eq!(host.calls()[..2], ["clone registry/image:1 a", set]);
}

#[tokio::test]
async fn a_vm_whose_creation_broke_off_is_partial_and_made_again() {
    let host = Host::new();
    host.write("fail-set", "LessThanMinimalResourcesError: 4 is too few\n");
    let vm = VmName::new("a");
    let error = host.tart().create(&vm, &template()).await.unwrap_err();
    assert!(matches!(&error, VmError::Failed { .. }) && error.to_string().contains("too few"));
    assert_eq!(host.state(&vm).await, Some(VmState::Partial));
    std::fs::remove_file(host.path("fail-set")).unwrap();
    host.created("a").await;
    assert_eq!(host.state(&vm).await, Some(VmState::Created));
}

#[tokio::test]
async fn the_share_is_for_the_guest_alone_and_its_path_is_all_that_the_command_line_shows() {
    let host = Host::new();
    let vm = host.created("a").await;
    let files = BTreeMap::from([("tuist.env".to_owned(), "KEY=canary-4711\n".into())]);
    host.tart().start(&vm, Share { files }).await.unwrap();
    host.until(&vm, |state| state == Some(&VmState::Running)).await;
    let share = host.path("state/a/share");
    assert_eq!(mode(&share), 0o700);
    assert_eq!(mode(&share.join("tuist.env")), 0o600);
    assert_eq!(std::fs::read_to_string(share.join("tuist.env")).unwrap(), "KEY=canary-4711\n");
    let run = format!("run a --no-graphics --dir env:{}:ro", share.display());
    assert!(host.calls().contains(&run), "{:?}", host.calls());
    assert!(!host.calls().join("\n").contains("canary"));
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test]
async fn how_a_run_ended_is_seen_also_by_an_agent_that_did_not_start_it() {
    // LH17: each look is by a new `Tart`.
    let crash = "guest has stopped the virtual machine due to error: panic";
    for (number, words, exit) in [
        ("0", "guest has stopped the virtual machine", code(0, "")),
        ("7", "boom", code(7, "boom")),
        ("0", crash, Exit::Crashed(crash.into())),
    ] {
        let host = Host::new();
        let vm = host.started("a").await;
        assert_eq!(host.state(&vm).await, Some(VmState::Running));
        host.write("vms/a/words", words);
        host.write("vms/a/halt", number);
        assert_eq!(host.ended(&vm).await, exit);
    }
}

#[tokio::test]
async fn a_run_that_left_no_exit_code_ended_unknown_and_never_well() {
    let host = Host::new();
    let vm = host.started("a").await;
    // As after a power cut: both the script and what it ran are gone.
    let text = std::fs::read_to_string(host.path("state/a/run")).unwrap();
    let pid: i32 = text.split(' ').next().unwrap().parse().unwrap();
    let group = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    assert_eq!(host.ended(&vm).await, Exit::Unknown);
}

#[tokio::test]
async fn a_vm_is_in_no_process_group_that_ends_with_its_agent() {
    // S24: launchd ends what is left in the group of a job that it restarts.
    let host = Host::new();
    let vm = host.started("a").await;
    let text = std::fs::read_to_string(host.path("state/a/run")).unwrap();
    let pid = rustix::process::Pid::from_raw(text.split(' ').next().unwrap().parse().unwrap());
    assert_ne!(rustix::process::getpgid(pid).unwrap(), rustix::process::getpgrp());
    host.write("vms/a/halt", "0");
    assert_eq!(host.ended(&vm).await, code(0, ""));
}

#[tokio::test]
async fn a_living_process_that_is_not_the_vm_is_not_taken_for_it() {
    // LH27: its number was used again, or its command line looks alike.
    let host = Host::new();
    let vm = host.created("a").await;
    let begun_otherwise = format!("{} Thu Jan  1 00:00:00 1970\n", std::process::id());
    std::fs::create_dir_all(host.path("state/a")).unwrap();
    host.write("state/a/run", &begun_otherwise);
    assert_eq!(host.ended(&vm).await, Exit::Unknown);
    host.tart().remove(&vm).await.unwrap();
    let vm = host.started("b").await;
    let mut decoy = std::process::Command::new("/bin/sh")
        // Nothing of it outlives it for long, nor keeps our output open.
        .args(["-c", "while :; do sleep 0.1; done", "tart", "run", "b"])
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let text = std::fs::read_to_string(host.path("state/b/run")).unwrap();
    let pid: i32 = text.split(' ').next().unwrap().parse().unwrap();
    let group = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
    let exit = host.ended(&vm).await;
    decoy.kill().and_then(|()| decoy.wait()).unwrap();
    assert_eq!(exit, Exit::Unknown);
}

#[tokio::test]
async fn a_vm_runs_at_most_once_in_its_life() {
    // S28, on the host itself: whoever asks again.
    let host = Host::new();
    let vm = host.started("a").await;
    host.tart().start(&vm, Share::default()).await.unwrap();
    host.write("vms/a/halt", "3");
    assert_eq!(host.ended(&vm).await, code(3, ""));
    host.tart().start(&vm, Share::default()).await.unwrap();
    assert!(host.tart().create(&vm, &template()).await.is_err());
    assert_eq!(host.ended(&vm).await, code(3, ""));
    assert_eq!(host.calls().iter().filter(|call| call.starts_with("run ")).count(), 1);
}

#[tokio::test]
async fn a_vm_deleted_behind_our_back_is_still_known_to_have_run() {
    let host = Host::new();
    let vm = host.started("a").await;
    host.write("vms/a/halt", "0");
    host.ended(&vm).await;
    std::fs::remove_dir_all(host.path("vms/a")).unwrap();
    assert_eq!(host.ended(&vm).await, code(0, ""));
    host.tart().remove(&vm).await.unwrap();
    assert_eq!(host.state(&vm).await, None);
}

#[tokio::test]
async fn a_running_vm_is_stopped_and_nothing_of_it_is_left() {
    let host = Host::new();
    let (a, b) = (host.started("a").await, host.started("a-2").await);
    host.tart().remove(&a).await.unwrap();
    assert_eq!(host.state(&a).await, None);
    assert!(!host.path("state/a").exists());
    assert_eq!(host.state(&b).await, Some(VmState::Running), "K19: only the exact name");
    host.tart().remove(&a).await.unwrap();
}

#[tokio::test]
async fn a_vm_that_we_did_not_make_is_seen_as_it_is() {
    let host = Host::new();
    std::fs::create_dir_all(host.path("vms/foreign")).unwrap();
    let foreign = VmName::new("foreign");
    assert_eq!(host.state(&foreign).await, Some(VmState::Partial));
    host.write("vms/foreign/pid", &std::process::id().to_string());
    assert_eq!(host.state(&foreign).await, Some(VmState::Running));
}

#[tokio::test]
async fn an_address_is_none_until_there_is_one_and_an_error_is_neither() {
    let host = Host::new();
    let vm = host.created("a").await;
    assert_eq!(host.tart().address(&vm).await.unwrap(), None);
    host.write("vms/a/ip", "192.168.64.7\n");
    assert_eq!(host.tart().address(&vm).await.unwrap(), Some("192.168.64.7".parse().unwrap()));
    assert_eq!(host.tart().address(&VmName::new("none")).await.unwrap(), None);
    host.write("fail-ip", "Keychain returned unsuccessful status -25308\n");
    let error = host.tart().address(&vm).await.unwrap_err().to_string();
    assert!(error.contains("-25308"), "{error}");
}

#[tokio::test]
async fn a_list_that_fails_is_an_error_and_never_an_empty_host() {
    let host = Host::new();
    host.write("fail-list", "TART_HOME is invalid: /x\n");
    let error = host.tart().list().await.unwrap_err().to_string();
    assert!(error.contains("TART_HOME is invalid"), "{error}");
    let nowhere = Tart::new("/nonexistent/tart", host.path("state"));
    assert!(matches!(nowhere.list().await, Err(VmError::Host { .. })));
}

#[tokio::test]
async fn a_command_that_nobody_wants_any_more_takes_its_children_with_it() {
    // K11: its child holds the pipes and would sleep on.
    let host = Host::new();
    host.write("hang-clone", "");
    let vm = VmName::new("a");
    let sleepers = host.path("sleepers");
    {
        let (tart, template) = (host.tart(), template());
        let create = tart.create(&vm, &template);
        let hung = async {
            while !sleepers.exists() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::select! {
            result = create => panic!("it hangs: {result:?}"),
            () = hung => {}
        }
    }
    let pid: i32 = std::fs::read_to_string(&sleepers).unwrap().trim().parse().unwrap();
    let gone = async {
        while process_lives(pid) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the child is gone");
}

fn process_lives(pid: i32) -> bool {
    let output = std::process::Command::new("/bin/ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    !state.is_empty() && !state.starts_with('Z')
}

#[tokio::test]
async fn a_command_ends_although_a_child_of_its_keeps_the_output_open() {
    let host = Host::new();
    host.write("child-list", "");
    let all = tokio::time::timeout(Duration::from_secs(20), host.tart().list()).await;
    assert!(all.expect("it returns").unwrap().is_empty());
}
