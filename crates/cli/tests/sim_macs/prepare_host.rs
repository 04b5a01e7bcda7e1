//! `applecart prepare-host` as a person uses it.

use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Arc, Mutex};

use applecart_mac::{KeyPair, kcpassword};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use secrecy::ExposeSecret;

use crate::support::{Macs, Watch, until};
use crate::{AGENT, text};

/// Runs the command with a password on standard input. The password is in nothing that it prints.
async fn run(macs: &Macs, key: &KeyPair, password: &str, flags: &[&str]) -> (i32, String) {
    let file = macs.folder.path().join("prepare-key");
    std::fs::write(&file, key.private.expose_secret()).expect("written");
    let address = macs.target().await.address;
    let mut child = Command::new(env!("CARGO_BIN_EXE_applecart"))
        .args(["prepare-host", &address, "--ssh-port", &macs.port.to_string(), "--key"])
        .arg(file)
        .args(flags)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    // It may have refused before it asked.
    let _ = writeln!(stdin, "{password}");
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[stdout, stderr].concat()).into_owned();
    assert!(!said.contains(password), "{said}");
    (status.code().expect("no signal"), said)
}

/// Whether the summary says that a step failed.
fn failed(said: &str, step: &str) -> bool {
    said.lines().any(|line| line.starts_with(step) && line.contains(" failed "))
}

async fn password(macs: &Macs) -> String {
    macs.host().await.password.expect("a password").expose_secret().to_owned()
}

#[tokio::test]
async fn a_factory_host_is_prepared_verified_and_left_alone_the_second_time() {
    // T1, T3
    let macs = Macs::start(21, 1, AGENT).await;
    macs.dial().await;
    let tries = text(&macs.ssh("grep MaxAuthTries /etc/ssh/sshd_config").await.stdout);
    assert_eq!(tries, "MaxAuthTries 1\n", "only the given key is offered");
    let password = password(&macs).await;
    let (status, said) = run(&macs, &macs.key, &password, &["--dry-run"]).await;
    assert!(status == 0 && said.contains("sudo asks for a password"), "{said}");
    assert!(said.contains("what comes after that cannot be told yet"), "{said}");
    assert!(said.contains("first contact: see --host-key"), "{said}");
    assert!(!macs.ssh("sudo -n true").await.status.success(), "nothing was changed");
    let (status, said) = run(&macs, &macs.key, &password, &[]).await;
    assert!(status == 0 && said.contains("macOS accepted all of it"), "{said}");
    assert_eq!(said.matches(" changed ").count(), 2, "{said}");
    assert!(macs.ssh("sudo -n true").await.status.success());
    assert_eq!(macs.mac()["session"], true);
    let (status, said) = run(&macs, &macs.key, &password, &[]).await;
    assert!(status == 0 && said.matches(" unchanged ").count() == 2, "{said}");
    let (status, said) = run(&macs, &macs.key, &password, &["--dry-run"]).await;
    assert!(status == 0 && said.matches("as it shall be").count() == 2, "{said}");
    let (status, said) = run(&macs, &macs.key, "mistyped", &["--dry-run"]).await;
    assert!(status == 0 && said.contains("is not the given one\nnothing was changed\n"), "{said}");
}

/// Every form in which a password could be on a command line.
fn forms(password: &str) -> Vec<Vec<u8>> {
    let xor = kcpassword::encode(password);
    let hex = |bytes: &[u8]| bytes.iter().fold(String::new(), |t, b| t + &format!("{b:02x}"));
    let mut forms = vec![password.as_bytes().to_vec(), hex(&xor).into_bytes()];
    // Without what is after the password, which may be cut off or more.
    forms.push(xor[..password.len()].to_vec());
    for bytes in [password.as_bytes(), &xor] {
        let whole = &bytes[..password.len() - password.len() % 3];
        forms.push(STANDARD_NO_PAD.encode(whole).into_bytes());
        forms.push(hex(&bytes[..password.len()]).into_bytes());
    }
    forms
}

#[tokio::test]
async fn no_process_has_the_password_on_its_command_line_while_a_host_is_prepared() {
    // T3, S16
    let macs = Macs::start(24, 1, AGENT).await;
    macs.dial().await;
    // Slow enough for a look at everything that runs.
    macs.change(r#"{"latency_seconds": 0.1}"#).await;
    let password = password(&macs).await;
    let watch = Watch::start();
    let (status, said) = run(&macs, &macs.key, &password, &[]).await;
    assert_eq!(status, 0, "{said}");
    let seen = watch.lines();
    let has = |line: &[u8], form: &[u8]| line.windows(form.len()).any(|part| part == form);
    for part in ["prepare-host", "sudo -S", "visudo", "kickstart"] {
        let shown = |line: &Vec<u8>| {
            let words: Vec<String> = line.split(|b| *b == 0).map(text).collect();
            words.join(" ").contains(part)
        };
        assert!(seen.iter().any(shown), "{part} was not seen");
    }
    for (number, form) in forms(&password).iter().enumerate() {
        assert!(!seen.iter().any(|line| has(line, form)), "form {number} of the password");
    }
}

#[tokio::test]
async fn a_mistyped_password_is_noticed_even_where_sudo_needs_none() {
    // T1, B4: the gap that seed 001 names: macOS throws the password away, and nobody looked.
    let macs = Macs::start(22, 1, AGENT).await;
    macs.dial().await;
    let (status, said) = run(&macs, &macs.key, "mistyped", &[]).await;
    assert!(status == 1 && failed(&said, "passwordless sudo"), "{said}");
    assert!(said.contains("Scaleway's console"), "{said}");
    let password = password(&macs).await;
    assert_eq!(run(&macs, &macs.key, &password, &[]).await.0, 0);
    let (status, said) = run(&macs, &macs.key, "mistyped", &[]).await;
    assert!(status == 1 && failed(&said, "auto-login"), "{said}");
    assert!(said.contains("sealed it"), "{said}");
    assert_eq!(macs.mac()["session"], true, "the password that worked is back");
    assert_eq!(run(&macs, &macs.key, &password, &[]).await.0, 0, "and is the right one");
    assert_eq!(macs.mac()["wrong_passwords"], 2, "one by sudo, one by a login");
}

#[tokio::test]
async fn a_refused_key_a_changed_host_key_and_a_silent_host_each_get_a_way_out() {
    let macs = Macs::start(23, 1, AGENT).await;
    macs.dial().await;
    let stranger = KeyPair::from_seed([9; 32], "").expect("a key");
    let (status, said) = run(&macs, &stranger, "any", &[]).await;
    assert_eq!(status, 1);
    for part in ["VNC", "scw_authorized_keys", "reinstall", &stranger.public] {
        assert!(said.contains(part), "{part} is not in {said}");
    }
    let (status, said) = run(&macs, &macs.key, "any", &["--host-key", "SHA256:another"]).await;
    assert!(status == 1 && said.contains("If the host was reinstalled"), "{said}");
    let (status, said) = run(&macs, &macs.key, "<sealed>", &[]).await;
    assert!(status == 1 && said.contains("password is missing"), "{said}");
    macs.change(r#"{"hangs": true}"#).await;
    let (status, said) = run(&macs, &macs.key, "any", &["--wait", "0"]).await;
    assert!(status == 1 && said.contains("reboot from Scaleway's console"), "{said}");
    assert!(said.contains("no answer yet") && said.contains("waiting up to 0 s"), "{said}");
}

#[test]
fn an_account_before_the_address_is_refused_and_its_flag_is_named() {
    let output = Command::new(env!("CARGO_BIN_EXE_applecart"))
        .args(["prepare-host", "m1@1.2.3.4", "--key", "none"])
        .output()
        .expect("it starts");
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains("give 1.2.3.4 alone, and --user m1"),
        "{said}"
    );
}

/// A command at a real terminal that shows what is typed, as a person's does: `script` of
/// util-linux is on its other side.
struct Terminal {
    script: Child,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    fn start(command: &str) -> Self {
        let mut script = Command::new("script")
            .args(["--quiet", "--return", "--echo", "always", "--command", command, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script is needed: install the package bsdutils");
        let mut output = script.stdout.take().expect("piped");
        let shown: Arc<Mutex<Vec<u8>>> = Arc::default();
        let screen = shown.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                screen.lock().expect("no panic").extend_from_slice(&bytes[..read]);
            }
        });
        Self { script, shown }
    }

    fn shown(&self) -> String {
        text(&self.shown.lock().expect("no panic"))
    }

    async fn until_shown(&self, words: &str) {
        until(words, async || self.shown().contains(words)).await;
    }

    fn types(&mut self, keys: &str) {
        let stdin = self.script.stdin.as_mut().expect("piped");
        stdin.write_all(keys.as_bytes()).and_then(|()| stdin.flush()).expect("typed");
    }

    fn ended(&mut self) -> ExitStatus {
        self.script.wait().expect("it ends")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // It may have ended, which is what the test wants.
        let _ = self.script.kill();
        let _ = self.script.wait();
    }
}

#[tokio::test]
async fn a_password_that_is_typed_at_a_terminal_is_shown_to_nobody_and_used() {
    // T3
    let macs = Macs::start(25, 1, AGENT).await;
    macs.dial().await;
    let password = password(&macs).await;
    let mut plain = Terminal::start("printf 'Name: '; read -r name; echo went on");
    plain.until_shown("Name: ").await;
    plain.types(&format!("{password}\r"));
    plain.until_shown("went on").await;
    assert!(plain.shown().contains(&password), "this terminal shows what is typed");

    let file = macs.folder.path().join("typed-key");
    std::fs::write(&file, macs.key.private.expose_secret()).expect("written");
    let address = macs.target().await.address;
    let command = format!(
        "'{}' prepare-host {address} --ssh-port {} --key '{}'; status=$?; stty -a; exit $status",
        env!("CARGO_BIN_EXE_applecart"),
        macs.port,
        file.display()
    );
    let mut terminal = Terminal::start(&command);
    terminal.until_shown(&format!("Password of m1@{address}: ")).await;
    // A letter too many, taken back.
    terminal.types(&format!("x\u{7f}{password}\r"));
    terminal.until_shown("macOS accepted all of it").await;
    terminal.until_shown(" echo ").await;
    let (status, shown) = (terminal.ended(), terminal.shown());
    assert!(status.success(), "{shown}");
    assert!(!shown.contains(&password) && !shown.contains('*'), "{shown}");
    assert!(macs.ssh("sudo -n true").await.status.success());
}
