//! What Tart says, as types. Pure.

use std::collections::BTreeMap;

use applecart_core::pod::{Exit, VmName};
use serde::Deserialize;

use crate::vm::VmError;

/// What `tart list` knows of a VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Running,
    Stopped,
    /// Not listed: only our record speaks of it.
    Absent,
}

/// Only what is used is read, so that no other field's type can break it (K15).
#[derive(Deserialize)]
struct Entry {
    #[serde(rename = "Name")]
    name: String,
    #[serde(rename = "Running")]
    running: Option<bool>,
    #[serde(rename = "State")]
    state: Option<String>,
}

/// Parses `tart list --format json`. A VM that does not say whether it runs is an error: taken for
/// stopped, it could be deleted.
pub(super) fn parse(text: &str) -> Result<BTreeMap<VmName, Listed>, VmError> {
    let unreadable = |said: String| VmError::Failed { what: "reading tart list".to_owned(), said };
    let entries: Vec<Entry> =
        serde_json::from_str(text).map_err(|error| unreadable(error.to_string()))?;
    let listed = entries.into_iter().map(|entry| {
        let state = match (entry.running, entry.state.as_deref()) {
            (Some(true), _) | (None, Some("running")) => Listed::Running,
            (Some(false), _) | (None, Some("stopped" | "suspended")) => Listed::Stopped,
            (None, _) => {
                return Err(unreadable(format!("VM {} has no known state", entry.name)));
            }
        };
        Ok((VmName::new(entry.name), state))
    });
    listed.collect()
}

/// How a run ended. Tart ends with 0 also when the machine itself failed, and says so in its log.
pub(super) fn exit(code: i32, said: String) -> Exit {
    const CRASHED: &str = "guest has stopped the virtual machine due to error";
    match code {
        0 if said.contains(CRASHED) => Exit::Crashed(said),
        0 => Exit::Code { code, message: String::new() },
        _ => Exit::Code { code, message: said },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<(String, Listed)> {
        let all = parse(text).unwrap();
        all.into_iter().map(|(name, state)| (name.to_string(), state)).collect()
    }

    #[test]
    fn every_version_of_the_list_is_read() {
        let now = r#"[{"Source":"local","Name":"a","Disk":50,"Size":21,"Running":true,
            "Accessed":"2026-01-01T00:00:00Z","State":"running"},
            {"Name":"b","Size":"21.337","Running":false,"State":"suspended","New":{"x":[1]}}]"#;
        assert_eq!(names(now), [("a".into(), Listed::Running), ("b".into(), Listed::Stopped)]);
        let without_running = r#"[{"Name":"c","SizeOnDisk":1,"State":"stopped"}]"#;
        assert_eq!(names(without_running), [("c".into(), Listed::Stopped)]);
        let without_state = r#"[{"Name":"d","Running":true}]"#;
        assert_eq!(names(without_state), [("d".into(), Listed::Running)]);
        assert!(names("[\n\n]").is_empty());
    }

    #[test]
    fn what_cannot_be_read_is_an_error_and_never_an_empty_list() {
        for text in ["", "null", "{}", "[{}]", r#"[{"Name":"a"}]"#, r#"[{"Name":"a","State":"?"}]"#]
        {
            assert!(parse(text).is_err(), "K15, LH20: {text}");
        }
    }

    #[test]
    fn a_machine_that_failed_is_no_success_although_its_code_is_zero() {
        let said = "guest has stopped the virtual machine due to error: panic".to_owned();
        assert_eq!(exit(0, said.clone()), Exit::Crashed(said));
        let halted = "guest has stopped the virtual machine".to_owned();
        assert_eq!(exit(0, halted), Exit::Code { code: 0, message: String::new() });
        assert_eq!(exit(7, "x".into()), Exit::Code { code: 7, message: "x".into() });
    }
}
