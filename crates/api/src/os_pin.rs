//! Which macOS a Machine asks for: one release, or any of a family.

use std::fmt;

/// An OS pin as it stands in `spec.os`.
///
/// A point release that Scaleway withdraws makes a whole pool unadoptable (P32), so a family is
/// enough: `macos-tahoe` takes every Tahoe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OsPin {
    /// Exactly this OS name, `macos-tahoe-26.3`.
    Exact(String),
    /// Any release of this family, in lower case: `tahoe`.
    Family(String),
}

impl OsPin {
    /// Reads a pin: `tahoe` and `macos-tahoe` name a family, everything else one release.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let family = text.strip_prefix("macos-").unwrap_or(text);
        if !family.is_empty() && family.bytes().all(|b| b.is_ascii_alphabetic()) {
            Self::Family(family.to_ascii_lowercase())
        } else {
            Self::Exact(text.to_owned())
        }
    }

    /// Whether a host with this OS will do.
    #[must_use]
    pub fn accepts(&self, os_name: &str, os_family: &str) -> bool {
        match self {
            Self::Exact(name) => name == os_name,
            Self::Family(family) => family.eq_ignore_ascii_case(os_family),
        }
    }
}

impl fmt::Display for OsPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(name) => f.write_str(name),
            Self::Family(family) => write!(f, "macos-{family}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_takes_what_it_names_and_nothing_else() {
        for (pin, name, family, accepted) in [
            ("macos-tahoe-26.3", "macos-tahoe-26.3", "Tahoe", true),
            ("macos-tahoe-26.3", "macos-tahoe-26.4", "Tahoe", false),
            ("macos-tahoe", "macos-tahoe-26.4", "Tahoe", true),
            ("tahoe", "macos-tahoe-26.0", "Tahoe", true),
            ("Tahoe", "macos-tahoe-26.0", "tahoe", true),
            ("macos-tahoe", "macos-sequoia-15.6", "Sequoia", false),
            ("fedora-asahi-remix", "fedora-asahi-remix", "Linux", true),
            ("", "macos-tahoe-26.3", "Tahoe", false),
        ] {
            assert_eq!(OsPin::parse(pin).accepts(name, family), accepted, "{pin} for {name}");
        }
    }

    #[test]
    fn a_pin_reads_back_as_it_prints() {
        for text in ["macos-tahoe-26.3", "macos-tahoe", "tahoe", "fedora-asahi-remix"] {
            let pin = OsPin::parse(text);
            assert_eq!(OsPin::parse(&pin.to_string()), pin);
        }
    }
}
