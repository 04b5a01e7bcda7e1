//! Reads all that a decision about a Pod depends on. Reads only.

use std::collections::BTreeMap;

use applecart_core::pod::{
    Address, Observed, PodId, PodObject, PodSeen, Published, VmName, VmState, Vms,
};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;

use crate::agent::Agent;
use crate::api::{Answer, call, chain};
use crate::vm::Vm;

/// Reads the Pod, the host's VMs, and the guest's address where something depends on it. `vm` is
/// brought up to date as long as the Pod can be read, and kept when it cannot.
pub(super) async fn observe<V: Vm>(agent: &Agent<V>, id: &PodId, vm: &mut VmName) -> Observed {
    let pod = observe_pod(agent, id).await;
    if let PodObject::Live(pod) = &pod {
        *vm = pod.vm();
    }
    let vms = match agent.vm.list().await {
        Ok(all) => Vms::Known(all),
        Err(error) => Vms::Unknown(chain(&error)),
    };
    let mut seen = Observed {
        pod,
        vm: vm.clone(),
        vms,
        address: Address::NotAsked,
        slots_taken: Vec::new(),
        node_ip: agent.node_ip(),
        failures: BTreeMap::new(),
    };
    if boots(&seen) {
        seen.address = match agent.vm.address(vm).await {
            Ok(Some(address)) => Address::Known(address),
            Ok(None) => Address::NotYet,
            Err(error) => Address::Unknown(chain(&error)),
        };
    }
    seen
}

async fn observe_pod<V>(agent: &Agent<V>, id: &PodId) -> PodObject {
    let pods = Api::<Pod>::namespaced(agent.client.clone(), &id.namespace);
    match call(pods.get(&id.name)).await {
        Answer::Yes(pod) => match PodSeen::read(&pod) {
            Some(seen) if seen.id == *id => PodObject::Live(Box::new(seen)),
            // Another Pod has the name now.
            Some(_) => PodObject::Gone,
            None => PodObject::Unknown("the API server sent a Pod without uid or spec".to_owned()),
        },
        Answer::NotFound => PodObject::Gone,
        Answer::Conflict => PodObject::Unknown("conflict on a read".to_owned()),
        Answer::No(message) | Answer::Silence(message) => PodObject::Unknown(message),
    }
}

/// Whether the Pod's VM runs and its address was not published yet.
fn boots(seen: &Observed) -> bool {
    let PodObject::Live(pod) = &seen.pod else { return false };
    let waits = match pod.published() {
        Published::NotStarted | Published::Booting { .. } => true,
        Published::Running | Published::Ended => false,
    };
    waits && !pod.deleting && seen.vm_state() == Some(Some(&VmState::Running))
}
