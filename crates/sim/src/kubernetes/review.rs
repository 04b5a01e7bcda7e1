//! Questions about rights: they are asked like objects, answered at once, and never stored. No I/O.

use serde_json::{Value, json};

use super::auth::Identity;
use super::authorize::Wish;
use super::refusal::Refusal;
use super::respond::read_json;
use super::state::State;

/// Where they are asked.
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

impl State {
    /// The answer to a question at `path`; `None` if none is asked there. Where roles are not
    /// enforced, everybody may do everything.
    pub fn review(
        &self,
        path: &str,
        who: &Identity,
        enforced: bool,
        body: &[u8],
    ) -> Option<Result<Value, Refusal>> {
        match path {
            ACCESS => Some(read_json(body).map(|asked| self.access(who, enforced, asked))),
            WHO => Some(Ok(json!({"apiVersion": "authentication.k8s.io/v1",
                "kind": "SelfSubjectReview", "metadata": {},
                "status": {"userInfo": {"username": who.user, "groups": who.groups}}}))),
            _ => None,
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
