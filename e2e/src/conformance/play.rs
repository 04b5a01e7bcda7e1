//! Plays one case on one server, and reads its answers so that two servers can be compared.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::cases::{Case, Request};

/// One answer, without what differs between any two servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// The body.
    pub body: Value,
}

/// What earlier answers said, for later requests: `{uid}`, `{version}`, `{token}`, `{name}`.
type Known = BTreeMap<&'static str, String>;

/// Plays `case` in `namespace`, which exists.
pub async fn play(client: &Client, namespace: &str, case: &Case) -> Result<Vec<Answer>> {
    let mut known = Known::from([("ns", namespace.to_owned())]);
    let mut answers = vec![];
    for request in &case.requests {
        let (code, body) = send(client, request, &known).await?;
        learn(&mut known, &body);
        answers.push(Answer { code, body: normal(body, &known) });
    }
    for path in &case.leftovers {
        clean(client, path, &known).await?;
    }
    Ok(answers)
}

/// Removes what a case left, so that the next one finds nothing.
async fn clean(client: &Client, path: &str, known: &Known) -> Result<()> {
    if send(client, &request("GET", path, None), known).await?.0 != 200 {
        return Ok(());
    }
    let free = json!({"metadata": {"finalizers": null}});
    send(client, &request("PATCH", path, Some(free)), known).await?;
    let now = json!({"gracePeriodSeconds": 0});
    send(client, &request("DELETE", path, Some(now)), known).await.map(drop)
}

fn request(method: &'static str, path: &str, body: Option<Value>) -> Request {
    let content_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    Request { method, path: path.to_owned(), content_type, accept: "application/json", body }
}

async fn send(client: &Client, request: &Request, known: &Known) -> Result<(u16, Value)> {
    let body = request.body.as_ref().map(|body| fill(&body.to_string(), known));
    let built = http::Request::builder()
        .method(request.method)
        .uri(fill(&request.path, known))
        .header("content-type", request.content_type)
        .header("accept", request.accept)
        .body(Body::from(body.unwrap_or_default().into_bytes()))
        .context("not a request")?;
    let answer = client.send(built).await.with_context(|| format!("no answer to {request}"))?;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.context("half an answer")?.to_bytes();
    let body = serde_json::from_slice(&bytes)
        .unwrap_or_else(|_| json!(String::from_utf8_lossy(&bytes).trim()));
    Ok((code, body))
}

fn fill(text: &str, known: &Known) -> String {
    let replace =
        |text: String, (name, value): (&&str, &String)| text.replace(&format!("{{{name}}}"), value);
    known.iter().fold(text.to_owned(), replace)
}

fn learn(known: &mut Known, body: &Value) {
    let metadata = &body["metadata"];
    for (name, field) in
        [("uid", "uid"), ("version", "resourceVersion"), ("token", "continue"), ("name", "name")]
    {
        if let Some(text) = metadata[field].as_str().filter(|text| !text.is_empty()) {
            known.insert(name, text.to_owned());
        }
    }
}

/// Fields whose values are a server's own: only that they are there is compared.
const OWN: [&str; 9] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "lastTransitionTime",
    "continue",
    "expirationTimestamp",
    "token",
    "acquireTime",
];
/// Fields that are not compared at all: who wrote which field when is bookkeeping, and its effects
/// are compared.
const ASIDE: [&str; 2] = ["managedFields", "selfLink"];

/// The body without what differs between any two servers.
fn normal(body: Value, known: &Known) -> Value {
    match body {
        Value::Object(fields) => {
            let kept = fields.into_iter().filter(|(field, _)| !ASIDE.contains(&field.as_str()));
            let normal = kept.map(|(field, value)| {
                let own = OWN.contains(&field.as_str()) && value.is_string();
                let value = if own { json!(format!("<{field}>")) } else { normal(value, known) };
                (field, value)
            });
            Value::Object(normal.collect())
        }
        Value::Array(items) => items.into_iter().map(|item| normal(item, known)).collect(),
        Value::String(text) => json!(anonymous(&text, known)),
        other => other,
    }
}

/// A text with the ids and versions of this server replaced by their names.
fn anonymous(text: &str, known: &Known) -> String {
    let mut text = text.to_owned();
    for name in ["uid", "version"] {
        if let Some(value) = known.get(name) {
            text = text.replace(&format!(": {value}"), &format!(": <{name}>"));
        }
    }
    match known.get("name").filter(|name| name.starts_with("made-")) {
        Some(made) => text.replace(made.as_str(), "made-<suffix>"),
        None => text,
    }
}
