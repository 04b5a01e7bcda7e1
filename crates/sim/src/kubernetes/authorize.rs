//! Who may do what, by the Roles and bindings that are stored. No I/O.

use std::sync::Arc;

use serde_json::Value;

use super::auth::Identity;
use super::gate::Call;
use super::kind::Kind;
use super::refusal::{Refusal, details};
use super::state::State;

/// Where roles and bindings are stored.
const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
const ROLES: &str = "roles.rbac.authorization.k8s.io";
const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
/// Members may do everything, whatever roles say.
const MASTERS: &str = "system:masters";

impl State {
    /// Refuses a call for which no role gives its caller the right.
    pub fn authorize(&self, kind: &Kind, call: &Call) -> Result<(), Refusal> {
        if call.who.groups.iter().any(|group| group == MASTERS) {
            return Ok(());
        }
        let bound = self.store.objects(CLUSTER_BINDINGS, None);
        let everywhere = bound.map(|(_, binding)| (binding, None));
        let here = call.namespace.as_deref();
        let bound = here.map(|here| self.store.objects(BINDINGS, Some(here)));
        let here = bound.into_iter().flatten().map(|(_, binding)| (binding, here));
        let allowed = everywhere
            .chain(here)
            .filter(|(binding, _)| names(binding, &call.who))
            .filter_map(|(binding, place)| self.role(binding, place))
            .any(|role| array(&role["rules"]).iter().any(|rule| allows(rule, kind, call)));
        if allowed { Ok(()) } else { Err(forbidden(kind, call)) }
    }

    /// The role that a binding gives, which lies in `place` unless it is for all namespaces.
    fn role(&self, binding: &Value, place: Option<&str>) -> Option<Arc<Value>> {
        let reference = &binding["roleRef"];
        let cluster_wide = reference["kind"] == "ClusterRole";
        let resource = if cluster_wide { CLUSTER_ROLES } else { ROLES };
        let wanted = reference["name"].as_str()?;
        let place = if cluster_wide { None } else { place };
        let mut roles = self.store.objects(resource, place);
        roles.find(|((_, name), _)| name == wanted).map(|(_, role)| role.clone())
    }
}

fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether one of a binding's subjects is the caller.
fn names(binding: &Value, who: &Identity) -> bool {
    array(&binding["subjects"]).iter().any(|subject| {
        let name = subject["name"].as_str().unwrap_or_default();
        match subject["kind"].as_str() {
            Some("ServiceAccount") => {
                let namespace = subject["namespace"].as_str().unwrap_or_default();
                who.user == format!("system:serviceaccount:{namespace}:{name}")
            }
            Some("Group") => who.groups.iter().any(|group| group == name),
            _ => who.user == name,
        }
    })
}

fn allows(rule: &Value, kind: &Kind, call: &Call) -> bool {
    let lists = |field: &str, wanted: &str| {
        array(&rule[field]).iter().any(|item| item == "*" || item == wanted)
    };
    let resource = match &call.subresource {
        Some(subresource) => format!("{}/{subresource}", kind.plural),
        None => kind.plural.clone(),
    };
    let only = array(&rule["resourceNames"]);
    let named = || call.name.as_deref().is_some_and(|name| only.iter().any(|item| item == name));
    lists("verbs", &call.verb.to_string())
        && lists("apiGroups", &kind.group)
        && lists("resources", &resource)
        && (only.is_empty() || named())
}

fn forbidden(kind: &Kind, call: &Call) -> Refusal {
    let name = call.name.as_deref().unwrap_or_default();
    let place = match &call.namespace {
        Some(namespace) => format!("in the namespace {namespace:?}"),
        None => "at the cluster scope".to_owned(),
    };
    let what = match &call.subresource {
        Some(subresource) => format!("{}/{subresource}", kind.plural),
        None => kind.plural.clone(),
    };
    let message = format!(
        "{} {name:?} is forbidden: User {:?} cannot {} resource {what:?} in API group {:?} {place}",
        kind.key, call.who.user, call.verb, kind.group
    );
    Refusal { details: details(kind, name), ..Refusal::new(403, "Forbidden", message) }
}
