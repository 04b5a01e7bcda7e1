//! What a Node may do by being one: the Node authorizer, and what `NodeRestriction` takes away
//! again. No I/O.

use serde_json::Value;

use super::auth::Identity;
use super::authorize::Wish;
use super::gate::{Call, Verb};
use super::refusal::Refusal;
use super::state::{Ask, State};
use super::store::ObjectKey;

/// The group that all Nodes are in.
const NODES: &str = "system:nodes";
/// Where Nodes' Leases are.
const LEASES: &str = "kube-node-lease";
/// Labels that only the cluster may give, for work that must not be lured to a Node.
const RESTRICTED_LABEL: &str = "node-restriction.kubernetes.io/";

/// The Node that somebody is.
fn node_of(who: &Identity) -> Option<&str> {
    who.groups.iter().any(|group| group == NODES).then_some(())?;
    who.user.strip_prefix("system:node:")
}

impl State {
    /// Whether it is a Node's right.
    pub fn node_may(&self, who: &Identity, wish: &Wish<'_>) -> bool {
        let Some(node) = node_of(who) else { return false };
        let own_only =
            |field: &str| wish.selector.is_some_and(|selector| selector.demands(field, node));
        match (wish.resource, wish.subresource, wish.verb) {
            ("nodes", None | Some("status"), "get" | "update" | "patch") => wish.name == Some(node),
            ("nodes", None, "list" | "watch") => own_only("metadata.name"),
            ("pods", None, "list" | "watch") => own_only("spec.nodeName"),
            ("pods", None, "get" | "delete")
            | ("pods", Some("status"), "get" | "update" | "patch")
            | ("pods", Some("eviction"), "create") => self.runs_on(wish, node),
            ("secrets" | "configmaps", None, "get") => self.used_on(wish, node),
            ("serviceaccounts", Some("token"), "create") => self.account_on(wish, node),
            ("leases", None, "get" | "create" | "update" | "patch" | "delete") => {
                wish.namespace == Some(LEASES) && (wish.verb == "create" || wish.name == Some(node))
            }
            ("nodes", None, "create")
            | ("events", None, "create" | "update" | "patch")
            | ("certificatesigningrequests", None, "create" | "get" | "list" | "watch")
            | ("services", None, "get" | "list" | "watch") => true,
            _ => false,
        }
    }

    /// Refuses what a Node has the right to, and may not do all the same.
    pub fn restrict_node(&self, ask: &Ask, call: &Call, body: &Value) -> Result<(), Refusal> {
        let Some(node) = node_of(&call.who).filter(|_| call.verb.mutates()) else { return Ok(()) };
        let kind = ask.kind();
        let named = call.name.as_deref().or_else(|| body["metadata"]["name"].as_str());
        let name = named.unwrap_or_default();
        let refuse = |why: String| Err(Refusal::forbidden(kind, name, &why));
        let stored = ask.target.key().and_then(|key| self.store.get(&key).cloned());
        let differs = |pointer: &str| {
            let said = body.pointer(pointer).filter(|said| !said.is_null());
            let known = stored.as_deref().and_then(|stored| stored.pointer(pointer));
            said.is_some_and(|said| known != Some(said))
        };
        match (&*kind.plural, call.subresource.as_deref()) {
            ("nodes" | "leases", _) if name != node => {
                refuse(format!("node {node:?} is not allowed to modify {} {name:?}", kind.plural))
            }
            ("nodes", None) if call.verb != Verb::Create && differs("/spec/taints") => {
                refuse(format!("node {node:?} is not allowed to modify taints"))
            }
            ("nodes", Some("status")) if differs("/metadata/labels") => {
                refuse(format!("node {node:?} is not allowed to modify labels"))
            }
            ("nodes", _) if has_restricted_label(body, stored.as_deref()) => {
                refuse(format!("is not allowed to modify labels: {RESTRICTED_LABEL}"))
            }
            ("serviceaccounts", Some("token")) => {
                let bound = &body["spec"]["boundObjectRef"];
                let pod = bound["name"].as_str().filter(|_| bound["kind"] == "Pod");
                let own = pod.is_some_and(|pod| {
                    self.pods_of(call.namespace.as_deref(), node)
                        .any(|known| known["metadata"]["name"] == pod)
                });
                if own { Ok(()) } else { refuse("node requested token not bound to a pod".into()) }
            }
            _ => Ok(()),
        }
    }

    /// The Pods of a namespace that are bound to the Node.
    fn pods_of<'s>(
        &'s self,
        namespace: Option<&'s str>,
        node: &'s str,
    ) -> impl Iterator<Item = &'s Value> {
        let pods = self.store.objects("pods", namespace).map(|(_, pod)| &**pod);
        pods.filter(move |pod| pod["spec"]["nodeName"] == node)
    }

    fn runs_on(&self, wish: &Wish<'_>, node: &str) -> bool {
        let (Some(namespace), Some(name)) = (wish.namespace, wish.name) else { return false };
        let key = ObjectKey {
            resource: "pods".into(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        // What is not there is not found, which is no secret.
        self.store.get(&key).is_none_or(|pod| pod["spec"]["nodeName"] == node)
    }

    /// Whether a Pod of the Node names the Secret or the `ConfigMap`.
    fn used_on(&self, wish: &Wish<'_>, node: &str) -> bool {
        let Some(name) = wish.name else { return false };
        let fields: &[&str] = if wish.resource == "secrets" {
            &["secretName", "secretRef", "secretKeyRef", "imagePullSecrets", "secret"]
        } else {
            &["configMapRef", "configMapKeyRef", "configMap"]
        };
        self.pods_of(wish.namespace, node).any(|pod| mentions(&pod["spec"], fields, name, false))
    }

    fn account_on(&self, wish: &Wish<'_>, node: &str) -> bool {
        let mut pods = self.pods_of(wish.namespace, node);
        pods.any(|pod| pod["spec"]["serviceAccountName"].as_str() == wish.name)
    }
}

/// Whether `name` stands below one of these fields, as the name that the field refers to.
fn mentions(value: &Value, fields: &[&str], name: &str, below: bool) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(field, value)| {
            let refers = below && matches!(field.as_str(), "name" | "secretName");
            let refers = refers || field == "secretName" && fields.contains(&"secretName");
            let below = below || fields.contains(&field.as_str());
            (refers && value == name) || mentions(value, fields, name, below)
        }),
        Value::Array(items) => items.iter().any(|item| mentions(item, fields, name, below)),
        _ => false,
    }
}

fn has_restricted_label(body: &Value, stored: Option<&Value>) -> bool {
    let labels = body["metadata"]["labels"].as_object().into_iter().flatten();
    let known = stored.map(|stored| &stored["metadata"]["labels"]);
    labels.into_iter().any(|(key, value)| {
        let same = known.is_some_and(|known| known[key] == *value);
        key.starts_with(RESTRICTED_LABEL) && !same
    })
}
