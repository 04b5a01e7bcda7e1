//! What the stand-in for Cluster API's manager saw this turn. Reads only.

use std::collections::BTreeMap;

use applecart_api::keys::annotation;
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Client, ResourceExt};

use super::kind::{Fields, Key, Kind};

/// Everything that one turn may depend on.
pub(super) struct World {
    pub now: Timestamp,
    pub clusters: BTreeMap<Key, DynamicObject>,
    pub deployments: BTreeMap<Key, DynamicObject>,
    pub sets: BTreeMap<Key, DynamicObject>,
    pub machines: BTreeMap<Key, DynamicObject>,
    pub infrastructure_clusters: BTreeMap<Key, DynamicObject>,
    pub templates: BTreeMap<Key, DynamicObject>,
    pub infrastructure: BTreeMap<Key, DynamicObject>,
    pub nodes: BTreeMap<String, DynamicObject>,
    /// Only while a Node is being drained; nothing else depends on Pods.
    pub pods: Vec<DynamicObject>,
    nodes_by_provider_id: BTreeMap<String, Vec<String>>,
    machines_by_controller: BTreeMap<String, Vec<Key>>,
}

impl World {
    /// Looks at everything.
    pub async fn observe(client: &Client, now: Timestamp) -> kube::Result<Self> {
        let mut world = Self {
            now,
            clusters: list(client, Kind::Cluster).await?,
            deployments: list(client, Kind::Deployment).await?,
            sets: list(client, Kind::Set).await?,
            machines: list(client, Kind::Machine).await?,
            infrastructure_clusters: list(client, Kind::InfrastructureCluster).await?,
            templates: list(client, Kind::InfrastructureTemplate).await?,
            infrastructure: list(client, Kind::InfrastructureMachine).await?,
            nodes: BTreeMap::new(),
            pods: Vec::new(),
            nodes_by_provider_id: BTreeMap::new(),
            machines_by_controller: BTreeMap::new(),
        };
        for ((_, name), node) in list(client, Kind::Node).await? {
            if let Some(id) = node.text("/spec/providerID") {
                world.nodes_by_provider_id.entry(id.into()).or_default().push(name.clone());
            }
            world.nodes.insert(name, node);
        }
        for (key, machine) in &world.machines {
            if let Some(owner) = machine.controller() {
                let of_owner = world.machines_by_controller.entry(owner.uid.clone()).or_default();
                of_owner.push(key.clone());
            }
        }
        let drains = |machine: &DynamicObject| machine.is_deleting() && world.keeps_nodes(machine);
        if world.machines.values().any(drains) {
            world.pods = list(client, Kind::Pod).await?.into_values().collect();
        }
        Ok(world)
    }

    /// The Machines that `set` decides about, the deleted ones too.
    pub fn machines_of(&self, set: &DynamicObject) -> Vec<&DynamicObject> {
        let keys = self.machines_by_controller.get(&set.uid().unwrap_or_default());
        keys.into_iter().flatten().filter_map(|key| self.machines.get(key)).collect()
    }

    /// The `MachineSet`s that `deployment` decides about.
    pub fn sets_of(&self, deployment: &DynamicObject) -> Vec<&DynamicObject> {
        let uid = deployment.uid();
        let of = |set: &&DynamicObject| set.controller().map(|owner| &owner.uid) == uid.as_ref();
        self.sets.values().filter(of).collect()
    }

    /// The Cluster that `object` names.
    pub fn cluster_of(&self, object: &DynamicObject) -> Option<&DynamicObject> {
        let name = object.text("/spec/clusterName")?;
        self.clusters.get(&(object.namespace()?, name.to_owned()))
    }

    /// The infrastructure object that `machine` names.
    pub fn infrastructure_of(&self, machine: &DynamicObject) -> Option<&DynamicObject> {
        let name = machine.text("/spec/infrastructureRef/name")?;
        self.infrastructure.get(&(machine.namespace()?, name.to_owned()))
    }

    /// The infrastructure template that `owner`, a deployment or a set, names.
    pub fn template_of(&self, owner: &DynamicObject) -> Option<&DynamicObject> {
        let name = owner.text("/spec/template/spec/infrastructureRef/name")?;
        self.templates.get(&(owner.namespace()?, name.to_owned()))
    }

    /// The Node that `machine` was bound to.
    pub fn node_of(&self, machine: &DynamicObject) -> Option<&DynamicObject> {
        self.nodes.get(machine.text("/status/nodeRef/name")?)
    }

    /// The one Node with this provider ID; nothing if there are two.
    pub fn node_with(&self, provider_id: &str) -> Option<&str> {
        match self.nodes_by_provider_id.get(provider_id)?.as_slice() {
            [name] => Some(name),
            _ => None,
        }
    }

    /// Whether `object` is to be left alone.
    pub fn is_paused(&self, object: &DynamicObject) -> bool {
        object.annotations().contains_key(annotation::PAUSED)
            || self.cluster_of(object).is_some_and(|cluster| cluster.flag("/spec/paused"))
    }

    /// Whether Cluster API drains and deletes the Node of `machine`: not in a Cluster without a
    /// control-plane object (LH24), and not while the Cluster goes as a whole.
    pub fn keeps_nodes(&self, machine: &DynamicObject) -> bool {
        let cluster = self.cluster_of(machine);
        machine.text("/status/nodeRef/name").is_some()
            && cluster.is_some_and(|cluster| {
                cluster.value("/spec/controlPlaneRef").is_object() && !cluster.is_deleting()
            })
    }
}

async fn list(client: &Client, kind: Kind) -> kube::Result<BTreeMap<Key, DynamicObject>> {
    let objects = kind.everywhere(client).list(&ListParams::default()).await?;
    Ok(objects.items.into_iter().map(|object| (object.key(), object)).collect())
}
