//! Bugs that tell what nobody should hear, or what was said before.

use std::time::Duration;

use applecart_mac::kcpassword;
use applecart_sim::world::{NAMESPACE, World};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use secrecy::ExposeSecret;
use serde_json::{Value, json};

use super::{provider, samms};
use crate::oracle::at_end;
use crate::story::{Story, builder, machines};

pub async fn tell_again(world: &World) -> bool {
    let about = json!({"kind": "Pod", "namespace": NAMESPACE, "name": "nobody"});
    let event = json!({
        "metadata": {"generateName": "chatter-"}, "involvedObject": about,
        "reason": "Chatter", "message": "as before", "type": "Normal",
    });
    let Ok(event) = serde_json::from_value::<Event>(event) else { return false };
    let events: Api<Event> = Api::namespaced(provider(world), NAMESPACE);
    events.create(&PostParams::default(), &event).await.is_ok()
}

pub async fn tell_hidden(world: &World) -> bool {
    let hosts = world.scaleway().hosts();
    let wiped = hosts.iter().find(|host| host.generation > 0);
    let passwords = wiped.map(|host| world.scaleway().passwords(&host.id)).unwrap_or_default();
    let Some(earlier) = passwords.first() else { return false };
    tell(world, &STANDARD.encode(kcpassword::encode(earlier))).await
}

pub async fn tell_password(world: &World) -> bool {
    let Some(password) = world.passwords().pop() else { return false };
    tell(world, &password).await
}

pub async fn tell_token(world: &World) -> bool {
    let stored: String = world.sight().objects("secrets").iter().map(ToString::to_string).collect();
    let kept = |token: &String| stored.contains(&STANDARD.encode(token));
    match world.sight().tokens().iter().find(|token| !kept(token)) {
        Some(token) => tell(world, token).await,
        None => false,
    }
}

pub async fn tell_app_key(world: &World) -> bool {
    // The one that no public key has.
    let lines = builder::PRIVATE_KEY.lines();
    let Some(line) = lines.max_by_key(|line| line.len()) else { return false };
    world.passwords().pop().is_some() && tell(world, line).await
}

pub async fn tell_scaleway_key(world: &World) -> bool {
    tell(world, world.scaleway().secret_key().expose_secret()).await
}

async fn tell(world: &World, secret: &str) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(provider(world), NAMESPACE);
    let map = json!({"metadata": {"name": "log"}, "data": {"line": format!("sudo {secret}")}});
    let Ok(map) = serde_json::from_value(map) else { return false };
    maps.create(&PostParams::default(), &map).await.is_ok()
}

/// Tells a password in an annotation, and takes it back two seconds later.
pub async fn take_back(world: &World) -> bool {
    let Some(password) = world.passwords().pop() else { return false };
    if !annotate(world, json!(password)).await {
        return false;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    annotate(world, Value::Null).await
}

/// Says a password to whoever reads the log.
pub fn log_password(world: &World) -> bool {
    let Some(password) = world.passwords().pop() else { return false };
    tracing::debug!(target: "applecart_operator", password, "tried");
    true
}

/// Writes once more, twenty seconds after all was right.
pub async fn add_afterthought(world: &World, story: Story) -> bool {
    if at_end(world, story).is_err() {
        return false;
    }
    tokio::time::sleep(Duration::from_secs(20)).await;
    annotate(world, json!("an afterthought")).await
}

/// Writes a note to a Machine.
async fn annotate(world: &World, text: Value) -> bool {
    let Some(machine) = machines(world).into_iter().next() else { return false };
    let change = json!({"metadata": {"annotations": {"note": text}}});
    let (name, params) = (machine.name_any(), PatchParams::default());
    samms(world).patch(&name, &params, &Patch::Merge(&change)).await.is_ok()
}
