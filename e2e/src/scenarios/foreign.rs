//! A Cluster in a namespace where the provider lacks rights: it says which, and the rest goes on.

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::fleet::{CLUSTER_API, INFRASTRUCTURE};
use crate::binaries::package_folder;
use crate::installation::{ClusterForm, Installation, Plan};
use crate::{Audit, Ground, objects};

/// Rights on Secrets as they are given one after the other, and what the Cluster says of each:
/// status, reason, and words that name the missing right.
const STEPS: [(&[&str], &str, &str, &str); 3] = [
    (&[], "False", "Denied", "may not get Secrets in namespace"),
    (&["get"], "False", "WriteFailed", r#"cannot create resource "secrets""#),
    (&["get", "create", "patch"], "True", "Available", ""),
];

/// With no right, some and all of them: the condition and the Event name what is missing, a Mac
/// gets ready all the same, and with the chart's rights Cluster API reaches its Node.
pub async fn a_cluster_whose_secrets_are_forbidden_says_so_and_the_rest_goes_on(
    ground: &mut Ground,
) -> Result<()> {
    ground.cluster_api().await?;
    let namespace = ground.namespace("rights").await?;
    let foreign = ground.namespace("foreign").await?;
    let mut plan = Plan::new(namespace, ClusterForm::Original, ground.seed());
    plan.watches.clone_from(&foreign);
    plan.runners = 0;
    let mut fleet = Installation::start(ground.control_plane().await?, plan).await?;
    let client = ground.client().await?;
    for object in cluster_and_fleet(&foreign, &fleet.plan.namespace)? {
        objects::create(&client, &object, false).await?;
    }
    for (verbs, status, reason, words) in STEPS {
        give(&client, &fleet, &foreign, verbs).await?;
        says(&mut fleet, &foreign, status, reason, words).await?;
        if verbs.is_empty() {
            the_rest_goes_on(&mut fleet, &foreign).await?;
        }
    }
    is_running(&mut fleet, &foreign, 1).await?;
    let table = ground.kubectl(&["describe", "sasc", "-n", &foreign]).await?;
    for word in ["Denied", "WriteFailed", "KubeconfigAvailable"] {
        ensure!(table.contains(word), "{word} is not in\n{table}");
    }
    println!("{}", ground.kubectl(&["get", "events", "-n", &foreign]).await?);
    is_running(&mut fleet, &foreign, 0).await?;
    let of_fleet = format!("system:serviceaccount:{}:", fleet.plan.namespace);
    Audit::read(ground.control_plane().await?, &of_fleet)?.nobody_spins()
}

/// The original's Cluster and fleet, in the foreign namespace; the fleet's key is the release's.
fn cluster_and_fleet(foreign: &str, release: &str) -> Result<Vec<Value>> {
    let path = package_folder().join("original/fleet.yaml");
    let text = std::fs::read_to_string(path).context("no fleet of the original's")?;
    let mut all = objects::read(&text.replace("NAME", foreign))?;
    for object in &mut all {
        if object["kind"] == "ScalewayAppleSiliconMachineTemplate" {
            object["spec"]["template"]["spec"]["fleetName"] = json!(release);
        }
    }
    Ok(all)
}

/// Gives the provider these rights on Secrets of the foreign namespace, and no others.
async fn give(client: &Client, fleet: &Installation, foreign: &str, verbs: &[&str]) -> Result<()> {
    let rbac = "rbac.authorization.k8s.io/v1";
    let mut role = objects::named(rbac, "Role", foreign, "secrets");
    role["rules"] = match verbs {
        [] => json!([]),
        _ => json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]),
    };
    objects::apply(client, &role).await?;
    let release = &fleet.plan.namespace;
    let mut binding = objects::named(rbac, "RoleBinding", foreign, "secrets");
    binding["roleRef"] =
        json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "secrets"});
    binding["subjects"] = json!([{
        "kind": "ServiceAccount", "namespace": release,
        "name": format!("{release}-capi-scaleway-applesilicon"),
    }]);
    objects::apply(client, &binding).await.map(|_| ())
}

/// Waits until the Cluster's infrastructure says so of its kubeconfig, and an Event said it.
async fn says(
    fleet: &mut Installation,
    foreign: &str,
    status: &str,
    reason: &str,
    words: &str,
) -> Result<()> {
    let name = format!("{foreign}-capi");
    let cluster = objects::named(INFRASTRUCTURE, "ScalewayAppleSiliconCluster", foreign, &name);
    let events = objects::named("v1", "Event", foreign, "");
    let look = async |client: &Client| {
        let found = objects::get(client, &cluster).await?.context("gone")?;
        let told = condition(&found, "KubeconfigAvailable").context("nothing is told")?;
        let message = told["message"].as_str().unwrap_or_default();
        let right = told["status"] == status && told["reason"] == reason;
        ensure!(right && message.contains(words), "{told}");
        if status == "False" {
            let told = |event: &Value| {
                let message = event["message"].as_str().unwrap_or_default();
                event["reason"] == reason && event["type"] == "Warning" && message.contains(words)
            };
            let events = objects::list(client, &events).await?;
            ensure!(events.iter().any(told), "no Event {reason}");
        }
        Ok(Some(()))
    };
    fleet.until(&format!("KubeconfigAvailable to be {status}, {reason}"), look).await
}

fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    object["status"]["conditions"].as_array()?.iter().find(|c| c["type"] == kind)
}

/// The Cluster's infrastructure and control plane are told, and a Mac gets ready.
async fn the_rest_goes_on(fleet: &mut Installation, foreign: &str) -> Result<()> {
    let cluster = objects::named(CLUSTER_API, "Cluster", foreign, &format!("{foreign}-capi"));
    let look = async |client: &Client| {
        let found = objects::get(client, &cluster).await?.context("no Cluster")?;
        for kind in ["InfrastructureReady", "ControlPlaneInitialized"] {
            let holds = condition(&found, kind).is_some_and(|c| c["status"] == "True");
            ensure!(holds, "{kind}: {}", found["status"]);
        }
        Ok(Some(()))
    };
    fleet.until("the Cluster to be told all the same", look).await?;
    ask_for(fleet, foreign, 1).await?;
    let macs = objects::named(INFRASTRUCTURE, "ScalewayAppleSiliconMachine", foreign, "");
    let look = async |client: &Client| {
        let macs = objects::list(client, &macs).await?;
        Ok(macs.iter().any(|mac| mac["status"]["ready"] == true).then_some(()))
    };
    fleet.until("a Mac to be ready all the same", look).await
}

async fn ask_for(fleet: &mut Installation, foreign: &str, replicas: usize) -> Result<()> {
    let deployment = objects::named(CLUSTER_API, "MachineDeployment", foreign, foreign);
    let change = json!({"spec": {"replicas": replicas}});
    let look = async |client: &Client| objects::merge(client, &deployment, &change).await.map(Some);
    fleet.until("the MachineDeployment to be scaled", look).await.map(|_| ())
}

/// Asks for so many Machines, and waits until so many run and no others are there.
async fn is_running(fleet: &mut Installation, foreign: &str, count: usize) -> Result<()> {
    ask_for(fleet, foreign, count).await?;
    let machines = objects::named(CLUSTER_API, "Machine", foreign, "");
    let look = async |client: &Client| {
        let machines = objects::list(client, &machines).await?;
        let running = machines.iter().filter(|m| m["status"]["phase"] == "Running").count();
        ensure!(running == count && machines.len() == count, "{running} of {}", machines.len());
        Ok(Some(()))
    };
    fleet.until(&format!("{count} Machines to run"), look).await
}
