//! The gate to Macs over SSH.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use applecart_mac::{Answer, Command, Dial, File, Mac, Output, Session, Target};
use bytes::Bytes;

use super::Faults;
use super::fault::{Class, Edge, Fault, Terms};
use super::trace::Process;
use crate::mac::{Effect, Gate, SimNetwork, Verdict};

impl Gate for Faults {
    fn verdict(&self, effect: &Effect) -> Verdict {
        let class = if effect.mutates { Class::Effect } else { Class::Read };
        let process = self.state().on_a_mac.clone();
        let entry = self.enter(process, Edge::Ssh, class, Terms::Plain, || {
            let host = effect.mac.get(..8).unwrap_or(&effect.mac);
            format!("{host} {}", effect.what)
        });
        let Some(entry) = entry else { return Verdict::Pass };
        self.state().open_macs.insert((effect.mac.clone(), effect.index), entry.number);
        match entry.fault {
            Some(Fault::CrashBefore | Fault::TimeOut) => Verdict::HangBefore,
            Some(Fault::CrashAfter | Fault::LostAnswer) => Verdict::HangAfter,
            Some(Fault::Reboot) => {
                if let Some(cut) = self.power_cut.get() {
                    cut(&effect.mac);
                }
                Verdict::FailBefore
            }
            Some(Fault::Error) => Verdict::FailBefore,
            Some(Fault::Fails) => Verdict::Fails,
            Some(Fault::Late) => Verdict::LostRunning,
            _ => Verdict::Pass,
        }
    }

    fn answered(&self, effect: &Effect, answer: &str) {
        let number = self.state().open_macs.remove(&(effect.mac.clone(), effect.index));
        if let Some(number) = number {
            Faults::answer(self, number, answer);
        }
    }
}

/// The way of one process to Macs: the gate learns whose calls they are.
#[derive(Clone)]
pub struct GatedDial {
    network: Arc<SimNetwork>,
    caller: Caller,
}

#[derive(Clone)]
struct Caller {
    process: Process,
    faults: Option<Arc<Faults>>,
}

impl GatedDial {
    /// `network` as `process` uses it, behind a gate if there is one.
    #[must_use]
    pub fn new(network: SimNetwork, process: Process, faults: Option<Arc<Faults>>) -> Self {
        Self { network: Arc::new(network), caller: Caller { process, faults } }
    }
}

impl Dial for GatedDial {
    fn dial<'a>(&'a self, target: &'a Target) -> Answer<'a, Session> {
        let (caller, dialled) = (self.caller.clone(), self.network.dial(target));
        Box::pin(async move {
            let session = Called { caller: caller.clone(), call: dialled }.await?;
            let mac = Arc::new(GatedMac { mac: session.mac, caller });
            Ok(Session { mac, host_key: session.host_key })
        })
    }
}

/// A connection of one process.
struct GatedMac {
    mac: Arc<dyn Mac>,
    caller: Caller,
}

impl GatedMac {
    fn called<'a, T: 'a>(&self, call: Answer<'a, T>) -> Answer<'a, T> {
        Box::pin(Called { caller: self.caller.clone(), call })
    }
}

impl Mac for GatedMac {
    fn read<'a>(&'a self, path: &'a str) -> Answer<'a, Option<Bytes>> {
        self.called(self.mac.read(path))
    }

    fn write<'a>(&'a self, file: &'a File) -> Answer<'a, ()> {
        self.called(self.mac.write(file))
    }

    fn run<'a>(&'a self, command: &'a Command) -> Answer<'a, Output> {
        self.called(self.mac.run(command))
    }
}

/// A call whose caller is known whenever it goes on: a Mac itself is not told who talks to it.
struct Called<'a, T> {
    caller: Caller,
    call: Answer<'a, T>,
}

impl<T> Future for Called<'_, T> {
    type Output = Result<T, applecart_mac::MacError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Caller { process, faults: Some(faults) } = &self.caller {
            faults.state().on_a_mac = process.clone();
        }
        self.call.as_mut().poll(context)
    }
}
