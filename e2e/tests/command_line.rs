//! The runner's command line, without a control plane.

use std::process::{Command, Output};

fn e2e(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_applecart-e2e"));
    command.args(arguments);
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn run(arguments: &[&str]) -> Output {
    e2e(arguments).output().expect("it starts")
}

#[test]
fn a_guard_becomes_the_program_that_it_guards() {
    let parent = std::process::id().to_string();
    let output = run(&["guard", "kill", &parent, "echo", "--keep", "a b"]);
    assert_eq!(text(&output.stdout), "--keep a b\n", "{}", text(&output.stderr));
    assert!(output.status.success());
}

#[test]
fn a_guard_whose_parent_is_already_gone_starts_nothing() {
    let output = run(&["guard", "kill", "1", "echo", "started"]);
    assert_eq!(text(&output.stdout), "");
    assert!(text(&output.stderr).contains("the parent is gone"), "{}", text(&output.stderr));
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_list_names_scenarios_and_what_is_missing() {
    let list = text(&run(&["--list"]).stdout);
    assert!(list.contains("contract_06_"), "{list}");
    assert!(list.contains("missing: line 25: "), "{list}");
}

#[test]
fn a_name_that_no_scenario_has_is_an_error_and_not_a_pass() {
    let output = run(&["no_such_story"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--list"), "{}", text(&output.stderr));
}

#[test]
fn without_go_and_without_a_cache_it_says_what_to_install() {
    let empty = std::env::temp_dir().join("no-such-folder");
    let output = e2e(&["the_api_server"])
        .env("PATH", &empty)
        .env("XDG_CACHE_HOME", &empty)
        .env_remove("KUBECONFIG")
        .env_remove("KUBEBUILDER_ASSETS")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    for word in ["install Go", "KUBEBUILDER_ASSETS", "KUBECONFIG"] {
        assert!(told.contains(word), "{word} is not in {told}");
    }
}

#[test]
fn a_cluster_that_is_not_on_this_machine_is_refused() {
    let path = std::env::temp_dir().join(format!("applecart-far-{}.json", std::process::id()));
    let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": "https://198.51.100.7:6443"}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}"#;
    std::fs::write(&path, config).expect("written");
    let output = e2e(&["the_api_server"]).env("KUBECONFIG", &path).output().expect("it starts");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(output.status.code(), Some(2));
    let told = text(&output.stderr);
    assert!(told.contains("198.51.100.7") && told.contains("unset KUBECONFIG"), "{told}");
}
