//! What stories are made of: what people do, and levels to wait for.

use std::sync::Arc;
use std::time::Duration;

use applecart_api::ids::ServerId;
use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_api::runner_pool::RunnerPool;
use applecart_sim::scaleway::HostView;
use applecart_sim::world::{FLEET, NAMESPACE, POOL, World};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams,
};
use kube::{Api, ResourceExt};
use serde::Deserialize;
use serde_json::{Value, json};

/// How long a world may take to get anywhere at all, in its own time: three wipes' worth. How much
/// later than without faults it may be, is an oracle's affair.
const PATIENCE: Duration = Duration::from_hours(2);
/// How often a world is looked at, in its own time.
const LOOK: Duration = Duration::from_secs(1);

/// The objects that own hosts.
pub const MACHINES: &str = "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io";

/// Leases, of hosts among them.
pub const LEASES: &str = "leases.coordination.k8s.io";

/// What people change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Cluster API's.
    Cluster,
    /// Cluster API's.
    Machine,
    /// Cluster API's.
    MachineDeployment,
    /// Ours.
    Mac,
    /// Ours.
    Template,
}

impl Kind {
    fn api(self, world: &World) -> Api<DynamicObject> {
        Api::namespaced_with(world.client(), NAMESPACE, &self.resource())
    }

    fn resource(self) -> ApiResource {
        let (group, version, kind) = match self {
            Self::Cluster => ("cluster.x-k8s.io", "v1beta2", "Cluster"),
            Self::Machine => ("cluster.x-k8s.io", "v1beta2", "Machine"),
            Self::MachineDeployment => ("cluster.x-k8s.io", "v1beta2", "MachineDeployment"),
            Self::Mac => {
                ("infrastructure.cluster.x-k8s.io", "v1alpha1", "ScalewayAppleSiliconMachine")
            }
            Self::Template => (
                "infrastructure.cluster.x-k8s.io",
                "v1alpha1",
                "ScalewayAppleSiliconMachineTemplate",
            ),
        };
        ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, kind))
    }

    /// Makes an object in some namespace.
    pub async fn create_in(
        self,
        world: &World,
        namespace: &str,
        name: &str,
        spec: Value,
    ) -> Result<(), String> {
        let resource = self.resource();
        let api = Api::namespaced_with(world.client(), namespace, &resource);
        let object = DynamicObject::new(name, &resource).data(json!({"spec": spec}));
        let created = api.create(&PostParams::default(), &object).await;
        created.map(drop).map_err(|error| error.to_string())
    }

    /// Changes one object.
    pub async fn patch(self, world: &World, name: &str, change: Value) -> Result<(), String> {
        let (how, patch) = (PatchParams::default(), Patch::Merge(&change));
        let patched = self.api(world).patch(name, &how, &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    }

    /// Changes the status of one object.
    pub async fn patch_status(
        self,
        world: &World,
        name: &str,
        change: Value,
    ) -> Result<(), String> {
        let (how, patch) = (PatchParams::default(), Patch::Merge(&change));
        let patched = self.api(world).patch_status(name, &how, &patch).await;
        patched.map(drop).map_err(|error| error.to_string())
    }

    /// Deletes one object, and does not wait for whom it waits for.
    pub async fn delete(self, world: &World, name: &str) -> Result<(), String> {
        self.delete_in(world, NAMESPACE, name).await
    }

    /// Deletes one object of some namespace, and does not wait for whom it waits for.
    pub async fn delete_in(self, world: &World, namespace: &str, name: &str) -> Result<(), String> {
        let api: Api<DynamicObject> =
            Api::namespaced_with(world.client(), namespace, &self.resource());
        let deleted = api.delete(name, &DeleteParams::default()).await;
        deleted.map(drop).map_err(|error| error.to_string())
    }

    /// Makes a copy of one object under another name.
    pub async fn copy(self, world: &World, name: &str, copy: &str) -> Result<(), String> {
        let api = self.api(world);
        let object = api.get(name).await.map_err(|error| error.to_string())?;
        let fresh = DynamicObject { metadata: kube::api::ObjectMeta::default(), ..object };
        let mut fresh = fresh.within(NAMESPACE);
        fresh.metadata.name = Some(copy.to_owned());
        let created = api.create(&PostParams::default(), &fresh).await;
        created.map(drop).map_err(|error| error.to_string())
    }
}

/// Waits for a level, in the world's time.
pub async fn reach(what: &str, level: impl Fn() -> bool) -> Result<(), String> {
    let waited = tokio::time::timeout(PATIENCE, async {
        while !level() {
            tokio::time::sleep(LOOK).await;
        }
    });
    waited.await.map_err(|_| format!("liveness: {what} did not come about"))
}

/// Waits for so many Machines, all of them Ready.
pub async fn fleet(world: &World, size: usize) -> Result<(), String> {
    reach(&format!("{size} Machines Ready"), || are_ready(world, size)).await
}

/// Lets all Machines go, and waits until they are gone.
pub async fn empty_fleet(world: &World) -> Result<(), String> {
    scale(world, 0).await?;
    reach("an empty fleet", || number(world, MACHINES) == 0).await
}

/// Sets how many Machines there shall be.
pub async fn scale(world: &World, replicas: u32) -> Result<(), String> {
    let change = json!({"spec": {"replicas": replicas}});
    Kind::MachineDeployment.patch(world, FLEET, change).await
}

/// Sets how many runners there shall be.
pub async fn want_runners(world: &World, replicas: u32) -> Result<(), String> {
    let pools: Api<RunnerPool> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"spec": {"replicas": replicas}});
    let patched = pools.patch(POOL, &PatchParams::default(), &Patch::Merge(&change)).await;
    patched.map(drop).map_err(|error| error.to_string())
}

/// All objects that own hosts.
pub fn machines(world: &World) -> Vec<ScalewayAppleSiliconMachine> {
    let objects = world.sight().objects(MACHINES);
    let read = |object: &Arc<Value>| ScalewayAppleSiliconMachine::deserialize(&**object).ok();
    objects.iter().filter_map(read).collect()
}

/// The first object that owns a host, and its host.
pub fn first(world: &World) -> Result<(ScalewayAppleSiliconMachine, HostView), String> {
    let owner = machines(world).into_iter().find_map(|machine| {
        let id: ServerId = machine.status.as_ref()?.server_id.as_ref()?.parse().ok()?;
        let host = world.scaleway().host(&id)?;
        Some((machine, host))
    });
    owner.ok_or_else(|| "no Machine has a host".to_owned())
}

/// Adds annotations to an object that owns a host.
pub async fn annotate(
    world: &World,
    machine: &ScalewayAppleSiliconMachine,
    annotations: Value,
) -> Result<(), String> {
    let change = json!({"metadata": {"annotations": annotations}});
    Kind::Mac.patch(world, &machine.name_any(), change).await
}

/// Whether all objects of a kind are so. Stories look once a second, so at what is stored: reading
/// it into types would take longer than most of what they wait for.
pub fn all(world: &World, resource: &str, are: impl Fn(&Value) -> bool) -> bool {
    world.sight().objects(resource).iter().all(|object| are(object))
}

/// How many objects of a kind there are.
pub fn number(world: &World, resource: &str) -> usize {
    world.sight().objects(resource).len()
}

fn of_pool(object: &Value) -> bool {
    object["metadata"]["labels"][label::RUNNER_POOL] == POOL
}

fn are_ready(world: &World, size: usize) -> bool {
    number(world, MACHINES) == size && all(world, MACHINES, |m| m["status"]["ready"] == true)
}

/// Whether any Machine has a host.
pub fn has_host(world: &World) -> bool {
    !all(world, MACHINES, |machine| machine["status"]["serverID"].is_null())
}

/// Whether a condition of any Machine has this reason.
pub fn is_told(world: &World, reason: &str) -> bool {
    let tells = |condition: &Value| condition["reason"] == reason;
    let told = |machine: &Value| {
        machine["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(tells))
    };
    !all(world, MACHINES, |machine| !told(machine))
}

/// What each Machine says that it waits for.
pub fn said(world: &World) -> String {
    let of = |machine: &Arc<Value>| {
        let conditions = machine["status"]["conditions"].as_array();
        let ready = conditions.and_then(|all| all.iter().find(|one| one["type"] == "Ready"));
        let metadata = &machine["metadata"];
        let [reason, message] = ["reason", "message"].map(|field| ready.map(|it| &it[field]));
        let [reason, message] = [reason, message].map(|it| it.and_then(Value::as_str));
        let name = metadata["name"].as_str().unwrap_or_default();
        let (reason, message) = (reason.unwrap_or("nothing"), message.unwrap_or_default());
        format!("{name} says {reason}: {message}")
    };
    let all: Vec<String> = world.sight().objects(MACHINES).iter().map(of).collect();
    if all.is_empty() { "there is no Machine".to_owned() } else { all.join(", ") }
}

/// Runners that run and shall stay.
pub fn running(world: &World) -> Vec<Arc<Value>> {
    let runs = |pod: &Value| {
        of_pool(pod)
            && pod["status"]["phase"] == "Running"
            && pod["metadata"]["deletionTimestamp"].is_null()
    };
    let mut pods = world.sight().objects("pods");
    pods.retain(|pod| runs(pod));
    pods
}

/// Whether nothing is left of any runner.
pub fn no_runners(world: &World) -> bool {
    let nobodys = |object: &Value| !of_pool(object);
    all(world, "pods", nobodys) && all(world, "serviceaccounts", nobodys)
}

/// The CI server gives the one runner a job.
pub async fn claim_runner(world: &World) -> Result<Pod, String> {
    let runner = running(world).into_iter().next().ok_or("no runner")?;
    let name = runner["metadata"]["name"].as_str().unwrap_or_default();
    let pods: Api<Pod> = Api::namespaced(world.client(), NAMESPACE);
    let change = json!({"metadata": {"labels": {label::RUNNER_POOL_OWNER: "job-1"}}});
    let claimed = pods.patch(name, &PatchParams::default(), &Patch::Merge(&change)).await;
    claimed.map_err(|error| error.to_string())
}
