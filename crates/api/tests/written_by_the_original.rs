//! Objects as the system before us wrote them: each must read, and write back unchanged (S15).

use applecart_api::cluster::ScalewayAppleSiliconCluster;
use applecart_api::machine::{ScalewayAppleSiliconMachine, ScalewayAppleSiliconMachineTemplate};
use applecart_api::runner_pool::RunnerPool;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn unchanged<K: DeserializeOwned + Serialize>(object: &Value) {
    let read: K = serde_json::from_value(object.clone()).expect("readable");
    assert_eq!(&serde_json::to_value(read).unwrap(), object);
}

fn infrastructure(kind: &str, rest: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "fleet-abcde-f7k2p", "namespace": "tuist", "uid": "u-1"},
    });
    for (key, value) in rest.as_object().unwrap() {
        object[key] = value.clone();
    }
    object
}

#[test]
fn a_machine_in_full() {
    unchanged::<ScalewayAppleSiliconMachine>(&infrastructure(
        "ScalewayAppleSiliconMachine",
        &json!({
            "spec": {
                "adoptPoolPrefix": "tuist-pool-", "type": "M2-L", "zone": "fr-par-1",
                "os": "macos-tahoe-26.3", "fleetName": "tuist-tuist-macos-fleet",
                "providerID":
                    "scw-applesilicon://fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
                "hostCPU": 8, "hostMemoryMB": 14336, "kubeletVersion": "1.32.1",
                "ghActionsRunner": {
                    "ghOrg": "tuist", "ghRunnerLabels": "self-hosted,macos",
                    "ghRunnerVersion": "2.334.0", "ghAppSecretName": "builders-gh-app"
                }
            },
            "status": {
                "ready": true, "serverID": "5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e",
                "addresses": [{"type": "ExternalIP", "address": "192.0.2.7"}],
                "phase": "Ready",
                "conditions": [
                    {"type": "Bootstrapped", "status": "True",
                     "lastTransitionTime": "2026-05-19T10:11:12Z"},
                    {"type": "Provisioned", "status": "False", "severity": "Warning",
                     "reason": "HostReleased", "message": "swapped",
                     "lastTransitionTime": "2026-05-19T10:11:12Z"}
                ],
                "tartKubeletBinarySHA": "00ff", "tartKubeletUpdateAttempts": 2,
                "bootstrapAttempts": 3, "bootstrapRebootIssued": true,
                "failureReason": "TartKubeletUpdateExceededRetries", "failureMessage": "x"
            }
        }),
    ));
}

#[test]
fn a_machine_older_than_every_default() {
    unchanged::<ScalewayAppleSiliconMachine>(&infrastructure(
        "ScalewayAppleSiliconMachine",
        &json!({"spec": {}}),
    ));
}

#[test]
fn a_template_and_a_cluster() {
    unchanged::<ScalewayAppleSiliconMachineTemplate>(&infrastructure(
        "ScalewayAppleSiliconMachineTemplate",
        &json!({"spec": {"template": {"spec": {"adoptPoolPrefix": "tuist-pool-"}}}}),
    ));
    unchanged::<ScalewayAppleSiliconMachineTemplate>(&infrastructure(
        "ScalewayAppleSiliconMachineTemplate",
        &json!({"spec": {"template": {
            "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "spec": {"zone": "fr-par-3"}
        }}}),
    ));
    unchanged::<ScalewayAppleSiliconCluster>(&infrastructure(
        "ScalewayAppleSiliconCluster",
        &json!({
            "spec": {"controlPlaneEndpoint": {"host": "127.0.0.1", "port": 6443}},
            "status": {"ready": true}
        }),
    ));
}

#[test]
fn a_pool_with_explicit_zeros_keeps_them() {
    // R10: an explicit 0 turned into 1 when the controller wrote the whole object back.
    unchanged::<RunnerPool>(&json!({
        "apiVersion": "tuist.dev/v1alpha1", "kind": "RunnerPool",
        "metadata": {
            "name": "pool", "namespace": "tuist-runners",
            "finalizers": ["tuist.dev/runner-pool-drain"]
        },
        "spec": {
            "image": "ghcr.example/runner@sha256:0", "fleetSelector": "f", "dispatchLabel": "d",
            "runnerLabels": ["self-hosted"], "replicas": 0, "os": "darwin",
            "podCPUMilli": 8000, "podMemoryMB": 14336,
            "autoscaling": {
                "enabled": true, "minWarmPoolFloor": 0, "maxReplicas": 0,
                "scaleDownCooldownSeconds": 0
            }
        },
        "status": {
            "observedReplicas": 4, "lastReconcile": "2026-05-19T10:11:12Z",
            "imageRolledAt": "2026-05-19T10:11:12Z", "observedImage": "x"
        }
    }));
}
