//! The SSH twin against a real OpenSSH server on loopback, as the current user.
//!
//! The server has its own keys and settings in a folder of its own. `sudo` there is a stand-in that
//! runs what it is given as the same user: nothing is done as anybody else, and nothing outside of
//! that folder is written.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, Stdio};
use std::time::{Duration, Instant};

use applecart_mac::{
    Command, Dial, File, HostKey, KeyPair, MacError, Owner, Privilege, Script, Session, Ssh,
    Target, wait_for_ssh,
};
use secrecy::ExposeSecret;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How long the server may take to listen.
const STARTS_WITHIN: Duration = Duration::from_secs(20);

/// The password that the stand-in for sudo takes.
const PASSWORD: &str = "pass 'word%";

const SUDO: &str = r#"#!/bin/sh
case "$1" in
-n) shift ;;
-S)
  shift 3
  IFS= read -r given
  if [ "$given" != "pass 'word%" ]; then echo "Sorry, try again." >&2; exit 1; fi
  ;;
esac
exec "$@"
"#;

struct Server {
    process: Child,
    folder: TempDir,
    port: u16,
    key: KeyPair,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A program on the PATH, or where Debian keeps servers.
fn find(program: &str, package: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{program} is missing: install the Debian package {package}"))
}

fn whoami(flag: &str) -> String {
    let output = Process::new("id").arg(flag).output().expect("id runs");
    String::from_utf8(output.stdout).expect("a name").trim().to_owned()
}

fn write(path: &Path, content: &str, mode: u32) {
    fs::write(path, content).expect("the test's own folder is writable");
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

impl Server {
    fn start() -> Self {
        let sshd = find("sshd", "openssh-server");
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        let key = KeyPair::from_seed([1; 32], "test").expect("a key");
        let host = KeyPair::from_seed([2; 32], "host").expect("a key");
        write(&root.join("ed25519"), host.private.expose_secret(), 0o600);
        let keygen = Process::new(find("ssh-keygen", "openssh-client"))
            .args(["-q", "-t", "ecdsa", "-N", "", "-f"])
            .arg(root.join("ecdsa"))
            .status();
        assert!(keygen.expect("ssh-keygen runs").success());
        write(&root.join("authorized_keys"), &key.public, 0o600);
        fs::create_dir(root.join("bin")).expect("a folder");
        write(&root.join("bin/sudo"), SUDO, 0o755);
        let (process, port) = listen(&sshd, root);
        Self { process, folder, port, key }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("a path").to_owned()
    }

    fn target(&self) -> Target {
        Target {
            address: "127.0.0.1".into(),
            port: self.port,
            user: whoami("-un").parse().expect("a user name"),
            key: self.key.private.clone(),
            pinned: None,
        }
    }

    async fn session(&self) -> Session {
        Ssh::default().dial(&self.target()).await.expect("the server takes our key")
    }

    /// A host key's fingerprint as OpenSSH itself prints it.
    fn fingerprint(&self, name: &str) -> HostKey {
        let keygen = find("ssh-keygen", "openssh-client");
        let output = Process::new(keygen).arg("-lf").arg(self.path(name)).output().expect("runs");
        let text = String::from_utf8(output.stdout).expect("text");
        HostKey(text.split_whitespace().nth(1).expect("a fingerprint").to_owned())
    }
}

/// Starts the server on a free port; another may take the port first, then on another one.
fn listen(sshd: &Path, root: &Path) -> (Child, u16) {
    let log = root.join("log");
    for _ in 0..5 {
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let shown = root.display();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {shown}/ed25519\nHostKey {shown}/ecdsa\n\
             AuthorizedKeysFile {shown}/authorized_keys\nPidFile none\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nKbdInteractiveAuthentication no\n\
             PermitRootLogin prohibit-password\nSetEnv PATH={shown}/bin:/usr/bin:/bin\n"
        );
        write(&root.join("config"), &config, 0o600);
        let file = fs::File::create(&log).expect("a log");
        let mut process = Process::new(sshd)
            .args(["-D", "-e", "-f"])
            .arg(root.join("config"))
            .stdin(Stdio::null())
            .stderr(file)
            .spawn()
            .expect("sshd starts");
        let deadline = Instant::now() + STARTS_WITHIN;
        while process.try_wait().expect("a child of ours").is_none() {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return (process, port);
            }
            assert!(Instant::now() < deadline, "sshd does not listen");
            std::thread::yield_now();
        }
        let said = fs::read_to_string(&log).unwrap_or_default();
        assert!(
            said.contains("Address already in use"),
            "sshd does not start (as root it needs the folder /run/sshd): {said}"
        );
    }
    panic!("no port stays free");
}

fn file(path: &str, content: &[u8], mode: u32) -> File {
    let owner = Owner { user: whoami("-un"), group: whoami("-gn") };
    File { path: path.to_owned(), content: content.to_vec().into(), owner, mode }
}

#[tokio::test]
async fn a_file_is_absent_or_written_as_a_whole_with_mode_and_a_new_inode() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let path = server.path("new/folder/it's a $file");
    assert_eq!(mac.read(&path).await.unwrap(), None);
    mac.write(&file(&path, b"one\n", 0o600)).await.unwrap();
    let first = fs::metadata(&path).unwrap();
    assert_eq!(first.mode() & 0o7777, 0o600);
    assert_eq!(mac.read(&path).await.unwrap().unwrap(), "one\n");
    // A power cut leaves the staged file of a write behind.
    let cut_off = format!("{path}.applecart.a1B2c3");
    fs::write(&cut_off, "half of a secret").unwrap();
    // Held open, so that the file system cannot give its inode to the next file.
    let held = fs::File::open(&path).unwrap();
    mac.write(&file(&path, b"\0two\xff", 0o755)).await.unwrap();
    let second = fs::metadata(&path).unwrap();
    assert_eq!(second.mode() & 0o7777, 0o755);
    assert_ne!(second.ino(), held.metadata().unwrap().ino());
    assert_eq!(&mac.read(&path).await.unwrap().unwrap()[..], b"\0two\xff");
    let left: Vec<_> = fs::read_dir(server.path("new/folder")).unwrap().collect();
    assert_eq!(left.len(), 1, "no staged file stays behind");
    mac.write(&file(&path, b"", 0o644)).await.unwrap();
    assert_eq!(mac.read(&path).await.unwrap().unwrap(), "");
}

#[tokio::test]
async fn megabytes_go_up_whole_and_do_not_come_down() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let path = server.path("large");
    let content: Vec<u8> = (0..5_000_000_u32).map(|n| (n % 251) as u8).collect();
    mac.write(&file(&path, &content, 0o644)).await.unwrap();
    assert!(fs::read(&path).unwrap() == content, "arrived as sent");
    let error = mac.read(&path).await.unwrap_err();
    assert!(matches!(error, MacError::TooMuchOutput { .. }), "{error}");
    let small = mac.run(&Command::user(&["printf", "still here"])).await.unwrap();
    assert_eq!(small.text(), "still here");
}

#[tokio::test]
async fn a_write_that_the_host_refuses_says_so_and_leaves_the_old_file() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let path = server.path("kept");
    mac.write(&file(&path, b"old", 0o644)).await.unwrap();
    let owner = Owner { user: "no-such-user".into(), group: "no-such-group".into() };
    let error = mac.write(&File { owner, ..file(&path, b"new", 0o644) }).await.unwrap_err();
    assert!(matches!(&error, MacError::Refused { stderr, .. } if !stderr.is_empty()), "{error}");
    assert_eq!(mac.read(&path).await.unwrap().unwrap(), "old");
}

#[tokio::test]
async fn arguments_arrive_as_they_are_and_a_status_is_an_answer() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let words = ["a b", "", "$HOME", "it's", "*", "\\", "=x", "~", "új\nline"];
    let argv: Vec<&str> = ["printf", "[%s]"].into_iter().chain(words).collect();
    let output = mac.run(&Command::root(&argv)).await.unwrap();
    let expected: Vec<String> = words.iter().map(|word| format!("[{word}]")).collect();
    assert_eq!(output.text(), expected.concat());
    let script = Script { name: "fail", text: "cat >&2; exit 7" };
    let fail = Command::script(script, &[], Privilege::User).stdin("no\n");
    let output = mac.run(&fail).await.unwrap();
    assert_eq!((output.status, output.complaint().as_str()), (7, "no\n"));
    let script = Script { name: "die", text: "kill -9 $$" };
    let output = mac.run(&Command::script(script, &[], Privilege::User)).await.unwrap();
    assert_eq!(output.status, 137, "128 and the signal");
}

#[tokio::test]
async fn a_password_is_the_first_line_of_stdin_and_the_rest_is_the_commands() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let script = Script { name: "echo", text: "cat" };
    let command = Command::script(script, &[], Privilege::RootByPassword);
    let right = command.clone().stdin(format!("{PASSWORD}\nrest"));
    assert_eq!(mac.run(&right).await.unwrap().text(), "rest");
    let wrong = mac.run(&command.stdin("wrong\n")).await.unwrap();
    assert_eq!((wrong.status, wrong.complaint().as_str()), (1, "Sorry, try again.\n"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_given_up_and_the_connection_stays() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let slow = Command::user(&["sleep", "60"]).timeout(Duration::from_millis(200));
    let error = mac.run(&slow).await.unwrap_err();
    assert!(matches!(error, MacError::TimedOut { .. }), "{error}");
    assert!(mac.run(&Command::user(&["true"])).await.unwrap().success());
}

/// Whether a process of this machine has these arguments.
fn runs(arguments: &str) -> bool {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let line = |entry: fs::DirEntry| fs::read(entry.path().join("cmdline")).unwrap_or_default();
    processes.map(line).any(|line| line.strip_suffix(b"\0") == Some(arguments.as_bytes()))
}

#[tokio::test]
async fn what_a_shell_says_at_its_start_hides_no_command_from_its_end() {
    // LH18: as a broken line does in a file that every shell reads.
    let server = Server::start();
    let noisy = r"printf 'no such command: brew\nand more' >&2; eval \";
    let line = format!("command=\"{noisy}\"$SSH_ORIGINAL_COMMAND\\\"\" {}", server.key.public);
    write(&server.folder.path().join("authorized_keys"), &line, 0o600);
    let mac = server.session().await.mac;
    let script = Script { name: "fail", text: "cat >&2; exit 7" };
    let fail = Command::script(script, &[], Privilege::User).stdin("no\n");
    let output = mac.run(&fail).await.unwrap();
    assert_eq!((output.status, output.complaint().as_str()), (7, "no\n"));
    let seconds = format!("8{}", std::process::id());
    let slow = Command::user(&["sleep", &seconds]).timeout(Duration::from_secs(2));
    let error = mac.run(&slow).await.unwrap_err();
    assert!(matches!(error, MacError::TimedOut { .. }), "{error}");
    let deadline = Instant::now() + STARTS_WITHIN;
    while runs(&format!("sleep\0{seconds}")) {
        assert!(Instant::now() < deadline, "it goes on");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_connection_lost_in_a_command_leaves_the_result_unknown() {
    let server = Server::start();
    let mac = server.session().await.mac;
    let script = Script { name: "cut the line", text: "kill -9 $(ps -o ppid= -p $PPID)" };
    let cut = Command::script(script, &[], Privilege::User);
    let error = mac.run(&cut).await.unwrap_err();
    assert!(matches!(error, MacError::Unknown { .. }), "{error}");
    let after = mac.run(&Command::user(&["true"])).await.unwrap_err();
    assert!(matches!(after, MacError::Unknown { .. }), "{after}");
}

#[tokio::test]
async fn the_first_host_key_is_shown_and_any_key_of_the_host_can_be_the_pinned_one() {
    // B24
    let server = Server::start();
    assert_eq!(server.session().await.host_key, server.fingerprint("ed25519"));
    for name in ["ed25519", "ecdsa"] {
        let pinned = Some(server.fingerprint(name));
        let target = Target { pinned: pinned.clone(), ..server.target() };
        let session = Ssh::default().dial(&target).await.unwrap();
        assert_eq!(Some(session.host_key), pinned);
    }
    let pinned = Some(HostKey("SHA256:another".into()));
    let target = Target { pinned, ..server.target() };
    let error = Ssh::default().dial(&target).await.unwrap_err();
    let MacError::HostKeyChanged { seen, .. } = error else { panic!("{error}") };
    assert_eq!(seen, server.fingerprint("ed25519"));
}

#[tokio::test]
async fn refused_silent_and_absent_hosts_are_told_apart() {
    let server = Server::start();
    let key = KeyPair::from_seed([9; 32], "").unwrap().private;
    let stranger = Target { key, ..server.target() };
    let error = Ssh::default().dial(&stranger).await.unwrap_err();
    assert!(matches!(error, MacError::AuthRefused { .. }), "{error}");

    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = silent.local_addr().unwrap().port();
    let dial = Ssh::default().connect_timeout(Duration::from_millis(300));
    let error = dial.dial(&Target { port, ..server.target() }).await.unwrap_err();
    assert!(matches!(error, MacError::Unreachable { source: None, .. }), "{error}");
    assert!(error.to_string().contains("within"), "{error}");

    drop(silent);
    let error = dial.dial(&Target { port, ..server.target() }).await.unwrap_err();
    assert!(matches!(error, MacError::Unreachable { source: Some(_), .. }), "{error}");
    assert!(!error.to_string().contains("within"), "it was not waited for: {error}");
}

#[tokio::test]
async fn a_server_that_hangs_up_at_first_is_waited_for() {
    let server = Server::start();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (door.local_addr().unwrap().port(), server.port);
    let opens = async {
        let (mut first, _) = door.accept().await.unwrap();
        // Read, so that it is closed in order and not reset.
        assert!(first.read(&mut [0; 256]).await.unwrap() > 0);
        first.write_all(b"Exceeded MaxStartups\r\n").await.unwrap();
        first.shutdown().await.unwrap();
        drop(first);
        let (mut second, _) = door.accept().await.unwrap();
        let mut real = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
        let _ = tokio::io::copy_bidirectional(&mut second, &mut real).await;
    };
    let (ssh, target) = (Ssh::default(), Target { port, ..server.target() });
    let session = tokio::select! {
        session = wait_for_ssh(&ssh, &target, Duration::from_mins(1)) => session,
        () = opens => panic!("the server hung up on a session"),
    };
    assert!(session.is_ok(), "{:?}", session.err());
}

#[tokio::test]
async fn a_connection_that_goes_silent_is_noticed_long_before_its_command_may_end() {
    let server = Server::start();
    let door = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, behind) = (door.local_addr().unwrap().port(), server.port);
    let silence = tokio::sync::Notify::new();
    let line = async {
        let (mut near, _) = door.accept().await.unwrap();
        let mut far = tokio::net::TcpStream::connect(("127.0.0.1", behind)).await.unwrap();
        tokio::select! {
            _ = tokio::io::copy_bidirectional(&mut near, &mut far) => panic!("it was closed"),
            () = silence.notified() => {}
        }
        // Open at both ends, and nothing goes through it any more.
        std::future::pending::<()>().await;
    };
    let waits = async {
        let ssh = Ssh::default().keepalive_every(Duration::from_millis(300));
        let mac = ssh.dial(&Target { port, ..server.target() }).await.unwrap().mac;
        assert!(mac.run(&Command::user(&["true"])).await.unwrap().success());
        silence.notify_one();
        let lost = Command::user(&["sleep", "100"]).timeout(Duration::from_secs(90));
        let error = mac.run(&lost).await.unwrap_err();
        assert!(matches!(error, MacError::Unknown { .. }), "{error}");
    };
    let began = Instant::now();
    tokio::select! {
        () = waits => {}
        () = line => {}
    }
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}
