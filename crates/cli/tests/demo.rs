//! The demo as a person uses it: the binary, its kubeconfig, the real kubectl, Ctrl-C.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for any level; on a loaded machine the whole story takes half a minute.
const PATIENCE: Duration = Duration::from_mins(3);

/// Between two looks, so that looking does not slow down what is looked at.
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// A running demo. Dropped, it is killed.
struct Demo {
    process: Child,
    kubeconfig: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Drop for Demo {
    fn drop(&mut self) {
        // It may have ended by itself, which is what most tests want; else politely, so that it
        // takes its kubeconfig along.
        if let Ok(None) = self.process.try_wait() {
            let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        }
        let _ = self.process.wait();
    }
}

fn applecart(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_applecart"));
    command.args(arguments);
    command
}

impl Demo {
    fn start(arguments: &[&str]) -> Self {
        let arguments = [&["demo", "--port", "0"], arguments].concat();
        let mut process =
            applecart(&arguments).stdout(Stdio::piped()).spawn().expect("the demo starts");
        let output = process.stdout.take().expect("piped");
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&lines);
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                kept.lock().expect("nobody panics with it").push(line);
            }
        });
        let mut demo = Self { process, kubeconfig: PathBuf::new(), lines };
        demo.kubeconfig = demo.line_with("export KUBECONFIG=").split('=').nth(1).unwrap().into();
        demo
    }

    fn lines(&self) -> Vec<String> {
        self.lines.lock().expect("nobody panics with it").clone()
    }

    /// Waits until the demo prints a line that contains `text`.
    fn line_with(&self, text: &str) -> String {
        let find = || self.lines().into_iter().find(|line| line.contains(text));
        wait(&format!("a line with {text:?}"), find)
    }

    fn kubectl(&self, arguments: &str) -> Output {
        Command::new("kubectl")
            .args(arguments.split_whitespace())
            .env("KUBECONFIG", &self.kubeconfig)
            .output()
            .expect("kubectl is on the path: install it to run this test")
    }

    /// What a successful kubectl prints.
    fn says(&self, arguments: &str) -> String {
        let output = self.kubectl(arguments);
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "kubectl {arguments}: {complaint}");
        String::from_utf8(output.stdout).expect("text")
    }

    fn items(&self, what: &str) -> Vec<Value> {
        let list: Value = serde_json::from_str(&self.says(&format!("get {what} -o json"))).unwrap();
        list["items"].as_array().expect("a list").clone()
    }

    /// Names of the Macs that are Ready, once there are `count` and no others.
    fn ready(&self, count: usize) -> Vec<String> {
        wait(&format!("{count} Macs Ready"), || {
            let macs = self.items("samm");
            let ready = macs.iter().filter(|mac| mac["status"]["ready"] == true);
            let names: Vec<String> =
                ready.map(|mac| mac["metadata"]["name"].as_str().unwrap().to_owned()).collect();
            (names.len() == count && macs.len() == count).then_some(names)
        })
    }

    /// Ends it as Ctrl-C does; how it ended, and after how long.
    fn interrupt(&mut self) -> (Option<i32>, Duration) {
        let began = Instant::now();
        let sent = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
        let status = self.process.wait().expect("it ends");
        (status.code(), began.elapsed())
    }
}

/// Asks until there is an answer.
fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::park_timeout(BETWEEN_LOOKS);
    }
}

fn pods_by_node(demo: &Demo) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let pods = demo.items("pods");
    pods.iter().map(|pod| (text(&pod["spec"]["nodeName"]), text(&pod["status"]["phase"]))).collect()
}

#[test]
fn a_person_watches_scales_and_deletes_with_kubectl() {
    let mut demo = Demo::start(&["--speed", "120"]);
    let first = demo.ready(3);
    four_runners_run_two_to_a_mac_at_most(&demo);
    reading_tells_what_is_going_on(&demo, &first);
    strangers_are_refused(&demo);
    jobs_come_and_runners_are_replaced(&demo);
    let gone = &first[0];
    let mut watching = Command::new("kubectl")
        .args(["get", "samm", gone, "-w", "-o", "jsonpath={.status.phase}{\"\\n\"}"])
        .env("KUBECONFIG", &demo.kubeconfig)
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let phases = BufReader::new(watching.stdout.take().expect("piped")).lines();
    assert!(demo.says(&format!("delete machine {gone}")).contains("deleted"));
    let mut phases = phases.map_while(Result::ok);
    assert!(phases.any(|phase| phase == "Deleting"), "the watch shows the deletion");
    watching.kill().expect("it can be ended");
    watching.wait().expect("it ends");
    let second = demo.ready(3);
    assert!(!second.contains(gone), "{gone} was replaced, not kept: {second:?}");
    let freed = |host: &str| host.contains(" is pool") || host.contains(" is reinstalling");
    wait("the Mac of the deleted Machine in the pool", || {
        let lines = demo.lines();
        let held = |line: &&String| line.starts_with("host ") && line.contains(gone.as_str());
        let host = lines.iter().find(held)?.split(' ').nth(1)?;
        let about = |line: &&String| line.starts_with(&format!("host {host} "));
        lines.iter().rev().find(about).filter(|line| freed(line)).map(drop)
    });
    demo.says("scale machinedeployment macs --replicas=4");
    demo.ready(4);
    assert!(demo.says("annotate samm --all looked-at=yes").contains("annotated"));
    let (code, took) = demo.interrupt();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "it took {took:?} to end");
    assert!(!Path::new(&demo.kubeconfig).exists(), "the kubeconfig outlived the demo");
    assert!(demo.lines().last().is_some_and(|line| line.contains("has ended")));
}

fn four_runners_run_two_to_a_mac_at_most(demo: &Demo) {
    wait("four runners", || {
        let pods = pods_by_node(demo);
        let running = pods.iter().filter(|(_, phase)| phase == "Running").count();
        // A runner that ended may still be there beside its successor; it runs nothing.
        let run_on =
            |node: &str| pods.iter().filter(|(at, phase)| at == node && phase == "Running").count();
        assert!(pods.iter().all(|(node, _)| run_on(node) <= 2), "{pods:?}");
        (running == 4).then_some(())
    });
}

fn reading_tells_what_is_going_on(demo: &Demo, macs: &[String]) {
    let table = demo.says("get samm -A");
    for word in ["PHASE", "PROVIDERID", "READY", "STEP", "NODE", "REASON", "Ready"] {
        assert!(table.contains(word), "{word} is not in\n{table}");
    }
    let described = demo.says(&format!("describe samm {}", macs[0]));
    // Which steps are told depends on how long each takes; a wait that is over at once is not.
    for word in ["Events:", "Bootstrapping", "bootstrap step ", " of 10: ", "Bootstrapped"] {
        assert!(described.contains(word), "{word} is not in\n{described}");
    }
    assert!(demo.says("get rpool").contains("macos-26"));
    assert!(demo.says("get nodes").contains("Ready"));
}

fn strangers_are_refused(demo: &Demo) {
    let output = demo.kubectl("get pods --token=stranger");
    assert!(!output.status.success());
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(complaint.contains("nauthorized") || complaint.contains("logged in"), "{complaint}");
    let kubeconfig = std::fs::read_to_string(&demo.kubeconfig).expect("it is there");
    let server = kubeconfig.lines().find_map(|line| line.trim().strip_prefix("server: "));
    assert!(server.expect("a server").starts_with("https://127.0.0.1:"));
}

fn jobs_come_and_runners_are_replaced(demo: &Demo) {
    let uids = || -> Vec<Value> {
        demo.items("pods").iter().map(|pod| pod["metadata"]["uid"].clone()).collect()
    };
    let before = uids();
    wait("a runner to be replaced", || {
        uids().iter().any(|uid| !before.contains(uid)).then_some(())
    });
}

#[test]
fn a_taken_port_says_what_to_do() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = taken.local_addr().expect("a port").port().to_string();
    let output = applecart(&["demo", "--port", &port]).output().expect("it runs");
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(complaint.contains(&format!("port {port} is taken")), "{complaint}");
    assert!(complaint.contains("--port"), "{complaint}");
}

#[test]
fn a_bad_flag_names_itself_and_a_good_value() {
    for (flag, value, hint) in [
        ("--hosts", "0", "from 1 to 200"),
        ("--hosts", "many", "from 1 to 200"),
        ("--speed", "0", "from 1"),
        ("--speed", "-3", "--speed"),
        ("--seed", "x", "--seed"),
        ("--port", "99999", "--port"),
        ("--unknown", "1", "--unknown"),
    ] {
        let argument = format!("{flag}={value}");
        let output = applecart(&["demo", &argument]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{argument}");
        let complaint = String::from_utf8_lossy(&output.stderr);
        assert!(complaint.contains(flag) && complaint.contains(hint), "{argument}: {complaint}");
    }
}

#[test]
fn too_few_macs_are_said_to_be_too_few() {
    let demo = Demo::start(&["--hosts", "1", "--speed", "120"]);
    demo.line_with("no available host: 0 in pool");
}

#[test]
fn with_chaos_things_go_wrong_and_no_invariant_breaks() {
    let mut demo = Demo::start(&["--chaos", "--speed", "240", "--seed", "5"]);
    let told = |line: &String| {
        let counted = line.strip_prefix("chaos: ")?;
        let faults = counted.split(' ').next()?.parse::<u64>().ok()?;
        assert!(counted.ends_with("none broken"), "{line}");
        Some(faults)
    };
    wait("five faults", || {
        let faults = demo.lines().iter().rev().find_map(told);
        faults.filter(|faults| *faults >= 5)
    });
    demo.ready(3);
    assert_eq!(demo.interrupt().0, Some(0));
}

#[test]
fn one_seed_is_one_world_at_any_speed() {
    let names_of_machines = |seed: &str, speed: &str| {
        let demo = Demo::start(&["--seed", seed, "--speed", speed]);
        demo.line_with(&format!(", {speed} times as fast"));
        let machines = || {
            let macs = demo.items("samm");
            let mut names: Vec<String> =
                macs.iter().map(|mac| mac["metadata"]["name"].to_string()).collect();
            names.sort();
            (names.len() == 3).then_some(names)
        };
        wait("three Machines", machines)
    };
    let first = names_of_machines("7", "60");
    assert_eq!(first, names_of_machines("7", "200"));
    assert_ne!(first, names_of_machines("8", "60"));
}

#[test]
fn help_shows_examples() {
    let output = applecart(&["demo", "--help"]).output().expect("it runs");
    let help = String::from_utf8_lossy(&output.stdout);
    for word in ["Examples:", "--hosts", "--speed", "--seed", "--chaos", "--port"] {
        assert!(help.contains(word), "{word} is not in\n{help}");
    }
}
