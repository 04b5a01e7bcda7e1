//! The files that are written by this program: the chart's custom resource definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use kube::core::Resource;

/// The folder that belongs to this program alone, from the root of the workspace.
const FOLDER: &str = "chart/crds";
const HEADER: &str = "# Written by `cargo xtask gen` from crates/api. Do not edit.\n";

/// What to do when a file differs.
pub const REMEDY: &str = "run `cargo xtask gen` and commit the result";

/// How a file in the folder differs from what it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// Not there.
    Missing,
    /// There, with another text.
    Outdated,
    /// There, and nothing writes it.
    Stray,
}

impl Difference {
    /// One word or two, for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Outdated => "out of date",
            Self::Stray => "written by nothing",
        }
    }
}

/// File names in the folder and their texts.
type Files = BTreeMap<String, String>;

/// Files that differ, by their path from the root of the workspace.
pub fn differences(root: &Path) -> Result<Vec<(String, Difference)>> {
    let differences = compare(&wanted()?, &present(&root.join(FOLDER))?);
    Ok(differences.into_iter().map(|(name, how)| (format!("{FOLDER}/{name}"), how)).collect())
}

/// Makes the folder what it should be; returns what it changed.
pub fn write(root: &Path) -> Result<Vec<(String, Difference)>> {
    let folder = root.join(FOLDER);
    let wanted = wanted()?;
    fs::create_dir_all(&folder).with_context(|| format!("could not create {FOLDER}"))?;
    let changes = compare(&wanted, &present(&folder)?);
    for (name, _) in &changes {
        let path = folder.join(name);
        match wanted.get(name) {
            Some(text) => fs::write(&path, text),
            None => fs::remove_file(&path),
        }
        .with_context(|| format!("could not write {FOLDER}/{name}"))?;
    }
    Ok(changes.into_iter().map(|(name, how)| (format!("{FOLDER}/{name}"), how)).collect())
}

fn wanted() -> Result<Files> {
    applecart_api::crds()
        .into_iter()
        .map(|crd| {
            let name = format!("{}_{}.yaml", crd.spec.group, crd.spec.names.plural);
            let text = serde_saphyr::to_string(&crd).with_context(|| {
                format!(
                    "could not write {} as YAML",
                    crd.meta().name.as_deref().unwrap_or("a definition")
                )
            })?;
            Ok((name, format!("{HEADER}{text}")))
        })
        .collect()
}

fn present(folder: &Path) -> Result<Files> {
    if !folder.exists() {
        return Ok(Files::new());
    }
    let mut files = Files::new();
    for entry in fs::read_dir(folder).with_context(|| format!("could not list {FOLDER}"))? {
        let path = entry.with_context(|| format!("could not list {FOLDER}"))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text =
            fs::read_to_string(&path).with_context(|| format!("could not read {FOLDER}/{name}"))?;
        files.insert(name, text);
    }
    Ok(files)
}

fn compare(wanted: &Files, present: &Files) -> Vec<(String, Difference)> {
    let names: BTreeSet<&String> = wanted.keys().chain(present.keys()).collect();
    let difference = |name: &String| match (wanted.get(name), present.get(name)) {
        (Some(_), None) => Some(Difference::Missing),
        (None, Some(_)) => Some(Difference::Stray),
        (wanted, present) if wanted != present => Some(Difference::Outdated),
        _ => None,
    };
    names.into_iter().filter_map(|name| Some((name.clone(), difference(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(files: &[(&str, &str)]) -> Files {
        files.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect()
    }

    #[test]
    fn every_way_to_differ_is_told_apart_and_equal_files_are_not_reported() {
        let wanted = files(&[("same", "1"), ("edited", "1"), ("new", "1")]);
        let present = files(&[("same", "1"), ("edited", "2"), ("old", "1")]);
        assert_eq!(
            compare(&wanted, &present),
            [
                ("edited".into(), Difference::Outdated),
                ("new".into(), Difference::Missing),
                ("old".into(), Difference::Stray),
            ]
        );
    }

    #[test]
    fn what_was_written_differs_in_nothing_and_a_stray_is_taken_away() {
        let root = tempfile::tempdir().unwrap();
        assert!(!write(root.path()).unwrap().is_empty());
        assert_eq!(differences(root.path()).unwrap(), []);
        fs::write(root.path().join(FOLDER).join("stray.yaml"), "x").unwrap();
        let stray = [(format!("{FOLDER}/stray.yaml"), Difference::Stray)];
        assert_eq!(differences(root.path()).unwrap(), stray);
        assert_eq!(write(root.path()).unwrap(), stray);
        assert_eq!(differences(root.path()).unwrap(), []);
    }
}
