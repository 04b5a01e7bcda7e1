//! The loop of the stand-in for Cluster API's manager.

use std::time::Duration;

use applecart_api::clock::Clock;
use kube::Client;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use super::action::Action;
use super::kind::Kind;
use super::pace::Pace;
use super::world::World;
use super::{cluster, deployment, machine, set};

/// Kubernetes' own alphabet for the ends of generated names: no vowels, no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX_LENGTH: usize = 5;

/// What is watched.
const WATCHED: [Kind; 8] = [
    Kind::Cluster,
    Kind::Deployment,
    Kind::Set,
    Kind::Machine,
    Kind::InfrastructureCluster,
    Kind::InfrastructureTemplate,
    Kind::InfrastructureMachine,
    Kind::Node,
];

/// Cluster API's own manager: Cluster, `MachineDeployment`, `MachineSet`, Machine. It looks at an
/// object at most once a `period`, as the real one does once a second; `seed` picks the ends of
/// names.
pub async fn core(client: Client, clock: Clock, period: Duration, seed: u64) -> ! {
    let mut names = Names(SmallRng::seed_from_u64(seed));
    let mut pace = Pace::new(period, WATCHED.map(|kind| kind.everywhere(&client)));
    loop {
        let wake = turn(&client, &clock, period, &mut names).await.unwrap_or_else(|error| {
            tracing::debug!(%error, "could not look at the cluster; looking again");
            Some(period)
        });
        pace.next(wake).await;
    }
}

/// Invents the ends of names.
pub(super) struct Names(SmallRng);

impl Names {
    /// A name that begins with `base`, cut so that the whole is a label's value.
    pub fn invent(&mut self, base: &str) -> String {
        let base = base.get(..57).unwrap_or(base);
        let suffix: String = (0..SUFFIX_LENGTH)
            .map(|_| char::from(ALPHABET[self.0.random_range(0..ALPHABET.len())]))
            .collect();
        format!("{base}-{suffix}")
    }
}

async fn turn(
    client: &Client,
    clock: &Clock,
    period: Duration,
    names: &mut Names,
) -> kube::Result<Option<Duration>> {
    let world = World::observe(client, clock.now()).await?;
    for action in decide(&world, names) {
        // Somebody was faster, or the server was busy: the next turn sees what is left to do.
        if let Err(error) = action.clone().perform(client).await {
            tracing::debug!(%error, ?action, "could not be done; looking again");
        }
    }
    Ok(world.machines.values().filter_map(|each| machine::wake(each, world.now, period)).min())
}

fn decide(world: &World, names: &mut Names) -> Vec<Action> {
    let mut actions = Vec::new();
    for each in world.clusters.values() {
        actions.extend(cluster::decide(world, each));
    }
    for each in world.deployments.values() {
        actions.extend(deployment::decide(world, each));
    }
    for each in world.sets.values() {
        actions.extend(set::decide(world, each, names));
    }
    for each in world.machines.values() {
        actions.extend(machine::decide(world, each));
    }
    actions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_a_label_and_are_the_same_for_the_same_seed() {
        let name = |seed, base: &str| Names(SmallRng::seed_from_u64(seed)).invent(base);
        assert_eq!(name(1, "fleet"), name(1, "fleet"));
        assert_ne!(name(1, "fleet"), name(2, "fleet"));
        assert_eq!(name(1, &"x".repeat(80)).len(), 63);
    }
}
