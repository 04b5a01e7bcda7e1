//! What a person applies to get a fleet.

use std::collections::BTreeMap;

use applecart_api::keys::label;
use applecart_api::machine::ScalewayAppleSiliconMachineSpec;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::kind::Kind;

/// A Cluster without a control-plane object, its infrastructure, and one fleet in it: a template
/// and a `MachineDeployment`, both called as the fleet is.
#[derive(Clone, Debug)]
pub struct Manifests {
    /// The namespace that everything is in; created too.
    pub namespace: String,
    /// The name of the Cluster and of its infrastructure.
    pub cluster: String,
    /// The name of the fleet.
    pub fleet: String,
    /// How many Machines the fleet begins with.
    pub replicas: u32,
    /// The version that Nodes are asked to report; nothing is asked for if there is none.
    pub version: Option<String>,
    /// What each Mac of the fleet is; its `fleetName` is set to the fleet.
    pub machine: ScalewayAppleSiliconMachineSpec,
}

impl Manifests {
    /// The objects, in the order in which they are created.
    #[must_use]
    pub fn objects(&self) -> Vec<DynamicObject> {
        let spec = ScalewayAppleSiliconMachineSpec {
            fleet_name: Some(self.fleet.clone()),
            ..self.machine.clone()
        };
        let labels = BTreeMap::from([
            (label::CLUSTER_NAME, self.cluster.as_str()),
            (label::FLEET, self.fleet.as_str()),
        ]);
        let template = json!({ "template": { "metadata": { "labels": labels }, "spec": spec } });
        let namespace = ApiResource::erase::<Namespace>(&());
        let secret = ApiResource::erase::<Secret>(&());
        vec![
            DynamicObject::new(&self.namespace, &namespace).data(json!({})),
            // Cluster API waits for it to be named; a Mac's bootstrap reads nothing from it.
            self.object(&secret, &self.secret_name(), json!({ "stringData": { "value": "" } })),
            self.of_kind(Kind::InfrastructureCluster, &self.cluster, &json!({})),
            self.of_kind(Kind::Cluster, &self.cluster, &self.cluster_spec()),
            self.of_kind(Kind::InfrastructureTemplate, &self.fleet, &template),
            self.of_kind(Kind::Deployment, &self.fleet, &self.deployment_spec(&labels)),
        ]
    }

    /// Creates what is not there yet.
    pub async fn create(&self, client: &Client) -> kube::Result<()> {
        for object in self.objects() {
            let types = object.types.clone().unwrap_or_default();
            let gvk = kube::core::GroupVersionKind::try_from(&types)
                .expect("every manifest has a version and a kind");
            let resource = ApiResource::from_gvk(&gvk);
            let api: Api<DynamicObject> = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            match api.create(&PostParams::default(), &object).await {
                Err(kube::Error::Api(status)) if status.is_already_exists() => {}
                other => drop(other?),
            }
        }
        Ok(())
    }

    fn secret_name(&self) -> String {
        format!("{}-bootstrap-data", self.fleet)
    }

    fn cluster_spec(&self) -> Value {
        json!({ "infrastructureRef": reference(Kind::InfrastructureCluster, &self.cluster) })
    }

    fn deployment_spec(&self, labels: &BTreeMap<&str, &str>) -> Value {
        let mut machine = json!({
            "clusterName": self.cluster,
            "bootstrap": { "dataSecretName": self.secret_name() },
            "infrastructureRef": reference(Kind::InfrastructureTemplate, &self.fleet),
        });
        if let Some(version) = &self.version {
            machine["version"] = version.as_str().into();
        }
        json!({
            "clusterName": self.cluster,
            "replicas": self.replicas,
            "selector": { "matchLabels": labels },
            "template": { "metadata": { "labels": labels }, "spec": machine },
        })
    }

    fn of_kind(&self, kind: Kind, name: &str, spec: &Value) -> DynamicObject {
        self.object(&kind.resource(), name, json!({ "spec": spec }))
    }

    fn object(&self, resource: &ApiResource, name: &str, data: Value) -> DynamicObject {
        DynamicObject::new(name, resource).within(&self.namespace).data(data)
    }
}

fn reference(kind: Kind, name: &str) -> Value {
    let resource = kind.resource();
    json!({ "apiGroup": resource.group, "kind": resource.kind, "name": name })
}
