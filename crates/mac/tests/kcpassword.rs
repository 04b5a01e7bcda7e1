//! `/etc/kcpassword` against a second decoder, in another language, that shares no line with ours.
//! Needs `python3`.

use std::io::Write;
use std::process::{Command, Stdio};

use applecart_mac::kcpassword;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// What the other decoder makes of each file.
fn decoded_elsewhere(files: &[Vec<u8>]) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kcpassword_decoder.py");
    let mut python = Command::new("python3")
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is needed: install the package python3");
    let mut stdin = python.stdin.take().expect("piped");
    let lines: String = files.iter().map(|file| hex(file) + "\n").collect();
    let writer = std::thread::spawn(move || stdin.write_all(lines.as_bytes()));
    let output = python.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it reads");
    assert!(output.status.success());
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}

#[test]
fn an_independent_decoder_agrees_on_random_passwords_of_every_length_up_to_forty() {
    let mut runner = TestRunner::default();
    let mut passwords: Vec<String> = Vec::new();
    for length in 1..=40 {
        let ascii = format!("[ -~]{{{length}}}");
        let any = format!("[^\0]{{{length}}}");
        for pattern in [ascii.as_str(), any.as_str()] {
            for _ in 0..20 {
                let strategy = proptest::string::string_regex(pattern).expect("a pattern");
                passwords.push(strategy.new_tree(&mut runner).expect("a password").current());
            }
        }
    }
    let files: Vec<Vec<u8>> = passwords.iter().map(|p| kcpassword::encode(p)).collect();
    let decoded = decoded_elsewhere(&files);
    assert_eq!(decoded.len(), passwords.len());
    for (password, decoded) in passwords.iter().zip(decoded) {
        assert_eq!(decoded, hex(password.as_bytes()), "{password:?}");
    }
}

#[test]
fn the_other_decoder_finds_the_fault_that_broke_logins() {
    // Padded to the key's length, eleven characters have nothing that ends them.
    let mut file = kcpassword::encode("a1234567890");
    file.truncate(11);
    file.push(b'x' ^ 0x7D);
    let said = decoded_elsewhere(&[file, kcpassword::encode("a1234567890")]);
    assert!(said[0].starts_with("invalid"), "{said:?}");
    assert_eq!(said[1], hex(b"a1234567890"));
}
