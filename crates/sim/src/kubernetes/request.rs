//! Reads a path and a query into what is asked. No I/O.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use serde_json::Value;

use super::gate::Verb;
use super::kind::{Kind, Nature};
use super::refusal::Refusal;
use super::registry::Registry;
use super::selector::Selector;
use super::store::ObjectKey;

/// What a path points at.
#[derive(Clone, Debug)]
pub(crate) enum Route {
    /// Objects of a kind.
    Objects(Target),
    /// One of the server's own documents, by the segments of its path.
    Document(Vec<String>),
}

/// Objects of a kind, or one of them, or a part of one.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub kind: Arc<Kind>,
    /// Which of the kind's versions.
    pub version: usize,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub subresource: Option<String>,
}

impl Target {
    /// Where the one object is, if the path names one.
    pub fn key(&self) -> Option<ObjectKey> {
        Some(self.key_of(self.name.as_deref()?))
    }

    /// Where an object called `name` would be.
    pub fn key_of(&self, name: &str) -> ObjectKey {
        ObjectKey {
            resource: self.kind.store.clone(),
            namespace: self.namespace.clone().unwrap_or_default(),
            name: name.to_owned(),
        }
    }

    /// What `method` asks of it.
    pub fn verb(&self, method: &Method, watch: bool) -> Result<Verb, Refusal> {
        Ok(match (method, self.name.is_some()) {
            // One object cannot be watched by its path: it is shown.
            (&Method::GET, true) => Verb::Get,
            (&Method::GET, false) if watch => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, false) => Verb::Create,
            (&Method::POST, true) if self.subresource.is_some() => Verb::Create,
            (&Method::PUT, true) => Verb::Update,
            (&Method::PATCH, true) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) if self.kind.nature != Nature::Namespace => {
                Verb::DeleteCollection
            }
            _ => return Err(Refusal::method_not_allowed()),
        })
    }
}

/// Finds what `path` points at.
pub(crate) fn route(registry: &Registry, path: &str) -> Result<Route, Refusal> {
    let segments: Vec<String> =
        path.split('/').filter(|segment| !segment.is_empty()).map(decode).collect();
    let parts: Vec<&str> = segments.iter().map(String::as_str).collect();
    match parts[..] {
        ["api", version, ref rest @ ..] if !rest.is_empty() => {
            objects(registry, "", version, rest).map(Route::Objects)
        }
        ["apis", group, version, ref rest @ ..] if !rest.is_empty() => {
            objects(registry, group, version, rest).map(Route::Objects)
        }
        _ => Ok(Route::Document(segments)),
    }
}

fn objects(
    registry: &Registry,
    group: &str,
    version: &str,
    rest: &[&str],
) -> Result<Target, Refusal> {
    let (namespace, rest) = match *rest {
        // `namespaces/x/status` is a part of the Namespace itself.
        ["namespaces", _, "status"] if group.is_empty() => (None, rest),
        ["namespaces", namespace, ref rest @ ..] if !rest.is_empty() => {
            (Some(namespace.to_owned()), rest)
        }
        _ => (None, rest),
    };
    let (plural, name, subresource) = match *rest {
        [plural] => (plural, None, None),
        [plural, name] => (plural, Some(name), None),
        [plural, name, subresource] => (plural, Some(name), Some(subresource)),
        _ => return Err(Refusal::no_such_path()),
    };
    let (kind, version) =
        registry.find(group, version, plural).ok_or_else(Refusal::no_such_path)?;
    let placed = namespace.is_some() == kind.namespaced || (name.is_none() && namespace.is_none());
    if !placed {
        return Err(Refusal::no_such_path());
    }
    Ok(Target {
        kind: kind.clone(),
        version,
        namespace,
        name: name.map(str::to_owned),
        subresource: subresource.map(str::to_owned),
    })
}

/// Undoes percent-encoding; what is not an escape stays as it is.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escape = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        plain.push(escape.unwrap_or(bytes[at]));
        at += if escape.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&plain).into_owned()
}

/// What a query asks for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Options {
    pub watch: bool,
    pub selector: Selector,
    pub limit: usize,
    pub continue_from: Option<String>,
    /// `None` when unset or 0: whatever is newest.
    pub resource_version: Option<u64>,
    pub freshness: Freshness,
    pub events: Events,
    /// How much of the objects the rows of a table show, in words.
    pub include_object: String,
    pub timeout: Option<Duration>,
    pub dry_run: bool,
    pub writing: Writing,
    /// Unknown fields are an error instead of being dropped.
    pub strict: bool,
    pub delete: DeleteOptions,
}

/// What a query says of how new its answer must be.
#[derive(Clone, Debug, Default)]
pub(crate) struct Freshness {
    /// Whether it names a version, were it 0.
    said: bool,
    /// What it names, if that is no version.
    bad: Option<String>,
    /// How the answer must relate to the version, in words.
    relation: Option<String>,
}

/// How something is written.
#[derive(Clone, Debug, Default)]
pub(crate) struct Writing {
    /// The request is a PUT.
    pub is_put: bool,
    /// Who owns what is written.
    pub field_manager: Option<String>,
    /// Takes fields away from their owners.
    pub force: bool,
}

/// What a watch wants beside changes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Events {
    /// Everything that is there first.
    pub initial: bool,
    /// Whether the query says anything of that.
    pub initial_said: bool,
    pub bookmarks: bool,
}

/// How something is to be deleted: from the query, the body, or both.
#[derive(Clone, Debug, Default)]
pub(crate) struct DeleteOptions {
    pub grace_seconds: Option<i64>,
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub resource_version: Option<String>,
}

/// What becomes of the objects that the deleted one owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    /// They go after it.
    Background,
    /// They go before it.
    Foreground,
    /// They stay.
    Orphan,
}

impl Options {
    pub fn parse(uri: &http::Uri) -> Result<Self, Refusal> {
        let pairs: axum::extract::Query<Vec<(String, String)>> =
            axum::extract::Query::try_from_uri(uri)
                .map_err(|error| Refusal::bad_request(error.to_string()))?;
        let mut options = Self::default();
        let (mut labels, mut fields) = (String::new(), String::new());
        for (key, value) in pairs.0 {
            match key.as_str() {
                "labelSelector" => labels = value,
                "fieldSelector" => fields = value,
                _ => options.set(&key, value)?,
            }
        }
        options.selector = Selector::parse(&labels, &fields)?;
        match options.freshness.bad.take() {
            // The real server notices it late in a watch.
            Some(text) if options.watch => {
                return Err(Refusal::new(
                    500,
                    "",
                    format!("resourceVersion: Invalid value: {text:?}"),
                ));
            }
            Some(text) => version(&text).map(drop)?,
            None => {}
        }
        options.check_match()?;
        Ok(options)
    }

    /// The version that a list must be of, if it must be of one.
    pub fn exactly(&self) -> Option<u64> {
        self.resource_version.filter(|_| self.freshness.relation.as_deref() == Some("Exact"))
    }

    /// The words about how new an answer must be make sense together.
    fn check_match(&self) -> Result<(), Refusal> {
        let wanted = self.freshness.relation.as_deref();
        let why = match (self.watch, wanted) {
            (true, _) if self.events.initial_said && wanted != Some("NotOlderThan") => {
                "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
            }
            (true, Some(_)) if !self.events.initial_said => {
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            }
            (false, _) if self.events.initial_said => "sendInitialEvents is forbidden for list",
            (false, Some(_)) if self.continue_from.is_some() => {
                "resourceVersionMatch is forbidden when continue is provided"
            }
            (false, Some(_)) if !self.freshness.said => {
                "resourceVersionMatch is forbidden unless resourceVersion is provided"
            }
            (false, Some(word)) if !matches!(word, "Exact" | "NotOlderThan") => {
                "supported values: \"Exact\", \"NotOlderThan\", \"\""
            }
            (false, Some("Exact")) if self.resource_version.is_none() => {
                "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\""
            }
            _ => return Ok(()),
        };
        let cause = format!("Forbidden: {why}");
        let details = serde_json::json!({"kind": "ListOptions", "group": "meta.k8s.io", "causes":
            [{"reason": "FieldValueForbidden", "message": cause.clone(),
                "field": "resourceVersionMatch"}]});
        let message =
            format!("ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: {cause}");
        Err(Refusal { details, ..Refusal::new(422, "Invalid", message) })
    }

    fn set(&mut self, key: &str, value: String) -> Result<(), Refusal> {
        let yes = value == "true" || value == "1";
        match key {
            "watch" => self.watch = yes,
            "limit" => self.limit = number(&value)?,
            "continue" => self.continue_from = Some(value).filter(|token| !token.is_empty()),
            "resourceVersion" => {
                self.freshness.said = !value.is_empty();
                match version(&value) {
                    Ok(version) => self.resource_version = version,
                    Err(_) => self.freshness.bad = Some(value),
                }
            }
            "resourceVersionMatch" => {
                self.freshness.relation = Some(value).filter(|word| !word.is_empty());
            }
            "includeObject" => self.include_object = value,
            "sendInitialEvents" => {
                self.events.initial = yes;
                self.events.initial_said = true;
            }
            "allowWatchBookmarks" => self.events.bookmarks = yes,
            "timeoutSeconds" => self.timeout = Some(Duration::from_secs(number(&value)?)),
            "dryRun" if value == "All" => self.dry_run = true,
            "dryRun" => return Err(invalid_option("dryRun", &value)),
            "fieldManager" => {
                self.writing.field_manager = Some(value).filter(|name| !name.is_empty());
            }
            "force" => self.writing.force = yes,
            "fieldValidation" => self.strict = value == "Strict",
            "gracePeriodSeconds" => self.delete.grace_seconds = Some(number(&value)?),
            "propagationPolicy" => self.delete.propagation = Some(propagation(&value)?),
            "orphanDependents" if yes => self.delete.propagation = Some(Propagation::Orphan),
            _ => {}
        }
        Ok(())
    }

    /// Takes over what a DELETE's body says.
    pub fn read_delete_body(&mut self, body: &[u8]) -> Result<(), Refusal> {
        if body.is_empty() {
            return Ok(());
        }
        let body: Value = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad_request(format!("error decoding options: {error}")))?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        self.delete.read(&body)?;
        self.delete.uid = text(&body["preconditions"]["uid"]);
        self.delete.resource_version = text(&body["preconditions"]["resourceVersion"]);
        let dry_run = body["dryRun"].as_array().into_iter().flatten();
        self.dry_run |= dry_run.into_iter().any(|mode| mode == "All");
        Ok(())
    }
}

impl DeleteOptions {
    fn read(&mut self, body: &Value) -> Result<(), Refusal> {
        if let Some(seconds) = body["gracePeriodSeconds"].as_i64() {
            self.grace_seconds = Some(seconds);
        }
        if let Some(policy) = body["propagationPolicy"].as_str() {
            self.propagation = Some(propagation(policy)?);
        }
        Ok(())
    }
}

fn propagation(text: &str) -> Result<Propagation, Refusal> {
    match text {
        "Background" => Ok(Propagation::Background),
        "Foreground" => Ok(Propagation::Foreground),
        "Orphan" => Ok(Propagation::Orphan),
        other => Err(invalid_option("propagationPolicy", other)),
    }
}

/// The 422 of a value that an option does not have.
fn invalid_option(option: &str, value: &str) -> Refusal {
    let cause = format!("Unsupported value: {value:?}");
    let details = serde_json::json!({"kind": "Options", "group": "meta.k8s.io", "causes":
        [{"reason": "FieldValueNotSupported", "message": cause.clone(), "field": option}]});
    let message = format!("Options.meta.k8s.io \"\" is invalid: {option}: {cause}");
    Refusal { details, ..Refusal::new(422, "Invalid", message) }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, Refusal> {
    text.parse().map_err(|_| Refusal::bad_request(format!("{text:?} is not a number")))
}

fn version(text: &str) -> Result<Option<u64>, Refusal> {
    match text {
        "" => Ok(None),
        text => text
            .parse()
            .map(|version| Some(version).filter(|&version| version != 0))
            .map_err(|_| Refusal::bad_request(format!("Invalid value: {text:?}: resourceVersion"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Found = (String, Option<String>, Option<String>, Option<String>);

    fn target(path: &str) -> Result<Found, u16> {
        let registry = Registry::new(Vec::new()).unwrap();
        match route(&registry, path) {
            Ok(Route::Objects(t)) => {
                Ok((t.kind.key.to_string(), t.namespace, t.name, t.subresource))
            }
            Ok(Route::Document(_)) => Err(200),
            Err(refusal) => Err(refusal.code),
        }
    }

    #[test]
    fn every_form_of_path_finds_its_objects() {
        let some = |text: &str| Some(text.to_owned());
        for (path, wanted) in [
            ("/api/v1/pods", Ok(("pods".to_owned(), None, None, None))),
            ("/api/v1/namespaces", Ok(("namespaces".to_owned(), None, None, None))),
            ("/api/v1/namespaces/a", Ok(("namespaces".to_owned(), None, some("a"), None))),
            (
                "/api/v1/namespaces/a/status",
                Ok(("namespaces".to_owned(), None, some("a"), some("status"))),
            ),
            (
                "/api/v1/namespaces/a/pods/b/status",
                Ok(("pods".to_owned(), some("a"), some("b"), some("status"))),
            ),
            (
                "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
                Ok((
                    "clusterroles.rbac.authorization.k8s.io".to_owned(),
                    None,
                    some("system:node"),
                    None,
                )),
            ),
            ("/api/v1/pods/b", Err(404)),
            ("/api/v1/namespaces/a/nodes", Err(404)),
            ("/api/v2/pods", Err(404)),
            ("/apis/apps/v1/nothing", Err(404)),
            ("/apis/apps/v1", Err(200)),
        ] {
            assert_eq!(target(path), wanted, "{path}");
        }
    }

    #[test]
    fn a_query_is_decoded_and_zero_means_any_version() {
        let uri = "/x?labelSelector=a%20in%20(b)&resourceVersion=0&timeoutSeconds=9&watch=1";
        let options = Options::parse(&uri.parse().unwrap()).unwrap();
        assert!(options.watch && options.resource_version.is_none());
        assert_eq!(options.timeout, Some(Duration::from_secs(9)));
        let labelled = serde_json::json!({"metadata": {"labels": {"a": "b"}}});
        assert!(options.selector.matches(&labelled));
        assert!(Options::parse(&"/x?limit=many".parse().unwrap()).is_err());
    }
}
