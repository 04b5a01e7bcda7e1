//! Whether Tart answers: asked beside the heartbeat, never inside it, so that a hung Tart makes the
//! Node unready instead of silent.

use std::convert::Infallible;

use applecart_core::node::Health;

use crate::agent::Agent;
use crate::api::chain;
use crate::vm::Vm;

pub(crate) async fn run<V: Vm>(agent: &Agent<V>) -> Infallible {
    loop {
        let answer = agent.vm.list().await;
        let now = agent.clock.now();
        {
            let mut health = agent.health.lock().expect("no panic while the health is held");
            *health = match (answer, &*health) {
                (Ok(_), _) => Health::Good,
                (Err(error), Health::Good) => {
                    Health::TartSilent { since: now, message: chain(&error) }
                }
                (Err(error), Health::TartSilent { since, .. }) => {
                    Health::TartSilent { since: *since, message: chain(&error) }
                }
            };
        }
        tokio::time::sleep(agent.config.timing.lease).await;
    }
}
