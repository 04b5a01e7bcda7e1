//! What Scaleway does to a host, happens to the Mac behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_scaleway::ServerStatus;
use secrecy::ExposeSecret;

use super::{Host, World};
use crate::scaleway::HostView;

/// How long after an order a Mac feels it, in a real fleet.
const DELAY: Duration = Duration::from_secs(5);

/// What a Mac has been through.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Past {
    wipes: u64,
    power_cycles: u64,
    off: bool,
}

/// Runs until dropped.
pub async fn run(world: &World) {
    let mut pasts: BTreeMap<ServerId, Past> = BTreeMap::new();
    loop {
        for view in world.scaleway().hosts() {
            let past = pasts.entry(view.id.clone()).or_default();
            if let Some(host) = world.sight.hosts().get(&view.id) {
                follow(world, host, &view, past);
            } else if view.status == ServerStatus::Starting {
                deliver(world, &view);
            }
        }
        tokio::time::sleep(world.settings.scale(DELAY)).await;
    }
}

/// Somebody bought it: there is a Mac behind it by the time that it is called ready.
fn deliver(world: &World, view: &HostView) {
    let host = world.settings.mac(world.scaleway(), &world.network, &view.id);
    world.sight.deliver(view.id.clone(), host);
    world.delivered.notify_one();
}

fn follow(world: &World, host: &Host, view: &HostView, past: &mut Past) {
    let down = matches!(view.status, ServerStatus::Reinstalling | ServerStatus::Rebooting);
    let cycled = view.power_cycles != past.power_cycles;
    if (down || cycled) && !past.off {
        host.mac.power_off();
        past.off = true;
    }
    // The disk goes first: once Scaleway calls the host ready, nothing is left on it.
    if view.status == ServerStatus::Reinstalling {
        host.mac.erase();
    }
    if past.off && !down {
        if view.generation == past.wipes {
            host.mac.power_on();
        } else {
            let secrets = world.scaleway().mac_secrets(&view.id);
            let password = secrets.map(|secrets| secrets.password.expose_secret().to_owned());
            host.tart.wipe();
            host.mac.wipe(&password.unwrap_or_default());
            host.mac.set_latency(world.settings.mac_latency());
        }
        *past = Past { wipes: view.generation, power_cycles: view.power_cycles, off: false };
    }
}
