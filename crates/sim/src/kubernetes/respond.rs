//! From a request to its answer: route, gate, perform, show.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::auth::Identity;
use super::document;
use super::gate::{Call, Verb, Verdict};
use super::kind::{Kind, Nature, StatusRule};
use super::list::page_version;
use super::patch::Patch;
use super::refusal::Refusal;
use super::request::{Options, Route, Target, route};
use super::review::is_asked_at;
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
    if is_asked_at(parts.uri.path()) {
        if parts.method != Method::POST {
            return Err(Refusal::method_not_allowed());
        }
        let enforced = server.enforces_roles.load(Ordering::Relaxed);
        let now = server.clock.now();
        let reviewed = server.state().review(parts.uri.path(), &who, enforced, now, body);
        return reviewed.map(|answer| show(201, &answer));
    }
    let registry = server.state().registry.clone();
    let target = match route(&registry, parts.uri.path())? {
        Route::Objects(target) => target,
        Route::Document(path) => return document::answer(&registry, &path, parts),
    };
    let mut options = Options::parse(&parts.uri)?;
    let verb = target.verb(&parts.method, options.watch)?;
    options.writing.is_put = parts.method == Method::PUT;
    if parts.method == Method::DELETE {
        options.read_delete_body(body)?;
    }
    let request = Request { target, options, verb, parts: parts.clone(), body: body.clone() };
    perform_late(server);
    let call = request.call(server, who);
    let verdict = match &server.gate {
        Some(gate) => gate.pass(&call).await,
        None => Verdict::Pass,
    };
    let unheard = verdict == Verdict::HangAfter;
    let answer = match verdict {
        Verdict::FailBefore(refusal) => Err(refusal),
        Verdict::HangBefore => return std::future::pending().await,
        Verdict::Late(delay) => {
            // What it comes to is told to the gate when it lands, as its only answer.
            server.late().push(Late { due: Instant::now() + delay, call, request });
            return Err(Refusal::timeout());
        }
        Verdict::Pass | Verdict::HangAfter | Verdict::Stale(_) => {
            let age = if let Verdict::Stale(age) = verdict { Some(age) } else { None };
            request.perform(server, &call, age)
        }
    };
    if let Some(gate) = &server.gate {
        gate.answered(&call, code_of(&answer));
    }
    if unheard {
        return std::future::pending().await;
    }
    answer
}

/// A request for objects, read.
pub(crate) struct Request {
    target: Target,
    options: Options,
    verb: Verb,
    parts: Parts,
    body: Bytes,
}

/// A request that arrives later than its caller waits.
pub(crate) struct Late {
    due: Instant,
    call: Call,
    request: Request,
}

impl Request {
    /// Counts the call, and tells it as a gate sees it.
    fn call(&self, server: &Arc<Inner>, who: Identity) -> Call {
        let (target, verb) = (&self.target, self.verb);
        let resource = target.kind.key.to_string();
        let counted = match &target.subresource {
            Some(subresource) => format!("{resource}/{subresource}"),
            None => resource.clone(),
        };
        let number = server.state().count(verb, counted);
        let mut call = Call {
            number,
            who,
            verb,
            resource,
            namespace: target.namespace.clone(),
            name: target.name.clone(),
            subresource: target.subresource.clone(),
            conditional: false,
            body: if verb.mutates() { self.body.clone() } else { Bytes::new() },
        };
        // Only a gate wants to know what is in the body.
        if server.gate.is_some() && verb.mutates() {
            let body: Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let metadata = &body["metadata"];
            let delete = &self.options.delete;
            call.conditional = delete.uid.is_some()
                || delete.resource_version.is_some()
                || metadata["resourceVersion"].is_string()
                || metadata["uid"].is_string();
            if verb == Verb::Create && call.name.is_none() {
                call.name = metadata["name"].as_str().map(str::to_owned);
            }
        }
        call
    }

    /// Does it, at once; a read may be told to miss what happened within `age`.
    fn perform(
        &self,
        server: &Arc<Inner>,
        call: &Call,
        age: Option<Duration>,
    ) -> Result<Answer, Refusal> {
        let ask = Ask {
            who: call.who.clone(),
            now: server.clock.now(),
            target: self.target.clone(),
            options: self.options.clone(),
            enforced: server.enforces_roles.load(Ordering::Relaxed),
        };
        if ask.enforced {
            let body = serde_json::from_slice(&self.body).unwrap_or_default();
            server.state().authorize(&ask, call, &body)?;
        }
        if self.verb == Verb::Watch {
            return follow(server, ask, self.view()?, call);
        }
        let mut state = server.state();
        let resource = ask.kind().store.clone();
        let present = match (age, self.verb) {
            (Some(age), Verb::Get | Verb::List) => state.store.rewind(&resource, age),
            // All pages of a list are of one moment.
            (None, Verb::List) => {
                let version = page_version(&ask).or(ask.options.exactly());
                version.and_then(|version| state.store.rewind_to(&resource, version))
            }
            _ => None,
        };
        let answer = self.act(&mut state, &ask);
        if let Some(present) = present {
            state.store.restore(&resource, present);
        }
        answer
    }

    fn view(&self) -> Result<View, Refusal> {
        let accept = self.parts.headers.get(header::ACCEPT).and_then(|value| value.to_str().ok());
        View::parse(accept.unwrap_or_default(), &self.options.include_object)
    }

    fn act(&self, state: &mut State, ask: &Ask) -> Result<Answer, Refusal> {
        let (parts, body, view) = (&self.parts, &self.body, self.view()?);
        if let Some(subresource) = ask.target.subresource.clone() {
            return below(state, ask, &subresource, self.verb, parts, body);
        }
        let one = |object: &Arc<Value>| view.one(ask.kind(), ask.target.version, object, ask.now);
        match self.verb {
            Verb::Get => {
                let key = ask.target.key().ok_or_else(Refusal::no_such_path)?;
                Ok(show(200, &one(&state.find(ask.kind(), &key)?)))
            }
            Verb::List => Ok(show(200, &state.list(ask, view)?)),
            Verb::Create => Ok(show(201, &one(&state.create(ask, read_json(body)?)?))),
            Verb::Update => {
                let wanted = read_json(body)?;
                let there = ask.target.key().is_some_and(|key| state.store.get(&key).is_some());
                let written = state.update(ask, Part::Whole, |_| Ok(wanted))?;
                Ok(show(if there { 200 } else { 201 }, &one(&written)))
            }
            Verb::Patch => {
                let (code, patched) = patch(state, ask, Part::Whole, parts, body)?;
                Ok(show(code, &one(&patched)))
            }
            Verb::Delete => Ok(show(200, &state.delete(ask)?)),
            Verb::DeleteCollection => Ok(show(200, &state.delete_collection(ask)?)),
            Verb::Watch => unreachable!("answered above"),
        }
    }
}

/// Does what was asked earlier and is due now; nobody hears of it.
fn perform_late(server: &Arc<Inner>) {
    let now = Instant::now();
    let due: Vec<Late> = server.late().extract_if(.., |late| late.due <= now).collect();
    for late in due {
        let done = if server.is_away(&late.call) {
            Err(Refusal::away())
        } else {
            late.request.perform(server, &late.call, None)
        };
        if let Some(gate) = &server.gate {
            gate.answered(&late.call, code_of(&done));
        }
    }
}

fn code_of(answer: &Result<Answer, Refusal>) -> u16 {
    match answer {
        Ok(answer) => answer.status().as_u16(),
        Err(refusal) => refusal.code,
    }
}

fn follow(server: &Arc<Inner>, ask: Ask, view: View, call: &Call) -> Result<Answer, Refusal> {
    let events = watch::stream(server, ask, view, call.clone())?;
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
        Verb::Get | Verb::Create if is_stream(kind, subresource) => {
            let pod = state.find(kind, &key)?;
            Err(Refusal::no_stream(kind, &pod, subresource))
        }
        Verb::Get if is_status => {
            let object = state.find(kind, &key)?;
            Ok(show(200, &super::state::present(kind, ask.target.version, &object)))
        }
        Verb::Update if is_status => {
            let wanted = read_json(body)?;
            Ok(show(200, &*state.update(ask, Part::Status, |_| Ok(wanted))?))
        }
        Verb::Patch if is_status => {
            let (code, patched) = patch(state, ask, Part::Status, parts, body)?;
            Ok(show(code, &patched))
        }
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

/// What the agent of a Node would stream, if it served any.
fn is_stream(kind: &Kind, subresource: &str) -> bool {
    kind.nature == Nature::Pod
        && matches!(subresource, "log" | "exec" | "attach" | "portforward" | "proxy")
}

fn patch(
    state: &mut State,
    ask: &Ask,
    part: Part,
    parts: &Parts,
    body: &Bytes,
) -> Result<(u16, Arc<Value>), Refusal> {
    let kind = ask.kind().clone();
    let patch = read_patch(parts, body)?;
    if matches!(patch, Patch::Strategic(_)) && !kind.strategic() {
        return Err(Refusal::unsupported_media(
            "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, \
             application/apply-patch+yaml",
        ));
    }
    if let Patch::Apply(applied) = &patch {
        return state.apply(ask, part, applied);
    }
    let schema = kind.versions[ask.target.version].schema();
    let changed = state.update(ask, part, |object| patch.apply(object, schema));
    let changed = changed.map_err(|refusal| match (refusal.code, &patch) {
        // What a patch makes of an object and nobody can read is the patch's fault.
        (400, Patch::Merge(_) | Patch::Strategic(_)) if refusal.message.contains("handled as") => {
            Refusal { code: 422, reason: "Invalid", details: Value::Object(Map::new()), ..refusal }
        }
        _ => refusal,
    })?;
    Ok((200, changed))
}

fn read_patch(parts: &Parts, body: &Bytes) -> Result<Patch, Refusal> {
    let media = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    Patch::parse(media.unwrap_or_default(), body)
}

/// How a body in Kubernetes' own binary form begins.
const PROTOBUF: &[u8] = b"k8s\0";

/// JSON is all that is read here: some verbs of kubectl write nothing else than the binary form.
pub(super) fn read_json(body: &[u8]) -> Result<Value, Refusal> {
    if body.starts_with(PROTOBUF) {
        return Err(Refusal::unsupported_media(
            "this simulated API server reads JSON alone: instead of `kubectl create KIND …`, use \
             `kubectl create -f` or `kubectl apply -f`",
        ));
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::bad_request(format!("the object provided is not JSON: {error}")))
}
