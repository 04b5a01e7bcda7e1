//! Planted bugs: each does to the world what a broken controller would, and one oracle must say so.

mod runners;
mod telling;
mod vms;

use std::fmt;
use std::time::Duration;

use applecart_api::keys::lease;
use applecart_api::machine::ScalewayAppleSiliconMachine;
use applecart_api::name_class::{Marker, NameClass};
use applecart_sim::faults::{Edge, Fault, Faults, PROVIDER, Process, Step};
use applecart_sim::kubernetes::Identity;
use applecart_sim::scaleway::{HostSpec, HostView};
use applecart_sim::world::{NAMESPACE, POOL_PREFIX, World};
use clap::ValueEnum;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ServiceAccount};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::story::{Story, machines};

/// How often a bug looks for its chance.
const LOOK: Duration = Duration::from_millis(500);

/// What a broken controller does. Each is caught by one oracle, most by the one of its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Bug {
    /// Returns a host to the pool without a wipe (LH1).
    PoolUnwiped,
    /// Claims a second host for a Machine (P1).
    TwoHosts,
    /// Wipes a host whose Machine lives (S4).
    WipedUnderOwner,
    /// Renames a host of somebody else (S3).
    ForeignTouched,
    /// Buys a host (S6).
    HostsChanged,
    /// Gives a host of the pool up, though nobody said so (S6).
    GivenUp,
    /// Buys a second host for a Machine that asked for one (G17).
    RentedTwice,
    /// Lets two Machines name one host (P7).
    TwoOwners,
    /// Binds a Machine to two hosts (S2).
    Binding,
    /// Takes back that a Machine is provisioned.
    Provisioned,
    /// Starts a Pod that has ended again (S28).
    Phases,
    /// Forgets a running VM when its Pod goes (S29).
    VmOfNobody,
    /// Leaves a VM on the disk whose Pod is gone (C3).
    VmsLeft,
    /// Renames a host that it has not just read (S3).
    Unfenced,
    /// Renames a host whose Lease it has not just read (S3).
    Unleased,
    /// Deletes whatever has a name, without a word about which (G4).
    Unconditional,
    /// Deletes a runner with a job (S37).
    BusyDeleted,
    /// Takes a runner with a job away at once, so that nobody sees it go (S37).
    BusyVanished,
    /// Ends the VM of a runner with a job (S24).
    BusyKilled,
    /// Says of a job that ended well that it failed (S30).
    JobFailed,
    /// Leaves the account of a runner that never was (S43).
    SpareAccount,
    /// Tells people the same again and again, though nothing happened (LH25).
    Chatter,
    /// Takes a Lease that it does not need (P1).
    SpareLease,
    /// Forgets a Node when its Machine goes (C5).
    LeftBehind,
    /// Takes the identity of a Mac whose Machine lives on elsewhere.
    CutOff,
    /// Reboots a host after its second bootstrap that failed (LH21).
    Tiers,
    /// Reboots a host whose Machine lost its status (G11).
    Forgotten,
    /// Creates something twice.
    Counts,
    /// Writes although nothing happened (LH25).
    Silence,
    /// Writes once, some seconds after all is right (LH25).
    Afterthought,
    /// Looks again and again, and never waits (LH25).
    Spins,
    /// Tries the same again and again, with too short a pause (LH25).
    Hurries,
    /// Lets a Machine go on eleven minutes after something went wrong.
    Liveness,
    /// Tells a password (S16).
    Secrets,
    /// Tells a password, and takes it back (S16).
    TakenBack,
    /// Logs a password (S16).
    Logged,
    /// Tells the token of a runner, which is in no Secret (S16).
    TokenTold,
    /// Tells a line of the key of the app at GitHub (S16).
    AppKeyTold,
    /// Tells Scaleway's key (S16).
    ScalewayKeyTold,
    /// Tells a password that was before a wipe, as macOS hides it, in base64 (S16).
    Encoded,
    /// Releases the host of a Machine that lives: gives it that name, and wipes it (S4).
    ReleasedAlive,
    /// Says that a Machine is Ready before it has a Node (S13).
    ReadyEarly,
    /// Makes a runner more than is asked for (S38).
    Surplus,
    /// Replaces all runners of an old image at once (S39).
    RolledAtOnce,
    /// Empties all Macs of a fleet for an update (V7).
    EmptiedTogether,
    /// Leaves a runner registered at GitHub whose Machine is gone (C5).
    Registered,
    /// Takes the account of a runner that there is (S43).
    Accounts,
    /// Tries wrong passwords until the account of a Mac is locked (S18).
    Guessed,
    /// Asks Scaleway for a host whose Machine is paused (S9).
    Paused,
    /// Leaves a host in the pool that counts as not wiped.
    Unadoptable,
    /// Forgets a Node beside Machines that stay (C5).
    Unmatched,
    /// Lets a Node that was Ready be it no more.
    NotReady,
    /// Stops a VM while the API server is gone, and starts one of its name (G15).
    Outage,
    /// Does something twice, if it died after the first time.
    Amnesia,
    /// Makes something under another name, if it does not hear that it was made.
    Doubled,
}

impl fmt::Display for Bug {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value().expect("no bug is hidden");
        f.write_str(value.get_name())
    }
}

impl Bug {
    /// Whether what it does is right as long as nothing goes wrong: a run without faults that is
    /// to be compared with does it, too.
    pub fn is_right_alone(self) -> bool {
        self == Self::Doubled
    }
}

/// Lets `bug` loose on the world, and never ends.
pub async fn plant(world: &World, faults: &Faults, story: Story, bug: Option<Bug>) {
    let Some(bug) = bug else { return std::future::pending().await };
    loop {
        let struck = match bug {
            Bug::Liveness => went_wrong(faults, |_| true) && hold_up(world).await,
            Bug::Amnesia => {
                went_wrong(faults, |fault| fault == Fault::CrashAfter) && do_again(world).await
            }
            Bug::Tiers => reboot_early(world, faults).await,
            Bug::Outage => faults.is_api_server_gone() && vms::replace(world).await,
            Bug::Afterthought => telling::add_afterthought(world, story).await,
            bug => strike(world, bug).await,
        };
        if struck {
            return std::future::pending().await;
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Whether something of this kind went wrong.
fn went_wrong(faults: &Faults, is: impl Fn(Fault) -> bool) -> bool {
    faults.look(|steps| steps.iter().any(|step| step.fault.is_some_and(&is)))
}

/// Reboots the one host that was tried twice.
async fn reboot_early(world: &World, faults: &Faults) -> bool {
    let is_dial = |step: &&Step| step.edge == Edge::Ssh && step.call.ends_with(" dial");
    let tried = faults.look(|steps| {
        let dials: Vec<&Step> = steps.iter().filter(is_dial).collect();
        (dials.len() == 2).then(|| dials[0].call.clone())
    });
    let Some(tried) = tried else { return false };
    let hosts = world.scaleway().hosts();
    let mac = tried.trim_end_matches(" dial");
    let Some(host) = hosts.iter().find(|host| host.id.as_str().starts_with(mac)) else {
        return false;
    };
    let scaleway = world.provider_scaleway(&Process::Provider);
    scaleway.reboot(&host.zone, &host.id).await.is_ok()
}

/// Does the wrong thing, if this is the moment; whether that was all.
async fn strike(world: &World, bug: Bug) -> bool {
    let scaleway = world.scaleway();
    let hosts = scaleway.hosts();
    let used = hosts.iter().find(|host| world.is_bootstrapped(&host.id));
    let free = hosts.iter().find(|host| host.name.starts_with(POOL_PREFIX));
    match bug {
        Bug::PoolUnwiped => hosts.iter().any(|host| return_touched(world, host)),
        Bug::TwoHosts => used.zip(free).is_some_and(|(used, free)| {
            scaleway.rename_host(&free.id, &used.name);
            true
        }),
        Bug::WipedUnderOwner => match used {
            Some(host) => scaleway.client().reinstall(&host.zone, &host.id, None).await.is_ok(),
            None => false,
        },
        Bug::Unfenced | Bug::Unleased => match (used, free) {
            (Some(_), Some(host)) => rename_blindly(world, host, bug == Bug::Unleased).await,
            _ => false,
        },
        Bug::ForeignTouched => match hosts.iter().find(|host| host.name == world.foreign_name()) {
            Some(host) => {
                scaleway.rename_host(&host.id, &format!("{POOL_PREFIX}taken"));
                true
            }
            None => false,
        },
        Bug::HostsChanged => {
            scaleway.order_host(&HostSpec::named("bought"));
            true
        }
        Bug::RentedTwice => hosts.iter().any(|host| buy_again(world, host)),
        Bug::TwoOwners => share_host(world).await,
        Bug::Binding => {
            let another = json!({"serverID": "00000000-0000-4000-8000-000000000000"});
            change_status(world, "serverID", another).await
        }
        Bug::Provisioned => {
            let back = json!({"initialization": {"provisioned": false}});
            change_status(world, "initialization", back).await
        }
        Bug::Phases => restart_pod(world).await,
        Bug::VmOfNobody => vms::start(world, true).await,
        Bug::VmsLeft => vms::start(world, false).await,
        Bug::BusyDeleted | Bug::BusyVanished => runners::take_busy(world, bug).await,
        Bug::SpareLease => match (used, free) {
            (Some(_), Some(free)) => take_spare(world, free).await,
            _ => false,
        },
        Bug::LeftBehind => leave_node(world).await,
        Bug::CutOff => used.is_some() && machines(world).is_empty() && cut_off(world).await,
        Bug::Forgotten => match used {
            Some(host) if is_forgotten(world) => {
                scaleway.client().reboot(&host.zone, &host.id).await.is_ok()
            }
            Some(_) | None => false,
        },
        Bug::Counts => create_twice(world).await,
        Bug::Silence => {
            tokio::time::sleep(Duration::from_mins(5)).await;
            let _ = touch(world).await;
            false
        }
        Bug::Secrets => telling::tell_password(world).await,
        Bug::TakenBack => used.is_some() && telling::take_back(world).await,
        Bug::Encoded => {
            hosts.iter().any(|host| host.generation > 0) && telling::tell_hidden(world).await
        }
        bug => strike_others(world, bug, used).await,
    }
}

/// The same for the rest of them; `used` is a host with an agent.
async fn strike_others(world: &World, bug: Bug, used: Option<&HostView>) -> bool {
    match (bug, used) {
        (Bug::Spins, _) => used.is_some() && spin(world).await,
        (Bug::Hurries, Some(_)) => hurry(world).await,
        (Bug::ReleasedAlive, Some(host)) => release(world, host).await,
        (Bug::ReadyEarly, _) => say_ready(world).await,
        (Bug::BusyKilled, _) => vms::kill_busy(world).await,
        (Bug::JobFailed, _) => runners::fail_job(world).await,
        (Bug::Surplus, _) => runners::add_runner(world).await,
        (Bug::Accounts, _) => runners::take_account(world).await,
        (Bug::SpareAccount, _) => runners::make_account(world).await,
        (Bug::RolledAtOnce, _) => runners::roll_at_once(world).await,
        (Bug::EmptiedTogether, _) => runners::empty_all(world).await,
        (Bug::Registered, _) => runners::register(world),
        (Bug::TokenTold, _) => telling::tell_token(world).await,
        (Bug::AppKeyTold, _) => telling::tell_app_key(world).await,
        (Bug::ScalewayKeyTold, _) => telling::tell_scaleway_key(world).await,
        (Bug::Doubled, Some(_)) => make_until_heard(world).await,
        (Bug::Logged, _) => telling::log_password(world),
        (Bug::GivenUp, _) => give_up(world).await,
        (Bug::Chatter, _) => {
            tokio::time::sleep(Duration::from_mins(5)).await;
            telling::tell_again(world).await;
            false
        }
        (Bug::Guessed, Some(host)) => world.mac(&host.id).is_some_and(|mac| {
            mac.set_locked(true);
            true
        }),
        (Bug::Paused, Some(host)) => {
            if !world.sight().hands().pauses().is_empty() {
                let scaleway = world.provider_scaleway(&Process::Provider);
                let _looked = scaleway.server(&host.zone, &host.id).await;
                // No oracle is to find the haste of it.
                tokio::time::sleep(Duration::from_secs(30)).await;
            }
            false
        }
        (Bug::Unadoptable, _) => {
            leave_unwiped(world).await;
            false
        }
        (Bug::Unmatched, _) => leave_node(world).await,
        (Bug::Unconditional, Some(_)) => delete_blindly(world).await,
        (Bug::NotReady, _) if is_ready(world) => {
            // The story has seen it by then.
            tokio::time::sleep(Duration::from_secs(5)).await;
            spoil_nodes(world).await
        }
        _ => false,
    }
}

/// Gives the host of a Machine that was provisioned its releasing name, and wipes it.
async fn release(world: &World, host: &HostView) -> bool {
    let machines = machines(world);
    let has = |machine: &&ScalewayAppleSiliconMachine| {
        let status = json!(machine.status);
        status["initialization"]["provisioned"] == true && status["serverID"] == host.id.as_str()
    };
    let uid = machines.iter().find(has).and_then(ResourceExt::uid).and_then(|uid| uid.parse().ok());
    let (Some(uid), Ok(cluster)) = (uid, "00000000".parse()) else { return false };
    let name = NameClass::releasing(&Marker { cluster, uid });
    let scaleway = world.provider_scaleway(&Process::Provider);
    scaleway.rename(&host.zone, &host.id, &name).await.is_ok()
        && scaleway.reinstall(&host.zone, &host.id, None).await.is_ok()
}

async fn say_ready(world: &World) -> bool {
    let machines = machines(world);
    let Some(machine) = machines.first() else { return false };
    let (name, params) = (machine.name_any(), PatchParams::default());
    let change = json!({"status": {"ready": true}});
    samms(world).patch_status(&name, &params, &Patch::Merge(&change)).await.is_ok()
}

fn is_ready(world: &World) -> bool {
    let ready = |m: &ScalewayAppleSiliconMachine| m.status.as_ref()?.ready;
    machines(world).iter().any(|machine| ready(machine) == Some(true))
}

/// Says of every host that is free and was somebody's that it was not wiped.
async fn leave_unwiped(world: &World) {
    let leases: Api<Lease> = Api::namespaced(provider(world), NAMESPACE);
    let of_hosts = ListParams::default().labels(lease::HOST);
    let Ok(listed) = leases.list(&of_hosts).await else { return };
    let change = json!({"metadata": {"annotations": {lease::UNWIPED: "true"}}});
    for free in listed.items.iter().filter(|held| !held.labels().contains_key(lease::HOLDER)) {
        if free.annotations().get(lease::UNWIPED).map(String::as_str) != Some("true") {
            let patch = Patch::Merge(&change);
            let _ = leases.patch(&free.name_any(), &PatchParams::default(), &patch).await;
        }
    }
}

/// Contradicts every agent, again and again.
async fn spoil_nodes(world: &World) -> bool {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(provider(world));
    let change = json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}});
    while let Ok(listed) = nodes.list(&ListParams::default()).await {
        for node in listed.items {
            let (name, patch) = (node.name_any(), Patch::Strategic(&change));
            let _ = nodes.patch_status(&name, &PatchParams::default(), &patch).await;
        }
        tokio::time::sleep(LOOK).await;
    }
    false
}

async fn do_again(world: &World) -> bool {
    let _ = touch(world).await;
    true
}

/// Buys another host under the same name as `host`, if that is the claiming name of a Machine.
fn buy_again(world: &World, host: &HostView) -> bool {
    let class = NameClass::read(&host.name, POOL_PREFIX);
    let claiming = matches!(class, NameClass::Claiming(_));
    if claiming {
        world.scaleway().order_host(&HostSpec::named(&host.name));
    }
    claiming
}

/// Renames a host of which it knows nothing, or nothing but what Scaleway says.
async fn rename_blindly(world: &World, host: &HostView, reads: bool) -> bool {
    let scaleway = world.provider_scaleway(&Process::Provider);
    if reads && scaleway.server(&host.zone, &host.id).await.is_err() {
        return false;
    }
    scaleway.rename(&host.zone, &host.id, &host.name).await.is_ok()
}

/// Deletes what is not there: it might have been.
async fn delete_blindly(world: &World) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(provider(world), NAMESPACE);
    let _ = maps.delete("anything", &DeleteParams::default()).await;
    true
}

async fn spin(world: &World) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(provider(world), NAMESPACE);
    while maps.list(&ListParams::default()).await.is_ok() {}
    false
}

/// A loop with a pause, but one that is forgotten in it.
async fn hurry(world: &World) -> bool {
    const PAUSE: Duration = Duration::from_millis(20);
    loop {
        let _ = touch(world).await;
        tokio::time::sleep(PAUSE).await;
    }
}

/// A client that the gate takes for the provider's, and that no role holds up.
fn provider(world: &World) -> kube::Client {
    let account = Identity::service_account(NAMESPACE, PROVIDER);
    world.api().client(Identity::stand_in(account.user))
}

/// Returns a host on which a bootstrap has only begun: long before it is a Node, somebody's work
/// is on it.
fn return_touched(world: &World, host: &HostView) -> bool {
    let touched = world.sight().is_used(&host.id) && !world.is_bootstrapped(&host.id);
    if touched {
        world.scaleway().rename_host(&host.id, &format!("{POOL_PREFIX}by-hand"));
    }
    touched
}

async fn give_up(world: &World) -> bool {
    let hosts = world.scaleway().hosts();
    let Some(host) = hosts.iter().find(|host| host.name.starts_with(POOL_PREFIX)) else {
        return false;
    };
    world.scaleway().client().schedule_deletion(&host.zone, &host.id).await.is_ok()
}

/// Takes the Lease of a free host for a Machine that has one.
async fn take_spare(world: &World, free: &HostView) -> bool {
    let machines = machines(world);
    let Some(uid) = machines.first().and_then(ResourceExt::uid) else { return false };
    let taken = json!({
        "metadata": {
            "name": lease::name(&free.id),
            "labels": {lease::HOST: "true", lease::HOLDER: uid},
            "annotations": {lease::ZONE: free.zone},
        },
        "spec": {"holderIdentity": format!("{NAMESPACE}/spare/{uid}")},
    });
    let Ok(taken) = serde_json::from_value::<Lease>(taken) else { return false };
    let leases: Api<Lease> = Api::namespaced(provider(world), NAMESPACE);
    leases.create(&PostParams::default(), &taken).await.is_ok()
}

async fn leave_node(world: &World) -> bool {
    let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(provider(world));
    let Ok(listed) = nodes.list(&ListParams::default()).await else { return false };
    if listed.items.is_empty() {
        return false;
    }
    let node = json!({"metadata": {"name": "forgotten"}});
    let Ok(node) = serde_json::from_value(node) else { return false };
    nodes.create(&PostParams::default(), &node).await.is_ok()
}

async fn cut_off(world: &World) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(provider(world), NAMESPACE);
    let Ok(listed) = accounts.list(&ListParams::default()).await else { return false };
    let agent = listed.items.iter().find(|account| account.name_any().starts_with("tart-kubelet"));
    let Some(agent) = agent else { return false };
    accounts.delete(&agent.name_any(), &DeleteParams::default()).await.is_ok()
}

/// Whether the status of any Machine was wiped by hand.
fn is_forgotten(world: &World) -> bool {
    let hands = world.sight().hands();
    machines(world).iter().any(|machine| hands.forgot(&machine.uid().unwrap_or_default()))
}

async fn create_twice(world: &World) -> bool {
    let accounts: Api<ServiceAccount> = Api::namespaced(provider(world), NAMESPACE);
    let Ok(listed) = accounts.list(&ListParams::default()).await else { return false };
    let agent = listed.items.iter().find(|account| account.name_any().starts_with("tart-kubelet"));
    let Some(agent) = agent else { return false };
    let mut again = agent.clone();
    again.metadata.resource_version = None;
    again.metadata.uid = None;
    again.metadata.name = Some("spare".to_owned());
    accounts.create(&PostParams::default(), &again).await.is_ok()
}

async fn touch(world: &World) -> bool {
    let maps: Api<ConfigMap> = Api::namespaced(provider(world), NAMESPACE);
    let mut map = ConfigMap::default();
    map.metadata.generate_name = Some("idle-".to_owned());
    maps.create(&PostParams::default(), &map).await.is_ok()
}

/// Makes a map whose name the server chooses, until it is told that there is one.
async fn make_until_heard(world: &World) -> bool {
    while !touch(world).await {
        tokio::time::sleep(LOOK).await;
    }
    true
}

async fn hold_up(world: &World) -> bool {
    for machine in machines(world) {
        if machine.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let api = samms(world);
        let change = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": "true"}}});
        let name = machine.name_any();
        let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
        tokio::time::sleep(Duration::from_mins(11)).await;
        let change = json!({"metadata": {"annotations": {"cluster.x-k8s.io/paused": null}}});
        let _ = api.patch(&name, &PatchParams::default(), &Patch::Merge(&change)).await;
        return true;
    }
    false
}

fn samms(world: &World) -> Api<ScalewayAppleSiliconMachine> {
    Api::namespaced(provider(world), NAMESPACE)
}

/// Changes the status of a Machine that has `field`.
async fn change_status(world: &World, field: &str, change: Value) -> bool {
    for machine in machines(world) {
        let status = json!(machine.status);
        let ready = machine.status.as_ref().and_then(|status| status.ready) == Some(true);
        if !ready || status[field].is_null() {
            continue;
        }
        let change = json!({"status": change});
        let (name, params) = (machine.name_any(), PatchParams::default());
        return samms(world).patch_status(&name, &params, &Patch::Merge(&change)).await.is_ok();
    }
    false
}

async fn share_host(world: &World) -> bool {
    let machines = machines(world);
    let server = |m: &ScalewayAppleSiliconMachine| m.status.as_ref()?.server_id.clone();
    let bound: Vec<_> = machines.iter().filter(|machine| server(machine).is_some()).collect();
    let [one, other, ..] = bound.as_slice() else { return false };
    let change = json!({"status": {"serverID": server(one)}});
    let (name, params) = (other.name_any(), PatchParams::default());
    samms(world).patch_status(&name, &params, &Patch::Merge(&change)).await.is_ok()
}

async fn restart_pod(world: &World) -> bool {
    let pods: Api<Pod> = Api::namespaced(provider(world), NAMESPACE);
    let Ok(Some(pod)) = pods.get_opt("build").await else { return false };
    let phase = pod.status.and_then(|status| status.phase);
    if phase.as_deref() != Some("Running") {
        return false;
    }
    let change = json!({"status": {"phase": "Pending"}});
    pods.patch_status("build", &PatchParams::default(), &Patch::Merge(&change)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use applecart_sim::faults::Class;

    use super::*;
    use crate::Verb;
    use crate::explore::{Seconds, explore};
    use crate::run::{Case, End, NO_SILENCE, SHORT_SILENCE, run};

    /// A story in which the bug gets its chance.
    fn story(bug: Bug) -> Story {
        match bug {
            Bug::BusyDeleted | Bug::BusyVanished | Bug::BusyKilled => Story::Drain,
            Bug::Surplus | Bug::Accounts | Bug::TokenTold | Bug::JobFailed => Story::Job,
            Bug::LeftBehind
            | Bug::Provisioned
            | Bug::Binding
            | Bug::Encoded
            | Bug::Unadoptable
            | Bug::Amnesia => Story::Release,
            Bug::EmptiedTogether => Story::Update,
            Bug::RolledAtOnce => Story::RollImage,
            Bug::Registered | Bug::AppKeyTold => Story::Builder,
            Bug::CutOff | Bug::Paused => Story::Detach,
            Bug::Forgotten => Story::Forget,
            Bug::Tiers => Story::FailThrice,
            Bug::RentedTwice => Story::AutoOrder,
            Bug::TwoOwners => Story::Scale,
            Bug::Outage => Story::Outage,
            Bug::Phases | Bug::VmOfNobody => Story::Pod,
            _ => Story::Claim,
        }
    }

    /// The oracle that finds the bug.
    fn oracle(bug: Bug) -> Bug {
        match bug {
            Bug::Encoded
            | Bug::TakenBack
            | Bug::Logged
            | Bug::TokenTold
            | Bug::AppKeyTold
            | Bug::ScalewayKeyTold => Bug::Secrets,
            Bug::Amnesia | Bug::Doubled => Bug::Counts,
            Bug::GivenUp => Bug::HostsChanged,
            Bug::BusyVanished => Bug::BusyDeleted,
            Bug::SpareAccount | Bug::Registered => Bug::LeftBehind,
            Bug::Chatter | Bug::Afterthought => Bug::Silence,
            Bug::Hurries => Bug::Spins,
            bug => bug,
        }
    }

    /// The plan that this command plays.
    fn typed(command: &str) -> Case {
        let words = command.strip_prefix("cargo xtask ").expect("a command of ours").split(' ');
        let typed = crate::parse(std::iter::once("applecart-sweep").chain(words));
        let Ok(Verb::Sweep(sweep)) = typed else { panic!("{command} means nothing") };
        sweep.case().expect("one plan")
    }

    /// The first effect of a story at which this can go wrong.
    fn first(reference: &End, fault: Fault) -> usize {
        let meets = |step: &&Step| {
            let begun = step.number >= reference.first && step.class == Class::Effect;
            begun && step.possible().contains(&fault)
        };
        reference.steps.iter().find(meets).expect("such a step").number
    }

    /// Where the first map is made.
    fn made(reference: &End) -> usize {
        let makes = |step: &&Step| step.call.starts_with("create configmaps ");
        reference.steps.iter().find(makes).expect("a map").number
    }

    #[test]
    fn each_oracle_finds_the_bug_of_its_name() {
        let mut missed = vec![];
        let mut references: BTreeMap<(Story, bool), End> = BTreeMap::new();
        for bug in Bug::value_variants() {
            // What this one does is right unless something goes wrong with it.
            let right = bug.is_right_alone();
            let calm = Case {
                silence: Some(SHORT_SILENCE),
                bug: right.then_some(*bug),
                ..Case::new(story(*bug), 1)
            };
            let reference =
                references.entry((calm.story, right)).or_insert_with(|| run(&calm, None));
            assert_eq!(reference.violation, None, "{} is broken without any bug", calm.story);
            // Some bugs show only when something goes wrong.
            let fault = match bug {
                Bug::Amnesia => Some((first(reference, Fault::CrashAfter), Fault::CrashAfter)),
                Bug::Doubled => Some((made(reference), Fault::Late)),
                Bug::Liveness => Some((first(reference, Fault::Error), Fault::Error)),
                _ => None,
            };
            let faults = fault.into_iter().collect();
            let case = typed(&Case { bug: Some(*bug), faults, ..calm.clone() }.command());
            assert_eq!(case.reference(), calm, "{bug} is compared with a run without it");
            let violation = run(&case, Some(reference)).violation;
            let told = violation.unwrap_or_else(|| "nothing".to_owned());
            if !told.starts_with(&format!("{}:", oracle(*bug))) {
                missed.push(format!("{bug} is told as {told:?}"));
            }
        }
        assert_eq!(missed, [""; 0]);
    }

    #[test]
    fn a_story_that_begins_at_any_moment_is_compared_with_a_claim() {
        let calm = |story| Case { silence: Some(NO_SILENCE), ..Case::new(story, 1) };
        let claim = run(&calm(Story::Claim), None);
        let registers = |step: &&Step| step.call.starts_with("create nodes ");
        let at = claim.steps.iter().find(registers).map(|step| step.number);
        for story in [Story::DeleteAnywhere, Story::UpgradeAnywhere] {
            let case = Case { at, ..calm(story) };
            assert_eq!(run(&case, Some(&claim)).violation, None, "{story} without a bug");
            let broken = run(&Case { bug: Some(Bug::Counts), ..case }, Some(&claim));
            let told = broken.violation.unwrap_or_default();
            assert!(told.starts_with("counts: create serviceaccounts"), "{story}: {told}");
        }
    }

    #[test]
    fn a_plan_that_must_fail_does_and_no_other_and_one_that_never_came_is_told() {
        // G9: the tree of processes finds what a run by itself finds.
        let bug = Some(Bug::Amnesia);
        let calm = Case { silence: Some(NO_SILENCE), bug, ..Case::new(Story::Release, 1) };
        let reference = run(&calm, None);
        assert_eq!(reference.violation, None);
        let at = first(&reference, Fault::CrashAfter);
        let with = |at, fault| {
            let faults = vec![(at, fault)];
            Case { faults, silence: None, ..calm.clone() }
        };
        let never = with(reference.steps.len() + 1000, Fault::Error);
        let cases = vec![
            with(at, Fault::CrashBefore),
            with(at, Fault::CrashAfter),
            with(at, Fault::Error),
            with(at + 1, Fault::Error),
            never.clone(),
        ];
        let seconds = Seconds { pairs: None, one_in: 1 };
        let found = explore(&calm, cases, Some(reference.course), seconds, None);
        let told: Vec<(String, &str)> = found
            .broken
            .iter()
            .map(|(case, what)| (case.command(), what.split(':').next().unwrap_or_default()))
            .collect();
        let command =
            format!("cargo xtask sweep release --seed 1 --fault {at}:crash-after --plant amnesia");
        assert_eq!(told, [(command, "counts"), (never.command(), "untried")]);
        assert_eq!(found.plans, 4);
        assert!(found.most_kib > 0);
    }
}
