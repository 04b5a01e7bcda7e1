//! Who may do what: by the Roles and bindings that are stored, and for Nodes by what is theirs. No
//! I/O.

use std::sync::Arc;

use serde_json::Value;

use super::auth::Identity;
use super::gate::Call;
use super::kind::Kind;
use super::refusal::{Refusal, details};
use super::selector::Selector;
use super::state::{Ask, State};
use super::store::{ObjectKey, Subject};

/// Where roles and bindings are stored.
pub(crate) const CLUSTER_ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
pub(crate) const CLUSTER_BINDINGS: &str = "clusterrolebindings.rbac.authorization.k8s.io";
pub(crate) const ROLES: &str = "roles.rbac.authorization.k8s.io";
pub(crate) const BINDINGS: &str = "rolebindings.rbac.authorization.k8s.io";
/// Members may do everything, whatever roles say.
const MASTERS: &str = "system:masters";

/// What somebody wants to do, in the words of roles.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish<'a> {
    pub verb: &'a str,
    pub group: &'a str,
    pub resource: &'a str,
    pub subresource: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub name: Option<&'a str>,
    /// Which objects of many.
    pub selector: Option<&'a Selector>,
}

impl State {
    /// Refuses a call to which its caller has no right.
    pub fn authorize(&self, ask: &Ask, call: &Call, body: &Value) -> Result<(), Refusal> {
        let kind = ask.kind();
        let verb = call.verb.to_string();
        let wish = Wish {
            verb: &verb,
            group: &kind.group,
            resource: &kind.plural,
            subresource: call.subresource.as_deref(),
            namespace: call.namespace.as_deref(),
            // A name that is still to be given cannot be asked for.
            name: ask.target.name.as_deref(),
            selector: Some(&ask.options.selector),
        };
        if !self.allows(&call.who, &wish) {
            return Err(forbidden(kind, call));
        }
        self.restrict_node(ask, call, body)
    }

    /// Whether `who` may do what it wishes.
    pub fn allows(&self, who: &Identity, wish: &Wish<'_>) -> bool {
        who.groups.iter().any(|group| group == MASTERS)
            || self.roles_allow(who, wish)
            || self.node_may(who, wish)
    }

    fn roles_allow(&self, who: &Identity, wish: &Wish<'_>) -> bool {
        self.has_rule(who, wish.namespace, |rule| allows(rule, wish))
    }

    /// Whether one of the rules that `who` has in a place, or everywhere, is such a rule.
    pub fn has_rule(
        &self,
        who: &Identity,
        place: Option<&str>,
        is_it: impl Fn(&Value) -> bool,
    ) -> bool {
        let groups = who.groups.iter().map(|group| Subject::Group(group.clone()));
        let subjects = std::iter::once(Subject::User(who.user.clone())).chain(groups);
        subjects.into_iter().any(|subject| {
            let mut bindings = self.store.bindings(&subject);
            bindings.any(|key| self.rules_given(key, place).iter().any(&is_it))
        })
    }

    /// The rules that a binding gives in a place, or everywhere.
    fn rules_given(&self, key: &ObjectKey, place: Option<&str>) -> &[Value] {
        let everywhere = &*key.resource == CLUSTER_BINDINGS;
        if !everywhere && place != Some(key.namespace.as_str()) {
            return &[];
        }
        let place = (!everywhere).then_some(key.namespace.as_str());
        let role = self.store.get(key).and_then(|binding| self.role(binding, place));
        role.map(|role| array(&role["rules"])).unwrap_or_default()
    }

    /// The role that a binding gives, which lies in `place` unless it is for all namespaces.
    pub fn role(&self, binding: &Value, place: Option<&str>) -> Option<&Arc<Value>> {
        let reference = &binding["roleRef"];
        let cluster_wide = reference["kind"] == "ClusterRole";
        let resource = if cluster_wide { CLUSTER_ROLES } else { ROLES };
        let place = place.filter(|_| !cluster_wide).unwrap_or_default().to_owned();
        let wanted = (place, reference["name"].as_str()?.to_owned());
        self.store.collection(resource)?.objects.get(&wanted)
    }
}

pub(crate) fn array(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Whether a rule allows it.
pub(crate) fn allows(rule: &Value, wish: &Wish<'_>) -> bool {
    let lists = |field: &str, wanted: &str| {
        array(&rule[field]).iter().any(|item| item == "*" || item == wanted)
    };
    let resource = || match wish.subresource {
        Some(below) => {
            lists("resources", &format!("{}/{below}", wish.resource))
                || lists("resources", &format!("*/{below}"))
        }
        None => lists("resources", wish.resource),
    };
    let only = array(&rule["resourceNames"]);
    let named = || wish.name.is_some_and(|name| only.iter().any(|item| item == name));
    lists("verbs", wish.verb)
        && lists("apiGroups", wish.group)
        && resource()
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
