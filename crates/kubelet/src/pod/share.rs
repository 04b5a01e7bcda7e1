//! What a guest finds in its share: its environment and, if it asked, a token.

use std::collections::BTreeMap;
use std::fmt::Write;

use applecart_core::pod::{EnvSource, Outcome, PodId, Template};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use kube::Api;
use kube::api::PostParams;
use secrecy::SecretString;

use crate::agent::Agent;
use crate::api::{Answer, call};
use crate::vm::Share;

const ENVIRONMENT: &str = "tuist.env";
const TOKEN: &str = "sa_token";
/// Whom the token is for.
const AUDIENCE: &str = "tuist-runners-dispatch";
/// A token is given once, so it has to outlive a runner's idle time and its longest job (K18). It
/// dies with its Pod all the same.
const TOKEN_SECONDS: i64 = 24 * 3600;

/// Reads what the template refers to, and has the token made. What is missing is named.
pub(super) async fn gather<V>(
    agent: &Agent<V>,
    id: &PodId,
    template: &Template,
) -> Result<Share, Outcome> {
    let mut values = BTreeMap::new();
    for entry in &template.env {
        if let Some(value) = value(agent, id, &entry.name, &entry.source).await? {
            values.insert(entry.name.as_str(), value);
        }
    }
    let mut share = Share::default();
    share.files.insert(ENVIRONMENT.to_owned(), environment(&values));
    if let Some(account) = &template.token_of {
        share.files.insert(TOKEN.to_owned(), token(agent, id, account).await?);
    }
    Ok(share)
}

/// One line a variable. Line breaks are written as `\n` and `\r`: the guest reads line by line.
fn environment(values: &BTreeMap<&str, String>) -> SecretString {
    let mut text = String::new();
    for (name, value) in values {
        let value = value.replace('\n', "\\n").replace('\r', "\\r");
        writeln!(text, "{name}={value}").expect("a String takes everything");
    }
    text.into()
}

async fn value<V>(
    agent: &Agent<V>,
    id: &PodId,
    variable: &str,
    source: &EnvSource,
) -> Result<Option<String>, Outcome> {
    let (kind, name, key, optional, found) = match source {
        EnvSource::Value(value) => return Ok(Some(value.clone())),
        EnvSource::SecretKey { name, key, optional } => {
            let secrets = Api::<Secret>::namespaced(agent.client.clone(), &id.namespace);
            let secret = object("Secret", name, call(secrets.get(name)).await)?;
            let bytes = secret.and_then(|secret| secret.data?.remove(key));
            ("Secret", name, key, optional, bytes.map(|bytes| String::from_utf8(bytes.0).ok()))
        }
        EnvSource::ConfigMapKey { name, key, optional } => {
            let maps = Api::<ConfigMap>::namespaced(agent.client.clone(), &id.namespace);
            let map = object("ConfigMap", name, call(maps.get(name)).await)?;
            let text = map.and_then(|map| map.data?.remove(key));
            ("ConfigMap", name, key, optional, text.map(Some))
        }
    };
    match found {
        Some(Some(text)) => Ok(Some(text)),
        None if *optional => Ok(None),
        None => Err(Outcome::Failed(format!(
            "env {variable} needs key {key} of {kind} {name}, which is not there"
        ))),
        Some(None) => Err(Outcome::Failed(format!(
            "env {variable}: key {key} of {kind} {name} is not UTF-8 text"
        ))),
    }
}

fn object<T>(kind: &str, name: &str, answer: Answer<T>) -> Result<Option<T>, Outcome> {
    match answer {
        Answer::Yes(object) => Ok(Some(object)),
        Answer::NotFound => Ok(None),
        Answer::Conflict => Err(Outcome::Refused),
        Answer::No(message) => Err(Outcome::Failed(format!("reading {kind} {name}: {message}"))),
        Answer::Silence(message) => {
            Err(Outcome::Unknown(format!("reading {kind} {name}: {message}")))
        }
    }
}

async fn token<V>(agent: &Agent<V>, id: &PodId, account: &str) -> Result<SecretString, Outcome> {
    let accounts = Api::<ServiceAccount>::namespaced(agent.client.clone(), &id.namespace);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![AUDIENCE.to_owned()],
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: Some(BoundObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Pod".to_owned()),
                name: Some(id.name.clone()),
                uid: Some(id.uid.clone()),
            }),
        },
        ..TokenRequest::default()
    };
    let params = PostParams::default();
    let answer = call(accounts.create_token_request(account, &params, &request)).await;
    let made = object("a token of ServiceAccount", account, answer)?;
    match made.and_then(|made| made.status) {
        Some(status) => Ok(status.token.into()),
        None => Err(Outcome::Failed(format!("there is no ServiceAccount {account}"))),
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    #[test]
    fn the_environment_is_one_line_a_variable() {
        let values = BTreeMap::from([("B", "two\r\nlines".to_owned()), ("A", "x=y z".to_owned())]);
        assert_eq!(environment(&values).expose_secret(), "A=x=y z\nB=two\\r\\nlines\n");
    }
}
