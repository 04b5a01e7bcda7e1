//! Who we are, from Scaleway's standard environment and configuration file.

use std::collections::BTreeMap;
use std::error::Error;

use applecart_scaleway::{Profile, ProfileError};

const FILE: &str = "
access_key: SCWXXXXXXXXXXXXXXXXX
secret_key: canary-default
default_organization_id: 11111111-1111-4111-8111-111111111111
default_project_id: project-default
default_zone: fr-par-1
default_region: fr-par
api_url: https://default.example
insecure: false
profiles:
  staging:
    secret_key: canary-staging
    default_project_id: project-staging
";

/// Loads with these variables, and this text as the configuration file if any.
fn load(variables: &[(&str, &str)], file: Option<&str>) -> Result<Profile, ProfileError> {
    let home = tempfile::tempdir().unwrap();
    if let Some(text) = file {
        std::fs::create_dir_all(home.path().join(".config/scw")).unwrap();
        std::fs::write(home.path().join(".config/scw/config.yaml"), text).unwrap();
    }
    let mut environment: BTreeMap<&str, String> =
        variables.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    environment.insert("HOME", home.path().display().to_string());
    Profile::load(|name| environment.get(name).cloned())
}

/// Everything that an error says.
fn text(error: &dyn Error) -> String {
    let mut said = format!("{error} {error:?}");
    if let Some(source) = error.source() {
        said += &text(source);
    }
    said
}

const KEY: (&str, &str) = ("SCW_SECRET_KEY", "canary-variable");
const PROJECT: (&str, &str) = ("SCW_DEFAULT_PROJECT_ID", "project-variable");

#[test]
fn the_environment_alone_is_enough() {
    let profile = load(&[KEY, PROJECT, ("SCW_DEFAULT_ZONE", "fr-par-3")], None).unwrap();
    assert_eq!(profile.project.as_str(), "project-variable");
    assert_eq!(profile.zone().unwrap().as_str(), "fr-par-3");
    assert_eq!(profile.api_url(), "https://api.scaleway.com");
}

#[test]
fn a_variable_goes_before_the_profile_and_the_profile_before_the_default() {
    let default = load(&[], Some(FILE)).unwrap();
    assert_eq!(default.project.as_str(), "project-default");
    let staging = load(&[("SCW_PROFILE", "staging")], Some(FILE)).unwrap();
    assert_eq!(staging.project.as_str(), "project-staging");
    assert_eq!(staging.api_url(), "https://default.example", "from the default profile");
    let variable = load(&[("SCW_PROFILE", "staging"), PROJECT], Some(FILE)).unwrap();
    assert_eq!(variable.project.as_str(), "project-variable");
    let active = load(&[], Some(&format!("active_profile: staging{FILE}"))).unwrap();
    assert_eq!(active.project.as_str(), "project-staging");
    let named = load(&[("SCW_PROFILE", "default")], Some(FILE)).unwrap();
    assert_eq!(named.project.as_str(), "project-default");
    let empty = load(&[("SCW_DEFAULT_PROJECT_ID", "")], Some(FILE)).unwrap();
    assert_eq!(empty.project.as_str(), "project-default", "an empty variable is not set");
    let unfilled = format!("active_profile: new{FILE}  new:\n    default_project_id: ''\n");
    let unfilled = load(&[], Some(&unfilled)).unwrap();
    assert_eq!(unfilled.project.as_str(), "project-default", "nor is an empty field");
}

#[test]
fn what_is_missing_or_wrong_is_named_by_its_variable() {
    let url = ("SCW_API_URL", "api.scaleway.com");
    let zone = ("SCW_DEFAULT_ZONE", "paris");
    for (variables, file, named) in [
        (&[][..], None, "SCW_SECRET_KEY"),
        (&[KEY], None, "SCW_DEFAULT_PROJECT_ID"),
        (&[KEY, PROJECT, url], None, "SCW_API_URL"),
        (&[KEY, PROJECT, zone], None, "SCW_DEFAULT_ZONE"),
        (&[("SCW_SECRET_KEY", "line\nbreak"), PROJECT], None, "SCW_SECRET_KEY"),
        (&[KEY, ("SCW_DEFAULT_PROJECT_ID", "a/b")], None, "SCW_DEFAULT_PROJECT_ID"),
        (&[("SCW_PROFILE", "nobody")], Some(FILE), "nobody"),
        (&[("SCW_CONFIG_PATH", "/does/not/exist")], None, "/does/not/exist"),
        (&[PROJECT], Some("secret_key: ''"), "SCW_SECRET_KEY is not set"),
        (&[PROJECT], Some("secret_key:"), "SCW_SECRET_KEY is not set"),
        (&[KEY, PROJECT], Some("- secret_key: canary-list"), "config.yaml"),
        (&[KEY, PROJECT], Some("secret_key: [canary-list, {"), "config.yaml"),
    ] {
        let error = load(variables, file).unwrap_err();
        assert!(error.to_string().contains(named), "{error}");
        assert!(!text(&error).contains("canary"), "{}", text(&error));
    }
    let zoneless = load(&[KEY, PROJECT], None).unwrap();
    assert!(zoneless.zone().unwrap_err().to_string().contains("SCW_DEFAULT_ZONE"));
}

#[test]
fn a_profile_does_not_print_its_key() {
    let profile = load(&[], Some(FILE)).unwrap();
    assert!(!format!("{profile:?}").contains("canary"));
}
