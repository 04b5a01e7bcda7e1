//! Bugs of whoever keeps VMs.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::keys::label;
use applecart_core::pod::{PodId, Template, VmName};
use applecart_sim::world::World;
use serde_json::Value;
use tart_kubelet::{Share, Vm};

/// Makes a VM of no Pod on a Mac that has an agent, and starts it if `running`.
pub async fn start(world: &World, running: bool) -> bool {
    let used = world.sight().tarts().find(|(id, _)| world.is_bootstrapped(id));
    let Some((_, tart)) = used else { return false };
    let vm = VmName::new("stray");
    let made = tart.create(&vm, &template("ghcr.example/macos@sha256:6a05")).await.is_ok();
    made && (!running || tart.start(&vm, Share::default()).await.is_ok())
}

/// Puts another VM in the place of one that runs: its name and its image are the same.
pub async fn replace(world: &World) -> bool {
    let mut tarts = world.sight().tarts().map(|(_, tart)| (tart.running().pop(), tart));
    let Some((Some(vm), tart)) = tarts.find(|(vm, _)| vm.is_some()) else { return false };
    let image = tart.vms().remove(&vm).map(|vm| vm.image).unwrap_or_default();
    let made = tart.remove(&vm).await.is_ok() && tart.create(&vm, &template(&image)).await.is_ok();
    made && tart.start(&vm, Share::default()).await.is_ok()
}

/// Ends the VM of a runner that has a job.
pub async fn kill_busy(world: &World) -> bool {
    let pods = world.sight().objects("pods");
    let is_busy = |pod: &&Arc<Value>| {
        let owner = &pod["metadata"]["labels"][label::RUNNER_POOL_OWNER];
        owner.is_string() && pod["status"]["phase"] == "Running"
    };
    let Some(pod) = pods.iter().find(is_busy) else { return false };
    let text = |of: &str| pod["metadata"][of].as_str().unwrap_or_default().to_owned();
    let id = PodId { namespace: text("namespace"), name: text("name"), uid: text("uid") };
    let vm = VmName::of(&id);
    let Some((_, tart)) = world.sight().tarts().find(|(_, tart)| tart.running().contains(&vm))
    else {
        return false;
    };
    // The oracle must have seen it run.
    tokio::time::sleep(Duration::from_secs(20)).await;
    tart.remove(&vm).await.is_ok()
}

fn template(image: &str) -> Template {
    Template {
        container: "stray".into(),
        image: image.to_owned(),
        cpu: None,
        memory_mib: None,
        env: vec![],
        token_of: None,
    }
}
