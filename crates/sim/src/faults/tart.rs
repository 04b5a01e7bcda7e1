//! The gate to Tart, between an agent and its Mac.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use applecart_core::pod::{Template, VmName, VmState};
use tart_kubelet::{Share, Vm, VmError};

use super::fault::{Class, Edge, Fault, Terms};
use super::trace::Process;
use super::{Faults, SERVER_TIMEOUT, SLOW};
use crate::tart::SimTart;

/// A Mac's Tart, as one agent calls it.
pub struct GatedTart {
    tart: SimTart,
    process: Process,
    faults: Option<Arc<Faults>>,
}

impl GatedTart {
    /// `tart` behind a gate, if there is one.
    #[must_use]
    pub fn new(tart: SimTart, process: Process, faults: Option<Arc<Faults>>) -> Self {
        Self { tart, process, faults }
    }

    async fn call<T>(
        &self,
        class: Class,
        what: impl FnOnce() -> String,
        call: impl Future<Output = Result<T, VmError>>,
    ) -> Result<T, VmError> {
        let Some(faults) = &self.faults else { return call.await };
        let told = what();
        let entered = {
            let told = told.clone();
            faults.enter(self.process.clone(), Edge::Tart, class, Terms::Plain, move || told)
        };
        let Some(entry) = entered else { return call.await };
        let seconds = SERVER_TIMEOUT.as_secs();
        let unknown = |what: String| VmError::Unknown { what, seconds };
        match entry.fault {
            Some(Fault::CrashBefore) => std::future::pending().await,
            Some(Fault::TimeOut) => {
                tokio::time::sleep(SERVER_TIMEOUT).await;
                Err(unknown(told))
            }
            Some(Fault::Error) => {
                faults.answer(entry.number, "failed");
                Err(VmError::Failed { what: told, said: "the simulated Tart fails".to_owned() })
            }
            fault => {
                if fault == Some(Fault::Slow) {
                    tokio::time::sleep(SLOW).await;
                }
                let done = call.await;
                let answer = if done.is_ok() { "ok" } else { "failed" };
                faults.answer(entry.number, answer);
                match fault {
                    Some(Fault::CrashAfter) => {
                        faults.ring(&mut faults.state(), &self.process);
                        std::future::pending().await
                    }
                    Some(Fault::LostAnswer) => {
                        tokio::time::sleep(SERVER_TIMEOUT).await;
                        Err(unknown(told))
                    }
                    _ => done,
                }
            }
        }
    }
}

impl Vm for GatedTart {
    async fn list(&self) -> Result<BTreeMap<VmName, VmState>, VmError> {
        self.call(Class::Read, || "list".to_owned(), self.tart.list()).await
    }

    async fn create(&self, vm: &VmName, template: &Template) -> Result<(), VmError> {
        let what = || format!("create {vm}");
        self.call(Class::Effect, what, self.tart.create(vm, template)).await
    }

    async fn start(&self, vm: &VmName, share: Share) -> Result<(), VmError> {
        let what = || format!("start {vm}");
        self.call(Class::Effect, what, self.tart.start(vm, share)).await
    }

    async fn address(&self, vm: &VmName) -> Result<Option<IpAddr>, VmError> {
        let what = || format!("address of {vm}");
        self.call(Class::Read, what, self.tart.address(vm)).await
    }

    async fn remove(&self, vm: &VmName) -> Result<(), VmError> {
        let what = || format!("remove {vm}");
        self.call(Class::Effect, what, self.tart.remove(vm)).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use applecart_api::clock::Clock;
    use jiff::Timestamp;

    use super::*;
    use crate::faults::{Ahead, Plan};

    /// An agent dies of `fault` when it makes a VM: what it leaves, and whether anybody could tell.
    async fn dies(fault: Fault) -> (VmState, String) {
        let choose = move |ahead: &Ahead| (ahead.number == 0).then_some(fault);
        let faults = Faults::new(Plan::Chosen(Box::new(choose)));
        let tart = SimTart::new(Clock::new(|| Timestamp::UNIX_EPOCH));
        let agent = Process::Agent("a".into());
        let gated = GatedTart::new(tart.clone(), agent.clone(), Some(faults.clone()));
        let template = Template {
            container: "runner".into(),
            image: "image".into(),
            cpu: None,
            memory_mib: None,
            env: Vec::new(),
            token_of: None,
        };
        let vm = VmName::new("a");
        // As a world runs an agent: whatever it does ends when it crashes.
        let dies = async {
            tokio::select! {
                biased;
                () = faults.crashed(&agent) => {}
                _ = gated.create(&vm, &template) => panic!("it heard of it"),
            }
        };
        let in_the_meantime = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            if fault == Fault::CrashAfter {
                gated.list().await.expect("it lives until then");
            }
        };
        tokio::join!(dies, in_the_meantime);
        (tart.vms()[&vm].state.clone(), faults.look(|steps| steps[0].answer.clone()))
    }

    #[tokio::test(start_paused = true)]
    async fn who_dies_after_a_creation_leaves_a_vm_that_is_whole() {
        assert_eq!(dies(Fault::CrashAfter).await, (VmState::Created, "ok".to_owned()));
    }

    #[tokio::test(start_paused = true)]
    async fn who_dies_during_a_creation_leaves_a_part_of_a_vm() {
        assert_eq!(dies(Fault::CrashDuring).await, (VmState::Partial, String::new()));
    }
}
