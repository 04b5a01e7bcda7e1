//! macOS's own tools, as far as the steps use them, by argument vector.

use applecart_api::keys::AGENT_JOB;
use applecart_mac::{Output, paths, scripts};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::gate::{ALWAYS, Mutates, NEVER};
use super::launchd::{AgentHealth, Domain};
use super::model::{Model, SIGNATURE, Shown, UID};
use super::pfctl;

pub(super) fn ok(stdout: impl Into<String>) -> Output {
    Output { status: 0, stdout: stdout.into().into(), stderr: Bytes::new() }
}

pub(super) fn fail(status: i32, stderr: impl Into<String>) -> Output {
    Output { status, stdout: Bytes::new(), stderr: stderr.into().into() }
}

/// Whether a command can change anything.
pub(super) fn mutates(argv: &[&str]) -> Mutates {
    if only_looks(argv) { NEVER } else { ALWAYS }
}

/// Whether a command only looks.
fn only_looks(argv: &[&str]) -> bool {
    matches!(
        argv,
        ["true" | "stat" | "id" | "pgrep" | "shasum" | "sysctl", ..]
            | ["defaults", "read", ..]
            | ["defaults", "-currentHost", "read", ..]
            | ["pmset", "-g"]
            | ["scutil", "--get", ..]
            | ["launchctl", "print", ..]
            | ["codesign", "--verify", ..]
            | [_, "--version"]
            | [paths::TAILSCALE, _, "ip", "-4"]
    ) || matches!(argv, ["pfctl", rest @ ..] if pfctl::only_looks(rest))
}

/// Whether a tool does anything for root alone.
fn needs_root(argv: &[&str]) -> bool {
    match argv {
        ["pfctl" | "killall" | "visudo", ..] | ["pmset", "-a", ..] | ["scutil", "--set", ..] => {
            true
        }
        ["launchctl", verb, target, ..] => {
            ["kickstart", "bootstrap", "bootout", "enable", "disable"].contains(verb)
                && target.starts_with("system")
        }
        ["defaults", "write", domain, ..] => domain.starts_with("/Library"),
        _ => false,
    }
}

/// Runs one tool.
pub(super) fn run(mac: &mut Model, argv: &[&str], as_root: bool) -> Output {
    if needs_root(argv) && !as_root {
        return fail(1, format!("{}: Operation not permitted\n", argv.first().unwrap_or(&"")));
    }
    match argv {
        ["true"] => ok(""),
        ["id", "-u", user] if *user == mac.user => ok(format!("{UID}\n")),
        ["stat", "-f", "%Su:%Sg %Lp", path] => stat(mac, path),
        ["shasum", "-a", "256", path] => shasum(mac, path),
        ["rm", "-f", path] => {
            mac.files.remove(path);
            ok("")
        }
        ["mv", "-f", from, to] if mac.files.rename(from, to) => ok(""),
        ["mv", "-f", from, _] => fail(1, format!("mv: {from}: No such file or directory\n")),
        ["sysctl", "-n", "kern.bootsessionuuid"] => ok(format!("{}\n", mac.boot_session())),
        ["pgrep", flag, pattern] => pgrep(mac, flag, pattern),
        ["visudo", "-cf", path] => visudo(mac, path),
        ["codesign", rest @ ..] => codesign(mac, rest),
        ["killall", "-HUP", "loginwindow"] => hang_up_loginwindow(mac),
        ["launchctl", rest @ ..] => launchctl(mac, rest),
        ["pfctl", rest @ ..] => pfctl::run(mac, rest),
        ["defaults", "-currentHost", rest @ ..] => defaults(mac, "defaults -currentHost", rest),
        ["defaults", rest @ ..] => defaults(mac, "defaults", rest),
        ["scutil", "--get", kind] => get(mac, &format!("scutil {kind}"), "not set"),
        ["scutil", "--set", kind, value] => set(mac, format!("scutil {kind}"), value),
        ["pmset", "-g"] => pmset_shown(mac),
        ["pmset", "-a", pairs @ ..] => pmset(mac, pairs),
        [program, "--version"] if program.ends_with("/tart") => tart_version(mac, program),
        [paths::TAILSCALE, _, "ip", "-4"] => match mac.tailnet_address() {
            Some(address) => ok(format!("{address}\n")),
            None => fail(1, "no current Tailscale IPs; state: NeedsLogin\n"),
        },
        _ => fail(127, format!("sh: {}: command not found\n", argv.first().unwrap_or(&""))),
    }
}

/// A look for processes that match a pattern, as far as the steps look for any.
fn pgrep(mac: &mut Model, flag: &str, pattern: &str) -> Output {
    if let Some((status, said)) = mac.pgrep_trouble.get(pattern) {
        return fail(*status, said.clone());
    }
    let found = match (flag, pattern) {
        ("-f", scripts::VM_PATTERN) => (mac.vms > 0).then_some(4711),
        ("-f", scripts::JOB_PATTERN) => mac.github.has_job.then_some(4712),
        ("-f", scripts::EXPORTER_PATTERN) => mac.exporter(),
        ("-f", scripts::COMMAND_PATTERN) => (!mac.leftovers.is_empty()).then_some(4713),
        ("-x", "loginwindow") => mac.loginwindow,
        _ => return fail(2, "pgrep: nobody here knows what matches that\n"),
    };
    found.map_or_else(|| fail(1, ""), |pid| ok(format!("{pid}\n")))
}

fn stat(mac: &Model, path: &str) -> Output {
    match mac.files.stat(path) {
        Some(stat) => ok(format!("{} {:o}\n", stat.owner, stat.mode)),
        None => fail(1, format!("stat: {path}: stat: No such file or directory\n")),
    }
}

fn shasum(mac: &Model, path: &str) -> Output {
    match mac.files.read(path) {
        Some(content) => ok(format!("{:x}  {path}\n", Sha256::digest(content))),
        None => fail(1, format!("shasum: {path}: No such file or directory\n")),
    }
}

fn visudo(mac: &Model, path: &str) -> Output {
    let Some(text) = mac.files.text(path) else {
        return fail(1, format!("visudo: unable to open {path}: No such file or directory\n"));
    };
    let good = |line: &str| line.is_empty() || line.starts_with('#') || line.contains(" ALL=");
    match text.lines().position(|line| !good(line.trim())) {
        None => ok(format!("{path}: parsed OK\n")),
        Some(at) => fail(1, format!("{path}:{}: syntax error\n", at + 1)),
    }
}

/// Signing changes the file; signing again changes nothing more.
fn codesign(mac: &mut Model, arguments: &[&str]) -> Output {
    let tail = |path: &&str| mac.files.tail(path, SIGNATURE.len());
    let Some(tail) = arguments.last().and_then(tail) else {
        return fail(1, "No such file or directory\n");
    };
    match arguments {
        ["--force", "--sign", "-", path] => {
            if tail != SIGNATURE {
                mac.files.append(path, SIGNATURE);
            }
            ok("")
        }
        ["--verify", _] if tail == SIGNATURE => ok(""),
        _ => fail(1, "code object is not signed at all\n"),
    }
}

fn hang_up_loginwindow(mac: &mut Model) -> Output {
    if mac.loginwindow.is_none() || mac.loginwindow_stuck {
        return fail(1, "No matching processes were found\n");
    }
    if mac.hang_up_kills {
        mac.end_loginwindow();
    } else {
        mac.restart_loginwindow();
    }
    ok("")
}

fn launchctl(mac: &mut Model, arguments: &[&str]) -> Output {
    match arguments {
        ["kickstart", flags @ .., "system/com.apple.loginwindow"]
            if mac.loginwindow_stuck || mac.kickstart_refused && !flags.is_empty() =>
        {
            fail(150, "Operation not permitted while System Integrity Protection is engaged\n")
        }
        ["kickstart", flags @ .., "system/com.apple.loginwindow"] => {
            // Without -k, one that runs is left alone.
            if !flags.is_empty() || mac.loginwindow.is_none() {
                mac.restart_loginwindow();
            }
            ok("")
        }
        ["print", "system/com.apple.loginwindow"] => {
            let told = mac.loginwindow.filter(|_| mac.loginwindow_shown == Shown::Pid);
            let pid = told.map(|pid| format!("\tpid = {pid}\n")).unwrap_or_default();
            ok(format!("system/com.apple.loginwindow = {{\n{pid}}}\n"))
        }
        ["print", domain] if Domain::named(domain) == Some(Domain::Gui) => {
            if mac.has_session() {
                ok("gui/501 = {\n\tsession = Aqua\n}\n")
            } else {
                fail(125, "Could not print domain: 125: Domain does not support action\n")
            }
        }
        ["bootstrap", domain, path] => bootstrap(mac, domain, path),
        [verb, flags @ .., target] => match Domain::of_target(target) {
            Some((domain, label)) => on_job(mac, &[&[*verb], flags].concat(), domain, label),
            None => fail(64, "Unrecognized target specifier\n"),
        },
        _ => fail(64, "Unrecognized subcommand\n"),
    }
}

fn bootstrap(mac: &mut Model, domain: &str, path: &str) -> Output {
    let domain = Domain::named(domain);
    let open = match domain {
        Some(Domain::Gui) => mac.has_session(),
        Some(Domain::System) => true,
        None => false,
    };
    if open && domain.is_some_and(|domain| mac.load_job(domain, path)) {
        return ok("");
    }
    fail(5, "Bootstrap failed: 5: Input/output error\n")
}

/// A command to one job.
fn on_job(mac: &mut Model, words: &[&str], domain: Domain, label: &str) -> Output {
    match words {
        ["print"] => print_job(mac, domain, label),
        ["enable" | "disable"] => {
            mac.launchd.set_disabled(domain, label, words[0] == "disable");
            ok("")
        }
        ["bootout"] => {
            if (domain, label) == (Domain::System, AGENT_JOB) {
                mac.stop_agent();
            } else {
                mac.stop_daemon(domain, label);
            }
            if mac.launchd.boot_out(domain, label) {
                ok("")
            } else {
                fail(3, "Boot-out failed: 3: No such process\n")
            }
        }
        ["kickstart", "-k"] if mac.launchd.job(domain, label).is_none() => unknown(label),
        ["kickstart", "-k"] => {
            mac.restart_job(domain, label);
            ok("")
        }
        _ => fail(64, "Unrecognized subcommand\n"),
    }
}

fn unknown(label: &str) -> Output {
    fail(113, format!("Could not find service \"{label}\" in domain for system\n"))
}

fn print_job(mac: &mut Model, domain: Domain, label: &str) -> Output {
    if mac.launchd.job(domain, label).is_none() {
        return unknown(label);
    }
    let crashes = mac.health_of(label) == AgentHealth::CrashLoops;
    let fresh = crashes.then(|| mac.launchd.new_pid());
    let Some(job) = mac.launchd.job(domain, label) else { return unknown(label) };
    if job.pid.is_some() && fresh.is_some() {
        job.pid = fresh;
    }
    let pid = job.pid.map(|pid| format!("\tpid = {pid}\n")).unwrap_or_default();
    ok(format!("{label} = {{\n\tactive count = 1\n{pid}}}\n"))
}

fn defaults(mac: &mut Model, whose: &str, arguments: &[&str]) -> Output {
    match arguments {
        ["read", domain, key] => {
            get(mac, &format!("{whose} {domain} {key}"), "The domain/default pair does not exist\n")
        }
        ["write", domain, key, value @ ..] => match shown(value) {
            Some(value) => set(mac, format!("{whose} {domain} {key}"), &value),
            None => fail(1, "Unexpected argument; leaving defaults unchanged.\n"),
        },
        _ => fail(64, "Command line interface to a user's defaults.\n"),
    }
}

/// A value as `defaults read` prints it.
fn shown(value: &[&str]) -> Option<String> {
    let quoted = |items: &[&str]| items.iter().map(|item| format!("    \"{item}\"")).collect();
    match value {
        ["-int" | "-string", value] => Some((*value).to_owned()),
        ["-bool", "true"] => Some("1".to_owned()),
        ["-bool", "false"] => Some("0".to_owned()),
        ["-array", items @ ..] => {
            let items: Vec<String> = quoted(items);
            Some(format!("(\n{}\n)", items.join(",\n")))
        }
        ["-dict", key, "-int", value] => Some(format!("{{\n    {key} = {value};\n}}")),
        _ => None,
    }
}

/// What a preference is, without blanks, as our script prints it.
pub(super) fn preference(mac: &Model, flag: &str, domain: &str, key: &str) -> String {
    let whose = if flag.is_empty() { "defaults" } else { "defaults -currentHost" };
    let found = mac.settings.get(&format!("{whose} {domain} {key}"));
    found.map(|value| value.split_whitespace().collect()).unwrap_or_default()
}

fn get(mac: &Model, key: &str, missing: &str) -> Output {
    mac.settings.get(key).map_or_else(|| fail(1, missing), |value| ok(format!("{value}\n")))
}

fn set(mac: &mut Model, key: String, value: &str) -> Output {
    mac.settings.insert(key, value.to_owned());
    ok("")
}

fn pmset_shown(mac: &Model) -> Output {
    let settings = mac
        .settings
        .iter()
        .filter_map(|(key, value)| Some(format!(" {} {value}\n", key.strip_prefix("pmset ")?)));
    ok(format!("Currently in use:\n{}", settings.collect::<Vec<_>>().concat()))
}

fn pmset(mac: &mut Model, pairs: &[&str]) -> Output {
    for pair in pairs.chunks_exact(2) {
        mac.settings.insert(format!("pmset {}", pair[0]), pair[1].to_owned());
    }
    ok("")
}

fn tart_version(mac: &Model, program: &str) -> Output {
    let inside = program == format!("{}/Contents/MacOS/tart", paths::TART_APP);
    match mac.files.text(program) {
        Some(text) if inside => ok(text.trim_start_matches("tart ").to_owned() + "\n"),
        _ => fail(127, format!("sh: {program}: No such file or directory\n")),
    }
}
