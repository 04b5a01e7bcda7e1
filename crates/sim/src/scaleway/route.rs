//! From an HTTP request to the operation that it asks for.

use std::collections::BTreeMap;

use applecart_api::ids::{ServerId, Zone};
use bytes::Bytes;
use http::{Method, Request};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;

use super::answer::Answer;
use super::gate::{Call, Operation};
use super::settings::{Accepts, Settings};

/// A request, understood.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// Which request it is; no two have the same number.
    pub number: u64,
    pub call: Call,
    /// The image, kind or key in the path.
    pub item: String,
    pub query: Query,
    pub body: Bytes,
}

/// The part of the path that tells what is asked for.
fn operation(method: &Method, rest: &[&str]) -> Option<(Operation, String)> {
    use Operation as O;
    let (operation, item) = match (method.as_str(), rest) {
        ("GET", ["servers"]) => (O::ListServers, ""),
        ("POST", ["servers"]) => (O::CreateServer, ""),
        ("POST", ["batch-create-servers"]) => (O::BatchCreateServers, ""),
        ("GET", ["servers", id]) => (O::GetServer, *id),
        ("PATCH", ["servers", id]) => (O::UpdateServer, *id),
        ("DELETE", ["servers", id]) => (O::DeleteServer, *id),
        ("POST", ["servers", id, "reboot"]) => (O::RebootServer, *id),
        ("POST", ["servers", id, "reinstall"]) => (O::ReinstallServer, *id),
        ("GET", ["os"]) => (O::ListOs, ""),
        ("GET", ["os", id]) => (O::GetOs, *id),
        ("GET", ["server-types"]) => (O::ListServerTypes, ""),
        ("GET", ["server-type", name]) => (O::GetServerType, *name),
        ("GET", ["ssh-keys"]) => (O::ListSshKeys, ""),
        ("POST", ["ssh-keys"]) => (O::CreateSshKey, ""),
        ("GET", ["ssh-keys", id]) => (O::GetSshKey, *id),
        ("PATCH", ["ssh-keys", id]) => (O::UpdateSshKey, *id),
        ("DELETE", ["ssh-keys", id]) => (O::DeleteSshKey, *id),
        _ => return None,
    };
    Some((operation, item.to_owned()))
}

/// What a request asks for, or the answer that there is no such thing.
pub(super) fn asked(request: Request<Bytes>, number: u64) -> Result<Asked, Answer> {
    let (parts, body) = request.into_parts();
    let segments: Vec<&str> = parts.uri.path().trim_matches('/').split('/').collect();
    let unknown = || Answer::not_found("path", parts.uri.path());
    let (zone, rest) = match &segments[..] {
        ["apple-silicon", "v1alpha1", "zones", zone, rest @ ..]
            if rest.first() != Some(&"ssh-keys") =>
        {
            let zone: Zone =
                zone.parse().map_err(|_| Answer::invalid("zone", "format", "not a zone"))?;
            (Some(zone), rest)
        }
        ["iam", "v1alpha1", rest @ ..] if rest.first() == Some(&"ssh-keys") => (None, rest),
        _ => return Err(unknown()),
    };
    let (operation, item) = operation(&parts.method, rest).ok_or_else(unknown)?;
    let server: Option<ServerId> = match rest {
        ["servers", id, ..] => {
            Some(id.parse().map_err(|_| Answer::invalid("server_id", "format", "not a UUID"))?)
        }
        _ => None,
    };
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    Ok(Asked { number, call: Call { operation, zone, server }, item, query, body })
}

/// A JSON body, or the answer that names the field which is missing or wrong.
pub(super) fn body<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Answer> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut json).map_err(|error| {
        let (path, problem) = (error.path().to_string(), error.inner().to_string());
        // Serde has no other way to tell which field it misses.
        let missing = problem.strip_prefix("missing field `").and_then(|it| it.split_once('`'));
        match (missing, path.as_str()) {
            (Some((field, _)), ".") => Answer::invalid(field, "required", ""),
            (Some((field, _)), path) => Answer::invalid(&format!("{path}.{field}"), "required", ""),
            (None, "." | "?") => Answer::invalid("body", "format", &problem),
            (None, path) => Answer::invalid(path, "format", &problem),
        }
    })?;
    json.end().map_err(|error| Answer::invalid("body", "format", &error.to_string()))?;
    Ok(read)
}

/// The query of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Query(BTreeMap<String, String>);

impl Query {
    fn parse(text: &str) -> Self {
        let decode = |text: &str| {
            percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
        };
        let pair = |pair: &str| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decode(name), decode(value))
        };
        Self(text.split('&').filter(|text| !text.is_empty()).map(pair).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Which page is asked for.
    pub(super) fn page(&self, settings: &Settings) -> Result<PageOf, Answer> {
        let number = |name: &str, default: usize| match self.get(name).map(str::parse) {
            None => Ok(default),
            Some(Ok(number)) if number >= 1 => Ok(number),
            Some(_) => Err(Answer::invalid(name, "constraint", "1 or more")),
        };
        let page = number("page", 1)?;
        let size = number("page_size", settings.unsure.default_page_size.items())?;
        let max = settings.max_page_size;
        if size > max && settings.unsure.oversized_pages == Accepts::No {
            return Err(Answer::invalid("page_size", "constraint", &format!("at most {max}")));
        }
        Ok(PageOf { page, size: size.min(max) })
    }
}

/// A page by its number and size.
#[derive(Clone, Copy, Debug)]
pub(super) struct PageOf {
    page: usize,
    size: usize,
}

impl PageOf {
    /// The part of a list that is on it.
    pub(super) fn of<T>(self, items: &[T]) -> &[T] {
        let start = (self.page - 1).saturating_mul(self.size).min(items.len());
        let end = start.saturating_add(self.size).min(items.len());
        &items[start..end]
    }
}
