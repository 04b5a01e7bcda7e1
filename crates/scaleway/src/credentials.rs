//! A host's password, if this answer has one.

use applecart_api::credential::is_told;
use percent_encoding::percent_decode_str;
use secrecy::{ExposeSecret, SecretString};

/// The password in the two fields that may hold one: the field itself, else the VNC address.
/// A placeholder is the same as nothing (P8, P19).
pub(crate) fn password(
    sudo_password: &SecretString,
    vnc_url: &SecretString,
) -> Option<SecretString> {
    present(sudo_password.expose_secret()).or_else(|| from_vnc_url(vnc_url.expose_secret()))
}

fn present(text: &str) -> Option<SecretString> {
    is_told(text).then(|| text.into())
}

/// `vnc://m1:<password, percent-encoded>@<address>:<port>`.
fn from_vnc_url(url: &str) -> Option<SecretString> {
    let (_, rest) = url.split_once("://")?;
    // An unencoded `@` or `/` in the password would make the address ambiguous; the last `@` before
    // the address is the one that separates.
    let (user, _) = rest.rsplit_once('@')?;
    let (_, password) = user.split_once(':')?;
    let decoded = percent_decode_str(password).decode_utf8().ok()?;
    present(&decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_comes_from_its_field_else_from_the_vnc_address_and_never_from_a_placeholder() {
        for (sudo, vnc, expected) in [
            ("hunter2hunter", "<sealed>", Some("hunter2hunter")),
            ("hunter2hunter", "vnc://m1:other@198.51.100.7:59010", Some("hunter2hunter")),
            ("", "vnc://m1:p%40ss%2Fw%3Ard@198.51.100.7:59010", Some("p@ss/w:rd")), // P8
            ("<sealed>", "vnc://m1:abcDEF123456@198.51.100.7:59010", Some("abcDEF123456")),
            ("", "vnc://m1:p@ss@198.51.100.7:59010", Some("p@ss")),
            // P19: the marker in the field only, in the address only, as the address.
            ("<sealed>", "<sealed>", None),
            ("<sealed>", "vnc://m1:<sealed>@198.51.100.7:59010", None),
            ("<SEALED>", "vnc://m1:%3Csealed%3E@198.51.100.7:59010", None),
            ("", "", None),
            (" ", "vnc://m1:@198.51.100.7:59010", None),
            ("", "vnc://198.51.100.7:59010", None),
            ("", "vnc://m1@198.51.100.7:59010", None),
            ("", "vnc://m1:%ff@198.51.100.7:59010", None),
        ] {
            let found = password(&sudo.into(), &vnc.into());
            let found = found.as_ref().map(ExposeSecret::expose_secret);
            assert_eq!(found, expected, "{sudo:?} {vnc:?}");
        }
    }
}
