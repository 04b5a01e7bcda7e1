//! The server's own documents: health, version, discovery, schemas. No I/O.

use http::Method;
use http::request::Parts;
use serde_json::{Value, json};

use super::discovery;
use super::openapi;
use super::refusal::Refusal;
use super::registry::Registry;
use super::respond::text;
use super::server::Answer;

/// The version that the server says it is.
pub(crate) const VERSION: &str = "v1.36.4";

/// The document at `path`.
pub(crate) fn answer(
    registry: &Registry,
    path: &[String],
    parts: &Parts,
) -> Result<Answer, Refusal> {
    if parts.method != Method::GET && parts.method != Method::HEAD {
        return Err(Refusal::method_not_allowed());
    }
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let body: Value = match path[..] {
        ["healthz" | "readyz" | "livez", ..] => {
            return Ok(text(200, "text/plain", "ok".to_owned()));
        }
        ["version"] => json!({"major": "1", "minor": "36", "gitVersion": VERSION,
            "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "", "compiler": "", "platform": "simulated"}),
        ["api"] => discovery::core_versions(),
        ["apis"] => discovery::groups(registry),
        ["api", version] => {
            discovery::resources(registry, "", version).ok_or_else(Refusal::no_such_path)?
        }
        ["apis", group] => discovery::group(registry, group).ok_or_else(Refusal::no_such_path)?,
        ["apis", group, version] => {
            discovery::resources(registry, group, version).ok_or_else(Refusal::no_such_path)?
        }
        ["openapi", "v3"] => openapi::index(registry),
        ["openapi", "v3", "api", version] => {
            openapi::document(registry, "", version).ok_or_else(Refusal::no_such_path)?
        }
        ["openapi", "v3", "apis", group, version] => {
            openapi::document(registry, group, version).ok_or_else(Refusal::no_such_path)?
        }
        _ => return Err(Refusal::no_such_path()),
    };
    Ok(text(200, "application/json", body.to_string()))
}
