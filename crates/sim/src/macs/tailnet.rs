//! Stand-ins for Tailscale's command and daemon, as two real programs with a socket between them;
//! and an archive of them for a bootstrap to unpack. There is no tailnet: the daemon notes what it
//! joined.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

use super::tart::pack;

/// What the two are called between a Mac and its tools.
pub(super) const COMMAND: &str = "tailscale-stand-in";
pub(super) const DAEMON: &str = "tailscaled-stand-in";

/// The daemon takes a moment to listen: whoever does not wait for it finds nobody (B7).
const LATE: &str = "echo 'tailscaled starts'\nsleep 1";

/// A join takes a moment: long enough for a look at what runs meanwhile.
const SLOW: &str = "if [ \"$2\" = up ]; then sleep 0.5; fi";

/// What a key that the tailnet takes begins with.
const KEYS: &str = "tskey-auth-";

/// The host's address in the tailnet.
const ADDRESS: &str = "100.100.1.2";

/// Writes an archive with both to `file`, in a folder as their makers pack them. Same bytes always.
pub fn archive(file: &Path) -> io::Result<()> {
    let start = |first, name| {
        format!("#!/bin/sh\n{first}\nexec /.applecart/tools/tool sim mac-tool {name} \"$@\"\n")
    };
    let folder = "tailscale_1.0.0_arm64";
    let (command, daemon) = (format!("{folder}/tailscale"), format!("{folder}/tailscaled"));
    pack(file, &[(&command, &start(SLOW, COMMAND)), (&daemon, &start(LATE, DAEMON))])
}

/// The value of `--name=value`.
fn flag<'a>(arguments: &'a [String], name: &str) -> Option<&'a str> {
    arguments.iter().find_map(|word| word.strip_prefix("--")?.strip_prefix(name)?.strip_prefix('='))
}

/// `tailscaled`: listens, and remembers in its state file what it joined.
pub(super) fn daemon(arguments: &[String]) -> io::Result<i32> {
    let (Some(state), Some(socket)) = (flag(arguments, "state"), flag(arguments, "socket")) else {
        eprintln!("tailscaled: --state and --socket are needed");
        return Ok(1);
    };
    // That of a process that was killed is in the way.
    let _ = fs::remove_file(socket);
    let listener = UnixListener::bind(socket)?;
    // Root's daemon answers everybody, as the real one does: the agent is a user's.
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))?;
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut line = String::new();
        BufReader::new(&stream).read_line(&mut line)?;
        let answer = match line.trim_end().split_once(' ') {
            Some(("up", joined)) => {
                fs::write(state, joined)?;
                "ok".to_owned()
            }
            _ => fs::read_to_string(state).map_or(String::new(), |_| ADDRESS.to_owned()),
        };
        // Whoever does not wait for the answer does not want it.
        let _ = writeln!(stream, "{answer}");
    }
    Ok(0)
}

/// `tailscale`: `up`, `status` and `ip -4`, as a bootstrap calls them.
pub(super) fn command(arguments: &[String]) -> io::Result<i32> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let said = match words[..] {
        [_, "up", ..] => match key(arguments)? {
            Some(key) if key.trim().starts_with(KEYS) => {
                let name = flag(arguments, "hostname").unwrap_or_default();
                let tags = flag(arguments, "advertise-tags").unwrap_or_default();
                ask(arguments, &format!("up {name} {tags}"))?
            }
            _ => {
                eprintln!("backend error: invalid key: API key does not exist");
                return Ok(1);
            }
        },
        [_, "ip", "-4"] => ask(arguments, "ip")?,
        // Whoever answers has a status, in the tailnet or not.
        [_, "status", "--json"] => ask(arguments, "status").map(|_| "{}".to_owned())?,
        _ => {
            eprintln!("tailscale: only `up`, `status --json` and `ip -4` work here");
            return Ok(1);
        }
    };
    if said.is_empty() {
        eprintln!("no current Tailscale IPs; state: NeedsLogin");
        return Ok(1);
    }
    if !words.contains(&"up") {
        println!("{said}");
    }
    Ok(0)
}

/// The key, which this program reads from its file itself.
fn key(arguments: &[String]) -> io::Result<Option<String>> {
    let file = flag(arguments, "auth-key").and_then(|key| key.strip_prefix("file:"));
    file.map(fs::read_to_string).transpose()
}

fn ask(arguments: &[String], line: &str) -> io::Result<String> {
    let socket = flag(arguments, "socket").unwrap_or_default();
    let mut stream = UnixStream::connect(socket)?;
    writeln!(stream, "{line}")?;
    let mut said = String::new();
    BufReader::new(&stream).read_line(&mut said)?;
    Ok(said.trim_end().to_owned())
}
