//! What an onlooker sees of a world without asking anybody: for oracles and levers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError, RwLock};

use applecart_api::ids::ServerId;
use serde_json::Value;

use super::Host;
use super::hands::Hands;
use crate::kubernetes::ApiServer;
use crate::scaleway::Scaleway;
use crate::tart::SimTart;

/// A look at a world from outside. Clones look at the same world.
#[derive(Clone)]
pub struct Sight {
    pub(super) api: ApiServer,
    /// Of every cluster that shares this Scaleway, its own included.
    apis: Vec<ApiServer>,
    pub(super) scaleway: Scaleway,
    hosts: Arc<RwLock<Arc<BTreeMap<ServerId, Host>>>>,
    pub(super) hands: Hands,
    /// How often the power of each Mac failed.
    power_cuts: Arc<RwLock<BTreeMap<ServerId, u64>>>,
}

impl Sight {
    pub(super) fn new(api: ApiServer, scaleway: Scaleway, hosts: BTreeMap<ServerId, Host>) -> Self {
        let apis = vec![api.clone()];
        let hosts = Arc::new(RwLock::new(Arc::new(hosts)));
        Self { api, apis, scaleway, hosts, hands: Hands::default(), power_cuts: Arc::default() }
    }

    /// The Macs behind hosts, as many as there are by now.
    pub(super) fn hosts(&self) -> Arc<BTreeMap<ServerId, Host>> {
        self.hosts.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A Mac is put behind a host that was bought.
    pub(super) fn deliver(&self, id: ServerId, host: Host) {
        let mut hosts = self.hosts.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut hosts).insert(id, host);
    }

    /// The same, seen from each of two clusters: this one's, and one that `api` serves.
    pub(super) fn shared(self, api: ApiServer) -> (Self, Self) {
        let apis = [self.apis.as_slice(), std::slice::from_ref(&api)].concat();
        (Self { apis: apis.clone(), ..self.clone() }, Self { api, apis, ..self })
    }

    /// All objects of a kind, as they are stored, of every cluster there is.
    #[must_use]
    pub fn objects(&self, resource: &str) -> Vec<Arc<Value>> {
        self.apis.iter().flat_map(|api| api.objects(resource)).collect()
    }

    /// Whether there is more than one cluster.
    #[must_use]
    pub fn is_shared(&self) -> bool {
        self.apis.len() > 1
    }

    /// Every kind that there is an object of.
    #[must_use]
    pub fn resources(&self) -> BTreeSet<String> {
        self.apis.iter().flat_map(ApiServer::resources).collect()
    }

    /// The bearer tokens that are valid now.
    #[must_use]
    pub fn tokens(&self) -> BTreeSet<String> {
        self.apis.iter().flat_map(ApiServer::tokens).collect()
    }

    /// Its Scaleway.
    #[must_use]
    pub fn scaleway(&self) -> &Scaleway {
        &self.scaleway
    }

    /// What people did to it by hand.
    #[must_use]
    pub fn hands(&self) -> &Hands {
        &self.hands
    }

    /// Whether anything was written to the Mac behind a host for an owner: the first and the last
    /// thing that are.
    #[must_use]
    pub fn is_used(&self, id: &ServerId) -> bool {
        let first = |host: &Host| host.mac.file("/etc/sudoers.d/m1-nopasswd").is_some();
        self.hosts().get(id).is_some_and(first) || self.is_bootstrapped(id)
    }

    /// Whether the Mac behind a host carries an agent's identity, and so an owner's work.
    #[must_use]
    pub fn is_bootstrapped(&self, id: &ServerId) -> bool {
        let kubeconfig = |host: &Host| host.mac.file("/etc/tart-kubelet/kubeconfig").is_some();
        self.hosts().get(id).is_some_and(kubeconfig)
    }

    /// The Tart of each Mac.
    pub fn tarts(&self) -> impl Iterator<Item = (ServerId, SimTart)> {
        let hosts = self.hosts();
        let tarts: Vec<_> =
            hosts.iter().map(|(id, host)| (id.clone(), host.tart.clone())).collect();
        tarts.into_iter()
    }

    /// Wrong passwords that were tried on each Mac, one after the other, since it booted.
    pub fn wrong_in_a_row(&self) -> impl Iterator<Item = (ServerId, u32)> {
        let hosts = self.hosts();
        let tried: Vec<_> =
            hosts.iter().map(|(id, host)| (id.clone(), host.mac.wrong_in_a_row())).collect();
        tried.into_iter()
    }

    /// How often the power of the Mac behind a host failed.
    #[must_use]
    pub fn power_cuts(&self, id: &ServerId) -> u64 {
        let cuts = self.power_cuts.read().unwrap_or_else(PoisonError::into_inner);
        cuts.get(id).copied().unwrap_or_default()
    }

    /// The power of a Mac fails and comes back: its VMs die, and it boots.
    pub fn cut_power(&self, mac: &str) {
        let named = |(id, _): &(&ServerId, &Host)| id.as_str() == mac;
        let hosts = self.hosts();
        if let Some((id, host)) = hosts.iter().find(named) {
            let mut cuts = self.power_cuts.write().unwrap_or_else(PoisonError::into_inner);
            *cuts.entry(id.clone()).or_default() += 1;
            drop(cuts);
            host.mac.power_off();
            for vm in host.tart.running() {
                let _killed = host.tart.kill(&vm);
            }
            host.mac.power_on();
        }
    }
}
