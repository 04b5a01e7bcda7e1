//! The built-in kinds, made once and shared.

use std::sync::{Arc, LazyLock};

use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, Namespace, Node, Pod, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::events::v1::Event as NewerEvent;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use super::builtin_columns as columns;
use super::column::path;
use super::kind::{Kind, Nature, Scale, StatusRule};

/// Every built-in kind.
pub(crate) static BUILT_IN: LazyLock<Vec<Arc<Kind>>> =
    LazyLock::new(|| built_in().into_iter().map(Arc::new).collect());

fn built_in() -> Vec<Kind> {
    let mut kinds = core();
    kinds.extend(workloads());
    kinds.extend(cluster());
    kinds
}

fn core() -> Vec<Kind> {
    let newer_events = Kind {
        store: "events".into(),
        ..Kind::built_in::<NewerEvent>("event")
            .short(&["ev"])
            .nature(Nature::NewerEvent)
            .columns(columns::events())
    };
    vec![
        Kind::built_in::<Namespace>("namespace")
            .short(&["ns"])
            .cluster_wide()
            .nature(Nature::Namespace)
            .status(StatusRule::Isolated)
            .columns(columns::namespaces()),
        Kind::built_in::<Node>("node")
            .short(&["no"])
            .cluster_wide()
            .status(StatusRule::WithMetadata)
            .columns(columns::nodes()),
        Kind::built_in::<Pod>("pod")
            .short(&["po"])
            .in_all()
            .nature(Nature::Pod)
            .status(StatusRule::WithMetadata)
            .with_generation()
            .actions(&["binding", "eviction"])
            .columns(columns::pods()),
        Kind::built_in::<Secret>("secret").nature(Nature::Secret).columns(columns::secrets()),
        Kind::built_in::<ConfigMap>("configmap").short(&["cm"]).columns(columns::config_maps()),
        Kind::built_in::<ServiceAccount>("serviceaccount")
            .short(&["sa"])
            .nature(Nature::ServiceAccount)
            .actions(&["token"])
            .columns(columns::service_accounts()),
        Kind::built_in::<Service>("service")
            .short(&["svc"])
            .in_all()
            .status(StatusRule::WithMetadata)
            .columns(columns::services()),
        Kind::built_in::<Event>("event")
            .short(&["ev"])
            .nature(Nature::Event)
            .columns(columns::events()),
        newer_events,
    ]
}

fn workloads() -> Vec<Kind> {
    let scaled = |mut kind: Kind| {
        kind.versions[0].scale = Some(Scale {
            spec_replicas: path(".spec.replicas"),
            status_replicas: path(".status.replicas"),
            selector: None,
        });
        kind.in_all().status(StatusRule::Isolated).with_generation()
    };
    let lease = Kind::built_in::<Lease>("lease").columns(columns::leases());
    vec![
        scaled(Kind::built_in::<Deployment>("deployment").short(&["deploy"]))
            .columns(columns::deployments()),
        scaled(Kind::built_in::<ReplicaSet>("replicaset").short(&["rs"]))
            .columns(columns::replica_sets()),
        Kind { unconditional_update: false, ..lease },
        Kind::built_in::<PodDisruptionBudget>("poddisruptionbudget")
            .short(&["pdb"])
            .status(StatusRule::Isolated)
            .with_generation()
            .columns(columns::budgets()),
    ]
}

fn cluster() -> Vec<Kind> {
    vec![
        Kind::built_in::<ClusterRole>("clusterrole").cluster_wide().columns(columns::created()),
        Kind::built_in::<ClusterRoleBinding>("clusterrolebinding")
            .cluster_wide()
            .columns(columns::bindings()),
        Kind::built_in::<Role>("role").columns(columns::created()),
        Kind::built_in::<RoleBinding>("rolebinding").columns(columns::bindings()),
        Kind {
            unconditional_update: false,
            ..Kind::built_in::<CustomResourceDefinition>("customresourcedefinition")
                .short(&["crd", "crds"])
                .category("api-extensions")
                .cluster_wide()
                .nature(Nature::Definition)
                .status(StatusRule::Isolated)
                .with_generation()
                .columns(columns::created())
        },
        Kind::built_in::<CertificateSigningRequest>("certificatesigningrequest")
            .short(&["csr"])
            .cluster_wide()
            .nature(Nature::SigningRequest)
            .status(StatusRule::Isolated)
            .actions(&["approval"])
            .columns(columns::signing_requests()),
    ]
}
