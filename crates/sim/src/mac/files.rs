//! A Mac's files: in memory for a simulated connection, or in a folder of this machine where a real
//! shell works on them as well.

mod disk;
mod memory;

use std::path::Path;

use bytes::Bytes;

use disk::Disk;
use memory::Memory;

/// What is known of a file or a folder besides its content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stat {
    /// `user:group`.
    pub(super) owner: String,
    /// Permission bits.
    pub(super) mode: u32,
    /// Another one for every file that was newly created.
    pub(super) inode: u64,
    /// Another one after every write into the same file.
    pub(super) revision: u64,
}

/// All files of a Mac.
#[derive(Clone, Debug)]
pub(super) enum Files {
    Memory(Memory),
    Disk(Disk),
}

impl Default for Files {
    fn default() -> Self {
        Self::Memory(Memory::default())
    }
}

/// Calls the same method on whichever kind it is.
macro_rules! either {
    ($files:expr, $kind:ident => $call:expr) => {
        match $files {
            Files::Memory($kind) => $call,
            Files::Disk($kind) => $call,
        }
    };
}

impl Files {
    /// The files in a folder of this machine, whose paths begin there.
    pub(super) fn on_disk(root: &Path) -> Self {
        Self::Disk(Disk::new(root))
    }

    /// The files after a wipe: none. A folder is emptied by whoever made it.
    pub(super) fn wiped(&self) -> Self {
        match self {
            Self::Memory(_) => Self::default(),
            Self::Disk(disk) => Self::Disk(disk.clone()),
        }
    }

    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        either!(self, files => files.stat(path))
    }

    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        either!(self, files => files.read(path))
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(&self.read(path)?).into_owned())
    }

    /// The last `count` bytes of a file, or all of a shorter one.
    pub(super) fn tail(&self, path: &str, count: usize) -> Option<Bytes> {
        either!(self, files => files.tail(path, count))
    }

    /// A new file renamed into place.
    pub(super) fn replace(&mut self, path: &str, content: Bytes, owner: &str, mode: u32) {
        match self {
            Self::Memory(files) => files.replace(path, content, owner, mode),
            Self::Disk(files) => files.replace(path, &content, owner, mode),
        }
    }

    /// Bytes written into the file that is there, if one is: same inode, owner and mode.
    pub(super) fn overwrite(&mut self, path: &str, content: Bytes) {
        if self.stat(path).is_none() {
            return self.replace(path, content, "root:wheel", 0o644);
        }
        match self {
            Self::Memory(files) => files.overwrite(path, content),
            Self::Disk(files) => files.overwrite(path, &content),
        }
    }

    /// Bytes written to the end of the file that is there.
    pub(super) fn append(&mut self, path: &str, content: &[u8]) {
        either!(self, files => files.append(path, content));
    }

    pub(super) fn folder(&mut self, path: &str, owner: &str, mode: u32) {
        either!(self, files => files.folder(path, owner, mode));
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        either!(self, files => files.rename(from, to))
    }

    /// Removes a file, or a folder with all that is in it.
    pub(super) fn remove(&mut self, path: &str) {
        either!(self, files => files.remove(path));
    }

    pub(super) fn chown(&mut self, path: &str, owner: &str, mode: u32) {
        either!(self, files => files.chown(path, owner, mode));
    }

    /// The paths in a folder, in order.
    pub(super) fn in_folder(&self, folder: &str) -> Vec<String> {
        either!(self, files => files.in_folder(folder))
    }
}
