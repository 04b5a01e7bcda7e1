//! From a request to its answer: route, gate, perform, show.

use std::sync::Arc;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::Value;

use super::auth::Identity;
use super::document;
use super::gate::{Call, Verb, Verdict};
use super::kind::StatusRule;
use super::patch::Patch;
use super::refusal::Refusal;
use super::request::{Options, Route, Target, route};
use super::server::{Answer, Inner};
use super::state::{Ask, State};
use super::view::View;
use super::watch;
use super::write::Part;

/// The longest body that is read: what the real server's own limit is.
pub(crate) const BODY_BYTES: usize = 3 * 1_024 * 1_024;

/// Answers one request. Never fails: a refusal is an answer too.
pub(crate) async fn answer(
    server: &Arc<Inner>,
    who: Identity,
    parts: &Parts,
    body: &Bytes,
) -> Answer {
    match respond(server, who, parts, body).await {
        Ok(answer) => answer,
        Err(refusal) => refuse(&refusal),
    }
}

/// The answer that is a refusal.
pub(crate) fn refuse(refusal: &Refusal) -> Answer {
    show(refusal.code, &refusal.body())
}

fn show(code: u16, body: &Value) -> Answer {
    text(code, "application/json", body.to_string())
}

/// An answer with any text.
pub(crate) fn text(code: u16, media: &'static str, body: String) -> Answer {
    let mut answer = Response::new(Full::new(Bytes::from(body)).boxed_unsync());
    *answer.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    answer.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(media));
    answer
}

async fn respond(
    server: &Arc<Inner>,
    who: Identity,
    parts: &Parts,
    body: &Bytes,
) -> Result<Answer, Refusal> {
    let registry = server.state().registry.clone();
    let target = match route(&registry, parts.uri.path())? {
        Route::Objects(target) => target,
        Route::Document(path) => return document::answer(&registry, &path, parts),
    };
    let mut options = Options::parse(&parts.uri)?;
    let verb = target.verb(&parts.method, options.watch)?;
    if parts.method == Method::DELETE {
        options.read_delete_body(body)?;
    }
    let call = call(&target, verb, who, body);
    let verdict = pass(server, &call).await;
    if let Verdict::FailBefore(refusal) = verdict {
        return Err(refusal);
    }
    if verdict == Verdict::HangBefore {
        return std::future::pending().await;
    }
    let ask = Ask { who: call.who, now: server.clock.now(), target, options };
    let answer = perform(server, ask, verb, parts, body);
    if verdict == Verdict::HangAfter {
        return std::future::pending().await;
    }
    answer
}

/// Counts the call and lets the gate decide.
async fn pass(server: &Arc<Inner>, call: &Call) -> Verdict {
    let resource = match &call.subresource {
        Some(subresource) => format!("{}/{subresource}", call.resource),
        None => call.resource.clone(),
    };
    *server.state().counts.entry((call.verb, resource)).or_default() += 1;
    match &server.gate {
        Some(gate) => gate.pass(call).await,
        None => Verdict::Pass,
    }
}

fn call(target: &Target, verb: Verb, who: Identity, body: &[u8]) -> Call {
    let named = || {
        let body: Value = serde_json::from_slice(body).ok()?;
        Some(body["metadata"]["name"].as_str()?.to_owned())
    };
    let name = match (&target.name, verb) {
        (None, Verb::Create) => named(),
        (name, _) => name.clone(),
    };
    Call {
        who,
        verb,
        resource: target.kind.key.to_string(),
        namespace: target.namespace.clone(),
        name,
        subresource: target.subresource.clone(),
    }
}

/// Does what is asked, at once.
fn perform(
    server: &Arc<Inner>,
    ask: Ask,
    verb: Verb,
    parts: &Parts,
    body: &Bytes,
) -> Result<Answer, Refusal> {
    let accept = parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
    let view = View::parse(accept.unwrap_or_default());
    if verb == Verb::Watch {
        return follow(server, ask, view);
    }
    let mut state = server.state();
    if let Some(subresource) = ask.target.subresource.clone() {
        return below(&mut state, &ask, &subresource, verb, parts, body);
    }
    let one = |object: &Arc<Value>| view.one(ask.kind(), ask.target.version, object, ask.now);
    match verb {
        Verb::Get => {
            let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
            Ok(show(200, &one(&state.find(ask.kind(), &key)?)))
        }
        Verb::List => Ok(show(200, &state.list(&ask, view)?)),
        Verb::Create => Ok(show(201, &*state.create(&ask, read_json(body)?)?)),
        Verb::Update => {
            let wanted = read_json(body)?;
            Ok(show(200, &*state.update(&ask, Part::Whole, |_| Ok(wanted))?))
        }
        Verb::Patch => patch(&mut state, &ask, Part::Whole, parts, body),
        Verb::Delete => Ok(show(200, &state.delete(&ask)?)),
        Verb::DeleteCollection => Ok(show(200, &state.delete_collection(&ask)?)),
        Verb::Watch => unreachable!("answered above"),
    }
}

fn follow(server: &Arc<Inner>, ask: Ask, view: View) -> Result<Answer, Refusal> {
    let events = watch::stream(server, ask, view)?;
    let mut answer = Response::new(BodyExt::boxed_unsync(StreamBody::new(events)));
    let media = HeaderValue::from_static("application/json;stream=watch");
    answer.headers_mut().insert(header::CONTENT_TYPE, media);
    Ok(answer)
}

/// A request for a part of an object.
fn below(
    state: &mut State,
    ask: &Ask,
    subresource: &str,
    verb: Verb,
    parts: &Parts,
    body: &Bytes,
) -> Result<Answer, Refusal> {
    let kind = ask.kind();
    let version = &kind.versions[ask.target.version];
    let is_status = (subresource == "status" && kind.status != StatusRule::None)
        || (subresource == "approval" && version.actions.contains(&"approval"));
    let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
    match verb {
        Verb::Get if is_status => {
            let object = state.find(kind, &key)?;
            Ok(show(200, &super::state::present(kind, ask.target.version, &object)))
        }
        Verb::Update if is_status => {
            let wanted = read_json(body)?;
            Ok(show(200, &*state.update(ask, Part::Status, |_| Ok(wanted))?))
        }
        Verb::Patch if is_status => patch(state, ask, Part::Status, parts, body),
        Verb::Get | Verb::Update | Verb::Patch if subresource == "scale" => {
            let change = match verb {
                Verb::Get => None,
                Verb::Update => Some(super::scale::Change::Replace(read_json(body)?)),
                _ => Some(super::scale::Change::Patch(read_patch(parts, body)?)),
            };
            Ok(show(200, &state.scale(ask, change)?))
        }
        Verb::Create if version.actions.contains(&subresource) => {
            let body = read_json(body)?;
            Ok(show(201, &state.act(ask, subresource, &body)?))
        }
        _ => Err(Refusal::no_such_path()),
    }
}

fn patch(
    state: &mut State,
    ask: &Ask,
    part: Part,
    parts: &Parts,
    body: &Bytes,
) -> Result<Answer, Refusal> {
    let kind = ask.kind().clone();
    let patch = read_patch(parts, body)?;
    if matches!(patch, Patch::Strategic(_)) && !kind.strategic() {
        return Err(Refusal::unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/apply-patch+yaml",
        ));
    }
    let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
    if let (Patch::Apply(object), Part::Whole, None) = (&patch, part, state.store.get(&key)) {
        let mut object = object.clone();
        object["metadata"]["name"] = Value::from(key.name);
        return Ok(show(201, &*state.create(ask, object)?));
    }
    let schema = kind.versions[ask.target.version].schema();
    let changed = state.update(ask, part, |object| patch.apply(object, schema))?;
    Ok(show(200, &changed))
}

fn read_patch(parts: &Parts, body: &Bytes) -> Result<Patch, Refusal> {
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Patch::parse(media.unwrap_or_default(), body)
}

fn read_json(body: &Bytes) -> Result<Value, Refusal> {
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("the object provided is not JSON: {error}")))
}
