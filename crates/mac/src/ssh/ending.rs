//! Commands that nobody waits for any more are ended on the host (LH18): closing a channel does not
//! end what runs in it, and macOS's server ignores signals.
//!
//! Everything that a command starts is in one process group, that of the shell in which the server
//! starts it. That shell says its number first, and has a mark on its command line. So a command
//! that is given up is ended by its group over the same connection; and one whose connection was
//! lost is found by its mark, before the next run begins ([`crate::scripts::END_LEFTOVERS`]).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use russh::client::Handle;
use russh::{ChannelMsg, ChannelReadHalf};
use tokio::runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Gatekeeper;
use crate::scripts::{COMMAND_MARK, END_GROUP};
use crate::{Command, Privilege};

/// What the shell says before its group's number.
const GROUP: &str = "applecart-group ";

/// How long the end of a command may take: a polite signal, a second, a rude one.
const END_WITHIN: Duration = Duration::from_secs(20);

/// A command's line with a mark on it, in a shell that says its number and stays.
pub(super) fn marked(line: &str) -> String {
    // A shell becomes its last command: that must not be the one that we want to find it by.
    format!(": {COMMAND_MARK}; echo \"{GROUP}$$\" >&2; {line}; exit $?")
}

/// The group in what a command complained, if it came that far, and where its own words begin.
///
/// Whatever the user's shell reads at its start may complain first, with a whole line or without
/// its end: that is not the command's.
pub(super) fn group(stderr: &[u8]) -> Option<(u32, usize)> {
    let mut end = 0;
    for line in stderr.split_inclusive(|byte| *byte == b'\n') {
        end += line.len();
        let Some(line) = line.strip_suffix(b"\n") else { break };
        let line = String::from_utf8_lossy(line);
        if let Some((_, number)) = line.rsplit_once(GROUP)
            && let Ok(number) = number.parse()
        {
            return Some((number, end));
        }
    }
    None
}

/// Who ends commands, also those of sessions that are gone by then.
#[derive(Debug, Default)]
pub(super) struct Endings(Mutex<JoinSet<()>>);

impl Endings {
    /// Ends a group on the host, beside whatever else happens, as soon as its number is known.
    fn end(
        self: &Arc<Self>,
        handle: Arc<Handle<Gatekeeper>>,
        group: impl Future<Output = Option<u32>> + Send + 'static,
    ) {
        // Without a runtime this process ends, and its connections with it.
        let Ok(runtime) = runtime::Handle::try_current() else { return };
        let mut tasks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while tasks.try_join_next().is_some() {}
        // The task keeps its own set: it ends its work even if nobody else is left.
        let held = self.clone();
        tasks.spawn_on(
            async move {
                // What cannot be ended now is found by its mark before the next run.
                let _ = timeout(END_WITHIN, async {
                    let number = group.await?.to_string();
                    let end = Command::script(END_GROUP, &[&number], Privilege::User);
                    run(&handle, &end.line()).await.ok()
                })
                .await;
                drop(held);
            },
            &runtime,
        );
    }
}

async fn run(handle: &Handle<Gatekeeper>, line: &str) -> Result<(), russh::Error> {
    let (mut read, write) = handle.channel_open_session().await?.split();
    write.exec(false, line).await?;
    while read.wait().await.is_some() {}
    Ok(())
}

/// A command that runs. Dropped before it is [over](Self::over), it is ended.
pub(super) struct Running {
    pub(super) handle: Arc<Handle<Gatekeeper>>,
    pub(super) endings: Arc<Endings>,
    /// What it says; `None` once it has ended, or nothing more is to come.
    pub(super) read: Option<ChannelReadHalf>,
    pub(super) stderr: BytesMut,
    pub(super) group: Option<u32>,
}

impl Running {
    /// The next thing that it says; `None` if the channel is closed.
    pub(super) async fn next(&mut self) -> Option<ChannelMsg> {
        self.read.as_mut()?.wait().await
    }

    /// Takes what it complains about; what comes before its group is not its own.
    pub(super) fn complains(&mut self, data: &[u8]) {
        self.stderr.extend_from_slice(data);
        if self.group.is_none()
            && let Some((group, rest)) = group(&self.stderr)
        {
            self.group = Some(group);
            let _said = self.stderr.split_to(rest);
        }
    }

    /// It has ended by itself.
    pub(super) fn over(&mut self) {
        self.read = None;
        self.group = None;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (handle, stderr) = (self.handle.clone(), std::mem::take(&mut self.stderr));
        match (self.group.take(), self.read.take()) {
            (Some(group), _) => self.endings.end(handle, async move { Some(group) }),
            (None, Some(read)) => self.endings.end(handle, first_words(read, stderr)),
            (None, None) => {}
        }
    }
}

/// The group of a command that was given up before it said it.
async fn first_words(mut read: ChannelReadHalf, mut stderr: BytesMut) -> Option<u32> {
    loop {
        if let Some((group, _)) = group(&stderr) {
            return Some(group);
        }
        if let ChannelMsg::ExtendedData { data, .. } = read.wait().await? {
            stderr.extend_from_slice(&data);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_from_a_whole_line_whatever_the_shell_said_before_it() {
        assert_eq!(group(b"applecart-group 12\nrest"), Some((12, 19)));
        for text in [&b"applecart-group 1"[..], b"applecart-group x\n", b"sudo: no\n", b""] {
            assert_eq!(group(text), None);
        }
        for noise in [&b"zsh: command not found: brew\n"[..], b"no end", b"\xff\n\n"] {
            let said = [noise, b"applecart-group 12\nrest"].concat();
            assert_eq!(group(&said), Some((12, said.len() - 4)));
        }
    }
}
