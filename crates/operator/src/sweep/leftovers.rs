//! What objects that are gone left in Kubernetes: found, and removed one by one (C5).

use std::collections::BTreeMap;
use std::fmt::Debug;

use applecart_api::ids::ProviderId;
use applecart_api::keys::label;
use applecart_core::Outcome;
use applecart_core::sweep::{Action, Belongings, CleanUp, Leftovers, Reason, clean_up};
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::de::DeserializeOwned;
use tracing::Instrument;

use super::{CONTROLLER, Sweep, observe};
use crate::calls::{self, ReadError};
use crate::effects::Effect;
use crate::provider::leftovers::{Left, exactly};
use crate::provider::{guests, node};

/// Things of one object that a cycle removes: six, and the Pods on its Node.
const TURNS_PER_OBJECT: usize = 64;

/// What there is besides objects, by the name of the object that it belongs to.
pub async fn belongings(sweep: &Sweep) -> Result<BTreeMap<String, Belongings>, ReadError> {
    let mut found: BTreeMap<String, Belongings> = BTreeMap::new();
    let (client, namespace) = (&sweep.client, &sweep.namespace);
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
    let mut names = names("the hosts' Secrets", &secrets).await?;
    names.append(&mut self::names("the agents' ServiceAccounts", &accounts).await?);
    names.append(&mut bound(sweep).await?);
    for name in names {
        found.entry(name).or_default().objects = true;
    }
    let macs = format!("{}={}", label::RUNTIME, label::RUNTIME_TART);
    let nodes: Api<Node> = Api::all(client.clone());
    let every = ListParams::default().labels(&macs);
    for node in calls::read("the Macs' Nodes", nodes.list(&every)).await? {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        if let Some(id) = id.and_then(|id| id.parse::<ProviderId>().ok()) {
            found.entry(node.name_any()).or_default().node = Some(id);
        }
    }
    Ok(found)
}

fn ours() -> ListParams {
    let provider = label::MANAGED_BY_PROVIDER;
    ListParams::default().labels(&format!("{}={provider},{}", label::MANAGED_BY, label::MACHINE))
}

/// Whose objects of a kind are, without what is in them.
async fn names<K>(what: &'static str, api: &Api<K>) -> Result<Vec<String>, ReadError>
where
    K: kube::Resource + Clone + DeserializeOwned + Debug,
{
    let list = calls::read(what, api.list_metadata(&ours())).await?;
    Ok(list.iter().filter_map(|object| object.labels().get(label::MACHINE).cloned()).collect())
}

/// Whose agents' bindings are. Those for accounts in another namespace are another provider's.
async fn bound(sweep: &Sweep) -> Result<Vec<String>, ReadError> {
    let bindings: Api<ClusterRoleBinding> = Api::all(sweep.client.clone());
    let list = calls::read("the agents' ClusterRoleBindings", bindings.list(&ours())).await?;
    let here = |binding: &&ClusterRoleBinding| {
        let mut subjects = binding.subjects.iter().flatten();
        subjects.all(|subject| subject.namespace.as_deref() == Some(&sweep.namespace))
    };
    let of = |binding: &ClusterRoleBinding| binding.labels().get(label::MACHINE).cloned();
    Ok(list.iter().filter(here).filter_map(of).collect())
}

impl Sweep {
    /// Removes what an object left, one thing a turn; or says why nobody can tell whose it is.
    pub(super) async fn clean_up(&self, task: &CleanUp) -> Result<(), Reason> {
        for _ in 0..TURNS_PER_OBJECT {
            let span = self.effects.turn(CONTROLLER, &task.machine);
            if !Box::pin(self.clean_up_turn(task)).instrument(span).await? {
                break;
            }
        }
        Ok(())
    }

    /// Whether another turn may follow at once.
    async fn clean_up_turn(&self, task: &CleanUp) -> Result<bool, Reason> {
        let left =
            Left { client: &self.client, namespace: &self.namespace, machine: &task.machine };
        // Objects come last, as everywhere.
        let read = async {
            let found = self.leftovers(&left).await.map_err(|error| observe::unreadable(&error))?;
            Ok((found, observe::owners(self).await?))
        };
        let (found, owners) = match read.await {
            Ok(read) => read,
            Err(reason) => {
                self.refuse(None, &reason);
                return Err(reason);
            }
        };
        let Some(action) = clean_up(task, &found, &owners) else { return Ok(false) };
        let effect = Effect {
            controller: CONTROLLER,
            object: &task.machine,
            word: Action::CLEAN_UP,
            detail: action.describe().to_owned(),
            reason: &Reason::CleaningUp,
        };
        let outcome = self.effects.perform(&effect, left.remove(&action)).await;
        Ok(outcome == Some(Outcome::Done))
    }

    async fn leftovers(&self, left: &Left<'_>) -> Result<Leftovers, ReadError> {
        let (identity, _) = left.identity(left.account()).await?;
        let credentials = left.credentials().await?.as_ref().map(exactly);
        let node = node(&self.client, left.machine).await?;
        let guests = guests(&self.client, left.machine).await?;
        Ok(Leftovers { identity, credentials, node, guests })
    }
}
