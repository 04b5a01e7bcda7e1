//! A GitHub Actions runner on the host itself, as configuration. No I/O.

use secrecy::{ExposeSecret, SecretString};

use crate::ConfigError;

/// What GitHub and its runner's own scripts allow in names: nothing that a shell or a path reads as
/// more than a name.
fn is_name(text: &str) -> bool {
    let usual = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    !text.is_empty() && !text.starts_with(['-', '.']) && text.bytes().all(usual)
}

/// A runner of an organisation, for hosts that build images. Valid by construction.
#[derive(Clone, Debug)]
pub struct GithubRunner {
    url: String,
    org: String,
    labels: String,
    version: String,
    token: SecretString,
}

impl GithubRunner {
    /// A runner of organisation `org` at `server` (such as `https://github.com`), with `labels`
    /// separated by commas, installed from release `version`, registered by `token`.
    pub fn new(
        server: &str,
        org: &str,
        labels: &str,
        version: &str,
        token: SecretString,
    ) -> Result<Self, ConfigError> {
        let refuse = |field, text: &str| Err(ConfigError::NotRunner { field, text: text.into() });
        let host = server.strip_prefix("https://").or_else(|| server.strip_prefix("http://"));
        if !host.is_some_and(|host| host.bytes().all(|b| b.is_ascii_graphic() && b != b'\'')) {
            return refuse("GitHub's address", server);
        }
        if !is_name(org) {
            return refuse("ghOrg", org);
        }
        if !labels.split(',').all(is_name) {
            return refuse("ghRunnerLabels", labels);
        }
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if version.split('.').count() != 3 || !version.split('.').all(digits) {
            return refuse("ghRunnerVersion", version);
        }
        if token.expose_secret().is_empty() || token.expose_secret().contains(['\n', '\r', '\0']) {
            return Err(ConfigError::RunnerTokenMissing);
        }
        let url = format!("{}/{org}", server.trim_end_matches('/'));
        let (org, labels, version) = (org.into(), labels.into(), version.into());
        Ok(Self { url, org, labels, version, token })
    }

    /// Where it belongs, as its own `config.sh` wants it.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its labels, separated by commas.
    #[must_use]
    pub fn labels(&self) -> &str {
        &self.labels
    }

    /// The release that a host without one gets; a runner updates itself afterwards.
    #[must_use]
    pub fn version(&self) -> &str {
        &self.version
    }

    /// What registers it.
    #[must_use]
    pub fn token(&self) -> &SecretString {
        &self.token
    }

    /// The launchd job of the runner called `name`, as its own `svc.sh` calls it.
    #[must_use]
    pub fn job(&self, name: &str) -> String {
        format!("actions.runner.{}.{name}", self.org)
    }

    /// What it was registered as.
    #[must_use]
    pub fn registered_as(&self) -> String {
        format!("{} {}\n", self.url, self.labels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_that_cannot_be_used_is_named_with_what_it_says() {
        let new = |server: &str, org: &str, labels: &str, version: &str| {
            let said = GithubRunner::new(server, org, labels, version, "token".into());
            said.map(|runner| runner.url().to_owned()).map_err(|error| error.to_string())
        };
        let (server, labels, version) = ("https://github.com", "a,b", "2.334.0");
        assert_eq!(new(server, "tuist", labels, version).unwrap(), "https://github.com/tuist");
        for (org, labels, version, field) in [
            ("", labels, version, "ghOrg"),
            ("a/b", labels, version, "ghOrg"),
            ("-rf", labels, version, "ghOrg"),
            ("o", "a,,b", version, "ghRunnerLabels"),
            ("o", "a b", version, "ghRunnerLabels"),
            ("o", labels, "", "ghRunnerVersion"),
            ("o", labels, "latest", "ghRunnerVersion"),
            ("o", labels, "2.334.0/../x", "ghRunnerVersion"),
        ] {
            let error = new(server, org, labels, version).unwrap_err();
            assert!(error.contains(field), "{error}");
        }
        assert!(new("ftp://x", "o", labels, version).unwrap_err().contains("GitHub's address"));
        let none = GithubRunner::new(server, "o", labels, version, "".into()).unwrap_err();
        assert_eq!(none, ConfigError::RunnerTokenMissing);
    }

    #[test]
    fn what_it_prints_of_itself_does_not_hold_its_token() {
        let runner =
            GithubRunner::new("https://github.com", "o", "a", "2.334.0", "canary-9".into());
        assert!(!format!("{runner:?}").contains("canary-9"));
    }
}
