//! The program behind a Mac's tools: asks the model over its socket, and says what it says. As
//! `sudo` it becomes root and runs what it was given.

use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use super::socket::{Admission, Reply, Request};
use super::tailnet;

/// Where a Mac has its model.
const SOCKET: &str = "/.applecart/run/socket";

/// What root has on its path.
const ROOT_PATH: &str = "/.applecart/tools/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin";

/// The status of a tool that could not ask.
const UNAVAILABLE: i32 = 69;

/// Does what a tool of this name does, and tells its exit status.
#[must_use]
pub fn run(name: &str, arguments: &[String]) -> i32 {
    let done = match name {
        "sudo" => sudo(arguments),
        tailnet::COMMAND => tailnet::command(arguments),
        tailnet::DAEMON => tailnet::daemon(arguments),
        _ => tool(name, arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("{name}: {error}");
        UNAVAILABLE
    })
}

fn tool(name: &str, arguments: &[String]) -> io::Result<i32> {
    let words = std::iter::once(name.to_owned()).chain(arguments.iter().cloned()).collect();
    match ask(&Request::Tool { words, as_root: is_root() })? {
        Reply::Ended { status, stdout, stderr } => {
            io::stderr().write_all(stderr.as_bytes())?;
            io::stdout().write_all(stdout.as_bytes())?;
            Ok(status)
        }
        Reply::Sudo(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn sudo(arguments: &[String]) -> io::Result<i32> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (by_password, command) = match words[..] {
        ["-n", ref command @ ..] => (false, command),
        ["-S", "-p", "", ref command @ ..] => (true, command),
        _ => {
            eprintln!("sudo: only `sudo -n` and `sudo -S -p ''` work here");
            return Ok(1);
        }
    };
    let Some((program, rest)) = command.split_first() else { return Ok(1) };
    if let Some(said) = refusal(by_password, program)? {
        eprint!("{said}");
        return Ok(1);
    }
    let error = Command::new(program)
        .args(rest)
        .uid(0)
        .gid(0)
        .env_clear()
        .env("PATH", ROOT_PATH)
        .env("HOME", "/var/root")
        .env("USER", "root")
        .exec();
    eprintln!("sudo: {program}: {error}");
    Ok(1)
}

/// What sudo says instead of running anything, if it does. Reads a password only if it must, and
/// no byte more: the rest is for the command.
fn refusal(by_password: bool, program: &str) -> io::Result<Option<String>> {
    let ask = |password| {
        let what = program.to_owned();
        match ask(&Request::Sudo { password, what })? {
            Reply::Sudo(admission) => Ok(admission),
            Reply::Ended { .. } => Err(io::Error::from(io::ErrorKind::InvalidData)),
        }
    };
    if is_root() {
        return Ok(None);
    }
    let admission = match ask(None)? {
        Admission::NeedsPassword(_) if by_password => ask(Some(first_line()?))?,
        admission @ (Admission::Allowed | Admission::NeedsPassword(_) | Admission::Refused(_)) => {
            admission
        }
    };
    Ok(match admission {
        Admission::Allowed => None,
        Admission::NeedsPassword(complaint) => {
            Some(format!("{complaint}sudo: a password is required\n"))
        }
        Admission::Refused(said) => Some(said),
    })
}

fn first_line() -> io::Result<String> {
    let mut line = Vec::new();
    let mut byte = [0];
    let stdin = rustix::stdio::stdin();
    while rustix::io::read(stdin, &mut byte)? == 1 && byte[0] != b'\n' {
        line.push(byte[0]);
    }
    Ok(String::from_utf8_lossy(&line).into_owned())
}

fn is_root() -> bool {
    rustix::process::getuid().is_root()
}

fn ask(request: &Request) -> io::Result<Reply> {
    let mut stream = UnixStream::connect(SOCKET)?;
    let text = serde_json::to_string(request).map_err(io::Error::other)?;
    stream.write_all(format!("{text}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(io::Error::other)
}
