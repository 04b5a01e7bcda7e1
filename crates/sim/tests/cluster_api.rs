//! The stand-ins for Cluster API, the scheduler and the Node life cycle, run against the simulated
//! API server under a paused clock. The infrastructure provider is played by the tests.

use std::time::Duration;

use applecart_api::clock::Clock;
use applecart_api::machine::{
    ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineSpec,
    ScalewayAppleSiliconMachineTemplate,
};
use applecart_sim::cluster_api::{self, Manifests, NodePace};
use applecart_sim::kubernetes::{ApiServer, Identity, Registry};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    Api, ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams,
};
use kube::{Client, Resource, ResourceExt};
use serde_json::{Value, json};
use tokio::task::{AbortHandle, JoinSet};

const NAMESPACE: &str = "fleet";
const PERIOD: Duration = Duration::from_secs(1);
const GRACE: Duration = Duration::from_secs(40);
/// Virtual time within which everything here must settle.
const PATIENCE: Duration = Duration::from_mins(2);
const OUR_FINALIZER: &str = "scalewayapplesilicon.cluster.x-k8s.io/finalizer";

/// A cluster in which Cluster API runs, and a fleet of three is asked for.
struct Fleet {
    server: ApiServer,
    client: Client,
    clock: Clock,
    tasks: JoinSet<()>,
    provider: Option<AbortHandle>,
}

fn clock() -> Clock {
    let start = tokio::time::Instant::now();
    let epoch: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    Clock::new(move || epoch + start.elapsed())
}

fn manifests(replicas: u32) -> Manifests {
    Manifests {
        namespace: NAMESPACE.into(),
        cluster: "macs".into(),
        fleet: "builders".into(),
        replicas,
        version: None,
        machine: ScalewayAppleSiliconMachineSpec {
            adopt_pool_prefix: Some("pool-".into()),
            ..Default::default()
        },
    }
}

impl Fleet {
    async fn new(replicas: u32) -> Self {
        Self::defined_by(replicas, cluster_api::crds()).await
    }

    /// As [`Self::new`], with these definitions of Cluster API's kinds.
    async fn defined_by(replicas: u32, definitions: Vec<CustomResourceDefinition>) -> Self {
        let clock = clock();
        let definitions = [applecart_api::crds(), definitions].concat();
        let server = ApiServer::new(clock.clone(), 1, Registry::new(definitions).unwrap());
        let client = server.client(Identity::admin());
        manifests(replicas).create(&client).await.unwrap();
        let mut tasks = JoinSet::new();
        let (core, time) = (client.clone(), clock.clone());
        tasks.spawn(async move { cluster_api::core(core, time, PERIOD, 7).await });
        Self { server, client, clock, tasks, provider: None }
    }

    /// As [`Self::new`], with a provider that gives every Machine a Node at once.
    async fn with_provider(replicas: u32) -> Self {
        let mut fleet = Self::new(replicas).await;
        let client = fleet.client.clone();
        let provider = fleet.tasks.spawn(async move {
            loop {
                provide(&client).await;
                tokio::time::sleep(PERIOD).await;
            }
        });
        fleet.provider = Some(provider);
        fleet
    }

    fn kind(&self, kind: &str) -> Api<DynamicObject> {
        let resource =
            ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.x-k8s.io", "v1beta2", kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    fn infrastructure(&self) -> Api<ScalewayAppleSiliconMachine> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    async fn machines(&self) -> Vec<DynamicObject> {
        self.kind("Machine").list(&ListParams::default()).await.unwrap().items
    }

    async fn names(&self) -> Vec<String> {
        self.machines().await.iter().map(ResourceExt::name_any).collect()
    }

    async fn deployment(&self) -> DynamicObject {
        self.kind("MachineDeployment").get("builders").await.unwrap()
    }

    async fn scale(&self, replicas: u32) {
        let patch = json!({ "spec": { "replicas": replicas } });
        let api = self.kind("MachineDeployment");
        api.patch_scale("builders", &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn patch(&self, kind: &str, name: &str, patch: Value) {
        let api = self.kind(kind);
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    async fn delete_machine(&self, name: &str) {
        self.kind("Machine").delete(name, &DeleteParams::default()).await.unwrap();
    }

    /// Waits until the fleet has this many Machines, all of them available.
    async fn settles(&self, count: usize) {
        eventually(&format!("{count} available Machines"), async || {
            let deployment = self.deployment().await;
            let status = &deployment.data["status"];
            let is = |field: &str| status[field] == count;
            (is("replicas") && is("availableReplicas") && self.machines().await.len() == count)
                .then_some(())
        })
        .await;
    }
}

/// Waits for a level, in virtual time.
async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = tokio::time::Instant::now();
    while start.elapsed() < PATIENCE {
        if let Some(seen) = look().await {
            return seen;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("never seen: {what}");
}

fn condition(object: &DynamicObject, type_: &str) -> (String, String) {
    let list = object.data["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = list.into_iter().find(|condition| condition["type"] == type_).unwrap_or_default();
    let text = |field: &str| found[field].as_str().unwrap_or_default().to_owned();
    (text("status"), text("reason"))
}

fn provider_id(name: &str) -> String {
    format!("scw-applesilicon://fr-par-1/{name}")
}

fn node(name: &str) -> Node {
    let good = |type_: &str, status: &str| {
        let heartbeat = "2026-01-01T00:00:00Z";
        json!({ "type": type_, "status": status, "lastHeartbeatTime": heartbeat })
    };
    serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": { "providerID": provider_id(name) },
        "status": {
            "allocatable": { "cpu": "8", "memory": "16Gi", "pods": "2" },
            "conditions": [
                good("Ready", "True"), good("MemoryPressure", "False"),
                good("DiskPressure", "False"), good("PIDPressure", "False"),
            ],
        },
    }))
    .unwrap()
}

/// Plays the provider: a Machine's infrastructure becomes provisioned and its Node registers.
async fn provide(client: &Client) {
    let infrastructure: Api<ScalewayAppleSiliconMachine> = Api::all(client.clone());
    for object in infrastructure.list(&ListParams::default()).await.unwrap() {
        let is_adopted = object.owner_references().iter().any(|owner| owner.kind == "Machine");
        if is_adopted
            && object.spec.provider_id.is_none()
            && object.meta().deletion_timestamp.is_none()
        {
            provision(client, &object.name_any()).await;
        }
    }
}

async fn provision(client: &Client, name: &str) {
    let api: Api<ScalewayAppleSiliconMachine> = Api::namespaced(client.clone(), NAMESPACE);
    let params = PatchParams::default();
    let id = json!({ "spec": { "providerID": provider_id(name) } });
    api.patch(name, &params, &Patch::Merge(id)).await.unwrap();
    let status = json!({ "status": {
        "initialization": { "provisioned": true },
        "addresses": [{ "type": "ExternalIP", "address": "192.0.2.7" }],
        "conditions": [{ "type": "Ready", "status": "True", "reason": "Ready",
            "lastTransitionTime": "2026-01-01T00:00:05Z" }],
    }});
    api.patch_status(name, &params, &Patch::Merge(status)).await.unwrap();
    let nodes: Api<Node> = Api::all(client.clone());
    nodes.create(&PostParams::default(), &node(name)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_machine_is_cloned_from_the_template_and_takes_its_infrastructure_over() {
    let fleet = Fleet::new(1).await;
    let adopted = eventually("infrastructure owned by a Machine", async || {
        let found = fleet.infrastructure().list(&ListParams::default()).await.unwrap().items;
        found.into_iter().find(|o| o.owner_references().iter().any(|r| r.kind == "Machine"))
    })
    .await;
    let machines = fleet.machines().await;
    assert_eq!(machines.len(), 1);
    let machine = &machines[0];
    assert_eq!(adopted.name_any(), machine.name_any());
    let owners = adopted.owner_references();
    assert_eq!(owners.len(), 1, "the MachineSet is no owner any more: {owners:?}");
    assert_eq!(owners[0].controller, Some(true));
    assert_eq!(Some(&owners[0].uid), machine.metadata.uid.as_ref());
    let annotations = adopted.annotations();
    assert_eq!(annotations["cluster.x-k8s.io/cloned-from-name"], "builders");
    assert_eq!(
        annotations["cluster.x-k8s.io/cloned-from-groupkind"],
        "ScalewayAppleSiliconMachineTemplate.infrastructure.cluster.x-k8s.io"
    );
    assert_eq!(adopted.labels()["cluster.x-k8s.io/cluster-name"], "macs");
    assert_eq!(adopted.labels()["cluster.x-k8s.io/deployment-name"], "builders");
    assert_eq!(adopted.labels()["tuist.dev/fleet"], "builders");
    assert_eq!(adopted.spec.adopt_pool_prefix.as_deref(), Some("pool-"));
    assert_eq!(adopted.spec.fleet_name.as_deref(), Some("builders"));
    assert_eq!(adopted.finalizers(), Vec::<String>::new());
    assert_eq!(machine.finalizers(), ["machine.cluster.x-k8s.io"]);
    assert_eq!(machine.data["spec"]["infrastructureRef"]["kind"], "ScalewayAppleSiliconMachine");
    let templates: Api<ScalewayAppleSiliconMachineTemplate> =
        Api::namespaced(fleet.client.clone(), NAMESPACE);
    let template = templates.get("builders").await.unwrap();
    assert_eq!(template.owner_references()[0].kind, "Cluster");
    assert_eq!(template.owner_references()[0].controller, None);
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_through_its_phases_and_is_bound_to_its_node_for_good() {
    let fleet = Fleet::new(1).await;
    let name = eventually("a Machine", async || fleet.names().await.pop()).await;
    let machines = fleet.kind("Machine");
    let reaches = async |phase: &str| {
        eventually(phase, async || {
            let machine = machines.get(&name).await.unwrap();
            (machine.data["status"]["phase"] == phase).then_some(machine)
        })
        .await
    };
    let waiting = reaches("Provisioning").await;
    assert_eq!(condition(&waiting, "InfrastructureReady"), ("False".into(), "NotReady".into()));
    assert_eq!(condition(&waiting, "NodeHealthy").0, "Unknown");
    provision(&fleet.client, &name).await;
    let running = reaches("Running").await;
    fleet.settles(1).await;
    assert_eq!(running.data["spec"]["providerID"], provider_id(&name).as_str());
    assert_eq!(running.data["status"]["nodeRef"]["name"], name.as_str());
    assert_eq!(running.data["status"]["addresses"][0]["address"], "192.0.2.7");
    let ready = machines.get(&name).await.unwrap();
    for type_ in ["InfrastructureReady", "NodeHealthy", "NodeReady", "Ready", "Available"] {
        assert_eq!(condition(&ready, type_).0, "True", "{type_}");
    }
    let mirrored = ready.data["status"]["conditions"].as_array().unwrap().iter();
    let times: Vec<&Value> = mirrored
        .filter(|condition| condition["type"] == "InfrastructureReady")
        .map(|condition| &condition["lastTransitionTime"])
        .collect();
    assert_eq!(times, ["2026-01-01T00:00:05Z"], "the time is the infrastructure's own");
    let marked = fleet.nodes().get(&name).await.unwrap();
    assert_eq!(marked.annotations()["cluster.x-k8s.io/machine"], name);

    // A Node that goes is told, and not forgotten.
    fleet.nodes().delete(&name, &DeleteParams::default()).await.unwrap();
    let lost = eventually("the loss of the Node", async || {
        let machine = machines.get(&name).await.unwrap();
        (condition(&machine, "NodeHealthy").1 == "NodeDeleted").then_some(machine)
    })
    .await;
    assert_eq!(lost.data["status"]["nodeRef"]["name"], name.as_str());
    assert_eq!(condition(&lost, "Ready").0, "False");
}

#[tokio::test(start_paused = true)]
async fn two_nodes_with_one_provider_id_bind_no_machine() {
    let fleet = Fleet::new(1).await;
    let name = eventually("a Machine", async || fleet.names().await.pop()).await;
    let mut twin = node(&name);
    twin.metadata.name = Some("left-over".into());
    fleet.nodes().create(&PostParams::default(), &twin).await.unwrap();
    provision(&fleet.client, &name).await;
    tokio::time::sleep(PATIENCE).await;
    let machine = fleet.kind("Machine").get(&name).await.unwrap();
    assert_eq!(machine.data["status"]["phase"], "Provisioned");
    fleet.nodes().delete("left-over", &DeleteParams::default()).await.unwrap();
    fleet.settles(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_fleet_grows_shrinks_and_grows_again() {
    let fleet = Fleet::with_provider(0).await;
    fleet.settles(0).await;
    fleet.scale(3).await;
    fleet.settles(3).await;
    let three = fleet.names().await;
    fleet.scale(1).await;
    fleet.settles(1).await;
    // All are healthy, so the ones that go are the first by name.
    assert_eq!(fleet.names().await, three[2..]);
    let left = fleet.infrastructure().list(&ListParams::default()).await.unwrap().items.len();
    assert_eq!(left, 1, "infrastructure goes with its Machine");
    fleet.scale(3).await;
    fleet.settles(3).await;
    assert!(fleet.names().await.contains(&three[2]));
    let set = fleet.kind("MachineSet").list(&ListParams::default()).await.unwrap().items.remove(0);
    for field in ["replicas", "readyReplicas", "availableReplicas", "upToDateReplicas"] {
        assert_eq!(set.data["status"][field], 3, "{field}");
    }
    let scale = fleet.kind("MachineDeployment").get_scale("builders").await.unwrap();
    assert_eq!(scale.status.unwrap().replicas, 3);
}

#[tokio::test(start_paused = true)]
async fn the_most_expendable_machine_goes_first() {
    let fleet = Fleet::with_provider(3).await;
    fleet.settles(3).await;
    let names = fleet.names().await;
    let marked =
        json!({ "metadata": { "annotations": { "cluster.x-k8s.io/delete-machine": "" } } });
    fleet.patch("Machine", &names[2], marked).await;
    let sick = json!({ "status": { "conditions": [{ "type": "Ready", "status": "False" }] } });
    let params = PatchParams::default();
    fleet.nodes().patch_status(&names[1], &params, &Patch::Strategic(sick)).await.unwrap();
    eventually("a sick Machine", async || {
        let machine = fleet.kind("Machine").get(&names[1]).await.unwrap();
        (condition(&machine, "NodeHealthy").0 == "False").then_some(())
    })
    .await;
    fleet.scale(2).await;
    eventually("one Machine less", async || (fleet.names().await == names[..2]).then_some(()))
        .await;
    fleet.scale(1).await;
    eventually("the healthy one", async || (fleet.names().await == names[..1]).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_deleted_by_hand_is_replaced_once_it_is_gone() {
    let fleet = Fleet::with_provider(3).await;
    fleet.settles(3).await;
    let before = fleet.names().await;
    fleet.delete_machine(&before[1]).await;
    eventually("a successor", async || {
        let names = fleet.names().await;
        (names.len() == 3 && !names.contains(&before[1])).then_some(())
    })
    .await;
    fleet.settles(3).await;
    // Without a control-plane object Cluster API leaves the Node where it was (LH24).
    assert!(fleet.nodes().get_opt(&before[1]).await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_machine_waits_for_the_finalizer_of_its_infrastructure_however_long() {
    let fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    let name = fleet.names().await.remove(0);
    let hold = json!({ "metadata": { "finalizers": [OUR_FINALIZER] } });
    let params = PatchParams::default();
    fleet.infrastructure().patch(&name, &params, &Patch::Merge(hold)).await.unwrap();
    fleet.delete_machine(&name).await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fleet.names().await, [name.as_str()], "no successor before it is gone");
    let machine = fleet.kind("Machine").get(&name).await.unwrap();
    assert_eq!(machine.data["status"]["phase"], "Deleting");
    let deleting = ("True".into(), "WaitingForInfrastructureDeletion".into());
    assert_eq!(condition(&machine, "Deleting"), deleting);
    assert!(fleet.infrastructure().get(&name).await.unwrap().meta().deletion_timestamp.is_some());
    let release = json!({ "metadata": { "finalizers": null } });
    fleet.infrastructure().patch(&name, &params, &Patch::Merge(release)).await.unwrap();
    eventually("a successor", async || {
        let names = fleet.names().await;
        (names.len() == 1 && names[0] != name).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn with_a_control_plane_object_the_node_is_drained_first_and_deleted_last() {
    let fleet = Fleet::with_provider(1).await;
    let reference = json!({ "apiGroup": "x.dev", "kind": "ControlPlane", "name": "macs" });
    fleet.patch("Cluster", "macs", json!({ "spec": { "controlPlaneRef": reference } })).await;
    fleet.settles(1).await;
    let name = fleet.names().await.remove(0);
    let pods: Api<Pod> = Api::namespaced(fleet.client.clone(), NAMESPACE);
    let pod: Pod = serde_json::from_value(json!({
        "metadata": { "name": "job", "finalizers": ["test.dev/hold"] },
        "spec": { "nodeName": name, "containers": [{ "name": "c", "image": "i" }] },
    }))
    .unwrap();
    pods.create(&PostParams::default(), &pod).await.unwrap();
    fleet.delete_machine(&name).await;
    eventually("an evicted Pod", async || {
        pods.get("job").await.unwrap().meta().deletion_timestamp.is_some().then_some(())
    })
    .await;
    tokio::time::sleep(PATIENCE).await;
    let machine = fleet.kind("Machine").get(&name).await.unwrap();
    assert_eq!(condition(&machine, "Deleting"), ("True".into(), "DrainingNode".into()));
    assert_eq!(fleet.nodes().get(&name).await.unwrap().spec.unwrap().unschedulable, Some(true));
    let infrastructure = fleet.infrastructure().get(&name).await.unwrap();
    assert!(infrastructure.meta().deletion_timestamp.is_none(), "not before the Node is empty");
    let params = PatchParams::default();
    let release = json!({ "metadata": { "finalizers": null } });
    pods.patch("job", &params, &Patch::Merge(release)).await.unwrap();
    pods.delete("job", &DeleteParams::default().grace_period(0)).await.ok();
    eventually("the Machine gone", async || (!fleet.names().await.contains(&name)).then_some(()))
        .await;
    assert!(fleet.nodes().get_opt(&name).await.unwrap().is_none());
}

#[tokio::test(start_paused = true)]
async fn infrastructure_whose_machine_was_never_made_is_taken_away() {
    let fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    let set = fleet.kind("MachineSet").list(&ListParams::default()).await.unwrap().items.remove(0);
    let mut stray =
        ScalewayAppleSiliconMachine::new("stray", ScalewayAppleSiliconMachineSpec::default());
    stray.metadata.owner_references = Some(vec![
        serde_json::from_value(json!({
            "apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachineSet",
            "name": set.name_any(), "uid": set.metadata.uid,
        }))
        .unwrap(),
    ]);
    fleet.infrastructure().create(&PostParams::default(), &stray).await.unwrap();
    eventually("the stray gone", async || {
        fleet.infrastructure().get_opt("stray").await.unwrap().is_none().then_some(())
    })
    .await;
    fleet.settles(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_rolls_the_fleet_one_machine_at_a_time() {
    let fleet = Fleet::with_provider(2).await;
    fleet.settles(2).await;
    let before = fleet.names().await;
    let version = json!({ "spec": { "template": { "spec": { "version": "v1.34.0" } } } });
    fleet.patch("MachineDeployment", "builders", version).await;
    let mut most = 0;
    eventually("only new Machines", async || {
        let names = fleet.names().await;
        most = most.max(names.len());
        (names.len() == 2 && !names.iter().any(|name| before.contains(name))).then_some(())
    })
    .await;
    assert_eq!(most, 3, "one more than asked for, and no more");
    fleet.settles(2).await;
    eventually("one set", async || {
        let sets = fleet.kind("MachineSet").list(&ListParams::default()).await.unwrap().items;
        (sets.len() == 1).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn annotations_of_the_template_reach_machines_that_are_there() {
    let fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    let name = fleet.names().await.remove(0);
    let policy = json!({ "tuist.dev/release-policy": "terminate" });
    let patch = json!({ "spec": { "template": { "metadata": { "annotations": policy } } } });
    fleet.patch("MachineDeployment", "builders", patch).await;
    eventually("the annotation", async || {
        let object = fleet.infrastructure().get(&name).await.unwrap();
        object.annotations().contains_key("tuist.dev/release-policy").then_some(())
    })
    .await;
    assert_eq!(fleet.names().await, [name], "no roll-out");
}

#[tokio::test(start_paused = true)]
async fn the_cluster_is_provisioned_when_its_infrastructure_is() {
    let fleet = Fleet::new(0).await;
    let api: Api<applecart_api::cluster::ScalewayAppleSiliconCluster> =
        Api::namespaced(fleet.client.clone(), NAMESPACE);
    eventually("the owner", async || {
        let object = api.get("macs").await.unwrap();
        object.owner_references().iter().any(|owner| owner.kind == "Cluster").then_some(())
    })
    .await;
    let status = json!({ "status": { "initialization": { "provisioned": true } } });
    api.patch_status("macs", &PatchParams::default(), &Patch::Merge(status)).await.unwrap();
    let cluster = eventually("a provisioned Cluster", async || {
        let cluster = fleet.kind("Cluster").get("macs").await.unwrap();
        let initialization = &cluster.data["status"]["initialization"];
        (initialization["infrastructureProvisioned"] == true).then_some(cluster)
    })
    .await;
    assert_eq!(cluster.data["status"]["phase"], "Provisioned");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_cluster_takes_everything_with_it() {
    let fleet = Fleet::with_provider(2).await;
    fleet.settles(2).await;
    fleet.kind("Cluster").delete("macs", &DeleteParams::default()).await.unwrap();
    eventually("nothing left", async || {
        let resources = [
            "clusters.cluster.x-k8s.io",
            "machinedeployments.cluster.x-k8s.io",
            "machinesets.cluster.x-k8s.io",
            "machines.cluster.x-k8s.io",
            "scalewayapplesiliconmachines.infrastructure.cluster.x-k8s.io",
            "scalewayapplesiliconclusters.infrastructure.cluster.x-k8s.io",
        ];
        let left: usize = resources.iter().map(|r| fleet.server.objects(r).len()).sum();
        (left == 0).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_cluster_is_left_alone() {
    let fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    fleet.patch("Cluster", "macs", json!({ "spec": { "paused": true } })).await;
    fleet.scale(3).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(fleet.names().await.len(), 1);
    fleet.patch("Cluster", "macs", json!({ "spec": { "paused": null } })).await;
    fleet.settles(3).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_no_number_of_machines_is_refused_and_what_is_unknown_is_kept() {
    let fleet = Fleet::new(1).await;
    let api = fleet.kind("MachineDeployment");
    for wrong in [json!("three"), json!(1.5), json!(-1)] {
        let patch = json!({ "spec": { "replicas": wrong } });
        match api.patch("builders", &PatchParams::default(), &Patch::Merge(&patch)).await {
            Err(kube::Error::Api(status)) => assert_eq!(status.code, 422, "{wrong}"),
            other => panic!("not refused: {other:?}"),
        }
    }
    fleet.patch("MachineDeployment", "builders", json!({ "spec": { "bogus": 1 } })).await;
    let deployment = fleet.deployment().await;
    assert_eq!(
        (&deployment.data["spec"]["bogus"], &deployment.data["spec"]["replicas"]),
        (&json!(1), &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_done_about_replicas_that_are_no_number() {
    // Definitions that let everything pass, as another installation's might.
    let mut loose = cluster_api::crds();
    for version in loose.iter_mut().flat_map(|definition| &mut definition.spec.versions) {
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        let properties = json!({ "spec": anything, "status": anything });
        let schema = json!({ "type": "object", "properties": properties });
        version.schema = serde_json::from_value(json!({ "openAPIV3Schema": schema })).unwrap();
    }
    let fleet = Fleet::defined_by(2, loose).await;
    let made = async |count: usize| {
        eventually("Machines", async || (fleet.names().await.len() == count).then_some(())).await;
    };
    made(2).await;
    let before = fleet.names().await;
    fleet.patch("MachineDeployment", "builders", json!({ "spec": { "replicas": "one" } })).await;
    tokio::time::sleep(PATIENCE).await;
    let sets = fleet.kind("MachineSet").list(&ListParams::default()).await.unwrap();
    let set = sets.items[0].name_any();
    fleet.patch("MachineSet", &set, json!({ "spec": { "replicas": "one" } })).await;
    tokio::time::sleep(PATIENCE).await;
    assert_eq!(fleet.names().await, before);
    assert!(fleet.machines().await.iter().all(|m| m.metadata.deletion_timestamp.is_none()));
    fleet.patch("MachineDeployment", "builders", json!({ "spec": { "replicas": 3 } })).await;
    made(3).await;
}

#[tokio::test(start_paused = true)]
async fn a_fleet_that_is_settled_is_not_written_to() {
    let fleet = Fleet::with_provider(2).await;
    fleet.settles(2).await;
    fleet.provider.as_ref().unwrap().abort();
    tokio::time::sleep(PATIENCE).await;
    let version = async || {
        let list = fleet.kind("Machine").list(&ListParams::default()).await.unwrap();
        list.metadata.resource_version.unwrap()
    };
    let before = version().await;
    tokio::time::sleep(Duration::from_hours(24)).await;
    assert_eq!(version().await, before, "one version counts all objects");
}

#[tokio::test(start_paused = true)]
async fn pods_are_bound_where_there_is_room_and_say_why_not() {
    let mut fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    let (client, clock) = (fleet.client.clone(), fleet.clock.clone());
    fleet.tasks.spawn(async move { cluster_api::scheduler(client, clock, PERIOD).await });
    let pods: Api<Pod> = Api::namespaced(fleet.client.clone(), NAMESPACE);
    for name in ["one", "two", "three"] {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": { "name": name },
            "spec": { "containers": [{ "name": "vm", "image": "i" }] },
        }))
        .unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
    }
    let node = fleet.names().await.remove(0);
    let nowhere = eventually("two bound Pods and one that waits", async || {
        let all = pods.list(&ListParams::default()).await.unwrap().items;
        let bound = |pod: &&Pod| pod.spec.as_ref().unwrap().node_name.as_ref() == Some(&node);
        let waiting = all.iter().find(|pod| !bound(pod))?.clone();
        let conditions = waiting.status?.conditions?;
        let told = conditions.into_iter().find(|condition| condition.type_ == "PodScheduled")?;
        (all.iter().filter(bound).count() == 2).then_some(told)
    })
    .await;
    assert_eq!(nowhere.reason.as_deref(), Some("Unschedulable"));
    let message = "0/1 nodes are available: 1 Too many pods.";
    assert_eq!(nowhere.message.as_deref(), Some(message));
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_lease_stops_turns_unknown_after_the_grace_and_its_machine_with_it() {
    let mut fleet = Fleet::with_provider(1).await;
    fleet.settles(1).await;
    let (client, clock) = (fleet.client.clone(), fleet.clock.clone());
    let pace = NodePace { period: PERIOD, grace: GRACE, second: Duration::from_secs(1) };
    fleet.tasks.spawn(async move { cluster_api::node_lifecycle(client, clock, pace).await });
    let name = fleet.names().await.remove(0);
    let leases: Api<Lease> = Api::namespaced(fleet.client.clone(), "kube-node-lease");
    let renew = async |ahead: i64| {
        let now = fleet.clock.now() + SignedDuration::from_secs(ahead);
        let now = now.strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": name }, "spec": { "renewTime": now },
        });
        let params = PatchParams::apply("agent").force();
        leases.patch(&name, &params, &Patch::Apply(lease)).await.unwrap();
    };
    let ready = async || {
        let node = fleet.nodes().get(&name).await.unwrap();
        let conditions = node.status.unwrap().conditions.unwrap();
        conditions.into_iter().find(|condition| condition.type_ == "Ready").unwrap().status
    };
    // An agent whose clock is wrong is as alive as any.
    for ahead in [3_600, -3_600, 0] {
        for _ in 0..12 {
            renew(ahead).await;
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(ready().await, "True", "{ahead} s ahead");
        }
    }
    tokio::time::sleep(GRACE.saturating_sub(Duration::from_secs(11))).await;
    assert_eq!(ready().await, "True", "not before the grace is over");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(ready().await, "Unknown");
    eventually("a Machine that does not know", async || {
        let machine = fleet.kind("Machine").get(&name).await.unwrap();
        (condition(&machine, "Ready") == ("Unknown".into(), "ReadyUnknown".into())).then_some(())
    })
    .await;
}
