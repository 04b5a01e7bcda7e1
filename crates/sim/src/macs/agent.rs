//! The real agent of a Mac: started and stopped by the model's launchd, kept alive by it.

use std::time::Duration;

use applecart_mac::paths;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Child;
use tokio::time::Instant;

use super::sandbox::Sandbox;
use super::{MacsError, MacsSettings};
use crate::mac::AgentStart;

/// How long after its last start a process that ended is started again.
const THROTTLE: Duration = Duration::from_secs(10);

/// Where an agent of this machine's is in every Mac.
const GIVEN: &str = "/.applecart/tools/agent";

/// One Mac's agent.
#[derive(Debug, Default)]
pub(super) struct Agent {
    process: Option<(u32, Child)>,
    started: Option<Instant>,
    again_at: Option<Instant>,
}

/// What happened to an agent.
pub(super) enum Change {
    /// Its process, of this number, ended by itself.
    Ended(u32),
    /// It is time to start it again.
    Again,
}

impl Agent {
    /// Starts it as its job says.
    pub(super) fn start(
        &mut self,
        sandbox: &Sandbox,
        settings: &MacsSettings,
        start: &AgentStart,
    ) -> Result<(), MacsError> {
        self.stop();
        let program = if settings.agent.is_some() { GIVEN } else { paths::AGENT };
        let mut words = vec![program.to_owned()];
        words.extend_from_slice(&start.args);
        let spawned = sandbox.program(&words, &start.environment).spawn();
        let child = spawned.map_err(MacsError::machine("starting a Mac's agent"))?;
        self.process = Some((start.pid, child));
        self.started = Some(Instant::now());
        self.again_at = None;
        Ok(())
    }

    /// Ends it, if it runs; it is not started again by itself.
    pub(super) fn stop(&mut self) {
        self.again_at = None;
        if let Some((_, child)) = self.process.take()
            && let Some(pid) = pid(&child)
        {
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Kills it as a person might: it is started again.
    pub(super) fn kill(&mut self) {
        if let Some(pid) = self.process.as_ref().and_then(|(_, child)| pid(child)) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Waits for whatever happens to it next.
    pub(super) async fn next(&mut self) -> Change {
        if let Some((pid, child)) = &mut self.process {
            let _ = child.wait().await;
            let pid = *pid;
            self.process = None;
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
