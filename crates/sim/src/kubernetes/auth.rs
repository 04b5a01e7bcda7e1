//! Who asks: identities, and the bearer tokens that stand for them.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// A user of the API, as an audit log would name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// `system:serviceaccount:<namespace>:<name>` for example.
    pub user: String,
    /// The groups that the user is in.
    pub groups: Vec<String>,
}

impl Identity {
    /// A user with no groups but that of all who are known.
    #[must_use]
    pub fn user(name: impl Into<String>) -> Self {
        Self { user: name.into(), groups: vec!["system:authenticated".to_owned()] }
    }

    /// The cluster's administrator.
    #[must_use]
    pub fn admin() -> Self {
        let groups = vec!["system:masters".to_owned(), "system:authenticated".to_owned()];
        Self { user: "kubernetes-admin".to_owned(), groups }
    }

    /// A controller that stands in for a real one, and may do all that it tries.
    #[must_use]
    pub fn stand_in(name: impl Into<String>) -> Self {
        Self { user: name.into(), ..Self::admin() }
    }

    /// A Node.
    #[must_use]
    pub fn node(name: &str) -> Self {
        let groups = vec!["system:nodes".to_owned(), "system:authenticated".to_owned()];
        Self { user: format!("system:node:{name}"), groups }
    }

    /// A service account.
    #[must_use]
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".to_owned(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".to_owned(),
            ],
        }
    }
}

/// Whom a token is for when nobody says: this server.
pub(crate) const AUDIENCE: &str = "https://kubernetes.default.svc";

/// How long a token outlives the deletion of what it is bound to, where that is not gone yet: as
/// long as a real server lets two clocks differ.
const LEEWAY: SignedDuration = SignedDuration::from_mins(1);

/// The tokens that somebody was given and whose time is not over. They do not print.
#[derive(Default)]
pub(crate) struct Tokens(BTreeMap<String, Grant>);

/// What a token is good for.
pub(crate) struct Grant {
    /// Whom it stands for.
    pub identity: Identity,
    /// Whether this server is among those whom it is for.
    pub is_for_us: bool,
    pub expires: Option<Timestamp>,
    /// The uids of objects, with any of which it dies.
    pub bound_to: Vec<String>,
    /// Whether it outlives the deletion of these for a moment, while they wait for somebody.
    pub lingers: bool,
}

impl Grant {
    /// For this server, and for ever.
    pub fn new(identity: Identity) -> Self {
        Self { identity, is_for_us: true, expires: None, bound_to: vec![], lingers: false }
    }

    fn lives(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }

    /// Whether it still is good although `object`, to which it is bound, may be on its way out.
    pub fn survives(&self, object: &Value, now: Timestamp) -> bool {
        let Some(deleted) = object["metadata"]["deletionTimestamp"].as_str() else { return true };
        let deleted = deleted.parse::<Timestamp>().unwrap_or(now);
        self.lingers && deleted + LEEWAY >= now
    }
}

impl Tokens {
    /// Makes `token` good for what `grant` says.
    pub fn give(&mut self, token: String, grant: Grant) {
        self.0.insert(token, grant);
    }

    /// What this token is good for here at `now`, if its time is not over.
    pub fn find(&self, token: &str, now: Timestamp) -> Option<&Grant> {
        self.0.get(token).filter(|grant| grant.is_for_us && grant.lives(now))
    }

    /// Lets go of those whose time is over: a demo has no end.
    pub fn forget_expired(&mut self, now: Timestamp) {
        self.0.retain(|_, grant| grant.lives(now));
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &String> {
        self.0.keys()
    }

    /// Ends every token that is bound to the object with this uid.
    pub fn revoke(&mut self, uid: &str) {
        self.0.retain(|_, grant| !grant.bound_to.iter().any(|bound| bound == uid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_whose_time_is_over_is_forgotten_and_no_other() {
        let mut tokens = Tokens::default();
        let mut grant = |token: &str, expires: Option<i64>| {
            let expires = expires.map(|second| Timestamp::from_second(second).unwrap());
            tokens.give(token.to_owned(), Grant { expires, ..Grant::new(Identity::admin()) });
        };
        grant("for ever", None);
        grant("over", Some(10));
        grant("longer", Some(11));
        tokens.forget_expired(Timestamp::from_second(10).unwrap());
        assert_eq!(tokens.all().collect::<Vec<_>>(), ["for ever", "longer"]);
    }
}
