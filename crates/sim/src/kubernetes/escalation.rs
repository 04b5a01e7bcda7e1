//! Nobody gives rights away that he does not have: who writes a role has all of its rights, or
//! `escalate`; who binds one has them, or `bind`. No I/O.
//!
//! # Caveats
//! - Roles that are made of others (`aggregationRule`) are not: only their own rules count.

use serde_json::Value;

use super::authorize::{BINDINGS, CLUSTER_BINDINGS, CLUSTER_ROLES, ROLES, Wish, allows, array};
use super::refusal::Refusal;
use super::state::{Ask, State};
use super::write::remove;

/// The group of roles and bindings.
const RBAC: &str = "rbac.authorization.k8s.io";

impl State {
    /// Refuses a role or a binding that would give more than its writer may. `old` is what it was.
    pub fn check_escalation(
        &self,
        ask: &Ask,
        old: Option<&Value>,
        new: &Value,
    ) -> Result<(), Refusal> {
        let kind = ask.kind();
        let is_role = matches!(&*kind.key, CLUSTER_ROLES | ROLES);
        let is_binding = matches!(&*kind.key, CLUSTER_BINDINGS | BINDINGS);
        let same = old.is_some_and(|old| differ_in_ends_alone(old, new));
        if !ask.enforced || !(is_role || is_binding) || same {
            return Ok(());
        }
        let place = ask.target.namespace.as_deref();
        let (verb, resource, name) = if is_role {
            ("escalate", kind.plural.as_str(), ask.target.name.as_deref())
        } else {
            let reference = &new["roleRef"];
            let roles = if reference["kind"] == "ClusterRole" { "clusterroles" } else { "roles" };
            ("bind", roles, reference["name"].as_str())
        };
        let (subresource, selector) = (None, None);
        let wish =
            Wish { verb, group: RBAC, resource, subresource, namespace: place, name, selector };
        if self.allows(&ask.who, &wish) {
            return Ok(());
        }
        let missing = || Refusal::not_found(kind, name.unwrap_or_default());
        let given = if is_role { new } else { self.role(new, place).ok_or_else(missing)? };
        let has = |rule: &Value| self.has_all_of(ask, place, rule);
        if array(&given["rules"]).iter().all(has) {
            return Ok(());
        }
        let name = new["metadata"]["name"].as_str().unwrap_or_default();
        let why = format!(
            "user {:?} is attempting to grant RBAC permissions not currently held",
            ask.who.user
        );
        Err(Refusal::forbidden(kind, name, &why))
    }

    /// Whether whoever asks has every single right of a rule in a place, or everywhere.
    fn has_all_of(&self, ask: &Ask, place: Option<&str>, rule: &Value) -> bool {
        let names = array(&rule["resourceNames"]);
        let names: Vec<Option<&Value>> =
            if names.is_empty() { vec![None] } else { names.iter().map(Some).collect() };
        let is_held = |wish: &Wish<'_>| self.has_rule(&ask.who, place, |own| allows(own, wish));
        array(&rule["verbs"]).iter().all(|verb| {
            let on_resources = array(&rule["apiGroups"]).iter().all(|group| {
                array(&rule["resources"]).iter().all(|resource| {
                    names.iter().all(|name| is_held(&single(verb, group, resource, *name, place)))
                })
            });
            let has = |path: &Value| self.has_rule(&ask.who, place, |own| covers(own, verb, path));
            on_resources && array(&rule["nonResourceURLs"]).iter().all(has)
        })
    }
}

/// One right of a rule, as something that is wished.
fn single<'a>(
    verb: &'a Value,
    group: &'a Value,
    resource: &'a Value,
    name: Option<&'a Value>,
    namespace: Option<&'a str>,
) -> Wish<'a> {
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    let (resource, subresource) = match text(resource).split_once('/') {
        Some((resource, below)) => (resource, Some(below)),
        None => (text(resource), None),
    };
    let (verb, group, name) = (text(verb), text(group), name.map(text));
    Wish { verb, group, resource, subresource, namespace, name, selector: None }
}

/// Whether a rule allows to do this at a path that is no object's.
fn covers(rule: &Value, verb: &Value, path: &Value) -> bool {
    let wanted = path.as_str().unwrap_or_default();
    let reaches = |own: &Value| {
        let own = own.as_str().unwrap_or_default();
        own == wanted || own.strip_suffix('*').is_some_and(|begin| wanted.starts_with(begin))
    };
    let does = |own: &Value| own == "*" || own == verb;
    array(&rule["verbs"]).iter().any(does) && array(&rule["nonResourceURLs"]).iter().any(reaches)
}

/// Whether a write only lets an object go, or holds it: anybody may who may write at all.
fn differ_in_ends_alone(old: &Value, new: &Value) -> bool {
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["ownerReferences", "finalizers"] {
            remove(&mut object["metadata"], field);
        }
        object
    };
    rest(old) == rest(new)
}
