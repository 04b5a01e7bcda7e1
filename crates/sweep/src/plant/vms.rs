//! Bugs of whoever keeps VMs.

use applecart_core::pod::{Template, VmName};
use applecart_sim::world::World;
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
