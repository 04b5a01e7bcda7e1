//! SSH keys as text. No I/O.

use rand::TryRngCore;
use rand::rngs::OsRng;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{Algorithm, Error, PrivateKey, decode_secret_key};
use secrecy::{ExposeSecret, SecretString};

use crate::MacError;

/// An Ed25519 key in OpenSSH's two texts.
#[derive(Clone, Debug)]
pub struct KeyPair {
    /// The private half, PEM.
    pub private: SecretString,
    /// The public half, one line without comment and line break.
    pub public: String,
}

impl KeyPair {
    /// A new key, that nobody else has.
    pub fn generate(comment: &str) -> Result<Self, MacError> {
        let mut seed = [0; 32];
        OsRng.try_fill_bytes(&mut seed).expect("the system has randomness");
        Self::from_seed(seed, comment)
    }

    /// The key of a seed. Whoever has the seed has the key: it must come from the system's own
    /// randomness, or from a simulation.
    pub fn from_seed(seed: [u8; 32], comment: &str) -> Result<Self, MacError> {
        let pair = KeypairData::from(Ed25519Keypair::from_seed(&seed));
        let key = PrivateKey::new(pair, comment).map_err(bad)?;
        let private = key.to_openssh(LineEnding::LF).map_err(bad)?;
        let private = SecretString::from(private.as_str());
        Ok(Self { public: public_key(&private)?, private })
    }
}

/// The public half of a private key, as one line without comment.
pub fn public_key(private: &SecretString) -> Result<String, MacError> {
    let mut public = parse(private)?.public_key().clone();
    public.set_comment("");
    Ok(public.to_openssh().map_err(bad)?.trim_end().to_owned())
}

pub(super) fn parse(private: &SecretString) -> Result<PrivateKey, MacError> {
    let text = private.expose_secret();
    let key = decode_secret_key(text, None).map_err(|error| match error {
        Error::KeyIsEncrypted => MacError::EncryptedKey,
        // The older formats say it in a header, and need more to be read at all.
        _ if text.lines().take(3).any(|line| line.contains("ENCRYPTED")) => MacError::EncryptedKey,
        _ if text.contains("BEGIN RSA PRIVATE KEY") => MacError::RsaKey,
        error => MacError::BadKey(error),
    })?;
    if matches!(key.algorithm(), Algorithm::Rsa { .. }) {
        return Err(MacError::RsaKey);
    }
    Ok(key)
}

fn bad(error: russh::keys::ssh_key::Error) -> MacError {
    MacError::BadKey(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_reads_back_and_its_public_half_has_no_comment() {
        let pair = KeyPair::from_seed([7; 32], "tuist-capi-ci").unwrap();
        assert!(pair.private.expose_secret().starts_with("-----BEGIN OPENSSH PRIVATE KEY-----"));
        assert_eq!(public_key(&pair.private).unwrap(), pair.public);
        assert_eq!(pair.public.split(' ').count(), 2, "{}", pair.public);
        assert!(!format!("{pair:?}").contains("OPENSSH"));
    }

    #[test]
    fn no_two_new_keys_are_the_same() {
        let pair = || KeyPair::generate("a fleet").unwrap().public;
        assert_ne!(pair(), pair());
    }

    /// What OpenSSH's own tool makes.
    fn made_by_openssh(arguments: &[&str]) -> SecretString {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        let mut keygen = std::process::Command::new("ssh-keygen");
        let made = keygen.args(["-q", "-f"]).arg(&path).args(arguments).status();
        assert!(made.unwrap().success());
        std::fs::read_to_string(&path).unwrap().into()
    }

    #[test]
    fn a_key_that_we_cannot_use_is_told_as_what_it_is() {
        for format in ["RFC4716", "PKCS8", "PEM"] {
            let arguments = ["-t", "ecdsa", "-N", "a passphrase", "-m", format];
            let error = public_key(&made_by_openssh(&arguments)).unwrap_err();
            assert!(matches!(error, MacError::EncryptedKey), "{format}: {error:?}");
            assert!(error.to_string().contains("ssh-keygen -p"), "{error}");
        }
        for format in ["RFC4716", "PEM"] {
            let arguments = ["-t", "rsa", "-b", "2048", "-N", "", "-m", format];
            let error = public_key(&made_by_openssh(&arguments)).unwrap_err();
            assert!(matches!(error, MacError::RsaKey), "{format}: {error:?}");
        }
        let ecdsa = made_by_openssh(&["-t", "ecdsa", "-N", ""]);
        assert!(public_key(&ecdsa).unwrap().starts_with("ecdsa-"));
    }

    #[test]
    fn what_is_no_key_is_an_error_that_does_not_show_it() {
        let error = public_key(&"canary".into()).unwrap_err();
        assert!(!format!("{error:?} {error}").contains("canary"));
    }
}
