//! Where, as whom, for which project: Scaleway's standard environment and configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use applecart_api::ids::Zone;
use http::{HeaderValue, Uri};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;

use crate::ids::ProjectId;

/// Where Scaleway's API is, unless told otherwise.
pub const DEFAULT_API_URL: &str = "https://api.scaleway.com";

/// Why there is no profile. Names the variable to set.
#[derive(Debug, thiserror::Error)]
pub enum ProfileError {
    /// Neither the environment nor the file has it.
    #[error("{variable} is not set, and {file} has no {field} for it")]
    Missing {
        /// The variable to set.
        variable: &'static str,
        /// What it is called in the file.
        field: &'static str,
        /// The file that was looked at.
        file: String,
    },
    /// It is there, but it cannot be one.
    #[error("{variable} (or {field} in the configuration file) {problem}")]
    Invalid {
        /// The variable to correct.
        variable: &'static str,
        /// What it is called in the file.
        field: &'static str,
        /// What is wrong with it; never the value of a secret.
        problem: String,
    },
    /// The file is there, or was asked for by name, and cannot be read.
    #[error("cannot read the configuration file {path}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The file is not what we expect. Its text stays out of the error: it holds a secret.
    #[error("{path} is not a Scaleway configuration file (line {line})")]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where it goes wrong; 0 if nobody knows.
        line: u64,
    },
    /// `SCW_PROFILE` or `active_profile` names a profile that the file does not have.
    #[error("there is no profile {name:?} in {file}: SCW_PROFILE or active_profile names it")]
    NoSuchProfile {
        /// The profile that was asked for.
        name: String,
        /// The file that was looked at.
        file: String,
    },
}

/// Where, as whom, for which project.
#[derive(Clone, Debug)]
pub struct Profile {
    api_url: String,
    secret_key: SecretString,
    /// The project whose hosts and keys these are.
    pub project: ProjectId,
    zone: Option<Zone>,
}

const API_URL: (&str, &str) = ("SCW_API_URL", "api_url");
const SECRET_KEY: (&str, &str) = ("SCW_SECRET_KEY", "secret_key");
const PROJECT: (&str, &str) = ("SCW_DEFAULT_PROJECT_ID", "default_project_id");
const ZONE: (&str, &str) = ("SCW_DEFAULT_ZONE", "default_zone");

impl Profile {
    /// A profile from its parts.
    pub fn new(
        api_url: &str,
        secret_key: SecretString,
        project: ProjectId,
    ) -> Result<Self, ProfileError> {
        let secret_fits =
            HeaderValue::from_str(secret_key.expose_secret()).is_ok_and(|value| !value.is_empty());
        if !secret_fits {
            return Err(invalid(SECRET_KEY, "cannot be a secret key".to_owned()));
        }
        let is_base = |uri: &Uri| {
            let web = matches!(uri.scheme_str(), Some("http" | "https"));
            web && uri.host().is_some_and(|host| !host.is_empty()) && uri.query().is_none()
        };
        if !api_url.parse().as_ref().is_ok_and(is_base) {
            return Err(invalid(API_URL, format!("is {api_url:?}, not a URL")));
        }
        let api_url = api_url.trim_end_matches('/').to_owned();
        Ok(Self { api_url, secret_key, project, zone: None })
    }

    /// The profile that the environment asks for: each value from its `SCW_*` variable, else from
    /// the active profile of the configuration file, else from that file's default profile.
    ///
    /// `variable` looks up the environment; a variable that is empty is not set.
    pub fn load(variable: impl Fn(&str) -> Option<String>) -> Result<Self, ProfileError> {
        let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
        let file = File::find(&variable)?;
        let named = variable("SCW_PROFILE").or_else(|| file.content.active_profile.clone());
        let fields = file.fields(named)?;
        let text =
            |(name, _): (&str, &str), field: &Option<String>| variable(name).or(field.clone());
        let missing = |(variable, field): (&'static str, &'static str)| ProfileError::Missing {
            variable,
            field,
            file: file.name(),
        };
        let api_url = text(API_URL, &fields.api_url).unwrap_or_else(|| DEFAULT_API_URL.to_owned());
        let secret = variable(SECRET_KEY.0)
            .map(SecretString::from)
            .or_else(|| fields.secret_key.clone())
            .ok_or_else(|| missing(SECRET_KEY))?;
        let project = text(PROJECT, &fields.default_project_id).ok_or_else(|| missing(PROJECT))?;
        let project = project.parse().map_err(|error| invalid(PROJECT, format!("is {error}")))?;
        let zone = text(ZONE, &fields.default_zone)
            .map(|zone| zone.parse().map_err(|error| invalid(ZONE, format!("is wrong: {error}"))))
            .transpose()?;
        Ok(Self { zone, ..Self::new(&api_url, secret, project)? })
    }

    /// The default zone, or an error that says how to set one.
    pub fn zone(&self) -> Result<&Zone, ProfileError> {
        let (variable, field) = ZONE;
        let file = "the configuration file".to_owned();
        self.zone.as_ref().ok_or(ProfileError::Missing { variable, field, file })
    }

    /// Where the API is, without a slash at the end.
    #[must_use]
    pub fn api_url(&self) -> &str {
        &self.api_url
    }

    pub(crate) fn secret_key(&self) -> &SecretString {
        &self.secret_key
    }
}

fn invalid((variable, field): (&'static str, &'static str), problem: String) -> ProfileError {
    ProfileError::Invalid { variable, field, problem }
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Fields {
    api_url: Option<String>,
    secret_key: Option<SecretString>,
    default_project_id: Option<String>,
    default_zone: Option<String>,
}

impl Fields {
    /// A field that is there and empty is one that nobody filled in.
    fn without_empty(self) -> Self {
        let filled = |field: Option<String>| field.filter(|text| !text.is_empty());
        Self {
            api_url: filled(self.api_url),
            secret_key: self.secret_key.filter(|secret| !secret.expose_secret().is_empty()),
            default_project_id: filled(self.default_project_id),
            default_zone: filled(self.default_zone),
        }
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Content {
    api_url: Option<String>,
    secret_key: Option<SecretString>,
    default_project_id: Option<String>,
    default_zone: Option<String>,
    active_profile: Option<String>,
    profiles: BTreeMap<String, Fields>,
}

struct File {
    path: Option<PathBuf>,
    content: Content,
}

impl File {
    fn find(variable: &impl Fn(&str) -> Option<String>) -> Result<Self, ProfileError> {
        let named = variable("SCW_CONFIG_PATH").map(PathBuf::from);
        let must_exist = named.is_some();
        let default = || {
            let home = || variable("HOME").map(|home| PathBuf::from(home).join(".config"));
            let base = variable("XDG_CONFIG_HOME").map(PathBuf::from).or_else(home)?;
            Some(base.join("scw/config.yaml"))
        };
        let Some(path) = named.or_else(default) else {
            return Ok(Self { path: None, content: Content::default() });
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must_exist => {
                String::new()
            }
            Err(source) => return Err(ProfileError::Unreadable { path, source }),
        };
        if text.trim().is_empty() {
            return Ok(Self { path: Some(path), content: Content::default() });
        }
        match serde_saphyr::from_str(&text) {
            Ok(content) => Ok(Self { path: Some(path), content }),
            Err(error) => {
                let line = error.location().map_or(0, |location| location.line());
                Err(ProfileError::Malformed { path, line })
            }
        }
    }

    fn name(&self) -> String {
        let name = |path: &PathBuf| path.display().to_string();
        self.path.as_ref().map_or_else(|| "no configuration file".to_owned(), name)
    }

    /// The named profile on top of the default one.
    fn fields(&self, named: Option<String>) -> Result<Fields, ProfileError> {
        let base = Fields {
            api_url: self.content.api_url.clone(),
            secret_key: self.content.secret_key.clone(),
            default_project_id: self.content.default_project_id.clone(),
            default_zone: self.content.default_zone.clone(),
        }
        .without_empty();
        let Some(name) = named.filter(|name| name != "default") else { return Ok(base) };
        let Some(top) = self.content.profiles.get(&name).cloned() else {
            return Err(ProfileError::NoSuchProfile { name, file: self.name() });
        };
        let top = top.without_empty();
        Ok(Fields {
            api_url: top.api_url.or(base.api_url),
            secret_key: top.secret_key.or(base.secret_key),
            default_project_id: top.default_project_id.or(base.default_project_id),
            default_zone: top.default_zone.or(base.default_zone),
        })
    }
}
