//! Secrets of a run, and whether one of them is anywhere that it should not be, in any encoding.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams};
use kube::discovery::{Discovery, Scope, verbs};
use serde_json::Value;

use crate::recording::Recording;
use crate::{ControlPlane, objects};

/// What is secret in a Secret of ours; the rest is names, addresses and public keys.
const SECRET_KEYS: [&str; 5] = ["sudo-password", "token", "id_ed25519", "auth-key", "private-key"];

/// What comes from elsewhere, and has to have been there to be looked for as well.
const OTHER_KINDS: [&str; 1] = ["github-token"];

/// A shorter text is found by chance.
const SHORTEST: usize = 8;

/// What macOS hides the password of an auto-login with: the same on every Mac.
const KCPASSWORD: [u8; 11] = [0x7d, 0x89, 0x52, 0x23, 0xd2, 0xbc, 0xdd, 0xea, 0xa3, 0xb9, 0x1f];

/// A simulator that prints the key by which it is called.
const PRINTS_ITS_KEY: &str = "scaleway.log";

/// Every secret value that a namespace ever had from some time on.
pub struct Canaries {
    secrets: Recording,
    /// What each form of a secret is of.
    forms: BTreeMap<String, String>,
}

impl Canaries {
    /// Those of this namespace's Secrets from now on.
    pub async fn start(client: &Client, namespace: &str) -> Result<Self> {
        let like = objects::named("v1", "Secret", namespace, "");
        let secrets = Recording::start(client, &like).await?;
        let mut canaries = Self { secrets, forms: BTreeMap::new() };
        for secret in objects::list(client, &like).await? {
            canaries.add_secret(&secret);
        }
        Ok(canaries)
    }

    /// One more.
    pub fn add(&mut self, what: &str, value: &str) {
        // Of a key over several lines each line is a secret; its frame is not.
        for line in value.lines().filter(|line| !line.starts_with("-----")) {
            for form in forms(line) {
                self.forms.insert(form, what.to_owned());
            }
        }
    }

    fn add_secret(&mut self, secret: &Value) {
        for key in SECRET_KEYS {
            let encoded = secret["data"][key].as_str().unwrap_or_default();
            let value = STANDARD.decode(encoded).unwrap_or_default();
            let what = format!("{key} of {}", secret["metadata"]["name"]);
            self.add(&what, &String::from_utf8_lossy(&value));
        }
    }

    /// An error if one is in a log, in an object other than a Secret, in what the audit log kept,
    /// or in one of `more`; how many there were, and how many places were looked at.
    pub async fn none_is_seen(
        mut self,
        plane: &ControlPlane,
        more: &[(String, String)],
    ) -> Result<(usize, usize)> {
        for secret in self.secrets.versions() {
            self.add_secret(&secret);
        }
        let kinds: BTreeSet<&str> =
            self.forms.values().filter_map(|what| what.split(' ').next()).collect();
        for key in SECRET_KEYS.into_iter().chain(OTHER_KINDS) {
            ensure!(kinds.contains(key), "there was never a {key} to look for: {kinds:?}");
        }
        let mut places = 0;
        let mut look = |place: &str, text: &str| {
            places += 1;
            let seen = self.forms.iter().find(|(form, _)| text.contains(form.as_str()));
            ensure!(seen.is_none(), "{place} shows the {}", seen.map_or("", |(_, what)| what));
            Ok(())
        };
        for path in logs(plane.folder())? {
            let bytes = std::fs::read(&path).with_context(|| path.display().to_string())?;
            look(&path.display().to_string(), &String::from_utf8_lossy(&bytes))?;
        }
        for (kind, text) in every_object(&plane.client()).await? {
            look(&kind, &text)?;
        }
        for (place, text) in more {
            look(place, text)?;
        }
        Ok((self.forms.len(), places))
    }
}

/// How a secret may look: as it is and as macOS keeps it for its auto-login, and each of these in
/// every encoding (S16).
fn forms(secret: &str) -> Vec<String> {
    if secret.len() < SHORTEST {
        return Vec::new();
    }
    let mut all = encodings(secret.as_bytes());
    let key = KCPASSWORD.iter().cycle();
    let kept: Vec<u8> = secret.bytes().zip(key).map(|(byte, key)| byte ^ key).collect();
    all.extend(encodings(&kept));
    all
}

/// Plain, percent-encoded, in hex, and in base64 at each of three offsets.
fn encodings(secret: &[u8]) -> Vec<String> {
    let mut all = vec![String::from_utf8_lossy(secret).into_owned()];
    let (mut percent, mut hex) = (String::new(), String::new());
    for &byte in secret {
        // Writing to a String cannot fail.
        let _ = write!(hex, "{byte:02x}");
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            percent.push(char::from(byte));
        } else {
            let _ = write!(percent, "%{byte:02X}");
        }
    }
    all.extend([percent, hex]);
    for offset in 0..3 {
        let mut bytes = vec![0; offset];
        bytes.extend(secret);
        // Without the characters that depend on what stands before and after.
        let encoded = STANDARD.encode(&bytes);
        let start = if offset == 0 { 0 } else { 4 };
        let whole = bytes.len() / 3 * 4;
        all.push(encoded[start..whole].to_owned());
    }
    all.retain(|form| form.len() >= SHORTEST);
    all
}

/// Every log under a folder, the audit log too.
fn logs(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).context("could not list a folder")? {
        let path = entry?.path();
        let is_log = path.extension().is_some_and(|ending| ending == "log");
        if path.is_dir() && !path.ends_with("etcd") {
            found.extend(logs(&path)?);
        } else if is_log && !path.ends_with(PRINTS_ITS_KEY) {
            found.push(path);
        }
    }
    Ok(found)
}

/// All that the API server stores, by kind, but for Secrets.
async fn every_object(client: &Client) -> Result<Vec<(String, String)>> {
    let mut all = Vec::new();
    let discovery = Discovery::new(client.clone()).run().await.context("no discovery")?;
    for group in discovery.groups() {
        for (resource, can) in group.recommended_resources() {
            if !can.supports_operation(verbs::LIST) || resource.kind == "Secret" {
                continue;
            }
            ensure!(matches!(can.scope, Scope::Cluster | Scope::Namespaced), "a third scope");
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            let list = api.list(&ListParams::default()).await;
            let list = list.with_context(|| format!("could not list {}", resource.plural))?;
            all.push((resource.plural, serde_json::to_string(&list.items)?));
        }
    }
    ensure!(all.iter().any(|(kind, text)| kind == "events" && text.len() > 2), "no Events");
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_known_in_every_encoding_whatever_stands_around_it() {
        // S16
        let secret = "s3cret/of@a-Mac";
        let known = forms(secret);
        let is_seen = |text: &str| known.iter().any(|form| text.contains(form.as_str()));
        assert!(is_seen("sudo: s3cret/of@a-Mac\n"));
        assert!(is_seen("7333637265742f6f6640612d4d6163"));
        assert!(is_seen("vnc://m1:s3cret%2Fof%40a-Mac@198.51.100.7:59010"));
        // The secret in macOS's auto-login file, by hand: each byte XOR the key's.
        let kept = [
            0x0e, 0xba, 0x31, 0x51, 0xb7, 0xc8, 0xf2, 0x85, 0xc5, 0xf9, 0x7e, 0x50, 0xc4, 0x33,
            0x40, 0xd2,
        ];
        assert!(is_seen(&STANDARD.encode(kept)));
        assert!(is_seen("kcpassword: 0eba3151b7c8f285c5f97e50c43340d2bcddea"));
        assert!(is_seen(&String::from_utf8_lossy(&[b"kept: ", &kept[..], b"\0"].concat())));
        for before in ["", "a", "ab", "abc", "password: "] {
            let text = STANDARD.encode(format!("{before}{secret} and more"));
            assert!(is_seen(&text), "{before:?}: {text}");
        }
        assert!(!is_seen("s3cret"));
        assert_eq!(forms("short"), Vec::<String>::new());
    }
}
