//! `applecart sim scaleway` as a person uses it: start it, export what it prints, use any client.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use applecart_api::clock::Clock;
use applecart_scaleway::{Client, Config, ErrorKind, Limit, Profile, http_service};
use applecart_sim::scaleway::Unsure;
use jiff::Timestamp;
use tower::ServiceExt;

/// A running simulator. Dropped, it is killed.
struct Sim {
    process: Child,
    output: BufReader<ChildStdout>,
}

impl Drop for Sim {
    fn drop(&mut self) {
        // It may have ended by itself, which is what the test wants.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Sim {
    fn start(arguments: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_applecart"))
            .args(["sim", "scaleway"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(process.stdout.take().expect("piped"));
        Self { process, output }
    }

    /// What it says to export, up to and with the last variable.
    fn environment(&mut self) -> Vec<(String, String)> {
        let mut variables = vec![];
        while !variables.iter().any(|(name, _)| name == "SCW_DEFAULT_ZONE") {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).expect("text") > 0, "only {variables:?}");
            let pair = line.trim().strip_prefix("export ").and_then(|pair| pair.split_once('='));
            let (name, value) = pair.expect("a line to paste into a shell");
            variables.push((name.to_owned(), value.to_owned()));
        }
        variables
    }
}

#[tokio::test]
async fn a_client_of_the_real_service_needs_only_the_environment_that_it_prints() {
    let mut sim = Sim::start(&["--hosts", "12", "--pool-prefix", "spare-"]);
    let environment = sim.environment();
    let variable = |name: &str| {
        environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    };
    let profile = Profile::load(variable).expect("a complete environment");
    let zone = profile.zone().expect("a zone").clone();
    let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
    let service = http_service().expect("a transport");
    let client = Client::new(service, Config::new(profile, clock, Limit::of_process()));
    let servers = client.list_servers(&zone).await.expect("a list");
    assert_eq!(servers.len(), 12);
    assert!(servers.iter().all(|server| server.name.starts_with("spare-")));
    let server = client.server(&zone, &servers[0].id).await.expect("a server");
    assert!(server.password.is_some(), "a fresh read carries the password");
    client.delete(&zone, &server.id).await.expect("older than the licensing floor");
    let gone = client.server(&zone, &server.id).await.expect_err("deleted");
    assert_eq!(gone.kind, ErrorKind::Permission, "a deleted server answers 403");
    let sent = Command::new("kill").args(["-INT", &sim.process.id().to_string()]).status();
    assert!(sent.expect("kill runs").success());
    assert_eq!(sim.process.wait().expect("it ends").code(), Some(0));
}

#[test]
fn help_lists_the_levers_and_bad_values_say_what_is_wrong() {
    let run = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_applecart"))
            .args(["sim", "scaleway"])
            .args(arguments)
            .output()
            .expect("it runs")
    };
    let help = String::from_utf8(run(&["--help"]).stdout).expect("text");
    let questions = Unsure::QUESTIONS.iter().map(|(name, answers, _)| (*name, answers.join(" | ")));
    for (name, answers) in questions {
        assert!(help.contains(&format!("{name}: {answers}")), "{name} is not in\n{help}");
    }
    for word in ["--listen", "--pool-prefix", "--floor-seconds", "too_many_requests", "/sim/"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    for (flag, value, remedy) in [
        ("--quota", "many", "TYPE=COUNT"),
        ("--quota", "NOPE=1", "M4-XL"),
        ("--unsure", "gone", "QUESTION=ANSWER"),
        ("--unsure", "gone=fishing", "not_found"),
        ("--unsure", "weather=fine", "default_page_size"),
        ("--zone", "paris", "fr-par-1"),
        ("--type", "NOPE", "M4-XL"),
        ("--os", "windows", "macos-tahoe-26"),
        ("--hosts", "10001", "from 0 to 10000"),
        ("--max-page-size", "0", "1.."),
        ("--floor-seconds", "a day", "digit"),
    ] {
        let output = run(&[flag, value]);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{flag} {value}");
        assert!(complaint.contains(flag) && complaint.contains(remedy), "{complaint}");
    }
}

#[test]
fn the_page_about_it_has_every_flag_and_every_question() {
    let page = include_str!("../../../docs/scaleway.md");
    let help = Command::new(env!("CARGO_BIN_EXE_applecart"))
        .args(["sim", "scaleway", "--help"])
        .output()
        .expect("it runs");
    let help = String::from_utf8(help.stdout).expect("text");
    let flags = help.lines().filter_map(|line| line.trim().strip_prefix("--")?.split(' ').next());
    let flags: Vec<String> = flags.map(|flag| format!("`--{flag}")).collect();
    assert!(flags.len() > 10, "{flags:?}");
    for flag in flags {
        assert!(page.contains(&flag), "{flag} is not on the page");
    }
    for (name, answers, _) in Unsure::QUESTIONS {
        let row = page.lines().find(|line| line.contains(&format!("`{name}`"))).unwrap_or_default();
        let told = answers.iter().all(|answer| row.contains(&format!("`{answer}`")));
        assert!(told, "{name}: not all of {answers:?} are on the page");
    }
}

#[tokio::test]
async fn what_the_flags_say_is_what_it_does() {
    let mut sim = Sim::start(&[
        "--hosts=60",
        "--type=M4-S",
        "--unsure=default_page_size=50",
        "--unsure=oversized_pages=no",
        "--max-page-size=55",
        "--quota=M4-S=60",
        "--starting-seconds=1",
        "--starting-other-os-seconds=2",
        "--rebooting-seconds=3",
        "--reinstalling-seconds=4",
        "--vpc-updating-seconds=5",
        "--floor-seconds=6",
    ]);
    let environment = BTreeMap::from_iter(sim.environment());
    let get = async |path: &str| {
        let request = http::Request::get(format!("{}{path}", environment["SCW_API_URL"]))
            .header("x-auth-token", &environment["SCW_SECRET_KEY"])
            .body(bytes::Bytes::new())
            .expect("a request");
        let answer =
            http_service().expect("a transport").oneshot(request).await.expect("an answer");
        serde_json::from_slice::<serde_json::Value>(answer.body()).expect("JSON")
    };
    let servers = "/apple-silicon/v1alpha1/zones/fr-par-1/servers";
    assert_eq!(get(servers).await["servers"].as_array().map(Vec::len), Some(50));
    let large = get(&format!("{servers}?page_size=56")).await;
    assert_eq!(large["details"][0]["help_message"], "at most 55");
    let state = get("/sim/state").await;
    assert_eq!(state["hosts"][0]["type"], "M4-S");
    assert_eq!(state["quotas"]["M4-S"], 60);
    let seconds = serde_json::json!({
        "starting": 1.0, "starting_other_os": 2.0, "rebooting": 3.0, "reinstalling": 4.0,
        "vpc_updating": 5.0, "floor": 6.0,
    });
    assert_eq!(state["seconds"], seconds);
}
