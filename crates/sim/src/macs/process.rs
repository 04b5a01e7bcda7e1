//! A real process of a Mac's launchd, the agent's or a daemon's: started, stopped and kept alive as
//! the model says.

use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use super::MacsError;

/// How long after its last start a process that ended is started again.
const THROTTLE: Duration = Duration::from_secs(10);

/// A job's process, in a group of its own: as on a Mac, all that is left in it ends with the job.
#[derive(Debug, Default)]
pub(super) struct Process {
    /// Its number as the model tells it, and what it is here.
    running: Option<(u32, Child)>,
    started: Option<Instant>,
    again_at: Option<Instant>,
}

/// What happened to a process.
pub(super) enum Change {
    /// Its process, of this number, ended by itself.
    Ended(u32),
    /// It is time to start it again.
    Again,
}

impl Process {
    /// Starts it, whatever it was before.
    pub(super) fn start(&mut self, pid: u32, mut program: Command) -> Result<(), MacsError> {
        self.stop();
        let child = program
            .process_group(0)
            .spawn()
            .map_err(MacsError::machine("starting a Mac's daemon"))?;
        self.running = Some((pid, child));
        self.started = Some(Instant::now());
        self.again_at = None;
        Ok(())
    }

    /// Ends it and its group, if it runs; it is not started again by itself.
    pub(super) fn stop(&mut self) {
        self.again_at = None;
        if let Some((_, child)) = self.running.take()
            && let Some(pid) = pid(&child)
        {
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }

    /// Kills it as a person might: it is started again.
    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.running.as_ref().and_then(|(_, child)| pid(child)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits for whatever happens to it next.
    pub(super) async fn next(&mut self) -> Change {
        if let Some((number, child)) = &mut self.running {
            let group = pid(child);
            let _ = child.wait().await;
            if let Some(group) = group {
                // Most leave nobody behind.
                let _ = kill_process_group(group, Signal::TERM);
            }
            let pid = *number;
            self.running = None;
            self.again_at = self.started.map(|started| started + THROTTLE);
            return Change::Ended(pid);
        }
        match self.again_at {
            Some(at) => {
                tokio::time::sleep_until(at).await;
                self.again_at = None;
                Change::Again
            }
            None => std::future::pending().await,
        }
    }
}

fn pid(child: &Child) -> Option<Pid> {
    Pid::from_raw(i32::try_from(child.id()?).ok()?)
}
