//! What belongs to one object in Kubernetes, besides that: read, and removed one by one.

use std::collections::BTreeMap;

use applecart_api::keys::{finalizer, owned};
use applecart_core::Outcome;
use applecart_core::machine::{Action, Exactly, Identity};
use k8s_openapi::api::core::v1::{Node, Pod, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::observe::chain;
use crate::calls::{self, ReadError};

/// Parts of an agent's identity, each as it was read.
type Parts = BTreeMap<Identity, Exactly>;

/// What is left of one object, or stands around it while it lives.
pub struct Left<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// Namespace of Secrets and agents' accounts.
    pub namespace: &'a str,
    /// The object's name.
    pub machine: &'a str,
}

impl Left<'_> {
    /// Removes one thing.
    pub async fn remove(&self, action: &Action) -> Outcome {
        match action {
            Action::DeleteCredentials(exactly) => {
                delete(self.secrets(), &owned::credentials(self.machine), exactly).await
            }
            Action::DeleteIdentity { part, exactly } => self.delete_identity(*part, exactly).await,
            Action::DeleteGuest { namespace, name, uid, version, force } => {
                let how = DeleteParams {
                    preconditions: Some(Preconditions {
                        uid: Some(uid.clone()),
                        resource_version: Some(version.clone()),
                    }),
                    grace_period_seconds: force.then_some(0),
                    ..DeleteParams::default()
                };
                calls::delete(self.pods(namespace).delete(name, &how)).await
            }
            Action::FreeGuest { namespace, name, uid } => self.free(namespace, name, uid).await,
            Action::DeleteNode { uid } => {
                let nodes: Api<Node> = Api::all(self.client.clone());
                let preconditions =
                    Preconditions { uid: Some(uid.clone()), resource_version: None };
                let how = DeleteParams::default().preconditions(preconditions);
                calls::delete(nodes.delete(self.machine, &how)).await
            }
            _ => unreachable!("{} removes nothing", action.describe()),
        }
    }

    /// The agent's account.
    pub async fn account(&self) -> Result<Option<Exactly>, ReadError> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let agent = owned::agent(self.machine);
        let account = calls::read("its ServiceAccount", accounts.get_metadata_opt(&agent)).await?;
        Ok(account.as_ref().map(exactly))
    }

    /// The parts of the agent's identity that there are, `account` if it finds one, and the Secret
    /// of its token.
    pub async fn identity(
        &self,
        account: impl Future<Output = Result<Option<Exactly>, ReadError>>,
    ) -> Result<(Parts, Option<Secret>), ReadError> {
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        let agent = owned::agent(self.machine);
        let token = owned::agent_token(self.machine);
        let secrets = self.secrets();
        let (token, account, binding) = tokio::try_join!(
            biased;
            calls::read("its token", secrets.get_opt(&token)),
            account,
            calls::read("its ClusterRoleBinding", bindings.get_opt(&agent)),
        )?;
        let present = [
            (Identity::ServiceAccount, account),
            (Identity::Binding, binding.as_ref().map(exactly)),
            (Identity::Token, token.as_ref().map(exactly)),
        ];
        let there = present.into_iter().filter_map(|(part, exactly)| Some((part, exactly?)));
        Ok((there.collect(), token))
    }

    /// The Secret with the host's password.
    pub async fn credentials(&self) -> Result<Option<Secret>, ReadError> {
        let name = owned::credentials(self.machine);
        calls::read("its password", self.secrets().get_opt(&name)).await
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    fn pods(&self, namespace: &str) -> Api<Pod> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn delete_identity(&self, part: Identity, exactly: &Exactly) -> Outcome {
        let (client, agent) = (self.client.clone(), owned::agent(self.machine));
        match part {
            Identity::ServiceAccount => {
                let accounts: Api<ServiceAccount> = Api::namespaced(client, self.namespace);
                delete(accounts, &agent, exactly).await
            }
            Identity::Binding => {
                delete(Api::<ClusterRoleBinding>::all(client), &agent, exactly).await
            }
            Identity::Token => {
                delete(self.secrets(), &owned::agent_token(self.machine), exactly).await
            }
        }
    }

    /// Takes the agent's finalizer off a Pod, whichever others there are.
    async fn free(&self, namespace: &str, name: &str, uid: &str) -> Outcome {
        let pods = self.pods(namespace);
        let pod = match calls::read("a Pod", pods.get_opt(name)).await {
            Ok(Some(pod)) => pod,
            Ok(None) => return Outcome::Done,
            Err(error) => return Outcome::Failed(chain(&error)),
        };
        let others = |finalizer: &&String| *finalizer != finalizer::POD_VM;
        let left: Vec<&String> = pod.finalizers().iter().filter(others).collect();
        let change = json!({"metadata": {
            "uid": uid, "resourceVersion": pod.resource_version(), "finalizers": left,
        }});
        calls::write(pods.patch(name, &PatchParams::default(), &Patch::Merge(&change))).await
    }
}

/// What a stored object is known by, exactly.
pub fn exactly(object: &impl kube::Resource) -> Exactly {
    exactly_of(object.meta())
}

/// The same, of what says so itself.
pub fn exactly_of(meta: &ObjectMeta) -> Exactly {
    let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
    Exactly { uid: uid.unwrap_or_default(), version: version.unwrap_or_default() }
}

async fn delete<K>(api: Api<K>, name: &str, exactly: &Exactly) -> Outcome
where
    K: kube::Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Preconditions {
        uid: Some(exactly.uid.clone()),
        resource_version: Some(exactly.version.clone()),
    };
    let how = DeleteParams::default().preconditions(preconditions);
    calls::delete(api.delete(name, &how)).await
}
