//! Our definitions on a real API server: what they accept, refuse, fill in and show.

use anyhow::{Context, Result, ensure};
use http::Request;
use http::header::ACCEPT;
use serde_json::{Value, json};

use crate::ground::{Ground, our_definitions};
use crate::objects;

pub(super) const INFRASTRUCTURE: &str = "infrastructure.cluster.x-k8s.io/v1alpha1";
pub(super) const MACHINE: &str = "ScalewayAppleSiliconMachine";
const POOLS: &str = "tuist.dev/v1alpha1";

fn pool(namespace: &str, name: &str, more: &Value) -> Value {
    let mut pool = objects::named(POOLS, "RunnerPool", namespace, name);
    pool["spec"] = json!({
        "image": "runner@sha256:0", "fleetSelector": "macs", "dispatchLabel": "macos",
        "runnerLabels": ["self-hosted"],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        pool["spec"][key] = value.clone();
    }
    pool
}

fn machine(namespace: &str, name: &str, spec: Value) -> Value {
    let mut machine = objects::named(INFRASTRUCTURE, MACHINE, namespace, name);
    machine["spec"] = spec;
    machine
}

/// The chart's definitions are taken as they are, twice, and served.
pub async fn our_definitions_are_accepted_and_established(ground: &mut Ground) -> Result<()> {
    ensure!(our_definitions()?.len() == 5, "the chart has another number of definitions");
    ground.definitions().await?;
    ground.definitions().await?;
    let names = ground.kubectl(&["api-resources", "--no-headers", "-o", "name"]).await?;
    for definition in our_definitions()? {
        let name = objects::name(&definition)?;
        ensure!(names.lines().any(|line| line == name), "{name} is not served:\n{names}");
        let status = objects::get(&ground.client().await?, &definition).await?;
        let conditions = status.context("it was just applied")?["status"]["conditions"].to_string();
        ensure!(!conditions.contains("NonStructuralSchema"), "{name}: {conditions}");
    }
    Ok(())
}

/// What an object does not say is filled in when it is stored; what it says stays, zeros included.
pub async fn defaults_fill_in_what_an_object_does_not_say(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let (client, namespace) = (ground.client().await?, ground.namespace("defaults").await?);
    let spec = json!({"zone": "fr-par-3", "ghActionsRunner": {}});
    let stored = objects::create(&client, &machine(&namespace, "m", spec), false).await?;
    let runner = json!({
        "ghOrg": "tuist",
        "ghRunnerLabels": "self-hosted,macos,bare-metal,vm-image-builder",
    });
    assert_eq!(
        stored["spec"],
        json!({"type": "M2-L", "zone": "fr-par-3", "os": "macos-tahoe-26.3",
               "ghActionsRunner": runner})
    );
    let zeros = json!({"minWarmPoolFloor": 0, "scaleDownCooldownSeconds": 0});
    let stored = pool(&namespace, "p", &json!({"autoscaling": zeros}));
    let stored = objects::create(&client, &stored, false).await?;
    let spec = &stored["spec"];
    assert_eq!(
        json!([spec["replicas"], spec["os"], spec["podCPUMilli"], spec["podMemoryMB"]]),
        json!([0, "darwin", 8000, 14336])
    );
    assert_eq!(
        spec["autoscaling"],
        json!({"enabled": false, "maxReplicas": 0, "minWarmPoolFloor": 0,
               "scaleDownCooldownSeconds": 0})
    );
    Ok(())
}

/// Values that can never work are refused at the door, and so is a change that would need another
/// host; the refusal says what to do.
pub async fn rules_refuse_what_cannot_work_and_say_what_to_do(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let (client, namespace) = (ground.client().await?, ground.namespace("rules").await?);
    let refused = |answer: Result<Value>, text: &str| -> Result<()> {
        let error = format!("{:#}", answer.err().with_context(|| format!("no {text:?}"))?);
        ensure!(error.contains(text), "{text:?} is not in: {error}");
        Ok(())
    };
    for (wrong, text) in [
        (machine(&namespace, "m", json!({"adoptPoolPrefix": ""})), "at least 1 char"),
        (machine(&namespace, "m", json!({"zone": 1})), "must be of type string"),
        (pool(&namespace, "p", &json!({"replicas": -1})), "greater than or equal to 0"),
        (pool(&namespace, "p", &json!({"os": "windows"})), "supported values"),
    ] {
        refused(objects::create(&client, &wrong, true).await, text)?;
    }
    let stored = machine(&namespace, "m", json!({"zone": "fr-par-1", "fleetName": "macs"}));
    objects::create(&client, &stored, false).await?;
    for (field, value) in [("type", "M4-S"), ("zone", "fr-par-3"), ("fleetName", "others")] {
        let change = json!({"spec": {field: value}});
        let advice = format!("spec.{field} cannot change once set: make a new template");
        refused(objects::merge(&client, &stored, &change).await, &advice)?;
    }
    let free = json!({"spec": {"hostCPU": 10, "providerID": "scw-applesilicon://fr-par-1/x"}});
    objects::merge(&client, &stored, &free).await?;
    Ok(())
}

/// `kubectl get` shows a Mac's life in one line.
pub async fn columns_show_what_an_operator_asks_first(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let (client, namespace) = (ground.client().await?, ground.namespace("columns").await?);
    let mac = machine(&namespace, "mac-1", json!({"providerID": "scw-applesilicon://z/s"}));
    objects::create(&client, &mac, false).await?;
    let bootstrap = json!({"display": "3/9 power", "index": 3, "total": 9, "step": "power"});
    let status = json!({
        "phase": "Bootstrapping", "ready": false, "nodeName": "mac-1", "serverID": "s",
        "lastReason": "Bootstrapping", "bootstrap": bootstrap, "since": "2020-02-01T00:00:00Z",
    });
    objects::merge_status(&client, &mac, &json!({"status": status})).await?;
    let path =
        format!("/apis/{INFRASTRUCTURE}/namespaces/{namespace}/scalewayapplesiliconmachines");
    let request = Request::get(path)
        .header(ACCEPT, "application/json;as=Table;g=meta.k8s.io;v=v1")
        .body(Vec::new())?;
    let table: Value = client.request(request).await?;
    let columns: Vec<_> =
        table["columnDefinitions"].as_array().into_iter().flatten().map(|c| &c["name"]).collect();
    let wanted =
        ["Name", "Phase", "ProviderID", "Ready", "Step", "Node", "Reason", "Since", "Age", "Host"];
    assert_eq!(columns, wanted);
    let cells = &table["rows"][0]["cells"];
    for (index, cell) in [
        (0, json!("mac-1")),
        (1, json!("Bootstrapping")),
        (2, json!("scw-applesilicon://z/s")),
        (3, json!(false)),
        (4, json!("3/9 power")),
        (5, json!("mac-1")),
        (6, json!("Bootstrapping")),
        (9, json!("s")),
    ] {
        assert_eq!(cells[index], cell, "{}", wanted[index]);
    }
    let since = cells[7].as_str().unwrap_or_default();
    ensure!(since.contains('y'), "since years, not {since:?}");
    let shown = ground.kubectl(&["get", "samm", "--namespace", &namespace]).await?;
    let header: Vec<&str> = shown.lines().next().unwrap_or_default().split_whitespace().collect();
    let wanted = ["NAME", "PHASE", "PROVIDERID", "READY", "STEP", "NODE", "REASON", "SINCE", "AGE"];
    assert_eq!(header, wanted);
    Ok(())
}

/// A user's write cannot fake a status, and a controller's cannot change what the user wants.
pub async fn spec_and_status_do_not_touch_each_other(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let (client, namespace) = (ground.client().await?, ground.namespace("status").await?);
    let mut mac = machine(&namespace, "mac-1", json!({"hostCPU": 8}));
    mac["status"] = json!({"phase": "Ready", "ready": true});
    let stored = objects::create(&client, &mac, false).await?;
    ensure!(stored.get("status").is_none(), "created with a status: {stored:#}");
    let stored = objects::merge_status(
        &client,
        &mac,
        &json!({"spec": {"hostCPU": 1}, "metadata": {"labels": {"a": "b"}},
                "status": {"phase": "Pending"}}),
    )
    .await?;
    assert_eq!(stored["spec"]["hostCPU"], 8);
    assert_eq!(stored["status"], json!({"phase": "Pending"}));
    assert_eq!(stored["metadata"]["generation"], 1, "a status is not a new generation");
    let change = json!({"spec": {"hostCPU": 10}, "status": {"phase": "Ready"}});
    let stored = objects::merge(&client, &mac, &change).await?;
    assert_eq!(stored["spec"]["hostCPU"], 10);
    assert_eq!(stored["status"], json!({"phase": "Pending"}));
    assert_eq!(stored["metadata"]["generation"], 2);
    Ok(())
}

/// `kubectl scale` works on a pool, as it does on a Deployment.
pub async fn a_pool_is_scaled_like_a_deployment(ground: &mut Ground) -> Result<()> {
    ground.definitions().await?;
    let (client, namespace) = (ground.client().await?, ground.namespace("scale").await?);
    let runners = pool(&namespace, "runners", &json!({"replicas": 1}));
    objects::create(&client, &runners, false).await?;
    let scale = ["scale", "runnerpool", "runners", "--replicas=3", "--namespace", &namespace];
    ground.kubectl(&scale).await?;
    let stored = objects::get(&client, &runners).await?.context("it was just scaled")?;
    assert_eq!(stored["spec"]["replicas"], 3);
    Ok(())
}
