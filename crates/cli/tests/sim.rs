//! `applecart sim scaleway` as a person uses it: start it, export what it prints, use any client.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

use applecart_api::clock::Clock;
use applecart_scaleway::{Client, Config, ErrorKind, Profile, http_service};
use jiff::Timestamp;

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
    let client = Client::new(service, Config::new(profile, clock));
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
    for word in ["--listen", "--pool-prefix", "--unsure", "/sim/"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
    for arguments in [["--quota", "many"], ["--unsure", "gone"], ["--zone", "paris"]] {
        let output = run(&arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && complaint.contains(arguments[0]), "{complaint}");
    }
}
