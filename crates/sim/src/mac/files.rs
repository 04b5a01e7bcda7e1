//! A file tree with owners, modes and inodes. Folders exist through what is in them, or by name.

use std::collections::BTreeMap;

use bytes::Bytes;

/// A file or a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    /// `None`: a folder.
    pub(super) content: Option<Bytes>,
    /// `user:group`.
    pub(super) owner: String,
    /// Permission bits.
    pub(super) mode: u32,
    /// Another one for every file that was newly created.
    pub(super) inode: u64,
}

/// All files of a Mac.
#[derive(Clone, Debug, Default)]
pub(super) struct Files {
    nodes: BTreeMap<String, Node>,
    next_inode: u64,
}

impl Files {
    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    pub(super) fn read(&self, path: &str) -> Option<&Bytes> {
        self.nodes.get(path)?.content.as_ref()
    }

    pub(super) fn text(&self, path: &str) -> Option<String> {
        Some(String::from_utf8_lossy(self.read(path)?).into_owned())
    }

    /// A new file renamed into place.
    pub(super) fn replace(&mut self, path: &str, content: Bytes, owner: &str, mode: u32) {
        let inode = self.new_inode();
        let node = Node { content: Some(content), owner: owner.to_owned(), mode, inode };
        self.nodes.insert(path.to_owned(), node);
    }

    /// Bytes written into the file that is there, if one is: same inode, owner and mode.
    pub(super) fn overwrite(&mut self, path: &str, content: Bytes) {
        match self.nodes.get_mut(path) {
            Some(node) => node.content = Some(content),
            None => self.replace(path, content, "root:wheel", 0o644),
        }
    }

    pub(super) fn folder(&mut self, path: &str, owner: &str, mode: u32) {
        let inode = self.new_inode();
        let node = Node { content: None, owner: owner.to_owned(), mode, inode };
        self.nodes.insert(path.to_owned(), node);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(node) = self.nodes.remove(from) else { return false };
        self.nodes.insert(to.to_owned(), node);
        true
    }

    /// Removes a file, or a folder with all that is in it.
    pub(super) fn remove(&mut self, path: &str) {
        let inside = format!("{path}/");
        self.nodes.retain(|name, _| name != path && !name.starts_with(&inside));
    }

    pub(super) fn chown(&mut self, path: &str, owner: &str, mode: u32) {
        if let Some(node) = self.nodes.get_mut(path) {
            owner.clone_into(&mut node.owner);
            node.mode = mode;
        }
    }

    /// The paths in a folder, in order.
    pub(super) fn in_folder<'a>(&'a self, folder: &'a str) -> impl Iterator<Item = &'a str> {
        let inside = move |path: &&String| {
            path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
        };
        self.nodes.keys().filter(inside).map(String::as_str)
    }

    fn new_inode(&mut self) -> u64 {
        self.next_inode += 1;
        self.next_inode
    }
}
