//! Subresources that are verbs: bind a Pod, evict it, ask for a token. No I/O.

use jiff::SignedDuration;
use serde_json::{Value, json};

use super::auth::{AUDIENCE, Grant, Identity};
use super::refusal::{Fault, Refusal};
use super::removal::check_preconditions;
use super::request::Options;
use super::state::{Ask, State, stamp};
use super::store::{ObjectKey, uid_of};

/// How long a token lives when nobody says.
const TOKEN_SECONDS: i64 = 3_600;

impl State {
    /// Does what the subresource says to the object that the path names; the answer's body.
    pub fn act(&mut self, ask: &Ask, subresource: &str, body: &Value) -> Result<Value, Refusal> {
        let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
        let object = self.find(ask.kind(), &key)?;
        match subresource {
            "binding" => self.bind(ask, &key, &object, body),
            "eviction" => self.evict(ask, &key, &object, body),
            "token" => {
                let short = body["spec"]["expirationSeconds"].as_i64().is_some_and(|s| s < 600);
                if short {
                    let why = "may not specify a duration less than 10 minutes";
                    let value = &body["spec"]["expirationSeconds"];
                    let fault = Fault::invalid("spec.expirationSeconds", value, why);
                    let mut refusal = Refusal::invalid(ask.kind(), "", &[fault]);
                    refusal.details["kind"] = json!("TokenRequest");
                    refusal.details["group"] = json!("authentication.k8s.io");
                    return Err(refusal);
                }
                let bound_to = self.bound_object(&key, &body["spec"]["boundObjectRef"])?;
                Ok(self.request_token(ask, &object, bound_to, body))
            }
            _ => Err(Refusal::method_not_allowed()),
        }
    }

    /// Puts a Pod on a Node, once.
    fn bind(
        &mut self,
        ask: &Ask,
        key: &ObjectKey,
        pod: &Value,
        body: &Value,
    ) -> Result<Value, Refusal> {
        let node = body["target"]["name"].as_str().unwrap_or_default();
        if !pod["metadata"]["deletionTimestamp"].is_null() {
            let why = format!("pod {} is being deleted, cannot be assigned to a host", key.name);
            return Err(Refusal::conflict(ask.kind(), &key.name, &why));
        }
        if let Some(already) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
            let why = format!("pod {} is already assigned to node {already:?}", key.name);
            return Err(Refusal::conflict(ask.kind(), &key.name, &why));
        }
        let mut bound = pod.clone();
        bound["spec"]["nodeName"] = json!(node);
        let scheduled =
            json!({"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(ask.now)});
        match bound["status"]["conditions"].as_array_mut() {
            Some(conditions) => {
                conditions.retain(|condition| condition["type"] != "PodScheduled");
                conditions.push(scheduled);
            }
            None => bound["status"]["conditions"] = json!([scheduled]),
        }
        if !ask.options.dry_run {
            self.put(key, bound);
            self.settle(ask.now);
        }
        Ok(success())
    }

    /// Deletes a Pod, unless a budget would be broken by it.
    fn evict(
        &mut self,
        ask: &Ask,
        key: &ObjectKey,
        pod: &Value,
        body: &Value,
    ) -> Result<Value, Refusal> {
        self.check_budgets(key, pod)?;
        let mut options = Options::default();
        options.read_delete_body(body["deleteOptions"].to_string().as_bytes())?;
        check_preconditions(ask.kind(), key, pod, &options.delete)?;
        // `kubectl drain` asks for a rehearsal in the body, others in the query.
        if !(ask.options.dry_run || options.dry_run) {
            self.begin_delete(ask.kind(), key, &options.delete, ask.now);
            self.settle(ask.now);
        }
        Ok(success())
    }

    /// The uid of the object that a token for `account` shall die with, if it shall with any.
    fn bound_object(&self, account: &ObjectKey, said: &Value) -> Result<Option<String>, Refusal> {
        if said.is_null() {
            return Ok(None);
        }
        let text = |field: &str| said[field].as_str().unwrap_or_default();
        let (group, namespace) = (text("apiVersion").contains('/'), account.namespace.clone());
        let (resource, namespace) = match text("kind") {
            "Pod" if !group => ("pods", namespace),
            "Secret" if !group => ("secrets", namespace),
            "Node" if !group => ("nodes", String::new()),
            other => {
                let why = format!("cannot bind token to object of type {other}");
                return Err(Refusal::bad_request(why));
            }
        };
        let name = text("name").to_owned();
        let kind = self.registry.by_key(resource).ok_or_else(Refusal::no_such_path)?;
        let object = self.find(kind, &ObjectKey { resource: resource.into(), namespace, name })?;
        let its = object["spec"]["serviceAccountName"].as_str().unwrap_or_default();
        if resource == "pods" && its != account.name {
            let (own, its) = (&account.name, format!("pod running with serviceaccount {its:?}"));
            let why = format!("cannot bind token for serviceaccount {own:?} to {its}");
            return Err(Refusal::bad_request(why));
        }
        if !text("uid").is_empty() && text("uid") != uid_of(&object) {
            let why = "the UID in the bound object reference does not match the UID in record";
            let mut refusal = Refusal::conflict(kind, text("name"), why);
            refusal.details["kind"] = said["kind"].clone();
            return Err(refusal);
        }
        Ok(Some(uid_of(&object).to_owned()))
    }

    /// A new token for a service account.
    fn request_token(
        &mut self,
        ask: &Ask,
        account: &Value,
        bound_to: Option<String>,
        body: &Value,
    ) -> Value {
        let seconds = body["spec"]["expirationSeconds"].as_i64().unwrap_or(TOKEN_SECONDS);
        let expires = ask.now.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(ask.now);
        let token = self.store.new_token();
        let bound_to = std::iter::once(uid_of(account).to_owned()).chain(bound_to).collect();
        let metadata = &account["metadata"];
        let text = |field: &str| metadata[field].as_str().unwrap_or_default();
        let identity = Identity::service_account(text("namespace"), text("name"));
        let audiences = body["spec"]["audiences"].as_array().filter(|named| !named.is_empty());
        let audiences = audiences.cloned().unwrap_or_else(|| vec![json!(AUDIENCE)]);
        let is_for_us = audiences.iter().any(|audience| audience == AUDIENCE);
        self.tokens.forget_expired(ask.now);
        let grant = Grant { is_for_us, expires: Some(expires), bound_to, ..Grant::new(identity) };
        self.tokens.give(token.clone(), Grant { lingers: true, ..grant });
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "metadata": {"name": metadata["name"], "namespace": metadata["namespace"],
                "uid": uid_of(account),
                "creationTimestamp": stamp(ask.now)},
            "spec": {"audiences": audiences, "expirationSeconds": seconds,
                "boundObjectRef": body["spec"]["boundObjectRef"]},
            "status": {"token": token, "expirationTimestamp": stamp(expires)}})
    }
}

fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
}
