//! Our own constant scripts, by name: what each would do on a real Mac, as one effect.

use applecart_mac::{Output, Script, UserName, paths, pf, plist, scripts};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::gate::{ALWAYS, Mutates, NEVER};
use super::launchd::Domain;
use super::model::{Model, NO_ROOM, Room};
use super::tools::{fail, ok};

/// How often a password may be tried in a boot; the real script says the same.
const TRIES: usize = 2;

/// Whether a script can change anything.
pub(super) fn mutates(script: Script) -> Mutates {
    if script == scripts::END_LEFTOVERS {
        // It only looks where no run before left anything, or where nobody can tell.
        return |mac| {
            mac.has_leftovers() && !mac.pgrep_trouble.contains_key(scripts::COMMAND_PATTERN)
        };
    }
    if scripts::LOOKS.contains(&script) { NEVER } else { ALWAYS }
}

/// Runs a script with its arguments and what is left of stdin.
pub(super) fn run(mac: &mut Model, script: Script, arguments: &[String], stdin: &Bytes) -> Output {
    // Every other one writes something.
    if mac.room == Room::Nothing && !scripts::LOOKS.contains(&script) {
        return fail(1, NO_ROOM);
    }
    match arguments {
        [] if script == scripts::COUNT_TRY => count_try(mac, stdin),
        [] if script == scripts::FORGET_TRIES => forget_tries(mac, stdin),
        [user] if script == scripts::INSTALL_SUDOERS => {
            let rule = format!("{user} ALL=(ALL) NOPASSWD: ALL\n");
            let path = format!("/etc/sudoers.d/{user}-nopasswd");
            mac.files.replace(&path, rule.into(), "root:wheel", 0o440);
            ok("")
        }
        [sha256] if script == scripts::UNPACK_TART => unpack_tart(mac, sha256, stdin),
        [path, sha256, mode] if script == scripts::RECEIVE => {
            receive(mac, path, sha256, mode, stdin)
        }
        [sha256] if script == scripts::UNPACK_TAILSCALE => unpack_tailscale(mac, sha256, stdin),
        [name, tags] if script == scripts::JOIN_TAILNET => join_tailnet(mac, name, tags, stdin),
        [user] if script == scripts::BUILDER_FOLDERS => {
            for path in [paths::RUNNER, paths::BUILD_CACHE] {
                mac.files.folder(path, &format!("{user}:staff"), 0o755);
            }
            ok("")
        }
        [version, url, name, labels, job] if script == scripts::INSTALL_RUNNER => {
            install_runner(mac, version, &[url, name, labels], job, stdin)
        }
        [domain] if script == scripts::FORGET_RUNNER => forget_runner(mac, domain),
        [what, may] if script == scripts::LOAD_FIREWALL => load_firewall(mac, what, may),
        [user] if script == scripts::AGENT_FOLDERS => agent_folders(mac, user),
        [] if script == scripts::END_LEFTOVERS => end_leftovers(mac),
        [] if script == scripts::SHOW_RULES => show_rules(mac),
        [flag, names @ ..] if script == scripts::READ_PREFERENCES => {
            let shown = names
                .chunks_exact(2)
                .map(|name| super::tools::preference(mac, flag, &name[0], &name[1]) + "\n");
            ok(shown.collect::<String>())
        }
        _ => fail(127, format!("no such script here: {script:?}\n")),
    }
}

fn end_leftovers(mac: &mut Model) -> Output {
    let look = super::tools::run(mac, &["pgrep", "-f", scripts::COMMAND_PATTERN], false);
    if look.status > 1 {
        let said = format!("pgrep ended with status {}", look.status);
        return fail(1, format!("cannot tell what earlier runs left: {said}\n"));
    }
    mac.leftovers.clear();
    ok("")
}

fn show_rules(mac: &mut Model) -> Output {
    let mut pfctl = |arguments: &[&str]| {
        let argv = [&["pfctl"], arguments].concat();
        super::tools::run(mac, &argv, true).text()
    };
    let mut shown = pfctl(&["-s", "rules"]);
    for anchor in pfctl(&["-v", "-s", "Anchors"]).split_whitespace() {
        shown.extend(["# ", anchor, "\n", &pfctl(&["-a", anchor, "-s", "rules"])]);
    }
    ok(shown)
}

fn tries_of(mac: &Model) -> Option<String> {
    Some(paths::password_tries(&mac.user.parse::<UserName>().ok()?))
}

fn count_try(mac: &mut Model, stdin: &Bytes) -> Output {
    let Some(path) = tries_of(mac) else { return fail(1, "no home\n") };
    let boot = mac.boot_session();
    let line = format!("{boot} {}", String::from_utf8_lossy(stdin).trim());
    let tries = mac.files.text(&path).unwrap_or_default();
    if tries.lines().filter(|found| *found == line).count() >= TRIES {
        return fail(scripts::STATUS_TRIES_USED_UP, "");
    }
    let kept = tries.lines().filter(|found| found.starts_with(&boot));
    let tries = kept.chain([line.as_str()]).fold(String::new(), |text, line| text + line + "\n");
    let owner = format!("{}:staff", mac.user);
    mac.files.replace(&path, tries.into(), &owner, 0o600);
    ok("")
}

fn forget_tries(mac: &mut Model, stdin: &Bytes) -> Output {
    let Some(path) = tries_of(mac) else { return fail(1, "no home\n") };
    let mark = format!(" {}", String::from_utf8_lossy(stdin).trim());
    let Some(tries) = mac.files.text(&path) else { return ok("") };
    let kept = tries.lines().filter(|line| !line.ends_with(&mark));
    let kept = kept.fold(String::new(), |text, line| text + line + "\n");
    let owner = format!("{}:staff", mac.user);
    mac.files.replace(&path, kept.into(), &owner, 0o600);
    ok("")
}

fn receive(mac: &mut Model, path: &str, sha256: &str, mode: &str, content: &Bytes) -> Output {
    if format!("{:x}", Sha256::digest(content)) != sha256 {
        return fail(1, "it arrived damaged\n");
    }
    let mode = u32::from_str_radix(mode, 8).unwrap_or(0o600);
    mac.files.replace(path, content.clone(), "root:wheel", mode);
    ok("")
}

fn unpack_tailscale(mac: &mut Model, sha256: &str, archive: &Bytes) -> Output {
    if format!("{:x}", Sha256::digest(archive)) != sha256 {
        return fail(1, "shasum: WARNING: 1 computed checksum did NOT match\n");
    }
    for path in [paths::TAILSCALE, paths::TAILSCALED] {
        mac.files.replace(path, archive.clone(), "root:wheel", 0o755);
    }
    ok("")
}

fn join_tailnet(mac: &mut Model, name: &str, tags: &str, key: &Bytes) -> Output {
    let daemon = mac.launchd.job(Domain::System, plist::TAILSCALE_JOB);
    if daemon.is_none_or(|job| job.pid.is_none()) {
        return fail(1, "waited in vain for: test -S /var/run/tailscaled.socket\n");
    }
    let given = String::from_utf8_lossy(key).trim().to_owned();
    if mac.tailnet_key.as_ref().is_some_and(|taken| *taken != given) {
        return fail(1, "backend error: invalid key: API key does not exist\n");
    }
    mac.tailnet = Some((name.to_owned(), tags.to_owned()));
    ok("")
}

/// A release, a registration and a job, each unless it is there.
fn install_runner(
    mac: &mut Model,
    version: &str,
    registration: &[&String; 3],
    job: &str,
    token: &Bytes,
) -> Output {
    let owner = format!("{}:staff", mac.user);
    let program = format!("{}/config.sh", paths::RUNNER);
    if mac.files.stat(&program).is_none() {
        mac.files.replace(&program, Bytes::from(version.to_owned()), &owner, 0o755);
        let service = format!("{}/runsvc.sh", paths::RUNNER);
        mac.files.replace(&service, Bytes::from_static(b"#!/bin/sh"), &owner, 0o755);
    }
    let there = |path: &str| mac.files.stat(path).is_some();
    if !there(paths::RUNNER_REGISTERED) || !there(paths::RUNNER_CREDENTIALS) {
        let given = String::from_utf8_lossy(token).trim().to_owned();
        if mac.github.token.as_ref().is_some_and(|taken| *taken != given) {
            return fail(1, "Http response code: NotFound from 'POST https://api.github.com'\n");
        }
        let release = mac.files.text(&program).unwrap_or_default();
        let minor = release.split('.').nth(1).and_then(|number| number.parse::<u32>().ok());
        if minor.is_none_or(|minor| minor < mac.github.least_release) {
            return fail(1, format!("Runner version v{release} is deprecated\n"));
        }
        let [url, name, labels] = registration;
        let said = format!("{url} {name} {labels}\n");
        mac.files.replace(paths::RUNNER_REGISTERED, said.into(), &owner, 0o644);
        mac.files.replace(paths::RUNNER_CREDENTIALS, Bytes::from_static(b"{}"), &owner, 0o600);
    }
    let path = format!("/Users/{}/Library/LaunchAgents/{job}.plist", mac.user);
    if mac.files.stat(&path).is_none() {
        let text = format!(
            "<plist><dict><key>Label</key><string>{job}</string><key>ProgramArguments</key>\
             <array><string>{}/runsvc.sh</string></array></dict></plist>\n",
            paths::RUNNER
        );
        mac.files.replace(&path, text.into(), &owner, 0o644);
    }
    ok("")
}

fn forget_runner(mac: &mut Model, domain: &str) -> Output {
    for path in mac.files.in_folder(&format!("/Users/{}/Library/LaunchAgents", mac.user)) {
        let name = path.rsplit('/').next().unwrap_or_default();
        if let Some(job) = name.strip_suffix(".plist").filter(|job| job.starts_with("actions.")) {
            let target = format!("{domain}/{job}");
            super::tools::run(mac, &["launchctl", "bootout", &target], false);
            mac.files.remove(&path);
        }
    }
    mac.files.remove(paths::RUNNER_REGISTERED);
    mac.files.remove(paths::RUNNER_CREDENTIALS);
    ok("")
}

/// How often the real script tries a load that meets another pfctl.
const LOAD_TRIES: usize = 4;

fn load_firewall(mac: &mut Model, what: &str, may: &str) -> Output {
    let pfctl = |mac: &mut Model, arguments: &[&str]| {
        let argv = [&["pfctl"], arguments].concat();
        super::tools::run(mac, &argv, true)
    };
    let load = |mac: &mut Model, arguments: &[&str]| {
        let mut output = pfctl(mac, arguments);
        for _ in 1..LOAD_TRIES {
            if output.success() {
                break;
            }
            output = pfctl(mac, arguments);
        }
        output
    };
    let load_as = |mac: &mut Model, what: &str| {
        let ours = ["-a", pf::ANCHOR, "-f", paths::PF_ANCHOR];
        match what {
            "main" => load(mac, &["-f", paths::PF_CONF]),
            "filter" => {
                let filter = load(mac, &["-R", "-f", paths::PF_CONF]);
                if filter.success() { load(mac, &ours) } else { filter }
            }
            "stand-in" => load(mac, &["-a", pf::STAND_IN, "-f", paths::PF_ANCHOR]),
            _ => load(mac, &ours),
        }
    };
    let checked = match what {
        "anchor" | "stand-in" => pfctl(mac, &["-n", "-a", pf::ANCHOR, "-f", paths::PF_ANCHOR]),
        _ => pfctl(mac, &["-n", "-f", paths::PF_CONF]),
    };
    if !checked.success() {
        return checked;
    }
    let mut loaded = load_as(mac, what);
    if !loaded.success() {
        if may == "empty" {
            let closed = load_as(mac, "stand-in");
            if !closed.success() {
                return closed;
            }
            let emptied = load(mac, &["-a", pf::ANCHOR, "-f", "/dev/null"]);
            if !emptied.success() {
                return emptied;
            }
            for (table, _) in pf::TABLES {
                pfctl(mac, &["-a", pf::ANCHOR, "-t", table, "-T", "kill"]);
            }
        }
        loaded = load_as(mac, what);
    }
    if loaded.success() {
        for (table, _) in pf::TABLES {
            pfctl(mac, &["-t", table, "-T", "kill"]);
        }
    }
    loaded
}

fn unpack_tart(mac: &mut Model, sha256: &str, archive: &Bytes) -> Output {
    if format!("{:x}", Sha256::digest(archive)) != sha256 {
        return fail(1, "shasum: WARNING: 1 computed checksum did NOT match\n");
    }
    if !archive.starts_with(b"tart ") {
        return fail(1, "tar: Error opening archive: Unrecognized archive format\n");
    }
    let look = super::tools::run(mac, &["pgrep", "-f", scripts::VM_PATTERN], true);
    match look.status {
        0 => return fail(scripts::STATUS_VMS_RUNNING, ""),
        1 if look.stderr.is_empty() => {}
        status => return fail(1, format!("cannot tell whether a VM runs: {status}\n")),
    }
    mac.files.remove(paths::TART_APP);
    let program = format!("{}/Contents/MacOS/tart", paths::TART_APP);
    mac.files.replace(&program, archive.clone(), "root:wheel", 0o755);
    ok("")
}

fn agent_folders(mac: &mut Model, user: &str) -> Output {
    let owner = format!("{user}:staff");
    for folder in [paths::VM_LOGS, paths::VM_USER_DATA] {
        if mac.files.stat(folder).is_none() {
            mac.files.folder(folder, &owner, 0o755);
        }
        mac.files.chown(folder, &owner, 0o755);
    }
    if mac.files.stat(paths::AGENT_LOG).is_none() {
        mac.files.replace(paths::AGENT_LOG, Bytes::new(), &owner, 0o644);
    }
    mac.files.chown(paths::AGENT_LOG, &owner, 0o644);
    ok("")
}
