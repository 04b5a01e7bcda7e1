//! Certificates for clients: a signing request that was approved is signed at once, if it is what
//! its signer signs. The server knows again what it signed. No I/O.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::auth::Identity;
use super::state::{State, stamp};
use super::store::ObjectKey;

/// Signs for agents of Nodes, and for nobody else.
const FOR_NODES: &str = "kubernetes.io/kube-apiserver-client-kubelet";
/// Signs for anybody but the masters.
const FOR_CLIENTS: &str = "kubernetes.io/kube-apiserver-client";
/// The longest life of a certificate, and that of one that asks for none: the real server's.
const LONGEST_LIFE: SignedDuration = SignedDuration::from_hours(365 * 24);

/// The certificates that were signed, each with whom it stands for and until when. They do not
/// print.
#[derive(Default)]
pub(crate) struct Certificates(BTreeMap<Vec<u8>, (Identity, Timestamp)>);

impl Certificates {
    /// Who shows this certificate, if it is valid at `now`.
    pub fn identify(&self, der: &[u8], now: Timestamp) -> Option<&Identity> {
        self.0.get(der).filter(|(_, ends)| now < *ends).map(|(identity, _)| identity)
    }
}

impl State {
    /// Signs a request that was approved and has no certificate yet.
    pub fn sign(&mut self, key: &ObjectKey, request: &Value, now: Timestamp) {
        let is = |type_: &str| {
            let mut conditions = request["status"]["conditions"].as_array().into_iter().flatten();
            conditions.any(|condition| condition["type"] == type_)
        };
        let open = request["status"]["certificate"].is_null() && !is("Denied") && !is("Failed");
        let signer = request["spec"]["signerName"].as_str().unwrap_or_default();
        if !open || !is("Approved") || !matches!(signer, FOR_NODES | FOR_CLIENTS) {
            return;
        }
        let Some(authority) = self.signer.clone() else { return };
        let asked = request["spec"]["expirationSeconds"].as_i64().map(SignedDuration::from_secs);
        let life = asked.map_or(LONGEST_LIFE, |asked| asked.min(LONGEST_LIFE));
        let ends = now.checked_add(life).unwrap_or(Timestamp::MAX);
        let pem = request["spec"]["request"].as_str().and_then(|text| STANDARD.decode(text).ok());
        let pem = pem.and_then(|pem| String::from_utf8(pem).ok()).unwrap_or_default();
        let issued = authority.sign(&pem, now, ends, |who| fits(signer, who, request));
        let mut answered = request.clone();
        match issued {
            Ok(issued) => {
                answered["status"]["certificate"] = json!(STANDARD.encode(&issued.pem));
                self.certificates.0.insert(issued.der, (issued.who, ends));
            }
            Err(why) => {
                let condition = json!({"type": "Failed", "status": "True",
                    "reason": "SignerValidationFailure", "message": why,
                    "lastUpdateTime": stamp(now), "lastTransitionTime": stamp(now)});
                if let Some(conditions) = answered["status"]["conditions"].as_array_mut() {
                    conditions.push(condition);
                }
            }
        }
        self.put(key, answered);
    }
}

/// Whether it is what the signer signs; if not, why.
fn fits(signer: &str, who: &Identity, request: &Value) -> Result<(), &'static str> {
    if who.groups.iter().any(|group| group == "system:masters") {
        return Err("no certificate makes a master");
    }
    if signer == FOR_CLIENTS {
        return Ok(());
    }
    let usages: Vec<&str> = request["spec"]["usages"].as_array().map_or(vec![], |usages| {
        usages
            .iter()
            .filter_map(Value::as_str)
            .filter(|usage| *usage != "key encipherment")
            .collect()
    });
    if who.groups != ["system:nodes"] {
        return Err("subject organization is not system:nodes");
    }
    if !who.user.starts_with("system:node:") {
        return Err("subject common name does not begin with system:node:");
    }
    if !(usages.contains(&"client auth") && usages.contains(&"digital signature"))
        || usages.len() != 2
    {
        return Err("usages did not match [digital signature client auth]");
    }
    Ok(())
}
