//! Who has a name, among objects that share it. Reads only.

use applecart_api::ids::ServerId;
use applecart_api::keys::{annotation, owned};
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_core::machine::Name;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt};

use super::Turn;
use crate::calls::{self, ReadError};
use crate::provider::Context;
use crate::provider::memory::slim;

/// Who has the object's name: whoever signed the account of its agent, and lives. One that nobody
/// signed, as the system before us left it, is that of the namesake that has a host.
pub async fn holder(context: &Context, turn: &Turn) -> Result<Name, ReadError> {
    let object = &turn.seen.object;
    let Some(account) = account(context, turn).await? else { return Ok(Name::Free(None)) };
    let free = Name::Free(account.resource_version);
    let signed = account.annotations.unwrap_or_default().remove(annotation::OWNER);
    let other = match signed {
        Some(owner) if owner.ends_with(object.uid.as_str()) => return Ok(Name::Ours),
        Some(owner) => living(context, &owner).await?,
        None => {
            let namesakes = namesakes(context, turn).await?;
            namesakes.iter().find(|namesake| !servers(namesake).is_empty()).map(display)
        }
    };
    Ok(other.map_or(free, Name::Other))
}

/// The account of the agent of the object's name.
pub async fn account(context: &Context, turn: &Turn) -> Result<Option<ObjectMeta>, ReadError> {
    let name = &turn.seen.object.name;
    let accounts: Api<ServiceAccount> =
        Api::namespaced(context.client.clone(), &context.settings.namespace);
    let agent = owned::agent(name);
    let read = async {
        let account = accounts.get_metadata_opt(&agent);
        let account = calls::read("its ServiceAccount", account).await?;
        Ok(account.map(|account| slim(account).metadata))
    };
    context.memory.accounts.get(name, &turn.reading, Box::pin(read)).await
}

/// The object that signed as `owner`, if it lives.
async fn living(context: &Context, owner: &str) -> Result<Option<String>, ReadError> {
    let mut parts = owner.split('/');
    let (Some(namespace), Some(name), Some(uid)) = (parts.next(), parts.next(), parts.next())
    else {
        return Ok(None);
    };
    let objects: Api<ScalewayAppleSiliconMachine> =
        Api::namespaced(context.client.clone(), namespace);
    let found = calls::read("the object that has its name", objects.get_opt(name)).await?;
    Ok(found.filter(|found| found.uid().as_deref() == Some(uid)).map(|found| display(&found)))
}

/// All other objects of this name, in whatever namespace.
pub async fn namesakes(
    context: &Context,
    turn: &Turn,
) -> Result<Vec<ScalewayAppleSiliconMachine>, ReadError> {
    let object = &turn.seen.object;
    let all: Api<ScalewayAppleSiliconMachine> = Api::all(context.client.clone());
    let same = ListParams::default().fields(&format!("metadata.name={}", object.name));
    let mut found = calls::read("objects of its name", all.list(&same)).await?.items;
    found.retain(|found| found.uid().as_deref() != Some(object.uid.as_str()));
    Ok(found)
}

/// The hosts that an object names in status and spec.
pub fn servers(object: &ScalewayAppleSiliconMachine) -> Vec<ServerId> {
    let status = object.status.as_ref().and_then(|status| status.server_id.as_deref());
    let spec = object.spec.provider_id.as_deref().and_then(|id| id.rsplit('/').next());
    status.into_iter().chain(spec).filter_map(|id| id.parse().ok()).collect()
}

/// How people call it.
pub fn display(object: &ScalewayAppleSiliconMachine) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}
