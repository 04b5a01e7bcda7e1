//! Questions about rights: they are asked like objects, answered at once, and never stored. No I/O.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::auth::Identity;
use super::authorize::Wish;
use super::refusal::Refusal;
use super::respond::read_json;
use super::state::{State, stamp};

/// Where they are asked.
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
const VERSION: &str = "authorization.k8s.io/v1";
const KIND: &str = "SelfSubjectAccessReview";

/// Whether anything can be asked at `path`.
pub(crate) fn is_asked_at(path: &str) -> bool {
    path == ACCESS || path == WHO
}

impl State {
    /// The answer to a question at `path`, where [one is asked](is_asked_at). Where roles are not
    /// enforced, everybody may do everything.
    pub fn review(
        &self,
        path: &str,
        who: &Identity,
        enforced: bool,
        now: Timestamp,
        body: &[u8],
    ) -> Result<Value, Refusal> {
        match path {
            ACCESS => {
                read_json(body).and_then(check).map(|asked| self.access(who, enforced, asked))
            }
            _ => Ok(json!({"apiVersion": "authentication.k8s.io/v1",
                "kind": "SelfSubjectReview", "metadata": {"creationTimestamp": stamp(now)},
                "status": {"userInfo": {"username": who.user, "groups": who.groups}}})),
        }
    }

    fn access(&self, who: &Identity, enforced: bool, mut asked: Value) -> Value {
        let wanted = &asked["spec"]["resourceAttributes"];
        let text = |field: &str| wanted[field].as_str().filter(|text| !text.is_empty());
        let wish = Wish {
            verb: text("verb").unwrap_or_default(),
            group: text("group").unwrap_or_default(),
            resource: text("resource").unwrap_or_default(),
            subresource: text("subresource"),
            namespace: text("namespace"),
            name: text("name"),
            selector: None,
        };
        let allowed = !enforced || self.allows(who, &wish);
        asked["status"] = json!({"allowed": allowed});
        asked
    }
}

/// The question as it is understood: it asks for one thing.
fn check(mut asked: Value) -> Result<Value, Refusal> {
    for (field, wanted) in [("apiVersion", VERSION), ("kind", KIND)] {
        match asked[field].as_str() {
            None | Some("") => asked[field] = json!(wanted),
            Some(given) if given == wanted => {}
            Some(given) => {
                let message = format!("{given:?} cannot be handled as a {KIND}");
                return Err(Refusal::bad_request(message));
            }
        }
    }
    if asked["metadata"].is_null() {
        asked["metadata"] = json!({});
    }
    let spec = &asked["spec"];
    let said = |field: &str| spec[field].is_object();
    if said("resourceAttributes") == said("nonResourceAttributes") {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        return Err(Refusal::new(422, "Invalid", format!("spec.resourceAttributes: {why}")));
    }
    Ok(asked)
}
