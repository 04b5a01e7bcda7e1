//! Scaleway's other ids: what it calls a project, an OS image, an SSH key.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that cannot be an id: empty, or with characters that no id has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a Scaleway id: letters, digits and hyphens")]
pub struct TextIdError(String);

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The id as Scaleway spells it. Safe in a path and in a query.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = TextIdError;
            fn from_str(text: &str) -> Result<Self, TextIdError> {
                text.to_owned().try_into()
            }
        }

        impl TryFrom<String> for $name {
            type Error = TextIdError;
            fn try_from(text: String) -> Result<Self, TextIdError> {
                let fits = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
                if !text.is_empty() && text.bytes().all(fits) {
                    Ok(Self(text))
                } else {
                    Err(TextIdError(text))
                }
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> String {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

text_id! {
    /// A project: who owns hosts and keys.
    ProjectId
}
text_id! {
    /// An operating-system image that a host can be installed with.
    OsId
}
text_id! {
    /// An SSH key of a project.
    SshKeyId
}
