//! All choices about a `MachineDeployment`. No I/O.

use std::collections::BTreeMap;

use applecart_api::condition::Condition;
use applecart_api::keys::label;
use kube::ResourceExt;
use kube::api::DynamicObject;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::action::Action;
use super::cluster;
use super::kind::{Fields, Kind};
use super::machine::conditions;
use super::set::{self, Counts, selector};
use super::world::World;

const FINALIZER: &str = "cluster.x-k8s.io/machinedeployment";
const HASH_LABEL: &str = "machine-template-hash";
const ON_DELETE: &str = "OnDelete";

/// What is to be done about `deployment` now.
pub(super) fn decide(world: &World, deployment: &DynamicObject) -> Vec<Action> {
    if world.is_paused(deployment) || deployment.flag("/spec/paused") {
        return Vec::new();
    }
    let sets = world.sets_of(deployment);
    if deployment.is_deleting() {
        if sets.is_empty() {
            let gone = Action::drop_finalizer(Kind::Deployment, deployment, FINALIZER);
            return gone.into_iter().collect();
        }
        return sets.into_iter().filter_map(|set| Action::delete(Kind::Set, set)).collect();
    }
    if let Some(action) = Action::add_finalizer(Kind::Deployment, deployment, FINALIZER) {
        return vec![action];
    }
    let Some(desired) = deployment.wanted() else { return Vec::new() };
    let fleet = Fleet::new(world, deployment, sets, desired);
    let cluster = world.cluster_of(deployment);
    let template = cluster.zip(world.template_of(deployment)).and_then(|(cluster, template)| {
        cluster::own(cluster, Kind::InfrastructureTemplate, template)
    });
    let status = Action::status(Kind::Deployment, deployment, &fleet.status());
    fleet.sets().into_iter().chain(template).chain(status).collect()
}

/// A deployment with its sets, told apart by their template.
struct Fleet<'w> {
    world: &'w World,
    deployment: &'w DynamicObject,
    desired: i64,
    hash: String,
    current: Option<&'w DynamicObject>,
    older: Vec<&'w DynamicObject>,
}

impl<'w> Fleet<'w> {
    fn new(
        world: &'w World,
        deployment: &'w DynamicObject,
        sets: Vec<&'w DynamicObject>,
        desired: i64,
    ) -> Self {
        let hash = template_hash(deployment);
        let is_current = |set: &&DynamicObject| set.labels().get(HASH_LABEL) == Some(&hash);
        let (current, older): (Vec<_>, Vec<_>) = sets.into_iter().partition(is_current);
        Self { world, deployment, desired, current: current.first().copied(), older, hash }
    }

    /// Creates, scales and removes sets, and keeps the current one's template up to date.
    fn sets(&self) -> Vec<Action> {
        let mut actions = Vec::new();
        let (current_replicas, older_replicas) = self.targets();
        match self.current {
            None => actions
                .push(Action::Create { kind: Kind::Set, object: self.new_set(current_replicas) }),
            Some(set) => {
                let spec = json!({
                    "replicas": current_replicas,
                    "template": self.set_template(),
                    "deletion": self.deployment.value("/spec/deletion"),
                });
                actions.extend(Action::patch(Kind::Set, set, json!({ "spec": spec })));
            }
        }
        for (set, replicas) in self.older.iter().zip(older_replicas) {
            if replicas == 0 && self.world.machines_of(set).is_empty() {
                actions.extend(Action::delete(Kind::Set, set));
            } else {
                let patch = json!({ "spec": { "replicas": replicas } });
                actions.extend(Action::patch(Kind::Set, set, patch));
            }
        }
        actions
    }

    /// How many Machines the current set and each older one shall have.
    fn targets(&self) -> (i64, Vec<i64>) {
        let replicas = |set: &DynamicObject| set.integer("/spec/replicas").unwrap_or(0);
        let machines = |set: &DynamicObject| count(self.world.machines_of(set).len());
        let older: Vec<i64> = self.older.iter().map(|set| replicas(set)).collect();
        let older_machines: i64 =
            self.older.iter().map(|set| replicas(set).max(machines(set))).sum();
        let current = self.current.map_or(0, replicas);
        let desired = self.desired;
        if self.deployment.text("/spec/rollout/strategy/type") == Some(ON_DELETE) {
            // A Machine that somebody deletes is not made again from its old template.
            let living = |set: &DynamicObject| {
                count(self.world.machines_of(set).iter().filter(|m| !m.is_deleting()).count())
            };
            let kept: Vec<i64> =
                self.older.iter().map(|set| replicas(set).min(living(set))).collect();
            let surplus = (kept.iter().sum::<i64>() - desired).max(0);
            return ((desired - older_machines).max(0), shrink(kept, surplus));
        }
        let room = (desired + self.limit("maxSurge", 1) - older_machines - current).max(0);
        let target = desired.min(current + room);
        let available = self
            .current
            .map_or(0, |set| Counts::of(self.world.machines_of(set).into_iter()).available);
        let least = desired - self.limit("maxUnavailable", 0);
        let spare = older.iter().sum::<i64>() + available.min(target) - least;
        (target, shrink(older, spare.max(0)))
    }

    /// A limit of the rolling update, a number or a share of the desired Machines.
    fn limit(&self, name: &str, default: i64) -> i64 {
        let pointer = format!("/spec/rollout/strategy/rollingUpdate/{name}");
        let value = self.deployment.value(&pointer);
        let share = value.as_str().and_then(|text| text.strip_suffix('%')?.parse::<i64>().ok());
        match share {
            // Surge is rounded up, what may be missing is rounded down.
            Some(share) if name == "maxSurge" => (self.desired * share + 99) / 100,
            Some(share) => self.desired * share / 100,
            None => value.as_i64().unwrap_or(default),
        }
    }

    fn set_template(&self) -> Value {
        let mut labels = self.deployment.texts("/spec/template/metadata/labels");
        labels.extend(self.own_labels());
        let annotations = self.deployment.texts("/spec/template/metadata/annotations");
        json!({
            "metadata": { "labels": labels, "annotations": annotations },
            "spec": self.deployment.value("/spec/template/spec"),
        })
    }

    fn own_labels(&self) -> BTreeMap<String, String> {
        let cluster = self.deployment.text("/spec/clusterName").unwrap_or_default();
        BTreeMap::from([
            (label::CLUSTER_NAME.to_owned(), cluster.to_owned()),
            (set::DEPLOYMENT_LABEL.to_owned(), self.deployment.name_any()),
            (HASH_LABEL.to_owned(), self.hash.clone()),
        ])
    }

    fn new_set(&self, replicas: i64) -> Value {
        let resource = Kind::Set.resource();
        let labels = self.own_labels();
        json!({
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {
                "name": format!("{}-{}", self.deployment.name_any(), self.hash),
                "namespace": self.deployment.namespace(),
                "labels": labels,
                "ownerReferences": [self.deployment.as_owner(Kind::Deployment, true)],
                "finalizers": [set::FINALIZER],
            },
            "spec": {
                "clusterName": self.deployment.value("/spec/clusterName"),
                "replicas": replicas,
                "selector": { "matchLabels": labels },
                "template": self.set_template(),
            },
        })
    }

    fn status(&self) -> Value {
        let sets = self.current.iter().chain(&self.older);
        let machines: Vec<_> = sets.flat_map(|set| self.world.machines_of(set)).collect();
        let counts = Counts::of(machines.into_iter());
        let desired = self.desired;
        let phase = match counts.replicas {
            replicas if replicas < desired => "ScalingUp",
            replicas if replicas > desired => "ScalingDown",
            _ => "Running",
        };
        let least = desired - self.limit("maxUnavailable", 0);
        let available = if counts.available >= least {
            conditions::says("Available", "True", "Available", "")
        } else {
            let message =
                format!("{} available replicas, at least {least} required", counts.available);
            conditions::says("Available", "False", "NotAvailable", &message)
        };
        let conditions: Vec<Condition> =
            conditions::dated(self.deployment, vec![available], self.world.now);
        let mut status = counts.to_json();
        status["phase"] = phase.into();
        status["selector"] = selector(self.deployment).into();
        status["conditions"] = json!(conditions);
        status["observedGeneration"] = json!(self.deployment.metadata.generation);
        status
    }
}

/// Takes `surplus` from `replicas`, the first ones first.
fn shrink(mut replicas: Vec<i64>, mut surplus: i64) -> Vec<i64> {
    for each in &mut replicas {
        let taken = surplus.min(*each);
        *each -= taken;
        surplus -= taken;
    }
    replicas
}

fn count(number: usize) -> i64 {
    i64::try_from(number).expect("fewer objects than an i64 counts")
}

/// Whether `machine` was made from the template that its deployment has now; true without one.
pub(super) fn is_current(world: &World, machine: &DynamicObject) -> bool {
    let named = |label: &str| machine.labels().get(label).cloned();
    let deployment = machine.namespace().zip(named(set::DEPLOYMENT_LABEL));
    let deployment = deployment.and_then(|key| world.deployments.get(&key));
    deployment.is_none_or(|owner| named(HASH_LABEL) == Some(template_hash(owner)))
}

/// What makes a new set necessary; everything else is changed in place.
fn template_hash(deployment: &DynamicObject) -> String {
    let mut hash = Sha256::new();
    for field in [
        "version",
        "failureDomain",
        "bootstrap/dataSecretName",
        "infrastructureRef/kind",
        "infrastructureRef/name",
    ] {
        hash.update(deployment.text(&format!("/spec/template/spec/{field}")).unwrap_or_default());
        hash.update([0]);
    }
    let digest = hash.finalize();
    format!("{:02x}{:02x}{:02x}", digest[0], digest[1], digest[2])
}
