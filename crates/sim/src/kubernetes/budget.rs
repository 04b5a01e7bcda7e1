//! `PodDisruptionBudget`s: what they still allow, told in their status and held against evictions.
//! No I/O.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kind::{Kind, Nature};
use super::refusal::{Fault, Refusal};
use super::selector::Selector;
use super::state::{State, stamp};
use super::store::ObjectKey;

/// Where budgets are.
pub(crate) const BUDGETS: &str = "poddisruptionbudgets.policy";
const REPLICA_SETS: &str = "replicasets.apps";
/// The one condition of a budget.
const ALLOWED: &str = "DisruptionAllowed";

/// Whether an object of this kind changes what budgets allow: a Pod, what scales, a budget itself.
pub(crate) fn is_counted(kind: &Kind) -> bool {
    kind.nature == Nature::Pod || kind.versions[0].scale.is_some() || &*kind.key == BUDGETS
}

/// What a new budget says before anybody counted.
pub(crate) fn new_status() -> Value {
    json!({"currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0})
}

/// What is wrong with a budget.
pub(crate) fn faults(budget: &Value) -> Vec<Fault> {
    let spec = &budget["spec"];
    let mut faults = Vec::new();
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        faults.push(Fault::invalid("spec", &json!({}), why));
    }
    for field in ["minAvailable", "maxUnavailable"] {
        let limit = &spec[field];
        let path = format!("spec.{field}");
        match limit {
            Value::Number(number) if number.as_i64().is_some_and(|number| number < 0) => {
                let why = "must be greater than or equal to 0";
                faults.push(Fault::invalid(path, limit, why));
            }
            Value::String(text) if percent(text).is_none_or(|share| share > 100) => {
                let why = "a valid percent string must be a number from 0 to 100 followed by '%'";
                faults.push(Fault::invalid(path, limit, why));
            }
            _ => {}
        }
    }
    let policy = &spec["unhealthyPodEvictionPolicy"];
    if !policy.is_null() && policy != "IfHealthyBudget" && policy != "AlwaysAllow" {
        let path = "spec.unhealthyPodEvictionPolicy";
        faults.push(Fault::unsupported(path, policy, &["AlwaysAllow", "IfHealthyBudget"]));
    }
    faults
}

impl State {
    /// Counts anew what the budgets of `namespace` allow, and tells it where it changed.
    pub fn count_budgets(&mut self, namespace: &str, now: Timestamp) {
        let budgets: Vec<(ObjectKey, Arc<Value>)> = self
            .store
            .objects(BUDGETS, Some(namespace))
            .map(|((_, name), budget)| (budget_key(namespace, name), budget.clone()))
            .collect();
        for (key, budget) in budgets {
            let status = self.status_of(namespace, &budget, now);
            if status != budget["status"] {
                let mut counted = Value::clone(&budget);
                counted["status"] = status;
                self.put(&key, counted);
            }
        }
    }

    fn status_of(&self, namespace: &str, budget: &Value, now: Timestamp) -> Value {
        let spec = &budget["spec"];
        let pods: Vec<&Arc<Value>> = self
            .store
            .objects("pods", Some(namespace))
            .map(|(_, pod)| pod)
            .filter(|pod| covers(budget, pod))
            .collect();
        let healthy = count(pods.iter().filter(|pod| is_ready(pod) && !is_leaving(pod)).count());
        let counts = match (&spec["minAvailable"], &spec["maxUnavailable"]) {
            (Value::Null, Value::Null) => Some((count(pods.len()), 0)),
            (Value::Null, most) => {
                let scale = self.scale_of_owners(&pods);
                scale.map(|all| (all, (all - share(most, all)).max(0)))
            }
            (Value::String(_), _) => {
                let scale = self.scale_of_owners(&pods);
                scale.map(|all| (all, share(&spec["minAvailable"], all)))
            }
            (least, _) => Some((count(pods.len()), share(least, 0))),
        };
        let mut status = budget["status"].clone();
        let reason = if let Some((expected, desired)) = counts {
            // One that covers nothing yet allows nothing.
            let spare = if expected > 0 { (healthy - desired).max(0) } else { 0 };
            status["currentHealthy"] = json!(healthy);
            status["desiredHealthy"] = json!(desired);
            status["expectedPods"] = json!(expected);
            status["disruptionsAllowed"] = json!(spare);
            if spare > 0 { "SufficientPods" } else { "InsufficientPods" }
        } else {
            // Nobody knows how many there should be.
            status["disruptionsAllowed"] = json!(0);
            "SyncFailed"
        };
        status["observedGeneration"] = budget["metadata"]["generation"].clone();
        status["conditions"] = json!([condition(budget, reason, now)]);
        status
    }

    /// How many Pods those who made these want in all; nothing if one of them does not say. A Pod
    /// that nobody made does not count.
    fn scale_of_owners(&self, pods: &[&Arc<Value>]) -> Option<i64> {
        let owners = pods.iter().filter_map(|pod| controller(pod).map(str::to_owned));
        // A Deployment's ReplicaSets count once, as their Deployment.
        let top: BTreeSet<String> = owners.map(|uid| self.above(uid)).collect();
        top.iter().map(|uid| self.scale_of_owner(uid)).sum()
    }

    fn above(&self, uid: String) -> String {
        let set = self.store.by_uid(&uid).filter(|key| &*key.resource == REPLICA_SETS);
        let set = set.and_then(|key| self.store.get(key));
        set.and_then(|set| controller(set)).map_or(uid, str::to_owned)
    }

    fn scale_of_owner(&self, uid: &str) -> Option<i64> {
        let key = self.store.by_uid(uid)?;
        let kind = self.registry.by_key(&key.resource)?;
        let path = &kind.versions[0].scale.as_ref()?.spec_replicas;
        path.first(self.store.get(key)?)?.as_i64()
    }

    /// Whether the budgets of a Pod let it be evicted.
    pub fn check_budgets(&self, key: &ObjectKey, pod: &Value) -> Result<(), Refusal> {
        let counts = !matches!(pod["status"]["phase"].as_str(), Some("Running" | "Unknown"));
        if counts || is_leaving(pod) {
            return Ok(());
        }
        let budgets = self.store.objects(BUDGETS, Some(&key.namespace));
        let mut budgets = budgets.filter(|(_, budget)| covers(budget, pod));
        let Some(((_, name), budget)) = budgets.next() else { return Ok(()) };
        if budgets.next().is_some() {
            let message = "This pod has more than one PodDisruptionBudget, which the eviction \
                           subresource does not support.";
            return Err(Refusal::new(500, "", message));
        }
        let number = |field: &str| budget["status"][field].as_i64().unwrap_or_default();
        let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
        if !is_ready(pod) {
            let always = budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow";
            // One that is not ready is no loss to those that are.
            if always || (desired > 0 && healthy >= desired) {
                return Ok(());
            }
        }
        if number("disruptionsAllowed") > 0 {
            return Ok(());
        }
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut refusal = Refusal::new(429, "TooManyRequests", message);
        let cause = format!(
            "The disruption budget {name} needs {desired} healthy pods and has {healthy} currently"
        );
        refusal.details = json!({"causes": [{"reason": "DisruptionBudget", "message": cause}]});
        Err(refusal)
    }
}

fn budget_key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey { resource: BUDGETS.into(), namespace: namespace.to_owned(), name: name.to_owned() }
}

/// A budget without a selector is about no Pod; one with an empty selector is about all.
fn covers(budget: &Value, pod: &Value) -> bool {
    let selector = &budget["spec"]["selector"];
    !selector.is_null() && Selector::from_object(selector).matches(pod)
}

fn condition(budget: &Value, reason: &str, now: Timestamp) -> Value {
    let status = if reason == "SufficientPods" { "True" } else { "False" };
    let old = &budget["status"]["conditions"][0];
    let since =
        if old["status"] == status { old["lastTransitionTime"].clone() } else { json!(stamp(now)) };
    json!({"type": ALLOWED, "status": status, "reason": reason, "message": "",
        "lastTransitionTime": since, "observedGeneration": budget["metadata"]["generation"]})
}

/// The uid of the owner that decides about an object.
fn controller(object: &Value) -> Option<&str> {
    let mut owners = object["metadata"]["ownerReferences"].as_array()?.iter();
    owners.find(|owner| owner["controller"] == true)?["uid"].as_str()
}

fn is_leaving(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_null()
}

fn is_ready(pod: &Value) -> bool {
    let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

fn percent(text: &str) -> Option<i64> {
    text.strip_suffix('%')?.parse().ok().filter(|share| *share >= 0)
}

/// A number of Pods, or a percentage of `all`, rounded up.
fn share(limit: &Value, all: i64) -> i64 {
    match limit {
        Value::String(text) => (percent(text).unwrap_or_default() * all + 99) / 100,
        number => number.as_i64().unwrap_or_default(),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
