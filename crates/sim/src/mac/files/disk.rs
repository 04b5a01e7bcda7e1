//! A Mac's files in a folder of this machine, for a real shell to work on as well.
//!
//! Whoever is root in the Mac may put a link there that points anywhere. Every path is resolved
//! with that folder as its root, so that no link leads out of it.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Uid};
use rustix::{fs, io};

use super::Stat;

/// The accounts of a Mac by number, in `/etc/passwd` and `/etc/group` there.
const USERS: [(&str, u32); 2] = [("root", 0), ("m1", 501)];
const GROUPS: [(&str, u32); 2] = [("wheel", 0), ("staff", 20)];

/// What a file is called until it is complete.
const STAGED: &str = ".staged-by-the-model";

/// A folder that is a Mac's root.
#[derive(Clone, Debug)]
pub(in super::super) struct Disk {
    root: PathBuf,
}

impl Disk {
    pub(super) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        let file = File::from(self.open(path, OFlags::PATH).ok()?);
        let metadata = file.metadata().ok()?;
        let name = |known: &[(&str, u32)], number: u32| {
            let found = known.iter().find(|(_, other)| *other == number);
            found.map_or_else(|| number.to_string(), |(name, _)| (*name).to_owned())
        };
        let nanoseconds = metadata.mtime().wrapping_mul(1_000_000_000) + metadata.mtime_nsec();
        Some(Stat {
            owner: format!("{}:{}", name(&USERS, metadata.uid()), name(&GROUPS, metadata.gid())),
            mode: metadata.mode() & 0o7777,
            inode: metadata.ino(),
            revision: nanoseconds.cast_unsigned(),
        })
    }

    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        let mut file = self.file(path, OFlags::RDONLY).ok()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        Some(content.into())
    }

    pub(super) fn tail(&self, path: &str, count: usize) -> Option<Bytes> {
        let mut file = self.file(path, OFlags::RDONLY).ok()?;
        let length = file.metadata().ok()?.len();
        let from = length.saturating_sub(u64::try_from(count).ok()?);
        file.seek(SeekFrom::Start(from)).ok()?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).ok()?;
        Some(content.into())
    }

    /// A write that the disk has no room for leaves what was there, as it does on a Mac.
    pub(super) fn replace(&mut self, path: &str, content: &[u8], owner: &str, mode: u32) {
        let (folder, name) = split(path);
        told(path, self.try_replace(folder, name, content, owner, mode));
    }

    fn try_replace(
        &self,
        folder: &str,
        name: &str,
        content: &[u8],
        owner: &str,
        mode: u32,
    ) -> io::Result<()> {
        self.make_folders(folder)?;
        let parent = self.open(folder, OFlags::PATH | OFlags::DIRECTORY)?;
        let _ = fs::unlinkat(&parent, STAGED, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let staged = fs::openat(&parent, STAGED, flags | OFlags::CLOEXEC, Mode::RUSR)?;
        let mut staged = File::from(staged);
        let (user, group) = numbers(owner);
        let written = staged
            .write_all(content)
            .map_err(|error| io::Errno::from_io_error(&error).unwrap_or(io::Errno::IO));
        let done = written
            .and_then(|()| fs::fchown(&staged, Some(user), Some(group)))
            .and_then(|()| fs::fchmod(&staged, Mode::from_raw_mode(mode)))
            .and_then(|()| fs::renameat(&parent, STAGED, &parent, name));
        if done.is_err() {
            let _ = fs::unlinkat(&parent, STAGED, AtFlags::empty());
        }
        done
    }

    pub(super) fn overwrite(&mut self, path: &str, content: &[u8]) {
        let written = self.file(path, OFlags::WRONLY | OFlags::TRUNC).and_then(|mut file| {
            file.write_all(content)
                .map_err(|error| io::Errno::from_io_error(&error).unwrap_or(io::Errno::IO))
        });
        told(path, written);
    }

    pub(super) fn append(&mut self, path: &str, content: &[u8]) {
        let written = self.file(path, OFlags::WRONLY | OFlags::APPEND).and_then(|mut file| {
            file.write_all(content)
                .map_err(|error| io::Errno::from_io_error(&error).unwrap_or(io::Errno::IO))
        });
        told(path, written);
    }

    pub(super) fn folder(&mut self, path: &str, owner: &str, mode: u32) {
        told(path, self.make_folders(path));
        self.chown(path, owner, mode);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let ((from, old), (to, new)) = (split(from), split(to));
        let (Ok(from), Ok(to)) = (self.open(from, OFlags::PATH), self.open(to, OFlags::PATH))
        else {
            return false;
        };
        fs::renameat(&from, old, &to, new).is_ok()
    }

    pub(super) fn remove(&mut self, path: &str) {
        let (folder, name) = split(path);
        if let Ok(parent) = self.open(folder, OFlags::RDONLY | OFlags::DIRECTORY) {
            told(path, remove_in(&parent, name));
        }
    }

    pub(super) fn chown(&mut self, path: &str, owner: &str, mode: u32) {
        let (user, group) = numbers(owner);
        let changed = self.open(path, OFlags::RDONLY).and_then(|file| {
            fs::fchown(&file, Some(user), Some(group))?;
            fs::fchmod(&file, Mode::from_raw_mode(mode))
        });
        told(path, changed);
    }

    pub(super) fn in_folder(&self, folder: &str) -> Vec<String> {
        let Ok(open) = self.open(folder, OFlags::RDONLY | OFlags::DIRECTORY) else {
            return Vec::new();
        };
        let entries = Dir::read_from(&open).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        let names = names.filter(|name| name != "." && name != "..");
        let mut paths: Vec<String> = names.map(|name| format!("{folder}/{name}")).collect();
        paths.sort_unstable();
        paths
    }

    /// Opens a path of the Mac; links, and `..`, end at its root.
    fn open(&self, path: &str, flags: OFlags) -> io::Result<OwnedFd> {
        let cloexec = OFlags::CLOEXEC;
        let root = fs::open(&self.root, OFlags::PATH | OFlags::DIRECTORY | cloexec, Mode::empty())?;
        fs::openat2(&root, path, flags | cloexec, Mode::empty(), ResolveFlags::IN_ROOT)
    }

    /// A plain file; a pipe or a device would make us wait.
    fn file(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let file = self.open(path, flags | OFlags::NONBLOCK)?;
        let kind = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
        if kind == FileType::RegularFile { Ok(File::from(file)) } else { Err(io::Errno::ISDIR) }
    }

    fn make_folders(&self, path: &str) -> io::Result<()> {
        let mut made = String::from("/");
        for name in path.split('/').filter(|name| !name.is_empty()) {
            let parent = self.open(&made, OFlags::PATH | OFlags::DIRECTORY)?;
            match fs::mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                Err(error) if error != io::Errno::EXIST => return Err(error),
                _ => {}
            }
            made = format!("{made}{name}/");
        }
        Ok(())
    }
}

fn remove_in(parent: &OwnedFd, name: &str) -> io::Result<()> {
    match fs::unlinkat(parent, name, AtFlags::empty()) {
        Err(io::Errno::NOENT) | Ok(()) => return Ok(()),
        Err(io::Errno::ISDIR | io::Errno::PERM) => {}
        Err(error) => return Err(error),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = fs::openat(parent, name, flags, Mode::empty())?;
    for entry in Dir::read_from(&folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            remove_in(&folder, &name)?;
        }
    }
    fs::unlinkat(parent, name, AtFlags::REMOVEDIR)
}

/// A path's folder, and its name in it.
fn split(path: &str) -> (&str, &str) {
    match path.rsplit_once('/') {
        Some(("", name)) => ("/", name),
        Some((folder, name)) => (folder, name),
        None => ("/", path),
    }
}

fn numbers(owner: &str) -> (Uid, Gid) {
    let (user, group) = owner.split_once(':').unwrap_or((owner, ""));
    let number = |known: &[(&str, u32)], name: &str| {
        known.iter().find(|(other, _)| *other == name).map_or(0, |(_, number)| *number)
    };
    (Uid::from_raw(number(&USERS, user)), Gid::from_raw(number(&GROUPS, group)))
}

/// A Mac's own tools would complain to nobody either: what counts is what is there afterwards.
fn told(path: &str, done: io::Result<()>) {
    if let Err(error) = done {
        tracing::debug!(path, %error, "a change of a simulated Mac's files failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (tempfile::TempDir, Disk) {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("root");
        std::fs::create_dir(&root).unwrap();
        std::fs::write(outside.path().join("secret"), "outside").unwrap();
        (outside, Disk::new(&root))
    }

    #[test]
    fn no_link_in_a_mac_leads_out_of_it() {
        let (outside, mut disk) = disk();
        let root = outside.path().join("root");
        std::os::unix::fs::symlink(outside.path(), root.join("etc")).unwrap();
        std::os::unix::fs::symlink("../secret", root.join("up")).unwrap();
        assert_eq!(disk.read("/etc/secret"), None);
        assert_eq!(disk.read("/up"), None);
        assert_eq!(disk.read("/../secret"), None);
        disk.replace("/etc/secret", b"new", "root:wheel", 0o644);
        disk.overwrite("/up", b"new");
        disk.remove("/etc/secret");
        disk.remove("/../secret");
        let found = std::fs::read_to_string(outside.path().join("secret")).unwrap();
        assert_eq!(found, "outside");
    }

    #[test]
    fn a_replaced_file_is_a_new_one_and_an_overwritten_one_is_not() {
        let (_outside, mut disk) = disk();
        disk.replace("/a/b/file", b"one", "root:wheel", 0o640);
        let first = disk.stat("/a/b/file").unwrap();
        assert_eq!(first.mode, 0o640);
        disk.append("/a/b/file", b" two");
        assert_eq!(disk.tail("/a/b/file", 4).unwrap(), " two");
        assert_eq!(disk.stat("/a/b/file").unwrap().inode, first.inode);
        disk.replace("/a/b/file", b"three", "root:wheel", 0o640);
        assert_ne!(disk.stat("/a/b/file").unwrap().inode, first.inode);
        assert_eq!(disk.in_folder("/a/b"), ["/a/b/file"]);
        assert!(disk.rename("/a/b/file", "/a/other"));
        disk.remove("/a");
        assert_eq!(disk.stat("/a/other"), None);
    }
}
