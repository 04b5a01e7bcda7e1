//! What is no credential although it stands where one should be.

/// What Scaleway, and macOS too, write in place of a credential that is not told.
pub const SEALED: &str = "<sealed>";

/// Whether a text can be a credential: neither blank nor the marker, however that is written (P19).
#[must_use]
pub fn is_told(text: &str) -> bool {
    let text = text.trim();
    !text.is_empty() && !text.eq_ignore_ascii_case(SEALED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_blanks_nor_the_marker_in_any_form_are_a_credential() {
        // P19
        for missing in ["", " ", "\n", SEALED, "<SEALED>", " <Sealed>\n"] {
            assert!(!is_told(missing), "{missing:?}");
        }
        for password in ["hunter2", "sealed", "<sealed", "<sealed>x", " a "] {
            assert!(is_told(password), "{password:?}");
        }
    }
}
