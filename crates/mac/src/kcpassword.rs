//! `/etc/kcpassword`: the password of the user that macOS logs in by itself. No I/O.
//!
//! The file is the password, a NUL and padding up to a multiple of twelve, combined by XOR with a
//! key that is the same on every Mac. It hides nothing; it is as secret as the password.

pub use applecart_api::credential::SEALED;

/// The key, repeated over the whole file.
const KEY: [u8; 11] = [0x7D, 0x89, 0x52, 0x23, 0xD2, 0xBC, 0xDD, 0xEA, 0xA3, 0xB9, 0x1F];

/// What macOS writes itself. Padding to the key's length instead leaves a password of exactly
/// eleven characters without its NUL, and the login fails.
const BLOCK_BYTES: usize = 12;

/// The file for `password`.
#[must_use]
pub fn encode(password: &str) -> Vec<u8> {
    let mut plain = password.as_bytes().to_vec();
    plain.resize((plain.len() / BLOCK_BYTES + 1) * BLOCK_BYTES, 0);
    xor(&plain)
}

/// The password in a file, up to its first NUL, whatever it is padded to. `None`: not text.
#[must_use]
pub fn decode(file: &[u8]) -> Option<String> {
    let plain = xor(file);
    let end = plain.iter().position(|&byte| byte == 0).unwrap_or(plain.len());
    String::from_utf8(plain[..end].to_vec()).ok()
}

fn xor(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::hex;
    use proptest::prelude::*;

    #[test]
    fn files_are_the_ones_that_macos_writes() {
        for (password, file) in [
            ("password", "0de82150a5d3af8ea3b91f7d"),
            ("admin", "1ced3f4abcbcddeaa3b91f7d"),
            ("a1234567890", "1cb86010e689ebdd9b802f7d"),
            ("abcdefghijkl", "1ceb3147b7daba82cad37411895223d2bcddeaa3b91f7d89"),
            (SEALED, "41fa3742bed9b9d4a3b91f7d"),
        ] {
            assert_eq!(hex(&encode(password)), file, "{password}");
        }
    }

    #[test]
    fn a_file_padded_to_eleven_by_an_older_version_is_read_too() {
        let mut plain = b"hunter2".to_vec();
        plain.resize(11, 0);
        assert_eq!(decode(&xor(&plain)).as_deref(), Some("hunter2"));
    }

    #[test]
    fn padding_after_the_nul_is_ignored() {
        assert_eq!(decode(&xor(b"123/\0\x9a\xc4zzzzz")).as_deref(), Some("123/"));
    }

    proptest! {
        #[test]
        fn every_password_comes_back_and_always_ends_in_a_nul(password in "[^\0]{0,40}") {
            let file = encode(&password);
            prop_assert_eq!(file.len() % BLOCK_BYTES, 0);
            prop_assert!(file.len() > password.len());
            prop_assert_eq!(decode(&file), Some(password));
        }

        #[test]
        fn decoding_never_panics(file in prop::collection::vec(any::<u8>(), 0..64)) {
            let _ = decode(&file);
        }
    }
}
