//! Who asks: identities, and the bearer tokens that stand for them.

use std::collections::BTreeMap;

use jiff::Timestamp;

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

/// The tokens that are valid now. They do not print.
#[derive(Default)]
pub(crate) struct Tokens(BTreeMap<String, Grant>);

struct Grant {
    identity: Identity,
    expires: Option<Timestamp>,
    /// The token dies with any of these objects.
    bound_to: Vec<String>,
}

impl Grant {
    fn lives(&self, now: Timestamp) -> bool {
        self.expires.is_none_or(|expires| now < expires)
    }
}

impl Tokens {
    /// Makes `token` stand for `identity` while all objects in `bound_to` (uids) exist.
    pub fn grant(
        &mut self,
        token: String,
        identity: Identity,
        expires: Option<Timestamp>,
        bound_to: Vec<String>,
    ) {
        self.0.insert(token, Grant { identity, expires, bound_to });
    }

    /// Who this token stands for, if it is valid at `now`.
    pub fn identify(&self, token: &str, now: Timestamp) -> Option<&Identity> {
        self.0.get(token).filter(|grant| grant.lives(now)).map(|grant| &grant.identity)
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
            tokens.grant(token.to_owned(), Identity::admin(), expires, vec![]);
        };
        grant("for ever", None);
        grant("over", Some(10));
        grant("longer", Some(11));
        tokens.forget_expired(Timestamp::from_second(10).unwrap());
        assert_eq!(tokens.all().collect::<Vec<_>>(), ["for ever", "longer"]);
    }
}
