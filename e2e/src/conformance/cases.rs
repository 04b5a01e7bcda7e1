//! The cases: for each kind what clients do to any object, and by hand what only some kinds know.

mod by_hand;
mod changing;
mod creating;
mod patching;
mod reading;
mod removing;

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
    /// Path and query; `{ns}`, `{uid}`, `{version}` and `{token}` stand for what is known.
    pub path: String,
    /// The type of the body.
    pub content_type: &'static str,
    /// How the answer is wanted.
    pub accept: &'static str,
    /// The body, if it has one.
    pub body: Option<Value>,
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

fn ask(method: &'static str, path: impl Into<String>) -> Request {
    Request { method, path: path.into(), content_type: JSON, accept: JSON, body: None }
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
    let mut story = vec![post(kind.path(), kind.object("one"))];
    story.extend(requests);
    story.push(delete(kind.path_of("one")));
    story
}

/// Every case.
#[must_use]
pub fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = KINDS.iter().flat_map(of_kind).collect();
    cases.extend(by_hand::cases());
    cases
}

/// What clients do to objects of any kind.
fn of_kind(kind: &Kind) -> Vec<Case> {
    let stories = [
        creating::stories(kind),
        reading::stories(kind),
        changing::stories(kind),
        patching::stories(kind),
        removing::stories(kind),
    ];
    let leftovers = || ["one", "two", "o.ne"].map(|name| kind.path_of(name)).to_vec();
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
        let cases = cases();
        assert!(cases.len() >= 500, "{} cases", cases.len());
        let names: BTreeSet<&str> = cases.iter().map(|case| case.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
    }
}
