//! A Mac's disk: a file system in memory, with what a factory Mac has on it that a shell looks at.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown, symlink};
use std::path::Path;

use applecart_mac::KeyPair;
use secrecy::ExposeSecret;

use super::{MacsError, run_program};

/// The Mac's user and its group, by number.
const USER: (u32, u32) = (501, 20);

/// Folders, and their modes.
const FOLDERS: [(&str, u32); 19] = [
    (".applecart", 0o755),
    (".applecart/run", 0o755),
    (".applecart/tools", 0o755),
    (".applecart/local", 0o755),
    ("etc", 0o755),
    ("etc/ssh", 0o755),
    ("etc/sudoers.d", 0o755),
    ("private", 0o755),
    ("private/tmp", 0o1777),
    ("run/sshd", 0o755),
    ("var/log", 0o755),
    ("var/lib", 0o755),
    ("var/run", 0o755),
    ("var/root", 0o700),
    ("Library/LaunchDaemons", 0o755),
    ("Library/Preferences", 0o755),
    ("Users", 0o755),
    ("usr/local/bin", 0o755),
    ("usr/local/lib", 0o755),
];

const PASSWD: &str = "\
root:*:0:0:System Administrator:/var/root:/bin/sh
m1:*:501:20:m1:/Users/m1:/bin/sh
sshd:*:75:75:sshd:/var/empty:/bin/false
nobody:*:65534:65534:nobody:/var/empty:/bin/false
";

const GROUP: &str = "wheel:*:0:\nstaff:*:20:m1\nsshd:*:75:\nnogroup:*:65534:\n";

/// What is where, on the way in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Identity {
    pub address: std::net::Ipv4Addr,
    pub port: u16,
    /// What its host key is made from.
    pub host_key: [u8; 32],
}

/// Makes an empty disk at `root`, whatever was there before.
pub(super) async fn format(root: &Path, size_mb: u64, who: Identity) -> Result<(), MacsError> {
    let shown = root.display().to_string();
    let made = |what: &str| MacsError::machine(format!("{what} a Mac's disk"));
    fs::create_dir_all(root).map_err(made("making a place for"))?;
    // There is none before the first time.
    let _ = run_program("umount", &["--lazy", &shown]).await;
    let options = format!("size={size_mb}m,mode=0755");
    run_program("mount", &["-t", "tmpfs", "-o", &options, "applecart-mac", &shown]).await?;
    fill(root, who).map_err(made("filling"))?;
    let key = root.join("etc/ssh/ssh_host_ecdsa_key").display().to_string();
    run_program("ssh-keygen", &["-q", "-t", "ecdsa", "-N", "", "-C", "", "-f", &key]).await
}

/// How often a disk is measured anew: it cannot be made smaller than what is on it, and a Mac that
/// runs writes between the measure and the change.
const MEASURES: usize = 100;

/// Leaves no room on the disk, or makes it as large again as it was.
pub(super) async fn set_full(root: &Path, size_mb: u64, full: bool) -> Result<(), MacsError> {
    let resize = async |size: u64| {
        let options = format!("remount,size={size}");
        run_program("mount", &["-o", &options, &root.display().to_string()]).await
    };
    if !full {
        return resize(size_mb * 1024 * 1024).await;
    }
    for _ in 1..MEASURES {
        if resize(used(root)?).await.is_ok() {
            return Ok(());
        }
    }
    resize(used(root)?).await
}

/// How many bytes of a disk are used; one at least, for none at all is no limit.
fn used(root: &Path) -> Result<u64, MacsError> {
    let seen = rustix::fs::statvfs(root).map_err(io::Error::from);
    let seen = seen.map_err(MacsError::machine("measuring a Mac's disk"))?;
    Ok(((seen.f_blocks - seen.f_bfree) * seen.f_frsize).max(1))
}

fn fill(root: &Path, who: Identity) -> io::Result<()> {
    for (path, mode) in FOLDERS {
        let path = root.join(path);
        fs::DirBuilder::new().recursive(true).mode(0o755).create(&path)?;
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
    }
    symlink("private/tmp", root.join("tmp"))?;
    symlink("../etc", root.join("private/etc"))?;
    symlink("../var", root.join("private/var"))?;
    for path in ["Users/m1", "Users/m1/.ssh"] {
        fs::DirBuilder::new().mode(0o700).create(root.join(path))?;
        chown(root.join(path), Some(USER.0), Some(USER.1))?;
    }
    let host_key = KeyPair::from_seed(who.host_key, "").map_err(io::Error::other)?;
    for (path, text, mode) in [
        ("etc/passwd", PASSWD, 0o644),
        ("etc/group", GROUP, 0o644),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n", 0o644),
        ("etc/hosts", "127.0.0.1 localhost\n", 0o644),
        ("etc/ssh/sshd_config", &sshd_config(who), 0o644),
        ("etc/ssh/ssh_host_ed25519_key", host_key.private.expose_secret(), 0o600),
    ] {
        let mut options = fs::OpenOptions::new();
        let file = options.write(true).create_new(true).mode(mode).open(root.join(path))?;
        io::Write::write_all(&mut &file, text.as_bytes())?;
    }
    Ok(())
}

fn sshd_config(who: Identity) -> String {
    format!(
        "Port {}\nListenAddress {}\n\
         HostKey /etc/ssh/ssh_host_ed25519_key\nHostKey /etc/ssh/ssh_host_ecdsa_key\n\
         AuthorizedKeysFile .ssh/authorized_keys .ssh/scw_authorized_keys\n\
         PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
         PermitRootLogin no\nMaxAuthTries 1\nPidFile none\nUseDNS no\nPrintMotd no\n\
         MaxStartups 100\n\
         SetEnv PATH=/.applecart/tools/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin\n",
        who.port, who.address,
    )
}
