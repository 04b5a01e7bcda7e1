//! Cluster API's contract, line by line of its checklist: `contract_<line>_…`. The lines that need
//! a program of ours are listed in [`MISSING`](super::MISSING).

use anyhow::{Context, Result, ensure};
use kube::Client;
use serde_json::{Value, json};

use super::definitions::{INFRASTRUCTURE, MACHINE};
use crate::ground::{Ground, our_definitions};
use crate::{objects, wait};

const CLUSTER_API: &str = "cluster.x-k8s.io/v1beta2";
const GROUP: &str = "infrastructure.cluster.x-k8s.io";
const CONTRACTS: [&str; 2] = ["v1beta1", "v1beta2"];

/// The definitions that Cluster API looks at: of infrastructure and control plane.
fn looked_at() -> Result<Vec<Value>> {
    let mut definitions = our_definitions()?;
    definitions.retain(|definition| text(&definition["spec"]["group"]).ends_with(".x-k8s.io"));
    ensure!(definitions.len() == 4, "{} definitions", definitions.len());
    Ok(definitions)
}

/// The same, as the API server has them.
async fn definitions(ground: &mut Ground) -> Result<Vec<Value>> {
    ground.definitions().await?;
    let client = ground.client().await?;
    let mut found = Vec::new();
    for definition in looked_at()? {
        found.push(objects::get(&client, &definition).await?.context("it was just applied")?);
    }
    Ok(found)
}

/// Both labels on all of them, and the version they name is served and stored.
pub async fn contract_01_the_definitions_speak_both_contracts(ground: &mut Ground) -> Result<()> {
    for definition in definitions(ground).await? {
        let name = objects::name(&definition)?;
        for contract in CONTRACTS {
            let label = &definition["metadata"]["labels"][format!("cluster.x-k8s.io/{contract}")];
            ensure!(label == "v1alpha1", "{name}: {contract} is {label}");
        }
        let versions = definition["spec"]["versions"].as_array().context("no versions")?;
        let right = |version: &Value| {
            version["name"] == "v1alpha1" && version["served"] == true && version["storage"] == true
        };
        ensure!(versions.iter().any(right), "{name} does not serve and store v1alpha1");
        let stored = &definition["status"]["storedVersions"];
        ensure!(*stored == json!(["v1alpha1"]), "{name} stored {stored}");
    }
    Ok(())
}

/// Found by the name that Cluster API computes, in a namespace, by category, with a status.
pub async fn contract_02_the_definitions_are_found_where_cluster_api_looks(
    ground: &mut Ground,
) -> Result<()> {
    for definition in definitions(ground).await? {
        let (name, spec) = (objects::name(&definition)?, &definition["spec"]);
        ensure!(spec["scope"] == "Namespaced", "{name} is not in a namespace");
        let kind = spec["names"]["kind"].as_str().context("no kind")?.to_lowercase();
        let rule = format!("{kind}s.{}", text(&spec["group"]));
        ensure!(name == rule, "{name} is not named by the rule");
        ensure!(spec["names"]["listKind"] == format!("{}List", text(&spec["names"]["kind"])));
        let version = &spec["versions"][0];
        let schema = &version["schema"]["openAPIV3Schema"]["properties"];
        let has = |value: &Value| !value.is_null();
        ensure!(
            has(&schema["status"]) == has(&version["subresources"]["status"]),
            "{name} has a status without a subresource, or the reverse"
        );
    }
    let listed = ["api-resources", "--categories=cluster-api", "--namespaced=true", "-o", "name"];
    let listed = ground.kubectl(&listed).await?;
    for definition in &looked_at()? {
        let name = objects::name(definition)?;
        ensure!(listed.lines().any(|line| line == name), "{name} is not in:\n{listed}");
    }
    Ok(())
}

/// `clusterctl` finds and moves what carries its labels.
pub async fn contract_03_the_definitions_carry_clusterctls_labels(
    ground: &mut Ground,
) -> Result<()> {
    for definition in definitions(ground).await? {
        let (name, labels) = (objects::name(&definition)?, &definition["metadata"]["labels"]);
        ensure!(labels["clusterctl.cluster.x-k8s.io"] == "", "{name}: {labels}");
        let provider = &labels["cluster.x-k8s.io/provider"];
        ensure!(*provider == "infrastructure-scaleway-applesilicon", "{name}: {provider}");
    }
    Ok(())
}

/// Conditions merge by type, and no second set of them competes.
pub async fn contract_04_conditions_are_a_map_by_type_and_the_only_ones(
    ground: &mut Ground,
) -> Result<()> {
    let mut with_status = 0;
    for definition in definitions(ground).await? {
        let name = objects::name(&definition)?;
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let Some(status) = schema["properties"]["status"]["properties"].as_object() else {
            continue;
        };
        with_status += 1;
        ensure!(!status.contains_key("v1beta2"), "{name} has status.v1beta2");
        let conditions = &status["conditions"];
        ensure!(conditions["x-kubernetes-list-type"] == "map", "{name}: {conditions}");
        ensure!(conditions["x-kubernetes-list-map-keys"] == json!(["type"]), "{name}");
    }
    ensure!(with_status == 3, "{with_status} kinds with a status");
    Ok(())
}

/// What the template says of its clones lands on the clone that Cluster API makes, beside its own
/// marks.
pub async fn contract_06_a_templates_metadata_lands_on_its_clones(
    ground: &mut Ground,
) -> Result<()> {
    let fleet = Fleet::create(ground, "clones").await?;
    let template = objects::get(&fleet.client, &fleet.template()).await?.context("no template")?;
    let metadata = &template["spec"]["template"]["metadata"];
    assert_eq!(metadata["labels"], json!({"from": "template"}), "a round trip lost it");
    let mac = fleet.machine().await?;
    let (labels, notes) = (&mac["metadata"]["labels"], &mac["metadata"]["annotations"]);
    assert_eq!(labels["from"], "template");
    assert_eq!(notes["tuist.dev/release-policy"], "recycle");
    assert_eq!(labels["tuist.dev/fleet"], "macs", "the MachineDeployment's own labels come too");
    assert_eq!(notes["cluster.x-k8s.io/cloned-from-name"], "macs");
    assert_eq!(
        mac["spec"], template["spec"]["template"]["spec"],
        "a clone's spec is its template's"
    );
    fleet.delete().await
}

/// Under either contract, what our Machine says becomes Cluster API's: provisioned, provider ID,
/// addresses; and a Ready that turns False, with its reason, message and time.
pub async fn cluster_api_believes_what_our_machine_says_under_both_contracts(
    ground: &mut Ground,
) -> Result<()> {
    let provisioned = json!({"initialization": {"provisioned": true}});
    believes(ground, "v1beta2", &provisioned).await.context("under v1beta2")?;
    let client = ground.client().await?;
    let label = |value: Value| json!({"metadata": {"labels": {"cluster.x-k8s.io/v1beta2": value}}});
    for definition in definitions(ground).await? {
        objects::merge(&client, &definition, &label(Value::Null)).await?;
    }
    let believed = believes(ground, "v1beta1", &json!({"ready": true})).await;
    // The ground is shared: the label comes back whatever happened.
    for definition in &looked_at()? {
        objects::merge(&client, definition, &label(json!("v1alpha1"))).await?;
    }
    believed.context("under v1beta1")
}

async fn believes(ground: &mut Ground, contract: &str, provisioned: &Value) -> Result<()> {
    let fleet = Fleet::create(ground, contract).await?;
    let mac = fleet.machine().await?;
    let name = objects::name(&mac)?.to_owned();
    // A Machine takes its InfraMachine over before it reads anything of it.
    let owned = |mac: &Value| mac["metadata"]["ownerReferences"][0]["kind"] == "Machine";
    objects::until(&fleet.client, &mac, "the Machine to own its Mac", owned).await?;
    let id = "scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e";
    objects::merge(&fleet.client, &mac, &json!({"spec": {"providerID": id}})).await?;
    let mut status = provisioned.clone();
    status["addresses"] = json!([{"type": "ExternalIP", "address": "192.0.2.7"}]);
    status["conditions"] = json!([ready("True", "Ready", "", "2026-05-19T10:11:12Z")]);
    objects::merge_status(&fleet.client, &mac, &json!({"status": status})).await?;
    let machine = objects::named(CLUSTER_API, "Machine", &fleet.namespace, &name);
    let told =
        objects::until(&fleet.client, &machine, "the Machine to be provisioned", |machine| {
            machine["status"]["initialization"]["infrastructureProvisioned"] == true
                && infrastructure(machine)["status"] == "True"
        })
        .await?;
    assert_eq!(told["spec"]["providerID"], id);
    assert_eq!(told["status"]["addresses"], status["addresses"]);
    let lost = ready("False", "HostGone", "the host is gone", "2026-05-20T10:11:12Z");
    let status = json!({"status": {"conditions": [lost]}});
    objects::merge_status(&fleet.client, &mac, &status).await?;
    let told = objects::until(&fleet.client, &machine, "the Machine to hear of it", |machine| {
        infrastructure(machine)["status"] == "False"
    })
    .await?;
    for field in ["reason", "message", "lastTransitionTime"] {
        assert_eq!(infrastructure(&told)[field], lost[field], "{field}");
    }
    assert_eq!(told["status"]["initialization"]["infrastructureProvisioned"], true);
    fleet.delete().await
}

fn ready(status: &str, reason: &str, message: &str, since: &str) -> Value {
    json!({"type": "Ready", "status": status, "reason": reason, "message": message,
           "lastTransitionTime": since})
}

/// The Machine's condition about its infrastructure.
fn infrastructure(machine: &Value) -> &Value {
    let conditions = machine["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions = conditions.filter(|c| c["type"] == "InfrastructureReady");
    conditions.next().unwrap_or(&Value::Null)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn reference(kind: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": kind, "name": "macs"})
}

/// A Cluster with a `MachineDeployment` of one Mac, in a namespace of its own. Nobody plays the
/// provider but the scenario.
struct Fleet {
    client: Client,
    namespace: String,
}

impl Fleet {
    async fn create(ground: &mut Ground, story: &str) -> Result<Self> {
        let (client, namespace) = (ground.client().await?, ground.namespace(story).await?);
        let fleet = Self { client, namespace };
        for part in [fleet.infra_cluster(), fleet.cluster(), fleet.secret(), fleet.template()] {
            objects::create(&fleet.client, &part, false).await?;
        }
        let there = json!({"status": {"ready": true, "initialization": {"provisioned": true}}});
        objects::merge_status(&fleet.client, &fleet.infra_cluster(), &there).await?;
        objects::create(&fleet.client, &fleet.deployment(), false).await?;
        Ok(fleet)
    }

    fn infra_cluster(&self) -> Value {
        let mut cluster = self.named(INFRASTRUCTURE, "ScalewayAppleSiliconCluster");
        cluster["spec"] = json!({"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}});
        cluster
    }

    fn cluster(&self) -> Value {
        let mut cluster = self.named(CLUSTER_API, "Cluster");
        cluster["spec"] = json!({
            "infrastructureRef": reference("ScalewayAppleSiliconCluster"),
            "controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443},
        });
        cluster
    }

    /// What a Machine is bootstrapped with, to Cluster API: nothing.
    fn secret(&self) -> Value {
        let mut secret = self.named("v1", "Secret");
        secret["stringData"] = json!({"value": ""});
        secret
    }

    fn template(&self) -> Value {
        let mut template = self.named(INFRASTRUCTURE, "ScalewayAppleSiliconMachineTemplate");
        template["spec"]["template"] = json!({
            "metadata": {
                "labels": {"from": "template"},
                "annotations": {"tuist.dev/release-policy": "recycle"},
            },
            "spec": {"adoptPoolPrefix": "tuist-pool-", "fleetName": "macs"},
        });
        template
    }

    fn deployment(&self) -> Value {
        let labels = json!({"cluster.x-k8s.io/cluster-name": "macs", "tuist.dev/fleet": "macs"});
        let mut deployment = self.named(CLUSTER_API, "MachineDeployment");
        let machine = json!({
            "clusterName": "macs", "version": "v1.36.4",
            "bootstrap": {"dataSecretName": "macs"},
            "infrastructureRef": reference("ScalewayAppleSiliconMachineTemplate"),
        });
        deployment["spec"] = json!({
            "clusterName": "macs", "replicas": 1, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": machine},
        });
        deployment
    }

    fn named(&self, version: &str, kind: &str) -> Value {
        objects::named(version, kind, &self.namespace, "macs")
    }

    /// The one Mac that Cluster API clones.
    async fn machine(&self) -> Result<Value> {
        let like = self.named(INFRASTRUCTURE, MACHINE);
        wait::until("a clone of the template", async || {
            Ok(objects::list(&self.client, &like).await?.into_iter().next())
        })
        .await
    }

    /// Deletes the Cluster, and waits until Cluster API took everything with it.
    async fn delete(self) -> Result<()> {
        objects::delete(&self.client, &self.cluster()).await?;
        wait::until("the Cluster to go", async || {
            Ok(objects::get(&self.client, &self.cluster()).await?.is_none().then_some(()))
        })
        .await?;
        let left = objects::list(&self.client, &self.named(INFRASTRUCTURE, MACHINE)).await?;
        ensure!(left.is_empty(), "Macs are left: {left:?}");
        Ok(())
    }
}
