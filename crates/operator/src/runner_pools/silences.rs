//! Runners on Macs that nobody hears of: which they are, and since when this process sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use applecart_api::keys::label;
use applecart_core::runner_pool::Runner;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use crate::calls::{self, ReadError};
use crate::provider::silent_since;

/// The UIDs of those of `pods` whose Mac, of this fleet, is there and not well.
///
/// One whose Node is gone is not among them: Kubernetes ends it itself. Whoever may not read Nodes,
/// as with roles of an older chart, hears of none that is silent.
pub async fn unheard(
    client: &Client,
    fleet: &str,
    pods: &[Pod],
) -> Result<BTreeSet<String>, ReadError> {
    let node_of = |pod: &Pod| pod.spec.as_ref()?.node_name.clone();
    if !pods.iter().any(|pod| node_of(pod).is_some()) {
        return Ok(BTreeSet::new());
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let of_fleet = ListParams::default().labels(&format!("{}={fleet}", label::FLEET));
    let listed = match calls::read("its fleet's Nodes", nodes.list(&of_fleet)).await {
        Ok(listed) => listed,
        Err(error) if error.is_denied() => return Ok(BTreeSet::new()),
        Err(error) => return Err(error),
    };
    let silent =
        listed.iter().filter(|node| silent_since(node).is_some()).map(ResourceExt::name_any);
    let silent: BTreeSet<String> = silent.collect();
    let is_there = |pod: &&Pod| node_of(pod).is_some_and(|node| silent.contains(&node));
    Ok(pods.iter().filter(is_there).filter_map(ResourceExt::uid).collect())
}

/// Since when each runner's Mac was seen to be silent, by pool and runner.
///
/// Lost in a crash, and not what the Node says: whoever was away himself would else replace the
/// runners of Macs that come back when he does.
#[derive(Default)]
pub struct Silences(Mutex<BTreeMap<String, BTreeMap<String, Timestamp>>>);

impl Silences {
    /// Notes which runners of a pool are unheard of now, and tells each since when.
    pub fn note(
        &self,
        pool: &str,
        unheard: &BTreeSet<String>,
        runners: &mut [Runner],
        now: Timestamp,
    ) {
        let mut pools = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = pools.remove(pool).unwrap_or_default();
        let since = |uid: &String| (uid.clone(), known.get(uid).copied().unwrap_or(now));
        let noted: BTreeMap<String, Timestamp> = unheard.iter().map(since).collect();
        for runner in runners {
            runner.silent_since = noted.get(&runner.uid).copied();
        }
        if !noted.is_empty() {
            pools.insert(pool.to_owned(), noted);
        }
    }

    /// The pool is gone.
    pub fn forget(&self, pool: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pool);
    }
}

#[cfg(test)]
mod tests {
    use applecart_core::runner_pool::RunnerState;

    use super::*;

    fn runner(uid: &str) -> Runner {
        Runner {
            name: uid.into(),
            uid: uid.into(),
            version: "1".into(),
            state: RunnerState::Idle,
            image: "image".into(),
            deleting: false,
            silent_since: None,
        }
    }

    #[test]
    fn a_silence_lasts_from_when_it_was_first_seen_until_the_mac_is_heard_of() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let silences = Silences::default();
        let since = |pool: &str, unheard: &[&str], now: i64| {
            let mut runners = [runner("a"), runner("b")];
            let unheard = unheard.iter().map(|uid| (*uid).to_owned()).collect();
            silences.note(pool, &unheard, &mut runners, at(now));
            runners.map(|runner| runner.silent_since.map(Timestamp::as_second))
        };
        assert_eq!(since("pool", &["a"], 10), [Some(10), None]);
        assert_eq!(since("pool", &["a", "b"], 20), [Some(10), Some(20)]);
        assert_eq!(since("another", &["a"], 25), [Some(25), None]);
        assert_eq!(since("pool", &["b"], 30), [None, Some(20)]);
        assert_eq!(since("pool", &["a", "b"], 40), [Some(40), Some(20)]);
        silences.forget("pool");
        assert_eq!(since("pool", &["b"], 50), [None, Some(50)]);
    }
}
