//! VMs by Tart's command line.
//!
//! Tart has no daemon and keeps no record of how a VM's run ended. So each VM has a folder of ours
//! beside Tart's own ([`record`]), and is run by a small constant shell script that writes down
//! that it started and how it ended, also when this agent is gone by then.

mod list;
mod record;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use applecart_core::pod::{Exit, Template, VmName, VmState};

use crate::command::{Finished, run};
use crate::vm::{Share, Vm, VmError};
use list::Listed;
use record::{Record, Run};

/// Reads and small changes. Each takes a moment; `tart ip` sleeps one second before it says no.
const QUICK: Duration = Duration::from_secs(20);
/// A first pull of an image of some 60 GB over a slow line.
const CREATE: Duration = Duration::from_hours(1);
/// How long a guest may take to stop before Tart kills it.
const STOP_SECONDS: u64 = 30;
/// Stopping, and some more for Tart itself.
const STOP: Duration = Duration::from_secs(STOP_SECONDS + 15);
/// Deleting a disk.
const DELETE: Duration = Duration::from_mins(1);
/// Exit code of Tart's for a VM that does not exist or does not run.
const NO_SUCH_VM: i32 = 2;

/// Tart on this Mac.
#[derive(Clone, Debug)]
pub struct Tart {
    binary: PathBuf,
    state: PathBuf,
}

impl Tart {
    /// Tart's binary, and the folder for our records, which is made if it is not there.
    #[must_use]
    pub fn new(binary: impl Into<PathBuf>, state: impl Into<PathBuf>) -> Self {
        Self { binary: binary.into(), state: state.into() }
    }

    fn record(&self, vm: &VmName) -> Record {
        Record::new(self.state.join(vm.as_str()))
    }

    async fn tart(&self, args: &[&str], deadline: Duration) -> Result<Finished, VmError> {
        run(&self.binary, args, deadline).await
    }

    /// Runs Tart where only exit code 0 will do.
    async fn succeed(&self, args: &[&str], deadline: Duration) -> Result<Finished, VmError> {
        let finished = self.tart(args, deadline).await?;
        if finished.code == Some(0) { Ok(finished) } else { Err(failed(args, &finished)) }
    }

    /// Runs Tart where a VM that is not there, or does not run, is as good as success.
    async fn tolerate(&self, args: &[&str], deadline: Duration) -> Result<(), VmError> {
        let finished = self.tart(args, deadline).await?;
        match finished.code {
            Some(0 | NO_SUCH_VM) => Ok(()),
            _ => Err(failed(args, &finished)),
        }
    }

    async fn state_of(&self, vm: &VmName, listed: Listed) -> Result<VmState, VmError> {
        let record = self.record(vm);
        let run = match record.read().await? {
            // Between the script's first line and Tart's lock, only the script's process tells that
            // the VM is on its way. It writes the exit code last of all, so one that has just ended
            // is read again.
            Run::Started(process) if listed != Listed::Running => {
                if process.lives().await {
                    return Ok(VmState::Running);
                }
                record.read().await?
            }
            run @ (Run::NeverCreated | Run::NeverStarted | Run::Started(_) | Run::Ended { .. }) => {
                run
            }
        };
        Ok(match (listed, run) {
            (Listed::Running, _) => VmState::Running,
            (_, Run::Ended { code, at }) => {
                VmState::Ended { exit: list::exit(code, record.last_words().await), at }
            }
            (_, Run::Started(_)) => VmState::Ended { exit: Exit::Unknown, at: None },
            (Listed::Stopped, Run::NeverStarted) => VmState::Created,
            (Listed::Stopped, Run::NeverCreated) | (Listed::Absent, _) => VmState::Partial,
        })
    }
}

impl Vm for Tart {
    async fn list(&self) -> Result<BTreeMap<VmName, VmState>, VmError> {
        let args = ["list", "--source", "local", "--format", "json"];
        let text = self.succeed(&args, QUICK).await?.stdout;
        let mut listed = list::parse(&text)?;
        for name in record::names(&self.state).await? {
            listed.entry(name).or_insert(Listed::Absent);
        }
        let mut all = BTreeMap::new();
        for (name, listed) in listed {
            let state = self.state_of(&name, listed).await?;
            all.insert(name, state);
        }
        Ok(all)
    }

    async fn create(&self, vm: &VmName, template: &Template) -> Result<(), VmError> {
        let record = self.record(vm);
        if let Run::Started(_) | Run::Ended { .. } = record.read().await? {
            let said = "it was started before, and a VM runs once".to_owned();
            return Err(VmError::Failed { what: format!("making VM {vm}"), said });
        }
        record.begin().await?;
        let name = vm.as_str();
        // Clone fetches an image that is not there, and leaves one that is alone (K13).
        self.succeed(&["clone", &template.image, name], CREATE).await?;
        let (cpu, memory) =
            (template.cpu.map(|n| n.to_string()), template.memory_mib.map(|n| n.to_string()));
        // Two VMs of one image must differ in what Apple and DHCP know them by (K23).
        let mut args = vec!["set", name, "--random-mac", "--random-serial"];
        args.extend(cpu.iter().flat_map(|cpu| ["--cpu", cpu]));
        args.extend(memory.iter().flat_map(|memory| ["--memory", memory]));
        self.succeed(&args, QUICK).await?;
        record.created().await
    }

    async fn start(&self, vm: &VmName, share: Share) -> Result<(), VmError> {
        let record = self.record(vm);
        let folder = record.write_share(share).await?;
        let dir = format!("env:{}:ro", folder.display());
        let args = ["run", vm.as_str(), "--no-graphics", "--dir", &dir];
        record.start(&self.binary, &args).await
    }

    async fn address(&self, vm: &VmName) -> Result<Option<IpAddr>, VmError> {
        let args = ["ip", vm.as_str()];
        let finished = self.tart(&args, QUICK).await?;
        match finished.code {
            Some(0) => match finished.stdout.trim().parse() {
                Ok(address) => Ok(Some(address)),
                Err(_) => Err(failed(&args, &finished)),
            },
            Some(NO_SUCH_VM) => Ok(None),
            _ if finished.stderr.contains("no IP address found") => Ok(None),
            _ => Err(failed(&args, &finished)),
        }
    }

    async fn remove(&self, vm: &VmName) -> Result<(), VmError> {
        let (record, name) = (self.record(vm), vm.as_str());
        let seconds = STOP_SECONDS.to_string();
        let stopped = self.tolerate(&["stop", name, "--timeout", &seconds], STOP).await;
        if let Run::Started(process) = record.read().await? {
            process.kill().await;
        }
        // Whether it stopped is asked by deleting: Tart refuses that for a running VM.
        match self.tolerate(&["delete", name], DELETE).await {
            Ok(()) => record.forget().await,
            Err(error) => Err(stopped.err().unwrap_or(error)),
        }
    }
}

fn failed(args: &[&str], finished: &Finished) -> VmError {
    VmError::Failed { what: format!("tart {}", args.join(" ")), said: finished.said() }
}
