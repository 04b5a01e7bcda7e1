//! A simulated Scaleway and its Macs as processes, for a test to be a user of.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use applecart_api::clock::Clock;
use applecart_api::ids::Zone;
use applecart_mac::{
    Dial, FleetWide, HostConfig, KeyPair, Password, Payload, PerHost, Session, Ssh, Tailscale,
    Target, TartBundle,
};
use applecart_scaleway::{Client, Config, Limit, Profile, Server, http_service};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tempfile::TempDir;

/// How long anything may take to come true on a busy machine.
const WITHIN: Duration = Duration::from_mins(1);

/// Says what it exports, and lives, under its own name.
const EXPORTER: &str = "#!/bin/sh\necho \"exports $*\"\nwhile :; do sleep 1; done\n";

/// How often a watch looks.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// Looks at every command line of this machine, and of the Macs on it, again and again.
pub struct Watch {
    stop: Sender<()>,
    looking: JoinHandle<BTreeSet<Vec<u8>>>,
}

impl Watch {
    pub fn start() -> Self {
        let (stop, stopped) = channel();
        let looking = std::thread::spawn(move || {
            let mut seen = BTreeSet::new();
            while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                let processes = std::fs::read_dir("/proc").expect("processes").flatten();
                let lines = processes.map(|entry| std::fs::read(entry.path().join("cmdline")));
                seen.extend(lines.flatten().filter(|line| !line.is_empty()));
            }
            seen
        });
        Self { stop, looking }
    }

    /// Every command line that was seen.
    pub fn lines(self) -> BTreeSet<Vec<u8>> {
        drop(self.stop);
        self.looking.join().expect("it looked")
    }

    /// The same as one text.
    pub fn end(self) -> String {
        let lines =
            self.lines().into_iter().map(|line| String::from_utf8_lossy(&line).into_owned());
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// A process that is killed when it is dropped, and what it prints: unread, but not cut off.
struct Process(Child, BufReader<ChildStdout>);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts `applecart sim` and reads the variables that it prints, up to the last one.
    fn start(arguments: &[&str], last: &str) -> (Self, Vec<(String, String)>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_applecart"))
            .arg("sim")
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut process = Self(child, output);
        let mut variables: Vec<(String, String)> = Vec::new();
        while variables.last().is_none_or(|(name, _)| name != last) {
            let mut line = String::new();
            let read = process.1.read_line(&mut line).expect("text");
            assert!(read > 0, "it ended: {arguments:?}");
            let pair = line.trim().strip_prefix("export ").and_then(|pair| pair.split_once('='));
            let (name, value) = pair.expect("a line to paste into a shell");
            variables.push((name.to_owned(), value.to_owned()));
        }
        (process, variables)
    }
}

/// Macs, and a Scaleway that has them.
pub struct Macs {
    process: Process,
    _scaleway: Process,
    levers: String,
    client: Client,
    zone: Zone,
    pub port: u16,
    pub key: KeyPair,
    pub folder: TempDir,
}

impl Macs {
    /// `hosts` of them at addresses of `test` alone, whose agent is a script of that text.
    pub async fn start(test: u8, hosts: u8, agent: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("agent");
        write_program(&program, agent);
        // Other copies of this test may run on this machine.
        let first = format!("127.{}.{test}.1", 100 + std::process::id() % 100);
        let free = TcpListener::bind((first.as_str(), 0)).expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let (hosts, port_text) = (hosts.to_string(), port.to_string());
        let scaleway = ["scaleway", "--hosts", &hosts, "--first-address", &first];
        let quick = ["--reinstalling-seconds", "1", "--rebooting-seconds", "1"];
        let (scaleway, environment) =
            Process::start(&[&scaleway[..], &quick[..]].concat(), "SCW_DEFAULT_ZONE");
        let variable = |name: &str| {
            environment.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        };
        let profile = Profile::load(variable).expect("a complete environment");
        let zone = profile.zone().expect("a zone").clone();
        let clock = Clock::new(|| Timestamp::UNIX_EPOCH);
        let client = Client::new(
            http_service().expect("a transport"),
            Config::new(profile, clock, Limit::of_process()),
        );
        let url = variable("SCW_API_URL").expect("an address");
        let agent = program.to_str().expect("a path");
        let (process, environment) = Process::start(
            &[
                "macs",
                "--scaleway",
                &url,
                "--ssh-port",
                &port_text,
                "--speed",
                "100",
                "--agent",
                agent,
            ],
            "APPLECART_SIM_MACS",
        );
        let levers = environment[0].1.trim_start_matches("http://").to_owned();
        let key = KeyPair::from_seed([7; 32], "test").expect("a key");
        client.create_ssh_key("test", &key.public).await.expect("registered");
        Self { process, _scaleway: scaleway, levers, client, zone, port, key, folder }
    }

    /// A host as Scaleway tells it, password included.
    pub async fn host_at(&self, index: usize) -> Server {
        let servers = self.client.list_servers(&self.zone).await.expect("a list");
        self.client.server(&self.zone, &servers[index].id).await.expect("a server")
    }

    /// The first host.
    pub async fn host(&self) -> Server {
        self.host_at(0).await
    }

    pub async fn wipe(&self, host: &Server) {
        self.client.reinstall(&self.zone, &host.id, None).await.expect("accepted");
    }

    pub fn target_of(&self, host: &Server) -> Target {
        Target {
            address: host.ip.expect("an address").to_string(),
            port: self.port,
            user: "m1".parse().expect("a name"),
            key: self.key.private.clone(),
            pinned: None,
        }
    }

    pub async fn target(&self) -> Target {
        self.target_of(&self.host().await)
    }

    /// A connection to a Mac, once it takes one.
    pub async fn dial_to(&self, target: &Target) -> Session {
        let deadline = Instant::now() + WITHIN;
        loop {
            match Ssh::default().dial(target).await {
                Ok(session) => return session,
                Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// A connection to the first Mac.
    pub async fn dial(&self) -> Session {
        self.dial_to(&self.target().await).await
    }

    /// What the first Mac shall be.
    pub async fn desired(&self, node: &str) -> HostConfig {
        self.desired_of(&self.host().await, node)
    }

    /// What a Mac shall be.
    pub fn desired_of(&self, host: &Server, node: &str) -> HostConfig {
        self.desired_with(host, node, Payload::new("agent"))
    }

    /// What a Mac shall be, with this agent.
    pub fn desired_with(&self, host: &Server, node: &str, agent: Payload) -> HostConfig {
        let password = host.password.as_ref().expect("a password");
        let fleet = FleetWide {
            agent,
            tart: self.tart(node, "2.32.1"),
            tailscale: None,
            node_exporter: None,
        };
        let host = PerHost {
            node_name: node.into(),
            user: "m1".parse().expect("a name"),
            password: Password::new(SecretString::from(password.expose_secret().to_owned()))
                .expect("a password"),
            provider_id: None,
            labels: std::collections::BTreeMap::new(),
            cpu: 8,
            memory_mb: 16_384,
            max_pods: 2,
            kubelet_version: None,
            kubeconfig: "kind: Config\n".into(),
            tailscale_key: None,
            github_runner: None,
        };
        HostConfig::new(fleet, host).expect("valid")
    }

    /// A Tart of this version, packed under this name.
    pub fn tart(&self, name: &str, version: &str) -> TartBundle {
        let archive = self.folder.path().join(format!("{name}.tar.gz"));
        let made = Command::new(env!("CARGO_BIN_EXE_applecart"))
            .args(["sim", "tart-archive", "--tart-version", version])
            .arg(&archive)
            .status();
        assert!(made.expect("it runs").success());
        let archive = Payload::open(archive).expect("an archive");
        TartBundle { version: version.into(), archive }
    }

    /// The same in a tailnet, with these tags and by this key, with figures.
    pub fn in_tailnet(&self, plain: &HostConfig, tags: &[&str], key: &str) -> HostConfig {
        let archive = self.folder.path().join("tailscale.tar.gz");
        if !archive.exists() {
            let mut made = Command::new(env!("CARGO_BIN_EXE_applecart"));
            let made = made.args(["sim", "tailscale-archive"]).arg(&archive).status();
            assert!(made.expect("it runs").success());
        }
        let tags = tags.iter().map(|&tag| tag.to_owned()).collect();
        let archive = Payload::open(archive).expect("an archive");
        let fleet = FleetWide {
            tailscale: Some(Tailscale { archive, tags }),
            node_exporter: Some(Payload::new(EXPORTER)),
            ..plain.fleet().clone()
        };
        let host = PerHost { tailscale_key: Some(key.into()), ..plain.host().clone() };
        HostConfig::new(fleet, host).expect("valid")
    }

    /// Pulls a lever of the Macs; only success will do.
    pub fn lever(&self, method: &str, path: &str, body: &str) -> Value {
        let mut stream = TcpStream::connect(&self.levers).expect("levers");
        let length = body.len();
        let head = format!("{method} {path} HTTP/1.0\r\nContent-Type: application/json\r\n");
        write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.contains(" 200 "), "{method} {path}: {answer}");
        serde_json::from_str(body).expect("JSON")
    }

    /// Changes the first Mac.
    pub async fn change(&self, body: &str) {
        let host = self.host().await;
        self.lever("PATCH", &format!("/macs/{}", host.id), body);
    }

    /// The first Mac as the levers show it.
    pub fn mac(&self) -> Value {
        self.lever("GET", "/macs", "")[0].clone()
    }

    /// Waits until the first Mac looks like that.
    pub async fn until(&self, what: &str, is: impl Fn(&Value) -> bool) {
        until(what, async || is(&self.mac())).await;
    }

    /// Runs a command by the real client of OpenSSH.
    pub async fn ssh(&self, command: &str) -> Output {
        let key = self.folder.path().join("key");
        std::fs::write(&key, self.key.private.expose_secret()).expect("written");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&key, mode).expect("ours");
        let target = self.target().await;
        Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"])
            .args(["-p", &self.port.to_string(), "-i"])
            .arg(&key)
            .arg(format!("m1@{}", target.address))
            .arg(command)
            .stdin(Stdio::null())
            .output()
            .expect("ssh runs")
    }

    /// Ends the Macs' process without a chance to clean up.
    pub fn kill(&mut self) {
        self.process.0.kill().expect("it runs");
        self.process.0.wait().expect("it ends");
    }
}

/// Waits for a level.
pub async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !is().await {
        assert!(Instant::now() < deadline, "{what} did not come true");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn write_program(path: &PathBuf, text: &str) {
    std::fs::write(path, text).expect("written");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(path, mode).expect("ours");
}
