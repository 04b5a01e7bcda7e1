//! The cases: for each kind what clients do to any object, and by hand what only some kinds know.

mod beside;
mod by_hand;
mod changing;
mod creating;
mod patching;
mod reading;
mod removing;
mod rights;
mod tables;
mod watching;
mod workloads;

use std::fmt;

use serde_json::{Value, json};

use super::kinds::{KINDS, Kind};

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";

/// One request.
#[derive(Clone, Debug)]
pub struct Request {
    /// The HTTP method.
    pub method: &'static str,
    /// Path and query; `{ns}`, `{uid}`, `{version}`, `{start}` (the version of the last list) and
    /// `{token}` stand for what is known.
    pub path: String,
    /// The type of the body.
    pub content_type: &'static str,
    /// How the answer is wanted.
    pub accept: &'static str,
    /// The body, if it has one.
    pub body: Option<Value>,
    /// Who asks.
    pub who: Who,
    /// What of a server's own documents is compared; everything, if nothing is named.
    pub only: &'static [&'static str],
    /// Asked again until the answer has this code: somebody of the real server's is late.
    pub until: Option<u16>,
    /// A new Node, or a budget, is read until the real controllers wrote what they have to; what
    /// they wrote is not compared, and versions are counted anew.
    pub settles: bool,
    /// What somebody asks a moment later, while a watch goes on.
    pub meanwhile: Option<Box<Request>>,
}

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    /// Whoever may do everything.
    Administrator,
    /// The service account of this name in `{ns}`.
    Account(&'static str),
    /// Whoever has the last token that was given.
    Bearer,
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

/// A story in requests. What it makes, it deletes.
#[derive(Clone, Debug)]
pub struct Case {
    /// The kind, and what is done.
    pub name: String,
    /// In order.
    pub requests: Vec<Request>,
    /// The paths of what it may leave behind where it does not go as planned.
    pub leftovers: Vec<String>,
}

/// A case of some kind, before it has its name.
type Story = (&'static str, Vec<Request>);

/// A request without a body.
pub fn ask(method: &'static str, path: impl Into<String>) -> Request {
    let (path, accept, body, who) = (path.into(), JSON, None, Who::Administrator);
    let (content_type, only, until) = (JSON, &[], None);
    let (settles, meanwhile) = (false, None);
    Request { method, path, content_type, accept, body, who, only, until, settles, meanwhile }
}

fn send(method: &'static str, path: impl Into<String>, body: Value) -> Request {
    Request { body: Some(body), ..ask(method, path) }
}

fn patch(content_type: &'static str, path: impl Into<String>, body: Value) -> Request {
    Request { content_type, ..send("PATCH", path, body) }
}

fn get(path: impl Into<String>) -> Request {
    ask("GET", path)
}

fn post(path: impl Into<String>, body: Value) -> Request {
    send("POST", path, body)
}

fn put(path: impl Into<String>, body: Value) -> Request {
    send("PUT", path, body)
}

/// Deletes at once, whatever grace the object would have.
fn delete(path: impl Into<String>) -> Request {
    send("DELETE", path, json!({"gracePeriodSeconds": 0}))
}

/// The requests between making an object called `one` and deleting it.
fn around(kind: &Kind, requests: Vec<Request>) -> Vec<Request> {
    [made(kind, &["one"]), requests, vec![delete(kind.path_of("one"))]].concat()
}

/// Makes objects of these names, and waits until nobody writes to them any more.
fn made(kind: &Kind, names: &[&str]) -> Vec<Request> {
    let mut story: Vec<Request> =
        names.iter().map(|name| post(kind.path(), kind.object(name))).collect();
    story.extend(names.iter().flat_map(|name| settled(kind, name)));
    story
}

/// Waits until nobody writes to a new object any more.
fn settled(kind: &Kind, name: &str) -> Vec<Request> {
    let is_written_to = kind.name == "Node";
    let settled = || Request { settles: true, ..get(kind.path_of(name)) };
    is_written_to.then(settled).into_iter().collect()
}

/// A read that is repeated until the answer has this code.
fn until(code: u16, request: Request) -> Request {
    Request { until: Some(code), ..request }
}

/// Every case, in sets that can be played beside each other, and after them those that cannot.
#[must_use]
pub fn cases() -> (Vec<Vec<Case>>, Vec<Case>) {
    let mut others = by_hand::cases();
    others.extend(beside::cases());
    others.extend(rights::cases());
    others.extend(workloads::cases());
    (KINDS.iter().map(of_kind).collect(), others)
}

/// What clients do to objects of any kind.
fn of_kind(kind: &Kind) -> Vec<Case> {
    let stories = [
        creating::stories(kind),
        reading::stories(kind),
        changing::stories(kind),
        patching::stories(kind),
        removing::stories(kind),
        tables::stories(kind),
        watching::stories(kind),
    ];
    let long = "x".repeat(254);
    let made = ["one", "two", "o.ne", "One", "o_ne", long.as_str()];
    let leftovers = || made.map(|name| kind.path_of(name)).to_vec();
    let named = |(name, requests): Story| Case {
        name: format!("{}: {name}", kind.name),
        requests,
        leftovers: leftovers(),
    };
    stories.into_iter().flatten().map(named).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn there_are_at_least_five_hundred_cases_and_each_has_a_name_of_its_own() {
        let (kinds, others) = cases();
        let cases: Vec<Case> = kinds.into_iter().flatten().chain(others).collect();
        assert!(cases.len() >= 500, "{} cases", cases.len());
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
    }
}
