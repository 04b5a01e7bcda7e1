//! The whole path with the real Cluster API: our programs as processes under the chart's rights.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::upkeep;
use crate::installation::{ClusterForm, Installation, POOL_PREFIX, Plan, VERSION};
use crate::recording::Recording;
use crate::{Audit, Canaries, Ground, audit, objects};

/// Cluster API's own kinds.
pub const CLUSTER_API: &str = "cluster.x-k8s.io/v1beta2";
/// Ours.
pub const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
/// With a Cluster as the original's chart writes it, and Macs in a tailnet: `MachineDeployment`
/// 0→3→1→3, a deleted Machine, runners whose jobs run and end, a Mac that builds for GitHub, back
/// to 0; each of our processes is killed and started again all the while. Then a deleted Node. In
/// the end every host is wiped in the pool, nothing is left, and no password, key or token was told
/// anywhere.
pub async fn a_fleet_grows_shrinks_and_leaves_nothing_while_processes_are_killed(
    ground: &mut Ground,
) -> Result<()> {
    let with_all = |plan: &mut Plan| plan.optional_steps = true;
    let mut fleet = install_as(ground, "fleet", ClusterForm::Original, with_all).await?;
    let owners = owners(ground, &fleet).await?;
    let mut canaries = Canaries::start(&ground.client().await?, &fleet.plan.namespace).await?;
    watch_for(&mut canaries, &fleet).await?;
    fleet.disturb(true);
    scale(&mut fleet, 3).await?;
    a_pod_runs_and_ends(&ground.client().await?, &mut fleet).await?;
    scale(&mut fleet, 1).await?;
    scale(&mut fleet, 3).await?;
    a_deleted_machine_is_replaced(&mut fleet).await?;
    upkeep::every_mac_is_in_the_tailnet(&mut fleet).await?;
    upkeep::a_mac_becomes_a_builder(&mut fleet).await?;
    fleet.disturb(false);
    ensure!(fleet.kills.len() == 3, "not every process was killed: {:?}", fleet.kills);
    fleet.was_disturbed()?;
    upkeep::a_deleted_node_brings_its_mac_in_again(ground, &mut fleet).await?;
    people_see_what_is_going_on(ground, &mut fleet).await?;
    let told = fleet.told().await?;
    scale(&mut fleet, 0).await?;
    nothing_is_left(&mut fleet, &owners).await?;
    upkeep::no_builder_is_left(&fleet)?;
    watch_for(&mut canaries, &fleet).await?;
    let told = [told, fleet.told().await?].concat();
    let (forms, places) = canaries.none_is_seen(ground.control_plane().await?, &told).await?;
    println!("{forms} forms of secrets, and none is in {places} places");
    nobody_was_refused(ground, &fleet).await
}

/// The secrets of the world around it, as they are now: a wipe gives a Mac another password.
async fn watch_for(canaries: &mut Canaries, fleet: &Installation) -> Result<()> {
    for (what, value) in fleet.secrets().await? {
        canaries.add(&what, &value);
    }
    Ok(())
}

/// With an `ExistingControlPlane` the Cluster is AVAILABLE too, and Cluster API deletes Nodes; a
/// running job is neither evicted nor wiped away.
pub async fn contract_16_17_with_our_control_plane_nodes_go_and_jobs_are_waited_for(
    ground: &mut Ground,
) -> Result<()> {
    let mut fleet = install(ground, "plane", ClusterForm::Ours).await?;
    let owners = owners(ground, &fleet).await?;
    scale(&mut fleet, 1).await?;
    let cluster = cluster(&fleet);
    fleet
        .until("the Cluster to be Available", async |client| {
            let cluster = objects::get(client, &cluster).await?.context("no Cluster")?;
            Ok(is_true(&cluster, "Available").then_some(()))
        })
        .await?;
    let plain = a_plain_pod_runs(&mut fleet).await?;
    let pod = running_runner(&mut fleet).await?;
    let claim = json!({"metadata": {"labels": {"tuist.dev/runner-pool-owner": "job-1"}}});
    let client = ground.client().await?;
    objects::merge(&client, &pod, &claim).await?;
    let machine = machines(&client, &fleet).await?.pop().context("no Machine")?;
    objects::delete(&client, &machine).await?;
    let mac = infra(&fleet, objects::name(&machine)?);
    fleet
        .until("the Mac to wait for its job", async |client| {
            let mac = objects::get(client, &mac).await?.context("gone")?;
            let reason = mac["status"]["lastReason"].as_str().unwrap_or_default().to_owned();
            Ok(reason.contains("waiting for the job").then_some(()))
        })
        .await?;
    ensure!(evicted(ground, &fleet, &plain).await?, "Cluster API did not drain the plain Pod");
    let still = objects::get(&client, &pod).await?.context("the job's Pod is gone")?;
    ensure!(still["metadata"]["deletionTimestamp"].is_null(), "the job's Pod is being deleted");
    end_job(&fleet, &pod).await?;
    let gone = machine.clone();
    fleet
        .until("the Machine to be gone", async |client| {
            Ok(objects::get(client, &gone).await?.is_none().then_some(()))
        })
        .await?;
    let node = objects::named("v1", "Node", "", objects::name(&machine)?);
    ensure!(objects::get(&client, &node).await?.is_none(), "its Node is left");
    scale(&mut fleet, 0).await?;
    nothing_is_left(&mut fleet, &owners).await?;
    nobody_was_refused(ground, &fleet).await
}

/// Installs a fleet without Macs yet.
pub async fn install(
    ground: &mut Ground,
    story: &str,
    cluster: ClusterForm,
) -> Result<Installation> {
    install_as(ground, story, cluster, |_| ()).await
}

/// The same, with a plan that is changed first.
pub async fn install_as(
    ground: &mut Ground,
    story: &str,
    cluster: ClusterForm,
    change: impl FnOnce(&mut Plan),
) -> Result<Installation> {
    ground.cluster_api().await?;
    let namespace = ground.namespace(story).await?;
    // Hosts of its own: a Node that one story leaves must not be taken for another's.
    let seed = ground.seed().wrapping_add(story.bytes().map(u64::from).sum());
    let mut plan = Plan::new(namespace, cluster, seed);
    // A Mac takes two Pods; with our own form, one of them is a plain Pod that is to be drained.
    plan.runners = if cluster == ClusterForm::Ours { 1 } else { 2 };
    change(&mut plan);
    Installation::start(ground.control_plane().await?, plan).await
}

/// Listens to who has which host from now on.
pub async fn owners(ground: &mut Ground, fleet: &Installation) -> Result<Recording> {
    Recording::start(&ground.client().await?, &infra(fleet, "")).await
}

/// Its `MachineDeployment`.
pub fn deployment(fleet: &Installation) -> Value {
    let name = &fleet.plan.namespace;
    objects::named(CLUSTER_API, "MachineDeployment", name, name)
}

/// Its Cluster.
pub fn cluster(fleet: &Installation) -> Value {
    let name = format!("{}-capi", fleet.plan.namespace);
    objects::named(CLUSTER_API, "Cluster", &fleet.plan.namespace, &name)
}

/// Its object for a Mac.
pub fn infra(fleet: &Installation, name: &str) -> Value {
    let kind = "ScalewayAppleSiliconMachine";
    objects::named(INFRASTRUCTURE, kind, &fleet.plan.namespace, name)
}

/// Its Machines.
pub async fn machines(client: &Client, fleet: &Installation) -> Result<Vec<Value>> {
    let like = objects::named(CLUSTER_API, "Machine", &fleet.plan.namespace, "");
    objects::list(client, &like).await
}

/// Whether a condition of an object is True.
pub fn is_true(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let holds = |c: &Value| c["type"] == condition && c["status"] == "True";
    conditions.into_iter().flatten().any(holds)
}

/// Scales, and waits until Cluster API counts every replica as available and up to date, every
/// Machine as Running, and every other host is back in the pool.
pub async fn scale(fleet: &mut Installation, replicas: usize) -> Result<()> {
    ask_for(fleet, replicas).await?;
    available(fleet, replicas).await?;
    in_pool(fleet, fleet.plan.hosts - replicas).await
}

/// Asks for so many Machines.
pub async fn ask_for(fleet: &mut Installation, replicas: usize) -> Result<()> {
    let deployment = deployment(fleet);
    let change = json!({"spec": {"replicas": replicas}});
    let look = async |client: &Client| objects::merge(client, &deployment, &change).await.map(Some);
    fleet.until("the MachineDeployment to be scaled", look).await.map(|_| ())
}

/// Waits until Cluster API counts so many replicas as available and up to date, and no others.
pub async fn available(fleet: &mut Installation, replicas: usize) -> Result<()> {
    let deployment = deployment(fleet);
    let namespace = fleet.plan.namespace.clone();
    let what = format!("{replicas} Machines to be available, up to date and Running");
    fleet
        .until(&what, async |client| {
            let found = objects::get(client, &deployment).await?.context("no deployment")?;
            let status = &found["status"];
            for count in ["replicas", "availableReplicas", "upToDateReplicas"] {
                let is = status[count].as_u64().unwrap_or(0);
                ensure!(is == replicas as u64, "{count} is {is}: {status}");
            }
            let like = objects::named(CLUSTER_API, "Machine", &namespace, "");
            let machines = objects::list(client, &like).await?;
            let running = |m: &&Value| m["status"]["phase"] == "Running";
            ensure!(machines.iter().filter(running).count() == replicas, "not all are Running");
            ensure!(machines.len() == replicas, "{} Machines", machines.len());
            Ok(Some(()))
        })
        .await
}

/// Waits until so many hosts are ready under a pool name.
pub async fn in_pool(fleet: &mut Installation, count: usize) -> Result<()> {
    for _ in 0..600 {
        let hosts = fleet.hosts().await?;
        let free = |host: &&Value| {
            let name = host["name"].as_str().unwrap_or_default();
            name.starts_with(POOL_PREFIX) && host["status"] == "ready"
        };
        if hosts.iter().filter(free).count() == count {
            return Ok(());
        }
        let mut looks = 0;
        fleet
            .until("a moment", async |_| {
                looks += 1;
                Ok((looks > 1).then_some(()))
            })
            .await?;
    }
    let names: Vec<_> = fleet.hosts().await?.iter().map(|h| h["name"].clone()).collect();
    anyhow::bail!("not {count} hosts in the pool: {names:?}\n{}", fleet.tails())
}

/// A runner Pod that the real scheduler placed and a real agent runs.
async fn running_runner(fleet: &mut Installation) -> Result<Value> {
    let like = objects::named("v1", "Pod", &fleet.runners_namespace(), "");
    fleet
        .until("a runner to run", async |client| {
            let pods = objects::list(client, &like).await?;
            let running = |pod: &Value| {
                pod["status"]["phase"] == "Running"
                    && pod["metadata"]["labels"]["tuist.dev/runner"] == "true"
                    && pod["metadata"]["deletionTimestamp"].is_null()
            };
            Ok(pods.into_iter().find(running))
        })
        .await
}

/// A Pod that is nobody's runner, on the fleet's Mac.
async fn a_plain_pod_runs(fleet: &mut Installation) -> Result<Value> {
    let mut pod = objects::named("v1", "Pod", &fleet.runners_namespace(), "plain");
    pod["spec"] = json!({
        "nodeSelector": {"tuist.dev/fleet": fleet.plan.namespace},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "vm", "image": "registry.example/plain@sha256:6a05"}],
    });
    let look = async |client: &Client| match objects::get(client, &pod).await? {
        Some(found) => Ok((found["status"]["phase"] == "Running").then_some(found)),
        None => objects::create(client, &pod, false).await.map(|_| None),
    };
    let found = fleet.until("the plain Pod to run", look).await?;
    Ok(found)
}

/// Whether the audit log shows that Cluster API evicted the Pod.
async fn evicted(ground: &mut Ground, fleet: &Installation, pod: &Value) -> Result<bool> {
    let by = format!("system:serviceaccount:{0}:{0}-capi-remote", fleet.plan.namespace);
    let audit = Audit::read(ground.control_plane().await?, &by)?;
    let name = objects::name(pod)?;
    Ok(audit.calls().iter().any(|call| {
        call["objectRef"]["subresource"] == "eviction"
            && call["objectRef"]["name"] == name
            && audit::code(call) < 300
    }))
}

/// The job in a Pod's VM ends well.
async fn end_job(fleet: &Installation, pod: &Value) -> Result<()> {
    let node = pod["spec"]["nodeName"].as_str().context("not placed")?;
    let id = pod["status"]["containerStatuses"][0]["containerID"].as_str().context("no VM")?;
    let vm = id.strip_prefix("tart://").with_context(|| format!("{id} is no VM"))?;
    fleet.finish(node, vm).await
}

async fn a_pod_runs_and_ends(client: &Client, fleet: &mut Installation) -> Result<()> {
    let pod = running_runner(fleet).await?;
    let name = objects::name(&pod)?.to_owned();
    let uid = pod["metadata"]["uid"].clone();
    let like = objects::named("v1", "Pod", &fleet.runners_namespace(), "");
    let pods = Recording::start(client, &like).await?;
    end_job(fleet, &pod).await?;
    fleet
        .until("the ended runner to be replaced", async |client| {
            let succeeded = |pod: &Value| {
                pod["metadata"]["uid"] == uid && pod["status"]["phase"] == "Succeeded"
            };
            ensure!(pods.of(&name).iter().any(succeeded), "{name} has not succeeded");
            let living = |pod: &&Value| pod["metadata"]["uid"] != uid;
            let now = objects::list(client, &like).await?;
            Ok((now.iter().filter(living).count() >= 2).then_some(()))
        })
        .await
}

async fn a_deleted_machine_is_replaced(fleet: &mut Installation) -> Result<()> {
    let namespace = fleet.plan.namespace.clone();
    let like = objects::named(CLUSTER_API, "Machine", &namespace, "");
    let machine = fleet
        .until("a Machine to delete", async |client| {
            Ok(objects::list(client, &like).await?.into_iter().next())
        })
        .await?;
    let name = objects::name(&machine)?.to_owned();
    let gone = objects::named(CLUSTER_API, "Machine", &namespace, &name);
    fleet
        .until("the Machine to be deleted", async |client| {
            objects::delete(client, &gone).await.map(Some)
        })
        .await?;
    fleet
        .until("the deleted Machine to be gone", async |client| {
            Ok(objects::get(client, &gone).await?.is_none().then_some(()))
        })
        .await?;
    scale(fleet, 3).await
}

/// What kubectl prints reads well: phase, node, reason.
async fn people_see_what_is_going_on(ground: &mut Ground, fleet: &mut Installation) -> Result<()> {
    let namespace = fleet.plan.namespace.as_str();
    let table = ground.kubectl(&["get", "samm", "-n", namespace]).await?;
    for word in ["PHASE", "READY", "REASON", "Ready"] {
        ensure!(table.contains(word), "{word} is not in\n{table}");
    }
    let machines = ground.kubectl(&["get", "machines", "-n", namespace]).await?;
    ensure!(machines.contains(VERSION) && machines.contains("Running"), "{machines}");
    let nodes =
        ground.kubectl(&["get", "nodes", "-l", &format!("tuist.dev/fleet={namespace}")]).await?;
    ensure!(nodes.contains(VERSION) && nodes.contains("Ready"), "{nodes}");
    println!("{table}\n{machines}\n{nodes}");
    for page in fleet.pages("/readyz").await? {
        ensure!(
            page.contains("kubernetes: answered") && page.contains("leader: leading"),
            "{page}"
        );
    }
    for page in fleet.pages("/healthz").await? {
        ensure!(page.contains("election: last looked"), "{page}");
    }
    Ok(())
}

/// C5: no object of ours that belonged to a Mac outlives it, and every host is wiped in the pool.
pub async fn nothing_is_left(fleet: &mut Installation, owners: &Recording) -> Result<()> {
    in_pool(fleet, fleet.plan.hosts).await?;
    every_host_was_wiped(fleet, owners).await?;
    no_object_is_left(fleet).await
}

/// No object of ours that belonged to a Mac outlives it, and no Lease is held.
pub async fn no_object_is_left(fleet: &mut Installation) -> Result<()> {
    let namespace = fleet.plan.namespace.clone();
    let kinds = [
        ("v1", "Secret", namespace.as_str(), "-bootstrap"),
        ("v1", "Secret", &namespace, "tart-kubelet-"),
        ("v1", "ServiceAccount", &namespace, "tart-kubelet-"),
        ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "", "tart-kubelet-"),
        ("v1", "Node", "", &namespace),
        (INFRASTRUCTURE, "ScalewayAppleSiliconMachine", &namespace, ""),
    ];
    let spared =
        [format!("{namespace}-noop-bootstrap"), format!("{namespace}-capi-noop-bootstrap")];
    fleet
        .until("nothing to be left", async |client| {
            for (version, kind, place, part) in kinds {
                let like = objects::named(version, kind, place, "");
                for object in objects::list(client, &like).await? {
                    // A detached Mac of another story keeps its identity.
                    let elsewhere = |subject: &Value| subject["namespace"] != namespace.as_str();
                    let subjects = object["subjects"].as_array();
                    if subjects.is_some_and(|subjects| subjects.iter().all(elsewhere)) {
                        continue;
                    }
                    let name = objects::name(&object)?;
                    ensure!(
                        !name.contains(part) || spared.iter().any(|s| s == name),
                        "{kind} {name} is left"
                    );
                }
            }
            let leases = objects::named("coordination.k8s.io/v1", "Lease", &namespace, "");
            for lease in objects::list(client, &leases).await? {
                let host = lease["metadata"]["labels"]["applecart.dev/host"] == "true";
                let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
                ensure!(!host || holder.is_empty(), "{holder} still holds a host");
            }
            Ok(Some(()))
        })
        .await
}

/// For each owner that a host ever had, it was wiped once more, by Scaleway's own count; and
/// nothing of an owner is on any Mac now.
async fn every_host_was_wiped(fleet: &mut Installation, owners: &Recording) -> Result<()> {
    let mut owners_of: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for version in owners.versions() {
        let uid = version["metadata"]["uid"].as_str().context("an object without a UID")?;
        if let Some(host) = version["status"]["serverID"].as_str().filter(|id| !id.is_empty()) {
            owners_of.entry(host.to_owned()).or_default().insert(uid.to_owned());
        }
    }
    ensure!(!owners_of.is_empty(), "nobody ever had a host");
    let wipes = fleet.wipes().await?;
    for (host, owners) in owners_of {
        let times = wipes.get(&host).with_context(|| format!("host {host} is gone"))?;
        let had = owners.len() as u64;
        ensure!(*times >= had, "host {host} had {had} owners and was wiped {times} times");
    }
    for mac in fleet.macs().await? {
        let clean = mac["agent_pid"].is_null() && mac["vms"] == json!([]);
        ensure!(clean, "something of its last owner is still on a Mac: {mac}");
    }
    Ok(())
}

/// The chart's rights are enough, every body is one that the API server takes, and nobody spins:
/// so says the API server's audit log.
pub async fn nobody_was_refused(ground: &mut Ground, fleet: &Installation) -> Result<()> {
    let of_fleet = format!("system:serviceaccount:{}:", fleet.plan.namespace);
    let audit = Audit::read(ground.control_plane().await?, &of_fleet)?;
    for user in fleet.users() {
        ensure!(audit.callers().contains(&*user), "{user} never called: {:?}", audit.callers());
    }
    audit.none_is_a_defect()?;
    audit.nobody_spins()
}
