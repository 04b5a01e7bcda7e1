//! A file tree in memory. Folders exist through what is in them, or by name.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::Stat;

/// A file or a folder.
#[derive(Clone, Debug)]
struct Node {
    /// `None`: a folder.
    content: Option<Bytes>,
    stat: Stat,
}

/// A tree.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Memory {
    nodes: BTreeMap<String, Node>,
    next_inode: u64,
}

impl Memory {
    pub(super) fn stat(&self, path: &str) -> Option<Stat> {
        Some(self.nodes.get(path)?.stat.clone())
    }

    pub(super) fn read(&self, path: &str) -> Option<Bytes> {
        self.nodes.get(path)?.content.clone()
    }

    pub(super) fn tail(&self, path: &str, count: usize) -> Option<Bytes> {
        let content = self.read(path)?;
        Some(content.slice(content.len().saturating_sub(count)..))
    }

    pub(super) fn replace(&mut self, path: &str, content: Bytes, owner: &str, mode: u32) {
        self.insert(path, Some(content), owner, mode);
    }

    pub(super) fn overwrite(&mut self, path: &str, content: Bytes) {
        if let Some(node) = self.nodes.get_mut(path) {
            node.content = Some(content);
            node.stat.revision += 1;
        }
    }

    pub(super) fn append(&mut self, path: &str, content: &[u8]) {
        if let Some(old) = self.read(path) {
            self.overwrite(path, [&old[..], content].concat().into());
        }
    }

    pub(super) fn folder(&mut self, path: &str, owner: &str, mode: u32) {
        self.insert(path, None, owner, mode);
    }

    pub(super) fn rename(&mut self, from: &str, to: &str) -> bool {
        let Some(node) = self.nodes.remove(from) else { return false };
        self.nodes.insert(to.to_owned(), node);
        true
    }

    pub(super) fn remove(&mut self, path: &str) {
        let inside = format!("{path}/");
        self.nodes.retain(|name, _| name != path && !name.starts_with(&inside));
    }

    pub(super) fn chown(&mut self, path: &str, owner: &str, mode: u32) {
        if let Some(node) = self.nodes.get_mut(path) {
            owner.clone_into(&mut node.stat.owner);
            node.stat.mode = mode;
        }
    }

    pub(super) fn in_folder(&self, folder: &str) -> Vec<String> {
        let inside =
            |path: &&String| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'));
        self.nodes.keys().filter(inside).cloned().collect()
    }

    fn insert(&mut self, path: &str, content: Option<Bytes>, owner: &str, mode: u32) {
        self.next_inode += 1;
        let stat = Stat { owner: owner.to_owned(), mode, inode: self.next_inode, revision: 0 };
        self.nodes.insert(path.to_owned(), Node { content, stat });
    }
}
