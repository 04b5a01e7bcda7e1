//! Plays one case on one server, and reads its answers so that two servers can be compared.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use applecart_sim::kubernetes::{ApiServer, Identity};
use futures::future::join;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use super::cases::{Case, Request, Who, ask};
use crate::kubeconfig;

/// One answer, without what differs between any two servers.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The HTTP code.
    pub code: u16,
    /// The body.
    pub body: Value,
}

/// What earlier answers said, for later requests: `{uid}`, `{version}`, `{token}`, `{name}`;
/// and `{bearer}`, the token that somebody got.
type Known = BTreeMap<&'static str, String>;

/// How often, and how long apart, a request is repeated until its answer has some code: the real
/// garbage collector looks for new kinds every half a minute.
const TRIES: usize = 800;
const PAUSE: Duration = Duration::from_millis(50);
/// How long a watch has been open when somebody else asks something: the real server has begun it.
const MOMENT: Duration = Duration::from_millis(500);

/// One of the two servers.
#[derive(Clone)]
pub enum Server {
    /// The simulated one, which enforces roles.
    Simulated(ApiServer),
    /// The real one, its administrator, and where that one's kubeconfig is.
    Real(Client, PathBuf),
}

/// Who asks of a server, and the user whom an administrator must say that it acts for.
type Asker = (Client, Option<String>);

impl Server {
    async fn client(&self, who: Who, known: &Known) -> Result<Asker> {
        let namespace = known["ns"].as_str();
        let bearer = || known.get("bearer").cloned().context("nobody got a token");
        Ok(match (self, who) {
            (Self::Simulated(server), Who::Administrator) => {
                (server.client(Identity::admin()), None)
            }
            (Self::Simulated(server), Who::Account(name)) => {
                (server.client(Identity::service_account(namespace, name)), None)
            }
            (Self::Simulated(server), Who::Bearer) => {
                (server.client_with_token(bearer()?.into()), None)
            }
            (Self::Real(client, _), Who::Administrator) => (client.clone(), None),
            (Self::Real(client, _), Who::Account(name)) => {
                let user = format!("system:serviceaccount:{namespace}:{name}");
                (client.clone(), Some(user))
            }
            (Self::Real(_, path), Who::Bearer) => {
                (kubeconfig::client_with_token(path, bearer()?).await?, None)
            }
        })
    }
}

/// Plays `case` in `namespace`, which exists.
pub async fn play(server: &Server, namespace: &str, case: &Case) -> Result<Vec<Answer>> {
    let mut known = Known::from([("ns", namespace.to_owned())]);
    let mut seen = Seen::default();
    let mut answers = vec![];
    for request in &case.requests {
        let (code, body) = send_beside(server, request, &known).await?;
        learn(&mut known, &body);
        if request.settles {
            seen = Seen::default();
            answers.push(Answer { code, body: Value::Null });
            continue;
        }
        let body = only(body, request.only);
        answers.push(Answer { code, body: seen.normal(body, &known) });
    }
    for path in &case.leftovers {
        clean(server, path, &known).await?;
    }
    Ok(answers)
}

/// Removes what a case left, so that the next one finds nothing.
async fn clean(server: &Server, path: &str, known: &Known) -> Result<()> {
    if send(server, &request("GET", path, None), known).await?.0 != 200 {
        return Ok(());
    }
    let free = json!({"metadata": {"finalizers": null}});
    send(server, &request("PATCH", path, Some(free)), known).await?;
    let now = json!({"gracePeriodSeconds": 0});
    send(server, &request("DELETE", path, Some(now)), known).await.map(drop)
}

fn request(method: &'static str, path: &str, body: Option<Value>) -> Request {
    let content_type =
        if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    Request { content_type, body, ..ask(method, path) }
}

/// Asks, and lets somebody else ask something a moment later.
async fn send_beside(server: &Server, request: &Request, known: &Known) -> Result<(u16, Value)> {
    let Some(meanwhile) = &request.meanwhile else {
        return send_until(server, request, known).await;
    };
    let later = async {
        tokio::time::sleep(MOMENT).await;
        send(server, meanwhile, known).await
    };
    let (answer, later) = join(send(server, request, known), later).await;
    later?;
    answer
}

async fn send_until(server: &Server, request: &Request, known: &Known) -> Result<(u16, Value)> {
    let mut answer = send(server, request, known).await?;
    for _ in 0..TRIES {
        // A Node is tainted at its birth, until the real controllers have looked at it.
        // A budget knows what it allows once its Pod was counted.
        let counted = !answer.1["status"]["currentHealthy"].is_number()
            || answer.1["status"]["currentHealthy"] == 1;
        let settled = !request.settles || (answer.1["spec"]["taints"].is_null() && counted);
        if settled && request.until.is_none_or(|code| code == answer.0) {
            break;
        }
        tokio::time::sleep(PAUSE).await;
        answer = send(server, request, known).await?;
    }
    Ok(answer)
}

async fn send(server: &Server, request: &Request, known: &Known) -> Result<(u16, Value)> {
    let body = request.body.as_ref().map(|body| fill(&body.to_string(), known));
    let (client, acts_for) = server.client(request.who, known).await?;
    let mut built = http::Request::builder()
        .method(request.method)
        .uri(fill(&request.path, known))
        .header("content-type", request.content_type)
        .header("accept", request.accept);
    if let Some(user) = acts_for {
        built = built.header("impersonate-user", user);
    }
    let built =
        built.body(Body::from(body.unwrap_or_default().into_bytes())).context("not a request")?;
    let answer = client.send(built).await.with_context(|| format!("no answer to {request}"))?;
    let code = answer.status().as_u16();
    let bytes = answer.into_body().collect().await.context("half an answer")?.to_bytes();
    Ok((code, read(&bytes)))
}

/// A body: JSON, the events of a watch one on each line, or some text.
fn read(bytes: &[u8]) -> Value {
    match serde_json::from_slice::<Value>(bytes) {
        // One event alone.
        Ok(event) if event["type"].is_string() && event["object"].is_object() => {
            return json!([event]);
        }
        Ok(body) => return body,
        Err(_) => {}
    }
    let text = String::from_utf8_lossy(bytes);
    let lines: Result<Vec<Value>, _> = text.lines().map(serde_json::from_str).collect();
    lines.map_or_else(|_| json!(text.trim()), Value::Array)
}

/// What is named of a server's own document, in order of names; other bodies whole.
fn only(mut body: Value, names: &[&str]) -> Value {
    for list in ["resources", "groups"] {
        if let Some(items) = body.get_mut(list).and_then(Value::as_array_mut) {
            let name = |item: &Value| item["name"].as_str().unwrap_or_default().to_owned();
            items.retain(|item| names.is_empty() || names.contains(&name(item).as_str()));
            items.sort_by_key(name);
        }
    }
    if names.is_empty() {
        return body;
    }
    let pick = |of: &Value| -> Value {
        names.iter().map(|name| ((*name).to_owned(), of[*name].clone())).collect()
    };
    if body["openapi"].is_string() {
        return pick(&body["components"]["schemas"]);
    }
    if body["paths"].is_object() {
        return pick(&body["paths"]);
    }
    body
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
    if let Some(token) = body["status"]["token"].as_str() {
        known.insert("bearer", token.to_owned());
    }
    let list = body["kind"].as_str().is_some_and(|kind| kind.ends_with("List"));
    if let (true, Some(version)) = (list, metadata["resourceVersion"].as_str()) {
        known.insert("start", version.to_owned());
    }
}

/// Fields whose values are a server's own: only that they are there is compared.
const OWN: [&str; 8] = [
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

/// The uids and the versions of objects that a server told in a case, in the order in which it did.
/// So a write that changes nothing is told from one that does.
#[derive(Default)]
struct Seen {
    uids: Vec<String>,
    versions: Vec<String>,
}

impl Seen {
    /// The body without what differs between any two servers.
    fn normal(&mut self, body: Value, known: &Known) -> Value {
        match body {
            Value::Object(fields) => {
                // A list has a version and no uid: it is that of the whole server.
                let object = fields.get("uid").is_some_and(Value::is_string);
                let kept = fields.into_iter().filter(|(field, _)| !ASIDE.contains(&field.as_str()));
                // In one order, so that both servers count alike.
                let kept: BTreeMap<String, Value> = kept.collect();
                let normal = kept.into_iter().map(|(field, value)| {
                    let value = match (field.as_str(), value) {
                        ("uid", Value::String(uid)) => ordinal("uid", &mut self.uids, uid),
                        ("resourceVersion", Value::String(version)) if object => {
                            ordinal("version", &mut self.versions, version)
                        }
                        ("cells", Value::Array(cells)) => cells.into_iter().map(cell).collect(),
                        (own, Value::String(_)) if OWN.contains(&own) => json!(format!("<{own}>")),
                        (_, value) => self.normal(value, known),
                    };
                    (field, value)
                });
                Value::Object(normal.collect())
            }
            Value::Array(items) => {
                let mut items: Vec<Value> =
                    items.into_iter().map(|item| self.normal(item, known)).collect();
                items.dedup_by(|next, last| is_mark(last) && is_mark(next) && !ends_initial(next));
                Value::Array(items)
            }
            Value::String(text) => json!(anonymous(&text, known)),
            other => other,
        }
    }
}

/// Whether an event of a watch only tells how far it has come. How many of these come in a row
/// depends on the moment.
fn is_mark(event: &Value) -> bool {
    event["type"] == "BOOKMARK"
}

/// Whether such an event says that all that was there has been told, in whatever form.
fn ends_initial(mark: &Value) -> bool {
    mark.to_string().contains("k8s.io/initial-events-end")
}

/// Which of those that were seen it is; empty stays empty.
fn ordinal(what: &str, seen: &mut Vec<String>, value: String) -> Value {
    if value.is_empty() {
        return json!("");
    }
    let at = seen.iter().position(|known| *known == value).unwrap_or_else(|| {
        seen.push(value);
        seen.len() - 1
    });
    json!(format!("<{what} {}>", at + 1))
}

/// A cell of a table; ages and times are a server's own.
fn cell(cell: Value) -> Value {
    let Some(text) = cell.as_str() else { return cell };
    let age = text.strip_suffix('s').is_some_and(|seconds| seconds.parse::<u32>().is_ok());
    if age {
        return json!("<age>");
    }
    let time = text.parse::<jiff::Timestamp>().is_ok();
    if time { json!("<time>") } else { cell }
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
