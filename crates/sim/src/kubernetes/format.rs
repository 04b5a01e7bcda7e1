//! The formats of texts that a schema may name, as far as the real server looks at them. No I/O.
//!
//! It knows `isbn`, `isbn10`, `isbn13`, `creditcard`, `ssn` and `rgbcolor` besides, and leaves all
//! others alone. Of e-mail addresses and URIs the common forms are
//! told from what is none; the real server reads them letter by letter.

use std::net::IpAddr;
use std::sync::LazyLock;

use regex::Regex;

/// A format, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Format {
    /// As the schema names it.
    pub name: String,
    test: Test,
}

#[derive(Clone, Copy, Debug)]
enum Test {
    Looks(&'static LazyLock<Regex>),
    Is(fn(&str) -> bool),
}

macro_rules! patterns {
    ($($name:ident = $pattern:expr;)*) => {
        $(static $name: LazyLock<Regex> =
            LazyLock::new(|| Regex::new($pattern).expect("a pattern of our own"));)*
    };
}

patterns! {
    BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$";
    DURATION = r"^([+-]?(0|(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+))$";
    // Such as `2 days`, wherever it stands.
    SPAN = "(?i)[0-9]+\\s*(ns|us|µs|ms|s|m|h|hr|d|w|wk|(nano|micro|milli|sec|min|hour|day|week)\
            [a-zµ]*)([^a-zµ]|$)";
    EMAIL = r#"^([^<>]*<)?[^\s@<>()\[\],;:\\"]+@[^\s@<>()\[\],;:\\"]+>?$"#;
    HEX_COLOUR = "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$";
    // The last of several labels has letters alone.
    HOSTNAME = "^([a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?\\.)+[a-zA-Z]{2,63}$|\
                 ^[a-zA-Z0-9]([a-zA-Z0-9-]*[a-zA-Z0-9])?$";
    MAC = "^[0-9a-fA-F]{2}((:[0-9a-fA-F]{2}){5}|(:[0-9a-fA-F]{2}){7}|(:[0-9a-fA-F]{2}){19}|\
           (-[0-9a-fA-F]{2}){5}|(-[0-9a-fA-F]{2}){7}|(-[0-9a-fA-F]{2}){19})$|\
           ^[0-9a-fA-F]{4}((\\.[0-9a-fA-F]{4}){2}|(\\.[0-9a-fA-F]{4}){3}|(\\.[0-9a-fA-F]{4}){9})$";
    OBJECT_ID = "^[0-9a-fA-F]{24}$";
    UUID = "(?i)^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$";
    UUID3 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$";
    UUID4 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
    UUID5 = "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$";
}

impl Format {
    /// The format of this name; `None` for one that nobody looks at.
    pub fn named(name: &str) -> Option<Self> {
        let test = match name.replace('-', "").as_str() {
            "bsonobjectid" => Test::Looks(&OBJECT_ID),
            "byte" => Test::Looks(&BASE64),
            "cidr" => Test::Is(is_cidr),
            "date" => Test::Is(is_date),
            "datetime" => Test::Is(|text| text.parse::<jiff::Timestamp>().is_ok()),
            "duration" => Test::Is(|text| DURATION.is_match(text) || SPAN.is_match(text)),
            "email" => Test::Looks(&EMAIL),
            "hexcolor" => Test::Looks(&HEX_COLOUR),
            "hostname" => Test::Is(is_hostname),
            "ipv4" => Test::Is(|text| is_address(text, '.')),
            "ipv6" => Test::Is(|text| is_address(text, ':')),
            "mac" => Test::Looks(&MAC),
            "uri" => Test::Is(is_uri),
            "uuid" => Test::Looks(&UUID),
            "uuid3" => Test::Looks(&UUID3),
            "uuid4" => Test::Looks(&UUID4),
            "uuid5" => Test::Looks(&UUID5),
            _ => return None,
        };
        Some(Self { name: name.to_owned(), test })
    }

    /// Whether a text has it.
    pub fn fits(&self, text: &str) -> bool {
        match self.test {
            Test::Looks(pattern) => pattern.is_match(text),
            Test::Is(fits) => fits(text),
        }
    }
}

fn is_address(text: &str, with: char) -> bool {
    text.contains(with) && address(text).is_some()
}

/// An address. The real server still takes parts that begin with a 0, and for decimal ones.
fn address(text: &str) -> Option<IpAddr> {
    let part = |part: &str| match part.trim_start_matches('0') {
        "" if !part.is_empty() => "0".to_owned(),
        plain => plain.to_owned(),
    };
    let plain: Vec<String> = text.split('.').map(part).collect();
    let plain = if text.contains(':') { text.to_owned() } else { plain.join(".") };
    plain.parse().ok()
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let Some(address) = self::address(address) else { return false };
    let most = if address.is_ipv4() { 32 } else { 128 };
    let digits = length.bytes().all(|byte| byte.is_ascii_digit());
    digits && length.parse::<u32>().is_ok_and(|length| length <= most)
}

fn is_date(text: &str) -> bool {
    // Without the length, `20261119` would be one.
    text.len() == 10 && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_hostname(text: &str) -> bool {
    text.len() <= 255 && HOSTNAME.is_match(text) && text.split('.').all(|label| label.len() <= 63)
}

/// An absolute path, or what begins with a scheme.
fn is_uri(text: &str) -> bool {
    let is_scheme = |scheme: &str| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
    };
    let escapes = text.split('%').skip(1).all(|after| {
        let digits = after.get(..2);
        digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
    });
    let rest = match text.split_once(':') {
        Some((scheme, rest)) if is_scheme(scheme) => rest,
        _ if text.starts_with('/') => text,
        _ => return false,
    };
    let host = rest.strip_prefix("//").and_then(|rest| rest.split(['/', '?', '#']).next());
    escapes && !text.contains(char::is_control) && !host.unwrap_or_default().contains(' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_takes_what_has_it_and_nothing_else() {
        let uuid = "01234567-89ab-4def-8123-456789ABCDEF";
        for (name, good, bad) in [
            ("bson-objectid", "0123456789abcdefABCDEF01", "0123456789abcdef"),
            ("byte", "b25l", "b25"),
            ("byte", "YQ==", ""),
            ("cidr", "10.0.0.0/8", "10.0.0.0"),
            ("cidr", "fd00::/64", "10.0.0.0/33"),
            ("cidr", "0.0.0.0/0", "10.0.0/8"),
            ("date", "2026-02-28", "2026-02-30"),
            ("date", "2024-02-29", "20240229"),
            ("date-time", "2026-02-28T12:00:00Z", "2026-02-28"),
            ("datetime", "2026-02-28T12:00:00.5+01:00", "noon"),
            ("duration", "1h30m", "1x"),
            ("duration", "-1.5s", "h"),
            ("duration", "2 days", "two days"),
            ("duration", "0", ""),
            ("email", "ada@example.dev", "ada"),
            ("email", "Ada <ada@example.dev>", "ada@"),
            ("hexcolor", "#12aBcf", "#12345"),
            ("hostname", "mac-1.example.dev", "-mac"),
            ("hostname", "localhost", "a..b"),
            ("hostname", "a.dev", "10.0.0.1"),
            ("ipv4", "10.0.0.1", "10.0.0.256"),
            ("ipv4", "1.2.3.4", "fd00::1"),
            ("ipv4", "010.0.00.1", "10.0..1"),
            ("ipv6", "fd00::1", "10.0.0.1"),
            ("mac", "00:1B:44:11:3a:b7", "00:1b:44:11:3a"),
            ("mac", "001b.4411.3ab7", "001b44113ab7"),
            ("uri", "https://example.dev/a?b#c", "example.dev"),
            ("uri", "/a b", "https://a b/"),
            ("uri", "mailto:ada", "/a%zz"),
            ("uuid", uuid, "0123"),
            ("uuid4", uuid, "01234567-89ab-3def-8123-456789abcdef"),
            ("uuid3", "01234567-89ab-3def-0123-456789abcdef", uuid),
            ("uuid5", "0123456789ab5def8123456789abcdef", uuid),
        ] {
            let format = Format::named(name).unwrap();
            assert!(format.fits(good), "{name}: {good}");
            assert!(!format.fits(bad), "{name}: {bad}");
        }
    }

    #[test]
    fn a_format_that_nobody_knows_is_no_limit() {
        for name in ["int64", "double", "password", "anything"] {
            assert!(Format::named(name).is_none(), "{name}");
        }
    }
}
