//! The binary as launchd runs it.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const BINARY: &str = env!("CARGO_BIN_EXE_tart-kubelet");

/// Points at a port on loopback where nobody listens, over TLS, with a token.
const KUBECONFIG: &str = r"
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]
users: [{name: u, user: {token: canary-77aa}}]
";

#[test]
fn a_signal_ends_it_cleanly_while_it_waits_for_an_api_server_that_is_not_there() {
    let home = tempfile::tempdir().unwrap();
    let kubeconfig = home.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG).unwrap();
    for sent in [Signal::TERM, Signal::INT] {
        let mut child = Command::new(BINARY)
            .args(["--node-name=mac-1", "--host-cpu=8", "--tart-binary=/nonexistent/tart"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--state-dir={}", home.path().display()))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let mut text = String::new();
        // It has tried, and goes on.
        while !text.contains("did not answer") {
            text = log.next().expect("it runs until it is told to end").unwrap();
            assert!(!text.contains("canary-77aa"), "{text}");
        }
        kill_process(Pid::from_child(&child), sent).unwrap();
        assert!(child.wait().unwrap().success());
    }
}

#[test]
fn what_is_wrong_at_the_start_is_said_in_one_line_and_with_a_code() {
    let run = |args: &[&str]| Command::new(BINARY).args(args).output().unwrap();
    let output = run(&["--node-name=m", "--kubeconfig=/nonexistent/kubeconfig"]);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("reading kubeconfig /nonexistent/kubeconfig"), "{text}");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(run(&["--no-such-flag"]).status.code(), Some(2));
    let help = run(&["--help"]);
    assert!(String::from_utf8(help.stdout).unwrap().contains("Example:"));
}
