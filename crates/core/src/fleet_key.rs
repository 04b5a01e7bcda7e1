//! The SSH key that a fleet shares: kept in a Secret, registered with the Scaleway project. No I/O.
//!
//! # Guarantees
//! - The Secret comes first, and creating it has one winner; what is registered is what it holds,
//!   so no Mac ever carries a key that nobody has (LH6).
//! - No registered key is ever deleted, whoever made it.
//! - A key whose registration was seen is noted on the Secret, where the system before us looks.

/// Everything that one decision may depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The fleet's Secret.
    pub stored: Stored,
    /// The project's keys of the fleet's name.
    pub registered: Registered,
}

/// The fleet's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// There is none.
    Absent,
    /// There is one without a key that can be used; why, in words.
    Unusable(String),
    /// There is one.
    There {
        /// The public half of the private key in it: type and base64.
        public: String,
        /// The id under which it is noted to be registered.
        noted: Option<String>,
    },
}

/// What the project has under the fleet's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Registered {
    /// Nobody looked, as there is nothing to look for.
    NotRead,
    /// These, oldest first.
    Listed(Vec<Key>),
    /// Our key is there, under names that are not the fleet's: whatever the project has.
    UnderOtherName(Vec<Key>),
}

/// One registered key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Scaleway's id of it.
    pub id: String,
    /// Type and base64, perhaps with a comment.
    pub public: String,
    /// Not written to Macs.
    pub disabled: bool,
}

/// One effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Create the Secret with a new key, if there still is none.
    CreateSecret,
    /// Register this key, which the Secret holds.
    Register(String),
    /// Note on the Secret under which id its key is registered.
    Note(String),
}

impl Action {
    /// What the effect is, for messages about it.
    #[must_use]
    pub fn describe(&self) -> &'static str {
        match self {
            Self::CreateSecret => "create the fleet's SSH key Secret",
            Self::Register(_) => "register the fleet's SSH key",
            Self::Note(_) => "note the registered SSH key",
        }
    }
}

/// What to do about a fleet's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// This, then look again.
    Do(Action),
    /// Only a person helps; why.
    Wait(String),
    /// Nothing: Macs know the key, and so do we.
    Rest,
}

/// What a Machine sees of its fleet's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FleetKey {
    /// Nobody looked yet.
    #[default]
    NotLooked,
    /// Stored and registered.
    Ready,
    /// Not usable yet; why.
    Waiting(String),
}

/// Decides one turn.
#[must_use]
pub fn decide(seen: &Observed) -> Decision {
    let (public, noted) = match &seen.stored {
        Stored::Absent => return Decision::Do(Action::CreateSecret),
        Stored::Unusable(why) => return Decision::Wait(why.clone()),
        Stored::There { public, noted } => (public, noted),
    };
    let keys = match &seen.registered {
        Registered::NotRead => return Decision::Wait("its registration was not read".to_owned()),
        Registered::Listed(keys) | Registered::UnderOtherName(keys) => keys,
    };
    let same: Vec<&Key> = keys.iter().filter(|key| bare(&key.public) == bare(public)).collect();
    match same.iter().find(|key| !key.disabled) {
        Some(key) if noted.as_ref() == Some(&key.id) => Decision::Rest,
        Some(key) => Decision::Do(Action::Note(key.id.clone())),
        // Refused as one that is there, and not to be seen: nothing that a write could mend.
        None if same.is_empty() && matches!(seen.registered, Registered::UnderOtherName(_)) => {
            Decision::Wait("Scaleway has it already, but does not list it".to_owned())
        }
        None if same.is_empty() => Decision::Do(Action::Register(public.clone())),
        None => Decision::Wait("it is disabled at Scaleway: enable it there".to_owned()),
    }
}

/// A public key without its comment.
fn bare(public: &str) -> Vec<&str> {
    public.split_whitespace().take(2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "ssh-ed25519 AAAAours";

    fn key(id: &str, public: &str) -> Key {
        Key { id: id.into(), public: public.into(), disabled: false }
    }

    fn there(noted: Option<&str>, keys: Vec<Key>) -> Observed {
        let stored = Stored::There { public: OURS.into(), noted: noted.map(str::to_owned) };
        Observed { stored, registered: Registered::Listed(keys) }
    }

    #[test]
    fn the_secret_comes_first_then_what_it_holds_is_registered_and_noted() {
        // LH6
        let absent = Observed { stored: Stored::Absent, registered: Registered::NotRead };
        assert_eq!(decide(&absent), Decision::Do(Action::CreateSecret));
        let register = Decision::Do(Action::Register(OURS.into()));
        assert_eq!(decide(&there(None, vec![])), register);
        let found = vec![key("k1", "ssh-ed25519 AAAAours tuist-capi-macs")];
        assert_eq!(decide(&there(None, found.clone())), Decision::Do(Action::Note("k1".into())));
        assert_eq!(decide(&there(Some("k1"), found)), Decision::Rest);
    }

    #[test]
    fn keys_of_others_with_the_fleets_name_stay_and_ours_is_registered_beside_them() {
        // LH6: two clusters of one project may have a fleet of the same name.
        let others = vec![key("k1", "ssh-ed25519 AAAAother"), key("k2", "ssh-rsa AAAAours")];
        let register = Decision::Do(Action::Register(OURS.into()));
        assert_eq!(decide(&there(Some("k1"), others)), register);
    }

    #[test]
    fn a_note_that_is_out_of_date_is_written_again_and_a_lost_answer_registers_nothing_twice() {
        let twice = vec![key("k1", OURS), key("k2", OURS)];
        assert_eq!(
            decide(&there(Some("gone"), twice.clone())),
            Decision::Do(Action::Note("k1".into()))
        );
        assert_eq!(decide(&there(Some("k1"), twice)), Decision::Rest);
    }

    #[test]
    fn what_only_a_person_can_mend_is_told() {
        let mut disabled = key("k1", OURS);
        disabled.disabled = true;
        for seen in [
            there(Some("k1"), vec![disabled]),
            Observed {
                stored: Stored::Unusable("no key in it".into()),
                registered: Registered::NotRead,
            },
        ] {
            assert!(matches!(decide(&seen), Decision::Wait(why) if !why.is_empty()));
        }
    }

    #[test]
    fn a_key_that_is_registered_under_another_name_will_do() {
        let under = |noted, keys| Observed {
            registered: Registered::UnderOtherName(keys),
            ..there(noted, vec![])
        };
        let found = vec![key("k1", "ssh-ed25519 AAAAother"), key("k2", OURS)];
        let note = Decision::Do(Action::Note("k2".into()));
        assert_eq!(decide(&under(None, found.clone())), note);
        assert_eq!(decide(&under(Some("k2"), found)), Decision::Rest);
        let mut disabled = key("k2", OURS);
        disabled.disabled = true;
        for (seen, why) in [(vec![disabled], "disabled"), (vec![], "does not list it")] {
            let decision = decide(&under(None, seen));
            assert!(
                matches!(&decision, Decision::Wait(said) if said.contains(why)),
                "{decision:?}"
            );
        }
    }
}
