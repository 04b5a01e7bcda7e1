//! Rules about who may depend on whom. No I/O.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

use super::tree::Tree;
use super::{File, Problem};

/// Each package and what it may depend on: arrows point down only (a package may use those above it
/// in this list, if its row says so).
const LAYERS: &[(&str, &[&str])] = &[
    ("applecart-api", &[]),
    ("applecart-core", &["applecart-api"]),
    ("applecart-scaleway", &["applecart-api", "applecart-core"]),
    ("applecart-mac", &["applecart-api", "applecart-core"]),
    ("tart-kubelet", &["applecart-api", "applecart-core"]),
    ("applecart-operator", BELOW_OPERATOR),
    ("applecart-sim", BELOW_SIM),
    ("applecart", BELOW_CLI),
    ("applecart-entropy", &[]),
    ("applecart-sweep", BELOW_SWEEP),
    ("applecart-e2e", BELOW_E2E),
    ("xtask", &["applecart-api"]),
];
const BELOW_OPERATOR: &[&str] =
    &["applecart-api", "applecart-core", "applecart-scaleway", "applecart-mac"];
const BELOW_CLI: &[&str] = &[
    "applecart-api",
    "applecart-core",
    "applecart-scaleway",
    "applecart-mac",
    "applecart-operator",
    SIMULATION,
];
const BELOW_SIM: &[&str] = &[
    "applecart-api",
    "applecart-core",
    "applecart-scaleway",
    "applecart-mac",
    "applecart-operator",
    "tart-kubelet",
];
const BELOW_SWEEP: &[&str] = &[
    "applecart-api",
    "applecart-core",
    "applecart-scaleway",
    "applecart-mac",
    "applecart-operator",
    "tart-kubelet",
    "applecart-entropy",
    SIMULATION,
];

/// It starts programs from outside; what it links is for comparing and for standing in.
const BELOW_E2E: &[&str] = &["applecart-api", SIMULATION];

/// The simulated world; the command line has it behind this feature, to be left out of a cluster.
const SIMULATION: &str = "applecart-sim";
const COMMAND_LINE: &str = "applecart";
const DEMO_FEATURE: &str = "demo";

/// What a pure crate cannot need.
const NOT_IN_CORE: &[&str] = &["tokio", "kube-client", "reqwest"];
/// Other TLS backends than ring.
const OTHER_TLS: &[&str] = &["aws-lc-rs", "aws-lc-sys", "openssl", "openssl-sys", "native-tls"];

/// A package of the workspace, as `cargo metadata` tells it.
#[derive(Clone, Debug)]
pub struct Package {
    name: String,
    /// From the root of the workspace.
    manifest: String,
    /// Packages of the workspace that it names, for whatever purpose.
    dependencies: Vec<Dependency>,
    /// Features that switch the simulation on.
    simulation_features: BTreeSet<String>,
}

#[derive(Clone, Debug)]
struct Dependency {
    name: String,
    optional: bool,
}

impl Package {
    /// Reads the output of `cargo metadata --no-deps`.
    pub fn read_all(metadata: &str, root: &Path) -> Result<Vec<Self>> {
        let metadata: Value = serde_json::from_str(metadata)?;
        let packages = metadata["packages"].as_array().context("no list of packages")?;
        packages.iter().map(|package| Self::read(package, root)).collect()
    }

    fn read(package: &Value, root: &Path) -> Result<Self> {
        let text = |value: &Value, key: &str| {
            value[key].as_str().map(str::to_owned).with_context(|| format!("no {key}"))
        };
        let list = |key: &str| package[key].as_array().with_context(|| format!("no {key}"));
        let manifest = text(package, "manifest_path")?;
        let relative = Path::new(&manifest).strip_prefix(root).unwrap_or(Path::new(&manifest));
        let ours = list("dependencies")?.iter().filter(|dependency| dependency["path"].is_string());
        let switch = Value::from(format!("dep:{SIMULATION}"));
        let features = package["features"].as_object().context("no features")?.iter();
        Ok(Self {
            name: text(package, "name")?,
            manifest: relative.to_string_lossy().replace('\\', "/"),
            dependencies: ours
                .map(|dependency| {
                    let optional = dependency["optional"].as_bool().unwrap_or(false);
                    Ok(Dependency { name: text(dependency, "name")?, optional })
                })
                .collect::<Result<_>>()?,
            simulation_features: features
                .filter(|(_, switches)| switches.as_array().is_some_and(|s| s.contains(&switch)))
                .map(|(feature, _)| feature.clone())
                .collect(),
        })
    }
}

/// All rules of this file.
pub fn check(tree: &Tree) -> Vec<Problem> {
    let manifest = |path: &str| {
        let found = tree.files.iter().find(|file| file.path == path).cloned();
        found.unwrap_or_else(|| File { path: path.to_owned(), text: String::new() })
    };
    let mut problems: Vec<Problem> = tree
        .packages
        .iter()
        .flat_map(|package| check_package(package, &manifest(&package.manifest)))
        .collect();
    problems.extend(check_core(&tree.core_packages, &manifest("crates/core/Cargo.toml")));
    problems.extend(check_tls(&manifest("Cargo.lock")));
    problems
}

fn check_package(package: &Package, manifest: &File) -> Vec<Problem> {
    let Some((_, below)) = LAYERS.iter().find(|(name, _)| *name == package.name) else {
        let advice = format!("{} has no place yet: give it a row in xtask's LAYERS", package.name);
        return vec![manifest.problem(1, "layers", advice)];
    };
    let mut problems = Vec::new();
    for dependency in &package.dependencies {
        let (name, line) = (&dependency.name, line_of(manifest, &dependency.name));
        if !below.contains(&name.as_str()) {
            let advice = format!("{} must not depend on {name}: arrows point down", package.name);
            problems.push(manifest.problem(line, "layers", advice));
        } else if package.name == COMMAND_LINE && name == SIMULATION {
            let only_demo = package.simulation_features.iter().eq([DEMO_FEATURE]);
            if !dependency.optional || !only_demo {
                let advice =
                    format!("{name} must be optional, switched on by `{DEMO_FEATURE}` alone");
                problems.push(manifest.problem(line, "layers", advice));
            }
        }
    }
    problems
}

fn check_core(tree: &str, manifest: &File) -> Vec<Problem> {
    let inside: BTreeSet<&str> = tree.lines().filter_map(|l| l.split_whitespace().next()).collect();
    NOT_IN_CORE
        .iter()
        .filter(|name| inside.contains(**name))
        .map(|name| {
            let advice = format!(
                "core must do without {name}; who needs it: \
                 `cargo tree -p applecart-core -e normal -i {name}`"
            );
            manifest.problem(1, "core-dependencies", advice)
        })
        .collect()
}

fn check_tls(lock: &File) -> Vec<Problem> {
    let lines = lock.text.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let name = line.strip_prefix("name = \"")?.strip_suffix('"')?;
            OTHER_TLS.contains(&name).then(|| {
                let advice = format!(
                    "{name} beside ring: see `cargo tree --workspace --target all -i {name}`"
                );
                lock.problem(index + 1, "one-tls-backend", advice)
            })
        })
        .collect()
}

/// Where a manifest first names a dependency.
fn line_of(manifest: &File, name: &str) -> usize {
    let names = |line: &str| {
        let key = line.trim_start().split(['.', '=', ' ', ']']).next();
        key == Some(name) || line.contains(&format!("dependencies.{name}]"))
    };
    manifest.text.lines().position(names).map_or(1, |index| index + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, bool)], features: &[&str]) -> Package {
        Package {
            name: name.into(),
            manifest: "crates/x/Cargo.toml".into(),
            dependencies: dependencies
                .iter()
                .map(|(name, optional)| Dependency { name: (*name).into(), optional: *optional })
                .collect(),
            simulation_features: features.iter().map(ToString::to_string).collect(),
        }
    }

    fn manifest(text: &str) -> File {
        File { path: "crates/x/Cargo.toml".into(), text: text.into() }
    }

    fn lines(package: &Package, text: &str) -> Vec<usize> {
        check_package(package, &manifest(text)).iter().map(|problem| problem.line).collect()
    }

    #[test]
    fn arrows_point_down_only() {
        let toml = "[dependencies]\napplecart-operator.workspace = true\n";
        for (from, to, good) in [
            ("applecart-operator", "applecart-mac", true),
            ("applecart-mac", "applecart-core", true),
            ("tart-kubelet", "applecart-core", true),
            ("applecart-sweep", "applecart-sim", true),
            ("applecart-core", "applecart-operator", false),
            ("tart-kubelet", "applecart-operator", false),
            ("applecart-sim", "applecart", false),
            ("applecart-operator", "applecart-sim", false),
            ("xtask", "applecart-sim", false),
        ] {
            let found = lines(&package(from, &[(to, false)], &[]), toml);
            assert_eq!(found.is_empty(), good, "{from} → {to}");
        }
        let up = package("applecart-core", &[("applecart-operator", false)], &[]);
        assert_eq!(lines(&up, toml), [2]);
    }

    #[test]
    fn rows_of_the_table_name_only_packages_of_the_table() {
        let all: BTreeSet<&str> = LAYERS.iter().map(|(name, _)| *name).collect();
        for (name, below) in LAYERS {
            assert!(below.iter().all(|other| all.contains(other) && other != name), "{name}");
        }
    }

    #[test]
    fn a_new_package_needs_a_row() {
        assert_eq!(lines(&package("applecart-new", &[], &[]), ""), [1]);
    }

    #[test]
    fn the_command_line_has_the_simulation_behind_its_demo_feature_alone() {
        for (optional, features, good) in [
            (true, &["demo"][..], true),
            (false, &[][..], false),
            (true, &["demo", "other"][..], false),
            (true, &["other"][..], false),
        ] {
            let cli = package("applecart", &[("applecart-sim", optional)], features);
            assert_eq!(lines(&cli, "").is_empty(), good, "{optional} {features:?}");
        }
    }

    #[test]
    fn packages_are_read_from_cargo_metadata() {
        let metadata = r#"{"packages": [{
            "name": "applecart", "manifest_path": "/r/crates/cli/Cargo.toml",
            "dependencies": [
                {"name": "serde", "path": null, "optional": false},
                {"name": "applecart-sim", "path": "/r/crates/sim", "optional": true}
            ],
            "features": {"default": ["demo"], "demo": ["dep:applecart-sim"]}
        }]}"#;
        let packages = Package::read_all(metadata, Path::new("/r")).unwrap();
        assert_eq!(packages[0].manifest, "crates/cli/Cargo.toml");
        assert_eq!(packages[0].dependencies.len(), 1);
        assert!(lines(&packages[0], "").is_empty());
    }

    #[test]
    fn core_does_without_a_runtime_and_a_client() {
        let good = "applecart-core v0.1.0\nkube-core v5.0.0\nserde v1.0.0 (*)\n";
        assert_eq!(check_core(good, &manifest("")), []);
        for name in NOT_IN_CORE {
            let bad = format!("{good}{name} v1.0.0\n");
            assert_eq!(check_core(&bad, &manifest("")).len(), 1, "{name}");
        }
    }

    #[test]
    fn ring_is_the_one_tls_backend() {
        let good = "[[package]]\nname = \"ring\"\n[[package]]\nname = \"openssl-probe\"\n";
        assert_eq!(check_tls(&manifest(good)), []);
        for name in OTHER_TLS {
            let bad = format!("{good}[[package]]\nname = \"{name}\"\n");
            let lines: Vec<usize> = check_tls(&manifest(&bad)).iter().map(|p| p.line).collect();
            assert_eq!(lines, [6], "{name}");
        }
    }
}
