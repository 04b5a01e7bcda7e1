//! What a runner looks like: its Pod and its `ServiceAccount`, as the CI server and the agent know
//! them. Pure.

use std::collections::{BTreeMap, BTreeSet};

use applecart_api::keys::{TAINT_MACOS, TAINTS_SILENT, label};
use applecart_api::runner_pool::RunnerPoolSpec;
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const DEFAULT_CPU_MILLI: i64 = 8000;
const DEFAULT_MEMORY_MB: i64 = 14336;

fn metadata(name: &str, pool: &str, component: &str, owner: &OwnerReference) -> ObjectMeta {
    let labels = BTreeMap::from([
        ("app.kubernetes.io/name".to_owned(), "tuist-runner".to_owned()),
        ("app.kubernetes.io/component".to_owned(), component.to_owned()),
        (label::RUNNER_POOL.to_owned(), pool.to_owned()),
    ]);
    ObjectMeta {
        name: Some(name.to_owned()),
        labels: Some(labels),
        owner_references: Some(vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

/// Eight hexadecimal digits that differ for each pool, each of its versions, and each set of names
/// that are taken: a pool that a runner came to or left was told so since.
#[must_use]
pub fn suffix(pool_uid: &str, version: &str, taken: &BTreeSet<&str>) -> String {
    let digest = Sha256::digest(format!("{pool_uid}/{version}/{taken:?}"));
    digest.iter().take(4).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// The `ServiceAccount` of a runner.
#[must_use]
pub fn account(name: &str, pool: &str, owner: &OwnerReference) -> ServiceAccount {
    ServiceAccount {
        metadata: metadata(name, pool, "runner-sa", owner),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// A Mac that nobody hears of may work on: Kubernetes shall not take a runner away for that, since
/// its agent would end the job as soon as it is back (S37, G15). Without this it does after five
/// minutes. Which runners are of no use there, the pool itself decides.
fn tolerations() -> Value {
    let tolerate =
        |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
    let silent = TAINTS_SILENT.map(|key| tolerate(key, "NoExecute"));
    [tolerate(TAINT_MACOS, "NoSchedule")].into_iter().chain(silent).collect()
}

/// The Pod of a runner.
#[must_use]
pub fn pod(
    name: &str,
    pool: &str,
    spec: &RunnerPoolSpec,
    dispatch_url: &str,
    owner: &OwnerReference,
) -> Pod {
    let mut metadata = metadata(name, pool, "runner", owner);
    metadata.labels.get_or_insert_default().insert(label::RUNNER.to_owned(), "true".to_owned());
    let size = json!({
        "cpu": format!("{}m", spec.pod_cpu_milli.unwrap_or(DEFAULT_CPU_MILLI)),
        "memory": format!("{}Mi", spec.pod_memory_mb.unwrap_or(DEFAULT_MEMORY_MB)),
    });
    let field = |path: &str| json!({"fieldRef": {"fieldPath": path}});
    let mut shape = json!({
        "restartPolicy": "Never",
        "serviceAccountName": name,
        "automountServiceAccountToken": true,
        "nodeSelector": {
            "kubernetes.io/os": "darwin",
            label::RUNTIME: label::RUNTIME_TART,
            label::FLEET: spec.fleet_selector,
        },
        "tolerations": tolerations(),
        "containers": [{
            "name": "runner",
            "image": spec.image,
            "resources": {"requests": size, "limits": size},
            "env": [
                {"name": "TUIST_RUNNER_DISPATCH_URL", "value": dispatch_url},
                {"name": "TUIST_RUNNER_POOL", "value": pool},
                {"name": "TUIST_RUNNER_POD_NAME", "valueFrom": field("metadata.name")},
                {"name": "TUIST_RUNNER_POD_UID", "valueFrom": field("metadata.uid")},
            ],
        }],
    });
    if let Some(class) = &spec.runtime_class {
        shape["runtimeClassName"] = json!(class);
    }
    Pod {
        metadata,
        spec: Some(serde_json::from_value(shape).expect("a Pod spec")),
        ..Pod::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runner_has_the_names_that_the_ci_server_looks_for() {
        let spec = RunnerPoolSpec {
            image: "image@sha256:0".into(),
            fleet_selector: "fleet".into(),
            ..RunnerPoolSpec::default()
        };
        let owner = OwnerReference { name: "pool".into(), ..OwnerReference::default() };
        let made = pod("pool-runner-1", "pool", &spec, "https://ci.example/dispatch", &owner);
        let made = serde_json::to_value(made).unwrap();
        assert_eq!(made["metadata"]["labels"]["tuist.dev/runner"], "true");
        assert_eq!(made["metadata"]["labels"]["tuist.dev/runner-pool"], "pool");
        assert_eq!(made["spec"]["nodeSelector"]["tuist.dev/fleet"], "fleet");
        let exists =
            |key: &str, effect: &str| json!({"key": key, "operator": "Exists", "effect": effect});
        // A toleration with a number of seconds would be a limit for jobs on a silent Mac.
        let tolerations = [
            exists("tuist.dev/macos", "NoSchedule"),
            exists("node.kubernetes.io/not-ready", "NoExecute"),
            exists("node.kubernetes.io/unreachable", "NoExecute"),
        ];
        assert_eq!(made["spec"]["tolerations"], json!(tolerations));
        let container = &made["spec"]["containers"][0];
        assert_eq!(container["resources"]["limits"], json!({"cpu": "8000m", "memory": "14336Mi"}));
        let names: Vec<_> =
            container["env"].as_array().unwrap().iter().map(|env| env["name"].clone()).collect();
        assert_eq!(
            names,
            [
                "TUIST_RUNNER_DISPATCH_URL",
                "TUIST_RUNNER_POOL",
                "TUIST_RUNNER_POD_NAME",
                "TUIST_RUNNER_POD_UID"
            ]
        );
        let account = account("pool-runner-1", "pool", &owner);
        assert_eq!(account.automount_service_account_token, Some(false));
    }
}
