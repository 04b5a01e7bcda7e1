//! Which Pods go because their Node is not well, or is no more. No I/O; what it remembers is since
//! when, as the real controllers do in their queues.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;

use super::super::taints::{Patience, driving, patience};

/// How often Pods are compared with Nodes, while there are any, as the real garbage collector does.
const LOOK_SECONDS: u32 = 20;
/// How long a Node may be missing.
const QUARANTINE_SECONDS: u32 = 40;

/// Nodes by name.
pub(super) type Nodes = BTreeMap<String, Node>;

/// Since when something is so.
#[derive(Default)]
pub(super) struct Removals {
    /// Pods, by UID, whose time on a tainted Node is running.
    leaving: BTreeMap<String, Timestamp>,
    /// Nodes that Pods are bound to and that there are not, by name.
    missing: BTreeMap<String, Timestamp>,
}

/// What is to be done with Pods now, and when to look again.
#[derive(Default)]
pub(super) struct Due<'p> {
    /// Their time on a tainted Node is over.
    pub evicted: Vec<&'p Pod>,
    /// Their Node is no more.
    pub orphaned: Vec<&'p Pod>,
    /// Look again no later than this.
    pub wake: Option<Duration>,
}

impl Due<'_> {
    fn look_in(&mut self, wait: Duration) {
        self.wake = Some(self.wake.map_or(wait, |wake| wake.min(wait)));
    }
}

impl Removals {
    /// Which Pods go; `second` is how long a real second takes in this world.
    pub fn due<'p>(
        &mut self,
        now: Timestamp,
        second: Duration,
        nodes: &Nodes,
        pods: &'p [Pod],
    ) -> Due<'p> {
        let mut due = Due::default();
        let (leaving, missing) =
            (std::mem::take(&mut self.leaving), std::mem::take(&mut self.missing));
        for pod in pods {
            let Some(name) = node_of(pod) else { continue };
            due.look_in(second * LOOK_SECONDS);
            match nodes.get(name) {
                Some(node) => self.evict(now, second, &leaving, (node, pod), &mut due),
                None => self.orphan(now, second, &missing, (name, pod), &mut due),
            }
        }
        due
    }

    fn evict<'p>(
        &mut self,
        now: Timestamp,
        second: Duration,
        known: &BTreeMap<String, Timestamp>,
        (node, pod): (&Node, &'p Pod),
        due: &mut Due<'p>,
    ) {
        let Patience::For(stays) = patience(pod, &driving(node)) else { return };
        if pod.metadata.deletion_timestamp.is_some() {
            return;
        }
        let uid = pod.uid().unwrap_or_default();
        let since = known.get(&uid).copied().unwrap_or(now);
        let seconds = u32::try_from(stays.as_secs()).unwrap_or(u32::MAX);
        match left(now, since, second.saturating_mul(seconds)) {
            None => due.evicted.push(pod),
            Some(wait) => due.look_in(wait),
        }
        self.leaving.insert(uid, since);
    }

    fn orphan<'p>(
        &mut self,
        now: Timestamp,
        second: Duration,
        known: &BTreeMap<String, Timestamp>,
        (node, pod): (&str, &'p Pod),
        due: &mut Due<'p>,
    ) {
        let since = known.get(node).copied().unwrap_or(now);
        match left(now, since, second * QUARANTINE_SECONDS) {
            None if is_held(pod) => {}
            None => due.orphaned.push(pod),
            Some(wait) => due.look_in(wait),
        }
        self.missing.insert(node.to_owned(), since);
    }
}

/// What is left of a time; nothing, if it is over.
fn left(now: Timestamp, since: Timestamp, time: Duration) -> Option<Duration> {
    let gone = Duration::try_from(now.duration_since(since)).unwrap_or_default();
    time.checked_sub(gone).filter(|left| !left.is_zero())
}

fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether all was done for a Pod to go, and only a finalizer holds it.
fn is_held(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    let ended = matches!(phase, Some("Succeeded" | "Failed"));
    let metadata = &pod.metadata;
    let forced = metadata.deletion_grace_period_seconds == Some(0);
    ended && forced && metadata.deletion_timestamp.is_some()
}
