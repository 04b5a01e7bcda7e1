//! Our own constant scripts, by name: what each would do on a real Mac, as one effect.

use applecart_mac::{Output, Script, paths, scripts};
use bytes::Bytes;
use sha2::{Digest, Sha256};

use super::model::Model;
use super::tools::{fail, ok};

/// How often a password may be tried since boot; the real script says the same.
const TRIES: usize = 2;

/// Runs a script with its arguments and what is left of stdin.
pub(super) fn run(mac: &mut Model, script: Script, arguments: &[String], stdin: &Bytes) -> Output {
    match arguments {
        [] if script == scripts::COUNT_TRY => count_try(mac, stdin),
        [user] if script == scripts::INSTALL_SUDOERS => {
            let rule = format!("{user} ALL=(ALL) NOPASSWD: ALL\n");
            let path = format!("/etc/sudoers.d/{user}-nopasswd");
            mac.files.replace(&path, rule.into(), "root:wheel", 0o440);
            ok("")
        }
        [sha256] if script == scripts::UNPACK_TART => unpack_tart(mac, sha256, stdin),
        [user] if script == scripts::AGENT_FOLDERS => agent_folders(mac, user),
        [] if script == scripts::END_LEFTOVERS => ok(""),
        [flag, names @ ..] if script == scripts::READ_PREFERENCES => {
            let shown = names
                .chunks_exact(2)
                .map(|name| super::tools::preference(mac, flag, &name[0], &name[1]) + "\n");
            ok(shown.collect::<String>())
        }
        _ => fail(127, format!("no such script here: {script:?}\n")),
    }
}

fn count_try(mac: &mut Model, stdin: &Bytes) -> Output {
    let mark = String::from_utf8_lossy(stdin).trim().to_owned();
    let tries = mac.files.text(paths::PASSWORD_TRIES).unwrap_or_default();
    if tries.lines().filter(|line| *line == mark).count() >= TRIES {
        return fail(scripts::STATUS_TRIES_USED_UP, "");
    }
    let owner = format!("{}:wheel", mac.user);
    let tries = format!("{tries}{mark}\n");
    mac.files.replace(paths::PASSWORD_TRIES, tries.into(), &owner, 0o600);
    ok("")
}

fn unpack_tart(mac: &mut Model, sha256: &str, archive: &Bytes) -> Output {
    if format!("{:x}", Sha256::digest(archive)) != sha256 {
        return fail(1, "shasum: WARNING: 1 computed checksum did NOT match\n");
    }
    if !archive.starts_with(b"tart ") {
        return fail(1, "tar: Error opening archive: Unrecognized archive format\n");
    }
    if mac.vms > 0 {
        return fail(scripts::STATUS_VMS_RUNNING, "");
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
