//! Ids as types: what is read from outside becomes one of these once, at the edge.

use std::fmt;
use std::str::FromStr;

/// Why a text is not an id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not an 8-4-4-4-12 hexadecimal UUID.
    #[error("{0:?} is not a UUID such as 5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e")]
    NotUuid(String),
    /// Not a zone of the form `xx-yyy-n`.
    #[error("{0:?} is not a Scaleway zone such as fr-par-1")]
    NotZone(String),
    /// Not a provider ID of ours.
    #[error("{0:?} is not a provider ID such as scw-applesilicon://fr-par-1/<server id>")]
    NotProviderId(String),
    /// Not the first eight hexadecimal digits of a UID.
    #[error("{0:?} is not a cluster id of eight lower-case hexadecimal digits")]
    NotClusterId(String),
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn parse_uuid(text: &str) -> Result<String, IdError> {
    let lower = text.to_ascii_lowercase();
    let groups: Vec<usize> = lower.split('-').map(str::len).collect();
    if groups == [8, 4, 4, 4, 12] && lower.split('-').all(is_lower_hex) {
        Ok(lower)
    } else {
        Err(IdError::NotUuid(text.to_owned()))
    }
}

/// A text that was checked once, when it was read, by a function `fn(&str) -> Result<String, _>`:
/// `checked_text! { /// Its meaning. Name, ErrorOfTheCheck, check }`.
#[macro_export]
macro_rules! checked_text {
    ($(#[$doc:meta])* $name:ident, $error:ty, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[derive(::serde::Serialize, ::serde::Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The text as it is written outside.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $error;
            fn from_str(text: &str) -> Result<Self, $error> {
                $check(text).map(Self)
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;
            fn try_from(text: String) -> Result<Self, $error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(text: $name) -> String {
                text.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        checked_text! { $(#[$doc])* $name, IdError, parse_uuid }

        impl $name {
            /// The 32 hexadecimal digits without hyphens.
            #[must_use]
            pub fn digits(&self) -> String {
                self.0.replace('-', "")
            }

            /// Reads the 32 digits that [`Self::digits`] wrote.
            pub fn from_digits(digits: &str) -> Result<Self, IdError> {
                if digits.len() != 32 || !digits.is_ascii() {
                    return Err(IdError::NotUuid(digits.to_owned()));
                }
                let (a, rest) = digits.split_at(8);
                let (b, rest) = rest.split_at(4);
                let (c, rest) = rest.split_at(4);
                let (d, e) = rest.split_at(4);
                format!("{a}-{b}-{c}-{d}-{e}").parse()
            }
        }
    };
}

uuid_newtype! {
    /// A host's id at Scaleway. It never changes, whatever the host is called.
    ServerId
}
uuid_newtype! {
    /// The UID of a custom resource: unlike its name, never used twice.
    CrUid
}

fn parse_zone(text: &str) -> Result<String, IdError> {
    let parts: Vec<&str> = text.split('-').collect();
    let lower = |part: &str, len| part.len() == len && part.bytes().all(|b| b.is_ascii_lowercase());
    let number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    match parts[..] {
        [country, city, n] if lower(country, 2) && lower(city, 3) && number(n) => {
            Ok(text.to_owned())
        }
        _ => Err(IdError::NotZone(text.to_owned())),
    }
}

checked_text! {
    /// A Scaleway zone, `fr-par-1`.
    Zone, IdError, parse_zone
}

/// `scw-applesilicon://<zone>/<server id>`: how Cluster API and the Node name a host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProviderId {
    /// Where the host stands.
    pub zone: Zone,
    /// Which host.
    pub server: ServerId,
}

const PROVIDER_SCHEME: &str = "scw-applesilicon://";

impl FromStr for ProviderId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        let parsed = text
            .strip_prefix(PROVIDER_SCHEME)
            .and_then(|rest| rest.split_once('/'))
            .and_then(|(zone, id)| Some((zone.parse().ok()?, id.parse().ok()?)));
        match parsed {
            Some((zone, server)) => Ok(Self { zone, server }),
            None => Err(IdError::NotProviderId(text.to_owned())),
        }
    }
}

impl fmt::Display for ProviderId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PROVIDER_SCHEME}{}/{}", self.zone, self.server)
    }
}

/// The first eight hexadecimal digits of the `kube-system` namespace's UID: which cluster wrote a
/// marker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(String);

impl ClusterId {
    /// From the UID of the `kube-system` namespace.
    pub fn from_kube_system_uid(uid: &str) -> Result<Self, IdError> {
        uid.get(..8).unwrap_or(uid).parse()
    }
}

impl FromStr for ClusterId {
    type Err = IdError;
    fn from_str(text: &str) -> Result<Self, IdError> {
        if text.len() == 8 && is_lower_hex(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdError::NotClusterId(text.to_owned()))
        }
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_provider_id_reads_back_as_it_was_written(
            zone in "[a-z]{2}-[a-z]{3}-[1-9]",
            id in "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
        ) {
            let text = format!("scw-applesilicon://{zone}/{id}");
            let parsed: ProviderId = text.parse().unwrap();
            prop_assert_eq!(parsed.to_string(), text);
            let digits = parsed.server.digits();
            prop_assert_eq!(ServerId::from_digits(&digits).unwrap(), parsed.server);
        }

        #[test]
        fn no_text_makes_a_parser_panic(text in ".{0,80}") {
            let _ = text.parse::<ProviderId>();
            let _ = text.parse::<Zone>();
            let _ = text.parse::<ServerId>();
            let _ = text.parse::<ClusterId>();
            let _ = ServerId::from_digits(&text);
        }
    }

    #[test]
    fn what_is_not_an_id_is_refused_with_an_example() {
        for (text, example) in [
            ("scw-applesilicon://fr-par-1", "scw-applesilicon://fr-par-1/<server id>"),
            ("aws:///fr-par-1/5fb0ab06-2ab7-4ef5-8bb8-9f1c9f8f1c3e", "scw-applesilicon"),
            ("", "scw-applesilicon"),
        ] {
            let error = text.parse::<ProviderId>().unwrap_err().to_string();
            assert!(error.contains(example), "{error}");
        }
        for text in ["fr-par", "FR-par-1", "fr-par-", "fr-paris-1", "fr-par-1-2"] {
            assert!(text.parse::<Zone>().is_err(), "{text}");
        }
    }
}
