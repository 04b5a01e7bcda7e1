//! Every secret of a world, in every form in which somebody could tell it (S16).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use applecart_api::keys::owned;
use applecart_mac::kcpassword;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::ExposeSecret;
use serde_json::Value;

use super::{Sight, World};

/// Keys of Secrets whose values nobody may tell.
const KEYS: [&str; 4] = [owned::PASSWORD, owned::PRIVATE_KEY, "token", "private-key"];

/// Shorter texts are no secrets, and found by chance.
const SHORTEST: usize = 8;

/// Every Secret that there was, as often as it changed, and every token that was given out: what is
/// gone was told if it was told.
#[derive(Default)]
pub struct SecretsSeen(Mutex<Seen>);

#[derive(Default)]
struct Seen {
    /// By uid and version.
    secrets: BTreeMap<(String, String), Arc<Value>>,
    tokens: BTreeSet<String>,
}

impl SecretsSeen {
    fn all(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers those that there are.
    pub fn look(&self, sight: &Sight) {
        let Seen { secrets: all, tokens } = &mut *self.all();
        tokens.extend(sight.tokens());
        for secret in sight.objects("secrets") {
            let field = |name: &str| {
                secret["metadata"][name].as_str().map(str::to_owned).unwrap_or_default()
            };
            all.entry((field("uid"), field("resourceVersion"))).or_insert(secret.clone());
        }
    }
}

impl World {
    /// The passwords that the Macs have, and those that they had before a wipe.
    #[must_use]
    pub fn passwords(&self) -> Vec<String> {
        let hosts = self.scaleway().hosts();
        hosts.iter().flat_map(|host| self.scaleway().passwords(&host.id)).collect()
    }

    /// What must be nowhere but in Secrets: passwords, those before a wipe included, tokens,
    /// private keys and Scaleway's key; as they are, in base64, in percent and in hexadecimal
    /// digits, and each of these as macOS hides a password. Those of `seen` are among them.
    #[must_use]
    pub fn secret_texts(&self, seen: &SecretsSeen) -> Vec<String> {
        seen.look(&self.sight);
        let Seen { secrets, tokens } = &*seen.all();
        let values = secrets.values().flat_map(|secret| values(secret));
        let own = self.scaleway().secret_key().expose_secret().to_owned();
        let given = self.passwords().into_iter().chain(self.github.secrets()).chain([own]);
        let mut secrets: Vec<String> = given.chain(tokens.iter().cloned()).chain(values).collect();
        secrets.sort_unstable();
        secrets.dedup();
        secrets.iter().flat_map(|secret| forms(secret)).collect()
    }
}

/// What a Secret keeps; of a key in many lines the last of the long ones, which no public key has.
fn values(secret: &Value) -> Vec<String> {
    let value = |key: &&str| {
        let bytes = STANDARD.decode(secret["data"][key].as_str()?).ok()?;
        let text = String::from_utf8(bytes).ok()?;
        text.lines().max_by_key(|line| line.len()).map(str::to_owned)
    };
    KEYS.iter().filter_map(value).filter(|text| text.len() >= SHORTEST).collect()
}

/// A secret in every form.
fn forms(secret: &str) -> Vec<String> {
    let hidden = kcpassword::encode(secret);
    let percent = utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string();
    let mut forms = vec![secret.to_owned(), percent];
    for bytes in [secret.as_bytes(), &hidden[..secret.len()]] {
        forms.push(in_digits(bytes));
        forms.extend((0..3).flat_map(|before| in_base64(bytes, before)));
    }
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// In hexadecimal digits.
fn in_digits(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// What shows of `bytes` in base64 after so many other bytes, whatever follows.
fn in_base64(bytes: &[u8], before: usize) -> [String; 2] {
    let all = [&[0; 3][..before], bytes].concat();
    // Six bits a letter: the first and the last may share theirs with a neighbour.
    let (from, to) = ((before * 8).div_ceil(6), all.len() * 8 / 6);
    [STANDARD_NO_PAD.encode(&all), URL_SAFE_NO_PAD.encode(&all)].map(|text| text[from..to].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_in_every_form_wherever_it_stands_in_a_text() {
        let secret = "hunter2hunter2";
        let told = |text: &str| forms(secret).iter().any(|form| text.contains(form.as_str()));
        for around in ["", "a", "ab", "abc"] {
            let text = format!("{around}{secret}{around}");
            assert!(told(&text), "{text}");
            assert!(told(&STANDARD.encode(&text)), "{text} in base64");
        }
        assert!(told(&STANDARD.encode(kcpassword::encode(secret))));
        assert!(told(&in_digits(&kcpassword::encode(secret))));
        assert!(!told("hunter1hunter1"));
        assert!(forms("a+b/c").contains(&"a%2Bb%2Fc".to_owned()));
    }
}
